"""Pairs of aggregation trees from which no small coalition learns anything, where they exist (`leakage` judges them).

Derived; the paper gives one pair of four parties (figure 5), which protects from single parties but not from two.
"""

from typing import Any

import numpy as np

from jaxfed.checks import fail, whole
from jaxfed.vertical import aggregation, leakage
from jaxfed.vertical.aggregation import Pair, Tree


def secure_pair(num_parties: int, root: int, coalition: int = 1, seed: int = 0) -> Pair:
    """Return a pair of trees that passes the rank test for all coalitions of at most that many parties.

    They learn no product and no partial sum, whether or not they know z (`leakage.resists`). Against single parties it
    is a random balanced pair, if one of a hundred passes. Otherwise, and against two, it is a wheel: the other parties
    in a ring, which the two trees share out in arms of two (one of three where they are odd in number) that hang on the
    root. It needs no more messages, has depth 2 or 3, and stays connected without any two parties. All of these pairs
    meet Definition 4 too.

    Raises ValueError where no pair exists: a coalition with the root that lacks one party learns it from z; and two
    trees have 2 (q - 1) messages, at least two of them with the root, so the other parties have less than four
    neighbours on average, and the at most three neighbours of one of them unmask it.
    """
    whole("num_parties", num_parties, 2)
    whole("root", root, 0)
    whole("coalition", coalition, 1)
    whole("seed", seed, 0)
    if root >= num_parties:
        fail("root", root, f"0 to {num_parties - 1}")
    if coalition >= num_parties - 1:
        fail("coalition", coalition, f"less than {num_parties - 1} of {num_parties} parties: with the root among them, "
             "all but one subtract their own products from z, so no pair exists")  # fmt: skip
    if coalition > 2:
        fail("coalition", coalition, "1 or 2: in any two trees some party has at most three neighbours, which together "
             "unmask it, so no pair exists")  # fmt: skip
    rng = np.random.default_rng((seed, root))
    for _ in range(100 if coalition == 1 and num_parties > 3 else 0):
        pair = aggregation.random_pair(num_parties, root, rng)
        if leakage.differ(pair) and leakage.resists(pair):
            return pair
    ring = rng.permutation([p for p in range(num_parties) if p != root]).tolist()
    if num_parties == 3:  # the wheel is (root, (a, b)), (root, (b, a)): it passes too, but violates Definition 4
        return aggregation.star(root, 3), (root, aggregation.path(ring))
    return _wheel(root, ring)


def pairs(party: Any, coalition: int = 1, seed: int = 0) -> tuple[Pair, ...]:
    """Return one `secure_pair` per dominator, whose root it is. party: PartyData, or (num_parties, active parties)."""
    num_parties, active = (party.num_parties, party.active) if hasattr(party, "active") else party
    return tuple(secure_pair(num_parties, int(root), coalition, seed) for root in active)


def _wheel(root: int, ring: list[int]) -> Pair:
    """Return two trees of arms whose messages are the ring's and one between each of its parties and the root."""
    size, odd = len(ring), len(ring) % 2
    first: list[Tree] = [(ring[i], ring[i + 1]) for i in range(3 if odd else 0, size, 2)]
    second: list[Tree] = [(ring[i - 1], ring[i % size]) for i in range(2 + odd, size + 1, 2)]
    if odd:  # one arm of three in T1; its middle hangs on the root in T2, by itself
        first.insert(0, aggregation.path(ring[:3]))
        second.insert(0, ring[1])
    return (root, *first), (root, *second)
