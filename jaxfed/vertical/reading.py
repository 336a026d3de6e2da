"""Features and labels as users have them, read into NumPy arrays and SciPy CSR matrices, with the checks of each."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy import sparse

from jaxfed.checks import fail

TABLE = "numbers of shape [rows, columns]"


def table(x: Any, field: str) -> tuple[Any, tuple | None]:
    """Return x as an array [n, d] or a CSR matrix (duplicates summed), and the column names of a DataFrame.

    The user's arrays are not written to. Raises ValueError for other shapes, things that are not numbers, and column
    names that occur twice.
    """
    if sparse.issparse(x):
        if x.ndim != 2 or x.dtype.kind not in "biuf":
            fail(field, f"a sparse array of {x.dtype} and shape {x.shape}", TABLE)
        own = sparse.csr_matrix(x, copy=True)
        try:
            own.check_format()
        except ValueError as error:
            fail(field, f"a broken sparse array ({error})", "row and column numbers within its shape")
        own.sum_duplicates()
        own.eliminate_zeros()
        return own, None
    if isinstance(x, np.ma.MaskedArray):
        fail(field, "a masked array", "x.filled(np.nan) and present=, or an array without masks")
    if not _is_frame(x):
        return _numbers(x, field), None
    names = tuple(x.columns)
    if twice := [name for name, times in Counter(names).items() if times > 1]:
        fail(field, f"the column {twice[0]!r} twice", "distinct column names")
    values = x.to_numpy()
    return (_cells(values, field, names) if values.dtype == object else _numbers(values, field)), names


def order(x: Any, names: Sequence | None, field: str) -> Any:
    """Return a DataFrame's columns in the order of `names`; anything else, or without names, x as it is.

    Raises ValueError that names a missing, duplicate or unknown column.
    """
    if names is None or not _is_frame(x):
        return x
    have = Counter(x.columns)
    for fault, some in (("no column", [name for name in names if name not in have]),
                        ("twice the column", [name for name in names if have[name] > 1]),
                        ("the unknown column", sorted(set(have) - set(names), key=str))):  # fmt: skip
        if some:
            fail(field, f"{fault} {some[0]!r}", f"each of the {len(names)} columns of the split, once")
    return x[list(names)]


def finite(x: Any, where: Callable[[int, int], tuple[str, int, Any]]) -> None:
    """Require finite numbers; `where(row, column)` tells the field, the user's row and the user's column."""
    data = x.data if sparse.issparse(x) else x
    if np.isfinite(data).all():
        return
    bad = np.flatnonzero(~np.isfinite(data))[0]
    if sparse.issparse(x):
        at = int(np.searchsorted(x.indptr, bad, side="right")) - 1, int(x.indices[bad])
    else:
        at = divmod(int(bad), x.shape[1])
    field, row, column = where(*at)
    fail(field, f"{data.flat[bad]} in row {row}, column {column!r}", "finite numbers")


def labels(y: Any, num_rows: int, field: str = "y") -> tuple[np.ndarray, tuple]:
    """Return labels [n] and the two classes they stand for.

    Two distinct values are classes: the smaller becomes -1, the larger +1 (float32). More are real targets, with no
    classes. A single value is refused, but for floats, which are targets.
    """
    y = vector(y, num_rows, field)
    distinct = np.unique(y)
    if len(distinct) == 2:
        classes = tuple(distinct.tolist())
        return signs(y, classes, field), classes
    if y.dtype.kind in "USb" or (len(distinct) == 1 and y.dtype.kind in "iu"):
        shown = ", ".join(repr(v) for v in distinct[:3].tolist()) + (", ..." if len(distinct) > 3 else "")
        count = "one class" if len(distinct) == 1 else f"{len(distinct)} classes"
        fail(field, f"{count} ({shown})", "two classes or real targets")
    return (y if y.dtype == np.float32 else y.astype(np.float64)), ()


def targets(y: Any, num_rows: int, classes: tuple, field: str = "y") -> np.ndarray:
    """Return the labels [n] of new rows, under the classes of a split; a label that it lacks is refused."""
    y = vector(y, num_rows, field)
    if classes:
        return signs(y, classes, field)
    if y.dtype.kind in "US":
        fail(field, f"the label {y[0].item()!r}", "real targets, as the split has")
    return y if y.dtype == np.float32 else y.astype(np.float64)


def signs(y: np.ndarray, classes: tuple, field: str) -> np.ndarray:
    """Return -1 for the first class and +1 for the second, float32 [n]."""
    low, high = y == classes[0], y == classes[1]
    unknown = np.flatnonzero(~np.broadcast_to(low | high, y.shape))
    if len(unknown):
        fail(field, f"the label {y[unknown[0]].item()!r} in row {unknown[0]}", f"{classes[0]!r} or {classes[1]!r}")
    return np.where(high, 1, -1).astype(np.float32)


def vector(y: Any, num_rows: int, field: str) -> np.ndarray:
    """Return labels [n] of numbers or strings, none missing."""
    y = np.asarray(y)
    if y.ndim != 1 or len(y) != num_rows:
        fail(field, f"shape {y.shape}", f"({num_rows},), one label for each row")
    if y.dtype.kind not in "biufUSO":
        fail(field, f"labels of {y.dtype}", "numbers or strings")
    if y.dtype == object:
        text = isinstance(y[0], str)
        kinds = str if text else (bool, int, float, np.number, np.bool_)
        if other := [i for i, value in enumerate(y) if not isinstance(value, kinds)]:
            fail(field, f"{y[other[0]]!r} in row {other[0]}", "numbers, or strings, and none missing")
        y = np.array(y.tolist())
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        row = np.flatnonzero(~np.isfinite(y))[0]
        fail(field, f"{y[row]} in row {row}", "finite numbers")
    return y


def floats(x: Any) -> np.dtype:
    """Return the dtype that features are kept in: float32 and float64 as given, float32 for what is narrower."""
    wide = x.dtype.kind == "f" and x.dtype.itemsize >= 8
    return np.dtype(np.float64 if wide else np.float32)


def _is_frame(x: Any) -> bool:
    """Return whether x is a table with named columns (pandas, polars), which need not be installed."""
    return hasattr(x, "columns") and hasattr(x, "to_numpy")


def _numbers(x: Any, field: str) -> np.ndarray:
    """Return x as an array of numbers [n, d]."""
    try:
        x = np.asarray(x)
    except ValueError:
        fail(field, "rows of unequal lengths", TABLE)
    if x.ndim != 2 or x.dtype.kind not in "biuf":
        hint = " (x[:, None] makes a column of a vector)" if x.ndim == 1 else ""
        fail(field, f"shape {x.shape} of {x.dtype}", TABLE + hint)
    return x


def _cells(x: np.ndarray, field: str, names: tuple) -> np.ndarray:
    """Return the numbers of a DataFrame whose columns have several types, [n, d] float64."""
    out = np.empty(x.shape)
    for j, name in enumerate(names):
        for i, value in enumerate(x[:, j]):
            if not isinstance(value, (bool, int, float, np.number, np.bool_)):
                fail(field, f"{value!r} in row {i}, column {name!r}", "numbers")
            out[i, j] = value
    return out
