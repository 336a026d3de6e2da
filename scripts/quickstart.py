"""APFL against FedAvg, SCAFFOLD, local training and fine-tuning on real digits: one table and one figure.

100 clients hold 40 training rows of mnist5k each, of 2 classes; the model is logistic regression. Rates are the paper's
(lr 0.1, 10 local steps, batches of 20), the same for all. Writes results.nc (all rounds and clients), diversity.nc (the
fourth panel: the loss as clients hold fewer classes, the paper's Figure 1) and quickstart.png.
"""

import argparse
from pathlib import Path

import numpy as np
import xarray as xr

import jaxfed as jf
from jaxfed import drawing, parallel, plots, results
from jaxfed.sweeps import compare

COLORS = {
    "FedAvg": "#000000", "SCAFFOLD": "#8C8C8C", "LocalOnly": "#E69F00", "FineTuned": "#CC79A7",
    "APFL 0.25": "#7CC4EE", "APFL 0.5": "#2F8FD0", "APFL 0.75": "#004C80", "APFL adaptive": "#D55E00",
}  # fmt: skip
# Classes that divide the rows evenly: equal shapes compile once. 10 of 10 classes is the i.i.d. split.
CLASSES = (10, 5, 2, 1)
DIVERSITY = {  # the paper's Figure 1: which model's loss is drawn
    "FedAvg": "server",
    "SCAFFOLD": "server",
    "APFL 0.25": "personal",
    "APFL adaptive": "personal",
}


def algorithms() -> dict:
    model = jf.models.logistic_regression(num_classes=10)
    common = dict(lr=0.1, local_steps=10, batch_size=20)
    return {
        "FedAvg": jf.FedAvg(model, **common),
        "SCAFFOLD": jf.Scaffold(model, **common),
        "LocalOnly": jf.LocalOnly(model, **common),
        "FineTuned": jf.FineTuned(model, tune_steps=10, **common),
        "APFL 0.25": jf.APFL(model, alpha=0.25, **common),
        "APFL 0.5": jf.APFL(model, alpha=0.5, **common),
        "APFL 0.75": jf.APFL(model, alpha=0.75, **common),
        "APFL adaptive": jf.APFL(model, alpha=0.5, adaptive=True, **common),
    }


def experiment(num_clients: int, num_rounds: int, every: int, digits) -> tuple[xr.Dataset, xr.Dataset]:
    """Return all algorithms at 2 classes a client, and those of the paper's Figure 1 at each of CLASSES."""
    mesh, chosen = parallel.mesh(), algorithms()

    def at(classes: int, which: dict, every: int) -> xr.Dataset:
        train, test = jf.horizontal.split(digits, jf.horizontal.Classes(classes), num_clients, seed=0)
        return compare(which, 0, train, test=test, num_rounds=num_rounds, every=every, mesh=mesh)

    main = at(2, chosen, every)
    few = {name: chosen[name] for name in DIVERSITY}
    last = [(main.sel(algorithm=list(few)) if k == 2 else at(k, few, num_rounds)).isel(round=-1) for k in CLASSES]
    losses = [ds[[f"{model}_{part}_loss" for model in ("server", "personal") for part in ("train", "test")]]
              for ds in last]  # fmt: skip
    diversity = xr.concat([ds.drop_vars("test_size") for ds in losses], xr.DataArray(list(CLASSES), dims="classes"))
    return main, diversity.assign_coords(classes=list(CLASSES)).assign_attrs(main.attrs)


def table(ds: xr.Dataset) -> str:
    """Return the last record of the first seed as text, on test rows; errors are standard errors over clients."""
    lines = [f"{'':14}{'personal':>14}{'server':>14}{'worst decile':>14}{'loss':>8}   alpha (deciles 1 to 9)"]
    for name in ds["algorithm"].values:
        one = ds.sel(algorithm=name).isel(seed=0, round=-1)
        cells = []
        for model in ("personal", "server"):
            values = one[f"{model}_test_accuracy"]
            error = results.spread(values) / np.sqrt(values.notnull().sum())
            cells.append(f"{100 * float(results.mean_over_clients(values)):.1f} ± {100 * float(error):.1f}")
        worst = f"{100 * float(results.decile(one['personal_test_accuracy'])):.0f}"
        loss = f"{float(results.mean_over_clients(one['personal_test_loss'])):.3f}"
        lines.append(f"{name:14}{cells[0]:>14}{cells[1]:>14}{worst:>14}{loss:>8}   {mixing(one['mixing_weight'])}")
    return "\n".join(lines)


def mixing(alpha: xr.DataArray) -> str:
    """Return the mean of alpha over clients, and its deciles 1 and 9 where clients differ."""
    if alpha.isnull().all():
        return "-"
    low, high = (float(results.decile(alpha, d)) for d in (1, 9))
    return f"{float(alpha.mean()):.2f}" + (f" ({low:.2f} to {high:.2f})" if high > low else "")


