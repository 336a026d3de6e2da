"""LIBSVM (svmlight) text files, plain, .gz or .bz2, read by scikit-learn."""

import bz2
import gzip
import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from jaxfed.datasets.arrays import Arrays, check
from jaxfed.datasets.bundled import divide

MAX_DENSITY, MIN_COLUMNS = 0.25, 1000  # what is emptier and wider than this stays sparse


def load_files(names: str, data_dir: str | Path | None = None, *, dense: bool | None = None) -> Arrays:
    """The files "TRAIN" or "TRAIN,TEST": paths as they are, or under `data_dir` (default: variable JAXFED_DATA_DIR).

    x is a scipy.sparse.csr_array where its density is below 0.25 and it has more than 1,000 columns, else a dense array
    (`dense` decides otherwise); float32, as written: nothing is standardised. Both files get as many columns as the
    wider one needs. Without TEST the rows are shuffled and split 80/20 by seed 0, stratified where there are classes.

    Labels: two different whole numbers (0/1, 1/2, -1/+1) become the classes 0 and 1 in their order, and the whole
    numbers 0..k-1 or 1..k, none missing, the classes 0..k-1; `class_names` says which label each was. All others are
    real targets (num_classes 0), float32 as written.

    Raises FileNotFoundError for a missing file, ValueError with the number of the first malformed line.
    """
    paths = [_find(name, data_dir) for name in names.split(",")]
    if len(paths) > 2:
        raise ValueError(f"libsvm: got {len(paths)} files, wanted 'TRAIN' or 'TRAIN,TEST'")
    parts = _read(paths)
    x, y = parts[::2], parts[1::2]
    if dense is None:
        dense = x[0].shape[1] <= MIN_COLUMNS or x[0].nnz >= MAX_DENSITY * x[0].shape[0] * x[0].shape[1]
    x = [part.toarray() if dense else scipy.sparse.csr_array(part) for part in x]
    labels, codes = np.unique(np.concatenate(y), return_inverse=True)
    class_names = tuple(f"{label:g}" for label in labels) if _are_classes(labels) else ()
    y = np.split(codes.astype(np.int32), [len(y[0])]) if class_names else [part.astype(np.float32) for part in y]
    if len(paths) == 1:
        return divide(f"libsvm:{names}", x[0], y[0], class_names)
    return check(Arrays(x[0], y[0], x[1], y[1], f"libsvm:{names}", len(class_names), class_names))


def _are_classes(labels: np.ndarray) -> bool:
    """Whether sorted distinct labels are classes rather than targets."""
    k = len(labels)
    whole = bool((labels == np.round(labels)).all())
    return whole and (k == 2 or k > 2 and labels[0] in (0, 1) and labels[-1] - labels[0] == k - 1)


def _find(name: str, data_dir: str | Path | None) -> Path:
    folder = data_dir or os.environ.get("JAXFED_DATA_DIR") or "."
    for path in (Path(name), Path(folder) / name):
        if path.is_file():
            return path
    raise FileNotFoundError(f"libsvm: no file {name!r}, here or in {folder} (data_dir, else JAXFED_DATA_DIR)")


def _read(paths: list[Path]) -> list[Any]:
    """Matrix, labels of each file in turn; all matrices have the same columns, counted from 0 or 1 as the files do."""
    from sklearn.datasets import load_svmlight_files

    try:
        contents = [_content(path) for path in paths]
    except (OSError, EOFError) as error:
        raise ValueError(f"libsvm: {', '.join(map(str, paths))}: {error}") from None
    dtype: Any = np.float32
    try:
        return load_svmlight_files([io.BytesIO(content) for content in contents], dtype=dtype)
    except (ValueError, OverflowError):  # it does not say where
        for path, content in zip(paths, contents, strict=True):
            _complain(path, content)
        raise


def _content(path: Path) -> bytes:
    opener: Any = {".gz": gzip.open, ".bz2": bz2.open}.get(path.suffix, open)
    with opener(path, "rb") as file:
        return file.read()


def _complain(path: Path, content: bytes) -> None:
    """Raise ValueError for the first line that cannot be read, if there is one."""
    from sklearn.datasets import load_svmlight_file

    for number, line in enumerate(content.splitlines(), 1):
        try:
            load_svmlight_file(io.BytesIO(line))
        except (ValueError, OverflowError) as error:
            got = f"line {number}: got {line[:60].decode(errors='replace')!r}"
            raise ValueError(f"{path}: {got}, wanted 'label index:value ...' ({error})") from None
