"""Backward updating (VFB2, Algorithms 2 and 3): what happens in a tick, whatever the method.

A dominated update is q reads, one completion and q applies. The schedule does not depend on the weights, so staleness
is delayed messages, as in a real network: party l evaluates its partial product when the table says so ("send early"),
the products wait in `products`, the messages in the ring `messages`, and no history of weights is kept.

Methods differ in what a message says beside theta and in the mean gradient that a party adds: see `sgd`, `svrg`,
`saga`. For each block of ticks everything that does not depend on the weights (samples, rows, places in the rings) is
looked up at once by `look_up`; what is left for a tick is arithmetic.

A trailing axis of lanes, *L: `lr` and `l2` may be arrays of one shape, for several runs under one schedule. It is the
last axis everywhere, which is six times faster on a CPU than the first would be.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp

from jaxfed import steps
from jaxfed.types import Array, Key
from jaxfed.vertical import samples
from jaxfed.vertical.ticks import Tick


class VerticalState(NamedTuple):
    """What a vertical run carries.

    weights: dense [q, d, *L], or `lazy.Lazy`. memory: what the method keeps. products [q, m, R, b, *L]: those of
    requested updates, R = largest read-ahead + 1. messages [m, H, b, *L]: those that may still have to be applied,
    H = largest age + 1. completed int32 [m]: completions of each dominator. round int32: ticks done.

    The state of a finished run has `totals` (see `traffic`), weights as the blocks have them, and nothing on its way:
    no products and no messages.
    """

    weights: Any
    memory: Any
    products: Array
    messages: Array
    completed: Array
    round: Array
    totals: Any = ()


class Lookup(NamedTuple):
    """What one tick (or a block of B, with a first axis) needs beside the weights; axes q, m, b.

    reads [q, m]: whose product is evaluated, into which place `ahead` of `products`, on `rows_read` [q, m, b] ([m, b]
    where R is 1). completes [m]: who completes, from place `slot` of `products` into `place` of `messages`, on `rows`
    [m, b] with labels y; `next_rows` are those of the update after it. applies [q, m]: who applies what is in
    `from_place` of `messages`, on `rows_applied` [q, m, b]. completed [m] and time: after the tick.
    """

    reads: Array
    ahead: Array
    rows_read: Array
    completes: Array
    place: Array
    slot: Array
    rows: Array
    next_rows: Array
    y: Array
    applies: Array
    from_place: Array
    rows_applied: Array
    completed: Array
    time: Array


def start(weights: Any, memory: Any, data: Any, batch_size: int, lanes: tuple[int, ...]) -> VerticalState:
    """Return the state before the first tick."""
    q, m, (read, message) = data.num_parties, data.num_active, data.depths
    real = jnp.result_type(float)
    return VerticalState(
        weights,
        memory,
        jnp.zeros((q, m, read, batch_size, *lanes), real),
        jnp.zeros((m, message, batch_size, *lanes), real),
        jnp.zeros(m, jnp.int32),
        jnp.zeros((), jnp.int32),
    )


def look_up(key: Key, state: VerticalState, data: Any, ticks: Tick) -> Lookup:
    """Return what the ticks of a block (first axis B) need beside the weights."""
    read_depth, depth = state.products.shape[2], state.messages.shape[1]
    batch_size, count = state.messages.shape[2], ticks.complete.shape[0]
    before = state.completed + jnp.cumsum(ticks.complete, 0, jnp.int32) - ticks.complete  # [B, m]
    after = before + ticks.complete
    first = jnp.maximum(state.completed - depth, 0)  # no message that is still to be applied is older
    drawn = samples.rows(key, first, count + depth + read_depth, batch_size, data.num_rows)
    dominator = jnp.arange(before.shape[1])
    read, age = jnp.swapaxes(ticks.read, 1, 2).astype(jnp.int32), jnp.swapaxes(ticks.apply, 1, 2).astype(jnp.int32)
    applied = after[:, None] - 1 - age  # [B, q, m]
    rows = drawn[dominator, before - first]
    ahead = before[:, None] + read
    return Lookup(
        reads=read >= 0,
        ahead=ahead % read_depth,
        rows_read=rows if read_depth == 1 else drawn[dominator, ahead - first],
        completes=ticks.complete,
        place=before % depth,
        slot=before % read_depth,
        rows=rows,
        next_rows=drawn[dominator, after - first],
        y=data.y[rows],
        applies=age >= 0,
        from_place=applied % depth,
        rows_applied=drawn[dominator, applied - first],
        completed=after,
        time=ticks.time,
    )


def answer(products: Array, tick: Lookup, evaluated: Array) -> Array:
    """Return `products` with those of this tick's reads, evaluated [q, m, b, *L], in their places."""
    read_depth = products.shape[2]
    here = tick.reads[..., None]
    if read_depth > 1:
        here = here & (tick.ahead[..., None] == jnp.arange(read_depth))
    return jnp.where(_to(here, products), evaluated[:, :, None], products)


def sums(products: Array, tick: Lookup) -> Array:
    """Return z [m, b, *L], the sum over parties of the products of the update that each dominator completes now."""
    if products.shape[2] == 1:
        return jnp.sum(products[:, :, 0], 0)
    here = tick.slot[:, None] == jnp.arange(products.shape[2])
    return jnp.sum(jnp.where(_to(here, products[0]), products, 0), (0, 2))


def send(messages: Array, tick: Lookup, values: Array) -> Array:
    """Return the ring with this tick's messages, values [m, b, *L], where dominators complete."""
    here = (tick.place[:, None] == jnp.arange(messages.shape[1])) & tick.completes[:, None]
    return jnp.where(_to(here, messages), values[:, None], messages)


def due(messages: Array, tick: Lookup) -> Array:
    """Return the messages that each party applies in this tick, [q, m, b, *L], zero where there is none."""
    found = messages[jnp.arange(messages.shape[0]), tick.from_place]
    return jnp.where(_to(tick.applies, found), found, 0)


def finish(state: VerticalState, tick: Lookup, **changes: Any) -> VerticalState:
    """Return the state after a tick."""
    return state._replace(completed=tick.completed, round=state.round + 1, **changes)


def rate(lr: Any, round: Array) -> Array:
    """Return the step size at a tick; schedules of `jaxfed.steps` count ticks."""
    return steps.at(lr, round)


def _to(condition: Array, like: Array) -> Array:
    """Return a condition over the first axes of an array, shaped to broadcast over its last ones."""
    return condition.reshape(*condition.shape, *[1] * (like.ndim - condition.ndim))
