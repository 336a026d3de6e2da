"""A sweep after it is played: the records of its loads as one labelled Dataset."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from jaxfed.loads import Block
from jaxfed.sweep_setup import Sweep


def label(whole: Sweep, found: Sequence[tuple[Block, dict[str, np.ndarray]]]) -> xr.Dataset:
    """Return the Dataset of the loads that are there: dims (axes..., seed, round, ...)."""
    job, tables, stops = whole.job, whole.timetables, whole.timetables[0].stops
    grid = tuple(len(axis.values) for axis in whole.axes)
    outer = (*(axis.dim for axis in whole.axes), "seed")
    variables: dict[str, Any] = {}
    missing = np.ones((job.num_points, job.num_seeds), bool)
    for name in found[0][1]:
        like = found[0][1][name]
        full = np.empty((job.num_points, job.num_seeds, *like.shape[1:]), like.dtype)
        for block, records in found:
            at = block.seeds[:, :, None], block.points[:, None, :]
            full[at[1], at[0]] = records[name].reshape(*np.broadcast_shapes(at[0].shape, at[1].shape), *like.shape[1:])
            missing[at[1], at[0]] = False
        if missing.any():
            full = full.astype(np.result_type(full, np.float32))
            full[missing] = np.nan
        axes = ("round", *whole.shown.get(name, ()))
        if "client" in axes:
            full = np.take(full, np.arange(whole.data.train.num_clients), 2 + axes.index("client"))
        variables[name] = ((*outer, *axes), full.reshape(*grid, *full.shape[1:]))
    columns = [[table.columns(stop) for stop in stops] for table in tables]
    for name in columns[0][0]:
        value = np.array([[record[name] for record in rows] for rows in columns])[:, None]
        value = np.broadcast_to(value, (job.num_points, job.num_seeds, len(stops)))
        variables[name] = ((*outer, "round"), value.reshape(*grid, *value.shape[1:]))
    time = variables.pop("time")
    alike = np.asarray(time[1]).reshape(-1, len(stops))
    same = (alike == alike[0])[~np.isnan(alike).any(1)].all() and not np.isnan(alike[0]).any()
    coords = whole.coords | {"seed": whole.seeds, "round": tables[0].rounds}
    coords["time"] = ("round", alike[0]) if same else time
    ds = xr.Dataset(variables, coords, whole.attrs)
    if whole.run_seeds is not None:
        ds["run_seed"] = (outer, whole.run_seeds.reshape(*grid, job.num_seeds))
    return ds


def warn_if_diverged(whole: Sweep, ds: xr.Dataset) -> None:
    """Warn of lanes that are not finite at their end."""
    last = np.asarray(ds["finite"].isel(round=-1).values, float)
    if count := int((last == 0).sum()):
        warnings.warn(f"diverged: {count} of {last.size} lanes are not finite at the end (see `finite`); "
                      f"{whole.advice()}", stacklevel=3)  # fmt: skip
