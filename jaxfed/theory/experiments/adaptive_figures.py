"""The figures of `adaptive`, drawn from what its parts return."""

from typing import Any

import numpy as np
import xarray as xr

from jaxfed import drawing


def draw(data: dict[str, xr.Dataset]) -> dict[str, Any]:
    """Return a figure for each Dataset that is there ("learned", "iid"); bands: standard deviation over seeds."""
    drawn = {"learned": _learned, "iid": _iid}
    return {name: drawn[name](data[name]) for name in drawn if name in data}


def _grid(rows: int, title: str) -> tuple[Any, list[Any]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.6, 3.7 * rows), dpi=120, layout="constrained")
    figure.suptitle(title, fontsize="medium")
    return figure, [drawing.axes(figure.add_subplot(rows, 2, i + 1)) for i in range(2 * rows)]


def _groups(y: xr.DataArray, of: np.ndarray) -> tuple[np.ndarray, xr.DataArray]:
    """Return the distinct values of `of` [client], and the mean of y over the clients of each, dimension "group"."""
    values, group = np.unique(np.round(of, 6), return_inverse=True)
    means = [y.isel(client=np.flatnonzero(group == i)).mean("client") for i in range(len(values))]
    return values, xr.concat(means, "group").transpose(..., "group")


def _learned(ds: xr.Dataset) -> Any:
    figure, panels = _grid(
        2, "The learned alpha rises with divergence and falls with m_i; near 1, it fits the training rows too well"
    )
    variants = {"alpha": "once a round (the paper)", "alpha_by_step": "at every local step",
                "alpha_decayed": "once a round, with 0.02 alpha decay"}  # fmt: skip
    sides = (
        ("skews", "divergence", "divergence ||Dbar - D_i||_1", "linear"),
        ("sizes", "rows", "training rows m_i", "log"),
    )
    for (kind, of, words, scale), ax, below in zip(sides, panels[:2], panels[2:], strict=True):
        x = ds[of].sel(kind=kind).values
        for (name, label), color in zip(variants.items(), drawing.COLORS, strict=False):
            at, y = _groups(ds[name].sel(kind=kind).isel(round=-1), x)
            drawing.line(ax, xr.DataArray(at), y, "std", color, "-")
            ax.plot([], [], color=color, label=label)
        ax.set(xlabel=words, ylabel="learned alpha, last round", ylim=(0, 1), xscale=scale)
        ax.legend(frameon=False, fontsize="small")
        colors = drawing.palette(np.unique(np.round(x, 6)))
        at, fixed = _groups(ds["risk_of_fixed"].sel(kind=kind), x)
        _, own = _groups(ds["risk"].sel(kind=kind), x)
        _, alpha = _groups(ds["alpha"].sel(kind=kind).isel(round=-1), x)
        for i, value in enumerate(at):
            drawing.line(below, ds["fixed"], fixed.isel(group=i), "std", colors[value], "-")
            below.plot(float(alpha.isel(group=i).mean()), float(own.isel(group=i).mean()), "o", color=colors[value],
                       markeredgecolor="k", label=f"{value:.3g}")  # fmt: skip
        below.set(xlabel="alpha (line: fixed; dot: learned, where it ended)", ylabel="test cross-entropy (nats)")
        below.legend(title=words, frameon=False, fontsize="small", title_fontsize="small")
    return figure


def _iid(ds: xr.Dataset) -> Any:
    figure, panels = _grid(1, "On i.i.d. data alpha rests only where v takes w's steps")
    words = {"same": "all clients hold the same 40 rows", "samples": "each client holds its own 40 rows of one law"}
    for ax, (kind, title) in zip(panels, words.items(), strict=True):
        for steps, color in zip(ds["steps"].values, drawing.COLORS, strict=False):
            y = ds["alpha"].sel(kind=kind, steps=steps).mean("client")
            drawing.line(ax, ds["round"], y, "std", color, "-")
            label = "v takes w's steps" if steps == "w's" else "v as in equation 7"
            ax.plot([], [], color=color, label=label)
        ax.set(xlabel="rounds", ylabel="mean alpha over clients", ylim=(0, 1))
        ax.set_title(title, fontsize="small")
        ax.legend(frameon=False, fontsize="small")
    return figure
