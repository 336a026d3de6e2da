"""The Gram attack with what a dominator can guess about the others: how many features they have.

Row by row (`jaxfed.privacy.gram.attack`) n scores of each row are needed for its n inner products. But K = F F^T with d
columns has only n d unknowns: each score is z_j = f_j . sum_i beta_i f_i, and a little more than d scores of each row
fix all of K. It is not linear any more: least squares from a random start by L-BFGS, which on simulated runs finds the
same K from every start; `residual` tells whether it did.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxfed.checks import fail, flag, whole
from jaxfed.privacy.equations import equations, steps
from jaxfed.privacy.transcript import View


class LowRank(NamedTuple):
    """columns int [c]: samples. gram [c, c]: their inner products, summed over the other parties. factors: for each of
    `groups`, features [c, d] up to an orthogonal matrix. residual: relative, of all equations; large where the
    schedule or the messages are not what was assumed, where d is too small, or where the search did not get there.
    iterations: of the search. equations, unknowns: how many."""

    columns: np.ndarray
    gram: np.ndarray
    factors: tuple[np.ndarray, ...]
    groups: tuple[tuple[int, ...], ...]
    residual: float
    iterations: int
    equations: int
    unknowns: int


def attack(
    view: View,
    num_features: int | Sequence[int],
    *,
    rng: np.random.Generator,
    weighted: bool = True,
    iterations: int = 1000,
    **knowledge: Any,
) -> LowRank:
    """Return the Gram matrix of at most that rank that fits a coalition's scores best; all weights start at 0.

    num_features: of each group of other parties (see `Equations.groups`; one group: of all of them together), at least
    the true number. weighted: each equation counts the same, however far apart its two scores are, which is right if
    all are exact; False is better where the schedule is unknown, as scores that are close then are mostly wrong.
    knowledge: what a view does not hold, see `equations`. Raises ValueError that names the field.
    """
    from scipy.optimize import minimize

    flag("weighted", weighted)
    whole("iterations", iterations, 1)
    system = equations(view, **knowledge)
    g, n = system.beta.shape[1:]
    sizes = [num_features] * g if isinstance(num_features, int) else list(num_features)
    if len(sizes) != g:
        fail("num_features", f"{len(sizes)} numbers", f"one, or one for each of {g} groups: {system.groups}")
    for size in sizes:
        whole("num_features", size, 1)
    order = np.argsort(system.row, kind="stable")
    moment, at = system.moment[order], np.searchsorted(system.columns, system.row[order])
    beta, value = steps(system.beta[moment], system.value[order], system.decay[moment].mean(1), at)
    length = np.sqrt(np.square(beta).sum((1, 2)))
    told = length > 1e-9 * length.max(initial=0)  # scores at w = 0 say nothing
    beta, value, at, length = beta[told], value[told], at[told], length[told]
    if weighted:
        beta, value = beta / length[:, None, None], value / length
    total = max(float(value @ value), 1e-300)
    beta = np.ascontiguousarray(beta.swapaxes(0, 1))  # [g, E, c]
    cuts = np.cumsum([n * size for size in sizes])[:-1]

    def split(flat: np.ndarray) -> list[np.ndarray]:
        return [part.reshape(n, -1) for part in np.split(flat, cuts)]

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        factors = split(flat)
        w = [b @ f for b, f in zip(beta, factors, strict=True)]  # each group's weights, [E, d]
        wrong = sum(np.sum(v * f[at], 1) for v, f in zip(w, factors, strict=True)) - value
        slopes = [b.T @ (wrong[:, None] * f[at]) for b, f in zip(beta, factors, strict=True)]
        for slope, v in zip(slopes, w, strict=True):
            np.add.at(slope, at, wrong[:, None] * v)
        return float(wrong @ wrong) / total, np.concatenate([s.ravel() for s in slopes]) * 2 / total

    scale = np.sqrt(total / max(np.square(beta).sum(), 1e-300) / sum(sizes))  # so that guesses are as large as scores
    start = rng.normal(size=n * sum(sizes)) * np.sqrt(scale)
    found = minimize(loss, start, jac=True, method="L-BFGS-B",
                     options={"maxiter": iterations, "maxfun": 2 * iterations, "maxcor": 30, "ftol": 1e-30,
                              "gtol": 1e-15})  # fmt: skip
    factors = tuple(split(found.x))
    gram = np.sum([f @ f.T for f in factors], 0)
    return LowRank(system.columns, gram, factors, system.groups, float(np.sqrt(found.fun)), int(found.nit), len(value),
                   n * sum(sizes))  # fmt: skip
