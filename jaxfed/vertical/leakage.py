"""Which partial products a coalition of parties learns from two aggregation trees (VFB2, section 6 and appendix B).

One call of Algorithm 1 has the unknowns o_1..o_q, the products, and delta_1..delta_q, the masks. A coalition sees its
own, the sum in each message that it receives (of o + delta over T1, of delta over T2), and z where it holds the root.
It learns a sum of products iff that lies in the span of these rows: the rank test. For trees the test needs no
arithmetic. A party sends its own number plus all that it received, so over any set of parties the numbers add up to
what leaves the set less what enters it, and to the total besides if the root is in it. Hence, with the coalition taken
out of a tree, it learns the sum over each connected component but the root's, and nothing else; and the masks cancel in
sums over sets that are made of such components in both trees. Together:

    a coalition learns the sum of products over each connected component of the graph of all messages of both trees
    without the coalition (the root's own component only where it knows z), and nothing else.

So it unmasks one party iff it contains all that party's neighbours (derived; the paper has Definition 4 instead, which
is neither sufficient nor necessary). Calls are judged one by one: masks are fresh. A product that recurs unchanged in
calls of two dominators is seen over four trees; that is not counted here.
"""

from collections.abc import Iterator
from itertools import combinations
from math import nan
from typing import Any, NamedTuple

import numpy as np

from jaxfed.checks import fail, flag, whole
from jaxfed.vertical import aggregation
from jaxfed.vertical.aggregation import Pair


class Leaks(NamedTuple):
    """What a coalition learns from one call.

    coalition: sorted parties. knows_total: it holds the root, or was said to know z. sums: the disjoint sets of other
    parties over each of which it learns the sum of the products, each sorted; every other linear function that it
    learns is made of these.
    """

    coalition: tuple[int, ...]
    knows_total: bool
    sums: tuple[tuple[int, ...], ...]

    @property
    def parties(self) -> tuple[int, ...]:
        """The parties whose own product it learns."""
        return tuple(some[0] for some in self.sums if len(some) == 1)

    @property
    def surplus(self) -> int:
        """How many independent functions of the others' products it learns beside their total, where it knows z."""
        return len(self.sums) - (self.knows_total and bool(self.sums))

    @property
    def trivial(self) -> bool:
        """Whether it learns a product only because it knows z and lacks one party: no aggregation prevents that."""
        return self.surplus == 0 and bool(self.parties)


class Table(NamedTuple):
    """What each coalition up to a size learns from a pair of trees; `str` gives the text, `columns` a table.

    rows: one Leaks a coalition, by size, then in order.
    """

    pair: Pair
    rows: tuple[Leaks, ...]

    def columns(self) -> dict[str, list]:
        """Return columns of equal length, as `pandas.DataFrame` takes them: one row a coalition."""
        fields = ("coalition", "knows_total", "parties", "sums", "surplus", "trivial")
        size = [len(row.coalition) for row in self.rows]
        return {"size": size} | {field: [getattr(row, field) for row in self.rows] for field in fields}

    def shares(self) -> dict[str, list]:
        """Return columns with one row a size: counts of coalitions, and shares of those that are not trivial.

        coalitions: how many there are. trivial: those that know z and lack one party only. unmasking: the others that
        learn some party's own product. learning: the others that learn anything beyond the total. share_unmasking,
        share_learning: of coalitions - trivial (NaN if there is none).
        """
        found: dict[str, list] = {}
        for size in sorted({len(row.coalition) for row in self.rows}):
            rows = [row for row in self.rows if len(row.coalition) == size]
            trivial = sum(row.trivial for row in rows)
            unmasking, learning = (sum(map(bool, column)) for column in (
                [row.parties and not row.trivial for row in rows], [row.surplus for row in rows]))  # fmt: skip
            rest = len(rows) - trivial
            line = dict(size=size, coalitions=len(rows), trivial=trivial, unmasking=unmasking, learning=learning,
                        share_unmasking=unmasking / rest if rest else nan,
                        share_learning=learning / rest if rest else nan)  # fmt: skip
            for name, value in line.items():
                found.setdefault(name, []).append(value)
        return found

    def __str__(self) -> str:
        """Return the text: the pair, the coalitions that learn something, and the shares."""
        first, second = self.pair
        lines = [f"T1 {first}, depth {aggregation.depth(first)}", f"T2 {second}, depth {aggregation.depth(second)}",
                 f"Definition 4: {'met' if differ(self.pair) else 'violated'}"]  # fmt: skip
        for row in self.rows:
            if row.surplus or row.trivial:
                alone = ", ".join(map(str, row.parties)) or "none"
                sums = ", ".join("+".join(map(str, some)) for some in row.sums if len(some) > 1)
                why = " (trivial: it lacks only that party)" if row.trivial else f"; sums over {sums}" if sums else ""
                lines.append(f"{{{', '.join(map(str, row.coalition))}}} unmasks {alone}{why}")
        shares = self.shares()
        for line in zip(*shares.values(), strict=True):
            row = dict(zip(shares, line, strict=True))
            rest = row["coalitions"] - row["trivial"]
            lines.append(f"coalitions of {row['size']}: {row['unmasking']} of {rest} unmask a party, "
                         f"{row['learning']} learn a sum ({row['trivial']} more are trivial)")  # fmt: skip
        return "\n".join(lines)


