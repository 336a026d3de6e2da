"""Softmax regression and a network with one hidden layer; every derivative is written out by hand.

Kernels are stored [out, in]. loss = mean over rows of the softmax cross-entropy + l2/2 ||all params, biases too||^2.
"""

import numpy as np

from tests.reference.trees import axpy, dot


def cross_entropy(z, y):
    """Mean over rows of log sum_c exp(z_c) - z_y; z [n, C], y [n] integer classes."""
    if len(y) == 0:
        raise ValueError("y: got 0 rows, wanted at least 1")
    top = z.max(axis=1)
    log_sum = top + np.log(np.exp(z - top[:, None]).sum(axis=1))
    return float(np.mean(log_sum - z[np.arange(len(y)), y]))


def cross_entropy_grad(z, y):
    """Derivative of `cross_entropy` in z: (softmax(z) - onehot(y)) / n, shape [n, C]."""
    if len(y) == 0:
        raise ValueError("y: got 0 rows, wanted at least 1")
    e = np.exp(z - z.max(axis=1, keepdims=True))
    dz = e / e.sum(axis=1, keepdims=True)
    dz[np.arange(len(y)), y] -= 1
    return dz / len(y)


class Softmax:
    """Softmax regression: params {"kernel": [C, d], "bias": [C]}."""

    def __init__(self, l2=0.0):
        self.l2 = l2

    def logits(self, params, x):
        return x @ params["kernel"].T + params["bias"]

    def pull(self, params, x, dz):
        """Derivative in params of sum(dz * logits(params, x)), dz [n, C] held constant."""
        return {"kernel": dz.T @ x, "bias": dz.sum(axis=0)}

    def loss(self, params, x, y):
        return loss(self, params, x, y)

    def grad(self, params, x, y):
        return grad(self, params, x, y)

    def accuracy(self, params, x, y):
        return accuracy(self.logits(params, x), y)


class Mlp:
    """One ReLU layer: params {"kernel0": [h, d], "bias0": [h], "kernel1": [C, h], "bias1": [C]}; ReLU'(0) = 0."""

    def __init__(self, l2=0.0):
        self.l2 = l2

    def hidden(self, params, x):
        return np.maximum(x @ params["kernel0"].T + params["bias0"], 0)

    def logits(self, params, x):
        return self.hidden(params, x) @ params["kernel1"].T + params["bias1"]

    def pull(self, params, x, dz):
        """Derivative in params of sum(dz * logits(params, x)), dz [n, C] held constant."""
        h = self.hidden(params, x)
        dh = (dz @ params["kernel1"]) * (h > 0)
        return {"kernel0": dh.T @ x, "bias0": dh.sum(axis=0), "kernel1": dz.T @ h, "bias1": dz.sum(axis=0)}

    def loss(self, params, x, y):
        return loss(self, params, x, y)

    def grad(self, params, x, y):
        return grad(self, params, x, y)

    def accuracy(self, params, x, y):
        return accuracy(self.logits(params, x), y)


def loss(model, params, x, y):
    return cross_entropy(model.logits(params, x), y) + model.l2 / 2 * dot(params, params)


def grad(model, params, x, y):
    dz = cross_entropy_grad(model.logits(params, x), y)
    return axpy(model.l2, params, model.pull(params, x, dz))


def accuracy(z, y):
    """Share of rows whose largest logit (the first of equals) is the class y."""
    return float(np.mean(np.argmax(z, axis=1) == y))
