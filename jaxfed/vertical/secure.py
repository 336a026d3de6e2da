"""Secure aggregation of partial products: w . x_i without anybody's own product (VFB2, Algorithm 1).

Party l adds a mask delta_l, fresh for every update and row, to its product o_l. The sum of o + delta goes along tree T1
to the dominator and the sum of delta along T2; their difference is z. What a coalition can undo is a matter of the two
trees: see `vertical.leakage`. Masks are drawn for a block of ticks at once, from the run's secret and the counter (an
update's own number, row of the minibatch and party), so no change of schedule or block changes them.
"""

from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxfed.checks import fail, number, one_of, whole
from jaxfed.nodes import PyTreeNode, field
from jaxfed.types import Array
from jaxfed.vertical import aggregation, backward, fixed_point, secure_trees, tree_sums
from jaxfed.vertical.aggregation import Pair, Tree
from jaxfed.vertical.fixed_point import Limbs
from jaxfed.vertical.release import MASKS
from jaxfed.vertical.samples import threefry

FRACTION_BITS = {32: 20, 64: 32}


class SecureAggregation(PyTreeNode):
    """How products are masked.

    `bits` (static): 32 or 64, fixed-point numbers modulo 2^bits under uniform masks, which hide perfectly and cancel
    exactly; None: floats under masks uniform on [-scale, scale), the paper's, which hide little where `scale` (traced)
    is small and lose digits where it is large. `fraction_bits` (static): of fixed-point numbers, by default 20 of 32 or
    32 of 64; every product must stay below 2^(bits - 1 - fraction_bits) / q, else the run ends in NaN and says so.
    `trees` (static): one pair (T1, T2) per dominator (`vertical.aggregation`), whose root it is; by default pairs from
    which no single party learns anything but z, drawn from `seed` (`vertical.secure_trees`; two parties cannot hide
    from each other). Departures: the paper has one pair, and says nothing about what masks are; full passes (SVRG's
    reference points, SAGA's start) are added plainly, as masks cancel.
    """

    scale: Any = 1.0
    bits: int | None = field(pytree_node=False, default=32)
    fraction_bits: int | None = field(pytree_node=False, default=None)
    trees: tuple[Pair, ...] | None = field(pytree_node=False, default=None)
    seed: int = field(pytree_node=False, default=0)

    @property
    def fraction(self) -> int:
        """The number of fraction bits in use."""
        return FRACTION_BITS[self.bits or 32] if self.fraction_bits is None else self.fraction_bits

    def limit(self, num_parties: int) -> float:
        """Return what every product's size must stay below, so that no sum of fixed-point numbers can overflow."""
        if self.bits is None:
            return np.inf
        unit = 2.0**-self.fraction
        return fixed_point.room(num_parties) * 2.0 ** (self.bits - 32) * unit - 0.5 * unit  # half a unit, for rounding

    def pairs(self, party: Any) -> tuple[Pair, ...]:
        """Return the tree pair of each dominator. party: PartyData, or anything with `num_parties` and `active`."""
        return _default_pairs(party.num_parties, tuple(party.active), self.seed) if self.trees is None else self.trees

    def check(self, party: Any) -> None:
        """Raise ValueError where this does not suit the parties."""
        one_of("secure.bits", self.bits, [32, 64, None])
        number("secure.scale", self.scale, 0)
        whole("secure.seed", self.seed, 0)
        if self.fraction_bits is not None:
            whole("secure.fraction_bits", self.fraction_bits, 0)
        spare = (self.bits or 64) - 2 - self.fraction - (party.num_parties - 1).bit_length()
        if self.bits is not None and spare < 0:
            fail("secure.fraction_bits", self.fraction, f"at most {self.fraction + spare} for {self.bits} bits and "
                 f"{party.num_parties} parties, so that numbers below 1 fit")  # fmt: skip
        if self.trees is None:
            return
        m = len(party.active)
        if not isinstance(self.trees, tuple) or len(self.trees) != m:
            got = f"{len(self.trees)}" if isinstance(self.trees, (tuple, list)) else repr(self.trees)
            fail("secure.trees", got, f"a tuple of {m} pairs of trees, one per dominator")
        for a, pair in enumerate(self.trees):
            if not isinstance(pair, tuple) or len(pair) != 2:
                fail(f"secure.trees[{a}]", repr(pair), "a pair of trees, (T1, T2)")
            for tree, name in zip(pair, ("T1", "T2"), strict=True):
                aggregation.check_tree(f"secure.trees[{a}], {name}", tree, party.num_parties, party.active[a])


@cache
def _default_pairs(num_parties: int, active: tuple[int, ...], seed: int) -> tuple[Pair, ...]:
    if num_parties > 2:
        return secure_trees.pairs((num_parties, active), seed=seed)
    # the other of two is what z leaves: no pair protects it
    return tuple((aggregation.star(root, num_parties),) * 2 for root in active)


