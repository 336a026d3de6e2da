"""From one data set to clients: train rows by a partition, test and validation rows that follow each client's own."""

import warnings
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from jaxfed.horizontal.partition import Overlapping, Partition

if TYPE_CHECKING:
    from jaxfed.datasets.arrays import Arrays
    from jaxfed.horizontal.data import ClientData

HELD_OUT = 0.2  # of each client's rows, where the data set has no test rows of its own


class Assignment(NamedTuple):
    """Sorted int64 row numbers, one array per client; `test` numbers rows of y_test, or of y where that is None."""

    train: list[np.ndarray]
    validation: list[np.ndarray]
    test: list[np.ndarray]


def split(
    data: "Arrays",
    partition: Partition,
    num_clients: int | None = None,
    seed: int = 0,
    *,
    validation: float = 0.0,
    allow_empty: bool = False,
) -> "tuple[ClientData, ...]":
    """(train, test), or (train, validation, test) where validation > 0, as ClientData with the same client order.

    `data` has x, y, x_test, y_test (any `jaxfed.datasets.Arrays`); the rest is as in `assign`. Images are not copied:
    the sets share the pools data.x and data.x_test. A client may have no test or validation rows; it always has train
    rows unless allow_empty.
    """
    from jaxfed.horizontal.data import ClientData

    if (data.x_test is None) != (data.y_test is None):
        raise ValueError("x_test and y_test: got one of them, wanted both or neither")
    for name, x, y in (("x", data.x, data.y), ("x_test", data.x_test, data.y_test)):
        if hasattr(x, "tocsr"):
            raise ValueError(f"{name}: got a sparse matrix, wanted an array (x.toarray(), where it fits in memory)")
        if x is not None and y is not None and len(x) != len(y):
            raise ValueError(f"{name}: got {len(x)} rows for {len(y)} labels, wanted one row per label")
    rows = assign(data.y, data.y_test, partition, num_clients, seed, validation, allow_empty=allow_empty)
    test_pool = (data.x, data.y) if data.x_test is None else (data.x_test, data.y_test)
    train = ClientData.from_indices(data.x, data.y, rows.train, allow_empty=allow_empty)
    test = ClientData.from_indices(*test_pool, rows.test, allow_empty=True)
    if validation == 0:
        return train, test
    return train, ClientData.from_indices(data.x, data.y, rows.validation, allow_empty=True), test


def assign(
    y: np.ndarray,
    y_test: np.ndarray | None,
    partition: Partition,
    num_clients: int | None,
    seed: int,
    validation: float = 0.0,
    *,
    allow_empty: bool = False,
) -> Assignment:
    """Row numbers of every client's train, validation and test set, from the labels y [n] and y_test [n_test] alone.

    - The rows of y are dealt by `partition`. The validation set is a fraction of each client's own rows, stratified
      by class; at least one row stays for training.
    - The rows of y_test follow the client's rows of y (validation included): those of a class go to the clients in
      proportion to their numbers of that class, by largest remainder with seeded ties. Every test row is dealt once,
      but those of a class that no client has are left out, with a warning. Real targets count as one class.
    - Where y_test is None each client's test set is a fifth of its own rows, stratified; at least one row of two.
    - Partition, test and validation have separate random streams: asking for validation changes no test set.

    Raises ValueError for labels that are negative or NaN, validation outside [0, 1), overlapping clients whose rows
    would have to be set aside, too many clients, bad fields of the partition, and for a client without train rows
    unless allow_empty.
    """
    y, y_test = _labels("y", y), None if y_test is None else _labels("y_test", y_test)
    if not 0 <= validation < 1:
        raise ValueError(f"validation: got {validation}, wanted at least 0 and below 1")
    if isinstance(partition, Overlapping) and (y_test is None or validation > 0):
        what = "test rows of the data set's own" if y_test is None else "validation=0"
        raise ValueError(f"partition: got {partition}, wanted {what} with it: clients share training rows")
    for_partition, for_test, for_validation = np.random.default_rng(seed).spawn(3)
    own = partition(y, num_clients, for_partition)
    empty = [i for i, rows in enumerate(own) if len(rows) == 0]
    if empty and not allow_empty:
        raise ValueError(
            f"partition: {len(empty)} of {len(own)} clients have no rows (the first is client {empty[0]}); "
            "give the partition min_rows >= 1 or pass allow_empty=True"
        )
    classes, classes_test = _strata(y), None if y_test is None else _strata(y_test)
    if classes_test is None:
        train, test = _hold_out(own, classes, HELD_OUT, for_test)
    else:
        train, test = own, _deal_like(own, classes, classes_test, for_test)
    train, held = _hold_out(train, classes, validation, for_validation)
    return Assignment(train, held, test)


