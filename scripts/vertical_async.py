"""Asynchronous against synchronous parties: loss against simulated time and epochs (the paper's Figures 3, 4 and 6).

--figure 3: problem (13), 8 parties of which 3 have labels; 4: problem (14), the same; 6: problems (17) and (18), 12 and
2, on diabetes with the 64 columns of Efron et al. All three methods, each with one step size for both schedules, from
the paper's grid: the one with the least training objective, mean over the last third, at the worse of the two. The same
straggler in both (the paper: "30% to 50% slower", in synchronous runs only): the last party's updates take 40 % longer.
Seconds are simulated: an update takes 1, a reply 0.2, a message 0.1, each with 10 % jitter. An epoch is n dominated
updates. The loss is drawn above f*, the central optimum (where not convex: a stationary point; above the lowest loss of
all runs, if that is lower). "gain" is the synchronous over the asynchronous time to the same loss: the greater of the
losses that the two runs end with, each taken as the mean over the last fifth of the run. Writes results.nc and
async.png.
"""

import numpy as np
import vertical_common as common
import xarray as xr

from jaxfed import drawing, vertical

FIGURES = {3: ((13,), 8, 3), 4: ((14,), 8, 3), 6: ((17, 18), 12, 2)}  # problems, parties, of which active
EPOCHS = {"breast_cancer": 100, "diabetes": 200, "credit": 20}


def experiment(ex, dataset: str, figure: int, methods: list, epochs: float, trials: int, grid: tuple) -> xr.Dataset:
    """Return all runs: dims problem, algorithm, schedule, trial, record."""
    problems, num_parties, num_active = FIGURES[figure]
    by_problem = {}
    for problem in problems:
        target = common.objective(dataset, problem)
        party, _ = common.split(ex, num_parties, num_active)
        best, by_method = vertical.optimum(target, party), {}
        for name in methods:
            clock, method = common.parties(party), common.METHODS[name]
            rate = common.tuned(method, target, party, [clock, clock.synchronous()], epochs, grid)
            by_trial = {}
            for trial in range(trials):
                party, test = common.split(ex, num_parties, num_active, trial)
                clock = common.parties(party, seed=trial)
                by_trial[trial] = common.stack({
                    which: common.record(method(target, lr=rate), party, scheduler, epochs, trial, test)[0]
                    for which, scheduler in (("asynchronous", clock), ("synchronous", clock.synchronous()))
                }, "schedule")  # fmt: skip
            by_method[name] = common.stack(by_trial, "trial").assign(lr=rate)
        ds = common.stack(by_method, "algorithm")
        floor = min(best.value, float(ds["objective"].min()))
        by_problem[problem] = ds.assign(suboptimality=ds["objective"] - floor, optimum=best.value, floor=floor)
    ds = common.stack(by_problem, "problem")
    attrs = dict(dataset=dataset, num_parties=num_parties, num_active=num_active, figure=figure, epochs=epochs)
    return gains(ds).assign_attrs(attrs)


def gains(ds: xr.Dataset) -> xr.Dataset:
    """Return ds with `target`, the loss above f* that both runs reach, `seconds` to it, and their quotient `gain`."""
    last = ds["suboptimality"].isel(record=slice(-max(ds.sizes["record"] // 5, 1), None)).mean("record")
    target = last.max("schedule")
    seconds = common.reached(ds, target, "time")
    gain = seconds.sel(schedule="synchronous", drop=True) / seconds.sel(schedule="asynchronous", drop=True)
    return ds.assign(target=target, seconds=seconds, gain=gain)


def table(ds: xr.Dataset) -> str:
    """Return means over trials as text."""
    names = f"{'lr':>8}{'target':>10}{'async (s)':>12}{'sync (s)':>12}{'gain':>7}{'of time':>9}"
    lines = [f"{'problem':>8} {'method':8}" + names]
    for problem in ds["problem"].values:
        for name in ds["algorithm"].values:
            one = ds.sel(problem=problem, algorithm=name)
            quick, slow = (one["seconds"].sel(schedule=s).mean() for s in ("asynchronous", "synchronous"))
            end = one["time"].isel(record=-1)
            pace = float((end.sel(schedule="synchronous") / end.sel(schedule="asynchronous")).mean())
            target, gain = float(one["target"].mean()), float(one["gain"].mean())
            lines.append(f"{f'({problem})':>8} {name:8}{float(one['lr']):>8g}{target:>10.2e}"
                         f"{float(quick):>12.0f}{float(slow):>12.0f}{gain:>7.2f}{pace:>9.2f}")  # fmt: skip
    return "\n".join(lines)


def figure(ds: xr.Dataset):
    """Return the figure: a row for each problem; the loss against time, and against epochs."""
    fig = common.figure(11, 0.4 + 3.9 * ds.sizes["problem"])
    rows = fig.subplots(ds.sizes["problem"], 2, squeeze=False, sharey="row")
    for problem, row in zip(ds["problem"].values, rows, strict=True):
        one = ds.sel(problem=problem)
        for ax, by in zip(row, ("time", "epochs"), strict=True):
            drawing.axes(ax)
            for name in one["algorithm"].values:
                for schedule, style in (("asynchronous", "-"), ("synchronous", "--")):
                    run = one.sel(algorithm=name, schedule=schedule).mean("trial")
                    ax.plot(run[by], np.maximum(run["suboptimality"], 1e-16), style, color=common.COLORS[name])
            ax.set(yscale="log", xlabel="simulated time (s)" if by == "time" else "epochs")
            ax.margins(x=0.01)
        lowest = one["suboptimality"].mean("trial").where(one["suboptimality"].mean("trial") > 1e-14).min()
        row[0].set_ylim(bottom=float(lowest) / 2)
        row[0].set_ylabel("training loss above $f^*$")
        row[0].set_title(f"({problem}) {common.PROBLEMS[problem][2]}", loc="left", fontsize=10)
    ax = rows[0, 1]
    for name in ds["algorithm"].values:
        ax.plot([], [], color=common.COLORS[name], label=name)
    ax.plot([], [], "-", color="0.3", label="asynchronous")
    ax.plot([], [], "--", color="0.3", label="synchronous")
    ax.legend(frameon=False, fontsize="small")
    at = ds.attrs
    fig.suptitle(f"{at['dataset']}, {at['num_parties']} parties, {at['num_active']} active; mean of "
                 f"{ds.sizes['trial']} trials; the last party's updates 40 % slower", fontsize=11)  # fmt: skip
    return fig


def main() -> None:
    args = common.arguments(__doc__, 3, figure=(3, "the paper's figure, 3, 4 or 6"), epochs=(0.0, "0: by data set"))
    if args.figure == 6:
        args.dataset = "diabetes"
    ex = common.load(args.dataset, wide=args.figure == 6)
    epochs, methods, grid = args.epochs or EPOCHS[args.dataset], list(common.METHODS), common.GRID
    if args.smoke:
        methods, grid, epochs = ["SVRG"], (0.05,), args.epochs or 20
    ds = experiment(ex, args.dataset, args.figure, methods, epochs, args.trials, grid)
    print(f"{args.dataset}, as Figure {args.figure}: {epochs:g} epochs, mean of {args.trials} trials; simulated "
          "seconds to the loss 'target' above f*;\n"
          "gain: synchronous over asynchronous seconds; 'of time': the same for all epochs\n")  # fmt: skip
    print(table(ds))
    common.save(ds, figure(ds), args.out, "async")


if __name__ == "__main__":
    main()
