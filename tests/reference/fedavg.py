"""Local SGD and federated averaging (McMahan et al. 2017, Algorithm 1), with optional local momentum or Adam.

A local optimizer is a pair (init, update): state = init(params); direction, state = update(g, state);
w -= lr direction. Its state is new in every round.
"""

import numpy as np

from tests.reference.trees import axpy, copy, one_of, sub, weighted_mean, zeros_like


def sgd_momentum(momentum):
    """trace = g + momentum trace; direction = trace (torch's and optax's convention, without dampening)."""

    def update(g, trace):
        trace = axpy(momentum, trace, g)
        return trace, trace

    return zeros_like, update


def adam(beta1=0.9, beta2=0.999, eps=1e-8):
    """Kingma and Ba 2015, Algorithm 1, with bias correction; eps is added outside the root."""

    def init(params):
        return zeros_like(params), zeros_like(params), 0

    def update(g, state):
        m, v, t = state
        t = t + 1
        m = {k: beta1 * m[k] + (1 - beta1) * g[k] for k in g}
        v = {k: beta2 * v[k] + (1 - beta2) * g[k] ** 2 for k in g}
        direction = {k: m[k] / (1 - beta1**t) / (np.sqrt(v[k] / (1 - beta2**t)) + eps) for k in g}
        return direction, (m, v, t)

    return init, update


def local_sgd(model, w, x, y, batches, lr, optimizer=None):
    """Train from w, one step per array of row numbers in `batches`; returns the new params."""
    w = copy(w)
    if optimizer is not None:
        init, update = optimizer
        state = init(w)
    for batch in batches:
        direction = model.grad(w, x[batch], y[batch])
        if optimizer is not None:
            direction, state = update(direction, state)
        w = axpy(-lr, direction, w)
    return w


def client_weight(clients, i, weights):
    """The weight of a client with rows: 1 ("uniform") or its number of rows n_i ("examples")."""
    one_of("weights", weights, ("examples", "uniform"))
    return 1 if weights == "uniform" else len(clients[i][1])


def mean_update(model, w, clients, cohort, batches, lr, weights="examples", optimizer=None):
    """Weighted mean over the cohort of w_i - w, or None where no client of the cohort has rows."""
    updates, shares = [], []
    for i in cohort:
        x, y = clients[i]
        if len(y) == 0:
            continue
        updates.append(sub(local_sgd(model, w, x, y, batches[i], lr, optimizer), w))
        shares.append(client_weight(clients, i, weights))
    return weighted_mean(updates, shares) if updates else None


def fedavg_round(model, w, clients, cohort, batches, lr, weights="examples", server_lr=1.0, optimizer=None):
    """w + server_lr mean_i(w_i - w). Clients without rows are skipped; w stays where none has rows."""
    delta = mean_update(model, w, clients, cohort, batches, lr, weights, optimizer)
    return copy(w) if delta is None else axpy(server_lr, delta, w)
