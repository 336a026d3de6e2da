"""A sweep before it is played: checked and placed."""

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxfed import axes as ax
from jaxfed import checks, core, fingerprint, loads, parallel, runner, shelf
from jaxfed.comparing import seed_numbers
from jaxfed.lanes import VMAP, Settings, Shape
from jaxfed.loads import Job
from jaxfed.types import Timetable

FULL = 8  # points of a batch that do without other clients beside them (benchmarks.sweep: 1.2 to 1.4 times as fast)
LOADS = 8  # what a long sweep is cut into, so that a kill, Ctrl-C or a look at the bar waits for no more than that


class Sweep(NamedTuple):
    """A sweep that is checked, and how its results are labelled.

    held: where its records are kept (`shelf`). timetables: one for each point, or one for all. run_seeds int [points,
    seeds]: each lane's, where it has its own. dims: the axes of what the device records; shown, coords: those of what
    is kept; shorten: what makes the one of the other for each point, None where all is kept.
    """

    job: Job
    held: Any
    data: Any
    timetables: list[Timetable]
    axes: list[ax.Axis]
    seeds: list[int]
    run_seeds: np.ndarray | None
    dims: dict[str, tuple[str, ...]]
    shown: dict[str, tuple[str, ...]]
    shorten: list[Callable[[dict], dict]] | None
    coords: dict[str, Any]
    attrs: dict[str, Any]
    advice: Any


def prepare(
    seed: Any, algorithm: Any, data: Any, axes: Any, seeds: Any, test: Any, validation: Any, scheduler: Any,
    num_rounds: Any, every: Any, measures: Any, independent: bool, batch: int | None, memory: float | None, mesh: Any,
    group: int | None, per_client: bool | None, out: Any,
) -> Sweep:  # fmt: skip
    """Return a sweep that is ready to play. Every point passes the checks of a run of its own."""
    checks.is_algorithm("algorithm", algorithm)
    checks.mesh(mesh)
    parsed, numbers = ax.parse(axes), seed_numbers(seed, seeds)
    for number in numbers:
        checks.seed(number)
    checks.flag("independent", independent)
    for field, value in (("batch", batch), ("group", group)):
        if value is not None:
            checks.whole(field, value, 1)
    if memory is not None:
        checks.number("memory", memory, 0)
    loads.check_mesh(mesh)
    points = ax.points(parsed)
    points, parsed, data = _with_data(points, parsed, data, test, validation)
    checks.many_clients("device", per_client, data)
    scheduler = data.default_scheduler() if scheduler is None else scheduler
    ax.check(parsed, algorithm, scheduler)
    plain_mesh = None if mesh is None or mesh.shape.get(parallel.CLIENT, 1) == 1 else mesh
    timetables = _timetables(points, algorithm, scheduler, data, num_rounds, every, plain_mesh)
    first, _ = _at(points[0], algorithm, scheduler)

    paths, values = _values(points, timetables)
    mode, most = data.lanes(algorithm, tuple(p for p in points[0]))
    own = np.random.SeedSequence(numbers[0]).generate_state(len(points) * len(numbers)) if independent else None
    attrs = runner.describe(numbers[0], algorithm, scheduler, num_rounds, timetables[0].every, mesh)
    held: Any = shelf.Memory()
    if out is not None:
        told = dict(
            seeds=numbers, independent=independent, batch=batch, mesh=None if mesh is None else dict(mesh.shape),
            per_client=str(per_client),
        )  # fmt: skip
        own_values = {path: [point[path] for point in points] for path in points[0]}
        parts = (algorithm, scheduler, data, timetables[0], None, measures, group)
        held = shelf.open(out, fingerprint.of_run(attrs, *parts) | fingerprint.fingerprint(axes=own_values, **told))
    shape = loads.shape_of(mode, most, len(points), len(numbers), mesh, independent, batch)
    shape = shape if held.shape is None else Shape(*held.shape)
    keys = jax.numpy.stack([jax.random.key(s) for s in (numbers if own is None else own.tolist())])
    keys = keys if own is None else keys.reshape(len(points), len(numbers))
    base = runner.cast(first, to_float=True), runner.cast(timetables[0].scheduler)
    if group is None and mode == VMAP and shape.points >= FULL and jax.default_backend() == "cpu":
        group = 1  # the points fill the cores' products: clients at once beside them only overflow the cache
    placed = data.place(*base, plain_mesh, group)
    if mesh is not None and plain_mesh is None:
        placed = parallel.put(placed, mesh)
    recorded = (*data.default_measures(), *(measures or ()))
    checks.measures(measures or ())
    taken = {"time", "finite", "round", *data.coords(), *timetables[0].columns(timetables[0].stops[0]), *paths, "seed"}
    lengths = {name: len(x) for name, x in placed.coords().items() if isinstance(x, np.ndarray)}
    dims = core.record_dims(jax.random.key(0), base[0], placed, recorded, taken, lengths)
    if plain_mesh is not None and any(not m.per_device for m in recorded):
        checks.fail("measures", "one that sees all clients", "per_device ones, on a mesh that shards the clients")
    each = [point.get(ax.DATA, data) for point in points]  # a few federations, for many points
    made = {id(own): own.summaries(per_client, dims) for own in {id(own): own for own in each}.values()}
    shorten, shown, kept = zip(*(made[id(own)] for own in each), strict=True)
    by_client = tuple(name for name, axis in dims.items() if "client" in axis)
    windows = max(min(len(timetables[0].stops), loads.WINDOWS), 1)
    settings = Settings(*base, placed)
    job = Job(mesh, shape, paths, recorded, by_client, settings, keys, values, len(points), len(numbers), windows)
    job = job if held.shape is not None else _within_memory(job, memory, batch)
    attrs |= data.attributes(first)
    attrs["sweep"] = json.dumps([[axis.dim, list(axis.paths)] for axis in parsed])
    coords = ax.coordinates(parsed) | (kept[0] if shown[0] != dims else _data_coords(parsed, data))
    run_seeds = None if own is None else own.reshape(len(points), -1)
    advice = data.advice(first)
    shortened = list(shorten) if shown[0] != dims else None
    return Sweep(
        job, held, data, timetables, parsed, numbers, run_seeds, dims, shown[0], shortened, coords, attrs, advice
    )


