"""What figures have in common: colours, axes, words for the names of variables, labels that do not overlap."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import xarray as xr

COLORS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#000000", "#8C8C8C")
STYLES = ("-", "--", ":", "-.")


def palette(names: Iterable[Any]) -> dict[Any, Any]:
    """Return a colour for each name: those of Okabe and Ito, which colour-blind readers tell apart; past 8, a scale."""
    names = list(names)
    if len(names) <= len(COLORS):
        return dict(zip(names, COLORS, strict=False))
    import matplotlib

    scale = matplotlib.colormaps["viridis"]
    return {name: scale(0.95 * i / (len(names) - 1)) for i, name in enumerate(names)}


def axes(ax: Any, size: tuple[float, float] = (6.4, 4.0)) -> Any:
    """Return `ax`, or the only axes of a new figure of `size` inches, which pyplot does not know of."""
    if ax is None:
        from matplotlib.figure import Figure

        ax = Figure(figsize=size, dpi=120, layout="constrained").add_subplot()
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def words(name: str) -> str:
    """Return a variable's name as a reader would say it: "test accuracy of the personal models"."""
    model, _, rest = name.partition("_")
    part, _, quantity = rest.partition("_")
    if part not in ("train", "validation", "test"):
        return {"mixing_weight": "mixing weight alpha"}.get(name, name.replace("_", " "))
    owner = "personal models" if model == "personal" else "server's model"
    return f"{'training' if part == 'train' else part} {quantity} of the {owner}"


def value_axis(ax: Any, which: str, names: Sequence[str], how: str = "") -> None:
    """Name the axis "x" or "y" after the quantities on it; accuracies are in percent."""
    kinds = list(dict.fromkeys(name.rpartition("_")[2] for name in names))
    text = words(names[0]) if len(names) == 1 else " and ".join(kinds)
    getattr(ax, f"set_{which}label")(f"{text},\n{how}" if how else text)
    if kinds == ["accuracy"]:
        getattr(ax, f"{which}axis").set_major_formatter(lambda value, _: f"{100 * value:.4g}%")


def line(ax: Any, x: xr.DataArray, y: xr.DataArray, band: str | None, color: Any, style: str) -> xr.DataArray:
    """Draw the mean over seeds, with its band where there are several, and return it."""
    if "seed" not in y.dims:
        ax.plot(x, y, style, color=color)
        return y
    middle = y.mean("seed")
    if band is not None and y.sizes["seed"] > 1:
        deviation = y.std("seed")
        low, high = (middle - deviation, middle + deviation) if band == "std" else (y.min("seed"), y.max("seed"))
        ax.fill_between(x, low, high, color=color, alpha=0.2, linewidth=0)
    ax.plot(x, middle, style, color=color)
    return middle


def style_legend(ax: Any, names: Sequence[str]) -> None:
    """Say which line style stands for which of several variables."""
    from matplotlib.lines import Line2D

    if len(names) > 1:
        lines = [Line2D([], [], color="0.3", linestyle=style) for style in STYLES[: len(names)]]
        ax.legend(lines, [words(name) for name in names], frameon=False, fontsize="small")


def label_ends(ax: Any, ends: Sequence[tuple[str, float, float, Any]], size: float = 8.5) -> None:
    """Write (text, x, y, color) right of the axes, each near its line's end and joined to it, none over another."""
    low, high = ax.get_ylim()
    ends = sorted(ends, key=lambda end: end[2])
    height = ax.figure.get_figheight() * 72 * ax.get_position().height
    places = apart(np.array([(end[2] - low) / (high - low) for end in ends]), 1.35 * size / height)
    for (text, x, y, color), place in zip(ends, places, strict=True):
        ax.annotate(
            text, (x, y), (1.07, place), textcoords="axes fraction", color="0.1", size=size, va="center",
            arrowprops=dict(arrowstyle="-", color=color, linewidth=1.1, shrinkA=2, shrinkB=0, relpos=(0, 0.5)),
            annotation_clip=False,
        )  # fmt: skip


def apart(places: np.ndarray, gap: float) -> np.ndarray:
    """Return ascending places [n] moved as little as it takes to lie `gap` apart, and within 0 to 1 if they can."""
    up, down, steps = places.copy(), places.copy(), range(1, len(places))
    for i in steps:
        up[i] = max(up[i], up[i - 1] + gap)
        down[-1 - i] = min(down[-1 - i], down[-i] - gap)
    middle = (up + down) / 2  # both keep the gap, and so does their mean
    slots = gap * np.arange(len(places))
    return np.maximum(np.minimum(middle, 1 - slots[::-1]), slots) if len(places) else middle


def stacked(values: np.ndarray, height: float = 0.38) -> np.ndarray:
    """Return an offset [n] for each value: like values (of 50 bins) lie evenly around 0, the most go to `height`."""
    span = np.ptp(values) or 1.0
    _, bins, counts = np.unique(np.round(50 * (values - values.min()) / span), return_inverse=True, return_counts=True)
    order = np.argsort(bins, kind="stable")
    rank = np.empty(len(values))
    rank[order] = np.arange(len(values)) - np.repeat(np.cumsum(counts) - counts, counts)
    return height * (2 * rank - counts[bins] + 1) / counts.max()


def short(value: Any) -> str:
    """Return a coordinate's value as a tick label."""
    return f"{value:.4g}" if isinstance(value, (float, np.floating)) else str(value)


def value_of(dim: str, value: Any) -> str:
    """Return how a line is named: "APFL" speaks for itself, 0.3 becomes "alpha 0.3"."""
    return value if isinstance(value, str) else f"{dim.replace('_', ' ')} {short(value)}"
