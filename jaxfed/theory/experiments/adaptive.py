"""The adaptive mixing weight (Deng et al. 2020, section 4.2) against what section 3 says it should be.

Clients differ in their label laws only (`skewed_clients`), so divergences and risks on the true laws are known. Models
are softmax regressions, risks cross-entropies of the personal models with the server's w. alpha starts at 1/2 and moves
at the first step of each round (our copy of the paper ends within 4.2: the update is that of `APFL`). All is one sweep
over federations drawn anew (they are the seeds) and settings; fixed alphas are alpha's rate 0; the one static variant,
where alpha moves at every step, is a second. Gradients are full (the paper's are minibatches), so that clients with the
same rows take the same steps.

Derived, for i.i.d. data: "v = w, so alpha does not move" needs v to take w's steps. By equation 7 it takes alpha times
them, so v lags behind w, <v - w, grad f_i(vbar_i)> > 0, and alpha falls even where all clients hold the same rows. With
v's rate divided by alpha_0 the two coincide and alpha rests.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

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
LR, TAU, START = 0.1, 10, 0.5
DECAY = 0.01  # the `alpha_l2` that adds the authors' 0.02 alpha to alpha's gradient
FIXED = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
RECORDS = 5

KINDS = {
    "skews": Kind(np.concatenate([skewed_labels(CLASSES, CLASSES, s) for s in SKEWS]), np.full(CLIENTS, ROWS)),
    "sizes": Kind(skewed_labels(CLIENTS, CLASSES, SKEW), np.repeat(SIZES, CLASSES)),
}
IID = Kind(np.full((CLIENTS, CLASSES), 1 / CLASSES), np.full(CLIENTS, ROWS))


class Size(NamedTuple):
    """Federations drawn of each kind (seeds), and rounds."""

    seeds: int
    rounds: int


FULL, SMOKE = Size(10, 60), Size(3, 10)  # in some 100 rounds most alphas are at 1, and have no order any more


def measure(
    smoke: bool = False, seed: int = 0, *, size: Size | None = None, algorithm: Any = APFL, place: str = "step",
    rescale: float = 1 / START,
) -> Found:  # fmt: skip
    """Measure the learned alpha: what it follows, where it rests, its risk beside fixed ones, decay, place of update.

    `place`: the `alpha_every` that is compared with once a round. `rescale` times v's rate makes v take w's steps.
    """
    size = size or (SMOKE if smoke else FULL)
    model = algorithm(logistic_regression(CLASSES), adaptive=True, local_steps=TAU, batch_size=None, lr=LR)
    data = federations(size.seeds, seed)
    plain = dict(alpha=START, alpha_lr=LR, alpha_l2=0.0, personal_lr=LR)
    settings = {"learned": plain, "decayed": plain | dict(alpha_l2=DECAY)}
    settings |= {f"{alpha}": plain | dict(alpha=alpha, alpha_lr=0.0) for alpha in FIXED}
    both = {(kind, name): point for kind in KINDS for name, point in settings.items()}
    both |= {(kind, "learned"): plain for kind in ("same", "samples")}
    both |= {(kind, "rescaled"): plain | dict(personal_lr=LR * rescale) for kind in ("same", "samples")}
    once = _sweep(seed, size, model, data, both)
    each = _sweep(seed, size, model.replace(alpha_every=place), data, {(kind, "learned"): plain for kind in KINDS})

    def over(source: Mapping, name: str, setting: str, kinds: Any = KINDS) -> xr.DataArray:
        parts: Any = [source[kind, setting][name] for kind in kinds]
        return cast(xr.DataArray, xr.concat(parts, xr.DataArray(list(kinds), dims="kind")))

    by_client = lambda field: (("kind", "client"), np.stack([getattr(kind, field) for kind in KINDS.values()]))  # noqa: E731
    ds = xr.Dataset(
        {
            "alpha": over(once, "alpha", "learned"),
            "alpha_decayed": over(once, "alpha", "decayed"),
            "alpha_by_step": over(each, "alpha", "learned"),
            "risk": over(once, "risk", "learned"),
            "risk_decayed": over(once, "risk", "decayed"),
            "risk_by_step": over(each, "risk", "learned"),
            "risk_of_fixed": xr.concat([over(once, "risk", f"{a}") for a in FIXED], "fixed"),
            "divergence": by_client("divergences"),
            "rows": by_client("rows"),
        },
        {"kind": list(KINDS), "fixed": list(FIXED), "seed": np.arange(size.seeds)},
    )
    steps = [over(once, "alpha", setting, ("same", "samples")) for setting in ("rescaled", "learned")]
    iid = xr.Dataset(
        {"alpha": xr.concat(steps, "steps")}, {"kind": ["same", "samples"], "steps": ["w's", "equation 7"]}
    )
    return Found((*of_learned(ds, size), *of_iid(iid, size)), {"learned": ds, "iid": iid})


def of_learned(ds: xr.Dataset, size: Size) -> tuple[Claim, ...]:
    """Return the claims on clients that differ, from the Dataset "learned"."""
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
               "It makes no difference whether alpha moves at every local step or once a round",
               f"test risk with every step minus once a round, in units of the range of the fixed ones; {law}",
               of_mean(lost(ds["risk_by_step"], ds["risk"])), Interval(-0.1, 0.1)),
        _claim("decay", "derived (the authors' code adds 0.02 alpha to alpha's gradient)",
               "The extra decay lowers alpha by a factor between 1 and exp(-0.02 sum of rates)",
               f"log of mean alpha with decay over without, divided by -0.02 sum of rates; {law}",
               of_mean(shrunk), Interval(0, 1)),
    )  # fmt: skip


def of_iid(ds: xr.Dataset, size: Size) -> tuple[Claim, ...]:
    """Return the claims on i.i.d. data, from the Dataset "iid"."""
    moved = abs(ds["alpha"].isel(round=-1) - START).max("client")
    statistic = f"largest |alpha - 1/2| over clients after {size.rounds} rounds of tau = 10, from alpha_0 = 1/2"
    statements = {
        "same": ("iid-same-rows", "On i.i.d. data v = w and alpha does not move: the same rows at all clients"),
        "samples": ("iid-samples", f"On i.i.d. data v = w and alpha does not move: samples of one law, m_i = {ROWS}"),
    }
    return tuple(
        _claim(name, "APFL, section 4.2", statement, statistic, of_mean(moved.sel(kind=kind, steps="w's")),
               at_most(0.01), "v takes w's steps (its rate divided by alpha_0)",
               of_mean(moved.sel(kind=kind, steps="equation 7")))
        for kind, (name, statement) in statements.items()
    )  # fmt: skip


PARTS = {
    measure: ("adaptive-divergence", "adaptive-rows", "adaptive-regret", "adaptive-place", "adaptive-decay",
              "adaptive-iid-same-rows", "adaptive-iid-samples"),
}  # fmt: skip


def federations(draws: int, seed: int) -> dict[str, list[Any]]:
    """Return federations of each kind, by name; "same": the first client's rows of "samples" at all clients."""
    drawn = pool(KINDS | {"samples": IID}, draws, FEATURES, SEPARATION, seed)
    data = {name: [federation(drawn, rows, kind.laws) for rows in drawn.rows[name]] for name, kind in KINDS.items()}
    data["samples"] = [federation(drawn, rows, IID.laws) for rows in drawn.rows["samples"]]
    data["same"] = [federation(drawn, [rows[0]] * CLIENTS, IID.laws) for rows in drawn.rows["samples"]]
    return data


