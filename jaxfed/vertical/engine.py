"""The parts that all vertical algorithms share: their state, their blocks of ticks, and the step of dense blocks.

An algorithm is a PyTreeNode with fields `objective`, `lr`, `batch_size`, `backward`, `secure`, `defence`, `factors`,
these functions as its methods, and five hooks that say what it remembers:

  remember(data, w, thetas, lanes) -> memory     before the first tick; `thetas()`: those of all rows, as they are sent
  refresh(data, w, thetas, memory) -> memory     at a snapshot (only SVRG has any)
  fetch(memory, tick, rows) -> (memory, extra)   what a block of ticks needs of the memory, looked up at once
  message(memory, theta, tick, extra) -> (values, memory)    what a dominator sends, [m, b, *L]
  learn(memory, moved, data) -> memory      after the applies of a tick; `moved` is the sum of message times row
  and `mean(memory)`: the gradient that a party adds to each message it applies, or None.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxfed.checks import fail
from jaxfed.types import Array, Key
from jaxfed.vertical import backward, exchange, lazy, release, secure
from jaxfed.vertical.backward import Lookup, VerticalState
from jaxfed.vertical.blocks import Sparse
from jaxfed.vertical.ticks import Tick

BLOCK_BYTES = 1 << 19  # of rows looked up for a block of ticks: they should stay in a core's second cache
MOST_TICKS = 256
BY_DOT = 8  # rows of a minibatch from which matrix products beat fused loops


class Event(NamedTuple):
    """One tick of a prepared block: the look-up, the rows for reads and for applies, the method's extra; what the
    masks and the defence need, and the numbers of the rows completed where a transcript wants them (else ())."""

    tick: Lookup
    read: Any
    apply: Any
    extra: Any
    masks: Any
    drawn: Any
    rows: Any

    @property
    def time(self) -> Array:
        """Simulated seconds at the tick's end."""
        return self.tick.time


def init(algorithm: Any, key: Key, data: Any) -> VerticalState:
    """Return the state at w = 0 (as the authors' code starts), with what the method remembers of w = 0."""
    data = data.train
    traced = algorithm.lr, algorithm.objective.l2, algorithm.defence
    lanes = jnp.broadcast_shapes(*(jnp.shape(x) for x in jax.tree.leaves(traced)))
    w = data.blocks.zeros()
    w = jnp.broadcast_to(w.reshape(*w.shape, *[1] * len(lanes)), (*w.shape, *lanes))
    secret = release.start(algorithm, key, data, lanes)
    memory = algorithm.remember(data, w, release.of_all(algorithm, data, w, secret, 0), lanes)
    weights = lazy.start(w, data) if isinstance(data.blocks, Sparse) else w
    state = backward.start(weights, memory, data, algorithm.batch_size, lanes)
    if algorithm.secure is not None:
        state = state._replace(products=secure.start(algorithm.secure, state.products, data))
    return state._replace(secret=secret)


