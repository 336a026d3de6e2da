"""Label inference from the thetas that a dominator sends: by sign, by clusters, by norm, by a hint.

Theorem 7 of the paper (Zhang et al. 2021, section 6) says that labels can't be inferred from theta, as one equation in
w, x and y has many solutions. For two classes that is not so: a loss that falls with the margin y z has
sign(theta) = -y, whatever w and x are, so however stale the scores are. Each attack takes a `View` (what a coalition
received) and knowledge that it names, and gives `Guesses`; `label_metrics` judges them by the truth.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxfed.checks import fail, number
from jaxfed.privacy.messages import Guesses, collect, gather
from jaxfed.privacy.transcript import View


def by_sign(view: View, *, passes: bool = True) -> Guesses:
    """Return guesses by the sign of theta: score -theta, label -sign(theta) (Fu et al. 2022, the direct attack).

    Needs two classes and nothing else; one message per sample is enough. Logistic loss: theta = -y sigmoid(-y z) is
    never zero. Squared hinge: theta = -2 y max(0, 1 - y z) is zero once y z >= 1, and such a message tells only that
    the sample is beyond its margin (its label is then the sign of z, which a passive party lacks): it counts for no
    label. (Floats keep a sign even there, -0.0 for y = +1. That is not used: it is no property of the method.)
    """
    told = collect(view, passes)
    return gather(len(view.x), told.rows, -told.theta)


def by_clusters(
    view: View,
    *,
    known: Mapping[int, int] | None = None,
    prior: float | None = None,
    at: float | None = 0.0,
    passes: bool = True,
) -> Guesses:
    """Return guesses from two clusters of thetas, without knowing the loss or what its sign means.

    at: where the clusters are split; None: where two means split the first message of each sample (scikit-learn's
    k-means): exact for those at w = 0, worse the more has been learned by then, as thetas crowd around 0. Labels are
    then known up to one global swap, which is settled by `known`, {row: -1 or +1}, and if that says nothing by `prior`,
    the share of positives, of which only the side of one half is used. Raises ValueError where neither settles it.
    """
    told = collect(view, passes)
    if at is None:
        first = gather(len(view.x), told.rows, told.theta).first
        at = _two_means(first[~np.isnan(first)])
    number("at", at, -np.inf)
    guesses = gather(len(view.x), told.rows, at - told.theta)
    known = _checked(known, len(view.x))
    votes = _orientation(guesses, known)
    if votes == 0 and prior is not None:
        number("prior", prior, 0, 1)
        votes = np.nansum(guesses.labels) * (prior - 0.5)
    if votes == 0:
        fail("known", repr(known), "a label of a sample that was seen, or a `prior` other than one half")
    return gather(len(view.x), told.rows, np.sign(votes) * (at - told.theta))


def by_norm(view: View, *, prior: float | None = None, passes: bool = True) -> Guesses:
    """Return guesses by |theta| (Li et al. 2022, the norm attack): a model surprised by a sample has a large theta.

    Works by imbalance: where positives are rare, a trained model has theta near 0 on negatives and near -1 on
    positives; on balanced data it is at chance. Scores only; with `prior`, the share of positives, the samples of the
    greatest mean score get the label +1.
    """
    told = collect(view, passes)
    guesses = gather(len(view.x), told.rows, np.abs(told.theta))
    if prior is None:
        return guesses._replace(labels=np.full(len(view.x), np.nan))
    number("prior", prior, 0, 1)
    if np.all(np.isnan(guesses.mean)):
        return guesses
    least = np.nanquantile(guesses.mean, 1 - prior)
    labels = np.where(guesses.mean >= least, 1.0, -1.0)
    return guesses._replace(labels=np.where(np.isnan(guesses.mean), np.nan, labels))


def by_hint(view: View, known: Mapping[int, int], *, passes: bool = True) -> Guesses:
    """Return guesses by direction: the cosine with the mean theta of known samples (Li et al. 2022, the cosine attack).

    known: {row: -1 or +1}, one positive is enough; a negative counts with its sign turned. Of two scalars the cosine
    is the product of their signs, so a message scores -1, 0 or +1, and no loss need be known. Raises ValueError where
    no known row was seen, or where their mean is zero.
    """
    told = collect(view, passes)
    known = _checked(known, len(view.x))
    label = np.zeros(len(view.x))
    for row, value in known.items():
        label[row] = value
    hint = np.nansum(label[told.rows] * told.theta)
    if hint == 0:
        fail("known", repr(dict(known)), "a row that was seen, whose thetas don't cancel")
    return gather(len(view.x), told.rows, np.sign(hint) * np.sign(told.theta))


def _checked(known: Mapping[int, int] | None, num_rows: int) -> dict[int, int]:
    """Return known labels; ValueError for what is no row or no label."""
    known = dict(known or {})
    for row, label in known.items():
        if not 0 <= row < num_rows:
            fail("known", f"row {row}", f"rows 0 to {num_rows - 1}")
        if label not in (-1, 1):
            fail(f"known[{row}]", repr(label), "-1 or +1")
    return known


def _orientation(guesses: Guesses, known: Mapping[int, int]) -> float:
    """Return whether guesses go with known labels (> 0) or against them (< 0): by the mean scores of the two classes,
    which don't hang on where the clusters are split, or by the labels where one class is known."""
    seen = [row for row in known if not np.isnan(guesses.labels[row])]
    positive = np.array([known[row] > 0 for row in seen], bool)
    if 0 < np.sum(positive) < len(seen):
        mean = guesses.mean[seen]
        return float(np.mean(mean[positive]) - np.mean(mean[~positive]))
    return float(np.sum(guesses.labels[seen] * np.where(positive, 1, -1)))


def _two_means(values: np.ndarray) -> float:
    """Return the middle between two means; from the extremes, so the same each time."""
    from sklearn.cluster import KMeans

    if not values.size or np.min(values) == np.max(values):
        fail("view", "thetas that are all equal", "two clusters of them")
    start: Any = np.array([[np.min(values)], [np.max(values)]])
    means: Any = KMeans(2, init=start).fit(values[:, None]).cluster_centers_
    return float(np.mean(means))
