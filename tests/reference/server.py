"""Server optimizers on delta, the mean of w_i - w.

A server optimizer is a pair (init, update): state = init(w); w, state = update(w, state, delta).
FedAdam and FedYogi: Reddi et al. 2021, Algorithm 2, without bias correction. FedAvgM: Hsu et al. 2019.
"""

import numpy as np

from tests.reference.fedavg import mean_update
from tests.reference.trees import axpy, copy, zeros_like


def fedavgm(lr, beta):
    """m = beta m + delta; w += lr m; m_0 = 0."""

    def update(w, m, delta):
        m = axpy(beta, m, delta)
        return axpy(lr, m, w), m

    return zeros_like, update


def fedadam(lr, beta1=0.9, beta2=0.99, tau=1e-3):
    return adaptive(lr, beta1, tau, lambda v, d: beta2 * v + (1 - beta2) * d**2)


def fedyogi(lr, beta1=0.9, beta2=0.99, tau=1e-3):
    return adaptive(lr, beta1, tau, lambda v, d: v - (1 - beta2) * d**2 * np.sign(v - d**2))


def adaptive(lr, beta1, tau, second_moment):
    """m = beta1 m + (1 - beta1) delta; v = second_moment(v, delta); w += lr m / (sqrt(v) + tau); from 0 and tau^2."""

    def init(w):
        return zeros_like(w), {k: np.full(np.shape(w[k]), tau**2) for k in w}

    def update(w, state, delta):
        m, v = state
        m = {k: beta1 * m[k] + (1 - beta1) * delta[k] for k in w}
        v = {k: second_moment(v[k], delta[k]) for k in w}
        return {k: w[k] + lr * m[k] / (np.sqrt(v[k]) + tau) for k in w}, (m, v)

    return init, update


def server_round(model, w, state, clients, cohort, batches, lr, server, weights="examples", optimizer=None):
    """Local training, then one server step; returns (w, state).

    Where no client of the cohort has rows nothing arrives: no server step is taken, w and state stay.
    """
    _, update = server
    delta = mean_update(model, w, clients, cohort, batches, lr, weights, optimizer)
    return (copy(w), state) if delta is None else update(w, state, delta)