def differ(pair: Pair) -> bool:
    """Return whether two trees are significantly different: Definition 4 of the paper (appendix B), as stated.

    No subtree of T1 and subtree of T2, both with more than one leaf and fewer than the whole tree, have the same
    leaves. Two stars pass, even equal ones, and the root unmasks everybody; so use `leaks` to judge a pair.
    """
    first, second = (
        {some for some in aggregation.subtrees(tree) if 1 < len(some) < len(aggregation.leaves(tree))} for tree in pair
    )
    return not first & second


def leaks(pair: Pair, coalition: Any, knows_total: bool = False) -> Leaks:
    """Return what a coalition (party numbers, at least one) learns from one call over a pair of trees with one root.

    knows_total: it knows z though it lacks the root, say because it recovers z from theta. Exact: no number is rounded.
    Raises ValueError for trees of different parties or roots, and for parties that they lack.
    """
    num_parties, root = _check(pair)
    flag("knows_total", knows_total)
    members = {coalition} if isinstance(coalition, (int, np.integer)) else set(coalition)
    for party in members:
        whole("coalition", party, 0)
    if not members or max(members) >= num_parties:
        fail("coalition", sorted(members), f"at least one of the parties 0 to {num_parties - 1}")
    return _leaks(_neighbours(pair), root, tuple(sorted(int(p) for p in members)), knows_total)


def table(pair: Pair, largest: int = 3, knows_total: bool = False) -> Table:
    """Return what every coalition of 1 to `largest` parties learns (less than all parties); see `leaks`."""
    whole("largest", largest, 1)
    flag("knows_total", knows_total)
    return Table(pair, tuple(_all(pair, largest, knows_total)))


def resists(pair: Pair, coalition: int = 1) -> bool:
    """Return whether no coalition of at most that many parties learns anything but what no aggregation can hide.

    Neither a party's product nor a partial sum, whether or not it knows z. So no member's removal may disconnect the
    graph of messages: it is (coalition + 1)-connected.
    """
    whole("coalition", coalition, 1)
    return not any(row.surplus for row in _all(pair, coalition, False))


def _check(pair: Pair) -> tuple[int, int]:
    """Return the number of parties and the root of a sound pair."""
    parties = aggregation.leaves(pair[0])
    for field, tree in zip(("T1", "T2"), pair, strict=True):
        aggregation.check_tree(field, tree, len(parties), parties[0])
    return len(parties), int(parties[0])


def _neighbours(pair: Pair) -> dict[int, set[int]]:
    """Return the parties with which each party exchanges a message in either tree."""
    around: dict[int, set[int]] = {int(p): set() for p in aggregation.leaves(pair[0])}
    for edge in (*aggregation.edges(pair[0]), *aggregation.edges(pair[1])):
        around[edge.sender].add(edge.receiver)
        around[edge.receiver].add(edge.sender)
    return around


def _all(pair: Pair, largest: int, knows_total: bool) -> Iterator[Leaks]:
    """Yield what each coalition of 1 to `largest` parties, but less than all, learns."""
    num_parties, root = _check(pair)
    around = _neighbours(pair)
    for size in range(1, min(largest, num_parties - 1) + 1):
        for some in combinations(range(num_parties), size):
            yield _leaks(around, root, some, knows_total)


def _leaks(around: dict[int, set[int]], root: int, coalition: tuple[int, ...], knows_total: bool) -> Leaks:
    seen, components = set(coalition), []
    for start in sorted(around):
        if start not in seen:
            component, todo = [], [start]
            seen.add(start)
            while todo:
                component.append(todo.pop())
                fresh = around[component[-1]] - seen
                todo.extend(fresh)
                seen |= fresh
            components.append(tuple(sorted(component)))
    knows_total = bool(knows_total) or root in coalition
    return Leaks(coalition, knows_total, tuple(some for some in components if knows_total or root not in some))
