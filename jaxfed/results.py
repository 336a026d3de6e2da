"""Results as labelled arrays: from records to an xarray.Dataset, saving, and the summaries people report.

Means come in two kinds, never under one name: over clients (each counts once) and over examples (each row counts once).
All figures leave out clients without rows of the part, and nobody else: a client that diverged makes them nan.

A run of very many clients records these figures instead (`horizontal.summaries`): `summary`, `best_round` and
`rounds_to` take such a Dataset too; the functions of one array [client] don't, and say so.
"""

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from jaxfed.checks import fail
from jaxfed.sweep_results import best_point as best_point
from jaxfed.sweep_results import best_table as best_table
from jaxfed.sweep_results import criterion as criterion
from jaxfed.sweep_results import is_least as is_least
from jaxfed.sweep_results import lane_values as lane_values
from jaxfed.sweep_results import of_test_rows as of_test_rows
from jaxfed.sweep_results import scalars as scalars
from jaxfed.sweep_results import shown_quantities as shown_quantities
from jaxfed.sweep_results import sweep_axes as sweep_axes
from jaxfed.sweep_results import to_frame as to_frame

Records = list[dict[str, np.ndarray]]


def to_dataset(
    records: Records, rounds: list[int], dims: dict[str, tuple[str, ...]], coords: dict[str, Any], attrs: dict[str, Any]
) -> xr.Dataset:
    """Return a Dataset with dimension `round` from one record for each of `rounds`.

    `dims` names the axes of each array after the round (none for those not named). A quantity that a record lacks (the
    info of a round before the first) is nan there.
    """
    names = list(dict.fromkeys(name for record in records for name in record))
    variables = {}
    for name in names:
        like = next(np.asarray(record[name]) for record in records if name in record)
        missing = np.full(like.shape, np.nan)
        values = np.stack([np.asarray(record.get(name, missing)) for record in records])
        variables[name] = (("round", *dims.get(name, ())), values)
    time = variables.pop("time")
    return xr.Dataset(variables, {"round": np.asarray(rounds), "time": time, **coords}, attrs)


def filled(values: xr.DataArray, size: xr.DataArray | None = None) -> xr.DataArray:
    """Return the values of the clients that have rows of the part in the name; all where the name tells no part.

    Raises ValueError for values without clients.
    """
    if "client" not in values.dims:
        fail("values", f"{values.name!r} with dims {values.dims}", 'an array with dim "client" (run(per_client=True))')
    name = f"{'_'.join(str(values.name).split('_')[1:2])}_size"
    size = values.coords.get(name) if size is None else size
    return values if size is None else values.isel(client=np.flatnonzero(np.asarray(size) > 0))


def mean_over_clients(values: xr.DataArray) -> xr.DataArray:
    """Return the mean in which each client with rows counts once."""
    return filled(values).mean("client", skipna=False)


def mean_over_examples(values: xr.DataArray, size: xr.DataArray | None = None) -> xr.DataArray:
    """Return the mean in which each row counts once; `size` [client] defaults to that of the part in the name."""
    size = values[f"{str(values.name).split('_')[1]}_size"] if size is None else size
    values = filled(values, size)
    return values.weighted(size.sel(client=values["client"])).mean("client", skipna=False)


def decile(values: xr.DataArray, which: int = 1) -> xr.DataArray:
    """Return the boundary of the `which`-th tenth of clients, counted from the lowest value."""
    return filled(values).quantile(which / 10, "client", skipna=False).drop_vars("quantile")


def worst(values: xr.DataArray) -> xr.DataArray:
    """Return the worst client's value: the least accuracy, or the greatest loss."""
    values = filled(values)
    reduce = values.max if str(values.name).endswith("loss") else values.min
    return reduce("client", skipna=False)


def spread(values: xr.DataArray) -> xr.DataArray:
    """Return the standard deviation over clients, each counted once."""
    return filled(values).std("client", skipna=False)


