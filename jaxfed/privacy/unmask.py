"""Unmasking: a coalition takes the masks off other parties' products (notes: mask removal in the tree aggregation).

The attack uses the sums that its parties received and what they added themselves, all with coefficients +1 and -1, so
it works modulo 2^32 and 2^64 as for floats. Uniform fixed-point masks hide perfectly what the rank test says is hidden,
and nothing else; `vertical.leakage` says beforehand who is found.
"""

from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from jaxfed.checks import fail, whole
from jaxfed.privacy.transcript import Sum, View

Pieces = dict[frozenset, Any]  # disjoint sets of parties and the sum over each, [N_a, b]


class Unmasked(NamedTuple):
    """A sum of other parties' products that a coalition found.

    parties: whose, sorted. updates int [N_a]: which rows of the view's arrays, ascending. estimates float64 [N_a, b]:
    the sum for each sample. residues uint32 or uint64 [N_a, b]: the same as the fixed-point number modulo 2^32 or 2^64
    that was masked; None for floats, and where z was needed.
    """

    parties: tuple[int, ...]
    updates: np.ndarray
    estimates: np.ndarray
    residues: np.ndarray | None


def unmask(view: View, total: Any = None) -> tuple[Unmasked, ...]:
    """Return the products of single other parties that a coalition finds from its view, by party.

    A party's estimates are of the updates of all dominators under which it is found. total [N, b]: z of the updates
    that the coalition knows without having dominated them, say recovered from theta; NaN elsewhere. Nothing is rounded
    but float sums: fixed-point products are found exactly, as the parties rounded them.
    """
    found: dict[tuple[int, ...], list[Unmasked]] = {}
    for some in partial_sums(view, total):
        if len(some.parties) == 1:
            found.setdefault(some.parties, []).append(some)
    return tuple(_join(found[parties]) for parties in sorted(found))


def partial_sums(view: View, total: Any = None) -> tuple[Unmasked, ...]:
    """Return all sums of other parties' products that a coalition finds, each over a set of parties; see `unmask`.

    One for each dominator and set. The sets of one dominator are disjoint, and every other linear function of the
    products that the coalition can find is made of these sums. Where it holds the dominator they add up to z less its
    own products.
    """
    if total is not None and np.shape(total) != view.rows.shape:
        fail("total", f"shape {np.shape(total)}", f"{view.rows.shape}, as the view's rows")
    found: list[Unmasked] = []
    for dominator in np.unique(view.dominator):
        sums = [some for some in view.sums if len(some.updates) and view.dominator[some.updates[0]] == dominator]
        updates = reduce(np.intersect1d, [some.updates for some in sums], np.flatnonzero(view.dominator == dominator))
        if len(updates):
            found += _of_one_dominator(view, updates, sums, total)
    return tuple(found)


def differences(first: Any, second: Any, fraction_bits: int | None = None) -> np.ndarray:
    """Return the second product less the first, where two messages o + delta have the same mask.

    first, second: arrays of one shape, floats, or uint32 / uint64 modulo 2^32 / 2^64 with `fraction_bits`. Masks have
    to be fresh for every call and sample: under one mask every change of a product shows in what carries it.
    """
    return _decode(np.asarray(second) - np.asarray(first), fraction_bits)


def encode(products: Any, fraction_bits: int, dtype: Any) -> np.ndarray:
    """Return fixed-point numbers of floats, to nearest (ties to even), modulo 2^32 or 2^64 (dtype uint32, uint64)."""
    return np.rint(np.asarray(products, np.float64) * 2.0**fraction_bits).astype(np.int64).astype(dtype)


def _decode(numbers: np.ndarray, fraction_bits: int | None) -> np.ndarray:
    """Return floats of numbers: two's complement, times 2^-fraction_bits; floats stay as they are."""
    if numbers.dtype.kind != "u":
        return numbers.astype(np.float64)
    whole("fraction_bits", fraction_bits, 0)
    return numbers.view(np.dtype(f"i{numbers.dtype.itemsize}")) * 2.0 ** -float(fraction_bits or 0)


