"""Run a sweep: from the options to its axes, and to its files; the same line goes on with what was stopped."""

import dataclasses
from pathlib import Path
from typing import Any

import xarray as xr

from jaxfed import checks, parallel, results, shelf, steps, sweep_results, sweeps
from jaxfed.commands import build, settings, sweep_report, train, vertical
from jaxfed.commands.catalogue import COMMANDS
from jaxfed.commands.figure import sweep_figure
from jaxfed.commands.sweep_options import SWEPT
from jaxfed.commands.train import FIGURE, INTERRUPTED, RESULTS, STATE

GREATEST = ("l2", "read_delay", "message_delay")  # of these one run takes the greatest value

# options that change no result, so a sweep may go on under others
FREE = {"output": ("out", "overwrite", "quiet"), "sweep": ("batch", "memory", "dry_run", "config", "by", "top")}


def sweep(command: str, options: Any) -> int:
    """Run one sweep, or say what it would take, and return the exit status: 0, or 130 after Ctrl-C."""
    name, wanted, folder = command.removeprefix("sweep "), options.sweep, options.output.out
    check(options)
    refuse(command, options)
    if folder is not None and not options.output.overwrite and (Path(folder) / RESULTS).exists():  # all is there
        return _finish(command, options, results.load_dataset(Path(folder) / RESULTS))
    point, axes = split(name, options)
    if name == "vfb2":
        point, arguments, algorithm = vertical.prepare(point)
    else:
        arguments, model = train.horizontal(point)
        algorithm = decaying(build.algorithm(name, point, model), options)
        data = arguments["data"]
        del arguments["per_client"]  # a sweep records every client
        arguments |= {"data": data.train, "test": data.test, "validation": data.validation}
    if wanted.by is not None and "validation" in wanted.by.split("_") and arguments.get("validation") is None:
        checks.fail("by", repr(wanted.by), "a quantity of training rows, or --validation F to set rows aside")
    if arguments.get("mesh") is not None:  # lanes need no exchange, clients would
        arguments["mesh"] = parallel.mesh(client=1, sweep=arguments["mesh"].size)
    arguments |= {"axes": axes, "seeds": wanted.seeds, "batch": wanted.batch, "memory": wanted.memory}
    seed, data = options.running.seed, arguments.pop("data")
    if wanted.dry_run:
        print(sweep_report.title(command, options))
        print(sweeps.estimate(seed, algorithm, data, **arguments))
        return 0
    train.make(options.output)
    if folder is not None:
        if options.output.overwrite:
            clear(Path(folder))
        settings.save(command, options, folder)  # first: the same line must know the folder as its own
    ds = sweeps.sweep(seed, algorithm, data, out=folder, **arguments)
    return _finish(command, options, ds)


def check(options: Any) -> None:
    """Raise ValueError, with the option's name, for what no sweep can have."""
    wanted, running = options.sweep, options.running
    checks.whole("seeds", wanted.seeds, 1)
    checks.whole("seed", running.seed, 0)
    checks.whole("top", wanted.top, 1)
    if wanted.batch is not None:
        checks.whole("batch", wanted.batch, 1)
    if wanted.memory is not None and not wanted.memory > 0:
        checks.fail("memory", f"{wanted.memory:g}", "more than 0 GB")
    if wanted.by is not None:
        results.is_least(wanted.by)
    if hasattr(options, "schedule"):
        for field in ("read_delay", "message_delay"):
            checks.numbers(field, getattr(options.schedule, field), 0, 120)
    if hasattr(running, "rounds"):
        checks.rounds(running.rounds, running.every)


def swept(options: Any) -> dict[str, tuple[str, tuple[float, ...]]]:
    """Return the options that may have several values, as name to (its group, its values)."""
    groups = {f.name: getattr(options, f.name) for f in dataclasses.fields(options)}
    return {name: (g, getattr(group, name)) for name in SWEPT for g, group in groups.items() if hasattr(group, name)}


