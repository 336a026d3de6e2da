"""The driver: pure, and blind to what kind of federation it drives.

Keys: the run's key splits into one for the initial state, one for events and one for steps, and each round folds its
number in. So two algorithms under one seed see the same cohorts and the same clock; a run cut into pieces is the run
in one piece; and no evaluation changes any training.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jaxfed.types import Algorithm, Array, Carry, Data, Info, Key, Measure, Scheduler


def init(key: Key, algorithm: Algorithm, data: Data) -> Carry:
    """Return the carry before the first round."""
    state = algorithm.init(jax.random.split(key, 3)[0], data)
    return Carry(jnp.zeros((), jnp.int32), jnp.zeros((), jnp.result_type(float)), state)


def one_round(key: Key, algorithm: Algorithm, scheduler: Scheduler, data: Data, carry: Carry) -> tuple[Carry, Info]:
    """Return the carry after one more round, and what there was to see."""
    _, event_key, step_key = jax.random.split(key, 3)
    event = scheduler(jax.random.fold_in(event_key, carry.round), carry.round)
    state, info = algorithm.step(jax.random.fold_in(step_key, carry.round), carry.state, data, event)
    return Carry(carry.round + 1, jnp.asarray(event.time, carry.time.dtype), state), info


def advance(
    key: Key, algorithm: Algorithm, scheduler: Scheduler, data: Data, carry: Carry, num_rounds: Array | int
) -> tuple[Carry, Info]:
    """Return the carry `num_rounds` later, and the info of the last round (zeros for no round).

    `num_rounds` is traced, so one program serves windows of every length. That also keeps the compiled body, and so
    every bit of the result, the same however a run is cut. It must not be batched by vmap.
    """
    shapes = jax.eval_shape(lambda c: one_round(key, algorithm, scheduler, data, c)[1], carry)
    info = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)

    def body(_, carry_info):
        return one_round(key, algorithm, scheduler, data, carry_info[0])

    return jax.lax.fori_loop(0, num_rounds, body, (carry, info))


def observe(
    algorithm: Algorithm, data: Data, measures: Sequence[Measure], carry: Carry, info: Info = None
) -> dict[str, Array]:
    """Return one record: every measure of the state, the clock, and the scalars of `info` (a dict, or None)."""
    record: dict[str, Any] = {"time": carry.time}
    for measure in measures:
        record |= measure.fn(algorithm, carry.state, data)
    return record | (info if isinstance(info, dict) else {})


def rollout(
    key: Key,
    algorithm: Algorithm,
    scheduler: Scheduler,
    data: Data,
    measures: Sequence[Measure] = (),
    *,
    num_rounds: int,
    every: int = 1,
    carry: Carry | None = None,
) -> tuple[Carry, dict[str, Array]]:
    """Return the final carry and the records after each window of `every` rounds, stacked on a first axis [R, ...].

    A last shorter window is recorded too. A scan over records holds a loop over the rounds of one window, so memory
    grows with records, not with rounds.
    """
    carry = init(key, algorithm, data) if carry is None else carry
    windows = jnp.array([min(every, num_rounds - t) for t in range(0, num_rounds, every)], jnp.int32)

    def window(carry, length):
        carry, info = advance(key, algorithm, scheduler, data, carry, length)
        return carry, observe(algorithm, data, measures, carry, info)

    return jax.lax.scan(window, carry, windows)
