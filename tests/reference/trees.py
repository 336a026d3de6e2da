"""Arithmetic on parameters, which are dicts of float64 arrays with the same keys."""

import numpy as np


def copy(a):
    return {k: np.array(a[k], dtype=np.float64) for k in a}


def zeros_like(a):
    return {k: np.zeros(np.shape(a[k])) for k in a}


def add(a, b):
    return {k: a[k] + b[k] for k in a}


def sub(a, b):
    return {k: a[k] - b[k] for k in a}


def scale(s, a):
    return {k: s * a[k] for k in a}


def axpy(s, a, b):
    """s a + b."""
    return {k: s * a[k] + b[k] for k in a}


def lerp(s, a, b):
    """s a + (1 - s) b."""
    return {k: s * a[k] + (1 - s) * b[k] for k in a}


def dot(a, b):
    return float(sum(np.sum(a[k] * b[k]) for k in a))


def weighted_mean(trees, weights):
    """sum_j p_j a_j / sum_j p_j."""
    total = zeros_like(trees[0])
    for tree, weight in zip(trees, weights, strict=True):
        total = axpy(weight, tree, total)
    return scale(1 / sum(weights), total)


def one_of(field, got, wanted):
    if got not in wanted:
        raise ValueError(f"{field}: got {got!r}, wanted one of {', '.join(repr(w) for w in wanted)}")
