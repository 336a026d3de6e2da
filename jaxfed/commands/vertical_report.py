"""What is printed of a vertical run: the figures of its last record, and what it took in time and traffic."""

from typing import Any

import numpy as np
import xarray as xr

from jaxfed.commands.aligned import aligned, in_bytes

NAMES = {"accuracy": "accuracy", "auc": "AUC", "rmse": "root mean squared error"}


def title(options: Any) -> str:
    """Return one line on what was run."""
    data, method, schedule = options.data, options.method, options.schedule
    words = [f"lr {method.lr:g}", f"{data.parties} parties, {data.active} active", schedule.scheduler]
    if schedule.scheduler == "fixed":
        words[-1] += f" delays of {schedule.read_delay} and {schedule.message_delay} ticks"
    if schedule.straggler is not None:
        party = data.parties - 1 if schedule.straggler_party is None else schedule.straggler_party
        kind, late = schedule.straggler_kind, f"{schedule.straggler:g} s late"
        words.append(f"party {party} {late if kind == 'start' else f'{100 * schedule.straggler:g}% slower ({kind})'}")
    if method.forward_only:
        words.append("forward only")
    return f"vfb2 {method.method} on {data.dataset}: {', '.join(words)}"


def table(ds: xr.Dataset, target_accuracy: float | None = None, target_objective: float | None = None) -> str:
    """Return the last record of a run (dimension round), and when it reached the targets that are given."""
    last = ds.isel(round=-1)
    parts = [part for part in ("train", "test") if any(f"{part}_{kind}" in ds for kind in NAMES)]
    rows = [[f"epoch {float(last['epochs']):.3g}, tick {int(last['round'])}", *parts]]
    for kind, name in NAMES.items():
        if f"train_{kind}" in ds:
            rows.append([name, *(f"{float(last[f'{part}_{kind}']):.4f}" for part in parts)])
    lines = [
        aligned(rows),
        f"objective {float(last['objective']):.6g}, gradient norm {float(last['gradient_norm']):.3g}",
        f"simulated time {float(last['time']):.6g} s",
        f"{int(last['dominated_updates']):,} dominated updates, {int(last['block_updates']):,} block updates",
        f"sent: {int(last['messages']):,} messages, {in_bytes(float(last['bytes']))}",
    ]
    if target_objective is not None:
        lines.append(f"objective {target_objective:g}: {_reached(ds, ds['objective'] <= target_objective)}")
    if target_accuracy is not None and "test_accuracy" in ds:
        lines.append(f"test accuracy {target_accuracy:g}: {_reached(ds, ds['test_accuracy'] >= target_accuracy)}")
    if not bool(ds["finite"].all()):
        lines.append(f"diverged: not finite from tick {int(ds['round'][~ds['finite'].values][0])} on")
    return "\n".join(lines)


def _reached(ds: xr.Dataset, where: xr.DataArray) -> str:
    """Return the epoch, the time and the bytes of the first record that is so."""
    found = np.flatnonzero(where.values)
    if not len(found):
        return "not reached"
    at = ds.isel(round=found[0])
    return f"epoch {float(at['epochs']):.3g}, {float(at['time']):.6g} s, after {in_bytes(float(at['bytes']))}"
