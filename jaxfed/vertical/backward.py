"""Backward updating (VFB2, Algorithms 2 and 3): what happens in a tick, whatever the method.

A dominated update is q reads, one completion and q applies. The schedule does not depend on the weights, so staleness
is delayed messages, as in a real network: party l evaluates its partial product when the table says so ("send early"),
the products wait in `products`, the messages in the ring `messages`, and no history of weights is kept.

Methods differ in what a message says beside theta and in the mean gradient that a party adds: see `sgd`, `svrg`,
`saga`. For each block of ticks everything that does not depend on the weights (samples, rows, places in the rings) is
looked up at once by `look_up`; what is left for a tick is arithmetic. Every operation left there costs: a tick of 3
dominators and 8 parties takes a compiled sequential loop less than half a microsecond.

A trailing axis of lanes, *L: `lr` and `l2` may be arrays of one shape, for several runs under one schedule. It is the
last axis everywhere: on a CPU the first would be slower.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxfed import steps
from jaxfed.types import Array, Key
from jaxfed.vertical import samples
from jaxfed.vertical.ticks import Tick


class VerticalState(NamedTuple):
    """What a vertical run carries.

    weights: dense [q, d, *L], or `lazy.Lazy`. memory: what the method keeps. products [m, R, b, q, *L]: those of
    requested updates, R > the furthest read ahead. messages [m, H, b, *L]: those that may still have to be applied,
    H > the greatest age. completed int32 [m]: completions of each dominator. round int32: ticks done. (R and H are
    powers of two.)

    secret: what masks and defences draw from (`release.Secret`), () without these.

    The state of a finished run has `totals` (see `traffic`), weights as the blocks have them, and nothing on its way:
    no products and no messages.
    """

    weights: Any
    memory: Any
    products: Any
    messages: Any
    completed: Array
    round: Array
    secret: Any = ()
    totals: Any = ()


class Lookup(NamedTuple):
    """What one tick (or a block of B, with a first axis) needs beside the weights.

    reads bool [m, q]: whose product is evaluated, into which place `ahead` [m, q] of `products` (where R > 1).
    completes bool [m]: who completes, from place `slot` [m] of `products` into `place` [m] of `messages`; y [m, b]: the
    labels of its rows. applies bool [m, q]: who applies what is at `source` [m, q] in the ring of all dominators, m H
    places; count [q]: how many those are. lr: the step size, where it is a schedule.
    """

    reads: Array
    ahead: Any
    completes: Array
    slot: Any
    place: Array
    y: Array
    applies: Array
    source: Array
    count: Array
    lr: Any
    time: Array


class Rows(NamedTuple):
    """Sample numbers for a block of B ticks: read, of products ([B, m, b, q], or [B, m, b] where R is 1); completed and
    next [B, m, b], of the update that each dominator completes next, seen before and after the tick; applied
    [B, m, b, q]."""

    read: Array
    completed: Array
    next: Array
    applied: Array


def start(weights: Any, memory: Any, data: Any, batch_size: int, lanes: tuple[int, ...]) -> VerticalState:
    """Return the state before the first tick."""
    q, m = data.num_parties, data.num_active
    read, message = (1 << (depth - 1).bit_length() for depth in data.depths)
    real = jnp.result_type(float)
    return VerticalState(
        weights,
        memory,
        jnp.zeros((m, read, batch_size, q, *lanes), real),
        jnp.zeros((m, message, batch_size, *lanes), real),
        jnp.zeros(m, jnp.int32),
        jnp.zeros((), jnp.int32),
    )


def look_up(key: Key, state: VerticalState, data: Any, lr: Any, ticks: Tick) -> tuple[Lookup, Rows, Array]:
    """Return (look-up, sample numbers, completions [B, m] after each tick) of a block of ticks."""
    m, depth, batch_size = state.messages.shape[:3]
    read_depth, count = jax.tree.leaves(state.products)[0].shape[1], ticks.complete.shape[0]
    count_on = lambda done, flags: (done + flags, done + flags)  # noqa: E731
    # a scan, as jnp.cumsum costs four times as much on a CPU
    after = jax.lax.scan(count_on, state.completed, ticks.complete.astype(jnp.int32))[1]  # [B, m]
    before = after - ticks.complete
    first = jnp.maximum(state.completed - depth, 0)  # no message that is still to be applied is older
    each = count + depth + read_depth
    drawn = samples.rows(key, first, each, batch_size, data.num_rows).reshape(m * each, batch_size)
    shift = jnp.arange(m, dtype=jnp.int32) * each - first  # from an update's number to its place in `drawn`

    def rows(update, shift=shift):
        return drawn.at[(update + shift).astype(jnp.uint32)].get(mode="promise_in_bounds", wrap_negative_indices=False)

    ahead = before[..., None] + jnp.maximum(ticks.read, 0).astype(jnp.int32)  # also where nothing is read: in range
    applied = after[..., None] - 1 - ticks.apply.astype(jnp.int32)  # [B, m, q]
    applies, completing = ticks.apply >= 0, rows(before)
    lookup = Lookup(
        reads=ticks.read >= 0,
        ahead=ahead & (read_depth - 1) if read_depth > 1 else None,
        completes=ticks.complete,
        slot=before & (read_depth - 1) if read_depth > 1 else None,
        place=before & (depth - 1),
        y=data.y[completing],
        applies=applies,
        source=(applied & (depth - 1)) + jnp.arange(m, dtype=jnp.int32)[:, None] * depth,
        count=jnp.sum(applies, 1).astype(data.y.dtype),
        lr=jax.vmap(lambda t: steps.at(lr, t))(state.round + jnp.arange(count)) if callable(lr) else None,
        time=ticks.time,
    )
    of_each = lambda update: jnp.swapaxes(rows(update, shift[:, None]), 2, 3)  # noqa: E731
    read = completing if read_depth == 1 else of_each(ahead)
    return lookup, Rows(read, completing, rows(after), of_each(applied)), after


def answer(products: Any, tick: Lookup, evaluated: Any) -> Any:
    """Return `products` with those of this tick's reads, evaluated [m, b, q, *L], in their places (any leaves)."""
    here = tick.reads[:, None]
    if tick.ahead is not None:
        room = jax.tree.leaves(products)[0].shape[1]
        here = here & (tick.ahead[:, None] == jnp.arange(room)[:, None])
    here = here[:, :, None]  # [m, R, 1, q]
    return jax.tree.map(lambda old, new: jnp.where(spread(here, old), new[:, None], old), products, evaluated)


