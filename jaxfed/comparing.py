"""Several algorithms side by side in one labelled Dataset."""

import json
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import xarray as xr

from jaxfed import checks, interrupts, runner
from jaxfed.progress import progress_bar
from jaxfed.types import Algorithm

BY_ALGORITHM = ("bytes_per_visit", "parameters")  # attributes of a run that become coordinates of the algorithms


def compare(
    algorithms: Mapping[str, Algorithm],
    seed: int,
    data: Any,
    *,
    test: Any = None,
    validation: Any = None,
    seeds: int | Iterable[int] = 1,
    progress: bool | None = None,
    **run_options: Any,
) -> xr.Dataset:
    """Run several algorithms on the same data, one after the other, each as `run` would.

    Args:
      algorithms: name to algorithm.
      seed, seeds: `seeds=k` runs seed, seed + 1, ..., seed + k - 1; a list of ints is taken as it stands, `seed` then
        unused. Under one seed all algorithms see the same cohorts and the same clock.
      data, test, validation, run_options: as in `run` (num_rounds, every, scheduler, measures, mesh, ...), for all.
      progress: show one bar over all rounds of all runs; default: on a terminal and in a notebook.

    Returns a Dataset with dims (algorithm, seed, round, client): entry (a, s) is exactly `run(s, algorithms[a], ...)`.
    What an algorithm does not record (`mixing_weight`, say) is nan there. `bytes_per_visit` and `parameters` are
    coordinates on `algorithm`; attrs["algorithm"] is JSON, name to repr, and the other attrs are those of every run.
    Ctrl-C returns the algorithms that are finished; KeyboardInterrupt if none is.

    Raises ValueError for no algorithms or seeds, for seeds that are no ints, and whatever `run` refuses.
    """
    if not isinstance(algorithms, Mapping):
        checks.fail("algorithms", type(algorithms).__name__, "a dict, name to algorithm")
    if not algorithms:
        checks.fail("algorithms", "none", "at least one, by name")
    numbers = seed_numbers(seed, seeds)
    shared = (test, validation, *(run_options.get(k) for k in ("scheduler", "state", "num_rounds", "every", "mesh")))
    checks.pieces(run_options.get("chunk"), run_options.get("group"))
    finished, tables = {}, {}
    for name, algorithm in algorithms.items():  # all of them before the first runs
        tables[name] = runner.prepare(numbers[0], algorithm, data, *shared)[2].rounds
    if len({tuple(rounds) for rounds in tables.values()}) > 1:  # epochs of SVRG, say, cost ticks of their own
        ends = ", ".join(f"{name} {rounds[-1]}" for name, rounds in tables.items())
        checks.fail("num_rounds, every", f"records at other rounds for each algorithm (the last: {ends})",
                    "the same for all: lengths in rounds, or a run for each")  # fmt: skip
    length = next(iter(tables.values()))[-1] - next(iter(tables.values()))[0]
    with interrupts.deferred(), progress_bar(progress, length * len(algorithms) * len(numbers)) as bar:
        for name, algorithm in algorithms.items():
            lanes = []
            for number in numbers:
                bar.set_description(name if len(numbers) == 1 else f"{name}, seed {number}")
                run = runner.run(
                    number, algorithm, data, test=test, validation=validation, progress=False, **run_options
                )
                if int(run.dataset["round"][-1] - run.dataset["round"][0]) < length:
                    return _interrupted(finished, numbers)
                lanes.append(run.dataset)
                bar.update(length)
            finished[name] = lanes
    return _label(finished, numbers)


def seed_numbers(seed: Any, seeds: Any) -> list[int]:
    """Return the seeds as ints."""
    if isinstance(seeds, (int, np.integer)):
        checks.whole("seeds", seeds, 1)
        if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
            checks.fail("seed", repr(seed), "an int, to which the lane's number is added")
        return [int(seed) + j for j in range(int(seeds))]
    numbers = list(seeds)
    for j, number in enumerate(numbers):
        checks.whole(f"seeds[{j}]", number, 0)
    if not numbers or len(set(numbers)) < len(numbers):
        checks.fail("seeds", numbers, "at least one int, none twice")
    return [int(number) for number in numbers]


def _interrupted(finished: dict[str, list[xr.Dataset]], numbers: list[int]) -> xr.Dataset:
    """Return what Ctrl-C left whole."""
    if not finished:
        raise KeyboardInterrupt("no algorithm is finished")
    warnings.warn(f"interrupted: returning the finished algorithms, {', '.join(finished)}", stacklevel=3)
    return _label(finished, numbers)


def _label(runs: dict[str, list[xr.Dataset]], numbers: list[int]) -> xr.Dataset:
    """Return one Dataset [algorithm, seed, ...] from each algorithm's runs, one for each seed."""
    some = [lane for lanes in runs.values() for lane in lanes]
    like = {name: lane[name] for lane in some for name in lane.data_vars}

    def complete(lane: xr.Dataset) -> xr.Dataset:
        missing = {name: xr.full_like(v, np.nan, float) for name, v in like.items() if name not in lane}
        return lane.assign(missing)

    how: dict[str, Any] = dict(data_vars="all", coords="different", compat="equals", combine_attrs="drop", join="exact")
    seed = xr.DataArray(numbers, dims="seed", name="seed")
    name = xr.DataArray(np.array(list(runs), dtype=object), dims="algorithm", name="algorithm")
    rows = [xr.concat([complete(lane) for lane in lanes], seed, **how) for lanes in runs.values()]
    whole = xr.concat(rows, name, **how).transpose("algorithm", "seed", "round", ...)
    first = {name: lanes[0].attrs for name, lanes in runs.items()}
    shared = {key: v for key, v in some[0].attrs.items() if key not in ("algorithm", "seed", *BY_ALGORITHM)}
    shared["algorithm"] = json.dumps({name: attrs["algorithm"] for name, attrs in first.items()})
    sizes = {k: ("algorithm", [attrs[k] for attrs in first.values()]) for k in BY_ALGORITHM if k in some[0].attrs}
    return whole.assign_coords(sizes).assign_attrs(shared)
