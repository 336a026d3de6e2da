"""Run one algorithm, or compare several on one split; print, save and draw what came out."""

import dataclasses
from pathlib import Path
from typing import Any

import xarray as xr

import jaxfed as jf
from jaxfed import checks, results
from jaxfed.commands import build, report, settings
from jaxfed.commands import options as o
from jaxfed.commands.figure import run_figure

RESULTS, STATE, FIGURE = "results.nc", "state.pkl", "figure.png"
INTERRUPTED = 130


def train(command: str, options: Any) -> int:
    """Run one algorithm and return the exit status: 0, or 130 where Ctrl-C ended it early (what is done is kept)."""
    start = _start(options.start, options.data)
    arguments, model = _prepare(options)
    first = 0 if start is None else int(start.dataset["round"][-1])
    algorithm = build.algorithm(command, options, model)
    run = jf.run(options.running.seed, algorithm, state=None if start is None else start.state, **arguments)
    if options.output.out is not None:
        run.save(options.output.out, overwrite=True)
    _finish(command, options, run.dataset)
    return 0 if run.dataset["round"][-1] == first + options.running.rounds else INTERRUPTED


def compare(options: Any) -> int:
    """Run several algorithms on one split, with the same seeds, and return the exit status."""
    from jaxfed.sweeps import compare as compare_algorithms

    if not options.algorithms:
        checks.fail("algorithms", "none", "at least one")
    checks.whole("seeds", options.seeds, 1)
    arguments, model = _prepare(options)
    data = arguments.pop("data")
    algorithms = {name: build.algorithm(name, options, model) for name in options.algorithms}
    ds = compare_algorithms(
        algorithms, options.running.seed, data.train, test=data.test, validation=data.validation, seeds=options.seeds,
        **arguments,
    )  # fmt: skip
    if options.output.out is not None:
        (Path(options.output.out) / STATE).unlink(missing_ok=True)
        results.save_dataset(ds, Path(options.output.out) / RESULTS)
    _finish("compare", options, ds)
    return 0


def _prepare(options: Any) -> tuple[dict[str, Any], jf.Model]:
    """Return the arguments of a run, and the model, after everything that can be refused before it has been."""
    running = options.running
    if running.target_accuracy is not None:
        checks.numbers("target_accuracy", running.target_accuracy, 0, 1)
    checks.whole("seed", running.seed, 0)
    checks.rounds(running.rounds, running.every)
    refuse(options.output)
    mesh = build.start_devices(running)
    arrays, data = build.client_data(options.data)
    if running.target_accuracy is not None and arrays.num_classes == 0:
        checks.fail("target_accuracy", running.target_accuracy, "none for a data set of real targets")
    arguments = {
        "data": data,
        "scheduler": build.scheduler(running, data.train.num_clients),
        "num_rounds": running.rounds,
        "every": running.every,
        "mesh": mesh,
        "progress": False if options.output.quiet else None,
    }
    model = build.model(options.net, arrays)
    if options.output.out is not None:
        Path(options.output.out).mkdir(parents=True, exist_ok=True)  # fails now, not after the run
    return arguments, model


def refuse(output: o.Output) -> None:
    """Raise FileExistsError where the folder holds results (without overwrite), NotADirectoryError for a file."""
    if output.out is None:
        return
    folder = Path(output.out)
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"out: got {folder}, which is a file; wanted a folder")
    held = [name for name in (RESULTS, STATE, settings.NAME) if (folder / name).exists()]
    if held and not output.overwrite:
        raise FileExistsError(f"out: got {folder}, which holds {held[0]} already; wanted another, or --overwrite")


def _start(start: o.Start, data: o.Data) -> jf.Run | None:
    """Return the run to go on from; ValueError where its clients are not those of this run."""
    if start.continue_from is None:
        return None
    earlier = settings.load(start.continue_from)[1].data
    for field in (f.name for f in dataclasses.fields(data)):
        got, had = getattr(data, field), getattr(earlier, field)
        if field not in ("data_dir", "download") and got != had:
            checks.fail(field, got, f"{had}, as in {start.continue_from}")
    return jf.load(start.continue_from)


def _finish(command: str, options: Any, ds: xr.Dataset) -> None:
    """Save settings and figure, print the table."""
    out = options.output.out
    if out is not None:
        settings.save(command, options, out)
        run_figure(ds).savefig(Path(out) / FIGURE, dpi=150)
    if not options.output.quiet:
        print(report.title(command, options))
        print(report.table(ds, options.running.target_accuracy))
        print("not saved: no --out was given" if out is None else f"saved in {out}")
