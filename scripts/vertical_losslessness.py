"""Losslessness of VFB2 (the paper's Tables 2 and 3): against joined data and the optimum.

Compared are each method on joined features (NonF), as VFB2 (8 parties, 3 with labels, asynchronous, the last party's
updates 40 % slower), SVRG as synchronous VFB, and AFSVRG-VP: no backward updating, labels at 4 of the 8 parties. Each
trial deals the columns anew and draws its own samples; rows stay. Problems (13) and (14) for classes, (17) and (18) for
targets; l2 as in the paper, 1e-4 (but see L2 in vertical_common). Each method has one step size, from the paper's grid:
the one with the least training objective (mean over the last third of a run of a 30th of the epochs), at the worse of
the asynchronous and the synchronous run. All runs last equally long. "distance" is |w - w*| / |w*|, w* the central
optimum, in float64. Where f is not convex w* is a stationary point, and a run may end at another one: then its gradient
is small and its distance is not. Writes results.nc and losslessness.png.
"""

from types import SimpleNamespace

import numpy as np
import vertical_common as common
import xarray as xr

import jaxfed as jf
from jaxfed import drawing, vertical

EPOCHS = {"breast_cancer": 3000, "diabetes": 3000, "credit": 100}
ENDS = ("suboptimality", "gradient_norm", "distance")
KINDS = {"NonF": "o", "VFB2": "D", "VFB": "s", "AFSVRG-VP": "X"}


