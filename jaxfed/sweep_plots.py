"""Figures of sweeps: a quantity over two axes as a map, and along one axis as curves with a band over seeds."""

from typing import Any

import numpy as np
import xarray as xr

from jaxfed import checks, drawing
from jaxfed.sweep_results import axis_values, is_least, lane_values, sweep_axes

SAID = {"lr.value": "lr", "lr.rate": "lr decay", "scheduler.read": "read delay", "scheduler.message": "message delay"}
LABELLED = 12  # most cells along a side of a map whose cells are labelled


def heat_map(da: xr.DataArray, x: str, y: str, ax: Any = None, *, best: str | None = None) -> Any:
    """Draw a quantity over two dimensions of a sweep, one cell for each pair of values, whatever their distances.

    Means are taken over clients and seeds (of a sweep: `results.scalars` first); any other dimension must be chosen
    first (`da.isel(round=-1)`). Few cells are labelled with their values; cells without one (all nan: diverged) are
    grey. `best`: frame the "greatest" or the "least". Raises ValueError for dims that are lacking or left over.
    """
    if best is not None:
        checks.one_of("best", best, ("greatest", "least"))
    da = da.mean([dim for dim in ("client", "seed") if dim in da.dims and dim not in (x, y)], keep_attrs=True)
    if set(da.dims) != {x, y}:
        checks.fail("da", f"dims {da.dims}", f"{x!r} and {y!r}, besides client and seed")
    values = da.transpose(y, x).values
    ax = drawing.axes(ax, (1.8 + 0.62 * min(values.shape[1], 12), 1.3 + 0.42 * min(values.shape[0], 12)))
    ax.set_facecolor("0.8")
    shown = ax.imshow(values, aspect="auto", origin="lower", cmap="cividis")
    for which, dim in (("x", x), ("y", y)):
        ticks = range(0, da.sizes[dim], -(-da.sizes[dim] // (2 * LABELLED)))
        getattr(ax, f"set_{which}ticks")(ticks, [drawing.short(da[dim].values[i]) for i in ticks])
    ax.set(xlabel=axis_name(x), ylabel=axis_name(y))
    bar = ax.figure.colorbar(shown, ax=ax, label=drawing.words(str(da.name)) if da.name else None, pad=0.02)
    bar.outline.set_visible(False)
    if max(values.shape) <= LABELLED:
        _label_cells(ax, values)
    finite = values[np.isfinite(values)]
    if best is not None and finite.size:
        target = finite.max() if best == "greatest" else finite.min()
        j, i = np.argwhere(values == target)[0]
        from matplotlib.patches import Rectangle

        frame = Rectangle((i - 0.47, j - 0.47), 0.94, 0.94, fill=False, edgecolor="#D55E00", linewidth=2.5)
        ax.add_patch(frame)
    return ax


def _label_cells(ax: Any, values: np.ndarray) -> None:
    """Write into each cell its value, with three digits of the largest, or that it diverged."""
    some = np.isfinite(values).any()
    low, high = (np.nanmin(values), np.nanmax(values)) if some else (0.0, 0.0)
    digits = int(np.clip(2 - np.floor(np.log10(max(abs(low), abs(high)) or 1)), 0, 6))
    for (j, i), v in np.ndenumerate(values):
        text = f"{v:.{digits}f}" if np.isfinite(v) else "nan"
        color = "w" if v < (low + high) / 2 else "k"
        ax.text(i, j, text, ha="center", va="center", fontsize=8, color=color)


def along(
    ds: xr.Dataset,
    name: str,
    x: str,
    by: str | None = None,
    ax: Any = None,
    *,
    band: str | None = "std",
    round: int = -1,
    label: bool = True,
    style: str = "-",
    color: Any = None,
) -> Any:
    """Draw a quantity of a sweep in one record along its axis `x`: the mean over clients and seeds.

    Args:
      ds: a sweep; axes besides `x` and `by` are the caller's to choose (`ds.isel`), or of length 1.
      by: another axis, a colour and a line for each of its values.
      band: what is shaded where there are several seeds: "std", one standard deviation each side, "range", or None.
      round: position of the record (-1: the last).
      label: write each value of `by` at the end of its line.
      style, color: the line's, `color` where there is no `by`.

    Positive values that span a factor of ten or more are spaced by their logarithms, what is no number evenly. A
    point with a seed that diverged is left out. Raises ValueError for what is not recorded, and for axes that are left
    over.
    """
    if band is not None:
        checks.one_of("band", band, ("std", "range"))
    axes = sweep_axes(ds)
    for field, dim in (("x", x), *([("by", by)] if by is not None else [])):
        checks.one_of(field, dim, list(axes))
    values = lane_values(ds, name, round)
    values = values.where(values.notnull().all("seed"))  # a mean of those that survived would be too good
    values = values.squeeze([dim for dim in axes if dim not in (x, by) and values.sizes[dim] == 1], drop=True)
    if extra := [str(dim) for dim in values.dims if dim not in (x, by, "seed")]:
        checks.fail("ds", f"the further axes {', '.join(extra)}", "one value of each (ds.isel), or one of them as `by`")
    ax = drawing.axes(ax)
    places = _places(ax, ds, x, axes[x])
    keys = [None] if by is None else labels(ds, by)
    ends = []
    for i, (key, own) in enumerate(drawing.palette(keys).items()):
        line = values if by is None else values.isel({by: i})
        where = xr.DataArray(places, dims=x)
        middle = drawing.line(ax, where, line, band, color or own, f"{style}o").values
        there = np.flatnonzero(np.isfinite(middle))
        if by is not None and there.size:
            ends.append((f"{axis_name(by)} {key}", float(places[there[-1]]), float(middle[there[-1]]), own))
    for drawn in ax.lines:
        drawn.set_markersize(4)
    ax.set_xlabel(axis_name(x))
    drawing.value_axis(ax, "y", [name])
    if label:
        drawing.label_ends(ax, ends)
    return ax


def labels(ds: xr.Dataset, dim: str) -> list[str]:
    """Return the positions on an axis as a reader would name them, by all its values: "0.1", or "0.1, 0.5"."""
    columns = axis_values(ds, dim, sweep_axes(ds)[dim]).values()
    return [", ".join(map(drawing.short, row)) for row in zip(*columns, strict=True)]


def axis_name(dim: str) -> str:
    """Return an axis's name as a reader would say it: "model.l2" is "l2", "lr,alpha_lr" "lr, alpha lr"."""
    return ", ".join(SAID.get(path, path.rpartition(".")[2].replace("_", " ")) for path in dim.split(","))


def _places(ax: Any, ds: xr.Dataset, dim: str, paths: list[str]) -> np.ndarray:
    """Return where an axis's values lie on `ax`, after setting its ticks and its scale."""
    columns = list(axis_values(ds, dim, paths).values())
    values = columns[0] if len(columns) == 1 else None
    if values is None or not all(isinstance(v, (int, float)) and np.isfinite(v) for v in values):
        ax.set_xticks(range(ds.sizes[dim]), labels(ds, dim))
        return np.arange(ds.sizes[dim], dtype=float)
    places = np.asarray(values, float)
    if places.min() > 0 and places.max() >= 10 * places.min():
        ax.set_xscale("log")
    if len(places) <= LABELLED:
        ax.set_xticks(places, labels(ds, dim))
        ax.minorticks_off()
    return places


def better(name: str) -> str:
    """Return which value of a quantity is best, as `heat_map` wants it: "greatest" or "least"."""
    return "least" if is_least(name) else "greatest"
