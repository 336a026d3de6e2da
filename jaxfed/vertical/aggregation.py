"""Trees over which parties sum masked numbers (VFB2, Algorithm 1, steps 4 and 5; appendix B).

A tree is a nested tuple whose leaves are party numbers, each once: ((0, 1), (2, 3)) is tree T1 of the paper's figure 5.
The holder of a subtree is its first leaf. It receives the sum of each of the other branches from that branch's holder
and adds them to its own, in order. So the first leaf of the whole tree, its root, ends up with the sum: the dominator.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxfed.checks import fail, whole

Tree = Any  # a party number, or a tuple of trees
Pair = tuple[Tree, Tree]  # T1, that of the masked products, and T2, that of the masks

FIGURE_5: Pair = (((0, 1), (2, 3)), ((0, 2), (1, 3)))  # the paper's parties 1 to 4 are 0 to 3 here


class Edge(NamedTuple):
    """One message of a tree: `sender` sends `receiver` the sum over `leaves`, a sorted tuple of parties."""

    sender: int
    receiver: int
    leaves: tuple[int, ...]


def leaves(tree: Tree) -> tuple[int, ...]:
    """Return the parties of a tree, in order."""
    return sum((leaves(branch) for branch in tree), ()) if isinstance(tree, tuple) else (tree,)


def edges(tree: Tree) -> list[Edge]:
    """Return the q - 1 messages of a tree, each after those that it has to wait for."""
    if not isinstance(tree, tuple):
        return []
    holder, found = leaves(tree)[0], edges(tree[0])
    for branch in tree[1:]:
        own = leaves(branch)
        found += [*edges(branch), Edge(own[0], holder, tuple(sorted(own)))]
    return found


def subtrees(tree: Tree) -> Iterator[tuple[int, ...]]:
    """Yield the sorted leaves of every subtree with more than one leaf, the whole tree included."""
    if isinstance(tree, tuple):
        yield tuple(sorted(leaves(tree)))
        for branch in tree:
            yield from subtrees(branch)


def depth(tree: Tree) -> int:
    """Return the longest chain of messages, each sent only after the one before came in."""
    after: dict[int, int] = {}
    for edge in edges(tree):
        after[edge.receiver] = max(after.get(edge.receiver, 0), after.get(edge.sender, 0) + 1)
    return max(after.values(), default=0)


def check_tree(field: str, tree: Tree, num_parties: int, root: int | None = None) -> None:
    """Require a tree of the parties 0 to num_parties - 1 (whose root is `root`), each a leaf once."""

    def walk(branch):
        if isinstance(branch, tuple):
            if not branch:
                fail(field, "an empty branch", "branches of at least one party")
            for part in branch:
                walk(part)
        elif isinstance(branch, bool) or not isinstance(branch, (int, np.integer)):
            fail(field, repr(branch), "nested tuples of party numbers")

    walk(tree)
    if sorted(leaves(tree)) != list(range(num_parties)):
        fail(field, f"leaves {leaves(tree)}", f"each of the parties 0 to {num_parties - 1} once")
    if root is not None and leaves(tree)[0] != root:
        fail(field, f"root {leaves(tree)[0]}", f"party {root}, the dominator, as the first leaf")


def balanced(order: Sequence[int]) -> Tree:
    """Return the balanced tree with leaves in that order: halves of halves, ceil(log2 q) levels high.

    Its depth is floor(log2 q): in ((0, 1), 2) both numbers come to party 0 at once.
    """
    if len(order) == 1:
        return int(order[0])
    half = -(-len(order) // 2)
    return balanced(order[:half]), balanced(order[half:])


def star(root: int, num_parties: int) -> Tree:
    """Return the tree in which the root receives every other party's number by itself."""
    return (root, *(p for p in range(num_parties) if p != root)) if num_parties > 1 else root


def chain(order: Sequence[int]) -> Tree:
    """Return the caterpillar (((a, b), c), d): the root receives every other number by itself here too."""
    tree: Tree = int(order[0])
    for party in order[1:]:
        tree = (tree, int(party))
    return tree


def path(order: Sequence[int]) -> Tree:
    """Return (a, (b, (c, d))): each party adds its number to the sum that it receives, and sends it on to the next."""
    return int(order[0]) if len(order) == 1 else (int(order[0]), path(order[1:]))


def random_pair(num_parties: int, root: int, rng: np.random.Generator) -> Pair:
    """Return two balanced trees with that root and the other leaves in random orders."""
    whole("num_parties", num_parties, 1)
    others = [p for p in range(num_parties) if p != root]
    first, second = (balanced([root, *rng.permutation(others).tolist()]) for _ in range(2))
    return first, second
