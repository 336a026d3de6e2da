"""When does personalisation help (APFL, arXiv 2003.13461, sections 1 to 3)? Gains across heterogeneity and m_i.

`gains`: clients share the law of x given y and differ in that of y (`datasets.synthetic.label_skewed_gaussians`), so
that ||Dbar - D_i||_1 is exact; Dbar is the same whatever the skew. APFL is played with fixed mixing weights (0 is
FedAvg, 1 local training) and with the learned one on every federation. `diversity`: scikit-learn's digits split by
classes per client, for Figure 1, which the paper draws from MNIST.

The model is multinomial logistic regression without penalty from 0, with lr 0.1, 10 local steps and batches of 10, for
so many rounds: mixing weights matter as long as training is not run to the end (see `alpha_star`). Risks are losses
(nats) on each client's test rows, the mean over clients; a gain is how much less the loss is. Replicates draw data (of
the digits: who gets which) and minibatches anew and give the intervals. Rounds, sizes and the batch are ours.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

import jaxfed as jf
from jaxfed.datasets import synthetic
from jaxfed.theory.claims import Claim, Found, Interval, at_least, at_most, of_mean
from jaxfed.theory.experiments import phase_runs
from jaxfed.theory.experiments.phase_figures import draw as draw

EXPERIMENT = "phase"
WEIGHTS = (0.0, 0.25, 0.5, 0.75, 1.0)
LEARNED, LR = "learned", 0.1
MATERIAL = 0.01  # what counts as a slope: 1% of the loss per unit of distance; no data could deny a slope above 0


class Size(NamedTuple):
    """How large the experiment is.

    replicates: independent federations. skews: as in `synthetic.skewed_labels`, ascending from 0. rows: training rows
    of a client (m_i), ascending. clients, and as many classes; features; test_rows of a client. classes: of a client's
    digits, descending; digit_clients. num_rounds: of 10 local steps.
    """

    replicates: int = 10
    skews: tuple[float, ...] = (0.0, 0.2, 0.4, 0.6, 0.8, 0.95)
    rows: tuple[int, ...] = (20, 80, 320)
    clients: int = 8
    features: int = 16
    test_rows: int = 200
    classes: tuple[int, ...] = (10, 7, 5, 3, 2, 1)
    digit_clients: int = 10
    num_rounds: int = 50


FULL = Size()
SMOKE = Size(3, (0.0, 0.4, 0.95), (20, 160), clients=4, features=8, classes=(10, 3, 1), num_rounds=20)


def gains(
    smoke: bool = False,
    seed: int = 0,
    *,
    size: Size | None = None,
    algorithm: Any = jf.APFL,
    federation: Callable = synthetic.label_skewed_gaussians,
) -> Found:
    """Return the claims on APFL against FedAvg and against local training, and the phase diagram's data."""
    size = size or (SMOKE if smoke else FULL)
    own = partial(algorithm, jf.models.logistic_regression(size.clients), lr=LR, adaptive=True, batch_size=10)
    # alpha that is learned with rate 0 is fixed, so one program plays them all
    mixing = [*[own(alpha=w, alpha_lr=0.0) for w in WEIGHTS], own(alpha=0.5, alpha_lr=LR)]
    data, divergence = phase_runs.gaussians(size, seed, federation)
    loss, accuracy = phase_runs.play(mixing, data, size, seed)
    shape = (size.replicates, len(size.skews), len(size.rows), len(mixing))
    dims = ("replicate", "skew", "rows", "weight")
    found = xr.Dataset(
        {"loss": (dims, loss.reshape(shape)), "accuracy": (dims, accuracy.reshape(shape))},
        {"skew": list(size.skews), "rows": list(size.rows), "weight": [*map(str, WEIGHTS), LEARNED]},
    ).assign_coords(divergence=("skew", divergence))
    return Found(_claims(found), {"gains": found})


