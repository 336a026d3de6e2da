"""From the experiments to the table of claims, part by part: what `jaxfed theory` and `scripts/theory_*.py` do.

An experiment is a module of `jaxfed.theory.experiments` with `PARTS`, function to the ids of its claims, and
`draw(data)`, the figures by name that a part's Datasets give.
"""

import argparse
import importlib
import json
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from jaxfed import checks, results
from jaxfed.theory import claims
from jaxfed.theory.claims import Claim, Found, Interval

EXPERIMENTS = ("alpha_star", "phase", "descent", "adaptive", "vertical")
SETTINGS, PARTIAL, DATA = "theory.json", ".partial", "data"


class Part(NamedTuple):
    """A part of an experiment: the module and its name, the function that measures, the ids of its claims."""

    module: Any
    experiment: str
    measure: Callable[..., Found]
    ids: tuple[str, ...]


def run(
    only: Sequence[str] = (),
    smoke: bool = False,
    seed: int = 0,
    out: str | os.PathLike | None = None,
    experiments: Sequence[str] | None = None,
    say: Callable[[str], Any] = print,
    workers: int = 1,
) -> list[Claim]:
    """Measure the claims of the experiments (None: all), or those whose ids are in `only`; return them in their order.

    smoke: toy size, at which many claims stay undecided. seed: of every part. say: gets a line before and after each
    part. out: a folder for claims.json and claims.md, both written anew as each part ends, the parts' figures
    (`experiment-name.png`) and the Datasets behind them (data/). A second call with the same folder, size and seed
    goes on with the parts whose claims are not there yet.
    workers: processes that measure parts side by side: most of the time goes into compiling, which takes one core. More
    than 1 needs a main module that may be imported again (as for `multiprocessing`), and is for CPUs: processes would
    fight over an accelerator.

    Raises ValueError for an unknown id (the nearest is named), and for a folder that holds claims of another size or
    seed, or anything else.
    """
    checks.whole("seed", seed, 0)
    if seed >= 2**32:
        checks.fail("seed", seed, f"0 to {2**32 - 1}")
    parts = _parts(EXPERIMENTS if experiments is None else experiments)
    known = [name for part in parts for name in part.ids]
    for name in only:
        checks.one_of("only", name, known)
    wanted = [name for name in known if not only or name in only]
    folder = None if out is None else Path(out)
    found = {} if folder is None else _open(folder, {"smoke": smoke, "seed": seed})
    todo = [part for part in parts if set(part.ids) & set(wanted) - set(found)]
    for i, (part, new, seconds) in enumerate(_each(todo, smoke, seed, workers, say)):
        name = f"[{i + 1} of {len(todo)}] {part.experiment}: {part.measure.__name__}"
        # as claims.json gives them back, where infinite and undefined are one, so that a stop changes nothing
        asked = {claim.id: _claim(claim.to_json()) for claim in new.claims if claim.id in wanted}
        found |= asked
        if folder is not None:
            _save(folder, part, new.data, [found[name] for name in known if name in found])
        verdicts = ", ".join(f"{claim.id} {claim.verdict}" for claim in asked.values())
        say(f"{name}: {verdicts} ({seconds:.1f} s)")
    return [found[name] for name in wanted]


def script(experiment: str, argv: Sequence[str] | None = None) -> None:
    """Run one experiment from a command line: --smoke, --only, --out, --seed. What `scripts/theory_*.py` call."""
    parser = argparse.ArgumentParser(description=f"Measure the claims of jaxfed.theory.experiments.{experiment}.")
    parser.add_argument("--smoke", action="store_true", help="toy size: many claims stay undecided")
    parser.add_argument("--only", nargs="+", default=(), metavar="ID", help="these claims")
    parser.add_argument("--out", metavar="FOLDER", help="for claims.json, claims.md and the figures")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    print("\n" + summary(run(args.only, args.smoke, args.seed, args.out, (experiment,), workers=cores())))


def summary(found: Sequence[Claim]) -> str:
    """Return the table of claims, and how many have each verdict."""
    verdicts = [claim.verdict for claim in found]
    kinds = (claims.HOLDS, claims.CONDITIONAL, claims.FAILS, claims.UNDECIDED)
    counts = ", ".join(f"{verdicts.count(kind)} {kind}" for kind in kinds if kind in verdicts)
    return f"{claims.table(found)}\n\n{len(found)} claims: {counts}"


def cores() -> int:
    """Return how many processes suit this machine: one for each core of a CPU, one alone for an accelerator."""
    import jax

    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return 1 if jax.default_backend() != "cpu" else min(count, 8)