def figure(ds: xr.Dataset, diversity: xr.Dataset):
    """Return the figure of four panels."""
    from matplotlib.figure import Figure

    fig = Figure(figsize=(12.5, 8.4), dpi=150, layout="constrained")
    fig.get_layout_engine().set(w_pad=0.12, h_pad=0.14)
    ((accuracy, alpha), (clients, loss)) = fig.subplots(2, 2)
    accuracy.set_ylim(0.75, 1.0)
    shown, note = without_twins(ds)
    plots.curves(shown, ["personal_test_accuracy", "server_test_accuracy"], ax=accuracy, colors=COLORS)
    accuracy.get_legend().set(title=note, loc="lower right", alignment="left")
    accuracy.get_legend().get_title().set_fontsize("small")
    plots.mixing_weights(ds, ax=alpha, colors=COLORS)
    plots.spread(ds, ax=clients, colors=COLORS)
    figure_one(diversity, loss)
    titles = {
        accuracy: "Accuracy of both models",
        alpha: "Mixing weight: mean over clients, deciles 1 to 9 shaded",
        clients: f"Spread over the {ds.sizes['client']} clients: mean (diamond), deciles 1 to 9 (bar)",
        loss: "Loss as clients grow more diverse (as the paper's Figure 1)",
    }
    for letter, (ax, title) in zip("abcd", titles.items(), strict=True):
        ax.set_title(f"$\\bf{{{letter}}}$  {title}", loc="left", fontsize=10.5)
    return fig


def without_twins(ds: xr.Dataset) -> tuple[xr.Dataset, str]:
    """Return the accuracies without lines that hide others, and a note of whose server's model is FedAvg's.

    Left out are personal models that are the server's, and server's models within a tenth of a percent of FedAvg's.
    """
    personal, server = ds["personal_test_accuracy"], ds["server_test_accuracy"]
    difference = abs(server - server.sel(algorithm="FedAvg")).mean("client").max(["seed", "round"])
    twin = (difference < 1e-3) & (ds["algorithm"] != "FedAvg")
    shown = ds.assign(personal_test_accuracy=personal.where((personal != server).any(["client", "seed", "round"])),
                      server_test_accuracy=server.where(~twin))  # fmt: skip
    names = list(dict.fromkeys(str(name).split()[0] for name in ds["algorithm"].values[twin]))
    return shown, f"FedAvg's server model is also that of {' and '.join(names)}" if names else ""


def figure_one(diversity: xr.Dataset, ax) -> None:
    """Draw training and test losses against the number of classes that a client holds, fewer to the right."""
    drawing.axes(ax)
    at, ends = np.arange(diversity.sizes["classes"]), []
    for name, model in DIVERSITY.items():
        for part, style in (("test", "-o"), ("train", ":o")):
            loss = diversity[f"{model}_{part}_loss"].sel(algorithm=name).mean(["client", "seed"])
            fill = COLORS[name] if part == "test" else "white"
            ax.plot(at, loss, style, color=COLORS[name], markersize=5, markerfacecolor=fill)
            if part == "test":
                ends.append((f"{name} ({model})", at[-1], float(loss[-1]), COLORS[name]))
    ax.plot([], [], "-o", color="0.3", markersize=5, label="test rows")
    ax.plot([], [], ":o", color="0.3", markersize=5, markerfacecolor="white", label="training rows")
    ax.legend(frameon=False, fontsize="small")
    ax.set_xticks(at, [f"{k}\n(i.i.d.)" if k == 10 else str(k) for k in diversity["classes"].values])
    ax.set(xlabel="classes per client", ylabel="cross-entropy (nats), mean over clients", ylim=(-0.03, None))
    drawing.label_ends(ax, ends)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("quickstart"), help="folder to write to (overwritten)")
    parser.add_argument("--smoke", action="store_true", help="a tiny version, to see that everything works")
    args = parser.parse_args()
    parallel.use_cpu_cores()
    digits = jf.datasets.load("mnist5k")
    size = dict(num_clients=20, num_rounds=4, every=2) if args.smoke else dict(num_clients=100, num_rounds=100, every=2)
    main_run, diversity = experiment(**size, digits=digits)
    args.out.mkdir(parents=True, exist_ok=True)
    results.save_dataset(main_run, args.out / "results.nc")
    results.save_dataset(diversity, args.out / "diversity.nc")
    figure(main_run, diversity).savefig(args.out / "quickstart.png")
    rows = [int(main_run[f"{part}_size"].mean()) for part in ("train", "test")]
    print(f"mnist5k, {size['num_clients']} clients with 2 classes, {rows[0]} training and {rows[1]} test rows each;")
    print(f"logistic regression, {size['num_rounds']} rounds. Test accuracy in %, mean over clients ± standard error;")
    print("worst decile of clients, and loss: of the personal models.\n")
    print(table(main_run))
    print(f"\nwritten to {args.out}: quickstart.png, results.nc, diversity.nc")


if __name__ == "__main__":
    main()
