"""One table cut by columns between parties, and masks of samples that some parties lack."""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from jaxfed.checks import fail, flag, number, whole
from jaxfed.vertical import reading, tables
from jaxfed.vertical.data import PartyData, build


def split(
    x: Any,
    y: Any,
    num_parties: int | None = None,
    num_active: int = 1,
    seed: int = 0,
    *,
    columns: Sequence[Sequence[Any]] | None = None,
    active: Sequence[int] | None = None,
    intercept: bool = False,
    scale: str | None = None,
    present: Any = None,
    allow_unused: bool = False,
) -> PartyData:
    """Cut a table between parties by columns.

    x [n, d]: an array, a SciPy sparse matrix or a DataFrame. y [n]: two distinct values are classes (sorted, mapped to
    -1 and +1, recorded); more must be numbers and are targets.
    num_parties: columns are dealt at random by `seed` into parts whose sizes differ by at most one, sorted in a party.
    columns: instead, the columns of each party, by number, or by name for a DataFrame. Each at most once; columns that
        no party gets are refused unless `allow_unused`. An active party may have none (labels only).
    num_active, active: the first `num_active` parties hold the labels, or those listed. Dominator a is active[a].
    intercept: a column of ones, the last coordinate of the first active party, regularised like the others.
    scale: None, "standard", "minmax" or "maxabs", by statistics of these rows; sparse x takes only "maxabs".
    present: bool [n, q], which party has which row (`overlap` draws one). What a party lacks may be NaN in x; it is
        left out of the statistics and is zero after scaling.
    Raises ValueError that names the field.
    """
    flag("allow_unused", allow_unused)
    x, names = reading.table(x, "x")
    width = x.shape[1]
    if not width:
        fail("x", "no columns", "at least one")
    parts = _deal(width, num_parties, seed) if columns is None else _listed(columns, names, width, allow_unused)
    if columns is not None and num_parties not in (None, len(parts)):
        fail("num_parties", num_parties, f"{len(parts)}, as columns has, or None")
    if active is None:
        whole("num_active", num_active, 1)
        if num_active > len(parts):
            fail("num_active", num_active, f"at most {len(parts)}, the number of parties")
        active = range(num_active)
    chosen = tables.active_parties(active, len(parts))
    if num_active not in (1, len(chosen)):
        fail("num_active", num_active, f"{len(chosen)}, as active has, or 1")
    sizes = tuple(len(part) for part in parts)
    tables.parties(sizes, chosen, "columns")
    order = np.concatenate(parts)
    table = tables.cut(x, order, sizes, names, present)
    return build(table, y, order, chosen, names, width, intercept=intercept, scale=scale)


def overlap(
    num_rows: int, num_parties: int, fraction: float, seed: int = 0, *, always: Sequence[int] = (0,)
) -> np.ndarray:
    """Return a mask, bool [n, q], of which party has which sample: a simulated partial overlap.

    The parties in `always` (the active ones, as a rule) have every sample, any other party each sample with
    probability `fraction`, independently.
    """
    whole("num_rows", num_rows, 1)
    whole("num_parties", num_parties, 1)
    whole("seed", seed, 0)
    number("fraction", fraction, 0, 1)
    if not np.iterable(always) or isinstance(always, str):
        fail("always", repr(always), "a list of parties")
    mask = np.random.default_rng(seed).random((num_rows, num_parties)) < fraction
    for party in always:
        whole("always", party, 0)
        if party >= num_parties:
            fail("always", f"the party {party}", f"0 to {num_parties - 1}")
        mask[:, party] = True
    return mask


def _deal(width: int, num_parties: int | None, seed: int) -> list[np.ndarray]:
    """Return the columns of each party, dealt at random in nearly equal parts."""
    if num_parties is None:
        fail("num_parties", None, "a number of parties, or columns=[[...], ...]")
    whole("num_parties", num_parties, 1)
    whole("seed", seed, 0)
    if num_parties > width:
        fail("num_parties", num_parties, f"at most {width}, the columns of x (columns=[...] may leave active parties "
             "without)")  # fmt: skip
    return [np.sort(part) for part in np.array_split(np.random.default_rng(seed).permutation(width), num_parties)]


def _listed(columns: Any, names: tuple | None, width: int, allow_unused: bool) -> list[np.ndarray]:
    """Return the column numbers of each party, sorted, from numbers or names."""
    if isinstance(columns, (str, bytes, dict)) or not hasattr(columns, "__len__") or not len(columns):
        fail("columns", repr(columns), "a list of columns for each party")
    for party, own in enumerate(columns):
        if isinstance(own, (str, bytes)) or not np.iterable(own):
            fail(f"columns[{party}]", repr(own), "a list of columns")
    place = {} if names is None else {name: j for j, name in enumerate(names)}
    # a whole number means a position, unless a DataFrame has columns named by whole numbers
    by_number = not any(isinstance(name, (int, np.integer)) for name in place)
    known = "0 to " + str(width - 1) if names is None else "a column of x"
    owner: dict[int, int] = {}
    parts = []
    for party, own in enumerate(columns):
        part = []
        for column in own:
            if isinstance(column, (int, np.integer)) and not isinstance(column, bool) and by_number:
                j = int(column) if 0 <= column < width else None
            else:
                j = place.get(column) if isinstance(column, Hashable) else None
            if j is None:
                fail(f"columns[{party}]", f"the column {column!r}", known)
            if j in owner:
                fail(f"columns[{party}]", f"the column {column!r}, which party {owner[j]} has", "each column once")
            owner[j] = party
            part.append(j)
        parts.append(np.array(sorted(part), np.int64))
    unused = sorted(set(range(width)) - set(owner))
    if unused and not allow_unused:
        first = unused[0] if names is None else names[unused[0]]
        fail("columns", f"no party for column {first!r} ({len(unused)} such columns)",
             "a party for each column, or allow_unused=True")  # fmt: skip
    return parts
