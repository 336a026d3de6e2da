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

from jaxfed import checkpoint, checks, core, interrupts, nodes, parallel, results
from jaxfed.progress import Pace, headline, progress_bar
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
        checkpoint.save_state(self.state, folder / "state.pkl")
        results.save_dataset(self.dataset, folder / "results.nc")


def load(folder: str | os.PathLike, allow: tuple[str, ...] = ()) -> Run:
    """Read a run written by `Run.save`. `allow`: packages of your own whose states it may hold."""
    folder = Path(folder)
    found = Run(results.load_dataset(folder / "results.nc"), checkpoint.load_state(folder / "state.pkl", allow))
    checkpoint.of_one_save(folder, *found)
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
      mesh: devices to shard the clients over (`parallel.mesh()`), default one.
      group: clients trained at once on a device (default: what suits it). Changes results by rounding only.
      client_store: "host" keeps clients' states, tables and large pools in host memory and moves only the cohorts' of
        `chunk` rounds (see `horizontal.host_store`): for very many clients. Changes no result.
      per_client: record every client, or summaries over clients (see `horizontal.summaries`); default: summaries for
        more than 20,000 clients.
      progress: show a bar; default: on a terminal and in a notebook.

    Returns a Run. Ctrl-C ends the round at hand and returns what is finished. A run that diverges is not stopped: its
    variable `finite` says from where on, and a warning does too.

    Raises ValueError, with the field, what it got and what it wanted, for settings that don't go together.
    """
    options = (test, validation, scheduler, state, num_rounds, every, mesh)
    data, scheduler, timetable, key, seed = prepare(seed, algorithm, data, *options)
    checks.pieces(chunk, group)
    added = tuple(measures or ())
    checks.measures(added)
    checks.many_clients(client_store, per_client, data)
    attrs = describe(seed, algorithm, scheduler, num_rounds, timetable.every, mesh) | data.attributes(algorithm)
    algorithm, scheduler = cast(algorithm, to_float=True), cast(timetable.scheduler)
    with interrupts.deferred() as interrupted:
        store = None
        if client_store == "host":
            store = data.on_host(algorithm, scheduler, mesh, group, chunk, timetable.stops, added)
        placed = data.place(algorithm, scheduler, mesh, group) if store is None else store.data
        recorded = (*data.default_measures(), *added)
        taken = {"time", "finite", "round", *data.coords(), *timetable.columns(timetable.stops[0])}
        lengths = {name: len(own) for name, own in placed.coords().items() if isinstance(own, np.ndarray)}
        dims = core.record_dims(key, algorithm, placed, recorded, taken, lengths)
        entries = (_start, _observe, _advance)
        start, observe, advance = entries if store is None else store.over(*entries, dims)
        shorten, shown, coords = data.summaries(per_client, dims)

        carry = start(key, algorithm, placed)
        if state is not None:
            done = timetable.stops[0]
            carry = Carry(jnp.int32(done), core.clock(key, scheduler, done), data.fit_state(state, carry.state))
        carry = parallel.put_carry(carry, mesh) if store is None else carry
        last = timetable.rounds[-1]
        rounds, now, pace = timetable.rounds[:1], timetable.stops[0], Pace(chunk if store is None else store.rounds)
        see = lambda carry: jax.device_get(observe(mesh, recorded, algorithm, *data.visible(placed, carry)))  # noqa: E731
        look = lambda carry: shorten(see(carry))  # noqa: E731
        records = [look(carry) | timetable.columns(now)]
        with progress_bar(progress, timetable.stops[-1] - now) as bar:
            for label, goal in zip(timetable.rounds[1:], timetable.stops[1:], strict=True):
                while now < goal:
                    length = min(goal - now, pace.rounds)
                    with pace:
                        carry, info = advance(mesh, key, algorithm, scheduler, placed, carry, length)
                        jax.block_until_ready(info)
                    now += length
                    bar.update(length)
                    checks.distinct("measures", dims, info)
                    if interrupted.is_set() and (now < goal or goal < timetable.stops[-1]):
                        label, goal, end = min(now, label), now, timetable.ending(now)
                        if end is not None:
                            timetable, scheduler, goal = end, cast(end.scheduler), end.stops[-1]
                records.append(look(carry) | jax.device_get(info) | timetable.columns(now))
                rounds.append(label)
                headline(bar, records[-1])
                if interrupted.is_set():
                    break
        if rounds[-1] < last:
            done = rounds[-1] - rounds[0]
            warnings.warn(f"interrupted: returning the first {done} of {last - rounds[0]} rounds", stacklevel=2)
        dataset = results.to_dataset(data.trim(records, shown), rounds, shown, coords, attrs)
        _warn_if_diverged(dataset, data.advice(algorithm))
        return Run(dataset, data.final(algorithm, carry.state, timetable, now))


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


_start = nodes.jit(core.init)
_observe = nodes.jit(core.observe, static_argnums=(0, 1))
_advance = nodes.jit(core.advance_on, static_argnums=(0,), donate_argnums=(5,))


def compiled_programs() -> int:
    """Return how many programs the runner has compiled in this process; tests assert that it stays put."""
    return sum(f._cache_size() for f in (_start, _observe, _advance))


def _warn_if_diverged(dataset: xr.Dataset, advice: Callable[[], str]) -> None:
    finite = dataset["finite"].values
    if not finite.all():
        at = int(dataset["round"].values[~finite][0])
        warnings.warn(f"diverged: the state is not finite from round {at} on; {advice()}", stacklevel=3)
