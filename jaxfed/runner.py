"""The host's side of one run: check, place, loop over recorded windows, show progress, label the results."""

import os
import warnings
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jax.sharding import Mesh

from jaxfed import checkpoint as files
from jaxfed import checks, core, interrupts, parallel, results, resume
from jaxfed.fingerprint import of_run
from jaxfed.machine import assemble
from jaxfed.machine import compiled_programs as compiled_programs
from jaxfed.progress import headline, progress_bar
from jaxfed.sinks import Feed
from jaxfed.types import Carry, Measure, Timetable


class Run(NamedTuple):
    """A finished run: `dataset` (see `results`) and the algorithm's final `state`."""

    dataset: xr.Dataset
    state: Any

    def __repr__(self) -> str:
        """Say what there is, without the state's arrays."""
        sizes = ", ".join(f"{name}: {size}" for name, size in self.dataset.sizes.items())
        return f"Run(dataset=<{sizes}; {', '.join(map(str, self.dataset.data_vars))}>, state=...)"

    def save(self, folder: str | os.PathLike, overwrite: bool = False) -> None:
        """Write `results.nc` and `state.pkl` into a folder; FileExistsError if it holds results already."""
        folder = Path(folder)
        if (folder / "results.nc").exists() and not overwrite:
            raise FileExistsError(f"path: got {folder}, which holds results already; wanted another, or overwrite=True")
        files.save_state(self.state, folder / "state.pkl")
        results.save_dataset(self.dataset, folder / "results.nc")


def load(folder: str | os.PathLike, allow: tuple[str, ...] = ()) -> Run:
    """Read a run written by `Run.save`. `allow`: packages of your own whose states it may hold."""
    folder = Path(folder)
    found = Run(results.load_dataset(folder / "results.nc"), files.load_state(folder / "state.pkl", allow))
    files.of_one_save(folder, *found)
    return found


