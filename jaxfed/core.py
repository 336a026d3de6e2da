"""The driver: pure, and blind to what kind of federation it drives.

Keys: the run's key splits into one for the initial state, one for events and one for steps, and each round folds its
number in. So two algorithms under one seed see the same cohorts and the same clock; a run cut into pieces is the run
in one piece; and no evaluation changes any training.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec

from jaxfed import parallel, trees
from jaxfed.types import Algorithm, Array, Carry, Data, Info, Key, Measure, Scheduler


def init(key: Key, algorithm: Algorithm, data: Data) -> Carry:
    """Return the carry before the first round."""
    state = algorithm.init(jax.random.split(key, 3)[0], data)
    return Carry(jnp.zeros((), jnp.int32), jnp.zeros((), jnp.result_type(float)), state)


def one_round(key: Key, algorithm: Algorithm, scheduler: Scheduler, data: Data, carry: Carry) -> tuple[Carry, Info]:
    """Return the carry after one more round, and what there was to see."""
    if hasattr(algorithm, "prepare"):
        return _advance_in_blocks(key, algorithm, scheduler, data, carry, 1, None)
    _, event_key, step_key = jax.random.split(key, 3)
    event = scheduler(jax.random.fold_in(event_key, carry.round), carry.round)
    state, info = algorithm.step(jax.random.fold_in(step_key, carry.round), carry.state, data, event)
    return Carry(carry.round + 1, jnp.asarray(event.time, carry.time.dtype), state), info


def advance(
    key: Key,
    algorithm: Algorithm,
    scheduler: Scheduler,
    data: Data,
    carry: Carry,
    num_rounds: Array | int,
    window: tuple[Info, Array] | None = None,
) -> tuple[Carry, Info]:
    """Return the carry `num_rounds` later, and the info of the last round (zeros for no round).

    `window`: (arrays [T, ...] of infos, number of a round): then these arrays are returned, with the info of round t
    written to place t - number. Without it nothing is kept.

    `num_rounds` is traced, so one program serves windows of every length. That also keeps the compiled body, and so
    every bit of the result, the same however a run is cut. It must not be batched by vmap.

    Where the algorithm has `prepare`, events are prepared in blocks: see `types.Algorithm`.
    """
    if hasattr(algorithm, "prepare"):
        return _advance_in_blocks(key, algorithm, scheduler, data, carry, num_rounds, window)
    first, keep = _keeper(lambda c: one_round(key, algorithm, scheduler, data, c)[1], carry, window)

    def body(_, carry_info):
        now, info = one_round(key, algorithm, scheduler, data, carry_info[0])
        return now, keep(carry_info[1], info, carry_info[0].round)

    return jax.lax.fori_loop(0, num_rounds, body, (carry, first))


def _keeper(info_of: Callable[[Carry], Info], carry: Carry, window: tuple[Info, Array] | None) -> tuple[Info, Callable]:
    """Return what is kept of infos before the first, and a function of (what is kept, info, round) that keeps one."""
    if window is not None:
        return window[0], lambda kept, info, t: jax.tree.map(lambda k, x: k.at[t - window[1]].set(x), kept, info)
    nothing = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), jax.eval_shape(info_of, carry))
    return nothing, lambda kept, info, t: info


def _advance_in_blocks(
    key: Key, algorithm: Any, scheduler: Scheduler, data: Data, carry: Carry, num_rounds: Array | int, window: Any
) -> tuple[Carry, Info]:
    size = algorithm.block_size(data)
    _, event_key, step_key = jax.random.split(key, 3)
    end = carry.round + num_rounds

    def prepared(carry):
        rounds = carry.round + jnp.arange(size)
        events = jax.vmap(lambda t: scheduler(jax.random.fold_in(event_key, t), t))(rounds)
        # blocks end where `size` divides the round, so what `prepare` does at such rounds depends on no cut
        most = jnp.minimum(size - carry.round % size, end - carry.round)
        return algorithm.prepare(step_key, carry.state, data, events, most)

    def play(events, i, start, state):
        event = jax.tree.map(lambda x: x[i], events)
        return algorithm.step(jax.random.fold_in(step_key, start + i), state, data, event)

    def block(carry_info):
        carry, info = carry_info
        state, events, length = prepared(carry)

        def one(i, both):
            now, new = play(events, i, carry.round, both[0])
            return now, keep(both[1], new, carry.round + i)

        state, info = jax.lax.fori_loop(0, length, one, (state, info))
        time = jnp.asarray(events.time[length - 1], carry.time.dtype)
        return Carry(carry.round + length, time, state), info

    first, keep = _keeper(lambda c: play(prepared(c)[1], 0, c.round, c.state)[1], carry, window)
    return jax.lax.while_loop(lambda both: both[0].round < end, block, (carry, first))


def advance_on(mesh: Mesh | None, key: Key, algorithm, scheduler, data: Data, carry: Carry, num_rounds):
    """Return `advance` on a mesh, each device with its own clients (None: on one device, without any collective)."""
    if mesh is None:
        return advance(key, algorithm, scheduler, data, carry, num_rounds)
    everywhere, by_client = PartitionSpec(), PartitionSpec(parallel.CLIENT)
    spec = Carry(everywhere, everywhere, parallel.specs(carry.state))
    inputs = (everywhere, everywhere, everywhere, by_client, spec, everywhere)

    def part(key, algorithm, scheduler, data, carry, num_rounds):
        return advance(key, algorithm, scheduler, data.local(), carry, num_rounds)

    # check_vma=False: with it, jax sums the gradients of a replicated model over the devices by itself
    sharded = jax.shard_map(part, mesh=mesh, in_specs=inputs, out_specs=(spec, everywhere), check_vma=False)
    return sharded(key, algorithm, scheduler, data, carry, jnp.asarray(num_rounds))


def observe(mesh: Mesh | None, measures: Sequence[Measure], algorithm, data: Data, carry: Carry) -> dict[str, Array]:
    """Return one record: the clock, whether the state is finite, and every measure."""
    record: dict[str, Any] = {"time": carry.time, "finite": trees.all_finite(carry.state)}
    for measure in measures:
        fn: Any = measure.fn
        if mesh is not None and measure.per_device:
            by_client = PartitionSpec(parallel.CLIENT)
            inputs = (PartitionSpec(), parallel.specs(carry.state), by_client)
            outputs = by_client if "client" in measure.dims else PartitionSpec()
            part = lambda algorithm, state, data, fn=fn: fn(algorithm, state, data.local())  # noqa: E731
            fn = jax.shard_map(part, mesh=mesh, in_specs=inputs, out_specs=outputs, check_vma=False)
        record |= fn(algorithm, carry.state, data)
    return record


def record_dims(
    key: Key, algorithm, data: Data, measures: Sequence[Measure], taken: set[str], lengths: dict[str, int]
) -> dict[str, tuple[str, ...]]:
    """Return the names of the axes of every measured array.

    Raises ValueError, now rather than after the last round, where a record could not become a Dataset: a measure that
    returns no dict, too few or too many axes, one axis of two lengths, or a name that is taken.
    """
    state = jax.eval_shape(algorithm.init, key, data)
    dims: dict[str, tuple[str, ...]] = {}
    lengths = dict(lengths)  # those of the data's own axes are known
    for measure in measures:
        found = jax.eval_shape(measure.fn, algorithm, state, data)
        if not isinstance(found, dict):
            raise ValueError(f"measures: got a measure that returns {type(found).__name__}, wanted a dict of arrays")
        for name, array in found.items():
            if name in taken or "/" in name:
                raise ValueError(f"measures: got the name {name!r}, wanted one without / and none of {sorted(taken)}")
            axes = dict(zip(measure.dims, array.shape, strict=False))
            if array.ndim != len(measure.dims) or any(lengths.setdefault(k, n) != n for k, n in axes.items()):
                raise ValueError(
                    f"measures: got shape {array.shape} for {name!r}, wanted axes {measure.dims} of lengths {lengths}"
                )
            dims[name] = measure.dims
    return dims


def clock(key: Key, scheduler: Scheduler, rounds_done: int) -> Array:
    """Return the simulated seconds after `rounds_done` rounds."""
    if rounds_done == 0:
        return jnp.zeros((), jnp.result_type(float))
    event_key, t = jax.random.split(key, 3)[1], jnp.int32(rounds_done - 1)
    return jnp.asarray(scheduler(jax.random.fold_in(event_key, t), t).time, jnp.result_type(float))


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
        return carry, observe(None, measures, algorithm, data, carry) | info

    return jax.lax.scan(window, carry, windows)
