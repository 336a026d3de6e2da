"""The device's side of a sweep: many runs, its lanes, in one compiled program.

A lane is one point under one seed. Lanes are mapped in three nested ways. A *batch* holds the lanes of `seeds` seeds by
`points` points at once: by vmap, or (vertical runs) on a last axis that the algorithm itself carries. Points of a batch
share their seed's key, so they see the same minibatches and one look-up serves all of them. A *load* is what one call
of the device plays: batches one after the other (`lax.map`), on each device of the mesh's axis "sweep". Loads follow
each other on the host. Nothing of this changes a lane's numbers but by rounding.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec

from jaxfed import axes, core, nodes, parallel
from jaxfed.types import Array, Carry, FedState, Measure

VMAP, LAST, ONE = "vmap", "last", "one"  # how a batch holds its lanes; ONE: it is a single lane


class Shape(NamedTuple):
    """How lanes are mapped, static: points and seeds of a batch, batches of a load on each device, and devices.

    `own_keys`: each point has keys of its own.
    """

    mode: str
    points: int
    seeds: int
    batches: int
    devices: int = 1
    own_keys: bool = False

    @property
    def lanes(self) -> int:
        """Lanes of a batch."""
        return self.points * self.seeds


class Load(NamedTuple):
    """What a load plays: keys [n, seeds] (or [n, 1, points] of their own), and for each swept path the values
    [n, points, ...]; n is batches times devices."""

    keys: Any
    values: tuple[Any, ...]


class Settings(NamedTuple):
    """What all lanes share: algorithm, scheduler and data, in which a lane's own values take their places."""

    algorithm: Any
    scheduler: Any
    data: Any


def of_lane(settings: Settings, paths: tuple[str, ...], values: Sequence[Any]) -> Settings:
    """Return the settings with a lane's own values in their places."""
    algorithm, scheduler, data = settings
    for path, value in zip(paths, values, strict=True):
        if path == axes.DATA:
            data = data.with_tables(value)
        elif path == axes.SCHEDULER:
            scheduler = value
        else:
            algorithm, scheduler = axes.substitute(path, value, algorithm, scheduler)
    return Settings(algorithm, scheduler, data)


def start(mesh: Mesh | None, shape: Shape, paths: tuple[str, ...], settings: Settings, load: Load) -> Carry:
    """Return the carry of a load before its first round.

    Leaves [n, seeds, points, ...], but [n] for the count of rounds, and [n, ..., points] where the mode is LAST.
    """

    def part(settings, load):
        own = _local(settings)

        def one(key, values):
            algorithm, _, data = of_lane(own, paths, values)
            return core.init(key, algorithm, data)

        fn = (lambda keys, values: one(keys[0], values)) if shape.mode == LAST else _over(shape, one, (), _CARRY)
        return jax.lax.map(lambda b: fn(b.keys, b.values), load)

    return _on_devices(mesh, part, (_data_spec(settings), _SWEPT), _carry_spec(settings))(settings, load)


def play(
    mesh: Mesh | None,
    shape: Shape,
    paths: tuple[str, ...],
    measures: tuple[Measure, ...],
    by_client: tuple[str, ...],
    settings: Settings,
    load: Load,
    carry: Carry,
    windows: Array,
    count: Array,
) -> tuple[Carry, tuple[dict[str, Array], dict[str, Array]]]:
    """Return the carry after the first `count` windows, and the records after each: leaves [n, W, seeds, points, ...].

    windows int32 [W]: rounds of each. Records are those with a client axis, which `by_client` names, and the others;
    beyond `count` they mean nothing. A window of no rounds only looks.
    """

    def part(settings, load, carry, windows, count):
        own = _local(settings)

        def batch(both):
            b, carry = both

            def window(carry, length):
                carry, info = _advance(shape, paths, own, b, carry, length)
                record = _look(shape, paths, measures, own, b, carry) | info
                return carry, tuple({k: v for k, v in record.items() if (k in by_client) == c} for c in (True, False))

            shapes = jax.eval_shape(window, carry, windows[0])[1]
            records = jax.tree.map(lambda s: jnp.zeros((windows.shape[0], *s.shape), s.dtype), shapes)

            def body(i, both):
                carry, records = both
                carry, record = window(carry, windows[i])
                return carry, jax.tree.map(lambda all, new: all.at[i].set(new), records, record)

            return jax.lax.fori_loop(0, count, body, (carry, records))

        return jax.lax.map(batch, (load, carry))

    whole, swept = PartitionSpec(), _carry_spec(settings)
    clients = PartitionSpec(LANE, None, None, None, parallel.CLIENT) if settings.data.axis else _SWEPT
    on = _on_devices(mesh, part, (_data_spec(settings), _SWEPT, swept, whole, whole), (swept, (clients, _SWEPT)))
    return on(settings, load, carry, windows, count)


