"""Print the table of a saved run or comparison again, and draw its figure anew."""

from pathlib import Path

from jaxfed import checks, results
from jaxfed.commands import report, settings
from jaxfed.commands.catalogue import Show
from jaxfed.commands.figure import run_figure
from jaxfed.commands.train import FIGURE, RESULTS


def show(options: Show) -> int:
    """Print the table and return 0. Raises FileNotFoundError for a folder that holds no results."""
    command, ran = settings.load(options.folder)
    targets = {}
    for field in ("target_accuracy", "target_objective"):
        given = getattr(options, field)
        targets[field] = getattr(ran.running, field, None) if given is None else given
    if targets["target_accuracy"] is not None:
        checks.numbers("target_accuracy", targets["target_accuracy"], 0, 1)
    ds = results.load_dataset(Path(options.folder) / RESULTS)
    if targets["target_objective"] is not None and command != "vfb2":
        checks.fail("target_objective", targets["target_objective"], f"none for a run of {command!r}")
    print(report.title(command, ran))
    print(report.table(ds, **targets))
    run_figure(ds).savefig(Path(options.folder) / FIGURE, dpi=150)
    return 0
