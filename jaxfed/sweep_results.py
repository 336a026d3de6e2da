"""What a sweep's Dataset says: its axes, its best settings, a table of them, everything as one long frame.

`results` has these functions too. A sweep has dims (its axes..., seed, round[, client]); attrs["sweep"] is JSON, a list
of [dimension, [paths]]: the field paths whose values an axis's coordinates hold. Lanes of a sweep that was ended early
are nan, `finite` too.
"""

import json
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

from jaxfed import checks

MEAN = "_mean_over_clients"
GREATEST, LEAST = ("accuracy", "auc"), ("loss", "rmse", "objective", "norm")
HORIZONTAL = [f"personal_{p}_{kind}" for p in ("validation", "train") for kind in ("accuracy", "loss")]
VERTICAL = ["validation_accuracy", "validation_rmse", "objective"]
PENALISED = ["validation_accuracy", "validation_rmse", "train_accuracy", "train_rmse"]  # where the objective changes


class Best(NamedTuple):
    """The best point of a sweep: `ds.isel(best.index)` is it.

    index: dimension to position. values: field path to value. by: what it is best by. score: that, the mean over
    clients (where it has them) and seeds.
    """

    index: dict[str, int]
    values: dict[str, Any]
    by: str
    score: float


def sweep_axes(ds: xr.Dataset) -> dict[str, list[str]]:
    """Return dimension to field paths of a sweep's axes; ValueError for the Dataset of anything else."""
    if "sweep" not in ds.attrs:
        checks.fail("ds", f"the dims {', '.join(map(str, ds.dims))}", "the Dataset of a sweep")
    return {dim: list(paths) for dim, paths in json.loads(ds.attrs["sweep"])}


def axis_values(ds: xr.Dataset, dim: str, paths: list[str]) -> dict[str, list[Any]]:
    """Return path to values, one for each position on an axis."""
    return {path: ds[path if path in ds.coords else dim].values.tolist() for path in paths}


def scalars(ds: xr.Dataset) -> xr.Dataset:
    """Return the variables with one number a record, and of those with one a client the mean over clients.

    Such a mean is named `{name}_mean_over_clients`; as in `results.mean_over_clients` each client with rows counts
    once, and one that diverged makes it nan. Variables of other dimensions (parties, say) are left out.
    """
    outer = {*(sweep_axes(ds) if "sweep" in ds.attrs else ()), "algorithm", "seed", "round"}
    variables = {}
    for name, values in ds.data_vars.items():
        if {*values.dims} - {"client"} <= outer:
            variables[f"{name}{MEAN}" if "client" in values.dims else str(name)] = client_mean(values)
    inner = [name for name, coord in ds.coords.items() if not {*coord.dims} <= outer]
    return xr.Dataset({k: v.drop_vars(inner, errors="ignore") for k, v in variables.items()}, attrs=ds.attrs)


def client_mean(values: xr.DataArray) -> xr.DataArray:
    """Return the mean over clients with rows where there are clients; an axis of data sets may be among the dims."""
    if "client" not in values.dims:
        return values
    size = values.coords.get(f"{'_'.join(str(values.name).split('_')[1:2])}_size")
    if size is None:
        return values.astype(float).mean("client", skipna=False)
    has = size > 0
    return (values.astype(float).where(has, 0.0).sum("client", skipna=False) / has.sum("client")).rename(values.name)


def criterion(ds: xr.Dataset) -> str:
    """Return what a sweep's points are compared by where nothing is said: never test rows.

    Validation rows where there are some, else training rows: the accuracy (the loss of a regression). A vertical sweep
    without validation rows: the objective; where l2 is an axis, each value has its own objective, so the training rows'
    accuracy (or root mean squared error).
    """
    found = scalars(ds)
    penalised = any(path.endswith("l2") for paths in sweep_axes(ds).values() for path in paths)
    names = (PENALISED if penalised else VERTICAL) if "objective" in ds else HORIZONTAL
    for name in names:
        if name in found or f"{name}{MEAN}" in found:
            return name
    checks.fail("ds", f"none of {', '.join(names)}", "one of them recorded, or `by`")


def of_test_rows(by: str) -> bool:
    """Return whether a quantity is one of test rows."""
    return "test" in by.split("_")


def is_least(by: str) -> bool:
    """Return whether less of a quantity is better; ValueError where that can't be told from its name."""
    kind = by.removesuffix(MEAN).rpartition("_")[2]
    if kind not in (*GREATEST, *LEAST):
        checks.fail("by", repr(by), f"a quantity whose name ends in one of {', '.join((*GREATEST, *LEAST))}")
    return kind in LEAST


def lane_values(ds: xr.Dataset, name: str, round: int = -1) -> xr.DataArray:
    """Return a quantity (the mean over clients of one that has them) of every lane, [axes..., seed], in one record.

    nan where the lane is not finite any more: an accuracy looks like a number even then. `round`: position of the
    record (-1: the last).
    """
    found = scalars(ds)
    held = found.get(name, found.get(f"{name}{MEAN}"))
    if held is None:
        checks.one_of("by", name, [str(k).removesuffix(MEAN) for k in found.data_vars])
        raise AssertionError
    values = held.isel(round=round).astype(float)
    values = values.where(found["finite"].isel(round=round).astype(bool)) if "finite" in found else values
    return _whole(ds, values).rename(name)


def was_run(ds: xr.Dataset) -> xr.DataArray:
    """Return which lanes, [axes..., seed], were run, rather than left out because the sweep was ended early."""
    return _whole(ds, ds["finite"].isel(round=-1).notnull())


