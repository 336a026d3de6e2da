"""What defences cost and what they hide: leakage against accuracy, one run for each strength, as a figure."""

from typing import Any

import numpy as np
import xarray as xr

from jaxfed.privacy import label_metrics, labels
from jaxfed.privacy.defences import Clip, Gaussian, MaxNorm, RandomisedResponse
from jaxfed.privacy.marvell import Marvell
from jaxfed.privacy.messages import gather
from jaxfed.privacy.runs import Runs

# what is swept, from weak to strong: a strength is one traced field, so a defence compiles once
# (the defence, its field, the strengths, rows of a minibatch or None: the run's own; Marvell takes statistics of them)
DEFENCES: dict[str, tuple[Any, str, tuple[float, ...], int | None]] = {
    "Gaussian": (Gaussian(), "std", (0.1, 0.3, 1.0, 3.0, 10.0), None),
    "max-norm": (MaxNorm(), "strength", (0.25, 0.5, 1.0, 2.0, 4.0), None),
    "Marvell, b = 8": (Marvell(), "power", (0.25, 1.0, 4.0, 16.0, 64.0), 8),
    "randomised response": (RandomisedResponse(), "epsilon", (4.0, 2.0, 1.0, 0.5, 0.25), None),
    "clipping": (Clip(), "bound", (0.5, 0.2, 0.05, 0.01, 0.001), None),
}


def measure(
    runs: Runs, defences: dict[str, tuple[Any, str, tuple[float, ...], int | None]] | None = None
) -> xr.Dataset:
    """Return accuracy, and the AUC of the labels, per message and of each sample's mean, dims (defence, level).

    The AUC of -theta or of its sign, whichever is greater: of a label that was flipped by randomised response theta
    tells no more than its sign, and its size is the model's own opinion, which ranks the wrong way. Coordinate
    `strength` [defence, level], in the units of each defence's field. Level 0 is the run without a defence.
    """
    defences = DEFENCES if defences is None else defences
    whole = runs.algorithm.replace(defence=None)  # whatever the run's own defence and window are
    plain = _point(runs, runs.plain if runs.window is None and runs.algorithm.defence is None else runs.record(whole))
    points = []
    for defence, field, strengths, batch_size in defences.values():
        algorithm = whole if batch_size is None else whole.replace(batch_size=batch_size)
        made = [algorithm.replace(defence=defence.replace(**{field: value})) for value in strengths]
        bare = plain if batch_size is None else _point(runs, runs.record(algorithm))
        points.append([bare, *(_point(runs, runs.record(each)) for each in made)])
    points = np.array(points)
    names = ("accuracy", "auc_message", "auc_run")
    strength = np.array([[np.nan, *strengths] for _, _, strengths, _ in defences.values()])
    return xr.Dataset(
        {name: (("defence", "level"), points[..., i]) for i, name in enumerate(names)},
        coords={
            "defence": list(defences),
            "strength": (("defence", "level"), strength),
            "field": ("defence", [field for _, field, _, _ in defences.values()]),
        },
        attrs={"rows": "test" if runs.test is not None else "training", "attacker": runs.attacker},
    )


def _point(runs: Runs, transcript: Any) -> tuple[float, float, float]:
    guesses = labels.by_sign(runs.view(transcript))
    votes = gather(len(runs.labels), guesses.rows, np.sign(guesses.each))
    judged = [label_metrics.judge(runs.labels, each) for each in (guesses, votes)]
    aucs = np.array([[each.message_auc, each.auc_mean] for each in judged])
    # either way round: an attacker with one known label turns a score that ranks the wrong way
    message, run = np.maximum(aucs, 1 - aucs).max(0)
    return runs.accuracy(transcript), float(message), float(run)


def draw(ds: xr.Dataset) -> Any:
    """Return the figure: accuracy against the AUC of the labels, in one message and over the run, a line a defence."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    panels = (("auc_message", "in one message"), ("auc_run", "in the mean of a sample's messages"))
    for axis, (name, where) in zip(axes, panels, strict=True):
        for k, defence in enumerate(ds["defence"].values):
            own = ds.sel(defence=defence)
            axis.plot(own[name], own["accuracy"], "o-", color=f"C{k}", markersize=4, label=str(defence))
            for x, y, value in zip(own[name].values, own["accuracy"].values, own["strength"].values, strict=True):
                if np.isfinite(value):
                    axis.annotate(f"{value:g}", (x, y), fontsize=6, xytext=(2, 3), textcoords="offset points")
        axis.plot(
            ds["auc_message"].values[0, :1], ds["accuracy"].values[0, :1], "k*", markersize=11, label="no defence"
        )
        axis.axvline(0.5, color="0.6", linewidth=0.8, linestyle=":")
        axis.set_xlabel(f"AUC of the labels {where}\n(0.5: chance)")
    axes[0].set_ylabel(f"accuracy on {ds.attrs['rows']} rows")
    axes[0].legend(fontsize=8)
    figure.suptitle(
        "What defences hide and what they cost, from the weakest strength (upper right) to the strongest", fontsize=10
    )
    return figure


def table(ds: xr.Dataset) -> str:
    """Return the same as text, a line for each defence and strength."""
    lines = [f"{'defence':32} {ds.attrs['rows'] + ' accuracy':>18} {'AUC per message':>16} {'AUC over the run':>17}"]
    for defence in ds["defence"].values:
        own = ds.sel(defence=defence)
        for level in range(ds.sizes["level"]):
            strength = float(own["strength"][level])
            name = f"{defence}: none" if np.isnan(strength) else f"{defence}: {str(own['field'].values)} {strength:g}"
            numbers = (float(own[key][level]) for key in ("accuracy", "auc_message", "auc_run"))
            lines.append(f"{name:32} {next(numbers):18.3f} {next(numbers):16.3f} {next(numbers):17.3f}")
    return "\n".join(lines)