def runs(ex, target, rates: dict, epochs: float, trial: int) -> xr.Dataset:
    """Return the last record of every run of a trial, dims run and feature."""
    party, test = common.split(ex, min(8, ex.x.shape[1]), 3, trial)
    half, half_test = common.split(ex, party.num_parties, party.num_parties // 2, trial)
    joined, joined_test = vertical.non_federated(party), vertical.non_federated(test)
    clock, out = common.parties(party, seed=trial), {}

    def add(name, algorithm, data, rows, scheduler):
        ds, w = common.record(algorithm, data, scheduler, epochs, trial, rows, every=epochs)
        out[name] = ds.isel(record=-1).assign(params=("feature", w))

    for name, method in common.METHODS.items():
        if name not in rates:
            continue
        algorithm = method(target, lr=rates[name])
        add(f"NonF-{name}", algorithm, joined, joined_test, vertical.Synchronous(joined))
        add(f"VFB2-{name}", algorithm, party, test, clock)
        if name == "SVRG":
            add("VFB-SVRG", algorithm, party, test, clock.synchronous())
            add("AFSVRG-VP", vertical.afsvrg_vp(target, rates[name]), half, half_test, common.parties(half, seed=trial))
    return common.stack(out, "run")


def central(ex, target) -> xr.Dataset:
    """Return the optimum's parameters, value and test metrics."""
    party, test = common.split(ex, 1, 1)
    best = vertical.optimum(target, party)
    state = SimpleNamespace(weights=best.params)
    score = vertical.measures.fit(jf.VFB2SGD(target), state, party.with_parts(test))
    found = {name: float(v) for name, v in score.items() if name.startswith("test")}
    return xr.Dataset({"params": ("feature", party.join(best.params)), "objective": best.value, **found})


def experiment(ex, dataset: str, problems: tuple, methods: list, epochs: float, trials: int, grid: tuple) -> xr.Dataset:
    """Return all problems, runs and trials: dims problem, run, trial, feature."""
    by_problem = {}
    for problem in problems:
        target, party = common.objective(dataset, problem), common.split(ex, min(8, ex.x.shape[1]), 3)[0]
        clock = common.parties(party)
        both, short = [clock, clock.synchronous()], max(epochs / 30, 1)
        rates = {name: common.tuned(common.METHODS[name], target, party, both, short, grid) for name in methods}
        ds = common.stack({t: runs(ex, target, rates, epochs, t) for t in range(trials)}, "trial")
        best = central(ex, target)
        distance = np.sqrt(((ds["params"] - best["params"]) ** 2).sum("feature") / (best["params"] ** 2).sum())
        ds = ds.assign(distance=distance, suboptimality=ds["objective"] - best["objective"])
        used = [rates[str(name).split("-")[-1] if name != "AFSVRG-VP" else "SVRG"] for name in ds["run"].values]
        best = best.rename({name: f"optimum_{name}" for name in best})
        by_problem[problem] = ds.assign(best).assign(lr=("run", used))
    return common.stack(by_problem, "problem").assign_attrs(dataset=dataset, epochs=epochs)


def metrics(ds: xr.Dataset) -> dict[str, float]:
    """Return the metrics of the test rows, each with the factor it is shown with."""
    return {"test_rmse": 1} if "test_rmse" in ds else {"test_accuracy": 100, "test_auc": 100}


def table(ds: xr.Dataset) -> str:
    """Return means over trials (± standard deviations) as text, medians, the largest difference to NonF of a trial."""
    shown, lines = metrics(ds), []
    names = {"test_accuracy": "accuracy (%)", "test_auc": "AUC (%)", "test_rmse": "RMSE"}
    for problem in ds["problem"].values:
        one = ds.sel(problem=problem)
        lines += [f"\n({problem}) {common.PROBLEMS[problem][2]}, f* = {float(one['optimum_objective']):.8f}"]
        lines += [f"{'':12}{'lr':>7}" + "".join(f"{names[m]:>18}" for m in shown) + f"{'vs NonF':>9}"
                  f"{'f - f*':>10}{'gradient':>10}{'distance':>10}"]  # fmt: skip
        for name in one["run"].values:
            row = one.sel(run=name)
            cells = [_cell(row[m] * k, 4 if m == "test_rmse" else 2) for m, k in shown.items()]
            first = next(iter(shown))
            apart = float(abs(row[first] - one[first].sel(run="NonF-" + _method(name))).max()) * shown[first]
            far = "".join(f"{float(row[which].median()):>10.1e}" for which in ENDS)
            cells = "".join(f"{cell:>18}" for cell in cells)
            lines.append(f"{name:12}{float(row['lr']):>7g}{cells}{apart:>9.4f}{far}")
        best = [f"{float(one[f'optimum_{m}']) * k:.4f}" for m, k in shown.items()]
        lines.append(f"{'optimum':19}" + "".join(f"{cell:>18}" for cell in best))
    return "\n".join(lines)


def figure(ds: xr.Dataset):
    """Return the figure: for each problem the test metric and the distance to the optimum, a row for each run."""
    fig = common.figure(10, 1.2 + 0.3 * ds.sizes["run"] * ds.sizes["problem"])
    metric, factor = next(iter(metrics(ds).items()))
    for problem, row in zip(ds["problem"].values, fig.subplots(ds.sizes["problem"], 2, squeeze=False), strict=True):
        one = ds.sel(problem=problem)
        at = np.arange(one.sizes["run"])
        for ax, values in zip(row, (one[metric] * factor, one["distance"]), strict=True):
            drawing.axes(ax)
            for i, name in enumerate(one["run"].values):
                kind = name if name == "AFSVRG-VP" else name.split("-")[0]
                y = np.full(one.sizes["trial"], i)
                ax.scatter(values.sel(run=name), y, marker=KINDS[kind], color=common.COLORS[_method(name)], s=28,
                           alpha=0.55, linewidth=0)  # fmt: skip
            ax.set_ylim(len(at) - 0.5, -0.5)
            ax.set_yticks(at, one["run"].values if ax is row[0] else [""] * len(at))
            ax.grid(axis="y", color="0.92")
            ax.set_axisbelow(True)
        row[0].axvline(float(one[f"optimum_{metric}"]) * factor, color="0.4", linewidth=1, linestyle=":")
        row[0].set_xlabel("RMSE of test rows" if factor == 1 else "test accuracy (%)")
        row[0].set_title(f"({problem}) {common.PROBLEMS[problem][2]}; dotted: optimum", loc="left", fontsize=9.5)
        row[1].set(xscale="log", xlabel="distance to the central optimum, relative")
        row[1].set_title("a mark for each trial", loc="left", fontsize=9.5)
    fig.suptitle(f"{ds.attrs['dataset']}: {ds.attrs['epochs']:g} epochs, {ds.sizes['trial']} trials", fontsize=11)
    return fig


def _method(name: str) -> str:
    return "SVRG" if name == "AFSVRG-VP" else name.split("-")[1]


def _cell(values: xr.DataArray, digits: int) -> str:
    return f"{float(values.mean()):.{digits}f} ± {float(values.std()):.{digits}f}"


def main() -> None:
    args = common.arguments(__doc__, 10, epochs=(0.0, "length of a run; 0: 3000, for credit 100"))
    ex = common.load(args.dataset)
    epochs = args.epochs or EPOCHS[args.dataset]
    problems, methods, grid = common.problems(ex), list(common.METHODS), common.GRID
    if args.smoke:
        problems, methods, grid, epochs = problems[:1], ["SVRG"], (0.05,), args.epochs or 200
    ds = experiment(ex, args.dataset, problems, methods, epochs, args.trials, grid)
    print(f"{args.dataset}: {len(ex.y)} training and {len(ex.y_test)} test rows, {ex.x.shape[1]} features, intercept;"
          f" {epochs:g} epochs, {args.trials} trials (mean ± standard deviation)\n'vs NonF': the largest difference of "
          "the first metric to NonF in any trial; f - f*, |gradient| and distance: medians")  # fmt: skip
    print(table(ds))
    common.save(ds, figure(ds), args.out, "losslessness")


if __name__ == "__main__":
    main()
