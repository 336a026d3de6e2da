"""What is printed of a run or of a comparison: the figures people report, of the last recorded round's test rows."""

from typing import Any

import numpy as np
import xarray as xr

from jaxfed import results
from jaxfed.commands import vertical_report
from jaxfed.commands.aligned import aligned, in_bytes

FIGURES = ("mean_over_clients", "mean_over_examples", "worst_decile", "worst_client")


def title(command: str, options: Any) -> str:
    """Return one line on what was run."""
    if command == "vfb2":
        return vertical_report.title(options)
    d = options.data
    deals = (
        (d.classes_per_client, f"{d.classes_per_client} classes each"),
        (d.concentration, f"Dirichlet({d.concentration}) labels"),
        (d.quantity, f"Dirichlet({d.quantity}) sizes"),
    )
    deal = next((words for value, words in deals if value is not None), "iid")
    seeds = f", {options.seeds} seeds" if command == "compare" and options.seeds > 1 else ""
    return f"{command} on {d.dataset}: {d.num_clients} clients, {deal}, {options.net.model}{seeds}"


def table(ds: xr.Dataset, target_accuracy: float | None = None, target_objective: float | None = None) -> str:
    """Return the table of a run (dimensions round, client) or of a comparison (algorithm and seed too).

    A vertical run's has no clients; only it can have a target for the objective.
    """
    if "dominated_updates" in ds:
        return vertical_report.table(ds, target_accuracy, target_objective)
    return _comparison(ds, target_accuracy) if "algorithm" in ds.dims else _one_run(ds, target_accuracy)


def _one_run(ds: xr.Dataset, target_accuracy: float | None) -> str:
    personal, server = (results.summary(ds, model=model) for model in ("personal", "server"))
    rows = [[f"{_test(ds)}, round {int(ds['round'][-1])}", "personal", "server"]]
    rows += [[name.replace("_", " "), f"{personal[name]:.4f}", f"{server[name]:.4f}"] for name in FIGURES]
    lines = [aligned(rows)]
    if "mixing_weight" in ds:
        alpha = ds["mixing_weight"].isel(round=-1)
        low, mean, high = (float(value) for value in (alpha.min(), alpha.mean(), alpha.max()))
        lines.append(f"alpha: {mean:.4f} over clients, spread {float(alpha.std()):.4f}, {low:.4f} to {high:.4f}")
    if target_accuracy is not None:
        for model in ("personal", "server"):
            lines.append(f"accuracy {target_accuracy:g} by {model}: {_reached(ds, target_accuracy, model)}")
    lines.append(f"sent, both ways: {in_bytes(_sent(ds))}")
    if not bool(ds["finite"].all()):
        lines.append(f"diverged: not finite from round {int(ds['round'][~ds['finite'].values][0])} on")
    return "\n".join(lines)


def _comparison(ds: xr.Dataset, target_accuracy: float | None) -> str:
    """Return one line for each algorithm: means over seeds, for the first with the standard deviation over them."""
    rows = [[_test(ds), "mean", "by examples", "worst decile", "worst client", "server's mean", "alpha", "sent"]]
    if target_accuracy is not None:
        rows[0].append(f"rounds to {target_accuracy:g}")
    for name in ds["algorithm"].values:
        lanes = [ds.sel(algorithm=name, seed=seed) for seed in ds["seed"].values]
        runs = [run.assign_attrs(bytes_per_visit=float(run["bytes_per_visit"])) for run in lanes]
        personal, server = ([results.summary(run, model=m) for run in runs] for m in ("personal", "server"))
        values = {figure: [summary[figure] for summary in personal] for figure in FIGURES}
        row = [str(name), *(f"{np.mean(values[figure]):.4f}" for figure in FIGURES)]
        if len(runs) > 1:
            row[1] += f" +- {np.std(values['mean_over_clients'], ddof=1):.4f}"
        row.append(f"{np.mean([summary['mean_over_clients'] for summary in server]):.4f}")
        alpha = np.array([run["mixing_weight"][-1].mean() for run in runs if "mixing_weight" in run])
        row.append(f"{alpha.mean():.4f}" if np.isfinite(alpha).any() else "")
        row.append(in_bytes(np.mean([_sent(run) for run in runs])))
        if target_accuracy is not None:
            reached = [results.rounds_to(run, target_accuracy) for run in runs]
            row.append("not reached" if None in reached else f"{np.mean(np.array(reached, float)):g}")
        rows.append(row)
    return aligned(rows) + "\nof the personal models, but for the server's mean over clients"


def _test(ds: xr.Dataset) -> str:
    return "test accuracy" if "personal_test_accuracy" in ds else "test loss"


def _reached(ds: xr.Dataset, accuracy: float, model: str) -> str:
    at = results.rounds_to(ds, accuracy, f"{model}_test_accuracy")
    return "not reached" if at is None else f"round {at}, after {in_bytes(_sent(ds.sel(round=slice(None, at))))}"


def _sent(ds: xr.Dataset) -> float:
    """Return the bytes sent until the last record; a run that was ended before its first round has sent none."""
    return float(results.bytes_sent(ds).isel(round=-1)) if "visits" in ds else 0.0
