"""Local Descent APFL (Deng et al. 2020, Algorithm 1, equations 6-8) on least squares, with exact gradients, as loops.

A client is (x [n, d], y [n]); f_i(w) = 1/2 mean_j (x_j . w - y_j)^2. Clients take part in every round unless cohorts
say otherwise.
"""

import numpy as np


def gradient(client, w):
    x, y = client
    total = np.zeros_like(w)
    for row, target in zip(x, y, strict=True):
        total += (row @ w - target) * row
    return total / len(y)


def value(client, w):
    x, y = client
    return np.mean([0.5 * (row @ w - target) ** 2 for row, target in zip(x, y, strict=True)])


def minimiser(clients):
    """argmin of the mean of the clients' f_i, by the normal equations."""
    d = clients[0][0].shape[1]
    left, right = np.zeros((d, d)), np.zeros(d)
    for x, y in clients:
        left += x.T @ x / len(y)
        right += x.T @ y / len(y)
    return np.linalg.solve(left, right)


def local_descent(clients, alpha, lr, tau, rounds, cohorts=None):
    """Return (w, [v_i], [w_i before averaging, of the last round of each]) after some rounds; all start at zero.

    lr(r) is the step size of round r.
    """
    d = clients[0][0].shape[1]
    w = np.zeros(d)
    v, own = [np.zeros(d) for _ in clients], [np.zeros(d) for _ in clients]
    for r in range(rounds):
        cohort = range(len(clients)) if cohorts is None else cohorts[r]
        for i in cohort:
            w_i = w.copy()
            for _ in range(tau):
                mixture = alpha * v[i] + (1 - alpha) * w_i
                next_w = w_i - lr(r) * gradient(clients[i], w_i)  # equation 6
                v[i] = v[i] - lr(r) * alpha * gradient(clients[i], mixture)  # equation 7: the gradient in v
                w_i = next_w
            own[i] = w_i
        w = np.mean([own[i] for i in cohort], axis=0)  # equation 8
    return w, v, own


def personal_gaps(clients, alpha, v, w):
    """f_i(alpha v_i + (1 - alpha) w_i) - min f_i for each client; w: one model for all, or one each."""
    each = w if isinstance(w, list) else [w] * len(clients)
    return np.array([
        value(c, alpha * v_i + (1 - alpha) * w_i) - value(c, minimiser([c]))
        for c, v_i, w_i in zip(clients, v, each, strict=True)
    ])  # fmt: skip
