"""Scaling of features by statistics of the rows given, each party's over the rows that it holds."""

from typing import Any

import numpy as np
from scipy import sparse

from jaxfed.checks import fail, one_of
from jaxfed.vertical.reading import floats

SCALES = ("standard", "minmax", "maxabs")


def fit(x: Any, kind: str | None, sizes: tuple[int, ...], present: np.ndarray | None) -> tuple[Any, Any]:
    """Return what to subtract and what to divide by, float64 [d] each, or None where there is nothing to do.

    "standard": mean and standard deviation (divisor n); "minmax": minimum and range, so that features lie in [0, 1];
    "maxabs": nothing and the largest absolute value. A constant column is divided by 1. For sparse x only "maxabs"
    keeps the zeros; the others raise ValueError. `present`, bool [n, q], tells which party holds which row.
    """
    if kind is None:
        return None, None
    one_of("scale", kind, SCALES)
    if sparse.issparse(x):
        if kind != "maxabs":
            fail("scale", f"{kind!r} for a sparse x", "'maxabs' or None (others would fill the zeros in)")
        largest = abs(x).max(axis=0).toarray().ravel().astype(np.float64)
        return None, np.where(largest > 0, largest, 1)
    shift, scale = np.zeros(x.shape[1]), np.ones(x.shape[1])
    ends = np.cumsum(sizes)
    for party, (a, b) in enumerate(zip(ends - sizes, ends, strict=True)):
        own = x[:, a:b] if present is None or present[:, party].all() else x[present[:, party], a:b]
        if len(own):
            shift[a:b], scale[a:b] = _statistics(own.astype(np.float64), kind)
    return (None if kind == "maxabs" else shift), scale


def apply(x: Any, shift: np.ndarray | None, scale: np.ndarray | None) -> Any:
    """Return (x - shift) / scale, computed in float64 and kept in x's dtype, or in float32 where that is narrower."""
    dtype = floats(x)
    if sparse.issparse(x):
        data = x.data if scale is None else x.data / np.asarray(scale, np.float64)[x.indices]
        return sparse.csr_matrix((data.astype(dtype, copy=False), x.indices, x.indptr), shape=x.shape)
    if scale is not None:
        x = (x - (0.0 if shift is None else np.asarray(shift, np.float64))) / np.asarray(scale, np.float64)
    return x.astype(dtype, copy=False)


def _statistics(x: np.ndarray, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Return shift and scale of rows x [n, d]."""
    low, high = x.min(axis=0), x.max(axis=0)
    if kind == "maxabs":
        shift, scale = np.zeros_like(low), np.maximum(-low, high)
    else:
        shift, scale = (x.mean(axis=0), x.std(axis=0)) if kind == "standard" else (low, high - low)
        scale = np.where(low == high, 0, scale)  # the rounded deviation of a constant may not be 0
    return shift, np.where(scale > 0, scale, 1)
