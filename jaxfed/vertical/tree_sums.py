"""Sums of floats over trees, in the trees' order: additions that do not wait for each other are done at once."""

from functools import cache

import jax.numpy as jnp
import numpy as np

from jaxfed.types import Array
from jaxfed.vertical.aggregation import Tree, leaves


def in_order(numbers: Array, trees: tuple[Tree, ...]) -> Array:
    """Return the sums over parties [m, b, *L] of numbers [m, b, q, *L], those of dominator a over trees[a]."""
    levels, last = _additions(trees)
    dominator, row = (
        np.arange(n).reshape(shape) for n, shape in zip(numbers.shape[:2], ((-1, 1, 1), (1, -1, 1)), strict=True)
    )
    values = numbers
    for left, right in levels:
        more = values[dominator, row, left[:, None]] + values[dominator, row, right[:, None]]
        values = jnp.concatenate([values, more], 2)
    return values[dominator[..., 0], row[..., 0], last[:, None]]


@cache
def _additions(trees: tuple[Tree, ...]) -> tuple[list[tuple[np.ndarray, np.ndarray]], np.ndarray]:
    """Return levels of additions (left, right), int [m, k] each: places among the numbers of the parties and the
    results of the levels before; and the place of each dominator's total, [m]."""

    def walk(tree, found):  # a name for the tree's sum, and how many levels it takes; adds to found[level]
        if not isinstance(tree, tuple):
            return tree, 0
        name, height = walk(tree[0], found)
        for branch in tree[1:]:
            other, below = walk(branch, found)
            height = max(height, below) + 1
            found.setdefault(height, []).append((name, other))
            name = (height, len(found[height]) - 1)
        return name, height

    each: list[dict] = [{} for _ in trees]
    roots = [walk(tree, found)[0] for tree, found in zip(trees, each, strict=True)]
    heights = range(1, max((max(found, default=0) for found in each), default=0) + 1)
    width = [max(len(found.get(h, ())) for found in each) for h in heights]
    q = len(leaves(trees[0]))
    first = np.cumsum([q, *width])

    def place(name):
        return name if not isinstance(name, tuple) else first[name[0] - 1] + name[1]

    levels = []
    for h, k in zip(heights, width, strict=True):
        pairs = np.zeros((2, len(trees), k), np.int32)
        for a, found in enumerate(each):
            for j, (left, right) in enumerate(found.get(h, ())):
                pairs[:, a, j] = place(left), place(right)
        levels.append((pairs[0], pairs[1]))
    return levels, np.array([place(root) for root in roots], np.int32)
