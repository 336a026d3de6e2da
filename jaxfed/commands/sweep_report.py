"""What is printed of a sweep: what was varied, and the best settings with how they were chosen."""

from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from jaxfed import drawing, results
from jaxfed.commands.aligned import aligned
from jaxfed.sweep_plots import axis_name


def title(command: str, options: Any) -> str:
    """Return one line on what was run."""
    from jaxfed.commands.sweep import swept

    d = options.data
    words = [f"{command} on {d.dataset}"]
    if hasattr(d, "parties"):
        words[0] += f": {options.method.method}, {d.parties} parties, {d.active} active, {options.schedule.scheduler}"
    else:
        words[0] += f": {d.num_clients} clients, {options.net.model}"
    words += [f"{len(values)} x {name}" for name, (_, values) in swept(options).items() if len(values) > 1]
    seeds = options.sweep.seeds
    return ", ".join([*words, f"{seeds} seed{'s' if seeds > 1 else ''}"])


def table(ds: xr.Dataset, by: str | None = None, top: int | None = 10) -> str:
    """Return the best points of a sweep, a line each, under how they were chosen.

    By the quantity `by`; without one by validation or training rows, never by test rows.
    """
    frame = results.best_table(ds, by, allow_test=by is not None)
    by = results.criterion(ds) if by is None else by
    axes = [path for paths in results.sweep_axes(ds).values() for path in paths]
    shown = frame if top is None else frame.head(top)
    quantities = [name for name in shown if f"{name}_std" in shown]
    rows = [[*map(axis_name, axes), *map(_short, quantities)]]
    lost = bool((frame["diverged"] > 0).any())
    rows[0] += ["diverged"] if lost else []
    for row in shown.to_dict("records"):
        cells = [drawing.short(row[path]) for path in axes]
        cells += [_figure(row[name], row[f"{name}_std"]) for name in quantities]
        rows.append([*cells, *([_lost(row)] if lost else [])])
    lines = [*_head(ds, by, frame), aligned(rows)]
    if len(shown) < len(frame):
        lines.append(f"the best {len(shown)} of {len(frame)}")
    return "\n".join([*lines, *_edges(ds, frame, by)])


def _head(ds: xr.Dataset, by: str, frame: pd.DataFrame) -> list[str]:
    """Return how the points are ordered, and what a reader must know about that."""
    rows = "validation" if "validation" in by.split("_") else "test" if results.of_test_rows(by) else "training"
    end = "least" if results.is_least(by) else "greatest"
    over = ["clients"] if by not in ds or "client" in ds[by].dims else []
    over += [f"{ds.sizes['seed']} seeds, +- one standard deviation"] if ds.sizes.get("seed", 1) > 1 else []
    mean = f"; means over {' and '.join(over)}" if over else ""
    lines = [f"best settings by {drawing.words(by)} ({end} first) at round {ds['round'].values[-1]}{mean}"]
    if rows == "test":
        lines.append("CHOSEN ON TEST ROWS, as asked for: the first lines' test figures are too good to be true")
    elif rows == "training":
        lines.append("chosen on TRAINING rows, which favours overfitting: no validation rows were used")
    if by.endswith(("loss", "objective")) and any(path.endswith("l2") for path in _paths(ds)):
        lines.append("l2 is varied, and is part of this quantity: points with less of it look better")
    if missing := frame["unfinished"].to_numpy().sum():
        lines.append(f"NOT FINISHED: {missing} of {len(frame) * int(frame['seeds'].iloc[0])} runs are not there yet")
    lost = frame["diverged"].to_numpy()
    if lost.any():
        runs = len(frame) * int(frame["seeds"].iloc[0])
        those = f"settings with one ({np.count_nonzero(lost)}) have no mean and come last"
        lines.append(f"diverged: {lost.sum()} of {runs} runs; {those}")
    return lines


def _edges(ds: xr.Dataset, frame: pd.DataFrame, by: str) -> list[str]:
    """Return a line for each rate whose best value is the least or the greatest tried: there may be better beyond."""
    lines = []
    if np.isnan(frame[by].iloc[0]):
        return lines
    for path in _paths(ds):
        values, best = np.unique(frame[path]), frame[path].iloc[0]
        if axis_name(path).endswith("lr") and len(values) > 2 and best in (values[0], values[-1]):
            which = "least" if best == values[0] else "greatest"
            lines.append(f"the best {axis_name(path)}, {best:g}, is the {which} that was tried")
    return lines


def _paths(ds: xr.Dataset) -> list[str]:
    return [path for paths in results.sweep_axes(ds).values() for path in paths]


def _short(name: str) -> str:
    """Return a quantity's name as the head of a column: "personal test accuracy"."""
    return name.replace("_", " ")


def _figure(mean: float, deviation: float) -> str:
    return f"{mean:.4f}" + (f" +- {deviation:.4f}" if np.isfinite(deviation) else "")


def _lost(row: dict) -> str:
    return f"{row['diverged']} of {row['seeds']}" if row["diverged"] else "-"
