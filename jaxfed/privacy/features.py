"""Equality solving: what an active party learns of the others' features from the scores it is entitled to.

z less its own products is a = w_p . x_p, one equation for the d_p features of a row (Luo et al. 2021, arXiv
2010.10152). White box: with the weights w_p, known if a model is released, one output fixes one direction; outputs
under several known weights fix one each, all features with d_p independent ones. Black box, which is VFB2's case: only
a itself is known, one projection of the row on weights nobody knows.

Below one output a feature, x = w a / |w|^2 of Luo et al. is worse than the middle of the range, as it pulls features to
zero; the estimates around the middle or in the range (Rassouli et al. 2022, arXiv 2207.11788) are better.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxfed.checks import fail, one_of
from jaxfed.privacy.equations import others
from jaxfed.privacy.transcript import View

ESTIMATES = ("least", "clipped", "middle", "chebyshev")


class Outputs(NamedTuple):
    """K equations a = weights . x of rows: row int [K], a [K], weights [K, d] (None: unknown, black box)."""

    row: np.ndarray
    a: np.ndarray
    weights: np.ndarray | None


class Solved(NamedTuple):
    """rows int [r]; features [r, d]; rank int [r]: independent equations of each row, d of them are enough."""

    rows: np.ndarray
    features: np.ndarray
    rank: np.ndarray


def outputs(
    view: View,
    *,
    weights: np.ndarray | None = None,
    pass_weights: np.ndarray | None = None,
    pass_products: Sequence[np.ndarray] | None = None,
    scores: np.ndarray | None = None,
) -> Outputs:
    """Return what the scores of a view say of the other parties' features, all their blocks one after the other.

    weights [d] or [N, d]: the others' weights, as they were read for each update; extra knowledge, None: black box.
    pass_weights [P, d], pass_products (P of [n]): the others' weights and the coalition's own products in the full
    passes, which are used where both are given. scores [N, b]: see `equations.others`. Raises ValueError.
    """
    value = others(view, scores)
    update, place = np.nonzero(~np.isnan(value))
    row, a = [view.rows[update, place]], [value[update, place]]
    of: list[np.ndarray] = []
    if weights is not None:
        given = np.atleast_2d(np.asarray(weights, float))
        if given.ndim != 2 or len(given) not in (1, len(value)):
            fail("weights", f"shape {np.shape(weights)}", f"[d], or [{len(value)}, d]: one for each update")
        of.append(np.broadcast_to(given, (len(value), given.shape[1]))[update])
    if (pass_weights is None) != (pass_products is None):
        fail("pass_weights, pass_products", "one of them", "both, or neither")
    if pass_weights is not None and pass_products is not None:
        if not of or len(pass_weights) != len(view.passes) or len(pass_products) != len(view.passes):
            fail("pass_weights", f"{len(pass_weights)} passes", f"{len(view.passes)}, beside `weights`")
        for told, w, own in zip(view.passes, pass_weights, pass_products, strict=True):
            rest = np.asarray(told.scores, float) - np.asarray(own, float)
            here = np.flatnonzero(~np.isnan(rest))
            row.append(here)
            a.append(rest[here])
            of.append(np.broadcast_to(np.asarray(w, float), (len(here), len(w))))
    return Outputs(np.concatenate(row), np.concatenate(a), np.concatenate(of) if of else None)


def solve(found: Outputs, estimate: str = "least", low: Any = 0.0, high: Any = 1.0, rcond: float = 1e-10) -> Solved:
    """Return the features of each row that has an output (white box).

    estimate: "least", x of least norm (Luo et al.: w a / |w|^2); "clipped", that within the range; "middle", the
    solution nearest to the middle of the range; "chebyshev", the centre of the largest ball, within the solutions, that
    fits into the range (Rassouli et al. take the smallest that encloses them, relaxed; the largest inside is a linear
    program). low, high: the range, numbers or [d]. All fit the equations but "clipped". Raises ValueError.
    """
    one_of("estimate", estimate, ESTIMATES)
    if found.weights is None:
        fail("found", "outputs without weights", "a white box: outputs(view, weights=...)")
    d = found.weights.shape[1]
    low, high = np.broadcast_to(np.asarray(low, float), d), np.broadcast_to(np.asarray(high, float), d)
    if np.any(low > high):
        fail("low", low.tolist(), f"at most high, {high.tolist()}")
    rows = np.unique(found.row)
    features, rank = np.zeros((len(rows), d)), np.zeros(len(rows), int)
    order = np.argsort(found.row, kind="stable")
    bounds = np.searchsorted(found.row[order], rows)
    middle = (low + high) / 2 if estimate in ("middle", "chebyshev") else np.zeros(d)
    for k, which in enumerate(np.split(order, bounds[1:])):
        w, a = found.weights[which], found.a[which]
        u, s, vt = np.linalg.svd(w, full_matrices=False)
        keep = s > rcond * max(s[0], 1e-300)
        rank[k] = keep.sum()
        features[k] = middle + ((u[:, keep].T @ (a - w @ middle)) / s[keep]) @ vt[keep]
        if estimate == "clipped":
            features[k] = np.clip(features[k], low, high)
        elif estimate == "chebyshev" and rank[k] < d:
            features[k] = _centre(features[k], vt[keep], low, high)
    return Solved(rows, features, rank)


def _centre(x: np.ndarray, fixed: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return the centre of the largest ball in {x + v: fixed v = 0} within the range; x where nothing is in it.

    fixed [k, d]: orthonormal. Along feature i such a ball reaches as far as radius times |e_i without its fixed part|.
    """
    from scipy.optimize import linprog

    d = len(x)
    reach = np.sqrt(np.maximum(1 - np.square(fixed).sum(0), 0))[:, None]
    limits = np.block([[np.eye(d), reach], [-np.eye(d), reach]])
    found = linprog(np.eye(d + 1)[d] * -1, limits, np.concatenate([high, -low]), np.pad(fixed, ((0, 0), (0, 1))),
                    fixed @ x, bounds=[(None, None)] * d + [(0, None)])  # fmt: skip
    return found.x[:d] if found.status == 0 else np.clip(x, low, high)