def run(
    seed: int | jax.Array,
    algorithm: Any,
    data: Any,
    *,
    test: Any = None,
    validation: Any = None,
    scheduler: Any = None,
    num_rounds: Any,
    every: Any = None,
    measures: Sequence[Measure] | None = None,
    state: Any = None,
    chunk: int | None = None,
    mesh: Mesh | None = None,
    group: int | None = None,
    client_store: str = "device",
    per_client: bool | None = None,
    progress: bool | None = None,
    checkpoint: str | os.PathLike | None = None,
    checkpoint_seconds: float = 60.0,
    sinks: Sequence[Any] = (),
) -> Run:
    """Run an algorithm for `num_rounds` rounds and record it before the first and after every `every` rounds.

    A round of a vertical run is a tick (see `vertical.ticks`); there both may also be `vertical.Epochs(k)`, passes over
    the data, or `vertical.Seconds(s)`, simulated. `every=None`: each round, each epoch, or 20 times in all.

    Args:
      seed: an int, or a typed key (`jax.random.key`). The same seed gives the same numbers.
      algorithm: its fields are its settings.
      data: training rows, `ClientData` or `PartyData`; `test` and `validation` rows of the same clients or parties.
      scheduler: who takes part and when (default: everybody, synchronously).
      measures: added to the data's own; one that returns a name again replaces it.
      state: start from this state of an earlier run instead of a new one; its count of rounds goes on.
      chunk: most rounds in one call of the device (default: about a quarter of a second's). Changes no result.
      mesh: devices to shard the clients over (`parallel.mesh()`), default one. Where they belong to several
        processes, all of these must make the same call, and each gets the whole result.
      group: clients trained at once on a device (default: what suits it). Changes results by rounding only.
      client_store: "host" keeps clients' states, tables and large pools in host memory and moves only the cohorts' of
        `chunk` rounds (see `horizontal.host_store`): for very many clients. Changes no result.
      per_client: record every client, or summaries over clients (see `horizontal.summaries`); default: summaries for
        more than 20,000 clients.
      progress: show a bar; default: on a terminal and in a notebook.
      checkpoint: a folder for what is needed to go on after a kill, written between calls of the device at most once
        in `checkpoint_seconds`, on Ctrl-C and at the end. The same call, in another process too, finds it and goes on:
        bit for bit the run in one piece. A finished run is returned; one of more rounds goes on, unless rounds are
        ticks. SIGTERM ends the device's call at hand, writes the folder and raises `interrupts.Preempted` (exit
        status 75); without a folder it is left alone.
      sinks: fed with each record as it is made (`jaxfed.sinks`); one that fails is given up with a warning.

    Returns a Run. Ctrl-C ends the round at hand and returns what is finished. A run that diverges is not stopped: its
    variable `finite` says from where on, and a warning does too.

    Raises ValueError, with the field, what it got and what it wanted, for settings that don't go together.
    """
    options = (test, validation, scheduler, state, num_rounds, every, mesh)
    data, scheduler, timetable, key, seed = prepare(seed, algorithm, data, *options)
    checks.pieces(chunk, group)
    checks.one_lane(mesh)
    added = tuple(measures or ())
    checks.measures(added)
    checks.many_clients(client_store, per_client, data)
    attrs = describe(seed, algorithm, scheduler, num_rounds, timetable.every, mesh) | data.attributes(algorithm)
    algorithm = cast(algorithm, to_float=True)
    parts = (algorithm, scheduler, data, timetable, state, added, group)
    settings = {} if checkpoint is None else of_run(attrs, *parts) | {"per_client": str(per_client)}
    scheduler, keeper = cast(timetable.scheduler), resume.keeper(checkpoint, checkpoint_seconds)
    with interrupts.deferred(preemption=checkpoint is not None) as interrupted, keeper as keep:
        held = assemble(data, key, algorithm, timetable, scheduler, added, mesh, group, chunk, client_store)
        placed, pace, recorded = held.data, held.pace, (*data.default_measures(), *added)
        shorten, shown, coords = data.summaries(per_client, held.dims)

        def record(carry, info, now):
            seen = parallel.fetch(held.observe(mesh, recorded, algorithm, *data.visible(placed, carry)))
            return shorten(seen) | parallel.fetch(info) | timetable.columns(now)

        last, now, found = timetable.rounds[-1], timetable.stops[0], keep.find(settings, timetable)
        records = [] if found is None else found.records
        if found is not None:
            carry = resume.restore(found.carry, jax.eval_shape(lambda: core.init(key, algorithm, placed)), key)
            now = found.now
        else:
            carry = held.start(key, algorithm, placed)
            if state is not None:
                fitted = data.fit_state(state, held.whole(carry.state))
                carry = Carry(jnp.int32(now), core.clock(key, scheduler, now), fitted)
        carry = held.hold(carry)
        feed = Feed(sinks, data, shown)
        if found is None:  # else it has been fed before
            records = [record(carry, {}, now)]
            feed(timetable.rounds[0], records[0])
        rounds, stop, ended = timetable.rounds[: len(records)], False, False
        done, total = now - timetable.stops[0], timetable.stops[-1] - timetable.stops[0]
        with progress_bar(progress, total, done) as bar:
            left = slice(len(records), None)
            for label, goal in zip(timetable.rounds[left], timetable.stops[left], strict=True):
                while now < goal:
                    length = min(goal - now, pace.rounds)
                    with pace:
                        carry, info = held.advance(mesh, key, algorithm, scheduler, placed, carry, length)
                        jax.block_until_ready(info)
                    stop, seconds = parallel.agree(mesh, interrupted.is_set(), pace.seconds)  # alike in all processes
                    pace.adapt(seconds)
                    now += length
                    bar.update(length)
                    checks.distinct("measures", held.dims, info)
                    if not ended and stop and (now < goal or goal < timetable.stops[-1]):
                        # what is resumed has nothing drained; at a window's end it has the record
                        more = [record(carry, info, now)] if now == goal else []
                        keep.save(carry, now, records + more, must=True)
                        label, goal, end, ended = min(now, label), now, timetable.ending(now), True
                        if end is not None:
                            timetable, scheduler, goal = end, cast(end.scheduler), end.stops[-1]
                    elif now < goal and not ended:
                        keep.save(carry, now, records)
                records.append(record(carry, info, now))
                rounds.append(label)
                headline(bar, records[-1])
                stop = bool(stop or parallel.agree(mesh, interrupted.is_set())[0])
                if not ended:
                    finished = now == timetable.stops[-1]
                    ended = not finished and stop and timetable.ending(now) is None
                    keep.save(carry, now, records, must=finished or ended)
                feed(label, records[-1])
                if ended:
                    break
        if interrupted.preempted and checkpoint is not None:
            warnings.warn(f"preempted: {keep.kept} in {checkpoint}; the same call goes on from there", stacklevel=2)
            raise interrupts.Preempted
        if rounds[-1] < last:
            done = rounds[-1] - rounds[0]
            more = "" if checkpoint is None else f" (the same call goes on from {checkpoint})"
            warnings.warn(f"interrupted: returning the first {done} of {last - rounds[0]} rounds{more}", stacklevel=2)
        dataset = results.to_dataset(data.trim(records, shown), rounds, shown, coords, attrs)
        _warn_if_diverged(dataset, data.advice(algorithm))
        return Run(dataset, data.final(algorithm, held.whole(carry.state), timetable, now))