def split(name: str, options: Any) -> tuple[Any, dict[str, list[float]]]:
    """Return the options of one run, with the first value of each, and the axes: field path to values.

    Of l2 and delays it has the greatest: a vertical sweep without an lr gets that of the largest l2, for all points
    alike, and a scheduler's bound must hold every delay.
    """
    axes: dict[str, list[float]] = {}
    first: dict[str, dict[str, Any]] = {}
    path_of = {"l2": "objective.l2" if name == "vfb2" else "model.l2", "lr_decay": "lr.rate",
               "read_delay": "scheduler.read", "message_delay": "scheduler.message"}  # fmt: skip
    if _decays(options):
        path_of["lr"] = "lr.value"
    for field, (group, values) in swept(options).items():
        default = next(f.default for f in dataclasses.fields(getattr(options, group)) if f.name == field)
        if not values and default:
            checks.fail(field, "nothing", "at least one number")
        twice = [value for i, value in enumerate(values) if value in values[:i]]
        if twice:
            checks.fail(field, f"{twice[0]:g} twice", "each value once")
        taken = max(values) if field in GREATEST else values[0] if values else None
        first.setdefault(group, {})[field] = taken
        if len(values) > 1:
            axes[path_of.get(field, field)] = list(values)
    groups = {}
    for f in dataclasses.fields(COMMANDS[name]):
        if dataclasses.is_dataclass(f.type) and hasattr(options, f.name):
            given = {k.name: getattr(getattr(options, f.name), k.name) for k in dataclasses.fields(f.type)
                     if hasattr(getattr(options, f.name), k.name)}  # fmt: skip
            groups[f.name] = f.type(**given | first.get(f.name, {}))  # pyright: ignore[reportCallIssue]
    return COMMANDS[name](**groups), axes


def decaying(algorithm: Any, options: Any) -> Any:
    """Return the algorithm with a schedule as its lr, where some point's decays: all points have one form."""
    if not _decays(options) or not hasattr(options, "local"):
        return algorithm
    local = options.local
    checks.numbers("lr_decay", local.lr_decay, 0)
    return algorithm.replace(lr=steps.ExponentialDecay(local.lr[0], local.lr_decay[0]))


def _decays(options: Any) -> bool:
    return any(decay != 1 for decay in getattr(getattr(options, "local", None), "lr_decay", ()))


def refuse(command: str, options: Any) -> None:
    """Raise ValueError or FileExistsError where the folder holds anything but this sweep (without overwrite)."""
    output = options.output
    if output.out is None or output.overwrite or not (Path(output.out) / settings.NAME).exists():
        train.refuse(options)
        return
    had, earlier = settings.load(output.out)
    if had != command:
        checks.fail("out", f"{output.out}, which holds a run of {had!r}", "another, or --overwrite")
    differing = []
    for f in dataclasses.fields(options):
        one, other = getattr(earlier, f.name), getattr(options, f.name)
        for k in dataclasses.fields(one):
            was, now = getattr(one, k.name), getattr(other, k.name)
            if k.name not in FREE.get(f.name, ()) and was != now:
                differing.append(f"{k.name} {was} in place of {now}")
    if differing:
        checks.fail("out", f"{output.out}, whose sweep has {', '.join(differing)}", "the same, another, or --overwrite")


def clear(folder: Path) -> None:
    """Remove the files of an earlier sweep or run from a folder."""
    for name in (RESULTS, STATE, settings.NAME, FIGURE, shelf.SETTINGS):
        (folder / name).unlink(missing_ok=True)
    for path in folder.glob("load-*.nc"):
        path.unlink()


def _finish(command: str, options: Any, ds: xr.Dataset) -> int:
    """Save results and figure, print the table, return the exit status. An unfinished sweep's table is only printed."""
    out, wanted = options.output.out, options.sweep
    finished = bool(sweep_results.was_run(ds).all())
    if out is not None and finished:
        results.save_dataset(ds, Path(out) / RESULTS)
    if not options.output.quiet:
        print(sweep_report.title(command, options))
        print(sweep_report.table(ds, wanted.by, wanted.top))
        kept = f"saved in {out}" if finished else f"what is finished is kept in {out}: the same line goes on"
        print("not saved: no --out was given" if out is None else kept)
    if out is not None and finished:
        sweep_figure(ds, wanted.by).savefig(Path(out) / FIGURE, dpi=150)
    return 0 if finished else INTERRUPTED


def show(folder: str, ds: xr.Dataset, by: str | None, top: int | None) -> int:
    """Print a saved sweep's table again, draw its figure anew, and return 0. One saved from Python has no title."""
    if (Path(folder) / settings.NAME).is_file():
        command, ran = settings.load(folder)
        by, top = ran.sweep.by if by is None else by, ran.sweep.top if top is None else top
        print(sweep_report.title(command, ran))
    print(sweep_report.table(ds, by, 10 if top is None else top))
    sweep_figure(ds, by).savefig(Path(folder) / FIGURE, dpi=150)
    return 0
