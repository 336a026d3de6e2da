"""Where the records of a sweep's loads are kept: in memory, or in a folder that outlives a kill."""

import json
import os
from pathlib import Path

import numpy as np
import xarray as xr

from jaxfed import results
from jaxfed.checks import fail
from jaxfed.fingerprint import differences

SETTINGS, RESULTS = "sweep.json", "results.nc"
COMMAND = "settings.json"  # of the command line, which writes it first


class Memory:
    """Records by load, in memory."""

    shape = None

    def __init__(self) -> None:
        self.held: dict[int, dict[str, np.ndarray]] = {}

    def begin(self, shape: tuple) -> None:
        """Nothing to write down."""

    def finished(self) -> None:
        """Return None: nothing is there before it is played."""

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
    """Records by load, each in a NetCDF file of its own, written whole; `results.nc` replaces them at the end.

    shape: how an earlier call cut the lanes into loads, or None. It must stay the same until the end.
    """

    def __init__(self, folder: Path, settings: dict[str, str], shape: list | None):
        self.folder, self.settings, self.shape = folder, settings, shape

    def begin(self, shape: tuple) -> None:
        """Write down what the loads belong to."""
        self.folder.mkdir(parents=True, exist_ok=True)
        temporary = self.folder / (SETTINGS + ".partial")
        temporary.write_text(json.dumps({"settings": self.settings, "shape": shape}, indent=1))
        os.replace(temporary, self.folder / SETTINGS)

    def finished(self) -> xr.Dataset | None:
        """Return the labelled whole, if it is there."""
        path = self.folder / RESULTS
        return results.load_dataset(path) if path.is_file() else None

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


def open(folder: str | os.PathLike, settings: dict[str, str]) -> Folder:
    """Return a folder's loads: a new folder, or one that the same sweep has begun.

    settings: what its numbers depend on, by field path (`fingerprint`). ValueError, with the fields, where the folder
    belongs to a sweep of other settings or to something else.
    """
    folder = Path(folder)
    path = folder / SETTINGS
    if path.is_file():
        had = json.loads(path.read_text())
        if differ := differences(settings, had["settings"]):
            fail(
                "out", f"{folder}, which holds a sweep with {'; '.join(differ)}", "the same settings, or another folder"
            )
        return Folder(folder, settings, had["shape"])
    if folder.exists() and (not folder.is_dir() or any(p.name != COMMAND for p in folder.iterdir())):
        fail("out", folder, "a folder that is empty, new, or holds a sweep of these settings")
    return Folder(folder, settings, None)
