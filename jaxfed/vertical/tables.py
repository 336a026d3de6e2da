"""Tables on their way into blocks: the columns of each party, what it lacks, the intercept, the checks of a split."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from jaxfed.checks import fail
from jaxfed.vertical import blocks, reading, scaling
from jaxfed.vertical.alignment import stack
from jaxfed.vertical.blocks import Blocks


class Table(NamedTuple):
    """Features as given, x [n, d], the parties' columns one after the other, without the intercept.

    sizes [q]; present bool [n, q] or None; rows [n]: the row numbers of the labels, or None where they are in order.
    `where(row, column)` names an entry: (field, the user's row, the user's column). names: those of x's columns.
    """

    x: Any
    sizes: tuple[int, ...]
    present: np.ndarray | None
    where: Callable[[int, int], tuple[str, int, Any]]
    names: tuple | None = None
    rows: np.ndarray | None = None


class Placed(NamedTuple):
    """Blocks, present bool [q, n] or None, shift and scale [d] or None: as `PartyData` holds them."""

    blocks: Blocks
    present: np.ndarray | None
    shift: np.ndarray | None
    scale: np.ndarray | None


def cut(x: Any, columns: np.ndarray, sizes: tuple[int, ...], names: tuple | None, present: Any) -> Table:
    """Return columns of one table x [n, width]; `names` are those of all of its columns."""
    own = x[:, columns]
    _has_rows(own, "x")
    known = range(x.shape[1]) if names is None else names
    return Table(own, sizes, presence(present, x.shape[0], len(sizes)), lambda i, j: ("x", i, known[columns[j]]))


def side_by_side(
    arrays: Sequence[Any], ids: Sequence[Any] | None, how: str, first: int, present: Any, names: Any = None
) -> Table:
    """Return one array per party as a table, aligned by ids if there are any, in the order of party `first`."""
    parts = stack(arrays, ids, how, first, names)
    _has_rows(parts.x, "blocks")
    offsets = np.cumsum((0, *parts.sizes))
    given = presence(present, parts.x.shape[0], len(parts.sizes))
    if given is not None and parts.present is not None:
        given = given & parts.present

    def where(i: int, j: int) -> tuple[str, int, Any]:
        party = int(np.searchsorted(offsets, j, side="right")) - 1
        column = int(j - offsets[party]) if parts.names is None else parts.names[j]
        return f"blocks[{party}]", int(parts.rows[party][i]), column

    absent = parts.present if given is None else given
    return Table(parts.x, parts.sizes, absent, where, parts.names, None if ids is None else parts.rows[first])


def place(table: Table, ones: int | None, scale: str | None = None, fitted: tuple[Any, Any] | None = None) -> Placed:
    """Return a table as blocks: checked, with the intercept of party `ones` (or None), scaled, absences zeroed.

    `scale` names the scaling to fit to these rows; `fitted`, (shift, scale), is used as it is.
    """
    x, present, sizes = table.x, table.present, table.sizes
    if present is not None:  # what a party lacks is not looked at: it may be NaN
        x = _blank(x, sizes, present)
    reading.finite(x, table.where)
    at = None
    if ones is not None:
        at = int(np.cumsum(sizes)[ones])
        x = _with_ones(x, at)
        sizes = tuple(size + (party == ones) for party, size in enumerate(sizes))
    shift, factor = scaling.fit(x, scale, sizes, present) if fitted is None else fitted
    if fitted is None and at is not None and shift is not None:
        shift[at], factor[at] = 0, 1
    x = scaling.apply(x, shift, factor)
    if present is not None and not (shift is None and at is None):  # what was absent is no longer zero
        x = _blank(x, sizes, present)
    own = pad(x, sizes)
    return Placed(own, None if present is None else np.ascontiguousarray(present.T), shift, factor)


def in_form(table: Table, is_sparse: bool) -> Table:
    """Return a table with a sparse or a dense x: new rows get the form of the split."""
    if sparse.issparse(table.x) == is_sparse:
        return table
    if is_sparse:
        return table._replace(x=sparse.csr_matrix(table.x))
    if (need := np.prod(table.x.shape, dtype=float) * table.x.dtype.itemsize) > blocks.MAX_BYTES:
        fail("x", f"sparse rows of {need / 2**30:.3g} GiB as dense ones", "fewer rows at a time, or a sparse split")
    return table._replace(x=table.x.toarray())


def pad(x: Any, sizes: tuple[int, ...]) -> Blocks:
    """Return x [n, d] as blocks of the form that suits it."""
    if not sparse.issparse(x):
        return blocks.dense(x, sizes)
    x.sort_indices()
    return blocks.sparse(x, sizes)


def one_per_party(field: str, got: Any, num_parties: int | None = None) -> None:
    """Require a list with one entry for each party."""
    if not isinstance(got, (list, tuple)):
        fail(field, type(got).__name__, "a list with one entry for each party")
    if not got:
        fail(field, "an empty list", "one entry for each party")
    if num_parties is not None and len(got) != num_parties:
        fail(field, f"{len(got)} entries", f"{num_parties}, one for each party")


def active_parties(active: Any, num_parties: int) -> tuple[int, ...]:
    """Return the active parties, in the order given, after checking them."""
    own = np.asarray(active)
    if own.ndim != 1 or not own.size or own.dtype.kind not in "iu":
        fail("active", repr(active), "a list of the parties that hold labels, at least one")
    for party in own[(own < 0) | (own >= num_parties)]:
        fail("active", f"the party {party}", f"0 to {num_parties - 1}")
    if len(np.unique(own)) < len(own):
        fail("active", repr(active), "each party once")
    return tuple(own.tolist())


def parties(sizes: tuple[int, ...], active: tuple[int, ...], field: str) -> None:
    """Require features, and some at each party without labels."""
    if not sum(sizes):
        fail(field, "no columns", "at least one column at one party")
    for party, size in enumerate(sizes):
        if not size and party not in active:
            fail(f"{field}[{party}]", "no columns", "at least one, as the party is not active: it would do nothing")


def presence(present: Any, num_rows: int, num_parties: int) -> np.ndarray | None:
    """Return the overlap mask, bool [n, q], or None where nothing is absent."""
    if present is None:
        return None
    own = np.asarray(present)
    if own.shape != (num_rows, num_parties) or own.dtype != bool:
        fail("present", f"{own.dtype} of shape {own.shape}", f"bool of shape {(num_rows, num_parties)}, [row, party]")
    return None if own.all() else own


def _has_rows(x: Any, field: str) -> None:
    """Require rows."""
    if not x.shape[0]:
        fail(field, "no rows", "at least one")


def _blank(x: Any, sizes: tuple[int, ...], present: np.ndarray) -> Any:
    """Return x with zeros where a party lacks a row."""
    owner = np.repeat(np.arange(len(sizes)), sizes)
    if not sparse.issparse(x):
        return np.where(present[:, owner], x, np.zeros((), x.dtype))
    row = np.repeat(np.arange(x.shape[0]), np.diff(x.indptr))
    data = np.where(present[row, owner[x.indices]], x.data, np.zeros((), x.dtype))
    own = sparse.csr_matrix((data, x.indices, x.indptr), shape=x.shape, copy=True)
    own.eliminate_zeros()
    return own


def _with_ones(x: Any, at: int) -> Any:
    """Return x with a column of ones before column `at`."""
    if not sparse.issparse(x):
        return np.insert(x, at, 1, axis=1)
    ones = sparse.csr_matrix(np.ones((x.shape[0], 1), x.dtype))
    return sparse.csr_matrix(sparse.hstack([x[:, :at], ones, x[:, at:]], format="csr"))
