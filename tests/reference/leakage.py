"""What a coalition learns from two aggregation trees, by exact elimination; and the values it receives, by loops.

Trees are nested tuples of party numbers; the holder of a subtree is its first leaf (VFB2, Algorithm 1 and figure 5).
"""

from fractions import Fraction
from itertools import combinations

import numpy as np


def gather(tree, send):
    """Walk a tree; call send(sender, receiver, parties) for each message; return (holder, parties) of the tree."""
    if not isinstance(tree, tuple):
        return tree, [tree]
    holder, parties = gather(tree[0], send)
    for branch in tree[1:]:
        sender, theirs = gather(branch, send)
        send(sender, holder, sorted(theirs))
        parties = parties + theirs
    return holder, parties


def messages(tree):
    """All messages of a tree, (sender, receiver, parties), and its root."""
    found = []
    root, _ = gather(tree, lambda *message: found.append(message))
    return found, root


def rows(pair, coalition, knows_total):
    """What the coalition sees, as rows of coefficients of (o_0..o_q-1, delta_0..delta_q-1)."""
    (first, root), (second, _) = messages(pair[0]), messages(pair[1])
    q = len(first) + 1
    found = []
    for _, receiver, parties in first:
        if receiver in coalition:
            found.append([int(p in parties) for p in range(q)] * 2)
    for _, receiver, parties in second:
        if receiver in coalition:
            found.append([0] * q + [int(p in parties) for p in range(q)])
    for own in coalition:
        found.append([int(p == own) for p in range(2 * q)])
        found.append([int(p == own + q) for p in range(2 * q)])
    if root in coalition or knows_total:
        found.append([1] * q + [0] * q)
    return found


def rank(matrix):
    """The rank of a list of rows, by Gaussian elimination in fractions."""
    matrix = [[Fraction(x) for x in row] for row in matrix]
    done = 0
    for column in range(len(matrix[0]) if matrix else 0):
        pivot = next((i for i in range(done, len(matrix)) if matrix[i][column] != 0), None)
        if pivot is None:
            continue
        matrix[done], matrix[pivot] = matrix[pivot], matrix[done]
        for i in range(done + 1, len(matrix)):
            if matrix[i][column] == 0:
                continue
            factor = matrix[i][column] / matrix[done][column]
            matrix[i] = [x - factor * y for x, y in zip(matrix[i], matrix[done], strict=True)]
        done += 1
    return done


def determines(matrix, target):
    """Whether a row lies in the span of others."""
    return rank([*matrix, target]) == rank(matrix)


def unmasked(pair, coalition, knows_total=False):
    """The other parties whose own product is in the span."""
    seen = rows(pair, coalition, knows_total)
    width = len(seen[0])
    units = [[int(j == p) for j in range(width)] for p in range(width // 2)]
    return [p for p, unit in enumerate(units) if p not in coalition and determines(seen, unit)]


def dimension(pair, coalition, knows_total=False):
    """The dimension of the functions of products alone in the span, beside the coalition's own products."""
    seen = rows(pair, coalition, knows_total)
    q = len(seen[0]) // 2
    return rank(seen) - rank([row[q:] for row in seen]) - len(coalition)


def significantly_different(pair):
    """Definition 4, as stated: no subtrees of equal leaves, larger than one leaf and smaller than the trees."""

    def proper(tree, whole):
        if not isinstance(tree, tuple):
            return []
        _, parties = gather(tree, lambda *_: None)
        own = [sorted(parties)] if 1 < len(parties) < whole else []
        return own + [some for branch in tree for some in proper(branch, whole)]

    whole = len(messages(pair[0])[0]) + 1
    return not any(a == b for a in proper(pair[0], whole) for b in proper(pair[1], whole))


def trees(parties):
    """Every tree of messages rooted at the first party, as nested tuples: any party may hold any others."""
    root, others = parties[0], parties[1:]
    if not others:
        return [root]
    found = []
    for size in range(1, len(others) + 1):  # the branch of the first of the others, then the rest
        for more in combinations(others[1:], size - 1):
            branch = [others[0], *more]
            rest = [p for p in others if p not in branch]
            for holder in branch:
                for arm in trees([holder, *[p for p in branch if p != holder]]):
                    for left in trees([root, *rest]):
                        found.append((*(left if isinstance(left, tuple) else (left,)), arm))
    return found


def received(tree, numbers, modulus=None):
    """The sums that travel along a tree, {(sender, receiver, parties): sum}, of numbers [q], by running sums."""
    held = list(numbers)
    found = {}

    def send(sender, receiver, parties):
        found[sender, receiver, tuple(parties)] = held[sender]
        held[receiver] = held[receiver] + held[sender]
        if modulus is not None:
            held[receiver] %= modulus

    gather(tree, send)
    return found


def view_sums(pair, coalition, products, masks, bits=None, fraction_bits=0):
    """What a coalition receives over both trees: a list of (tree, sender, receiver, parties, values [N, b]).

    products [N, b, q] floats. masks [N, b, q]: floats, or integers below 2^bits, and then products are rounded to
    fixed point with `fraction_bits`, in Python's integers.
    """
    calls, batch, q = products.shape
    modulus = None if bits is None else 2**bits
    kind = {None: np.float64, 32: np.uint32, 64: np.uint64}[bits]
    values = {}
    for call in range(calls):
        for row in range(batch):
            o, delta = products[call, row].tolist(), masks[call, row].tolist()
            if modulus is not None:
                o = [fixed(x, fraction_bits, modulus) for x in o]
            hidden = [a + b if modulus is None else (a + b) % modulus for a, b in zip(o, delta, strict=True)]
            for number, tree, numbers in ((1, pair[0], hidden), (2, pair[1], delta)):
                for (sender, receiver, parties), value in received(tree, numbers, modulus).items():
                    if receiver in coalition:
                        key = (number, sender, receiver, parties)
                        values.setdefault(key, np.zeros((calls, batch), kind))[call, row] = value
    return [(*key, array) for key, array in values.items()]


def fixed(x, fraction_bits, modulus):
    """The fixed-point number of a float: to nearest, ties to even, modulo."""
    return round(Fraction(x) * 2**fraction_bits) % modulus
