"""The Gram attack: a dominator learns the inner products of the other parties' rows, with secure aggregation intact.

A party moves by known multiples of its rows, so the change of z_j around an update on i shows x_i . x_j: for one
update K_ij = -(z_j' - (1 - lr l2) z_j) / (lr theta_i) (notes on vertical learning, section 3.6; after the reverse
multiplication of Weng et al. 2020, arXiv 2011.09290). In a run all that lies between two scores of a row is a linear
combination with known coefficients (`jaxfed.privacy.equations`). For what features follow from K, see
`jaxfed.privacy.reconstruction`; with far fewer scores, `jaxfed.privacy.low_rank`.

Everything is solved in float64. What float32 runs cost: z_j' - z_j cancels, so K_ij has an error of about
6e-8 |z_j| / (lr |theta_i|), ten times smaller where lr is ten times larger.
"""

from typing import Any, NamedTuple

import numpy as np

from jaxfed.checks import fail, flag, number
from jaxfed.checks import whole as whole_number
from jaxfed.privacy.equations import Equations, equations, steps
from jaxfed.privacy.transcript import View

TINY = 1e-300
UNSEEN = 1e-10  # the squared share of an entry outside of what the equations span, below which it is determined


class Gram(NamedTuple):
    """Inner products of rows of the other parties, and how far the equations determine them.

    rows int [r], columns int [c]: samples. gram [r, c]: x_row . x_column summed over all other parties, the solution of
    least norm. determined [r, c]: which entries the equations fix. error [r, c]: what rounding makes of these, about a
    standard deviation, in the units of gram: large where the equations fix an entry in theory only. parts [g, r, c],
    parts_determined: the same for each of `groups` alone. equations, rank int [r]: of each row's system, of `unknowns`
    columns. residual [r]: of least squares, relative; large where the schedule or the messages are not what was assumed
    (0 where there are no more equations than the rank: then it can't show).
    """

    rows: np.ndarray
    columns: np.ndarray
    gram: np.ndarray
    determined: np.ndarray
    error: np.ndarray
    groups: tuple[tuple[int, ...], ...]
    parts: np.ndarray
    parts_determined: np.ndarray
    equations: np.ndarray
    rank: np.ndarray
    unknowns: int
    residual: np.ndarray


class Low(NamedTuple):
    """gram [n, n] of the other parties' rows; its numerical `rank`; asymmetry: of the products between the directions
    that the passes saw, relative; 0 in exact arithmetic, large under wrong messages."""

    gram: np.ndarray
    rank: int
    asymmetry: float


def around(before: np.ndarray, after: np.ndarray, theta: Any, lr: Any, l2: float = 0.0) -> np.ndarray:
    """Return K_ij from z_j before and after one update on i, any shapes that broadcast.

    theta: of the update on i, divided by the batch size if there is one; lr: the step size; l2: 0 without a
    regulariser. z may be all parties' (then K is) or the others'. Every party has applied that update and no other.
    """
    before, after, theta, lr = (np.asarray(value, float) for value in (before, after, theta, lr))
    return -((after - before) + lr * l2 * before) / (lr * theta)  # z' - z first: exact where they are close


def attack(view: View, *, at_zero: bool = False, rcond: float | None = None, **knowledge: Any) -> Gram:
    """Return what a coalition's scores tell of the other parties' Gram matrix, row by row.

    at_zero: the window begins with the run, so all weights start at 0; else w_start . x_j is one more unknown for each
    row and group. rcond: singular values below this share of the largest count as 0; None: 50 times the relative
    spacing of the scores' precision. Where the schedule is unknown, equations are wrong by more, and 0.01 is better.
    knowledge: what a view does not hold, and which rows: see `equations`. Raises ValueError.
    """
    flag("at_zero", at_zero)
    system = equations(view, **knowledge)
    rcond = 50 * rounding(view) if rcond is None else rcond
    number("rcond", rcond, 0, 1)
    rows, counts = np.unique(system.row, return_counts=True)
    (g, c), r = system.beta.shape[1:], len(rows)
    parts, spanned, whole, error = np.zeros((r, g, c)), np.zeros((r, g, c)), np.zeros((r, c)), np.zeros((r, c))
    rank, residual = np.zeros(r, int), np.zeros(r)
    for k, row in enumerate(rows):
        which = np.flatnonzero(system.row == row)
        matrix, value = _matrix(system, which, at_zero)
        u, s, vt = np.linalg.svd(matrix, full_matrices=False)
        keep = s > rcond * max(s[0], TINY)
        u, s, vt = u[:, keep], s[keep], vt[keep]
        fitted, span = u.T @ value, vt[:, : g * c].reshape(-1, g, c)
        parts[k] = ((fitted / s) @ vt)[: g * c].reshape(g, c)
        spanned[k], whole[k] = np.square(span).sum(0), np.square(span.sum(1)).sum(0) / g
        noise = rounding(view) * np.sqrt(np.mean(np.square(system.value[which])))
        error[k] = noise * np.sqrt(np.square(span.sum(1) / s[:, None]).sum(0))
        rank[k], residual[k] = len(s), np.linalg.norm(value - u @ fitted) / max(np.linalg.norm(value), TINY)
    parts, spanned = parts.swapaxes(0, 1), spanned.swapaxes(0, 1)
    return Gram(rows, system.columns, parts.sum(0), 1 - whole < UNSEEN, error, system.groups, parts,
                1 - spanned < UNSEEN, counts, rank, g * c + (0 if at_zero else g), residual)  # fmt: skip