def latest(products: Any, tick: Lookup) -> Any:
    """Return what each dominator and party has last put into the ring, [m, b, q, *L], as `answer` returns it."""
    if tick.ahead is None:
        return jax.tree.map(lambda x: x[:, 0], products)
    m, q = tick.ahead.shape
    place = tick.ahead.astype(jnp.uint32)
    dominator, party = jnp.arange(m)[:, None], jnp.arange(q)
    return jax.tree.map(lambda x: jnp.swapaxes(x[dominator, place, :, party], 1, 2), products)


def sums(products: Array, tick: Lookup) -> Array:
    """Return z [m, b, *L], the sum over parties of the products of the update that each dominator completes now."""
    if tick.slot is None:
        return jnp.sum(products[:, 0], 2)
    here = tick.slot[:, None] == jnp.arange(products.shape[1])
    return jnp.sum(jnp.where(spread(here, products), products, 0), (1, 3))


def chosen(products: Any, tick: Lookup) -> Any:
    """Return the products [m, b, q, *L] of the update that each dominator completes now, of any leaves."""
    if tick.slot is None:
        return jax.tree.map(lambda x: x[:, 0], products)
    place = tick.slot.astype(jnp.uint32)
    return jax.tree.map(lambda x: x[jnp.arange(x.shape[0]), place], products)


def send(messages: Array, tick: Lookup, values: Array) -> Array:
    """Return the ring with this tick's messages, values [m, b, *L], where dominators complete."""
    here = (tick.place[:, None] == jnp.arange(messages.shape[1])) & tick.completes[:, None]
    return jnp.where(spread(here, messages), values[:, None], messages)


def due(messages: Array, tick: Lookup) -> Array:
    """Return the messages that each party applies in this tick, [m, b, q, *L], zero where there is none."""
    m, depth, b, *lanes = messages.shape
    at = tick.source[:, None] * b + jnp.arange(b, dtype=jnp.int32)[:, None]  # [m, b, q]
    flat = messages.reshape(m * depth * b, *lanes)
    found = flat.at[at.astype(jnp.uint32)].get(mode="promise_in_bounds", wrap_negative_indices=False)
    return jnp.where(spread(tick.applies[:, None], found), found, 0)


def rate(lr: Any, tick: Lookup) -> Array:
    """Return the step size of a tick; schedules of `jaxfed.steps` count ticks."""
    return lr if tick.lr is None else tick.lr


def spread(x: Array, like: Array) -> Array:
    """Return an array over the first axes of another, shaped to broadcast over its last ones."""
    return x.reshape(*x.shape, *[1] * (like.ndim - x.ndim))
