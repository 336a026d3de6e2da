"""Figures of the experiment `phase`."""

from typing import Any

import numpy as np
import xarray as xr

from jaxfed import drawing

DISTANCE = r"$\|\bar D - D_i\|_1$ (0: i.i.d., 2: disjoint)"


def draw(data: dict[str, xr.Dataset]) -> dict[str, Any]:
    """Return the figures of what there is: "phase" and "mixing" of the part `gains`, "diversity" of that part."""
    figures = {}
    if "gains" in data:
        figures |= {"phase": phase(data["gains"]), "mixing": mixing(data["gains"])}
    if "diversity" in data:
        figures["diversity"] = diversity(data["diversity"])
    return figures


def phase(found: xr.Dataset) -> Any:
    """Draw gains over FedAvg and over local training, and who is best, as maps."""
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13.5, 7.0), dpi=120, layout="constrained")
    axes = figure.subplots(2, 3)
    loss = found.loss.mean("replicate").transpose("rows", "skew", "weight")
    inner = [w for w in found.weight.values if w not in ("0.0", "1.0", "learned")]
    fedavg, local = (loss.sel(weight=w).values for w in ("0.0", "1.0"))
    mixtures = {"best fixed alpha": loss.sel(weight=inner).min("weight").values, "learned alpha":
                loss.sel(weight="learned").values}  # fmt: skip
    for (left, middle, right), (name, mixture) in zip(axes, mixtures.items(), strict=True):
        _map(left, found, fedavg - mixture, "nats", f"{name}: gain over FedAvg")
        _map(middle, found, local - mixture, "nats", f"{name}: gain over local training")
        names, best = ["FedAvg", "mixture", "local"], np.argmin([fedavg, mixture, local], axis=0)
        right.imshow(best, origin="lower", aspect="auto", cmap=ListedColormap(list(drawing.COLORS[:3])), vmin=0, vmax=2)
        for (j, i), k in np.ndenumerate(best):
            right.text(i, j, names[k], ha="center", va="center", color="k" if k == 1 else "w", fontsize=8)
        _ticks(right, found, f"{name}: the least test loss")
    figure.suptitle("Mixing beats FedAvg where clients differ and local training where they do not or have few rows")
    return figure


def _map(ax: Any, found: xr.Dataset, values: np.ndarray, label: str, title: str) -> None:
    most = float(np.abs(values).max()) or 1.0
    shown = ax.imshow(values, origin="lower", aspect="auto", cmap="PuOr", vmin=-most, vmax=most)
    for (j, i), v in np.ndenumerate(values):
        ax.text(i, j, f"{v:+.2f}", ha="center", va="center", fontsize=8, color="w" if abs(v) > 0.6 * most else "k")
    ax.figure.colorbar(shown, ax=ax, label=label, pad=0.02)
    _ticks(ax, found, title)


def _ticks(ax: Any, found: xr.Dataset, title: str) -> None:
    ax.set_xticks(range(found.sizes["skew"]), [f"{v:.2g}" for v in found.divergence.values])
    ax.set_yticks(range(found.sizes["rows"]), [str(v) for v in found.rows.values])
    ax.set(xlabel=DISTANCE, ylabel="training rows of a client, $m_i$", title=title)


def mixing(found: xr.Dataset) -> Any:
    """Draw the test loss against the fixed mixing weight, one panel for each m_i, a line for each divergence."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.3 * found.sizes["rows"], 3.9), dpi=120, layout="constrained")
    axes = np.atleast_1d(figure.subplots(1, found.sizes["rows"], sharey=True))
    fixed = [w for w in found.weight.values if w != "learned"]
    places = np.array([float(w) for w in fixed])
    colors = drawing.palette(f"{v:.2g}" for v in found.divergence.values)
    for ax, rows in zip(axes, found.rows.values, strict=True):
        drawing.axes(ax)
        for i, (name, color) in enumerate(colors.items()):
            values = found.loss.sel(rows=rows).isel(skew=i)
            _band(ax, places, values.sel(weight=fixed).transpose("replicate", "weight").values, name, color)
            ax.plot(1.12, float(values.sel(weight="learned").mean()), "D", color=color, markersize=5)
        ax.set(xlabel=r"mixing weight $\alpha$: 0 FedAvg, 1 local", title=f"$m_i$ = {rows}")
        ax.set_xticks([*places, 1.12], [*(f"{x:g}" for x in places), "learned"])
    axes[0].set_ylabel("test loss, nats (mean of clients; band: sd)")
    axes[-1].legend(title=r"$\|\bar D - D_i\|_1$", frameon=False, fontsize="small")
    figure.suptitle("The more clients differ, and the more rows they have, the more of its own model each should use")
    return figure


def diversity(found: xr.Dataset) -> Any:
    """Draw the test loss against the divergence, as the paper's Figure 1 does."""
    ax = drawing.axes(None, (6.8, 4.2))
    for name, color in drawing.palette(found.algorithm.values).items():
        model = "personal models" if name == "APFL" else "global model"
        _band(ax, found.divergence.values, found.loss.sel(algorithm=name).values, f"{name}, {model}", color)
    for place, k in zip(found.divergence.values, found.classes.values, strict=True):
        ax.annotate(f"{k}", (place, 1.0), xycoords=("data", "axes fraction"), ha="center", va="bottom", fontsize=7)
    ax.set(xlabel=DISTANCE, ylabel="test loss, nats (mean of clients; band: sd)")
    ax.set_title("As clients' digits differ more, FedAvg's model loses, SCAFFOLD's does not,\n"
                 "and personal models gain (top: classes per client)",
                 fontsize=10, pad=14)  # fmt: skip
    ax.legend(frameon=False, fontsize="small")
    return ax.figure


def _band(ax: Any, x: np.ndarray, values: np.ndarray, name: str, color: Any) -> None:
    """Draw the mean of values [replicate, place] with a band of one standard deviation."""
    middle, deviation = values.mean(axis=0), values.std(axis=0)
    ax.fill_between(x, middle - deviation, middle + deviation, color=color, alpha=0.2, linewidth=0)
    ax.plot(x, middle, "o-", color=color, label=name, markersize=4)
