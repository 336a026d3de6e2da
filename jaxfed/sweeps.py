"""Many runs of one algorithm in one call and one labelled Dataset."""

import os
import time
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jax.sharding import Mesh

from jaxfed import interrupts, lanes, loads, parallel
from jaxfed.axes import LogUniform as LogUniform
from jaxfed.axes import Uniform as Uniform
from jaxfed.axes import sample as sample
from jaxfed.comparing import compare as compare
from jaxfed.loads import Block, Estimate, Job
from jaxfed.progress import Pace, progress_bar
from jaxfed.sweep_labels import label, warn_if_diverged
from jaxfed.sweep_setup import Sweep, prepare
from jaxfed.types import Measure


def sweep(
    seed: int,
    algorithm: Any,
    data: Any,
    *,
    axes: Any,
    seeds: int | Iterable[int] = 1,
    test: Any = None,
    validation: Any = None,
    scheduler: Any = None,
    num_rounds: Any,
    every: Any = None,
    measures: Sequence[Measure] | None = None,
    independent: bool = False,
    batch: int | None = None,
    memory: float | None = None,
    mesh: Mesh | None = None,
    group: int | None = None,
    per_client: bool | None = None,
    out: str | os.PathLike | None = None,
    progress: bool | None = None,
) -> xr.Dataset:
    """Run an algorithm at every point of a grid, under several seeds, as one compiled program.

    Args:
      seed, seeds: `seeds=k` runs seed, ..., seed + k - 1; a list of ints is taken as it stands, `seed` then unused.
      algorithm, data, test, validation, scheduler, num_rounds, every, measures, group, per_client: as in `run`.
      axes: {"alpha": values, "model.l2": values, ("lr", "alpha_lr"): pairs} spans a grid; a list of points
        [{"lr": 0.1, "alpha": 0.5}, ...] (`sample` draws some) is taken as it stands, dimension "point". Paths lead to
        traced fields of the algorithm, of the scheduler ("scheduler.delay"), or are "data": a list or a dict, label to
        `ClientData` over one pool of rows, for heterogeneity. Static fields compile once each: `compare` is for them.
      independent: give each lane a seed of its own, the variable `run_seed`. Default: all points see the same initial
        models, cohorts and minibatches under one seed, so differences are paired.
      batch: lanes computed at once (default: what a CPU's cache or an accelerator's memory takes).
      memory: GiB that a device may use for the sweep (default: half of a host's free memory, shared by its devices, or
        nine tenths of an accelerator's); larger sweeps are cut into smaller loads.
      mesh: `parallel.mesh(sweep=...)` spreads lanes over devices, without any exchange between them;
        `parallel.mesh(sweep=..., client=...)` the clients of each too.
      out: a folder. Each load's results go there as it is done, and the same call, in another process too, goes on
        after the last; a finished sweep is read from it. SIGTERM ends the device's call at hand and raises
        `interrupts.Preempted` (exit status 75).
      progress: show a bar; default: on a terminal and in a notebook.

    Returns a Dataset with dims (one for each axis..., seed, round[, client | party]): each entry is what
    `run(seed, algorithm with the point's values, ...)` records, to rounding. The axes' values are coordinates;
    attrs["sweep"] is JSON: [[dimension, [paths]], ...]. A lane that diverges has `finite` False from there on and
    disturbs no other. Ctrl-C ends the load at hand: lanes that are not finished are nan (KeyboardInterrupt if none is).

    Raises ValueError for paths that are not there or not traced, and whatever `run` refuses at any point.
    """
    options = (test, validation, scheduler, num_rounds, every, measures, independent, batch, memory, mesh, group)
    whole = prepare(seed, algorithm, data, axes, seeds, *options, per_client, out)
    held = whole.held
    if (ds := held.finished()) is not None:
        return ds
    with interrupts.deferred(preemption=out is not None) as interrupted:
        while True:
            held.begin(whole.job.shape)
            try:
                todo = _play_all(whole, progress, interrupted)
                break
            except jax.errors.JaxRuntimeError as error:  # an accelerator's; a CPU's process would be killed
                had, shape = whole.job.shape, loads.smaller(whole.job.shape)
                if "RESOURCE_EXHAUSTED" not in str(error) or shape is None or 0 in held:
                    raise
                sizes = [f"{s.lanes} lanes in a batch and {s.batches} batches in a load" for s in (had, shape)]
                warnings.warn(f"out of memory with {sizes[0]}; going on with {sizes[1]}", stacklevel=2)
                whole = whole._replace(job=whole.job._replace(shape=shape))
    if interrupted.preempted:
        raise interrupts.Preempted
    found = [(block, held.get(i)) for i, block in enumerate(todo) if i in held]
    if not found:
        raise KeyboardInterrupt("no lane is finished")
    if len(found) < len(todo):
        warnings.warn(f"interrupted: {len(found)} of {len(todo)} loads are finished; the others are nan", stacklevel=2)
    ds = label(whole, found)
    warn_if_diverged(whole, ds)
    if len(found) == len(todo):
        held.finish(ds)
    return ds


