"""Staleness against rate of convergence (our own experiment, in place of the theorems' bounds on tau).

Problem (13), for diabetes (17), with l2 = 1e-2 so that the linear rate shows within few epochs; 8 parties, 3 with
labels. First `FixedDelay`: one update of each dominator a tick, read d ticks before it is completed and applied d ticks
after (so a step is 2 d ticks or 6 d dominated updates old), for several step sizes; all delays of a method run on one
compiled program. Then `BilevelAsync` with its bounds tau1 = tau2 = tau, at one step size (the best of the grid with tau
= 0: least training objective, mean over the last third): what a bound costs in time and gains in rate. Rates of SVRG
and SAGA are least squares slopes of log10 (f - f*), digits per epoch, between 1e-2 of the start and 1e-11; for SGD the
noise floor counts, the geometric mean of f - f* over the last third. nan: diverged. Writes results.nc and
staleness.png.
"""

import numpy as np
import vertical_common as common
import xarray as xr

from jaxfed import drawing, runner, vertical

DELAYS = (0, 1, 2, 4, 8, 16, 32)
STEPS = {
    "breast_cancer": (0.1, 0.05, 0.01, 0.005),
    "diabetes": (0.05, 0.01, 0.005, 0.001),
    "credit": (0.05, 0.01, 0.005),
}
EPOCHS = {"breast_cancer": 100, "diabetes": 100, "credit": 20}
L2 = 1e-2


def experiment(ex, dataset: str, options: dict, trials: int) -> xr.Dataset:
    """Return rates and floors: `fixed_` of algorithm, step, delay, trial, `bound_` of algorithm, bound, trial."""
    target = common.objective(dataset, common.problems(ex)[0]).replace(l2=L2)
    most, by_method = max(options["delays"]), {}
    splits = [common.split(ex, 8, 3, trial)[0] for trial in range(trials)]
    best = vertical.optimum(target, splits[0]).value
    for name in options["methods"]:
        method = common.METHODS[name]

        def figures(scheduler, lr, trial, method=method, name=name):
            ds, _ = common.record(method(target, lr=lr), splits[trial], scheduler, options["epochs"], trial)
            return measured(ds.assign(suboptimality=ds["objective"] - best), name)

        def delayed(d, lr, trial, figures=figures):
            return figures(vertical.FixedDelay(splits[trial], read=d, message=d, bound=most), lr, trial)

        delayed(0, options["steps"][0], 0)
        programs = runner.compiled_programs()
        fixed = common.stack({
            lr: common.stack({
                d: common.stack({t: delayed(d, lr, t) for t in range(trials)}, "trial") for d in options["delays"]
            }, "delay") for lr in options["steps"]
        }, "step").assign(programs=runner.compiled_programs() - programs)  # fmt: skip

        serial = common.parties(splits[0], tau1=0, tau2=0)
        lr = common.tuned(method, target, splits[0], [serial], options["epochs"], options["grid"])
        bound = common.stack({
            tau: common.stack({
                t: figures(common.parties(splits[t], tau1=tau, tau2=tau, seed=t), lr, t) for t in range(trials)
            }, "trial") for tau in options["delays"]
        }, "bound").assign(lr=lr)  # fmt: skip
        parts = {"fixed": fixed, "bound": bound}
        named = [ds.rename({v: f"{kind}_{v}" for v in ds.data_vars}) for kind, ds in parts.items()]
        by_method[name] = xr.merge(named)
    attrs = dict(dataset=dataset, problem=common.problems(ex)[0], l2=L2, epochs=options["epochs"])
    return common.stack(by_method, "algorithm").assign(optimum=best).assign_attrs(attrs)