def prepare(
    seed: Any,
    algorithm: Any,
    data: Any,
    test: Any,
    validation: Any,
    scheduler: Any,
    state: Any,
    num_rounds: Any,
    every: Any = None,
    mesh: Any = None,
) -> tuple[Any, Any, Timetable, jax.Array, Any]:
    """Return (data, scheduler, timetable, key, what to record of the seed) after every check of the settings."""
    for field, part in (("data", data), ("test", test), ("validation", validation)):
        checks.is_data(field, part)
    if data is None:
        checks.fail("data", None, "ClientData (say from ClientData.from_list) or PartyData (vertical.split)")
    checks.mesh(mesh)
    checks.is_algorithm("algorithm", algorithm)
    data = data.with_parts(test, validation)
    scheduler = data.default_scheduler() if scheduler is None else scheduler
    timetable = data.timetable(algorithm, scheduler, state, num_rounds, every, mesh)
    return data, scheduler, timetable, *checks.seed(seed)


def cast(tree: Any, to_float: bool = False) -> Any:
    """Return a pytree of settings as arrays, so that 0.1 and float32(0.1) compile once.

    Floats become `jnp.result_type(float)`; integers too with `to_float`, else they stay integers. Lists become arrays.
    """

    def leaf(x):
        x = jnp.asarray(x)
        is_number = to_float and jnp.issubdtype(x.dtype, jnp.integer)
        return x.astype(jnp.result_type(float)) if is_number or jnp.issubdtype(x.dtype, jnp.floating) else x

    return jax.tree.map(leaf, tree, is_leaf=lambda x: isinstance(x, list))


def describe(seed: Any, algorithm: Any, scheduler: Any, num_rounds: Any, every: Any, mesh: Mesh | None) -> dict:
    """Return what tells a run from another: settings, versions, device."""
    return {
        "algorithm": repr(algorithm),
        "scheduler": repr(scheduler),
        "seed": seed,
        "num_rounds": num_rounds if isinstance(num_rounds, int) else repr(num_rounds),
        "every": every if isinstance(every, int) else repr(every),
        "devices": 1 if mesh is None else mesh.size,
        "device": jax.devices()[0].device_kind,
        "x64": int(jax.config.read("jax_enable_x64")),
        "versions": f"jaxfed {version('jaxfed')}, jax {jax.__version__}, numpy {np.__version__}",
    }


def _warn_if_diverged(dataset: xr.Dataset, advice: Callable[[], str]) -> None:
    finite = dataset["finite"].values
    if not finite.all():
        at = int(dataset["round"].values[~finite][0])
        warnings.warn(f"diverged: the state is not finite from round {at} on; {advice()}", stacklevel=3)
