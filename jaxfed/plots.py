"""Figures from a Dataset (of `run`, `compare` or a sweep); nothing here runs an experiment.

Each function draws on `ax`, or on a new figure of its own, and returns the Axes (`.figure` is the figure, also to look
at in a notebook: `%matplotlib inline` first). No state of pyplot is touched, so a display is never needed. Colours are
those of Okabe and Ito, told apart by colour-blind readers too.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from jaxfed import checks, drawing, results
from jaxfed.sweep_plots import along as along
from jaxfed.sweep_plots import heat_map as heat_map
from jaxfed.vertical_plots import vertical_run as vertical_run

MAX_BUBBLES = 50  # clients of a partition drawn as bubbles; more are drawn as an image


def curves(
    ds: xr.Dataset,
    name: str | Sequence[str] = "personal_test_accuracy",
    by: str | None = None,
    ax: Any = None,
    *,
    band: str | None = "std",
    x: str = "round",
    colors: Mapping[Any, Any] | None = None,
    label: bool = True,
) -> Any:
    """Draw quantities against rounds, the mean over clients: a colour for each `by`, a line style for each name.

    Args:
      ds: dims round and, where there are any, client, seed and `by`; a choice among other dims is the caller's.
      name: variables of `ds`; several in one panel should be of one kind.
      by: the dimension told apart by colour. Default: "algorithm" where there is one.
      band: what is shaded where there are several seeds: "std", one standard deviation over seeds each side, "range",
        the least to the greatest, or None. The line is the mean over seeds.
      x: "round", or "time" in simulated seconds (the mean over seeds).
      colors: value of `by` to colour; values it lacks are not drawn. Default: `drawing.palette`.
      label: write each value of `by` at the end of its line. For other limits, set those of `ax` before.

    Raises ValueError for unknown names and for dims that are left over.
    """
    checks.one_of("x", x, ("round", "time"))
    if band is not None:
        checks.one_of("band", band, ("std", "range"))
    names = [name] if isinstance(name, str) else list(name)
    if len(names) > len(drawing.STYLES):
        checks.fail("name", f"{len(names)} variables", f"at most {len(drawing.STYLES)}, one line style each")
    by = _by(ds, by)
    palette = _palette(ds, by, colors)
    ax = drawing.axes(ax)
    ends: dict[Any, tuple] = {}
    for style, variable in zip(drawing.STYLES, names, strict=False):
        mean = f"{variable}_mean_over_clients"
        values = _variable(ds, mean if variable not in ds and mean in ds else variable, by, ("round", "seed", "client"))
        values = results.mean_over_clients(values) if "client" in values.dims else values
        for key, color in palette.items():
            y = values if by is None else values.sel({by: key})
            if y.isnull().all():
                continue
            at = ds[x] if by is None or by not in ds[x].dims else ds[x].sel({by: key})
            at = at.mean("seed") if "seed" in at.dims else at
            middle = drawing.line(ax, at, y, band, color, style)
            if by is not None:  # once where two of its lines end at the same value
                last = float(middle[-1])
                ends.setdefault((key, last), (drawing.value_of(by, key), float(at[-1]), last, color))
    ax.set_xlabel("communication round" if x == "round" else "simulated time (s)")
    ax.margins(x=0.02)
    drawing.value_axis(ax, "y", names, "mean over clients")
    drawing.style_legend(ax, names)
    if label:
        drawing.label_ends(ax, list(ends.values()))
    return ax


def mixing_weights(
    ds: xr.Dataset,
    by: str | None = None,
    ax: Any = None,
    *,
    deciles: tuple[int, int] = (1, 9),
    colors: Mapping[Any, Any] | None = None,
    label: bool = True,
) -> Any:
    """Draw the mixing weight alpha against rounds: its mean over clients, and between `deciles` of them shaded.

    Several seeds are pooled. Values of `by` without mixing weights (other algorithms) are left out. Raises ValueError
    where none has any.
    """
    if "mixing_weight" not in ds or ds["mixing_weight"].isnull().all():
        checks.fail("ds", "no mixing weights", "a Dataset with APFL in it")
    by = _by(ds, by)
    palette = _palette(ds, by, colors)
    ax = drawing.axes(ax)
    ends = []
    values = _variable(ds, "mixing_weight", by, ("round", "seed", "client"))
    for key, color in palette.items():
        alpha = values if by is None else values.sel({by: key})
        if alpha.isnull().all():
            continue
        pool = [dim for dim in ("client", "seed") if dim in alpha.dims]
        low, high = (alpha.quantile(d / 10, pool) for d in deciles)
        ax.fill_between(ds["round"], low, high, color=color, alpha=0.2, linewidth=0)
        mean = alpha.mean(pool)
        ax.plot(ds["round"], mean, color=color)
        if by is not None:
            ends.append((drawing.value_of(by, key), float(ds["round"][-1]), float(mean[-1]), color))
    ax.set(xlabel="communication round", ylabel="mixing weight alpha", ylim=(-0.03, 1.03))
    ax.margins(x=0.02)
    ax.set_title(f"mean over clients; shaded: deciles {deciles[0]} to {deciles[1]}", loc="left", fontsize="small")
    if label:
        drawing.label_ends(ax, ends)
    return ax


def spread(
    ds: xr.Dataset,
    name: str = "personal_test_accuracy",
    by: str | None = None,
    ax: Any = None,
    *,
    round: int = -1,
    colors: Mapping[Any, Any] | None = None,
) -> Any:
    """Draw how a quantity is spread over clients in one record: a row for each value of `by`, a dot for each client.

    Dots of about equal values are stacked around the row, so that its width shows how many there are. The bar goes from
    the first to the ninth decile, the diamond is the mean over clients. Several seeds are pooled. `round`: position of
    the record (-1: the last).
    """
    by = _by(ds, by)
    palette = _palette(ds, by, colors)
    values = _variable(ds, name, by, ("round", "seed", "client")).isel(round=round)
    ax = drawing.axes(ax, (6.4, 1.4 + 0.4 * len(palette)))
    ticks = []
    for row, (key, color) in enumerate(palette.items()):
        some = np.ravel(values if by is None else values.sel({by: key}))
        some = some[np.isfinite(some)]
        if not len(some):
            continue
        if by is not None:
            ticks.append((row, drawing.value_of(by, key)))
        ax.scatter(some, row + drawing.stacked(some), s=10, color=color, alpha=0.6, linewidth=0, zorder=2)
        low, high = np.quantile(some, (0.1, 0.9))
        ax.plot([low, high], [row, row], color="0.25", linewidth=2, solid_capstyle="butt", zorder=3)
        ax.scatter(some.mean(), row, s=42, marker="D", color=color, edgecolor="0.1", linewidth=1, zorder=4)
    ax.set_yticks([row for row, _ in ticks], [text for _, text in ticks])
    ax.set_ylim(len(palette) - 0.5, -0.5)
    drawing.value_axis(ax, "x", [name])
    ax.set_title("diamond: mean over clients; bar: deciles 1 to 9", loc="left", fontsize="small")
    return ax


def partition(data: Any, ax: Any = None, *, num_classes: int | None = None, sort: bool = False) -> Any:
    """Draw how many rows of each class each client has: bubbles for few clients, an image for more than 50.

    `data`: ClientData, FedData (its training rows), or counts [C, classes]. `num_classes`: default the largest label
    plus one. `sort`: put clients with like labels side by side. Raises ValueError for labels that are no class numbers.
    """
    counts = _counts(data, num_classes)
    if sort:
        largest_first = np.argsort(-counts, axis=1, kind="stable")
        counts = counts[np.lexsort(largest_first.T[::-1])]
    num_clients, classes = counts.shape
    ax = drawing.axes(ax, (min(4 + 0.12 * num_clients, 9), 1.6 + 0.24 * classes))
    if num_clients <= MAX_BUBBLES:
        client, c = np.nonzero(counts)
        area = 110 * counts[client, c] / counts.max()
        shown = ax.scatter(client, c, s=area, c=counts[client, c], cmap="viridis_r", vmin=0, vmax=counts.max(),
                           edgecolor="0.5", linewidth=0.4)  # fmt: skip
        ax.set(xlim=(-0.8, num_clients - 0.2), ylim=(-0.7, classes - 0.3))
    else:
        masked = np.ma.masked_equal(counts.T, 0)
        shown = ax.imshow(masked, aspect="auto", origin="lower", cmap="viridis_r", vmin=0, interpolation="nearest")
    if classes <= 20:
        ax.set_yticks(range(classes))
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.set(xlabel="client, sorted by labels" if sort else "client", ylabel="class")
    bar = ax.figure.colorbar(shown, ax=ax, label="rows", pad=0.02)
    bar.locator.set_params(integer=True)
    bar.update_ticks()
    return ax


def _by(ds: xr.Dataset, by: str | None) -> str | None:
    """Return the dimension told apart by colour, or None where there is nothing to tell apart."""
    if by is not None and by not in ds.dims:
        checks.fail("by", repr(by), f"one of the dims {', '.join(map(str, ds.dims))}")
    return "algorithm" if by is None and "algorithm" in ds.dims else by


def _palette(ds: xr.Dataset, by: str | None, colors: Mapping[Any, Any] | None) -> dict[Any, Any]:
    """Return value of `by` to colour, {None: colour} where there is one line only."""
    return dict(colors) if colors is not None else drawing.palette([None] if by is None else ds[by].values.tolist())


def _variable(ds: xr.Dataset, name: str, by: str | None, dims: Sequence[str]) -> xr.DataArray:
    """Return a variable, after requiring that it exists and has no dims but these and `by`."""
    checks.one_of("name", name, list(map(str, ds.data_vars)))
    extra = [str(dim) for dim in ds[name].dims if dim not in (by, *dims)]
    if extra:
        checks.fail("ds", f"the further dims {', '.join(extra)}", "one value of each (ds.sel), or one of them as `by`")
    return ds[name]


def _counts(data: Any, num_classes: int | None) -> np.ndarray:
    """Return how many rows of each class each client has, [C, classes]."""
    if not hasattr(data, "train"):
        counts = np.asarray(data)
        if counts.ndim != 2 or not counts.size or counts.min() < 0:
            checks.fail("data", f"{type(data).__name__} of shape {counts.shape}", "ClientData, or counts [C, classes]")
        return counts
    from jaxfed.horizontal.splitting import label_counts

    train = data.train
    y, sizes = np.asarray(train.y), np.asarray(train.size)[: train.num_clients]
    if not np.issubdtype(y.dtype, np.integer) or y.min() < 0:
        checks.fail("data.y", f"labels of {y.dtype} from {y.min():g} on", "class numbers")
    rows = [row[:size] for row, size in zip(np.asarray(train.rows), sizes, strict=False)]
    return label_counts(y, rows, int(y.max()) + 1 if num_classes is None else num_classes)
