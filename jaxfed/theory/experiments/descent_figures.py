"""The figures of `descent`, drawn from what its parts return."""

from typing import Any

import numpy as np
import xarray as xr

from jaxfed import drawing


def draw(data: dict[str, xr.Dataset]) -> dict[str, Any]:
    """Return a figure for each Dataset that is there ("rates", "residual", "participation"); bands: all seeds."""
    drawn = {"rates": _rates, "residual": _residual, "participation": _participation}
    return {name: drawn[name](data[name]) for name in drawn if name in data}


def _row(panels: int, title: str) -> tuple[Any, list[Any]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.3 * panels, 3.7), dpi=120, layout="constrained")
    figure.suptitle(title, fontsize="medium")
    return figure, [drawing.axes(figure.add_subplot(1, panels, i + 1)) for i in range(panels)]


def _band(ax: Any, x: Any, y: xr.DataArray, color: str, label: str, style: str = "-") -> None:
    """Draw the geometric mean over seeds and the range of them."""
    logs = np.log(y.transpose("seed", ...).values)
    ax.fill_between(x, np.exp(logs.min(0)), np.exp(logs.max(0)), color=color, alpha=0.2, linewidth=0)
    ax.plot(x, np.exp(logs.mean(0)), style, color=color, label=label)
    ax.set(xscale="log", yscale="log")


def _law(ax: Any, x: np.ndarray, end: float, power: float, label: str) -> None:
    """Draw x^power through the last point."""
    ax.plot(x, end * (x / x[-1]) ** power, "k:", linewidth=1, label=label)


def _plain_ticks(ax: Any, x: np.ndarray) -> None:
    from matplotlib.ticker import NullLocator

    ax.set_xticks(x, [f"{value:.3g}" for value in x])
    ax.xaxis.set_minor_locator(NullLocator())


def _rates(ds: xr.Dataset) -> Any:
    title = "With decreasing steps both gaps fall as 1/T, the personal one without a residual; constant steps stall"
    figure, panels = _row(2, title)
    names = {
        "global_gap": "global model:  F(what) - F(w*)",
        "personal_gap": "personal models:  mean f_i(vhat_i) - f_i*",
    }
    for ax, (name, words) in zip(panels, names.items(), strict=True):
        for step, color in zip(ds["step"].values, drawing.COLORS, strict=False):
            _band(ax, ds["steps"].values, ds[name].sel(step=step), color, f"{step} step size")
        late = ds["steps"].values[ds["steps"].values >= ds["steps"].values[-1] / 10]
        _law(ax, late, 0.4 * float(ds[name].isel(step=0, steps=-1).mean()), -1, "1/T")
        ax.set(xlabel="local steps T", ylabel=f"{words}\n(loss above its minimum)")
        ax.legend(frameon=False, fontsize="small")
    return figure


def _residual(ds: xr.Dataset) -> Any:
    title = "At a constant step size a personal gap stays, as (1 - alpha)², (tau - 1)² and zeta_i; none at tau = 1"
    figure, (by_alpha, by_steps, by_client) = _row(3, title)
    away = 1 - ds["alpha"].values
    _band(by_alpha, away, ds["local_gap"], drawing.COLORS[1], "tau = 10, with the client's own w_i", "--")
    _band(by_alpha, away, ds["gap"], drawing.COLORS[0], "tau = 10, with the server's w")
    _band(by_alpha, away, ds["one_step_local_gap"], drawing.COLORS[4], "tau = 1, with the client's own w_i", "--")
    _band(by_alpha, away, ds["one_step_gap"].clip(1e-16), drawing.COLORS[2], "tau = 1, with the server's w")
    order = np.sort(away)
    _law(by_alpha, order, float(ds["gap"].isel(alpha=int(away.argmax())).mean()), 2, "(1 - alpha)²")
    by_alpha.set(xlabel="1 - alpha", ylabel="personal gap / gap of w*")
    _plain_ticks(by_alpha, order)

    tau = ds["tau"].values - 1
    _band(by_steps, tau, ds["gap_of_steps"], drawing.COLORS[0], "measured, alpha = 0.5")
    by_steps.plot(tau, ds["derived"].mean("seed"), "k:", linewidth=1, label="derived, to first order")
    by_steps.set(xlabel="tau - 1 (local steps)", ylabel="personal gap / gap of w*")
    _plain_ticks(by_steps, tau)

    for name, color, words in (("diversity", 0, "zeta_i at w*"), ("distance", 1, "Delta_i = |v_i* - w*|²")):
        x, y = ds[name].values.ravel(), ds["client_gap"].values.ravel()
        by_client.plot(x, y, ".", color=drawing.COLORS[color], markersize=3, label=words)
    x = np.array([ds["diversity"].min(), ds["diversity"].max()])
    _law(by_client, x, float(ds["client_gap"].max()), 1, "slope 1")
    by_client.set(xlabel="zeta_i or Delta_i of a client (squared units of w)", ylabel="its personal gap (loss)",
                  xscale="log", yscale="log")  # fmt: skip
    for ax in (by_alpha, by_steps, by_client):
        ax.legend(frameon=False, fontsize="small")
    return figure


def _participation(ds: xr.Dataset) -> Any:
    figure, (plain, scaled) = _row(
        2, "Personal models wait for their turn: a tenth of the gap takes n/K times the rounds"
    )
    for share, color in zip(ds["share"].values, drawing.COLORS, strict=False):
        gap = ds["gap"].sel(share=share)
        for ax, x in ((plain, ds["rounds"].values), (scaled, share * ds["rounds"].values)):
            _band(ax, x, gap, color, f"K/n = {share:.3g}")
            ax.set(xscale="linear", ylabel="mean personal gap / initial gap")
    plain.set(xlabel="rounds")
    scaled.set(xlabel="rounds times K/n (visits of a client)")
    scaled.set_xlim(0, float(ds["share"].min() * ds["rounds"].max()))
    for ax in (plain, scaled):
        ax.axhline(0.1, color="0.6", linewidth=0.8)
        ax.legend(frameon=False, fontsize="small")
    return figure