def _parts(experiments: Sequence[str]) -> list[Part]:
    parts = []
    for name in experiments:
        module = importlib.import_module(f"jaxfed.theory.experiments.{name}")
        parts += [Part(module, name, measure, tuple(ids)) for measure, ids in module.PARTS.items()]
    ids = [name for part in parts for name in part.ids]
    if len(set(ids)) < len(ids):
        checks.fail("PARTS", f"{max(ids, key=ids.count)!r} twice", "each id once")
    return parts


def _each(todo: list[Part], smoke: bool, seed: int, workers: int, say: Callable) -> Iterator[tuple[Part, Found, float]]:
    """Yield each part with what it measures and its seconds, as they end."""
    if workers == 1 or len(todo) < 2:
        for part in todo:
            say(f"{part.experiment}: {part.measure.__name__} ...")
            yield part, *_timed(part, smoke, seed)
        return
    say(f"{len(todo)} parts in {workers} processes ...")
    with futures.ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        tasks = {pool.submit(_by_name, part.experiment, part.measure.__name__, smoke, seed): part for part in todo}
        try:
            for done in futures.as_completed(tasks):
                yield tasks[done], *done.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _by_name(experiment: str, measure: str, smoke: bool, seed: int) -> tuple[Found, float]:
    """Measure a part in a process of its own, to which its function can't be sent."""
    return _timed(next(p for p in _parts((experiment,)) if p.measure.__name__ == measure), smoke, seed)


def _timed(part: Part, smoke: bool, seed: int) -> tuple[Found, float]:
    begin = time.perf_counter()
    return _measured(part, smoke, seed), time.perf_counter() - begin


def _measured(part: Part, smoke: bool, seed: int) -> Found:
    """Return what a part measures; ValueError where its claims are not those that PARTS names."""
    found = part.measure(smoke=smoke, seed=seed)
    ids = tuple(claim.id for claim in found.claims)
    if sorted(ids) != sorted(part.ids):
        checks.fail(part.measure.__name__, f"the claims {', '.join(ids)}", f"those of PARTS, {', '.join(part.ids)}")
    return found


def _open(folder: Path, settings: dict[str, Any]) -> dict[str, Claim]:
    """Return the claims that a folder holds, by id; write down what they belong to where it is new."""
    path = folder / SETTINGS
    if path.is_file():
        had = json.loads(path.read_text())
        if differ := [f"{name} {had.get(name)} (here {value})" for name, value in settings.items()
                      if had.get(name) != value]:  # fmt: skip
            checks.fail("out", f"{folder}, which holds claims with {', '.join(differ)}", "the same, or another folder")
        held = folder / "claims.json"
        return {o["id"]: _claim(o) for o in json.loads(held.read_text())} if held.is_file() else {}
    partial = path.with_name(SETTINGS + PARTIAL)
    if folder.exists() and (not folder.is_dir() or any(file != partial for file in folder.iterdir())):
        checks.fail("out", folder, "a folder that is empty, new, or holds claims")
    folder.mkdir(parents=True, exist_ok=True)
    partial.write_text(json.dumps(settings) + "\n")
    os.replace(partial, path)
    return {}


def _claim(o: dict[str, Any]) -> Claim:
    """Return the claim of an object of claims.json."""
    found = Interval(*(np.nan if x is None else x for x in (o["low"], o["high"])))
    low, high = o["region"]
    region = Interval(-claims.INF if low is None else low, claims.INF if high is None else high)
    otherwise = o["otherwise"] and Interval(*(np.nan if x is None else x for x in o["otherwise"]))
    names = ("id", "source", "statement", "experiment", "statistic", "condition")
    return Claim(**{name: o[name] for name in names}, found=found, region=region, otherwise=otherwise)


def _save(folder: Path, part: Part, new: dict[str, xr.Dataset], found: list[Claim]) -> None:
    """Write a part's Datasets, their figures, then all claims: a part whose claims are there is whole."""
    (folder / DATA).mkdir(exist_ok=True)
    for name, ds in new.items():
        results.save_dataset(ds, folder / DATA / f"{part.experiment}-{name}.nc")
    for name, figure in part.module.draw(new).items():
        partial = folder / f"{PARTIAL}.png"
        figure.savefig(partial, dpi=150)
        os.replace(partial, folder / f"{part.experiment}-{name}.png")
    claims.write(folder / PARTIAL, found)
    for name in ("claims.md", "claims.json"):
        os.replace(folder / PARTIAL / name, folder / name)
    (folder / PARTIAL).rmdir()
