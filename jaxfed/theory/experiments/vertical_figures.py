"""Figures of VFB2's claims, from the Datasets that `vertical` found."""

from collections.abc import Callable
from typing import Any

import numpy as np
import xarray as xr

from jaxfed import drawing

COLORS = {"SGD": "#0072B2", "SVRG": "#D55E00", "SAGA": "#009E73"}
ERROR = "$f - f^*$"


def draw(data: dict[str, xr.Dataset]) -> dict[str, Any]:
    """Return the figures whose Dataset is there, by its name. Bands span the seeds, lines are their means."""
    made: dict[str, Callable] = {
        "sgd": _sgd, "svrg": _svrg, "saga": _saga, "nonconvex": _nonconvex, "lossless": _lossless,
    }  # fmt: skip
    return {name: made[name](ds) for name, ds in data.items() if name in made}


def _sgd(ds: xr.Dataset) -> Any:
    fig, (left, middle, right) = _figure(3, "SGD with a constant step stops at an error that is linear in the step")
    colors = drawing.palette(ds["lr"].values)
    for lr in ds["lr"].values:
        _band(left, ds["round"], ds["gap"].sel(lr=lr), "seed", colors[lr], f"lr {lr:.3g}")
    left.set(yscale="log", xlabel="epochs (passes over the rows)", ylabel=ERROR, title="error along the run")
    left.set_ylim(top=300)  # room for the legend
    late = ds["gap"].isel(round=slice(ds.sizes["round"] // 2, None)).mean("round")
    _band(middle, ds["lr"], late, "seed", COLORS["SGD"], "mean error of the second half")
    at = ds["lr"].values
    middle.plot(at, float(late.mean("seed").min()) * at / at.min(), ":", color="0.4", label="linear in the step")
    middle.set(xscale="log", yscale="log", xlabel="step size lr", ylabel=ERROR, title="floor against step")
    _band(right, ds["epsilon"], ds["best"], "seed", COLORS["SGD"], "measured, best step for each")
    told = ds["told"] * float(ds["best"].mean("seed")[0] / ds["told"][0])
    right.plot(ds["epsilon"], told, ":", color="0.4", label="shape of Theorem 1")
    right.set(
        xscale="log", yscale="log", xlabel=r"wanted error $\epsilon$", ylabel="epochs", title="epochs to an error"
    )
    return _finish(fig, (left, middle, right))


def _svrg(ds: xr.Dataset) -> Any:
    fig, (left, middle, right) = _figure(
        3, "SVRG: straight lines on a log scale; with a small step delays cost nothing"
    )
    late = ds["delay"].values.max()
    prompt = ds.isel(point=np.flatnonzero(ds["delay"].values == 1))
    colors = drawing.palette(range(prompt.sizes["point"]))
    for i, color in colors.items():
        one = prompt.isel(point=i)
        _band(left, ds["round"], one["gap"].clip(1e-16), "seed", color, f"lr {float(one['lr']):.3g}")
    left.set(yscale="log", xlabel="epochs (passes over the rows)", ylabel=ERROR, title="reads and messages a tick late")
    lr = prompt["lr"].values
    _band(middle, lr, prompt["epochs"], "seed", COLORS["SVRG"], "measured")
    middle.plot(lr, float(prompt["epochs"][0].mean()) * lr[0] / lr, ":", color="0.4", label="1 / step")
    middle.set(xscale="log", yscale="log", xlabel="step size lr", ylabel="epochs", title=f"epochs to {ERROR} = 0.001")
    others = ds.isel(point=np.flatnonzero(ds["delay"].values != 1))
    for i in range(others.sizes["point"]):
        one = others.isel(point=i)
        delayed, small = int(one["delay"]) == late, float(one["lr"]) == float(others["lr"].min())
        label = f"lr {float(one['lr']):.3g}, {f'{late:.0f} ticks late' if delayed else 'no delay'}"
        color = COLORS["SVRG"] if delayed else COLORS["SGD"]
        _band(right, ds["round"], one["gap"].clip(1e-16, 1e4), "seed", color, label, "-" if small else ":")
    right.set(yscale="log", xlabel="epochs (passes over the rows)", ylabel=ERROR, title="with and without delays")
    return _finish(fig, (left, middle, right))


def _saga(ds: xr.Dataset) -> Any:
    fig, (ax,) = _figure(1, "SAGA: straight lines on a log scale")
    for lr, color in drawing.palette(ds["lr"].values).items():
        _band(ax, ds["round"], ds["gap"].sel(lr=lr).clip(1e-16), "seed", color, f"lr {lr:.3g}")
    ax.set(yscale="log", xlabel="epochs (passes over the rows)", ylabel=ERROR)
    return _finish(fig, (ax,))


def _nonconvex(ds: xr.Dataset) -> Any:
    fig, (ax,) = _figure(1, "Nonconvex: $1/T$ for SVRG, $1/\\sqrt{T}$ for SGD, or faster")
    at = ds["epochs"].values
    for name, power in (("SGD", -0.5), ("SVRG", -1)):
        _band(ax, at, ds[name], "seed", COLORS[name], name)
        first = float(ds[name].mean("seed")[0])
        ax.plot(at, first * (at / at[0]) ** power, ":", color=COLORS[name], linewidth=1)
    ax.set(xscale="log", yscale="log", xlabel="T, epochs", ylabel=r"mean of $|\nabla f|^2$, epochs T/2 to T",
           title="dotted: the theorems' powers")  # fmt: skip
    return _finish(fig, (ax,))


def _lossless(ds: xr.Dataset) -> Any:
    fig, (left, right) = _figure(
        2, "Backward updating reaches the centralised solution; without it the method does not"
    )
    names = {"central": "centralised", "ours": "VFB2-SVRG", "passive": "AFSVRG-VP"}
    colors = ("0.4", COLORS["SVRG"], "#CC79A7")
    for i, ((name, label), color) in enumerate(zip(names.items(), colors, strict=True)):
        spread = i + np.linspace(-0.15, 0.15, ds.sizes["trial"])
        left.scatter(spread, ds[name], color=color, s=26, alpha=0.7, linewidth=0)
        if name != "central":
            right.scatter(spread - 1, 10 ** ds[f"{name}_distance"], color=color, s=26, alpha=0.7, linewidth=0)
        left.hlines(float(ds[name].mean()), i - 0.25, i + 0.25, color=color)
        del label
    left.set_xticks(range(3), list(names.values()))
    right.set_xticks(range(2), list(names.values())[1:])
    left.set(ylabel="accuracy on test rows (%)", title="a mark for each trial, lines: means")
    right.set(yscale="log", ylabel="relative distance to its parameters", title="distance to the centralised solution")
    return _finish(fig, (left, right), legend=False)


def _figure(columns: int, title: str) -> tuple[Any, Any]:
    """Return an empty figure that pyplot does not know of, and its axes."""
    from matplotlib.figure import Figure

    fig = Figure(figsize=(max(4.2 * columns, 6), 3.8), dpi=120, layout="constrained")
    fig.suptitle(title, fontsize=11)
    return fig, fig.subplots(1, columns, squeeze=False)[0]


def _finish(fig: Any, axes: Any, legend: bool = True) -> Any:
    for ax in axes:
        drawing.axes(ax)
        ax.title.set_size(9.5)
        if ax.get_xscale() == "log":  # a label for each measured place, none between them
            at = np.unique(ax.lines[0].get_xdata())
            ax.set_xticks(at, [f"{x:.2g}" for x in at], fontsize=8, rotation=30)
            ax.set_xticks([], minor=True)
        if legend:
            ax.legend(frameon=False, fontsize="x-small", ncols=2 if len(ax.lines) > 4 else 1)
    return fig


def _band(ax: Any, x: Any, y: xr.DataArray, dim: str, color: Any, label: str, style: str = "-") -> None:
    """Draw the mean over `dim`, and a band from the least to the greatest."""
    rest = [name for name in y.dims if name != dim]
    y = y.transpose(*rest, dim)
    ax.fill_between(np.asarray(x), y.min(dim), y.max(dim), color=color, alpha=0.2, linewidth=0)
    ax.plot(np.asarray(x), y.mean(dim), style, color=color, label=label, linewidth=1.3)
