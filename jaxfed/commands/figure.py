"""The figure that a run, a comparison or a sweep leaves beside its results."""

from typing import Any

import numpy as np
import xarray as xr

from jaxfed import drawing, plots, results, sweep_plots


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


def sweep_figure(ds: xr.Dataset, by: str | None = None) -> Any:
    """Return a matplotlib Figure of a sweep: what its points were chosen by over two axes, and test figures along one.

    Left: a map over the first two axes that have several values (a curve along the only one), the best framed; other
    axes are at the best point's values. Right: the test quantity along the first, a colour for each value of the
    second. Where there is no such axis: by rounds. Means over clients and seeds; bands: one standard deviation over
    seeds.
    """
    from matplotlib.figure import Figure

    frame = results.best_table(ds, by, allow_test=by is not None)
    by = results.criterion(ds) if by is None else by
    axes = [dim for dim in results.sweep_axes(ds) if ds.sizes[dim] > 1]
    shown = results.shown_quantities(ds)[:1] or [by]
    best = np.unravel_index(int(frame.index[0]), [ds.sizes[dim] for dim in results.sweep_axes(ds)])
    place = {dim: int(i) for dim, i in zip(results.sweep_axes(ds), best, strict=True)}
    fixed = {dim: i for dim, i in place.items() if dim not in axes[:2]}
    figure = Figure(figsize=(12, 4.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    if not axes:
        for ax, name in ((left, by), (right, shown[0])):
            _by_round(ds.isel(place), name, ax)
        return figure
    some = ds.isel({dim: [i] for dim, i in fixed.items()})
    if len(axes) > 1:
        y, x = axes[:2]
        values = results.lane_values(some, by).isel({dim: 0 for dim in fixed}).mean("seed", skipna=False)
        values = values.assign_coords({dim: sweep_plots.labels(ds, dim) for dim in (x, y)})
        plots.heat_map(values, x, y, left, best=sweep_plots.better(by))
        lost = "; grey: diverged" if values.isnull().any() else ""
        left.set_title(f"framed: the best{lost}", loc="left", fontsize="small")
        sweep_plots.along(some, shown[0], x, y, right)
    else:
        alike = by.rpartition("_")[2] == shown[0].rpartition("_")[2]
        names = list(dict.fromkeys((by, *shown))) if alike else [by]
        for style, name in zip(drawing.STYLES, names, strict=False):
            sweep_plots.along(some, name, axes[0], ax=left, style=style, color="C0")
        drawing.style_legend(left, names)
        drawing.value_axis(left, "y", names)
        _by_round(some.squeeze(list(fixed), drop=True), shown[0], right, axes[0])
    at = [f"{sweep_plots.axis_name(dim)} {sweep_plots.labels(ds, dim)[i]}" for dim, i in fixed.items() if dim in axes]
    band = "shaded: one standard deviation over seeds" if ds.sizes.get("seed", 1) > 1 else ""
    right.set_title("; ".join(filter(None, [", ".join(at), band])), loc="left", fontsize="small")
    return figure


def _by_round(ds: xr.Dataset, name: str, ax: Any, by: str | None = None) -> None:
    """Draw the mean over clients and seeds by rounds, with the positions on an axis told apart by their values."""
    found = results.scalars(ds)
    values = found[name] if name in found else found[f"{name}_mean_over_clients"]
    if "finite" in found:
        values = values.where(found["finite"].astype(bool))
    if "seed" in values.dims:
        values = values.where(values.notnull().all("seed"))
    one = xr.Dataset({name: values.drop_vars([c for c in values.coords if c != "round"])})
    if by is not None:
        one = one.assign_coords({by: [f"{sweep_plots.axis_name(by)} {text}" for text in sweep_plots.labels(ds, by)]})
    plots.curves(one.assign_coords(time=one["round"]), name, by, ax)
    ax.set_xlabel("tick" if "dominated_updates" in ds else "communication round")
    drawing.value_axis(ax, "y", [name])