def summary(ds: xr.Dataset, part: str | None = None, model: str = "personal", round: int = -1) -> dict[str, float]:
    """Return one record's figures (the last by default) of a model's accuracy on a part (the loss of a regression).

    `part`: "test" where there are test rows, else "train". Raises ValueError for what was not recorded.
    """
    if part is None:
        part = "test" if any(f"{model}_test_loss{end}" in ds for end in ("", "_mean_over_clients")) else "train"
    names = [f"{model}_{part}_accuracy", f"{model}_{part}_loss"]
    name = next((name for name in names if name in ds or f"{name}_mean_over_clients" in ds), names[1])
    if name not in ds and f"{name}_mean_over_clients" in ds:
        return _summarised(ds, name, round)
    if name not in ds:
        held = sorted(map(str, ds.data_vars))
        raise ValueError(f"part, model: got {part!r}, {model!r}, wanted those of one of {held}")
    values, loss = ds[name].isel(round=round), name.endswith("loss")
    out = {
        "mean_over_clients": mean_over_clients(values),
        "mean_over_examples": mean_over_examples(values),
        "spread": spread(values),
        "worst_decile": decile(values, 9 if loss else 1),
        "worst_client": worst(values),
    }
    return {key: float(value) for key, value in out.items()}


def _summarised(ds: xr.Dataset, name: str, round: int) -> dict[str, float]:
    """Return `summary`'s figures from the summaries that were recorded."""
    last = ds.isel(round=round)
    tenth = last[f"{name}_deciles"].sel(decile=9 if name.endswith("loss") else 1)
    whole = ("mean_over_clients", "mean_over_examples", "spread", "worst_client")
    found = {key: float(last[f"{name}_{key}"]) for key in whole} | {"worst_decile": float(tenth)}
    return {key: found[key] for key in (*whole[:3], "worst_decile", "worst_client")}


def mean_of(ds: xr.Dataset, name: str) -> xr.DataArray:
    """Return the mean over clients of a variable, whether each client was recorded or only this mean."""
    mean = f"{name}_mean_over_clients"
    return ds[mean] if name not in ds and mean in ds else mean_over_clients(ds[name])


def best_round(ds: xr.Dataset, by: str = "personal_validation_accuracy") -> int:
    """Return the recorded round whose mean over clients of `by` is best (greatest, or least for a loss).

    Raises ValueError for a quantity that was not recorded, and for one of the test rows: choosing by those makes them
    training rows.
    """
    if "_test_" in by:
        raise ValueError(f"by: got {by!r}, wanted a quantity of validation or training rows, never of test rows")
    if by not in ds and f"{by}_mean_over_clients" not in ds:
        raise ValueError(f"by: got {by!r}, wanted one of {sorted(map(str, ds.data_vars))}")
    values = mean_of(ds, by)
    if values.isnull().all():
        raise ValueError(f"by: got {by!r}, which is nan in every record, wanted a run that did not diverge")
    return int((values.idxmin("round") if by.endswith("loss") else values.idxmax("round")).item())


def rounds_to(ds: xr.Dataset, accuracy: float, by: str = "personal_test_accuracy") -> int | None:
    """Return the first recorded round whose mean over clients of `by` reaches `accuracy`, or None if none does."""
    reached = ds["round"].values[mean_of(ds, by).values >= accuracy]
    return int(reached[0]) if len(reached) else None


def bytes_sent(ds: xr.Dataset) -> xr.DataArray:
    """Return the bytes sent until each record, both ways together: visits times what a visit moves."""
    each = ds.coords["bytes_per_visit"] if "bytes_per_visit" in ds.coords else ds.attrs["bytes_per_visit"]
    return (ds["visits"].astype(float) * each).rename("bytes_sent")


def save_dataset(ds: xr.Dataset, path: str | os.PathLike) -> None:
    """Write a Dataset as NetCDF beside `path`, then rename: a kill leaves the old file or the new one, never half."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".partial")
    os.close(handle)
    try:
        ds.to_netcdf(temporary, engine="h5netcdf")
        share(temporary)
        os.replace(temporary, path)
    finally:
        Path(temporary).unlink(missing_ok=True)


def share(path: str | os.PathLike) -> None:
    """Give a temporary file, made for its owner alone, the permissions that a new file has."""
    mask = os.umask(0)
    os.umask(mask)
    os.chmod(path, 0o666 & ~mask)


def load_dataset(path: str | os.PathLike) -> xr.Dataset:
    """Read a Dataset whole. Raises FileNotFoundError where there is none."""
    if not Path(path).is_file():
        raise FileNotFoundError(f"path: got {path}, wanted a NetCDF file written by save")
    try:
        with xr.open_dataset(path, engine="h5netcdf") as ds:
            return ds.load()
    except OSError as error:
        raise ValueError(f"path: got {path}, wanted a NetCDF file written by save ({error})") from error
