"""alpha* of equation 3 against the best alpha: APFL's Theorem 1 where all of its terms are known (`two_laws`).

One factor at a time is varied about a base setting: the distance between the two laws, m_i, m, the noise, the radius of
the ball. The best alpha minimises the true risk of h_alpha (equation 1), averaged over draws of all rows, on a grid;
alpha* is computed for every draw from its own terms. C is unknown, so alpha* is computed for each of a range of C / B,
and where a claim depends on it, the verdict says so: `found` is at the C most favourable to the paper, `otherwise` at
the least favourable one. All intervals: 95%, by resampling draws (which settings share), if not said otherwise.
"""

from typing import Any

import jax
import numpy as np
import xarray as xr

from jaxfed.theory import generalization, mixtures, two_laws
from jaxfed.theory.claims import HOLDS, Claim, Found, Interval, at_least, at_most, judge, of_mean
from jaxfed.theory.experiments import alpha_star_data as measured
from jaxfed.theory.experiments import alpha_star_figures
from jaxfed.theory.experiments.alpha_star_data import BASE, DELTA, SHARES, Measured, Size, measure

WHERE = "alpha_star"
draw = alpha_star_figures.draw


def inside(
    smoke: bool = False, seed: int = 0, *, size: Size | None = None, best_alpha: Any = generalization.best_alpha
) -> Found:
    """alpha* lies strictly between 0 and 1. The interval is the range over all settings, draws and C."""
    got = measure(smoke, seed, size, best_alpha)
    star = got.star[..., got.bounded]
    claim = Claim(
        "alpha-star-inside", "APFL, equation 3", "alpha* lies strictly between 0 and 1", WHERE,
        "range of alpha* over all settings, draws and C", Interval(float(star.min()), float(star.max())),
        Interval(1e-6, 1 - 1e-6),
    )  # fmt: skip
    return Found((claim,), {"moves": _moves(got, *_optima(got, seed))})


def covers(smoke: bool = False, seed: int = 0, *, size: Size | None = None, bound: Any = generalization.bound) -> Found:
    """Theorem 1 holds, even at C = 0 (it rises with C); and how far it is from the risk it bounds."""
    got = measure(smoke, seed, size)
    at = np.flatnonzero(got.bounded)
    terms = jax.tree.map(lambda a: np.broadcast_to(a, got.star.shape)[0][:, at, None], got.terms)
    bounds = np.asarray(jax.jit(bound)(got.alphas, terms))
    broken = (got.draw.risk[:, at] > bounds).any(axis=2).sum(axis=0)
    valid = Claim(
        "alpha-star-bound", "APFL, Theorem 1", "the bound holds with probability at least 1 - delta = 0.95", WHERE,
        "share of draws that break it for some alpha, in the worst setting, at C = 0 (Clopper-Pearson)",
        _share(int(broken.max()), len(bounds)), at_most(DELTA),
    )  # fmt: skip
    star = got.star[0][:, at]
    least = np.asarray(jax.jit(bound)(star, jax.tree.map(lambda a: a[..., 0], terms)))
    ratio = least / measured.risk_at(got, 0)[:, at]
    position = {v: list(at).index(i) for i, v in zip(got.at("distance"), got.value[got.at("distance")], strict=True)}
    tight = Claim(
        "alpha-star-tight", "derived", "the bound at alpha* is within a factor of 10 of the risk", WHERE,
        "bound / risk at alpha*, C = 0 (its least value)", of_mean(ratio[:, position[min(position)]]), at_most(10),
        "the clients' laws agree", of_mean(ratio[:, position[max(position)]]),
    )  # fmt: skip
    data = measured.labelled(got, at).assign(
        bound=(("setting", "alpha"), bounds.mean(0)), risk=(("setting", "alpha"), got.draw.risk[:, at].mean(0)),
        ratio=("setting", ratio.mean(0)), broken=("setting", broken / len(bounds)),
    )  # fmt: skip
    for name in ("global", "local"):  # the C, as a share of B, that the uniform convergence in the proof would need
        rows = got.settings.rows if name == "global" else got.settings.local_rows
        excess = np.quantile(getattr(got.draw, f"{name}_excess"), 1 - DELTA, axis=0)
        needed = jax.jit(_needed, static_argnums=3)(excess, rows, got.settings, got.size.d)
        data[f"needed_{name}"] = ("setting", np.asarray(needed)[at])
    return Found((valid, tight), {"bound": data})


