"""The adaptive mixing weight (Deng et al. 2020, section 4.2) against what section 3 says it should be.

Clients differ in their label laws only (`skewed_clients`), so divergences and risks on the true laws are known. Models
are softmax regressions, risks cross-entropies of the personal models with the server's w. alpha starts at 1/2 and moves
at the first step of each round (our copy of the paper ends within 4.2: the update is that of `APFL`). A part is one
sweep: federations drawn anew (they are the seeds), each with a learned alpha and with those of FIXED, which is the same
program with alpha's rate 0; a static variant is one more.

Derived, for i.i.d. data: "v = w, so alpha does not move" needs v to take w's steps. By equation 7 it takes alpha times
them, so v lags behind w, <v - w, grad f_i(vbar_i)> > 0, and alpha falls even where all clients hold the same rows. With
v's rate divided by alpha_0 the two coincide and alpha rests.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from jaxfed.datasets.synthetic import skewed_labels
from jaxfed.horizontal.apfl import APFL
from jaxfed.models import logistic_regression
from jaxfed.sweeps import sweep
from jaxfed.theory.claims import Claim, Found, Interval, at_least, at_most, of_mean
from jaxfed.theory.experiments.adaptive_figures import draw as draw
from jaxfed.theory.experiments.skewed_clients import Kind, federation, pool

NAME = "adaptive"
CLASSES, CLIENTS, FEATURES, SEPARATION = 4, 16, 6, 2.0
ROWS, SKEW = 40, 0.5  # of a client where they do not vary
SKEWS, SIZES = (0.0, 1 / 3, 2 / 3, 1.0), (8, 16, 40, 96)  # where they do: four clients each; 640 rows in all
LR, TAU, BATCH, START = 0.1, 10, 20, 0.5
DECAY = 0.01  # the `alpha_l2` that adds the authors' 0.02 alpha to alpha's gradient
FIXED = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)

KINDS = {
    "skews": Kind(np.concatenate([skewed_labels(CLASSES, CLASSES, s) for s in SKEWS]), np.full(CLIENTS, ROWS)),
    "sizes": Kind(skewed_labels(CLIENTS, CLASSES, SKEW), np.repeat(SIZES, CLASSES)),
}
IID = Kind(np.full((CLIENTS, CLASSES), 1 / CLASSES), np.full(CLIENTS, ROWS))


class Size(NamedTuple):
    """Federations drawn of each kind (seeds), and rounds."""

    seeds: int
    rounds: int


FULL, SMOKE = Size(12, 200), Size(3, 30)


def learned(
    smoke: bool = False, seed: int = 0, *, size: Size | None = None, algorithm: Any = APFL, decay: float = DECAY,
    place: str = "step",
) -> Found:  # fmt: skip
    """Measure the learned alpha, its risk beside that of fixed ones, and what decay and the place of the update do."""
    size = size or (SMOKE if smoke else FULL)
    drawn = pool(KINDS, size.seeds, FEATURES, SEPARATION, seed)
    data = {(name, d): federation(drawn, rows, KINDS[name].laws)
            for name in KINDS for d, rows in enumerate(drawn.rows[name])}  # fmt: skip
    model = algorithm(logistic_regression(CLASSES), lr=LR, adaptive=True, local_steps=TAU, batch_size=BATCH)
    points = [(START, LR, 0.0), (START, LR, decay), *((alpha, 0.0, 0.0) for alpha in FIXED)]
    fields = ("alpha", "alpha_lr", "alpha_l2")
    once = _sweep(seed, size, model, data, fields, points)
    each = _sweep(seed, size, model.replace(alpha_every=place), data, fields, points[:1])
    alpha, risk = once["mixing_weight"], once["personal_test_loss"].isel(round=-1)
    by_client = lambda field: (("kind", "client"), np.stack([getattr(kind, field) for kind in KINDS.values()]))  # noqa: E731
    ds = xr.Dataset(
        {
            "alpha": alpha.isel(point=0),
            "alpha_decayed": alpha.isel(point=1),
            "alpha_by_step": each["mixing_weight"].isel(point=0),
            "risk": risk.isel(point=0),
            "risk_decayed": risk.isel(point=1),
            "risk_by_step": each["personal_test_loss"].isel(round=-1, point=0),
            "risk_of_fixed": risk.isel(point=slice(2, None)).rename(point="fixed").assign_coords(fixed=list(FIXED)),
            "divergence": by_client("divergences"),
            "rows": by_client("rows"),
        }
    )
    return Found(_of_learned(ds, size), {"learned": ds})


def _of_learned(ds: xr.Dataset, size: Size) -> tuple[Claim, ...]:
    end, every = ds["alpha"].isel(round=-1), ("kind", "client")
    best = ds["risk_of_fixed"].min("fixed")
    spread = (ds["risk_of_fixed"].max("fixed") - best).sum(every)
    lost = lambda risk, than: ((risk - than).sum(every) / spread).values  # noqa: E731
    predicted = -2 * DECAY * LR * size.rounds
    shrunk = np.log(ds["alpha_decayed"].isel(round=-1).mean(every) / end.mean(every)) / predicted
    law = f"softmax regression, label-skewed Gaussians, 16 clients, {size.rounds} rounds of tau = 10"
    ranks = lambda kind, of: _ranks(end.sel(kind=kind).values, ds[of].sel(kind=kind).values)  # noqa: E731
    return (
        _claim("divergence", "APFL, sections 3.2 and 4", "The learned alpha rises with a client's divergence",
               f"Spearman correlation over clients of alpha and ||Dbar - D_i||_1, equal m_i; {law}",
               of_mean(ranks("skews", "divergence")), at_least(0)),
        _claim("rows", "APFL, section 3.2", "The learned alpha rises with a client's number of rows m_i",
               f"Spearman correlation over clients of alpha and m_i, equal divergence; {law}",
               of_mean(ranks("sizes", "rows")), at_least(0)),
        _claim("regret", "APFL, section 4.2", "The alpha learned during optimization is near each client's best",
               "test risk above that of each client's best fixed alpha in hindsight, in units of the range of the"
               f" fixed ones (0: best, 1: worst); {law}", of_mean(lost(ds["risk"], best)), at_most(0.1)),
        _claim("place", "derived (implementations differ)",
               "Moving alpha at every local step serves as well as once a round",
               f"test risk with every step minus once a round, in units of the range of the fixed ones; {law}",
               of_mean(lost(ds["risk_by_step"], ds["risk"])), Interval(-0.1, 0.1)),
        _claim("decay", "derived (the authors' code adds 0.02 alpha to alpha's gradient)",
               "The extra decay lowers alpha by a factor between 1 and exp(-0.02 sum of rates)",
               f"log of mean alpha with decay over without, divided by -0.02 sum of rates; {law}",
               of_mean(shrunk), Interval(0, 1)),
    )  # fmt: skip


def iid(
    smoke: bool = False, seed: int = 0, *, size: Size | None = None, algorithm: Any = APFL, rescale: float = 1 / START
) -> Found:
    """Measure whether alpha rests on i.i.d. data: the same rows at every client, and samples of one law.

    Full gradients, so that the same rows give the same steps. `rescale` times v's rate makes v take w's steps.
    """
    size = size or (SMOKE if smoke else FULL)
    drawn = pool({"iid": IID}, size.seeds, FEATURES, SEPARATION, seed)
    draws = list(enumerate(drawn.rows["iid"]))
    data = {("same", d): federation(drawn, [rows[0]] * CLIENTS, IID.laws) for d, rows in draws}
    data |= {("samples", d): federation(drawn, rows, IID.laws) for d, rows in draws}
    model = algorithm(logistic_regression(CLASSES), lr=LR, alpha=START, adaptive=True, alpha_lr=LR, local_steps=TAU,
                      batch_size=None)  # fmt: skip
    swept = _sweep(seed, size, model, data, ("personal_lr",), [LR * rescale, LR])
    steps = ["w's", "equation 7"]
    ds = xr.Dataset({"alpha": swept["mixing_weight"].rename(point="steps").assign_coords(steps=steps)})
    moved = np.abs(ds["alpha"].isel(round=-1) - START).max("client")
    statistic = (
        f"largest |alpha - alpha_0| over clients, alpha_0 = 1/2, full gradients, {size.rounds} rounds of tau = 10"
    )
    claims = [
        _claim(name, "APFL, section 4.2", statement, statistic, of_mean(moved.sel(kind=kind, steps=steps[0])),
               at_most(0.01), "v takes w's steps (its rate divided by alpha_0)",
               of_mean(moved.sel(kind=kind, steps=steps[1])))
        for name, kind, statement in (
            ("iid-same-rows", "same", "On i.i.d. data v = w and alpha does not move: the same rows at all clients"),
            ("iid-samples", "samples", "On i.i.d. data v = w and alpha does not move: samples of one law, m_i = 40"),
        )
    ]  # fmt: skip
    return Found(tuple(claims), {"iid": ds})


PARTS = {
    learned: ("adaptive-divergence", "adaptive-rows", "adaptive-regret", "adaptive-place", "adaptive-decay"),
    iid: ("adaptive-iid-same-rows", "adaptive-iid-samples"),
}


def _sweep(
    seed: int, size: Size, model: Any, data: Mapping[tuple[str, int], Any], fields: tuple[str, ...], points: Sequence
) -> xr.Dataset:
    """Sweep over federations and points; return mixing weights and risks, [kind, seed, point, round, client]."""
    labelled = {" ".join(map(str, key)): value for key, value in data.items()}
    axes = {"data": labelled, fields if len(fields) > 1 else fields[0]: points}
    ds = sweep(seed, model, next(iter(data.values())), axes=axes, num_rounds=size.rounds,
               every=max(size.rounds // 10, 1), progress=False)  # fmt: skip
    ds = ds[["mixing_weight", "personal_test_loss"]].isel(seed=0).reset_coords(drop=True)
    ds = ds.rename({",".join(fields): "point"}).drop_vars(["data", "point", "client"], errors="ignore")
    kinds = list(dict.fromkeys(kind for kind, _ in data))
    of_kind = [ds.isel(data=[kind == k for k, _ in data]).rename(data="seed") for kind in kinds]
    return xr.concat(of_kind, xr.DataArray(kinds, dims="kind", name="kind"))


def _claim(
    name: str, source: str, statement: str, statistic: str, found: Interval, region: Interval, condition: str = "",
    otherwise: Interval | None = None,
) -> Claim:  # fmt: skip
    return Claim(f"{NAME}-{name}", source, statement, NAME, statistic, found, region, condition, otherwise)


def _ranks(alpha: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return Spearman's correlation over clients for each seed, [S]; alpha [S, C], x [C]."""
    from scipy import stats

    return np.array([stats.spearmanr(own, x).statistic for own in alpha])
