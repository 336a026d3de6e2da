"""Where the records of a sweep's loads are kept: in memory, or in a folder that outlives a kill."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from jaxfed import results
from jaxfed.checks import fail

SETTINGS, RESULTS = "sweep.json", "results.nc"


class Memory:
    """Records by load, in memory."""

    def __init__(self) -> None:
        self.held: dict[int, dict[str, np.ndarray]] = {}

    def __contains__(self, i: int) -> bool:
        return i in self.held

    def put(self, i: int, records: dict[str, np.ndarray]) -> None:
        """Keep the records of load i."""
        self.held[i] = records

    def get(self, i: int) -> dict[str, np.ndarray]:
        """Return them."""
        return self.held[i]

    def finish(self, ds: xr.Dataset) -> None:
        """All loads are there, labelled."""


class Folder:
    """Records by load, each in a NetCDF file of its own, written whole; `results.nc` replaces them at the end."""

    def __init__(self, folder: Path):
        self.folder = folder

    def _path(self, i: int) -> Path:
        return self.folder / f"load-{i:05d}.nc"

    def __contains__(self, i: int) -> bool:
        return self._path(i).exists()

    def put(self, i: int, records: dict[str, np.ndarray]) -> None:
        """Write the records of load i [lanes, record, ...]."""
        dims = {k: ("lane", "record", *(f"{k}_{j}" for j in range(v.ndim - 2))) for k, v in records.items()}
        results.save_dataset(xr.Dataset({k: (dims[k], v) for k, v in records.items()}), self._path(i))

    def get(self, i: int) -> dict[str, np.ndarray]:
        """Read them."""
        return {str(k): v.values for k, v in results.load_dataset(self._path(i)).items()}

    def finish(self, ds: xr.Dataset) -> None:
        """Write the labelled whole, then drop the loads."""
        results.save_dataset(ds, self.folder / RESULTS)
        for path in self.folder.glob("load-*.nc"):
            path.unlink()


def open(folder: str | os.PathLike, settings: dict[str, Any]) -> Folder:
    """Return a folder's loads: a new folder, or one that the same sweep has begun.

    ValueError, with the fields, where it belongs to a sweep of other settings.
    """
    folder = Path(folder)
    path = folder / SETTINGS
    settings = json.loads(json.dumps(settings, default=str))
    if path.is_file():
        had = json.loads(path.read_text())
        for name in sorted(set(had) | set(settings)):
            if had.get(name) != settings.get(name):
                fail("out", f"{folder}, which holds a sweep with {name} {had.get(name)!r}",
                     f"{settings.get(name)!r}, or another folder")  # fmt: skip
        return Folder(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        fail("out", folder, "a folder that is empty, new, or holds a sweep of these settings")
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / (SETTINGS + ".partial")
    temporary.write_text(json.dumps(settings, indent=1))
    os.replace(temporary, path)
    return Folder(folder)