def classes(
    smoke: bool = False, seed: int = 0, *, size: Size | None = None, fit: Any = mixtures.least_in_ball
) -> Found:
    """In a ball alpha changes the risk; without one every alpha > 0 gives the same model."""
    got = measure(smoke, seed, size, fit=fit)
    radii = np.flatnonzero(got.factor == "radius")
    ball, free = radii[got.value[radii] == BASE.radius][0], radii[np.isinf(got.value[radii])][0]
    risk = got.draw.risk[:, :, got.alphas > 0]
    spread = (risk.max(axis=2) - risk.min(axis=2)) / risk[:, :, -1]
    matters = Claim(
        "alpha-star-ball", "derived", "alpha decides the risk of the mixed model", WHERE,
        "greatest less least risk over alpha > 0, as a share of that at alpha = 1",
        of_mean(spread[:, ball]), at_least(0.01), "the class is bounded (a ball)", of_mean(spread[:, free]),
    )  # fmt: skip
    same = Claim(
        "alpha-star-unconstrained", "derived",
        "without a ball every alpha > 0 gives the client's own least-squares fit, so one and the same risk", WHERE,
        "greatest less least risk over alpha > 0, as a share of that at alpha = 1", of_mean(spread[:, free]),
        at_most(1e-3),
    )  # fmt: skip
    data = xr.Dataset(
        {"risk": (("class", "seed", "alpha"), np.stack([got.draw.risk[:, i] for i in (ball, free)]))},
        {"class": ["ball", "unconstrained"], "alpha": got.alphas},
    )
    data["alpha_star"] = (("share", "seed"), got.star[:, :, ball])
    return Found((matters, same), {"classes": data.assign_coords(share=list(SHARES))})


def moves(
    smoke: bool = False, seed: int = 0, *, size: Size | None = None, best_alpha: Any = generalization.best_alpha,
    mixed: Any = mixtures.mixed_models,
) -> Found:  # fmt: skip
    """Where the best alpha goes as each factor varies, and whether alpha* goes with it: correlations over values."""
    got = measure(smoke, seed, size, best_alpha, mixed=mixed)
    best, star = _optima(got, seed)
    data, claims = _moves(got, best, star), []
    said = {  # factor -> name, how it varies, and where alpha goes by section 3.2, if that is said
        "distance": ("divergence", "the more the client's law differs from the average", 1),
        "local_rows": ("local-rows", "the more rows the client has", 1),
        "rows": ("rows", "the more rows all clients have together", 0),
        "noise": ("noise", "the noisier the labels", 0),
    }
    for factor, (name, words, sign) in said.items():
        at = got.at(factor)
        along = measured.correlation(np.broadcast_to(got.value[at], best[:, at].shape), best[:, at])
        data.attrs[f"best_alpha_along_{factor}"] = list(along)
        if sign:
            claims.append(Claim(
                f"alpha-star-best-{name}", "APFL, section 3.2", f"the best alpha is larger {words}", WHERE,
                "Spearman's correlation of the best alpha with it", along, at_least(0),
            ))  # fmt: skip
        claims.append(_over_c(
            f"alpha-star-{name}", "APFL, section 3.2" if sign else "APFL, equation 3",
            f"alpha* and the best alpha move the same way {words}",
            "Spearman's correlation of alpha* with the best alpha",
            [measured.correlation(star[i][:, at], best[:, at]) for i in range(len(SHARES))], at_least(0),
        ))  # fmt: skip
    return Found(tuple(claims), {"moves": data})


def nears_one(
    smoke: bool = False, seed: int = 0, *, size: Size | None = None, best_alpha: Any = generalization.best_alpha
) -> Found:
    """The paper says that alpha* nears 1 for many local rows and laws far apart; but G lambda_H(S_i) never vanishes."""
    got = measure(smoke, seed, size, best_alpha)
    best, star = _optima(got, seed)
    claims = []
    for factor, name, words in (
        ("local_rows", "many-rows", "where the client has many rows"),
        ("distance", "far", "where the client's law is far from the average"),
    ):
        at = got.at(factor)[-1]
        claims.append(_over_c(
            f"alpha-star-{name}", "APFL, section 3.2", f"alpha* is close to 1 {words}",
            f"mean alpha* at {factor} = {got.value[at]:g}", [of_mean(x[:, at]) for x in got.star], at_least(0.9),
        ))  # fmt: skip
    return Found(tuple(claims), {"moves": _moves(got, best, star)})


