"""Quadratic clients f_i(w) = 1/2 (w - b_i)^T A_i (w - b_i), whose minimisers are known.

A client is a pair (A_i [d, d] symmetric positive definite, b_i [d]). `rows` turns a list of them into clients of one
example each, and `Quadratic` is the model over such rows, so every round of this package runs on them.
"""

import numpy as np


class Quadratic:
    """f(w) = mean over rows of 1/2 (w - b)^T A (w - b); params {"w": [d]}, x holds A [n, d, d], y holds b [n, d]."""

    def loss(self, params, x, y):
        values = [0.5 * (params["w"] - b) @ a @ (params["w"] - b) for a, b in zip(x, y, strict=True)]
        return float(np.mean(values))

    def grad(self, params, x, y):
        values = [a @ (params["w"] - b) for a, b in zip(x, y, strict=True)]
        return {"w": np.mean(values, axis=0)}


def rows(clients):
    """One example per client: [(A_i [1, d, d], b_i [1, d]), ...]."""
    return [(np.asarray(a, float)[None], np.asarray(b, float)[None]) for a, b in clients]


def gradient(client, w):
    """grad f_i(w) = A_i (w - b_i)."""
    a, b = client
    return a @ (w - b)


def mean_gradient(clients, w):
    """grad F(w), F = 1/N sum_i f_i."""
    return np.mean([gradient(c, w) for c in clients], axis=0)


def minimiser(client):
    """argmin f_i = b_i."""
    return client[1]


def mean_minimiser(clients):
    """argmin F solves (sum_i A_i) w = sum_i A_i b_i."""
    return np.linalg.solve(sum(a for a, _ in clients), sum(a @ b for a, b in clients))


def gradient_diversity(clients, w):
    """zeta_i at the point w: ||grad f_i(w) - grad F(w)||^2, shape [N] (APFL's, before the supremum over w)."""
    g = mean_gradient(clients, w)
    return np.array([np.sum((gradient(c, w) - g) ** 2) for c in clients])


def optimum_gaps(clients):
    """Delta_i = ||argmin f_i - argmin F||^2, shape [N]."""
    w = mean_minimiser(clients)
    return np.array([np.sum((minimiser(c) - w) ** 2) for c in clients])