def block_size(algorithm: Any, data: Any) -> int:
    """Return how many ticks are looked up at once: what keeps their rows in the cache. It changes no result."""
    data = data.train
    row = 2 * data.num_active * algorithm.batch_size * data.blocks.row_bytes()
    return int(np.clip(BLOCK_BYTES // max(row, 1), 1, MOST_TICKS))


def prepare(
    algorithm: Any, key: Key, state: VerticalState, data: Any, ticks: Tick, most: Array
) -> tuple[VerticalState, Event, Array]:
    """Return the state with its counters as after the block, its prepared ticks, and how many of them to play.

    That is at most `most`. A snapshot is taken where the first tick says so, and ends the block where a later one does.
    """
    data, state = data.train, secure.spoil(state)
    size = ticks.complete.shape[0]
    if hasattr(algorithm, "epoch_length"):
        state = jax.lax.cond(ticks.snapshot[0], lambda s: _snapshot(algorithm, s, data), lambda s: s, state)
    tick, rows, completed = backward.look_up(key, state, data, algorithm.lr, ticks)
    before = completed - ticks.complete
    drawn = release.prepare(algorithm, state.secret, before, rows.completed, tick.y)
    masks = ()
    if algorithm.secure is not None:
        reads = None
        if tick.ahead is not None:
            reads = before[..., None] + jnp.maximum(ticks.read, 0).astype(jnp.int32)
        masks = secure.prepare(algorithm.secure, state.secret.key, data, reads, before, algorithm.batch_size)
    if not algorithm.backward:  # AFSVRG-VP: parties without labels never move
        active = np.isin(np.arange(data.num_parties), data.active)
        tick = tick._replace(applies=tick.applies & active, count=tick.count * active)
    memory, extra = algorithm.fetch(state.memory, tick, rows)
    if isinstance(data.blocks, Sparse):
        folded = lazy.renormalise(state.weights, algorithm.mean(memory), state.round, size)
        state = state._replace(weights=folded)
    take = data.blocks.take if rows.read.ndim == 3 else data.blocks.take_each
    shown = rows.completed if data.watched else ()
    event = Event(tick, take(rows.read), data.blocks.take_each(rows.applied), extra, masks, drawn, shown)
    later = ticks.snapshot.at[0].set(False)
    length = jnp.minimum(jnp.where(jnp.any(later), jnp.argmax(later), size).astype(jnp.int32), most)
    return state._replace(memory=memory, completed=completed[length - 1], round=state.round + length), event, length


def _snapshot(algorithm: Any, state: VerticalState, data: Any) -> VerticalState:
    w = weights(algorithm, state)
    thetas = release.of_all(algorithm, data, w, state.secret, state.round)
    memory = algorithm.refresh(data, w, thetas, state.memory)
    return state._replace(memory=memory, weights=lazy.start(w, data) if isinstance(data.blocks, Sparse) else w)


def step(algorithm: Any, key: Key, state: VerticalState, data: Any, event: Event) -> tuple[VerticalState, dict]:
    """Return the state after one tick: reads, completions, applies; and what there was to see, for a transcript."""
    del key
    advance = lazy.step if isinstance(data.train.blocks, Sparse) else dense_step
    return advance(algorithm, state, data.train, event)


def dense_step(algorithm: Any, state: VerticalState, data: Any, event: Event) -> tuple[VerticalState, dict]:
    """Return the state after one tick on dense blocks, w [q, d, *L], and what there was to see."""
    w, tick, objective = state.weights, event.tick, algorithm.objective
    sent = exchange.exchange(algorithm, state, data, event, forward(w, event.read))
    values, memory = algorithm.message(state.memory, sent.theta, tick, event.extra)
    messages = backward.send(state.messages, tick, values)
    moved = _pull(backward.due(messages, tick), event.apply)
    each = objective.penalty_gradient(w)  # theta is stale, the regulariser current (Algorithm 3, step 3)
    mean = algorithm.mean(memory)
    each = each if mean is None else each + mean
    gradient = moved / algorithm.batch_size + tick.count.reshape(-1, *[1] * (w.ndim - 1)) * each
    memory = algorithm.learn(memory, moved, data)
    w = w - (exchange.own_rate(algorithm, tick, w.ndim) * gradient).astype(w.dtype)
    state = state._replace(weights=w, memory=memory, messages=messages, products=sent.products, secret=sent.secret)
    return state, sent.seen


def forward(w: Array, x: Array) -> Array:
    """Return partial products [m, b, q, *L] of w [q, d, *L] with rows x [m, b, q, d]."""
    if w.ndim > 2:
        return jnp.einsum("qdl,mbqd->mbql", w, x)
    if x.shape[1] >= BY_DOT:
        return jnp.einsum("qd,mbqd->mbq", w, x)
    return jnp.sum(w * x, -1)


def _pull(values: Array, x: Array) -> Array:
    """Return sums of values [m, b, q, *L] times rows x [m, b, q, d]: [q, d, *L]."""
    if values.ndim > 3:
        return jnp.einsum("mbql,mbqd->qdl", values, x)
    if x.shape[1] >= BY_DOT:
        return jnp.einsum("mbq,mbqd->qd", values, x)
    return jnp.sum(values[..., None] * x, (0, 1))


def weights(algorithm: Any, state: VerticalState) -> Array:
    """Return the parameters as the blocks hold them: [q, d_max, *L] dense, [d] sparse."""
    if isinstance(state.weights, lazy.Lazy):
        return lazy.value(state.weights, algorithm.mean(state.memory))
    return state.weights


def params(algorithm: Any, state: VerticalState) -> Array:
    """Return the parameters as the blocks hold them: [q, d_max] dense, zero padded, [d] sparse.

    `party.join(params)` puts them in the user's order of columns. A run ends drained: every message is in them.
    """
    if not hasattr(state, "weights"):
        fail("state", type(state).__name__, "the state of a vertical run (its field `state`)")
    return weights(algorithm, state)


def predict(algorithm: Any, state: VerticalState, data: Any, parties: Any = None) -> Array:
    """Return scores w . x [n] of party data (`party.like(x)` puts new rows under the split).

    parties: numbers of those that take part (None: all); the others add nothing. For two classes the score's sign is
    the class, and `1 / (1 + exp(-score))` the probability of the larger label under the logistic loss.
    """
    if not hasattr(data, "blocks"):
        fail("data", type(data).__name__, "PartyData: party.like(x)")
    w, mask = params(algorithm, state), None
    if w.shape[: len(data.blocks.mask().shape)] != data.blocks.mask().shape:
        fail("data", f"parameters of shape {data.blocks.mask().shape}", f"{w.shape}, as the state has: party.like(x)")
    if parties is not None:
        own = np.atleast_1d(np.asarray(parties))
        if own.size and (own.dtype.kind not in "iu" or own.min() < 0 or own.max() >= data.num_parties):
            fail("parties", repr(parties), f"numbers of parties, 0 to {data.num_parties - 1}")
        mask = np.isin(np.arange(data.num_parties), own)
    return data.blocks.scores(w, mask)