def regret(
    smoke: bool = False, seed: int = 0, *, size: Size | None = None, best_alpha: Any = generalization.best_alpha
) -> Found:
    """How much risk is lost by alpha*, against the best alpha and against the better of alpha = 0 and 1."""
    got = measure(smoke, seed, size, best_alpha)
    at = np.flatnonzero(got.bounded)
    weights = measured.resamples(got, seed)
    curve = measured.mean_curves(got, weights)[:, at]
    taken = np.stack([weights @ measured.risk_at(got, i)[:, at] for i in range(len(SHARES))])
    lost = taken / curve.min(axis=2) - 1
    ends = taken / np.minimum(curve[..., 0], curve[..., -1]) - 1
    small = _over_c(
        "alpha-star-regret", "APFL, section 3.2", "alpha* loses at most 10% of risk against the best alpha",
        "risk at alpha* / risk at the best alpha - 1, in the worst setting",
        [measured.interval(x.max(axis=1)) for x in lost], at_most(0.1),
    )  # fmt: skip
    better = _over_c(
        "alpha-star-ends", "APFL, section 3.2", "alpha* beats both the global and the local model, on average",
        "risk at alpha* / lesser risk of alpha = 0 and 1 - 1, mean over settings",
        [measured.interval(x.mean(axis=1)) for x in ends], at_most(0),
    )  # fmt: skip
    data = measured.labelled(got, at)
    for name, values in (("regret", lost), ("against_ends", ends)):
        data = measured.with_band(data, name, np.moveaxis(values, 1, 0), ("share", "setting"))
    return Found((small, better), {"regret": data})


PARTS = {
    inside: ("alpha-star-inside",),
    nears_one: ("alpha-star-many-rows", "alpha-star-far"),
    covers: ("alpha-star-bound", "alpha-star-tight"),
    classes: ("alpha-star-ball", "alpha-star-unconstrained"),
    moves: (
        "alpha-star-best-divergence", "alpha-star-divergence", "alpha-star-best-local-rows", "alpha-star-local-rows",
        "alpha-star-rows", "alpha-star-noise",
    ),
    regret: ("alpha-star-regret", "alpha-star-ends"),
}  # fmt: skip


def _optima(got: Measured, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Resampled best alphas [resample, S] and mean alpha* [C, resample, S]."""
    weights = measured.resamples(got, seed)
    best = got.alphas[measured.mean_curves(got, weights).argmin(axis=2)]
    return best, np.stack([weights @ star for star in got.star.astype(float)])


def _moves(got: Measured, best: np.ndarray, star: np.ndarray) -> xr.Dataset:
    at = np.flatnonzero(got.bounded)
    data = measured.with_band(measured.labelled(got, at), "best_alpha", best[:, at], ("setting",))
    return measured.with_band(data, "alpha_star", np.moveaxis(star, 1, 0)[..., at], ("share", "setting"))


def _over_c(name: str, source: str, statement: str, statistic: str, found: list[Interval], region: Interval) -> Claim:
    """A claim from its interval at each C of SHARES. Where it holds at all of them, the least favourable one is given,
    without a condition; else the most favourable one, and otherwise the least favourable one."""

    def good(i: int) -> float:
        inner = found[i].low - region.low if np.isfinite(region.low) else region.high - found[i].high
        return inner if np.isfinite(inner) else -np.inf

    order = sorted(range(len(SHARES)), key=good)
    held = [f"{SHARES[i]:g}" for i in range(len(SHARES)) if judge(found[i], region) == HOLDS]
    if len(held) == len(SHARES):
        return Claim(
            name, source, statement, WHERE, f"{statistic}, at the C where it is least so", found[order[0]], region
        )
    condition = f"C / B is {', '.join(held) or format(SHARES[order[-1]], 'g')}"
    return Claim(name, source, statement, WHERE, statistic, found[order[-1]], region, condition, found[order[0]])


def _needed(excess: Any, rows: Any, settings: two_laws.Settings, d: int) -> Any:
    """The C / B at which C sqrt((d + log 1/delta) / rows) is the excess of a true over an empirical risk."""
    scale = two_laws.loss_constants(settings, d).bound * generalization.complexity(rows, d, DELTA)
    return jax.numpy.maximum(excess, 0) / scale


def _share(count: int, total: int) -> Interval:
    from scipy import stats

    return Interval(*map(float, stats.binomtest(count, total).proportion_ci()))
