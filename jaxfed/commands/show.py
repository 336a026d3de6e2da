"""Print the table of a saved run, comparison or sweep again, and draw its figure anew."""

from pathlib import Path

import xarray as xr

from jaxfed import checks, results
from jaxfed.commands import report, settings
from jaxfed.commands.catalogue import Show
from jaxfed.commands.figure import run_figure
from jaxfed.commands.train import FIGURE, RESULTS


def show(options: Show) -> int:
    """Print the table and return 0. Raises FileNotFoundError for a folder that holds no results."""
    if (Path(options.folder) / RESULTS).is_file() and "sweep" in (ds := _results(options)).attrs:
        from jaxfed.commands import sweep

        for field in ("target_accuracy", "target_objective"):
            if (given := getattr(options, field)) is not None:
                checks.fail(field, given, "none for a sweep")
        return sweep.show(options.folder, ds, options.by, options.top)
    command, ran = settings.load(options.folder)
    if command.startswith("sweep"):
        raise FileNotFoundError(f"folder: got {options.folder}, whose sweep is not finished; wanted one that is")
    for field in ("by", "top"):
        if (given := getattr(options, field)) is not None:
            checks.fail(field, given, f"none for a run of {command!r}")
    targets = {}
    for field in ("target_accuracy", "target_objective"):
        given = getattr(options, field)
        targets[field] = getattr(ran.running, field, None) if given is None else given
    if targets["target_accuracy"] is not None:
        checks.numbers("target_accuracy", targets["target_accuracy"], 0, 1)
    ds = _results(options)
    if targets["target_objective"] is not None and command != "vfb2":
        checks.fail("target_objective", targets["target_objective"], f"none for a run of {command!r}")
    print(report.title(command, ran))
    print(report.table(ds, **targets))
    run_figure(ds).savefig(Path(options.folder) / FIGURE, dpi=150)
    return 0


def _results(options: Show) -> xr.Dataset:
    return results.load_dataset(Path(options.folder) / RESULTS)
