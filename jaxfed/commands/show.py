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
    target = ran.running.target_accuracy if options.target_accuracy is None else options.target_accuracy
    if target is not None:
        checks.numbers("target_accuracy", target, 0, 1)
    ds = results.load_dataset(Path(options.folder) / RESULTS)
    print(report.title(command, ran))
    print(report.table(ds, target))
    run_figure(ds).savefig(Path(options.folder) / FIGURE, dpi=150)
    return 0