def _advance(shape: Shape, paths: tuple[str, ...], settings: Settings, b: Load, carry: Carry, length: Array) -> Any:
    """Return (carry, info) of a batch `length` rounds later."""

    def one(key, values, carry):
        return core.advance(key, *of_lane(settings, paths, values), carry, length)

    if shape.mode == LAST:
        carry, info = one(b.keys[0], b.values, carry)
        return carry, jax.tree.map(lambda x: jnp.broadcast_to(x, (1, shape.points)), info)
    return _over(shape, one, (_CARRY,), (_CARRY, 0))(b.keys, b.values, carry)


def _look(shape: Shape, paths: tuple[str, ...], measures: Any, settings: Settings, b: Load, carry: Carry) -> dict:
    """Return the record of a batch, leaves [seeds, points, ...]."""

    def one(key, values, carry):
        del key
        algorithm, _, data = of_lane(settings, paths, values)
        record = core.observe(None, measures, algorithm, *data.visible(data, carry))
        if data.axis is not None:
            record["finite"] = jax.lax.pmin(record["finite"].astype(jnp.int32), data.axis) > 0
        return record

    if shape.mode == LAST:
        axes_of = (None, 0, _last_axes(paths, settings, b, carry))
        one_each = jax.vmap(one, axes_of, axis_size=shape.points)  # a point without axes has none that says it
        return jax.tree.map(lambda x: x[None], one_each(b.keys[0], b.values, carry))
    return _over(shape, one, (_CARRY,), 0)(b.keys, b.values, carry)


def _last_axes(paths: tuple[str, ...], settings: Settings, b: Load, carry: Carry) -> Carry:
    """Return which leaves of a carry have the lanes on a last axis: those with one axis more than a single lane's."""
    algorithm, _, data = of_lane(settings, paths, jax.tree.map(lambda x: x[0], b.values))
    alone = jax.eval_shape(core.init, b.keys[0], algorithm, data).state
    return Carry(None, None, jax.tree.map(lambda x, y: -1 if x.ndim > y.ndim else None, carry.state, alone))


_CARRY = Carry(None, 0, 0)  # of vmap: all lanes are in the same round, so no loop has a bound of its own
LANE = "sweep"
_SWEPT = PartitionSpec(LANE)


def _over(shape: Shape, fn: Callable, more: tuple, out: Any) -> Callable:
    """Return fn(key, values, *more) over seeds and points. An axis of one lane is no vmap: a batch of one is slow."""
    inner = _vmap(fn, shape.points, (0 if shape.own_keys else None, 0, *more), out)
    return _vmap(inner, shape.seeds, (0, None, *more), out)


def _vmap(fn: Callable, size: int, in_axes: tuple, out_axes: Any) -> Callable:
    if size > 1:
        return jax.vmap(fn, in_axes, out_axes)

    def along(change, axes, tree):  # `axes` is a prefix of the tree, as for vmap
        one = lambda axis, part: part if axis is None else jax.tree.map(change, part)  # noqa: E731
        return jax.tree.map(one, axes, tree, is_leaf=lambda x: x is None)

    def alone(*args):
        return along(lambda x: x[None], out_axes, fn(*along(lambda x: x[0], in_axes, args)))

    return alone


def _on_devices(mesh: Mesh | None, part: Callable, specs: tuple, out: Any) -> Callable:
    """Return `part` on each device of the mesh with its own batches and clients, or plainly."""
    return part if mesh is None else jax.shard_map(part, mesh=mesh, in_specs=specs, out_specs=out, check_vma=False)


def _local(settings: Settings) -> Settings:
    """Return the settings with this device's part of the data."""
    return settings if settings.data.axis is None else settings._replace(data=settings.data.local())


def _data_spec(settings: Settings) -> Settings:
    whole = PartitionSpec()
    return Settings(whole, whole, PartitionSpec(parallel.CLIENT) if settings.data.axis else whole)


def _carry_spec(settings: Settings) -> Any:
    if settings.data.axis is None:
        return _SWEPT
    return Carry(_SWEPT, _SWEPT, FedState(_SWEPT, PartitionSpec(LANE, None, None, parallel.CLIENT)))


compiled_start = nodes.jit(start, static_argnums=(0, 1, 2))
compiled_play = nodes.jit(play, static_argnums=(0, 1, 2, 3, 4), donate_argnums=(7,))


def compiled_programs() -> int:
    """Return how many programs sweeps have compiled in this process; tests assert that it stays put."""
    return compiled_start._cache_size() + compiled_play._cache_size()