def _data_coords(parsed: Sequence[ax.Axis], data: Any) -> dict[str, Any]:
    """Return the coordinates of the data; the clients' sizes have the dimension of an axis "data" too."""
    coords = dict(data.coords())
    for axis in parsed:
        if ax.DATA in axis.paths:
            each = [row[axis.paths.index(ax.DATA)].coords() for row in axis.values]
            sizes = {name for name in coords if name.endswith("_size")}
            coords |= {n: ((axis.dim, "client"), np.stack([held[n][1] for held in each])) for n in sizes}
    return coords


def _with_data(points: list[dict], parsed: list[ax.Axis], data: Any, test: Any, validation: Any) -> tuple:
    """Return points, axes and data, with each value of the axis "data" joined with the other parts and checked."""
    for field, part in (("data", data), ("test", test), ("validation", validation)):
        checks.is_data(field, part)
    if not any(ax.DATA in axis.paths for axis in parsed):
        return points, parsed, data.with_parts(test, validation)
    given = [row[axis.paths.index(ax.DATA)] for axis in parsed if ax.DATA in axis.paths for row in axis.values]
    for i, value in enumerate(given):
        checks.is_data(f'axes["data"][{i}]', value)
        if value is None:
            checks.fail(f'axes["data"][{i}]', None, "ClientData")
    joined = {id(value): value.with_parts(test, validation) for value in given}
    first = joined[id(given[0])]
    if not hasattr(first, "tables"):
        checks.fail('axes["data"]', type(given[0]).__name__, "ClientData: vertical data can't be an axis")
    for i, value in enumerate(joined.values()):
        _same_pool(f'axes["data"][{i}]', value, first)
    joined = dict(zip(joined, first.alike(list(joined.values())), strict=True))
    for i, axis in enumerate(parsed):
        rows = [tuple(joined.get(id(v), v) for v in row) for row in axis.values]
        parsed[i] = axis._replace(values=rows) if ax.DATA in axis.paths else axis
    return ax.points(parsed), parsed, joined[id(given[0])]


