"""Figures of `alpha_star`, drawn from the Datasets that its parts return."""

from typing import Any

import numpy as np
import xarray as xr

LABELS = {
    "distance": "distance of the two laws' optima",
    "local_rows": "$m_i$, the client's rows (samples)",
    "rows": "$m$, all clients' rows (samples)",
    "noise": "standard deviation of the noise",
    "radius": "radius of the ball",
}
LOGARITHMIC = ("local_rows", "rows", "noise", "radius")
BEST, TONES = "#D55E00", ("#0072B2", "#3C93C6", "#7FB7DA", "#B9D8EC")


def draw(data: dict[str, xr.Dataset]) -> dict[str, Any]:
    """Return the figures of those Datasets that are there, by name: moves, classes, regret, bound."""
    made = {"moves": moves, "classes": classes, "regret": regret, "bound": bound}
    return {name: plot(data[name]) for name, plot in made.items() if name in data}


def moves(ds: xr.Dataset) -> Any:
    """alpha* for each C and the best alpha, along each factor."""
    figure, axes = _panels(ds, "alpha* moves with the best alpha, but far less, and not along m where C is small")
    for factor, ax in axes.items():
        part = ds.isel(setting=np.flatnonzero(ds.factor == factor))
        _banded(ax, part, part, "best_alpha", BEST, "best $\\alpha$ (least true risk)", marker="o")
        for i, share in enumerate(ds.share.values):
            _banded(ax, part, part.isel(share=i), "alpha_star", TONES[i], f"$\\alpha^*$, C = {share:g} B", marker=".")
        ax.set(ylim=(-0.03, 1.03), ylabel="mixing weight $\\alpha$")
    _legend(figure, axes)
    return figure


def regret(ds: xr.Dataset) -> Any:
    """Risk lost by alpha* along each factor, and what the better of the two ends would lose or gain."""
    figure, axes = _panels(
        ds, "alpha* loses little, but for laws far apart, little noise, many local rows or a wide ball"
    )
    for factor, ax in axes.items():
        part = ds.isel(setting=np.flatnonzero(ds.factor == factor))
        for i, share in enumerate(ds.share.values):
            _banded(ax, part, 100 * part.isel(share=i), "regret", TONES[i], f"$\\alpha^*$, C = {share:g} B", marker=".")
        ends = 100 * ((1 + part.regret) / (1 + part.against_ends) - 1).isel(share=0)
        ax.plot(part.value, ends, color=BEST, marker="o", label="better of global and local model")
        ax.set(ylabel="risk above the least one (%)", ylim=(0, None))
    _legend(figure, axes)
    return figure


def classes(ds: xr.Dataset) -> Any:
    """True risk against alpha in the ball and without it, side by side."""
    from matplotlib.figure import Figure

    figure = Figure((9, 3.6), layout="constrained")
    for ax, name in zip(figure.subplots(1, 2, sharey=True), ds["class"].values, strict=True):
        curves = ds.risk.sel({"class": name})
        low, mean, high = curves.quantile(0.1, "seed"), curves.mean("seed"), curves.quantile(0.9, "seed")
        if name == "unconstrained":  # alpha = 0, the global model, is a point of its own
            ax.plot(0, mean[0], "o", color=BEST, label="$\\alpha = 0$: the global model")
            ax.errorbar(0, mean[0], [[mean[0] - low[0]], [high[0] - mean[0]]], color=BEST)
            low, mean, high = low[1:], mean[1:], high[1:]
        ax.fill_between(mean.alpha, low, high, color=BEST, alpha=0.2, lw=0, label="80% of the draws")
        ax.plot(mean.alpha, mean, color=BEST, label="mean")
        if name == "ball":
            for i, share in enumerate(ds.share.values):
                at = float(ds.alpha_star.isel(share=i).mean())
                ax.axvline(at, color=TONES[i], ls="--", label=f"$\\alpha^*$, C = {share:g} B")
        ax.set(xlabel="mixing weight $\\alpha$", title="in a ball" if name == "ball" else "without a ball")
        ax.legend(fontsize=8)
    figure.axes[0].set_ylabel("true risk of $h_\\alpha$ (squared error)")
    figure.suptitle("Only in a bounded class does alpha decide anything")
    return figure


def bound(ds: xr.Dataset) -> Any:
    """Bound and true risk against alpha, for laws more and more apart."""
    from matplotlib.figure import Figure

    part = ds.isel(setting=np.flatnonzero(ds.factor == "distance"))
    figure = Figure((6.4, 4), layout="constrained")
    ax = figure.subplots()
    shades = np.linspace(0.25, 1, part.sizes["setting"])
    for i, value in enumerate(part.value.values):
        ax.plot(ds.alpha, part.bound[i], color=TONES[0], alpha=shades[i], label=f"bound, distance {value:g}")
    for i in range(part.sizes["setting"]):
        ax.plot(ds.alpha, part.risk[i], color=BEST, alpha=shades[i], label="risk, likewise" if i == 0 else None)
    ax.set(xlabel="mixing weight $\\alpha$", ylabel="squared error", yscale="log")
    ax.set_title("Theorem 1 holds, far above the risk unless the laws agree (C = 0)", fontsize=10)
    ax.legend(fontsize=8, ncols=2)
    return figure


def _panels(ds: xr.Dataset, title: str) -> tuple[Any, dict[str, Any]]:
    from matplotlib.figure import Figure

    figure = Figure((11, 6), layout="constrained")
    figure.suptitle(title)
    factors = list(dict.fromkeys(ds.factor.values.tolist()))
    axes = dict(zip(factors, figure.subplots(2, 3).flat, strict=False))
    for factor, ax in axes.items():
        ax.set_xlabel(LABELS[factor])
        if factor in LOGARITHMIC:
            values = np.unique(ds.value.values[ds.factor.values == factor])
            ax.set_xscale("log")
            ax.set_xticks(values, [f"{v:g}" for v in values])
            ax.set_xticks([], minor=True)
    for ax in figure.axes[len(factors) :]:
        ax.set_axis_off()
    return figure, axes


def _banded(ax: Any, x: xr.Dataset, ds: xr.Dataset, name: str, color: str, label: str, marker: str) -> None:
    ax.plot(x.value, ds[name], color=color, marker=marker, label=label)
    ax.fill_between(x.value, ds[f"{name}_low"], ds[f"{name}_high"], color=color, alpha=0.25, lw=0)


def _legend(figure: Any, axes: dict[str, Any]) -> None:
    """The legend of all panels, in the empty one; bands are 95% of resamples of the draws."""
    lines, labels = next(iter(axes.values())).get_legend_handles_labels()
    figure.axes[len(axes)].legend(lines, labels, loc="center", title="bands: 95% by resampling draws")
