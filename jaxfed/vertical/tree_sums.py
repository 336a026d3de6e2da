"""Sums of floats over trees, in the trees' order."""

import jax.numpy as jnp

from jaxfed.types import Array
from jaxfed.vertical.aggregation import Tree


def in_order(numbers: Array, trees: tuple[Tree, ...]) -> Array:
    """Return the sums over parties [m, b, *L] of numbers [m, b, q, *L], those of dominator a over trees[a].

    Addition for addition: XLA makes one loop of them, where places looked up level by level took longer than the tick.
    """
    return jnp.stack([_sum(numbers[a], tree) for a, tree in enumerate(trees)])


def _sum(numbers: Array, tree: Tree) -> Array:
    """Return the sum [b, *L] of numbers [b, q, *L]."""
    if not isinstance(tree, tuple):
        return numbers[:, tree]
    total = _sum(numbers, tree[0])
    for branch in tree[1:]:
        total = total + _sum(numbers, branch)
    return total
