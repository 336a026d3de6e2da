"""What a model is judged by, from scores z [n] and targets y [n] (classes -1 and +1)."""

import numpy as np


def accuracy(z, y):
    """The share of rows whose class is the score's sign; a score of exactly 0 counts as class -1."""
    right = 0
    for score, target in zip(z, y, strict=True):
        right += (1 if score > 0 else -1) == target
    return right / len(y)


def auc(z, y):
    """The share of pairs (a +1 row, a -1 row) that the score ranks rightly, a tie counting half; NaN without pairs.

    By Mann and Whitney's sum of the positives' ranks, equal scores sharing the mean of their ranks.
    """
    z, y = np.asarray(z, float), np.asarray(y)
    positives = int(np.sum(y == 1))
    negatives = len(y) - positives
    if positives == 0 or negatives == 0:
        return np.nan
    order = np.argsort(z, kind="stable")
    rank_sum, first = 0.0, 0
    while first < len(z):
        last = first
        while last + 1 < len(z) and z[order[last + 1]] == z[order[first]]:
            last += 1
        shared = (first + last) / 2 + 1
        rank_sum += shared * np.sum(y[order[first : last + 1]] == 1)
        first = last + 1
    return (rank_sum - positives * (positives + 1) / 2) / (positives * negatives)


def rmse(z, y):
    """The root of the mean squared error, in the targets' units."""
    total = 0.0
    for score, target in zip(z, y, strict=True):
        total += (score - target) ** 2
    return np.sqrt(total / len(y))