def projections(found: Outputs, num_rows: int) -> np.ndarray:
    """Return [n], the mean of each row's outputs (NaN without one): all that a black box tells.

    Weights move during a run, so the mean is a projection on their mean over the row's updates.
    """
    total, count = np.bincount(found.row, found.a, num_rows), np.bincount(found.row, minlength=num_rows)
    return np.divide(total, count, out=np.full(num_rows, np.nan), where=count > 0)


def guesses(x: np.ndarray, rng: np.random.Generator, low: Any = 0.0, high: Any = 1.0) -> dict[str, np.ndarray]:
    """Return what to compare with, each [r, d], for true features x [r, d]: no equation is needed for these.

    "uniform": at random in the range; "middle": of it; "mean": the columns' true means.
    """
    middle = (np.asarray(low, float) + np.asarray(high, float)) / 2
    return {
        "uniform": rng.uniform(low, high, x.shape),
        "middle": np.broadcast_to(middle, x.shape),
        "mean": np.broadcast_to(x.mean(0), x.shape),
    }


def feature_error(estimate: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return the mean squared error of each feature, [d], over rows of estimates and truth [r, d]."""
    return np.mean(np.square(np.asarray(estimate, float) - np.asarray(x, float)), 0)


def rank_correlation(a: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return Spearman's correlation of projections a [n] with each feature of x [n, d]: [d], over rows with a."""
    from scipy.stats import pearsonr, rankdata  # of ranks: what spearmanr is, which pyright can't read

    seen = ~np.isnan(a)
    return np.array([pearsonr(rankdata(a[seen]), rankdata(column[seen]))[0] for column in np.asarray(x, float).T])
