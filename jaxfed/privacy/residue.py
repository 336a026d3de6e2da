"""The residue attack: thetas, and so labels, from gradients that a minibatch was added up to.

Sending a party only g = (1/b) sum_i theta_i x_i of its own features, instead of each theta_i, hides little (Tan et al.
2022, "Residue-based label protection mechanisms in vertical logistic regression"): with its own rows the party has
d_own equations in b unknowns, which are exact where b is at most their rank.
"""

from typing import NamedTuple

import numpy as np

from jaxfed.checks import fail
from jaxfed.privacy.messages import Guesses, gather
from jaxfed.privacy.transcript import View

SURE = 1e-12  # of 1 - P_ii, so an error of at most 1e-6 |theta| where values are exact


class Residue(NamedTuple):
    """theta [N, b]: the solution of least norm. rank int [N]: of each update's equations; unknowns int [N]: samples of
    the minibatch that are different. determined bool [N, b]: which thetas the equations leave no choice for (the
    attacker knows that). guesses: labels by the sign of theta, per value and by vote over the run."""

    theta: np.ndarray
    rank: np.ndarray
    unknowns: np.ndarray
    determined: np.ndarray
    guesses: Guesses


def residue(view: View) -> Residue:
    """Solve sum_i theta_i x_i = b g for every update of a view that holds gradients [N, d_own].

    Least squares by singular values, all updates at once. A sample drawn twice in a minibatch is one unknown, whose row
    counts twice. Beyond the rank the solution of least norm is P theta with a projection P, of which each theta_i has
    its own part P_ii, about d_own / b: so labels are guessed well above chance far beyond b = d_own. Rows without own
    features get NaN. Raises ValueError where there are no gradients.
    """
    if view.gradients is None:
        fail("view", "no gradients", "batch-aggregated gradients (for theta see privacy.labels)")
    rows, gradients = np.asarray(view.rows), np.asarray(view.gradients)
    x = np.asarray(view.x)
    size = rows.shape[1]
    first, count = _merged(rows)
    system = np.swapaxes(x[rows].astype(float), 1, 2) * count[:, None]  # [N, d_own, b]: a later equal row is zero
    left, values, right = np.linalg.svd(system, full_matrices=False)
    eps = np.finfo(np.result_type(gradients, x, np.float32)).eps
    keep = values > eps * max(system.shape[1:]) * values[:, :1]
    inverse = np.where(keep, 1 / np.where(keep, values, 1), 0)
    right = right * keep[:, :, None]  # [N, k, b]
    theta = np.einsum("nkb,nk,ndk,nd->nb", right, inverse, left, size * gradients.astype(float), optimize=True)
    share = np.sum(right**2, 1)  # P_ii
    told = np.any(system != 0, 1)
    theta = np.take_along_axis(np.where(told, theta, np.nan), first, 1)
    determined = np.take_along_axis(told & (share > 1 - SURE), first, 1)
    guesses = gather(len(x), rows.ravel(), -theta.ravel())
    return Residue(theta, np.sum(keep, 1), np.sum(count > 0, 1), determined, guesses)


def _merged(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return, for rows [N, b], the place in its minibatch of each sample's first copy, and there how many it has."""
    equal = rows[:, :, None] == rows[:, None]
    first = np.argmax(equal, 2)
    return first, np.where(first == np.arange(rows.shape[1]), np.sum(equal, 2), 0)