def draw(secure: SecureAggregation, key: Array, update: Array, batch_size: int) -> Any:
    """Return masks [..., m, b, q] of updates [..., m, q], own numbers of each dominator.

    key: uint32 [2]. Floats, uint32, or Limbs.
    """
    m, q = update.shape[-2:]
    own = jax.random.fold_in(jax.random.wrap_key_data(key, impl="threefry2x32"), MASKS)
    keys = jax.vmap(lambda a: jax.random.key_data(jax.random.fold_in(own, a)))
    words = keys(jnp.arange(2 * m)).reshape(2, m, 2)
    row = jnp.arange(batch_size, dtype=jnp.uint32)[:, None] * jnp.uint32(q) + jnp.arange(q, dtype=jnp.uint32)
    number = update.astype(jnp.uint32)[..., None, :]
    low, high = (threefry(w[:, 0, None, None], w[:, 1, None, None], number, row) for w in words)  # [..., m, b, q]
    if secure.bits == 64:
        return Limbs(low, high)
    if secure.bits == 32:
        return low
    real = jnp.result_type(float)
    unit = jax.lax.bitcast_convert_type(low, jnp.int32).astype(real) * 2.0**-31
    return unit * secure.scale


def total(secure: SecureAggregation, numbers: Any, trees: tuple[Tree, ...]) -> Any:
    """Return the sums over parties [m, b, *L] of numbers [m, b, q, *L], each dominator's over its tree.

    The order of additions is the tree's for floats; for integers it makes no difference.
    """
    return tree_sums.in_order(numbers, trees) if secure.bits is None else fixed_point.total(numbers, 2)


class Masks(NamedTuple):
    """What a tick (or a block of ticks) needs of the masks: `read` [m, b, q], of the products that are evaluated;
    `total` [m, b]: xi_2 of the update that each dominator completes; `own` [m, b, q]: its masks one by one, for a
    transcript, else ()."""

    read: Any
    total: Any
    own: Any


def prepare(secure: SecureAggregation, key: Array, data: Any, reads: Any, completes: Array, batch_size: int) -> Masks:
    """Return the masks of a block of B ticks.

    key: uint32 [2]. reads int32 [B, m, q], or None where each reads what it completes next; completes [B, m]: own
    numbers of updates.
    """
    second = tuple(pair[1] for pair in secure.pairs(data))
    shape = (*completes.shape, data.num_parties)
    masks = draw(secure, key, jnp.broadcast_to(completes[..., None], shape), batch_size)
    totals = jax.vmap(lambda x: total(secure, x, second))(masks)
    read = masks if reads is None else draw(secure, key, reads, batch_size)
    return Masks(read, totals, masks if data.watched else ())


class Products(NamedTuple):
    """The ring of products [m, R, b, q, *L]: as they are sent, o + delta (floats, uint32 or Limbs); and as they are,
    for a transcript, else ()."""

    hidden: Any
    plain: Any


def start(secure: SecureAggregation, plain: Array, data: Any) -> Products:
    """Return the empty ring, in the shape of that of plain products."""
    number = plain if secure.bits is None else jnp.zeros(plain.shape, jnp.uint32)
    return Products(Limbs(number, number) if secure.bits == 64 else number, plain if data.watched else ())


def exchange(secure: SecureAggregation, state: Any, data: Any, event: Any, products: Array) -> tuple:
    """Return (the ring, z [m, b, *L], the secret) after a tick that evaluates products [m, b, q, *L].

    z = xi_1 - xi_2 (Algorithm 1, output). Numbers that are too large for their fixed point are noted: see `spoil`.
    """
    tick, masks, secret = event.tick, event.masks, state.secret
    numbers = products if secure.bits is None else fixed_point.encode(products, secure.bits, secure.fraction)
    hidden = fixed_point.add(jax.tree.map(lambda x: backward.spread(x, products), masks.read), numbers)
    ring = backward.answer(state.products, tick, Products(hidden, products if data.watched else ()))
    sums = total(secure, backward.chosen(ring.hidden, tick), tuple(pair[0] for pair in secure.pairs(data)))
    leaf = jax.tree.leaves(sums)[0]
    z = fixed_point.subtract(sums, jax.tree.map(lambda x: backward.spread(x, leaf), masks.total))
    if secure.bits is None:
        return ring, z, secret
    # from what was sent, less its mask: XLA would evaluate the products again for a check of their own
    sent = fixed_point.subtract(
        backward.latest(ring.hidden, tick), jax.tree.map(lambda x: backward.spread(x, products), masks.read)
    )
    bad = secret.too_large | (
        backward.spread(tick.reads[:, None], products) & fixed_point.beyond(sent, products.shape[2])
    )
    return ring, fixed_point.decode(z, secure.fraction, products.dtype), secret._replace(too_large=bad)


def spoil(state: Any) -> Any:
    """Return a state with NaN for all weights where a number has been too large for its fixed point or weights are not
    finite (whose products are no numbers, and would be sent as 0), else the same state.

    Done between blocks of ticks, and before anything is recorded or kept: in every tick it would cost a third of it.
    """
    if not state.secret or isinstance(state.secret.too_large, tuple):
        return state
    bad = jnp.any(state.secret.too_large, (0, 1, 2))
    real = lambda x: jnp.issubdtype(x.dtype, jnp.floating)  # noqa: E731
    for x in jax.tree.leaves(state.weights):
        if real(x):
            bad = bad | jnp.any(~jnp.isfinite(x), tuple(range(x.ndim - bad.ndim)))
    return state._replace(weights=jax.tree.map(lambda x: jnp.where(bad, jnp.nan, x) if real(x) else x, state.weights))
