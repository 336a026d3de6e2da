"""What a view holds of theta, message by message, and what repeats of a sample add up to: the label attacks' input.

A run tells a party about the same sample again and again. Every label attack therefore gives a score per message and
the scores accumulated per sample: what looks safe in one message need not be safe over a run.
"""

from typing import NamedTuple

import numpy as np

from jaxfed.checks import fail, flag
from jaxfed.privacy.transcript import View


class Messages(NamedTuple):
    """M values of theta in the order of arrival.

    rows int [M]; theta float64 [M], NaN where it was not sent to the coalition; own [M]: the coalition's part of the
    score that theta was computed from, NaN where it is not known; update int [M]: which of the view's updates, or
    -1 - p for its pass p.
    """

    rows: np.ndarray
    theta: np.ndarray
    own: np.ndarray
    update: np.ndarray


class Guesses(NamedTuple):
    """What an attack says of n samples; NaN for samples that it never saw.

    labels [n]: -1 or +1, by the majority of a sample's messages (NaN also where they say nothing). Scores, greater for
    more likely positives: first, last and mean [n] of each sample's messages. rows int [M], each [M]: per message, in
    the order of arrival.
    """

    labels: np.ndarray
    first: np.ndarray
    last: np.ndarray
    mean: np.ndarray
    rows: np.ndarray
    each: np.ndarray


def collect(view: View, passes: bool = True) -> Messages:
    """Return the messages of a view; `passes`: with the thetas of all rows that SAGA and SVRG send at once.

    A pass comes before the updates of the tick that it precedes. Raises ValueError where theta was not sent.
    """
    flag("passes", passes)
    if view.theta is None:
        fail("view", "no thetas", "theta of each sample (for batch-aggregated gradients see privacy.residue)")
    theta, rows = (np.asarray(x) for x in (view.theta, view.rows))
    own = np.sum(np.asarray(view.products, float), -1)
    update = np.broadcast_to(np.arange(len(rows))[:, None], rows.shape)
    full = view.passes if passes else ()
    n = len(view.x)
    parts = [
        (rows.ravel(), *(np.arange(n) for _ in full)),
        (theta.ravel(), *(p.theta for p in full)),
        (own.ravel(), *(np.full(n, np.nan) if p.products is None else p.products.sum(1) for p in full)),
        (update.ravel(), *(np.full(n, -1 - i) for i in range(len(full)))),
    ]
    ticks = [np.repeat(np.asarray(view.tick), rows.shape[1]) + 0.5, *(np.full(n, float(p.tick)) for p in full)]
    order = np.argsort(np.concatenate(ticks), kind="stable")
    rows, theta, own, update = (np.concatenate(part)[order] for part in parts)
    return Messages(rows, theta.astype(float), own, update)


def gather(num_rows: int, rows: np.ndarray, each: np.ndarray) -> Guesses:
    """Return guesses for samples 0 .. num_rows - 1 from scores per message; a score's sign is its vote.

    A vote that is tied is decided by the mean score. Messages that say nothing (NaN) count as not seen.
    """
    seen = ~np.isnan(each)
    at, score = rows[seen], each[seen]
    first, last = np.full(num_rows, np.nan), np.full(num_rows, np.nan)
    first[at[::-1]] = score[::-1]  # of equal places, the last assignment stays
    last[at] = score
    count = np.bincount(at, minlength=num_rows)
    mean = np.where(count > 0, np.bincount(at, score, num_rows) / np.maximum(count, 1), np.nan)
    votes = np.sign(np.bincount(at, np.sign(score), num_rows))
    labels = np.where(votes == 0, np.sign(mean), votes)
    return Guesses(np.where(labels == 0, np.nan, labels), first, last, mean, rows, each)