def _claims(found: xr.Dataset) -> tuple[Claim, ...]:
    loss, divergence = found.loss, found.divergence.values
    fixed = [str(w) for w in WEIGHTS]
    over_fedavg, over_local = loss.sel(weight=fixed[0]) - loss, loss.sel(weight=fixed[-1]) - loss
    best_over_fedavg, best_over_local = (  # the best in hindsight of the weights that are not the other's own
        over_fedavg.sel(weight=fixed[1:]).max("weight"), over_local.sel(weight=fixed[:-1]).max("weight"),
    )  # fmt: skip
    over_fedavg, over_local = over_fedavg.sel(weight=LEARNED), over_local.sel(weight=LEARNED)
    iid, skewed, few, many = dict(skew=0), dict(skew=-1), dict(rows=0), dict(rows=-1)
    little, much = (f"m_i = {found.rows.values[i]}" for i in (0, -1))
    strong = f"||Dbar - D_i||_1 = {divergence[-1]:.3g}"
    in_rows = partial(_spearman, dim="rows", against=found.rows.values)
    return (
        _claim("phase-iid", "section 2", "On i.i.d. data APFL (learned alpha) has no benefit over FedAvg",
               "gain over FedAvg in test loss, the largest over m_i, nats",
               of_mean(over_fedavg[iid].max("rows")), at_most(0)),
        _claim("phase-iid-best", "section 2", "On i.i.d. data no fixed mixing weight has a benefit over FedAvg",
               "gain over FedAvg in test loss, the largest over alpha in (0, 1], nats",
               of_mean(best_over_fedavg[iid][many]), at_most(0),
               f"clients have many rows ({much}, not {little})", of_mean(best_over_fedavg[iid][few])),
        _claim("phase-noniid", "section 1", "On strongly non-i.i.d. data FedAvg generalises worse than APFL",
               f"gain of APFL (learned alpha) over FedAvg in test loss at {strong}, the least over m_i, nats",
               of_mean(over_fedavg[skewed].min("rows")), at_least(0)),
        _claim("phase-gain-grows", "section 3", "APFL's gain over FedAvg grows with the distance of the distributions",
               "Spearman's correlation of the gain (learned alpha) and ||Dbar - D_i||_1, the mean over m_i",
               of_mean(_spearman(over_fedavg, "skew", divergence).mean("rows")), at_least(0)),
        _claim("phase-little-data", "section 3", "With little local data, local training is worse than a mixture",
               f"gain of the best fixed alpha in [0, 1) over local training in test loss at {little}, the mean over "
               "divergences, nats",
               of_mean(best_over_local[few].mean("skew")), at_least(0)),
        _claim("phase-local-catches-up", "section 3", "The gain over local training falls as local data grows",
               "Spearman's correlation of the gain (best fixed alpha in [0, 1)) and m_i, the mean over divergences",
               of_mean(in_rows(best_over_local).mean("skew")), at_most(0)),
        _claim("phase-learned-catches-up", "section 4.2", "With learned alpha, too, the gain over local training falls",
               "Spearman's correlation of the gain of APFL (learned alpha) and m_i, the mean over divergences",
               of_mean(in_rows(over_local).mean("skew")), at_most(0)),
    )  # fmt: skip


def diversity(
    smoke: bool = False,
    seed: int = 0,
    *,
    size: Size | None = None,
    algorithm: Any = jf.APFL,
    scaffold: Any = jf.Scaffold,
    partition: Callable = jf.horizontal.Classes,
) -> Found:
    """Return the claims of Figure 1: global models get worse and personal ones better as clients differ more."""
    size = size or (SMOKE if smoke else FULL)
    model = jf.models.logistic_regression(10)
    data, divergence = phase_runs.digits(size, seed, partition)
    own = partial(algorithm, model, lr=LR, adaptive=True, batch_size=10)
    mixed = phase_runs.play([own(alpha=0.0, alpha_lr=0.0), own(alpha=0.5, alpha_lr=LR)], data, size, seed)[0]
    controlled = phase_runs.play([scaffold(model, lr=LR, batch_size=10)], data, size, seed)[0]
    losses = {"FedAvg": mixed[..., 0], "SCAFFOLD": controlled[..., 0], "APFL": mixed[..., 1]}
    found = xr.Dataset(
        {"loss": (("algorithm", "replicate", "classes"), np.stack(list(losses.values())))},
        {"algorithm": list(losses), "classes": list(size.classes)},
    ).assign_coords(divergence=("classes", divergence))
    least = int(divergence.argmin())
    slopes = {name: of_mean(_slope(values, divergence) / values[:, least]) for name, values in losses.items()}
    statistic = "slope of the clients' mean test loss in ||Dbar - D_i||_1, over the loss at the least distance (digits)"
    worse, better = at_least(MATERIAL), at_most(-MATERIAL)
    claims = (
        _claim("phase-global-worsens", "Figure 1", "FedAvg's global model generalises worse as diversity grows",
               statistic, slopes["FedAvg"], worse),
        _claim("phase-scaffold-worsens", "Figure 1", "SCAFFOLD's global model generalises worse as diversity grows",
               statistic, slopes["SCAFFOLD"], worse),
        _claim("phase-personal-improves", "Figure 1", "APFL's personal models (learned alpha) generalise better",
               statistic, slopes["APFL"], better),
    )  # fmt: skip
    return Found(claims, {"diversity": found})


PARTS: dict[Callable[..., Found], tuple[str, ...]] = {
    gains: ("phase-iid", "phase-iid-best", "phase-noniid", "phase-gain-grows", "phase-little-data",
            "phase-local-catches-up", "phase-learned-catches-up"),
    diversity: ("phase-global-worsens", "phase-scaffold-worsens", "phase-personal-improves"),
}  # fmt: skip


def _spearman(values: xr.DataArray, dim: str, against: np.ndarray) -> xr.DataArray:
    """Return Spearman's rank correlation along a dimension with numbers given for its places."""
    from scipy import stats

    rho = lambda row: stats.spearmanr(row, against)[0]  # noqa: E731
    return xr.apply_ufunc(rho, values, input_core_dims=[[dim]], vectorize=True)


def _slope(values: np.ndarray, against: np.ndarray) -> np.ndarray:
    """Return the least-squares slope of values [replicate, place] in `against` [place], for each replicate."""
    centred = against - against.mean()
    return values @ centred / (centred @ centred)


def _claim(id: str, source: str, statement: str, statistic: str, found: Interval, region: Interval, condition: str = "",
           otherwise: Interval | None = None) -> Claim:  # fmt: skip
    return Claim(id, f"APFL, {source}", statement, EXPERIMENT, statistic, found, region, condition, otherwise)
