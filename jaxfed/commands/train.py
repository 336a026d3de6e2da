"""Run one algorithm, or compare several on one split; print, save and draw what came out."""

import os
from pathlib import Path
from typing import Any

import xarray as xr

import jaxfed as jf
from jaxfed import checks, interrupts, processes, results
from jaxfed.commands import build, long, report, settings, vertical, vertical_schedule
from jaxfed.commands import options as o
from jaxfed.commands.figure import run_figure
from jaxfed.commands.tracking import tracking

RESULTS, STATE, FIGURE = "results.nc", "state.pkl", "figure.png"
INTERRUPTED, TERMINATED = 130, 143

# what a run that goes on from another must leave as it was: whose rows are whose, and the structure of the state
FIXED = {
    "data": (
        "dataset",
        "num_clients",
        "iid",
        "classes_per_client",
        "concentration",
        "quantity",
        "validation",
        "data_seed",
    ),  # fmt: skip
    "net": ("model", "hidden"),
    "server": ("server_optimizer",),
    "mixing": ("evaluate_with",),
    "running": ("x64",),
}


def train(command: str, options: Any) -> int:
    """Run one algorithm and return the exit status: 0, or where it ended early 130 (Ctrl-C) or 143 (SIGTERM).

    What is done is kept then. With a folder for checkpoints SIGTERM raises `interrupts.Preempted`, whose status is 75.
    """
    fixed = vertical.FIXED if command == "vfb2" else FIXED
    build.start_processes(options)
    with processes.together():
        start = _start(options, fixed)
        if command == "vfb2":
            options, arguments, algorithm = _prepare_vertical(options)
        else:
            arguments, model = _prepare(options)
            algorithm = build.algorithm(command, options, model)
        arguments |= long.arguments(command, options)
    state = None if start is None else start.state
    track = options.track if processes.first() else o.Track()
    with tracking(track) as sinks, interrupts.deferred(preemption=True) as interrupted:
        # until the files are written
        run = jf.run(options.running.seed, algorithm, state=state, sinks=sinks, **arguments)
        with processes.together():
            if options.output.out is not None and processes.first():
                run.save(options.output.out, overwrite=True)
            _finish(command, options, run.dataset)
    if _complete(options, run.dataset):
        return 0
    return TERMINATED if interrupted.preempted else INTERRUPTED


def compare(options: Any) -> int:
    """Run several algorithms on one split, with the same seeds; the exit status is as in `train`."""
    from jaxfed.sweeps import compare as compare_algorithms

    if not options.algorithms:
        checks.fail("algorithms", "none", "at least one")
    checks.whole("seeds", options.seeds, 1)
    build.start_processes(options)
    with processes.together():
        arguments, model = _prepare(options)
        data = arguments.pop("data")
        algorithms = {name: build.algorithm(name, options, model) for name in options.algorithms}
    parts = dict(test=data.test, validation=data.validation)
    with interrupts.deferred():  # until the files are written
        ds = compare_algorithms(algorithms, options.running.seed, data.train, seeds=options.seeds, **parts, **arguments)
        with processes.together():
            if options.output.out is not None and processes.first():
                (Path(options.output.out) / STATE).unlink(missing_ok=True)
                results.save_dataset(ds, Path(options.output.out) / RESULTS)
            _finish("compare", options, ds)
    return 0 if ds.sizes["algorithm"] == len(algorithms) else INTERRUPTED


def _prepare(options: Any) -> tuple[dict[str, Any], jf.Model]:
    """Return the arguments of a run, and the model, after everything that can be refused before it has been."""
    running = options.running
    if running.target_accuracy is not None:
        checks.numbers("target_accuracy", running.target_accuracy, 0, 1)
    checks.whole("seed", running.seed, 0)
    checks.rounds(running.rounds, running.every)
    refuse(options)
    prepared = horizontal(options)
    make(options.output)
    return prepared


def horizontal(options: Any) -> tuple[dict[str, Any], jf.Model]:
    """Return the arguments of a run, and the model, with jax set up for them."""
    running = options.running
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
        "per_client": True,  # tables and figures show the spread over clients
        "progress": False if options.output.quiet else None,
    }
    return arguments, build.model(options.net, arrays)


def _prepare_vertical(options: Any) -> tuple[Any, dict[str, Any], Any]:
    """Return settled options, the arguments of a vertical run, its algorithm. Writes the schedule if that is wanted."""
    refuse(options)
    options, arguments, algorithm = vertical.prepare(options)
    make(options.output)
    if options.export.export_schedule is not None:
        vertical_schedule.export(options.export.export_schedule, arguments, algorithm)
    return options, arguments, algorithm


def _complete(options: Any, ds: xr.Dataset) -> bool:
    """Return whether a run was not ended early."""
    if hasattr(options, "length"):
        return vertical_schedule.complete(options.length, ds)
    return int(ds["round"][-1] - ds["round"][0]) == options.running.rounds


def refuse(options: Any) -> None:
    """Raise FileExistsError where the folder holds results (without overwrite), NotADirectoryError for a file.

    Results that an earlier call of a command with checkpoints left there may be replaced.
    """
    output: o.Output = options.output
    if output.out is None:
        return
    folder = Path(output.out)
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"out: got {folder}, which is a file; wanted a folder")
    held = [name for name in (RESULTS, STATE, settings.NAME) if (folder / name).exists()]
    if held and not (output.overwrite or long.goes_on(options)):
        raise FileExistsError(f"out: got {folder}, which holds {held[0]} already; wanted another, or --overwrite")


def make(output: o.Output) -> None:
    """Make the folder; ValueError, now rather than after the run, where that can't be done."""
    if output.out is None or not processes.first():
        return
    try:
        Path(output.out).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        checks.fail("out", output.out, f"a folder that can be made ({error.strerror})")
    if not os.access(output.out, os.W_OK):
        checks.fail("out", output.out, "a folder that can be written to")


def _start(options: Any, fixed: dict[str, tuple[str, ...]]) -> jf.Run | None:
    """Return the run to go on from; ValueError where one of the `fixed` options of its groups was another."""
    folder = options.start.continue_from
    if folder is None:
        return None
    earlier = settings.load(folder)[1]
    for group, fields in fixed.items():
        for field in fields if hasattr(options, group) else ():
            got, had = (getattr(getattr(given, group), field) for given in (options, earlier))
            if got != had:
                checks.fail(field, got, f"{had}, as in {folder}")
    return jf.load(folder)


def _finish(command: str, options: Any, ds: xr.Dataset) -> None:
    """Save settings and figure, print the table: the first of several processes does."""
    if not processes.first():
        return
    out = options.output.out
    if out is not None:
        settings.save(command, options, out)
        run_figure(ds).savefig(Path(out) / FIGURE, dpi=150)
    if not options.output.quiet:
        running = options.running
        print(report.title(command, options))
        print(report.table(ds, running.target_accuracy, getattr(running, "target_objective", None)))
        print("not saved: no --out was given" if out is None else f"saved in {out}")