def _sweep(
    seed: int, size: Size, model: Any, data: Mapping[str, list[Any]], points: Mapping[tuple[str, str], dict[str, float]]
) -> dict[tuple[str, str], xr.Dataset]:
    """Sweep over (kind, setting) and the federations of the kind, all of them points of one list.

    Returns for each (kind, setting) mixing weights "alpha" [seed, round, client] and test risks "risk" [seed, client].
    """
    lanes = [point | {"data": one} for (kind, _), point in points.items() for one in data[kind]]
    every = -(-size.rounds // RECORDS)
    ds = sweep(seed, model, lanes[0]["data"], axes=lanes, num_rounds=size.rounds, every=every, progress=False)
    ds = ds[["mixing_weight", "personal_test_loss"]].isel(seed=0).reset_coords(drop=True)
    ds = ds.drop_vars(("point", "client"), errors="ignore").rename(point="seed")
    found = xr.Dataset({"alpha": ds["mixing_weight"], "risk": ds["personal_test_loss"].isel(round=-1, drop=True)})
    cut = lambda i: found.isel(seed=slice(i * size.seeds, (i + 1) * size.seeds))  # noqa: E731
    return {key: cut(i) for i, key in enumerate(points)}


def _claim(
    name: str, source: str, statement: str, statistic: str, found: Interval, region: Interval, condition: str = "",
    otherwise: Interval | None = None,
) -> Claim:  # fmt: skip
    return Claim(f"{NAME}-{name}", source, statement, NAME, statistic, found, region, condition, otherwise)


def _ranks(alpha: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return Spearman's correlation over clients for each seed, [S]; alpha [S, C], x [C]. nan: all alphas are alike."""
    from scipy import stats

    correlation = cast(Any, stats.spearmanr)
    return np.array([correlation(own, x).statistic if np.ptp(own) else np.nan for own in alpha])
