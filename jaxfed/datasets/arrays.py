"""What every loader returns: plain NumPy arrays, checked once."""

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse


class Arrays(NamedTuple):
    """A data set in memory: train rows, and test rows or None where the source has none of its own.

    x [n, ...] and x_test [n_test, ...]: uint8 images [n, height, width, channel] with values 0..255, or float32. Wide
    and mostly empty tables ("libsvm:FILE") are scipy.sparse.csr_array float32 [n, d] instead.
    y [n] and y_test [n_test]: int32 labels in 0..num_classes - 1, or float32 targets where num_classes is 0.
    class_names: what the source calls the classes, in this order ("-1" and "1" for a LIBSVM file), or none.
    """

    x: Any
    y: np.ndarray
    x_test: Any = None
    y_test: np.ndarray | None = None
    name: str = "arrays"
    num_classes: int = 0
    class_names: tuple[str, ...] = ()


def check(arrays: Arrays) -> Arrays:
    """The same arrays, or ValueError: lengths and shapes must match, features be finite, labels be in range."""
    name, k = arrays.name, arrays.num_classes
    if (arrays.x_test is None) != (arrays.y_test is None):
        raise ValueError(f"{name}: x_test and y_test: got one of them, wanted both or neither")
    check_rows(f"{name}: x", arrays.x, f"{name}: y", arrays.y, k)
    if arrays.x_test is not None and arrays.y_test is not None:
        check_rows(f"{name}: x_test", arrays.x_test, f"{name}: y_test", arrays.y_test, k)
        if arrays.x_test.shape[1:] != arrays.x.shape[1:]:
            got, wanted = arrays.x_test.shape[1:], arrays.x.shape[1:]
            raise ValueError(f"{name}: x_test: got rows of shape {got}, wanted {wanted}")
    if arrays.class_names and len(arrays.class_names) != k:
        raise ValueError(f"{name}: class_names: got {len(arrays.class_names)} entries, wanted {k}")
    return arrays


def check_rows(x_name: str, x: Any, y_name: str, y: np.ndarray, num_classes: int) -> None:
    """ValueError unless x [n, ...] is finite and y [n] holds labels in 0..num_classes - 1 (finite targets for 0)."""
    if x.ndim < 2 or x.dtype.kind not in "iuf":
        raise ValueError(f"{x_name}: got {x.dtype} of shape {x.shape}, wanted numbers of shape [rows, ...features]")
    n = x.shape[0]
    if y.shape != (n,) or n == 0:
        raise ValueError(f"{y_name}: got shape {y.shape}, wanted one value for each of the {n} >= 1 rows of x")
    values = x.data if scipy.sparse.issparse(x) else x
    if x.dtype.kind == "f" and not np.isfinite(values).all():
        if scipy.sparse.issparse(x):
            bad = np.unique(x.tocoo().row[~np.isfinite(x.tocoo().data)])
        else:
            bad = np.flatnonzero(~np.isfinite(x).reshape(n, -1).all(axis=1))
        raise ValueError(f"{x_name}: got NaN or infinity in {len(bad)} rows, the first is row {bad[0]}, wanted finite")
    if num_classes == 0:
        if y.dtype.kind not in "iuf" or not np.isfinite(y).all():
            raise ValueError(f"{y_name}: got {y.dtype} with missing or infinite values, wanted finite numbers")
    elif y.dtype.kind not in "iu" or y.min() < 0 or y.max() >= num_classes:
        raise ValueError(f"{y_name}: got {y.dtype} {y.min()}..{y.max()}, wanted integer labels in 0..{num_classes - 1}")