def _play_all(whole: Sweep, progress: bool | None, interrupted: interrupts.Event) -> list[Block]:
    """Play the loads that are not there yet, until Ctrl-C; return all loads."""
    job, held, table = whole.job, whole.held, whole.timetables[0]
    todo = loads.blocks(job.shape, job.num_points, job.num_seeds)
    rounds = table.stops[-1] - table.stops[0]
    done = sum(i in held for i in range(len(todo)))
    with progress_bar(progress, rounds * len(todo), rounds * done) as bar:
        pace = Pace(None)
        for i, block in enumerate(todo):
            if i in held:
                continue
            bar.set_description(f"load {i + 1} of {len(todo)}")
            records = _play(whole, block, pace, bar, interrupted)
            if records is None:
                break
            held.put(i, records)
    return todo


def estimate(seed: int, algorithm: Any, data: Any, *, measure_time: bool = True, **given: Any) -> Estimate:
    """Return what `sweep` with the same arguments would need. Compiles it and, for the time, plays its first rounds."""
    named = ("axes", "seeds", "test", "validation", "scheduler", "num_rounds", "every", "measures", "independent",
             "batch", "memory", "mesh", "group", "per_client", "out")  # fmt: skip
    options: Any = {"seeds": 1, "independent": False} | {k: v for k, v in given.items() if k != "progress"}
    if unknown := set(options) - set(named):
        raise TypeError(f"estimate: got {sorted(unknown)}, wanted the arguments of sweep")
    whole = prepare(seed, algorithm, data, *[options.get(name) for name in named])
    job = whole.job
    todo = loads.blocks(job.shape, job.num_points, job.num_seeds)
    seconds = None
    if measure_time:
        first, spent = loads.load(job, todo[0]), {}
        carry = lanes.compiled_start(job.mesh, job.shape, job.paths, job.settings, first)
        for length in (0, 0, 1, 1):  # the first of each warms up
            begin = time.perf_counter()
            carry, records = _call(job, first, carry, [length])
            jax.block_until_ready((carry, records))
            spent[length] = time.perf_counter() - begin
        table = whole.timetables[0]
        each = max(spent[1] - spent[0], 0) * (table.stops[-1] - table.stops[0])
        seconds = (each + spent[0] * len(table.stops)) * len(todo)
    return Estimate(job.num_points * job.num_seeds, job.shape.lanes, len(todo), loads.bytes_of(job), seconds)


def _call(job: Job, load: lanes.Load, carry: Any, windows: Sequence[int]) -> tuple[Any, Any]:
    """Play a few windows."""
    padded = np.zeros(job.windows, np.int32)
    padded[: len(windows)] = np.abs(windows)
    return lanes.compiled_play(*job[:6], load, carry, jnp.asarray(padded), jnp.int32(len(windows)))


def _play(whole: Sweep, block: Block, pace: Pace, bar: Any, interrupted: Any) -> dict[str, np.ndarray] | None:
    """Return the records of a load, [lanes, record, ...] with lanes as in the block; None if it was interrupted."""
    job, stops = whole.job, whole.timetables[0].stops
    load = loads.load(job, block)
    carry = lanes.compiled_start(job.mesh, job.shape, job.paths, job.settings, load)
    rest, parts = [0, *np.diff(stops).tolist()], []
    while rest:
        windows, rest = loads.pieces(rest, pace.rounds, job.windows)
        with pace:
            carry, records = _call(job, load, carry, windows)
            jax.block_until_ready(records)
        stop, seconds = parallel.agree(job.mesh, interrupted.is_set(), pace.seconds)  # the same in all processes
        pace.adapt(seconds)
        bar.update(sum(map(abs, windows)))
        if stop:
            return None
        kept = [i for i, length in enumerate(windows) if length >= 0]
        by_client, others = parallel.fetch(records)
        parts.append({k: v[:, kept] for k, v in (by_client | others).items()})
    joined = {k: np.concatenate([part[k] for part in parts], 1) for k in parts[0]}
    for name in set(joined) - set(whole.dims) - {"time", "finite"}:  # what a round tells: none was before the first
        joined[name] = joined[name].astype(np.result_type(joined[name], np.float32))
        joined[name][:, 0] = np.nan
    lanes_first = lambda x: np.moveaxis(x, 1, 3).reshape(-1, x.shape[1], *x.shape[4:])  # noqa: E731
    flat = {name: lanes_first(value) for name, value in joined.items()}
    return flat if whole.shorten is None else _shortened(whole.shorten, block, flat)


def _shortened(shorten: Sequence[Any], block: Block, records: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the records of a load with summaries over clients in place of the clients' arrays."""
    points = np.broadcast_to(block.points[:, None], (*block.seeds.shape, block.points.shape[1])).ravel()
    rounds = range(len(next(iter(records.values()))[0]))
    each = [
        [shorten[point]({name: value[lane, i] for name, value in records.items()}) for i in rounds]
        for lane, point in enumerate(points)
    ]
    return {name: np.array([[record[name] for record in lane] for lane in each]) for name in each[0][0]}
