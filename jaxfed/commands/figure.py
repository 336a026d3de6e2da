"""The figure that a run leaves beside its results."""

from typing import Any

import xarray as xr

from jaxfed import plots


def run_figure(ds: xr.Dataset) -> Any:
    """Return a matplotlib Figure: both models' test accuracy (or loss) by round, and alpha where there is one.

    `ds` is a run's (round, client) or a comparison's (algorithm and seed too). Lines are means over clients and seeds;
    the band of a single run leaves out the lowest and the highest tenth of the clients. A vertical run's figure is
    that of `plots.vertical_run`.
    """
    if "dominated_updates" in ds:
        return plots.vertical_run(ds)[0].figure
    from matplotlib.figure import Figure  # without pyplot: no window, no global state

    kind = "accuracy" if "personal_test_accuracy" in ds else "loss"
    panels = 2 if "mixing_weight" in ds else 1
    figure = Figure(figsize=(5.5 * panels, 4), layout="constrained")
    axes = figure.subplots(1, panels, squeeze=False)[0]
    names = ds["algorithm"].values if "algorithm" in ds.dims else [None]
    for i, name in enumerate(names):
        one = ds if name is None else ds.sel(algorithm=name)
        label, color = "" if name is None else f"{name}, ", f"C{i}"
        _line(axes[0], one[f"personal_test_{kind}"], f"{label}personal", color, band=name is None)
        _line(axes[0], one[f"server_test_{kind}"], f"{label}server", color, linestyle="--")
        if panels == 2 and bool(one["mixing_weight"].notnull().any()):
            _line(axes[1], one["mixing_weight"], str(name or "alpha"), color, band=name is None)
    axes[0].set(xlabel="round", ylabel=f"test {kind}, mean over clients")
    axes[0].legend(fontsize="small")
    axes[0].xaxis.get_major_locator().set_params(integer=True)
    if panels == 2:
        axes[1].set(xlabel="round", ylabel="mixing weight alpha", ylim=(-0.02, 1.02))
        axes[1].legend(fontsize="small")
        axes[1].xaxis.get_major_locator().set_params(integer=True)
    return figure


def _line(axis: Any, values: xr.DataArray, label: str, color: str, *, band: bool = False, linestyle: str = "-") -> None:
    over = [dim for dim in values.dims if dim != "round"]
    axis.plot(values["round"], values.mean(over), linestyle, label=label, color=color)
    if band:
        low, high = (values.quantile(q, over) for q in (0.1, 0.9))
        label = "clients, tenths 2 to 9"
        axis.fill_between(values["round"], low, high, color=color, alpha=0.15, linewidth=0, label=label)
