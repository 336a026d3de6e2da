"""Rows from files, and predictions into them."""

import contextlib
import csv
import sys
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from jaxfed import checks


def read(path: str, shape: tuple[int, ...]) -> Any:
    """Return rows [n, *shape] from a NumPy file, or [n, d] from .csv, or from a sparse matrix of SciPy's in .npz.

    Raises ValueError for anything else, and for numbers that are not finite.
    """
    try:
        x = _read(path)
    except (OSError, ValueError, EOFError, KeyError) as error:
        checks.fail("x", path, f"a NumPy file of one array, or a .csv file of numbers ({error})")
    ours = isinstance(x, np.ndarray) or scipy.sparse.issparse(x)
    if not ours or x.dtype.kind not in "iuf" or x.ndim == 0 or x.shape[1:] != shape:
        got = f"{x.dtype} of shape {x.shape}" if ours else "several arrays"
        checks.fail("x", got, f"numbers of shape (rows, {', '.join(map(str, shape))})")
    if not np.isfinite(x.data if scipy.sparse.issparse(x) else x).all():
        checks.fail("x", "values that are not finite", "finite numbers")
    return x


def write(out: str | None, columns: dict[str, Any]) -> None:
    """Write the columns [n] under their names, after the rows' numbers, to a file or the standard output."""
    first = next(iter(columns.values()))
    columns = {"row": range(len(first))} | columns
    with contextlib.nullcontext(sys.stdout) if out is None else open(out, "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))


def _read(path: str) -> Any:
    suffix = Path(path).suffix
    if suffix == ".csv":
        with open(path, newline="") as file:
            first = next(csv.reader(file), [])
        return np.loadtxt(path, delimiter=",", skiprows=0 if all(map(_is_number, first)) else 1, ndmin=2)
    return scipy.sparse.load_npz(path) if suffix == ".npz" else np.load(path, allow_pickle=False)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
