"""Rows of several parties matched by the ids of their samples: what a private set intersection would return."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from jaxfed.checks import fail, one_of, whole
from jaxfed.vertical.reading import order, table


class Stack(NamedTuple):
    """The parties' features side by side: x [n, d], sizes [q], rows [q][n], present bool [n, q] or None, names.

    `rows[l]` are the row numbers that party l gave, -1 for samples that it lacks. `names` [d] are None unless every
    party that has columns gave a DataFrame.
    """

    x: Any
    sizes: tuple[int, ...]
    rows: list[np.ndarray]
    present: np.ndarray | None
    names: tuple | None


def align(ids: Sequence[Any], *, how: str = "inner", first: int = 0) -> list[np.ndarray]:
    """Return row numbers for each party, so that row i of every party is the same sample.

    ids: one array per party, the ids (whole numbers or strings) of its rows, each once. how="inner": the samples that
    all parties have; "left": all of party `first`, with row number -1 where another party lacks the sample. The order
    is that of party `first`. Raises ValueError for an id that occurs twice, and where no sample is common to all.
    """
    one_of("how", how, ("inner", "left"))
    if not isinstance(ids, (list, tuple)) or not len(ids):
        fail("ids", repr(ids), "a list of arrays, the ids of each party")
    whole("first", first, 0)
    if first >= len(ids):
        fail("first", first, f"0 to {len(ids) - 1}")
    known = [_ids(own, f"ids[{party}]") for party, own in enumerate(ids)]
    text = {own.dtype.kind == "U": party for party, own in enumerate(known) if own.size}
    if len(text) > 1:
        fail("ids", f"strings from party {text[True]} and numbers from party {text[False]}", "one kind")
    rows = [_find(known[first], own) for own in known]
    if how == "left":
        return rows
    common = np.all([own >= 0 for own in rows], axis=0)
    if not common.any():
        fail("ids", "no sample that all parties have", 'at least one, or how="left"')
    return [own[common] for own in rows]


def stack(
    blocks: Sequence[Any], ids: Sequence[Any] | None, how: str, first: int, names: Sequence[Any] | None = None
) -> Stack:
    """Return the parties' arrays side by side, aligned by ids if there are any.

    A block is an array, a sparse array, a DataFrame (its columns in the order of names[l], if given) or None for a
    party without features. One sparse block makes all of them sparse. Raises ValueError for unequal row counts.
    """
    expected = [None] * len(blocks) if names is None else names
    read = [(None, ()) if x is None else table(order(x, own, f"blocks[{party}]"), f"blocks[{party}]")
            for party, (x, own) in enumerate(zip(blocks, expected, strict=True))]  # fmt: skip
    counts = [None if x is None else x.shape[0] for x, _ in read]
    rows = _rows(counts, ids, how, first)
    parts = [np.zeros((len(own), 0), bool) if x is None else _take(x, own)
             for (x, _), own in zip(read, rows, strict=True)]  # fmt: skip
    lacks = np.stack([own < 0 for own in rows], axis=1)
    if any(sparse.issparse(x) for x in parts):
        joined = sparse.csr_matrix(sparse.hstack(parts, format="csr"))
        joined.sort_indices()
    else:
        joined = np.concatenate(parts, axis=1)
    sizes = tuple(x.shape[1] for x in parts)
    named = all(own is not None or not size for (_, own), size in zip(read, sizes, strict=True))
    own_names = tuple(name for _, own in read for name in own or ()) if named else None
    return Stack(joined, sizes, rows, ~lacks if lacks.any() else None, own_names)


def _rows(counts: list[int | None], ids: Sequence[Any] | None, how: str, first: int) -> list[np.ndarray]:
    """Return the rows to take from each party, from the rows each has (None: it has no features)."""
    if ids is None:
        one_of("how", how, ("inner", "left"))
        have = sorted({count for count in counts if count is not None})
        if len(have) != 1:
            fail("blocks", f"{', '.join(map(str, have)) or 'no'} rows",
                 "equal numbers of rows, or ids=[...], one array per party, to align by")  # fmt: skip
        return [np.arange(have[0])] * len(counts)
    for party, (count, own) in enumerate(zip(counts, ids, strict=True)):
        if count is not None and np.size(own) != count:
            fail(f"ids[{party}]", f"{np.size(own)} ids", f"{count}, one for each row of blocks[{party}]")
    return align(ids, how=how, first=first)


def _ids(own: Any, field: str) -> np.ndarray:
    """Return the ids of one party, int64 or strings [n], each once."""
    own = np.asarray(own)
    if own.dtype == object and len(own) and all(isinstance(one, str) for one in own):
        own = own.astype(str)
    if own.ndim != 1 or (own.dtype.kind not in "iuU" and own.size):
        fail(field, f"shape {own.shape} of {own.dtype}", "one whole number or string for each row")
    if own.dtype.kind == "u" and own.size and own.max() >= 2**63:
        fail(field, f"the id {own.max()}", f"at most {2**63 - 1}")
    own = own if own.dtype.kind == "U" else own.astype(np.int64)
    distinct, times = np.unique(own, return_counts=True)
    if (times > 1).any():
        fail(field, f"the id {distinct[times > 1][0].item()!r} more than once", "each id once")
    return own


def _find(wanted: np.ndarray, own: np.ndarray) -> np.ndarray:
    """Return the position of each wanted id [n] among a party's own, -1 where it is not."""
    if not len(own):
        return np.full(len(wanted), -1)
    order = np.argsort(own)
    place = np.minimum(np.searchsorted(own, wanted, sorter=order), len(own) - 1)
    return np.where(own[order[place]] == wanted, order[place], -1)


def _take(x: Any, rows: np.ndarray) -> Any:
    """Return rows of x; those of number -1 are zero."""
    if not x.shape[0]:
        return np.zeros((len(rows), x.shape[1]), bool)
    if len(rows) == x.shape[0] and (rows == np.arange(len(rows))).all():
        return x
    taken = x[np.maximum(rows, 0)]
    if (rows < 0).any():
        if sparse.issparse(x):
            taken.data[np.repeat(rows < 0, np.diff(taken.indptr))] = 0
        else:
            taken[rows < 0] = 0
    return taken