def label_counts(y: np.ndarray, indices: list[np.ndarray], num_classes: int) -> np.ndarray:
    """How many rows of each class each client has, int64 [client, class], from labels y [n] in 0..num_classes - 1."""
    sizes = [len(rows) for rows in indices]
    client = np.repeat(np.arange(len(indices)), sizes)
    labels = np.asarray(y)[np.concatenate(indices)].astype(np.int64)
    if len(labels) and not 0 <= labels.min() <= labels.max() < num_classes:
        raise ValueError(f"y: got {labels.min()}..{labels.max()}, wanted 0 to {num_classes - 1}")
    counts = np.bincount(client * num_classes + labels, minlength=len(indices) * num_classes)
    return counts.reshape(len(indices), num_classes)


def _labels(name: str, y: np.ndarray) -> np.ndarray:
    """y as an array [n], checked."""
    y = np.asarray(y)
    if y.ndim != 1 or len(y) == 0:
        raise ValueError(f"{name}: got shape {y.shape}, wanted shape [rows] with at least one row")
    if y.dtype.kind not in "iubf":
        raise ValueError(f"{name}: got dtype {y.dtype}, wanted integer class labels or real targets")
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        raise ValueError(f"{name}: got NaN or infinity, wanted finite")
    if y.dtype.kind == "i" and y.min() < 0:
        raise ValueError(f"{name}: got {y.min()}, wanted class labels >= 0")
    return y


def _strata(y: np.ndarray) -> np.ndarray:
    """Class of each row [n]; real targets are one class."""
    return y.astype(np.int64) if y.dtype.kind in "iub" else np.zeros(len(y), np.int64)


def _deal_like(own: list[np.ndarray], classes: np.ndarray, classes_test: np.ndarray, rng) -> list[np.ndarray]:
    """Test rows for each client, class by class in proportion to its own rows of the class (largest remainder)."""
    num_classes = 1 + max(classes.max(), classes_test.max())
    counts = label_counts(classes, own, num_classes)
    owner = np.full(len(classes_test), -1)
    for c in np.unique(classes_test):
        rows = rng.permutation(np.flatnonzero(classes_test == c))
        have = counts[:, c]
        if have.sum() == 0:
            warnings.warn(f"no client has train rows of class {c}: {len(rows)} test rows are left out", stacklevel=3)
            continue
        quota, remainder = np.divmod(have * len(rows), have.sum())  # whole numbers, so that ties are exact
        order = rng.permutation(len(have))
        order = order[np.argsort(-remainder[order], kind="stable")]
        quota[order[: len(rows) - quota.sum()]] += 1
        owner[rows] = np.repeat(np.arange(len(have)), quota)
    order = np.argsort(owner, kind="stable")[(owner < 0).sum() :]
    sizes = np.bincount(owner[order], minlength=len(own))
    return np.split(order.astype(np.int64), np.cumsum(sizes)[:-1])


def _hold_out(own: list[np.ndarray], classes: np.ndarray, fraction: float, rng) -> tuple[list, list]:
    """(kept, held): held is the rounded fraction of each client's rows, stratified by class to within one row.

    Where fraction > 0 at least one row is held if there are two, and at least one is always kept. Rows are put in order
    of class, at random within one, and taken at equal steps from a random start (systematic sampling).
    """
    kept, held = [], []
    for rows in own:
        n = len(rows)
        take = min(max(int(fraction * n + 0.5), 1), n - 1) if fraction > 0 and n > 1 else 0
        order = rng.permutation(n)
        order = order[np.argsort(classes[rows[order]], kind="stable")]
        steps = (np.arange(n + 1) * take + rng.integers(max(n, 1))) // max(n, 1)
        chosen = np.zeros(n, bool)
        chosen[order] = np.diff(steps) > 0
        kept.append(rows[~chosen])
        held.append(rows[chosen])
    return kept, held
