"""Solving theta = dL/dz(z, y) for what it hides: scores of two classes, targets of regression.

For two classes y is one of two numbers, so one equation gives both y and z: the passive party then holds what an active
one does, and z less its own part is the sum of the others' partial products. For real targets one equation has two
unknowns, and a party needs to know z: at the start it is 0 (the paper's runs and ours begin at w = 0).
"""

from typing import NamedTuple

import numpy as np

from jaxfed.checks import fail, one_of
from jaxfed.privacy.messages import collect
from jaxfed.privacy.transcript import View


class Logits(NamedTuple):
    """Per message [M], in the order of arrival: rows, labels -1 or +1, the score z that theta was computed from, and
    others = z less the coalition's own part (NaN where that is not known). NaN where theta says nothing of z."""

    rows: np.ndarray
    labels: np.ndarray
    z: np.ndarray
    others: np.ndarray


class Targets(NamedTuple):
    """values [n]: the mean of each sample's estimates, NaN without any. rows int [M], each [M]: per message."""

    values: np.ndarray
    rows: np.ndarray
    each: np.ndarray


def logits(view: View, *, passes: bool = True) -> Logits:
    """Return labels and scores of every message of a run with two classes. Needs the loss.

    Logistic: |theta| = sigmoid(-y z), so y = -sign(theta) and z = y log(1 / |theta| - 1), taken as a difference of
    logarithms in float64. What is left is the rounding of theta itself: a relative error e of theta is one of
    e / (1 - |theta|) in z, so in float32 about 1e-7 (1 + exp(-y z)). Where |theta| is 0 or 1, z is only known to be
    far out: NaN. Squared hinge: z = y + theta / 2, and NaN where theta = 0 (y z >= 1).
    """
    one_of("view.loss", view.loss, ("logistic", "squared_hinge"))
    told = collect(view, passes)
    y, size = -np.sign(told.theta), np.abs(told.theta)
    if view.loss == "squared_hinge":
        z = np.where(size > 0, y + told.theta / 2, np.nan)
    else:
        inside = (size > 0) & (size < 1)
        safe = np.where(inside, size, 0.5)
        z = np.where(inside, y * (np.log1p(-safe) - np.log(safe)), np.nan)
    return Logits(told.rows, np.where(size > 0, y, np.nan), z, z - told.own)


def at_start(view: View) -> Targets:
    """Return targets from the messages that were computed at w = 0, where z = 0 is known. Needs the loss.

    Those are a pass before tick 0 (SAGA's and SVRG's first, all rows), the first tick of a run, and later ones for as
    long as the attacker sees that its block has not moved: own partial products that are exactly 0, some of them of
    rows that are not. In an asynchronous run others may have moved before: their products at the message are then the
    error (squared losses). A view that begins later has none. Squared: y = -theta / 2; half squared: y = -theta;
    robust: see `solve`; two classes: y = -sign(theta).
    """
    told, ticks = collect(view), np.asarray(view.tick)
    still = np.all(np.sum(view.products, -1) == 0, 1)
    until = len(still) if np.all(still) else int(np.argmin(still))  # the first update with another product
    sure = np.any(np.asarray(view.x)[view.rows] != 0, (1, 2)) | ((ticks == ticks[:1]) & (view.update == 0))
    last = np.max(ticks[:until][sure[:until]], initial=-1)
    early = (told.update < until) & (ticks[np.maximum(told.update, 0)] <= last)
    first = [-1 - i for i, full in enumerate(view.passes) if full.tick == 0]
    keep = np.where(told.update >= 0, early, np.isin(told.update, first))
    each = np.where(keep, solve(view.loss, told.theta, np.zeros(len(told.theta))), np.nan)
    return _mean(len(view.x), told.rows, each)


def with_scores(view: View, scores: np.ndarray) -> Targets:
    """Return targets from all updates for which the score is known besides, [N, b], NaN where it isn't.

    So it is to an attacker that has the others' products too: with two parties after the Gram attack, or by collusion.
    """
    told = collect(view, passes=False)
    if np.shape(scores) != np.shape(view.rows):
        fail("scores", f"shape {np.shape(scores)}", f"{np.shape(view.rows)}, one for each theta")
    return _mean(len(view.x), told.rows, solve(view.loss, told.theta, np.ravel(np.asarray(scores, float))))


def solve(loss: str, theta: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Return y from theta and z, elementwise.

    Robust: theta = r / (r^2 / 2 + 1), r = z - y, is a quadratic in r with the roots (1 -+ sqrt(1 - 2 theta^2)) / theta,
    whose product is 2. The one with |r| <= sqrt 2 is taken: y is right where |y - z| <= sqrt 2, as for targets scaled
    to [0, 1] at z = 0. At |r| = sqrt 2 the two meet, and a relative error e of theta becomes one of 2 sqrt(e) in y.
    """
    if loss in ("logistic", "squared_hinge"):
        return np.where(theta == 0, np.nan, -np.sign(theta))
    one_of("view.loss", loss, ("squared", "half_squared", "robust"))
    if loss == "robust":
        return z - 2 * theta / (1 + np.sqrt(np.maximum(1 - 2 * theta**2, 0)))
    return z - theta / (2 if loss == "squared" else 1)


def _mean(num_rows: int, rows: np.ndarray, each: np.ndarray) -> Targets:
    seen = ~np.isnan(each)
    count = np.bincount(rows[seen], minlength=num_rows)
    total = np.bincount(rows[seen], each[seen], num_rows)
    return Targets(np.where(count > 0, total / np.maximum(count, 1), np.nan), rows, each)
