"""The compiled loops of `vertical_numba`: one event after another, in the tick semantics of `vertical_loops`.

Methods are constants of a compiled loop, and with `fixed` shapes and ring lengths too; a sample's features are stored
together for all parties, nothing is allocated inside, and with `fastmath` sums may be reassociated into vector
instructions.
"""

import functools
import math
import os

import numpy as np

os.environ.setdefault("NUMBA_SLP_VECTORIZE", "1")  # off by default; a third less time here

import numba  # noqa: E402
from numba import float32, uint64  # noqa: E402


@numba.njit
def logistic(z, y):
    return -y / (float32(1) + math.exp(y * z))


@numba.njit
def half_squared(z, y):
    return z - y


LOSSES = {"logistic": logistic, "half_squared": half_squared}


@functools.cache
def full_pass(loss, fastmath):
    """reference [n] becomes theta at w, mean [q, d] the mean of theta x."""
    theta = LOSSES[loss]

    @numba.njit(fastmath=fastmath, error_model="numpy")
    def run(x, y, w, reference, mean):
        mean[:] = 0
        (n, q, d), inverse = x.shape, float32(1) / float32(len(y))
        for i in range(n):
            z = float32(0)
            for p in range(q):
                for j in range(d):
                    z += x[i, p, j] * w[p, j]
            reference[i] = theta(z, y[i])
            v = reference[i] * inverse
            for p in range(q):
                for j in range(d):
                    mean[p, j] += v * x[i, p, j]

    return run


@functools.cache
def dense(method, loss, m, q, d, b, ahead, ring, fastmath, fixed=True):
    """The loop for one shape, or (not `fixed`) for any; unsigned numbers spare the test for a negative index."""
    theta, snapshot_pass = LOSSES[loss], full_pass(loss, fastmath)
    svrg, saga = method == "svrg", method == "saga"
    constants = m, q, d, b, ahead, ring

    @numba.njit(fastmath=fastmath, error_model="numpy")
    def run(read, complete, apply, snapshot, rows, x, y, lr, l2, w, reference, mean, products, messages, done):
        m, q, d = complete.shape[1], w.shape[0], w.shape[1]
        b, ahead, ring = rows.shape[2], products.shape[1], messages.shape[1]
        if fixed:
            m, q, d, b, ahead, ring = constants
        moved = np.zeros(d, np.float32)
        share, inverse = lr / float32(b), float32(1) / float32(len(y))
        for t in range(len(read)):
            if svrg and snapshot[t]:
                snapshot_pass(x, y, w, reference, mean)
            for p in range(q):
                for a in range(m):
                    early = read[t, a, p]
                    if early >= 0:
                        u = done[a] + uint64(early)
                        for k in range(b):
                            i = rows[a, u, k]
                            s = float32(0)
                            for j in range(d):
                                s += w[p, j] * x[i, p, j]
                            products[a, u & uint64(ahead - 1), k, p] = s
            for a in range(m):
                if complete[t, a]:
                    u = done[a]
                    for k in range(b):
                        i = rows[a, u, k]
                        z = float32(0)
                        for p in range(q):
                            z += products[a, u & uint64(ahead - 1), k, p]
                        v = theta(z, y[i])
                        if svrg or saga:
                            old = reference[i]
                            if saga:
                                reference[i] = v
                            v -= old
                        messages[a, u & uint64(ring - 1), k] = v
                    done[a] = u + uint64(1)
            for p in range(q):
                due = float32(0)
                for a in range(m):
                    if apply[t, a, p] >= 0:
                        due += float32(1)
                if due == 0:
                    continue
                for j in range(d):
                    moved[j] = 0
                for a in range(m):
                    age = apply[t, a, p]
                    if age >= 0:
                        u = done[a] - uint64(1 + age)
                        for k in range(b):
                            i = rows[a, u, k]
                            v = messages[a, u & uint64(ring - 1), k]
                            for j in range(d):
                                moved[j] += v * x[i, p, j]
                step = lr * due
                for j in range(d):
                    if svrg or saga:
                        w[p, j] -= step * (l2 * w[p, j] + mean[p, j]) + share * moved[j]
                    else:
                        w[p, j] -= step * l2 * w[p, j] + share * moved[j]
                if saga:
                    for j in range(d):
                        mean[p, j] += moved[j] * inverse

    return run


@functools.cache
def sparse(loss, m, q, b, ahead, ring, fastmath):
    """SGD on w = scale u: a step of the regulariser is one multiplication of a party's scale, in float64."""
    theta = LOSSES[loss]

    @numba.njit(fastmath=fastmath, error_model="numpy")
    def run(read, complete, apply, rows, start, index, value, offsets, y, lr, l2, w, scale, products, messages, done):
        share, parties = lr / float32(b), uint64(q)
        for t in range(len(read)):
            for a in range(m):
                for p in range(q):
                    early = read[t, a, p]
                    if early >= 0:
                        u = done[a] + uint64(early)
                        for k in range(b):
                            at = uint64(rows[a, u, k]) * parties + uint64(p)
                            s = float32(0)
                            for e in range(start[at], start[at + uint64(1)]):
                                s += w[index[e]] * value[e]
                            products[a, u & uint64(ahead - 1), k, p] = s * scale[p]
            for a in range(m):
                if complete[t, a]:
                    u = done[a]
                    for k in range(b):
                        z = float32(0)
                        for p in range(q):
                            z += products[a, u & uint64(ahead - 1), k, p]
                        messages[a, u & uint64(ring - 1), k] = theta(z, y[rows[a, u, k]])
                    done[a] = u + uint64(1)
            for p in range(q):
                due = 0
                for a in range(m):
                    due += apply[t, a, p] >= 0
                scale[p] -= lr * l2 * due * scale[p]
                if scale[p] < 1e-2:
                    for j in range(offsets[p], offsets[p + 1]):
                        w[j] *= scale[p]
                    scale[p] = 1
                for a in range(m):
                    age = apply[t, a, p]
                    if age >= 0:
                        u = done[a] - uint64(1 + age)
                        for k in range(b):
                            v = float32(share * messages[a, u & uint64(ring - 1), k] / scale[p])
                            at = uint64(rows[a, u, k]) * parties + uint64(p)
                            for e in range(start[at], start[at + uint64(1)]):
                                w[index[e]] -= v * value[e]

    return run