def rounding(view: View, masked: bool = True) -> float:
    """Return the relative spacing of a view's scores: 1.2e-7 or 2.2e-16 by their precision; of those that came as
    fixed-point numbers (`masked`) at least the last place of these, over the scores' root mean square."""
    scores = np.asarray(view.scores)
    eps = float(np.finfo(scores.dtype).eps)
    known = scores[np.isfinite(scores)]
    if not masked or view.fraction_bits is None or not np.any(known):
        return eps
    return max(eps, 2.0**-view.fraction_bits / float(np.sqrt(np.mean(np.square(known, dtype=float)))))


def _matrix(system: Equations, which: np.ndarray, at_zero: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return one row's equations, the columns of its start last: matrix [E, g c] or [E, g c + g], and values [E]."""
    moment = system.moment[which]
    beta, decay = system.beta[moment], system.decay[moment]
    matrix = beta.reshape(len(which), -1)
    if not at_zero:  # on the scale of beta, or the start would decide which singular values are small
        scale = np.linalg.norm(matrix) / np.linalg.norm(decay) if np.any(matrix) else 1.0
        matrix = np.concatenate([matrix, decay * scale], 1)
    return steps(matrix, system.value[which], decay.mean(1), system.row[which])


def both_ways(found: Gram) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (samples [s], gram [s, s], determined [s, s]): K_ij = K_ji where only one of the two is determined.

    The samples are those that are rows and columns; where both are determined it is their mean.
    """
    samples = np.intersect1d(found.rows, found.columns)
    at = np.ix_(np.searchsorted(found.rows, samples), np.searchsorted(found.columns, samples))
    gram, sure = found.gram[at], found.determined[at]
    weight = np.where(sure == sure.T, 0.5, sure)
    return samples, weight * gram + weight.T * gram.T, sure | sure.T


def from_passes(
    view: View, *, rank: int | None = None, at_zero: bool = False, rcond: float | None = None, **knowledge: Any
) -> Low:
    """Return the whole Gram matrix from the scores of full passes alone (SVRG's reference points).

    Passes give Y = K B for all rows at once, with B known and K of rank at most d, the other parties' number of
    features: then K = Y (B^T Y)^+ Y^T as soon as d passes are independent, where row by row n would be needed
    (Nystroem's formula, exact at that rank). Nothing is on its way at a reference point, so that when each message was
    applied matters only in terms of order lr l2.

    rank: at most that of K, say the number of the others' features, if that is known; None: what the passes show, which
    rounding makes larger. at_zero: weights are 0 at the window's start; else the first pass is the base from which
    others are counted. rcond: as in `attack`, of B and of B^T Y. knowledge: see `equations`; groups are taken together,
    by their mean.
    """
    flag("at_zero", at_zero)
    system = equations(view, use="passes", **knowledge)
    rcond = 50 * rounding(view, masked=False) if rcond is None else rcond  # a pass is not masked
    number("rcond", rcond, 0, 1)
    n, count = len(view.x), len(system.beta)
    if len(system.row) != count * n:
        fail("view", f"{len(system.row)} scores of {count} passes over {n} rows", "all of them (rows=None)")
    beta, decay, value = system.beta.mean(1), system.decay.mean(1), system.value.reshape(count, n)
    if not at_zero and count:
        ratio = decay / decay[0]
        beta, value = beta - ratio[:, None] * beta[0], value - ratio[:, None] * value[0]
    whole = np.zeros((count, n))
    whole[:, system.columns] = beta
    u, s, vt = np.linalg.svd(whole, full_matrices=False)
    keep = s > rcond * max(s.max(initial=0), TINY)
    seen = (u[:, keep] / s[keep]).T @ value  # [k, n]: K times orthonormal directions
    between = vt[keep] @ seen.T
    asymmetry = np.linalg.norm(between - between.T) / max(np.linalg.norm(between), TINY)
    sizes, vectors = np.linalg.eigh((between + between.T) / 2)
    large = sizes > rcond * max(sizes.max(initial=0), TINY)
    if rank is not None:
        whole_number("rank", rank, 1)
        large[: max(len(sizes) - rank, 0)] = False
    root = (vectors[:, large] / np.sqrt(sizes[large])).T @ seen
    return Low(root.T @ root, int(large.sum()), float(asymmetry))
