"""Write a saved run, comparison or sweep as comma-separated values."""

import os
import sys
import tempfile
from pathlib import Path

from jaxfed import checks, results
from jaxfed.commands.catalogue import ExportResults
from jaxfed.commands.train import RESULTS


def export(options: ExportResults) -> int:
    """Write `results.to_frame` and return 0; a kill leaves no half of a file.

    Raises FileNotFoundError for a folder without results, FileExistsError for a file that is there (no overwrite).
    """
    file = options.csv
    if file is not None and not Path(file).resolve().parent.is_dir():
        checks.fail("csv", file, "a file in a folder that is there")
    if file is not None and Path(file).is_dir():
        checks.fail("csv", file, "a file, not a folder")
    if file is not None and Path(file).exists() and not options.overwrite:
        raise FileExistsError(f"csv: got {file}, which is there already; wanted another, or --overwrite")
    path = Path(options.folder) / RESULTS
    if not path.is_file():
        raise FileNotFoundError(f"folder: got {options.folder}, wanted a folder with finished results ({RESULTS})")
    frame = results.to_frame(results.load_dataset(path))
    if file is None:
        frame.to_csv(sys.stdout, index=False)
        return 0
    handle, temporary = tempfile.mkstemp(dir=Path(file).resolve().parent, suffix=".partial")
    try:
        with os.fdopen(handle, "w", newline="") as opened:
            frame.to_csv(opened, index=False)
        results.share(temporary)
        os.replace(temporary, file)
    finally:
        Path(temporary).unlink(missing_ok=True)
    print(f"{len(frame):,} rows of {len(frame.columns)} columns in {file}")
    return 0