def measured(ds: xr.Dataset, name: str) -> xr.Dataset:
    """Return `rate` (digits per epoch; nan for SGD), `floor` and `seconds` per epoch of one run."""
    gap, epochs = ds["suboptimality"].values, ds["epochs"].values
    late = gap[-max(len(gap) // 3, 1) :]
    whole = np.isfinite(gap).all() and gap[-1] < gap[0]
    floor = np.exp(np.log(np.maximum(late, 1e-17)).mean()) if whole else np.nan
    below, done = np.flatnonzero(gap < 1e-2 * gap[0]), np.flatnonzero(gap < 1e-11)
    first, last = (below[0] if len(below) else 0), (done[0] if len(done) else len(gap))
    line = slice(min(first, last - 2), last)
    rate = -np.polyfit(epochs[line], np.log10(gap[line]), 1)[0] if whole and name != "SGD" else np.nan
    seconds = float(ds["time"][-1]) / epochs[-1]
    return xr.Dataset({"rate": rate, "floor": floor, "seconds": seconds})


def table(ds: xr.Dataset) -> str:
    """Return rates (for SGD noise floors) against the delay and the bound as text, means over trials."""
    delays = ds["delay"].values

    def line(label, values, form):
        return f"{label:28}" + "".join(f"{'-' if np.isnan(v) else format(v, form):>9}" for v in values)

    lines = [line("FixedDelay, ticks", delays, "d")]
    for name in ds["algorithm"].values:
        kind, form = ("floor", ".1e") if name == "SGD" else ("rate", ".3f")
        for lr in ds["step"].values:
            values = ds[f"fixed_{kind}"].sel(algorithm=name, step=lr).mean("trial", skipna=False).values
            lines.append(line(f"{name} {kind}, lr {lr:g}", values, form))
    lines += ["", line("BilevelAsync, tau1 = tau2", ds["bound"].values, "d")]
    for name in ds["algorithm"].values:
        kind, form = ("floor", ".1e") if name == "SGD" else ("rate", ".3f")
        one = ds.sel(algorithm=name).mean("trial", skipna=False)
        lines.append(line(f"{name} {kind}, lr {float(one['bound_lr']):g}", one[f"bound_{kind}"].values, form))
    lines.append(line("seconds per epoch", one["bound_seconds"].values, ".0f"))
    return "\n".join(lines)


def figure(ds: xr.Dataset):
    """Return the figure: for each method its rate against the delay, and for the bounds pace, rate and both."""
    fig = common.figure(11, 6.8)
    upper, lower = fig.subplots(2, 3)
    at, mean = np.arange(ds.sizes["delay"]), ds.mean("trial", skipna=False)
    for ax, name in zip(upper, ds["algorithm"].values, strict=False):
        one, kind = mean.sel(algorithm=name), "floor" if name == "SGD" else "rate"
        for lr, color in zip(ds["step"].values, drawing.COLORS, strict=False):
            ax.plot(at, one[f"fixed_{kind}"].sel(step=lr), "-o", color=color, markersize=4, label=f"lr {lr:g}")
        ax.set_title(f"{name}, FixedDelay", loc="left", fontsize=10)
        label = "noise floor of $f - f^*$" if kind == "floor" else "digits of $f - f^*$ per epoch"
        ax.set(xlabel="delay of reads and of messages (ticks)", ylabel=label)
        ax.set_yscale("log" if kind == "floor" else "linear")
        ax.legend(frameon=False, fontsize="small")
    pace = 1 / mean["bound_seconds"].isel(algorithm=0)
    lower[0].plot(at, pace / pace[0], "-o", color="0.2", markersize=4)
    lower[0].set(ylabel="epochs per second, over tau = 0", ylim=(0, None))
    for name in ds["algorithm"].values:
        rate, color = mean["bound_rate"].sel(algorithm=name), common.COLORS[name]
        if not rate.isnull().all():
            label = f"{name}, lr {float(mean['bound_lr'].sel(algorithm=name)):g}"
            lower[1].plot(at, rate, "-o", color=color, markersize=4, label=label)
            lower[2].plot(at, 1e3 * rate * pace, "-o", color=color, markersize=4, label=label)
    lower[1].set(ylabel="digits of $f - f^*$ per epoch", ylim=(0, None))
    lower[2].set(ylabel="digits per 1000 simulated s", ylim=(0, None))
    lower[1].legend(frameon=False, fontsize="small")
    for ax, title in zip(lower, ("pace", "rate per epoch", "rate per second"), strict=True):
        ax.set_xlabel("bounds tau1 = tau2 (dominated updates)")
        ax.set_title(f"BilevelAsync: {title}", loc="left", fontsize=10)
    for ax in (*upper, *lower):
        drawing.axes(ax)
        ax.set_xticks(at, ds["delay"].values)
    for ax in upper[ds.sizes["algorithm"] :]:
        ax.remove()
    info = ds.attrs
    fig.suptitle(f"{info['dataset']}, problem ({info['problem']}), l2 {info['l2']:g}: 8 parties, 3 active; mean of "
                 f"{ds.sizes['trial']} trials of {info['epochs']:g} epochs", fontsize=11)  # fmt: skip
    return fig


def main() -> None:
    args = common.arguments(__doc__, 3, epochs=(0.0, "length of a run; 0: by data set"))
    ex = common.load(args.dataset)
    options = dict(methods=list(common.METHODS), delays=DELAYS, steps=STEPS[args.dataset], grid=common.GRID)
    options["epochs"] = args.epochs or EPOCHS[args.dataset]
    if args.smoke:
        options |= dict(methods=["SVRG"], delays=(0, 8), steps=(0.05,), grid=(0.05,), epochs=20)
    ds = experiment(ex, args.dataset, options, args.trials)
    print(f"{args.dataset}, problem ({ds.attrs['problem']}), l2 {L2:g}: digits per epoch (SGD: noise floor), mean of "
          f"{args.trials} trials;\n"
          f"programs compiled after each method's first FixedDelay run: {ds['fixed_programs'].values}\n")  # fmt: skip
    print(table(ds))
    common.save(ds, figure(ds), args.out, "staleness")


if __name__ == "__main__":
    main()
