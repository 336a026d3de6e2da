"""What the vertical experiments share: data, problems, step sizes from the paper's grid, records as one Dataset."""

import argparse
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np
import xarray as xr

import jaxfed as jf
from jaxfed import results

METHODS = {"SGD": jf.VFB2SGD, "SVRG": jf.VFB2SVRG, "SAGA": jf.VFB2SAGA}
COLORS = {"SGD": "#0072B2", "SVRG": "#D55E00", "SAGA": "#009E73"}
PROBLEMS = {  # the paper's numbers
    13: ("logistic", "l2", "logistic regression"),
    14: ("logistic", "nonconvex", "logistic regression, nonconvex regulariser"),
    17: ("squared", "l2", "ridge regression"),
    18: ("robust", "none", "robust regression"),
}
GRID = (0.5, 0.1, 0.05, 0.01, 5e-3, 1e-3, 5e-4, 1e-4)  # the paper's {5e-1, 1e-1, 5e-2, 1e-2, ...}
# The paper's weight is 1e-4 everywhere. The classes of breast_cancer are separable: under (14), whose regulariser is
# bounded, that weight has no minimiser nearby (the weights' norm goes beyond 1e4), and 1e-2 has one.
L2 = {("breast_cancer", 14): 1e-2}


def arguments(doc: str, trials: int, **options: Any) -> argparse.Namespace:
    """Return the command line's settings; each of `options` is one more, name=(default, help)."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--dataset", default="breast_cancer", help="breast_cancer, diabetes, credit (JAXFED_DATA_DIR)")
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder to write to (overwritten)")
    parser.add_argument("--trials", type=int, default=trials, help="deals of the columns, each with its own samples")
    parser.add_argument("--smoke", action="store_true", help="a tiny version, to see that everything works")
    for name, (default, text) in options.items():
        parser.add_argument(f"--{name}", type=type(default), default=default, help=f"{text} (default {default})")
    args = parser.parse_args()
    jax.config.update("jax_enable_x64", True)  # distances to the optimum are below float32's rounding
    args.trials = min(args.trials, 1) if args.smoke else args.trials
    return args


def load(name: str, wide: bool = False) -> Any:
    """Return the arrays of a data set. Targets of diabetes lie in [0, 1], as the paper scales them.

    wide: diabetes with the 64 columns of Efron et al. (2004): its ten features, their 45 products and nine squares (sex
    has two values), standardised; more parties than ten need them.
    """
    ex = jf.datasets.load(name)
    if name != "diabetes":
        return ex
    low, high = ex.y.min(), ex.y.max()
    ex = ex._replace(y=(ex.y - low) / (high - low), y_test=(ex.y_test - low) / (high - low))
    if not wide:
        return ex
    first, second = np.triu_indices(ex.x.shape[1])
    keep = (first != second) | np.array([len(np.unique(column)) > 2 for column in ex.x.T])[first]
    x, x_test = (np.hstack([x, (x[:, first] * x[:, second])[:, keep]]) for x in (ex.x, ex.x_test))
    shift, scale = x.mean(0), x.std(0)
    return ex._replace(x=(x - shift) / scale, x_test=(x_test - shift) / scale)


def split(ex: Any, num_parties: int, num_active: int, seed: int = 0) -> tuple[Any, Any]:
    """Return training and test rows with the columns dealt at random; an intercept is at the first party."""
    party = jf.vertical.split(ex.x, ex.y, num_parties, num_active, seed, intercept=True)
    return party, party.like(ex.x_test, ex.y_test)


def parties(party: Any, **times: Any) -> Any:
    """Return the asynchronous scheduler of all experiments: the last party's updates are 40 % slower.

    `.synchronous()` of it has the same times and the same straggler (the paper slows only synchronous runs down).
    """
    return jf.vertical.BilevelAsync(party, **times).slow(party.num_parties - 1, update=1.4)


def objective(dataset: str, problem: int) -> Any:
    """Return the objective of one of the paper's problems."""
    loss, regularizer, _ = PROBLEMS[problem]
    return jf.vertical.Objective(loss, regularizer, L2.get((dataset, problem), 1e-4))


def problems(ex: Any) -> tuple[int, int]:
    """Return the two problems for these labels: (13) and (14) for classes, (17) and (18) for targets."""
    return (13, 14) if len(np.unique(ex.y)) == 2 else (17, 18)


def record(algorithm: Any, party: Any, scheduler: Any, epochs: float, seed: int, test: Any = None, every: float = 1.0):
    """Return (Dataset with dimension `record`, parameters in the user's order) of one run."""
    length, step = jf.vertical.Epochs(epochs), jf.vertical.Epochs(every)
    with warnings.catch_warnings():
        for message in ("diverged", "Mean of empty slice"):  # a step of the grid may diverge; `finite` says so
            warnings.filterwarnings("ignore", message)
        out = jf.run(seed, algorithm, party, test=test, scheduler=scheduler, num_rounds=length, every=step)
    ds = out.dataset.rename(round="record").reset_coords("time").drop_vars(["record", "party", "party_size", "active"])
    return ds, party.join(algorithm.params(out.state))


def tuned(method: Any, target: Any, party: Any, schedulers: list, epochs: float, grid: tuple = GRID) -> float:
    """Return the step size of the grid with the least training objective at the worse of `schedulers`.

    So one size serves the synchronous and the asynchronous run. The objective is a mean over the last third of the
    epochs, since one record may lie in a spike. Seed 0.
    """

    def loss(lr: float) -> float:
        runs = [record(method(target, lr=lr), party, s, epochs, 0, every=epochs / 30)[0] for s in schedulers]
        ends = [float(run["objective"][-10:].mean(skipna=False)) for run in runs]
        return max(end if np.isfinite(end) else np.inf for end in ends)

    return min(grid, key=loss) if len(grid) > 1 else grid[0]


def stack(runs: dict[Any, Any], dim: str) -> xr.Dataset:
    """Return Datasets side by side along a new dimension whose coordinate is the keys."""
    names = list(runs)
    labels = np.array(names, dtype=object) if isinstance(names[0], str) else np.array(names)
    how: dict[str, Any] = dict(data_vars="all", coords="different", compat="equals", combine_attrs="drop", join="outer")
    return xr.concat(list(runs.values()), xr.DataArray(labels, dims=dim, name=dim), **how)


def reached(ds: xr.Dataset, gap: Any, by: str) -> xr.DataArray:
    """Return `by` (time or epochs) when `suboptimality` first falls to `gap`, nan where it does not; the log of the
    suboptimality is interpolated between records. Dimension `record` goes."""

    def first(gaps, at, gap):
        below = np.flatnonzero(gaps <= gap)
        if not len(below) or below[0] == 0:
            return np.nan if not len(below) else at[0]
        j = below[0]
        high, low = np.log(gaps[j - 1] / gap), np.log(gap / max(gaps[j], 1e-300))
        return at[j - 1] + (at[j] - at[j - 1]) * high / (high + low)

    dims = [["record"], ["record"], []]
    return xr.apply_ufunc(first, ds["suboptimality"], ds[by], gap, input_core_dims=dims, vectorize=True)


def save(ds: xr.Dataset, fig: Any, out: Path, name: str) -> None:
    """Write results.nc and the figure, and say where they are."""
    out.mkdir(parents=True, exist_ok=True)
    results.save_dataset(ds, out / "results.nc")
    fig.savefig(out / f"{name}.png")
    print(f"\nwritten to {out}: {name}.png, results.nc")


def figure(width: float, height: float) -> Any:
    """Return an empty figure that pyplot does not know of."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=150, layout="constrained")