def _whole(ds: xr.Dataset, values: xr.DataArray) -> xr.DataArray:
    """Return values of lanes with all axes of the sweep and a seed, in order."""
    lacking = {dim: ds.sizes.get(dim, 1) for dim in (*sweep_axes(ds), "seed") if dim not in values.dims}
    return values.expand_dims(lacking).transpose(*sweep_axes(ds), "seed")


def best_table(
    ds: xr.Dataset, by: str | None = None, *, allow_test: bool = False, round: int = -1, top: int | None = None
) -> pd.DataFrame:
    """Return a row for each point of a sweep, the best first; all figures are means over clients and then over seeds.

    Columns: each field path; `by`, and `{by}_std` over seeds (nan of one seed); the same of the test quantities that
    there are; `seeds`; `unfinished`, how many of them were not run; `diverged`, how many are not finite. A point with
    one of these has no mean (nan) and comes last, in the order of the axes. `by` is as in `best_point`, `round` the
    position of the record; `top`: only so many rows.
    """
    if top is not None:
        checks.whole("top", top, 1)
    by = _chosen(ds, by, allow_test)
    axes = sweep_axes(ds)
    columns: dict[str, Any] = {}
    shape = tuple(ds.sizes[dim] for dim in axes)
    where = np.indices(shape).reshape(len(shape), int(np.prod(shape)))
    for place, (dim, paths) in zip(where, axes.items(), strict=True):
        columns |= {path: [values[i] for i in place] for path, values in axis_values(ds, dim, paths).items()}
    lanes = lane_values(ds, by, round)
    for name in dict.fromkeys((by, *shown_quantities(ds))):
        values = lane_values(ds, name, round).values.reshape(-1, lanes.sizes["seed"])
        columns[name] = values.mean(1)
        columns[f"{name}_std"] = values.std(1, ddof=1) if values.shape[1] > 1 else np.full(len(values), np.nan)
    gone = lanes.isnull().values.reshape(-1, lanes.sizes["seed"])
    missing = gone & (~was_run(ds).values.reshape(gone.shape) if "finite" in ds else False)
    counts = {"unfinished": missing.sum(1), "diverged": (gone & ~missing).sum(1)}
    frame = pd.DataFrame(columns | {"seeds": lanes.sizes["seed"]} | counts)
    frame = frame.sort_values(by, ascending=is_least(by), kind="stable", na_position="last")
    return frame if top is None else frame.head(top)


def best_point(ds: xr.Dataset, by: str | None = None, *, allow_test: bool = False, round: int = -1) -> Best:
    """Return the point of a sweep whose mean over seeds of `by` is best (greatest, or least for a loss), as a `Best`.

    Args:
      by: a quantity, with the mean over clients of one that has them. Default: `criterion`.
      allow_test: let `by` be of test rows. Choosing by those makes them training rows, so it is refused otherwise.
      round: position of the record (-1: the last).

    A point with a seed that diverged is never the best. Raises ValueError where all have one, and for other Datasets.
    """
    by = _chosen(ds, by, allow_test)
    first = best_table(ds, by, allow_test=allow_test, round=round).iloc[0]
    if np.isnan(first[by]):
        checks.fail("by", repr(by), "at least one point that is finite with all seeds: every one diverged")
    axes = sweep_axes(ds)
    shape = tuple(ds.sizes[dim] for dim in axes)
    index = dict(zip(axes, map(int, np.unravel_index(int(first.name), shape)), strict=True)) if axes else {}
    values = {p: v[index[dim]] for dim, paths in axes.items() for p, v in axis_values(ds, dim, paths).items()}
    return Best(index, values, by, float(first[by]))


def shown_quantities(ds: xr.Dataset) -> list[str]:
    """Return the quantities of test rows that a table shows: accuracy where there is one, else the loss."""
    kind = "accuracy" if "personal_test_accuracy" in ds or f"personal_test_accuracy{MEAN}" in ds else "loss"
    names = [f"personal_test_{kind}", f"server_test_{kind}", "test_accuracy", "test_auc", "test_rmse"]
    return [name for name in names if name in ds or f"{name}{MEAN}" in ds]


def to_frame(ds: xr.Dataset) -> pd.DataFrame:
    """Return a run's, comparison's or sweep's `scalars` as a long frame: a row for each lane and record.

    Columns: the axes' values by field path, algorithm, seed, round, time (simulated seconds), then the quantities.
    """
    axes = sweep_axes(ds) if "sweep" in ds.attrs else {}
    found = scalars(ds)
    dims = [dim for dim in (*axes, "algorithm", "seed", "round") if dim in found.dims]
    frame = found.to_dataframe(dim_order=dims).reset_index()
    paths = [path for dim, some in axes.items() for path in (some if some[0] in frame else [dim])]
    labels = [n for n in (*paths, "algorithm", "seed", "round", "time") if n in frame]
    places = [dim for dim in axes if dim not in paths and dim not in ds.coords]  # numbers of points that have values
    return frame.reindex(columns=[*labels, *(name for name in frame if name not in (*labels, *places))])


def _chosen(ds: xr.Dataset, by: str | None, allow_test: bool) -> str:
    """Return the quantity to choose by, after every check of it."""
    by = criterion(ds) if by is None else by
    if of_test_rows(by) and not allow_test:
        checks.fail("by", repr(by), "a quantity of validation or training rows, or allow_test=True: never silently")
    is_least(by)
    return by