def _same_pool(field: str, data: Any, like: Any) -> None:
    parts, wanted = data.parts(), like.parts()
    if set(parts) != set(wanted) or data.train.layout != like.train.layout:
        checks.fail(field, f"{sorted(parts)} of {data.train.num_clients} clients",
                    f"{sorted(wanted)} of {like.train.num_clients} clients, as many of them without rows")  # fmt: skip
    for name, part in parts.items():
        for array in ("x", "y"):
            a, b = getattr(part, array), getattr(wanted[name], array)
            if a is not b and not (np.shape(a) == np.shape(b) and np.array_equal(a, b)):
                checks.fail(field, f"{name} rows of another pool", "the same x and y: only whose rows are whose varies")


def _at(point: dict[str, Any], algorithm: Any, scheduler: Any) -> tuple[Any, Any]:
    for path, value in point.items():
        algorithm, scheduler = ax.substitute(path, value, algorithm, scheduler)
    return algorithm, scheduler


def _timetables(
    points: Sequence[dict], algorithm: Any, scheduler: Any, data: Any, num_rounds: Any, every: Any, mesh: Any
) -> list[Timetable]:
    """Return each point's timetable, or one where all have the same; ValueError where their records differ."""
    moving = any(path.split(".")[0] == ax.SCHEDULER for path in points[0])
    out = []
    for i, point in enumerate(points):
        own, when = _at(point, algorithm, scheduler)
        held = point.get(ax.DATA, data)
        if i and not moving:
            held.check(own)
        else:
            out.append(held.timetable(own, when, None, num_rounds, every, mesh))
    for table in out:
        if table.stops != out[0].stops:
            checks.fail("axes", f"schedules of {table.stops[-1]} and of {out[0].stops[-1]} rounds",
                        "one length for all points")  # fmt: skip
    return out


def _values(points: Sequence[dict], timetables: list[Timetable]) -> tuple[tuple[str, ...], tuple[Any, ...]]:
    """Return the swept paths as the device knows them, and the stacked values of each [points, ...]."""
    paths = [path for path in points[0] if path.split(".")[0] != ax.SCHEDULER]
    values = []
    for path in paths:
        column = [point[path] for point in points]
        column = [v.tables() if path == ax.DATA else runner.cast(v, to_float=True) for v in column]
        values.append(ax.stacked(column))
    if len(timetables) > 1:
        schedulers = [runner.cast(table.scheduler) for table in timetables]
        shapes = {(jax.tree.structure(s), tuple(np.shape(x) for x in jax.tree.leaves(s))) for s in schedulers}
        if len(shapes) > 1:
            checks.fail("axes", "a field of the scheduler that changes the schedule's size", "one that does not, "
                        "or a run for each value")  # fmt: skip
        paths.append(ax.SCHEDULER)
        values.append(ax.stacked(schedulers))
    return tuple(paths), tuple(values)


def _within_memory(job: Job, memory: float | None, batch: int | None) -> Job:
    """Return the job with several batches in a load, where there are many, or with less where memory asks for that."""
    limit = loads.available() if memory is None else int(memory * 2**30)
    whole = len(loads.blocks(job.shape, job.num_points, job.num_seeds)) // LOADS
    job = job._replace(shape=job.shape._replace(batches=max(whole, 1)))
    need = loads.bytes_of(job)
    while need > limit:
        shape = loads.smaller(job.shape, keep_lanes=batch is not None)
        if shape is None:
            checks.fail("memory", f"{limit / 2**30:.3g} GiB", f"at least {need / 2**30:.3g} GiB for a batch of "
                        f"{job.shape.lanes} lanes")  # fmt: skip
        job = job._replace(shape=shape)
        need = loads.bytes_of(job)
    return job
