"""From inner products to features: what a Gram matrix of the other parties' rows gives away.

Inner products fix rows up to a rotation (Lemma 1 of VFB2 says no more of single products), so up to the sign with one
feature; with as many known rows as features they fix all; and categories, coded one-hot, are read off. (Notes on
vertical learning, section 3.6.)
"""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from jaxfed.checks import fail, whole


class OneHot(NamedTuple):
    """codes int [n, s]: each row's category of each of the s columns (numbered as they first appear), or None where
    none fit or too many were tried; tried: how many partial rows that took."""

    codes: np.ndarray | None
    tried: int


def up_to_rotation(gram: np.ndarray, num_features: int) -> np.ndarray:
    """Return features [n, d] with x x^T nearest to gram [n, n]: the truth times an unknown orthogonal matrix.

    With one feature that is a sign.
    """
    _square(gram)
    whole("num_features", num_features, 1)
    sizes, vectors = np.linalg.eigh((gram + gram.T) / 2)
    at = np.argsort(sizes)[::-1][:num_features]
    return vectors[:, at] * np.sqrt(np.maximum(sizes[at], 0))


def from_anchors(gram: np.ndarray, known: Mapping[int, Any], determined: np.ndarray | None = None) -> np.ndarray:
    """Return features [n, d] from gram [n, n] and the features [d] of some rows, `known`, all by least squares.

    gram's columns of the known rows are x x_known^T: exact with d independent known rows, of least norm with fewer.
    determined bool [n, n]: a row is solved from those of its entries that are (None: all); NaN where there is none.
    """
    _square(gram)
    rows = np.array(list(known))
    anchors = np.array([np.atleast_1d(np.asarray(known[row], float)) for row in known])
    if not len(rows) or anchors.ndim != 2 or rows.min() < 0 or rows.max() >= len(gram):
        fail("known", f"rows {rows.tolist()}", f"features, all of one length, by row number below {len(gram)}")
    seen = np.ones((len(gram), len(rows)), bool) if determined is None else np.asarray(determined)[:, rows]
    out = np.full((len(gram), anchors.shape[1]), np.nan)
    patterns, which = np.unique(seen, axis=0, return_inverse=True)
    for k, pattern in enumerate(patterns):
        if pattern.any():
            here = np.flatnonzero(which.ravel() == k)
            out[here] = np.linalg.lstsq(anchors[pattern], gram[np.ix_(here, rows[pattern])].T)[0].T
    return out


def one_hot(gram: np.ndarray, sizes: Sequence[int], most: int = 100_000) -> OneHot:
    """Return the categories of rows that are coded one-hot, not scaled, by a search through gram [n, n].

    sizes: the number of categories of each column. Two rows' inner product is the number of columns in which they
    agree, so row by row only what agrees with all rows before is kept; a category is as good as another that has not
    been used yet. Found up to the names of the categories, and up to the order of columns of one size; among several
    solutions the first. most: partial rows to try. Raises ValueError.
    """
    _square(gram)
    for k, size in enumerate(sizes):
        whole(f"sizes[{k}]", size, 1)
    whole("most", most, 1)
    agree = np.rint(gram).astype(int)
    if not sizes or np.abs(gram - agree).max(initial=0) > 0.25 or np.any(np.diagonal(agree) != len(sizes)):
        return OneHot(None, 0)
    every = np.array(list(product(*map(range, sizes))))
    codes = np.zeros((len(gram), len(sizes)), int)
    left: list[np.ndarray] = []  # of each row that is placed: what else could be tried
    tried = 0
    while len(left) < len(gram):
        row = len(left)
        before = codes[:row]
        fits = ((every[:, None] == before).sum(2) == agree[row, :row]).all(1)
        fresh = before.max(0) + 1 if row else np.zeros(len(sizes), int)
        left.append(every[fits & (every <= fresh).all(1)])
        while left and not len(left[-1]):
            left.pop()
        if not left or tried >= most:
            return OneHot(None, tried)
        codes[len(left) - 1], left[-1] = left[-1][0], left[-1][1:]
        tried += 1
    return OneHot(codes, tried)


def _square(gram: np.ndarray) -> None:
    shape = np.shape(gram)
    if len(shape) != 2 or shape[0] != shape[1]:
        fail("gram", f"shape {shape}", "[n, n]: `gram.both_ways` makes it of rows and columns")
