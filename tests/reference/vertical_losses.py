"""f(w) = mean_i L(w . x_i, y_i) + l2 g(w): losses, regularisers, objective, gradient and optimum on joined features.

Every entry of LOSSES is three functions of the scores z [n] and targets y [n]: L, dL/dz (the paper's theta) and
d2L/dz2. Every entry of REGULARIZERS is three functions of the weights: g (a sum), dg/dw and d2g/dw2 per coordinate.
Classes are -1 and +1. Problem numbers are those of Zhang et al. 2021 (VFB2).
"""

import numpy as np


def sigmoid(z):
    """1 / (1 + e^-z) without overflow on either side."""
    small = np.exp(-np.abs(z))
    return np.where(z >= 0, 1, small) / (1 + small)


LOSSES = {
    # log(1 + e^-yz), problems 13 and 14
    "logistic": (
        lambda z, y: np.logaddexp(0, -y * z),
        lambda z, y: -y * sigmoid(-y * z),
        lambda z, y: sigmoid(z) * sigmoid(-z),
    ),
    # (z - y)^2, problem 17 as the paper writes it
    "squared": (lambda z, y: (z - y) ** 2, lambda z, y: 2 * (z - y), lambda z, y: np.full_like(z, 2)),
    # (z - y)^2 / 2, as the same group's code has it
    "half_squared": (lambda z, y: (z - y) ** 2 / 2, lambda z, y: z - y, lambda z, y: np.ones_like(z)),
    # log((y - z)^2 / 2 + 1), problem 18
    "robust": (
        lambda z, y: np.log((y - z) ** 2 / 2 + 1),
        lambda z, y: (z - y) / ((z - y) ** 2 / 2 + 1),
        lambda z, y: (1 - (z - y) ** 2 / 2) / ((z - y) ** 2 / 2 + 1) ** 2,
    ),
    # max(0, 1 - yz)^2, without a factor of a half
    "squared_hinge": (
        lambda z, y: np.maximum(0, 1 - y * z) ** 2,
        lambda z, y: -2 * y * np.maximum(0, 1 - y * z),
        lambda z, y: np.where(y * z < 1, 2.0, 0.0),
    ),
}

REGULARIZERS = {
    # |w|^2 / 2
    "l2": (lambda w: np.sum(w**2) / 2, lambda w: w, lambda w: np.ones_like(w)),
    # 1/2 sum w^2 / (1 + w^2), problem 14
    "nonconvex": (
        lambda w: np.sum(w**2 / (1 + w**2)) / 2,
        lambda w: w / (1 + w**2) ** 2,
        lambda w: (1 - 3 * w**2) / (1 + w**2) ** 3,
    ),
    "none": (lambda w: 0.0, lambda w: np.zeros_like(w), lambda w: np.zeros_like(w)),
}


def slope(loss, z, y):
    """theta = dL/dz at scores z [b] for targets y [b]."""
    return LOSSES[loss][1](z, y)


def pull(regularizer, w):
    """dg/dw at w, without the factor l2."""
    return REGULARIZERS[regularizer][1](w)


def objective(w, x, y, loss, regularizer, l2):
    """f(w) for joined features x [n, d]."""
    return np.mean(LOSSES[loss][0](x @ w, y)) + l2 * REGULARIZERS[regularizer][0](w)


def gradient(w, x, y, loss, regularizer, l2):
    """The gradient [d] of f at w."""
    return x.T @ slope(loss, x @ w, y) / len(y) + l2 * pull(regularizer, w)


def hessian(w, x, y, loss, regularizer, l2):
    """The matrix [d, d] of second derivatives of f at w (a generalised one for the squared hinge)."""
    curvature = LOSSES[loss][2](x @ w, y)
    return x.T @ (curvature[:, None] * x) / len(y) + l2 * np.diag(REGULARIZERS[regularizer][2](w))


def optimum(x, y, loss, regularizer, l2, w0=None, tolerance=1e-12, max_steps=500):
    """The minimiser [d] of f by Newton's method, from w0 or zero: a stationary point where f is not convex.

    Far away: eigenvalues of the Hessian made positive, step halved until f falls enough. Near: full steps for as long
    as they shrink the gradient, so that the answer is as good as float64 allows. Raises ArithmeticError where the
    largest entry of the gradient stays above `tolerance`.
    """
    problem = (x, y, loss, regularizer, l2)
    w = np.zeros(x.shape[1]) if w0 is None else np.array(w0, float)
    for _ in range(max_steps):
        g = gradient(w, *problem)
        size = np.max(np.abs(g), initial=0)
        values, vectors = np.linalg.eigh(hessian(w, *problem))
        values = np.maximum(np.abs(values), 1e-10 * max(np.max(np.abs(values), initial=0), 1e-10))
        step = -vectors @ (vectors.T @ g / values)
        if size < 1e-6:
            if np.max(np.abs(gradient(w + step, *problem))) >= size:
                break
        else:
            while objective(w + step, *problem) > objective(w, *problem) + 1e-4 * g @ step:
                step = step / 2
        w = w + step
    size = np.max(np.abs(gradient(w, *problem)), initial=0)
    if size > tolerance:
        raise ArithmeticError(f"optimum: got a gradient of {size:.2g}, wanted at most {tolerance:g}")
    return w
