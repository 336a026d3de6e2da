"""How far label attacks got, judged by the truth: of the samples seen, and how many those are.

truth [n]: labels -1 and +1 (or targets); guesses and scores [n], NaN where the attack says nothing. `skip`: rows left
out, say those whose labels the attack was given. Per message: hand in `truth[guesses.rows]` and `guesses.each`.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from jaxfed.checks import fail, whole
from jaxfed.privacy.messages import Guesses


class Judged(NamedTuple):
    """An attack's metrics. Per message: message_accuracy, message_auc. Accumulated over a run, per sample: accuracy of
    the vote, auc_first, auc_last, auc_mean. coverage: the share of samples that it saw."""

    message_accuracy: float
    message_auc: float
    accuracy: float
    auc_first: float
    auc_last: float
    auc_mean: float
    coverage: float


def judge(truth: np.ndarray, guesses: Guesses, skip: Iterable[int] = ()) -> Judged:
    """Return all metrics of one attack on labels; those that don't exist are NaN."""
    skip = list(skip)
    own = np.isin(guesses.rows, skip)
    told = np.asarray(truth, float)[guesses.rows]
    each = np.where(own, np.nan, guesses.each)
    votes = np.where(each == 0, np.nan, np.sign(each))
    first, last, mean = (auc(truth, score, skip) for score in (guesses.first, guesses.last, guesses.mean))
    right = accuracy(truth, guesses.labels, skip)
    return Judged(accuracy(told, votes), auc(told, each), right, first, last, mean, coverage(guesses.mean))


def accuracy(truth: np.ndarray, guess: np.ndarray, skip: Iterable[int] = ()) -> float:
    """Return the share of right labels among those that were guessed."""
    truth, guess = _seen(truth, guess, skip)
    return float(np.mean(truth == guess)) if truth.size else np.nan


def auc(truth: np.ndarray, score: np.ndarray, skip: Iterable[int] = ()) -> float:
    """Return the area under the ROC curve; NaN where only one class was seen."""
    from sklearn.metrics import roc_auc_score

    truth, score = _seen(truth, score, skip)
    return float(roc_auc_score(truth > 0, score)) if len(set(truth > 0)) == 2 else np.nan


def auc_of_batches(truth: np.ndarray, score: np.ndarray, size: int) -> np.ndarray:
    """Return the AUC of each batch of `size` messages in the order of arrival, NaN where a batch has one class.

    truth, score [M], per message. Li et al. 2022 report the 95 % quantile over batches: `np.nanquantile(..., 0.95)`.
    """
    whole("size", size, 2)
    count = len(score) // size
    batches = (slice(i * size, (i + 1) * size) for i in range(count))
    return np.array([auc(truth[batch], score[batch]) for batch in batches])


def mean_error(truth: np.ndarray, guess: np.ndarray, skip: Iterable[int] = ()) -> float:
    """Return the mean absolute error of the targets that were guessed, in their units."""
    truth, guess = _seen(truth, guess, skip)
    return float(np.mean(np.abs(truth - guess))) if truth.size else np.nan


def largest_error(truth: np.ndarray, guess: np.ndarray, skip: Iterable[int] = ()) -> float:
    """Return the largest absolute error of what was guessed."""
    truth, guess = _seen(truth, guess, skip)
    return float(np.max(np.abs(truth - guess))) if truth.size else np.nan


def coverage(guess: np.ndarray) -> float:
    """Return the share of samples of which an attack says something."""
    return float(np.mean(~np.isnan(guess)))


def _seen(truth: np.ndarray, guess: np.ndarray, skip: Iterable[int]) -> tuple[np.ndarray, np.ndarray]:
    truth, guess = np.asarray(truth, float), np.asarray(guess, float)
    if truth.shape != guess.shape:
        fail("truth", f"shape {truth.shape}", f"{guess.shape}, as the guesses have")
    keep = ~np.isnan(guess)
    keep[list(skip)] = False
    return truth[keep], guess[keep]