def _of_one_dominator(view: View, updates: np.ndarray, sums: list[Sum], total: Any) -> list[Unmasked]:
    others = frozenset(range(view.num_parties)) - set(view.parties)
    own, masks = view.products[updates].astype(np.float64), None  # [N_a, b, C]
    number: np.ndarray = own
    if view.masks is not None:
        masks = _exact(view.masks[updates])
        number = encode(own, view.fraction_bits or 0, masks.dtype) if masks.dtype.kind == "u" else own
    hidden = number if masks is None else number + masks
    first = _pieces(view, [some for some in sums if some.tree == 1], updates, hidden)
    if masks is None:  # nothing to take off
        second: Pieces = {frozenset((party,)): number.dtype.type(0) for party in others}
    else:
        second = _pieces(view, [some for some in sums if some.tree == 2], updates, masks)
    unknown = others - frozenset().union(*first) | others - frozenset().union(*second)
    found, last = [], frozenset()
    for block in _merge([*first, *second, unknown]):
        if block & unknown:
            last = block
        else:
            residue = _total(first, block) - _total(second, block)
            fixed = residue if residue.dtype.kind == "u" else None
            found.append(Unmasked(tuple(sorted(block)), updates, _decode(residue, view.fraction_bits), fixed))
    if total is not None and last:  # what z leaves for those of whom it learns nothing else
        rest = np.asarray(total, np.float64)[updates] - own.sum(-1) - sum(some.estimates for some in found)
        known = np.isfinite(rest).all(-1)
        if known.any():
            found.append(Unmasked(tuple(sorted(last)), updates[known], rest[known], None))
    return found


def _pieces(view: View, sums: list[Sum], updates: np.ndarray, own: np.ndarray) -> Pieces:
    """Return the sums over the smallest sets of other parties that one tree's messages give.

    Each received sum, less the received sums that it contains and less what the coalition itself (own [N_a, b, C])
    added to it in between.
    """
    largest: list[tuple[frozenset, Any]] = []  # received so far, none within another
    pieces: Pieces = {}
    for some in sorted(sums, key=lambda some: len(some.leaves)):
        leaves, value = frozenset(some.leaves), _exact(some.values[np.searchsorted(some.updates, updates)])
        inside = [pair for pair in largest if pair[0] <= leaves]
        left, rest = leaves, value
        for parties, part in inside:
            left, rest = left - parties, rest - part
        for place, party in enumerate(view.parties):
            if party in left:
                rest = rest - own[..., place]
        if left := left - set(view.parties):
            pieces[left] = rest
        largest = [pair for pair in largest if pair not in inside] + [(leaves, value)]
    return pieces


def _merge(sets: list[frozenset]) -> list[frozenset]:
    """Return the union of sets as disjoint blocks: sets that meet are in one."""
    blocks: list[frozenset] = []
    for some in filter(None, sets):
        meeting = [block for block in blocks if block & some]
        blocks = [block for block in blocks if not block & some] + [some.union(*meeting)]
    return blocks


def _total(pieces: Pieces, block: frozenset) -> np.ndarray:
    return np.asarray(sum(value for parties, value in pieces.items() if parties <= block))


def _exact(numbers: np.ndarray) -> np.ndarray:
    """Return integers as they are, floats in float64."""
    return numbers if numbers.dtype.kind == "u" else numbers.astype(np.float64)


def _join(parts: list[Unmasked]) -> Unmasked:
    """Return one party's estimates under several dominators, in the order of updates."""
    updates = np.concatenate([part.updates for part in parts])
    order = np.argsort(updates)
    estimates = np.concatenate([part.estimates for part in parts])[order]
    residues = [part.residues for part in parts if part.residues is not None]
    fixed = np.concatenate(residues)[order] if len(residues) == len(parts) else None
    return Unmasked(parts[0].parties, updates[order], estimates, fixed)
