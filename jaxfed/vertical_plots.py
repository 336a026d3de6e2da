"""The figure of vertical runs: how the objective falls, by passes over the data and by simulated seconds."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from jaxfed import checks, drawing

PARTS = {"test": ("test", "-"), "train": ("training", "--")}
LABELS = {"auc": "area under the ROC curve", "accuracy": "accuracy", "rmse": "root mean squared error"}


def vertical_run(
    runs: xr.Dataset | Mapping[str, xr.Dataset], axes: Any = None, *, optimum: float | None = None, metric: str = ""
) -> list[Any]:
    """Draw the objective against epochs and against simulated seconds, and a metric of the rows against epochs.

    Args:
      runs: the Dataset of a vertical run, or several by name, which are told apart by colour.
      axes: three Axes (default: those of a new figure).
      optimum: the least objective; then what is drawn is how far above it the runs are.
      metric: "auc", "accuracy" or "rmse". Default: accuracy for two classes, else the root mean squared error.

    Returns the three Axes. Raises ValueError for Datasets of other runs and metrics that were not recorded.
    """
    named = {"": runs} if isinstance(runs, xr.Dataset) else dict(runs)
    for name, ds in named.items():
        if "dominated_updates" not in ds or ds["objective"].dims != ("round",):
            field = f"runs[{name!r}]" if name else "runs"
            checks.fail(field, f"the dims {', '.join(map(str, ds.dims))}", "the Dataset of a vertical run")
    if not named:
        checks.fail("runs", "none", "at least one")
    metric = metric or _metric(next(iter(named.values())))
    checks.one_of("metric", metric, list(LABELS))
    if axes is None:
        from matplotlib.figure import Figure  # without pyplot: no window, no global state

        axes = Figure(figsize=(12.6, 3.6), dpi=120, layout="constrained").subplots(1, 3)
    by_epoch, by_time, quality = axes = [drawing.axes(ax) for ax in axes]
    widths = np.linspace(2.6, 1.2, len(named))  # runs that coincide show beside each other
    for (name, ds), color, width in zip(named.items(), drawing.palette(named).values(), widths, strict=True):
        above = ds["objective"] - (0.0 if optimum is None else optimum)
        shown = above.where(above > 0) if optimum is not None else above
        by_epoch.plot(ds["epochs"], shown, color=color, label=name, linewidth=width)
        by_time.plot(ds["time"], shown, color=color, linewidth=width)
        for part, (_, style) in PARTS.items():
            if f"{part}_{metric}" in ds:
                quality.plot(ds["epochs"], ds[f"{part}_{metric}"], style, color=color)
            elif part == "train":
                checks.fail("metric", repr(metric), f"one that was recorded of {name or 'the run'}")
    _finish(by_epoch, by_time, quality, named, optimum, metric)
    return axes


def _metric(ds: xr.Dataset) -> str:
    """Return what tells how good a run's scores are."""
    return "accuracy" if "train_accuracy" in ds else "rmse"


def _finish(by_epoch: Any, by_time: Any, quality: Any, named: dict, optimum: float | None, metric: str) -> None:
    """Name the axes, choose their scales, and say what is what."""
    for ax, x in ((by_epoch, "passes over the data (epochs)"), (by_time, "simulated time (s)")):
        ax.set(xlabel=x, ylabel="objective" + ("" if optimum is None else " above the optimum"))
        _log_scale(ax)
        ax.locator_params(axis="x", nbins=5)  # five digits of seconds need the room
    quality.set(xlabel="passes over the data (epochs)", ylabel=LABELS[metric])
    if metric == "accuracy":
        quality.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.4g}%")
    _leave_out_the_start(quality)
    for label, style in PARTS.values():
        quality.plot([], [], style, color="0.3", label=f"{label} rows")
    quality.legend(frameon=False, fontsize="small")
    if len(named) > 1:
        by_epoch.legend(frameon=False, fontsize="small")


def _log_scale(ax: Any) -> None:
    """Make the y axis logarithmic where its values are positive; ticks of few decades are written out."""
    values = np.concatenate([np.ravel(line.get_ydata()) for line in ax.lines])
    values = values[np.isfinite(values)]
    if not values.size or values.min() <= 0:
        return
    ax.set_yscale("log")
    if values.max() < 300 * values.min():
        from matplotlib.ticker import LogLocator, NullFormatter

        ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        ax.yaxis.set_minor_formatter(NullFormatter())


def _leave_out_the_start(ax: Any) -> None:
    """Choose the y axis's limits by all records but the first, of a model that knows nothing."""
    values = np.concatenate([np.ravel(line.get_ydata())[1:] for line in ax.lines])
    values = values[np.isfinite(values)]
    if values.size:
        margin = 0.08 * (np.ptp(values) or 0.1 * abs(values[0]) or 1.0)
        ax.set_ylim(values.min() - margin, values.max() + margin)
