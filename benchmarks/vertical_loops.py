"""Tables of ticks made at random, and two slow replays of a table: a NumPy loop over ticks, and plain Python.

The semantics are those of `jaxfed.vertical.ticks`: in a tick first the snapshot, then all reads from the blocks as they
are at its start, then completions, then applies, each party's due messages summed. Nothing here imports jaxfed.
"""

import math
from typing import NamedTuple

import numpy as np


class Table(NamedTuple):
    """read, apply int8 [tick, m, q] (-1: nothing), complete bool [tick, m], snapshot bool [tick]."""

    read: np.ndarray
    complete: np.ndarray
    apply: np.ndarray
    snapshot: np.ndarray


def depths(table) -> tuple[int, int]:
    """1 + the largest read and 1 + the largest age of a message, as powers of two."""
    return tuple(1 << int(max(part.max(), 0)).bit_length() for part in (table.read, table.apply))


def synchronous(ticks: int, m: int, q: int) -> Table:
    """Every dominator reads, completes and has applied one update a tick."""
    zeros = np.zeros((ticks, m, q), np.int8)
    return Table(zeros, np.ones((ticks, m), bool), zeros.copy(), np.arange(ticks) == 0)


def asynchronous(ticks: int, m: int, q: int, *, seed: int = 0, reads: float = 0.97, applies: float = 0.9,
                 ahead: int = 1, ring: int = 4, epoch: int | None = None) -> Table:  # fmt: skip
    """A valid table in which each read and each apply that could be in a tick is in it with these probabilities.

    Products are read at most `ahead` updates early; a message is at most ring - 1 completions old. With `epoch`, all is
    applied and a snapshot taken after so many updates.
    """
    rng = np.random.default_rng(seed)
    read = np.full((ticks, m, q), -1, np.int8)
    apply, complete, snapshot = read.copy(), np.zeros((ticks, m), bool), np.zeros(ticks, bool)
    answered, applied, done = np.zeros((m, q), int), np.zeros((m, q), int), np.zeros(m, int)
    started = epoch
    for t in range(ticks):
        begun = answered.max(axis=1)
        if t == 0 or (started == epoch and epoch and (answered == applied).all()):
            snapshot[t], started = True, 0
        for a in range(m):
            for part in np.flatnonzero((rng.random(q) < reads) & (answered[a] < done[a] + ahead)):
                if answered[a, part] == begun[a]:  # this read would start an update
                    if epoch and started == epoch:
                        continue
                    started, begun[a] = (started or 0) + 1, begun[a] + 1
                read[t, a, part] = answered[a, part] - done[a]
                answered[a, part] += 1
        complete[t] = answered.min(axis=1) > done
        done += complete[t]
        age = done[:, None] - applied
        due = (age > 0) & ((rng.random((m, q)) < applies) | (age >= ring - 1))
        apply[t][due] = age[due] - 1
        applied += due
    return Table(read, complete, apply, snapshot)


def numpy_loop(table, rows, x, y, *, method, lr, l2, w, reference, mean):
    """Replay with NumPy operations over all events of a tick at once; x [n, q, d]. Changes and returns w [q, d]."""
    (ahead, ring), (m, _, b), (n, q, _) = depths(table), rows.shape, x.shape
    products, messages = np.zeros((m, ahead, b, q), x.dtype), np.zeros((m, ring, b), x.dtype)
    done = np.zeros(m, int)
    for read, complete, apply, snapshot in zip(*table[:4], strict=True):
        if snapshot and method == "svrg":
            reference[:] = -y / (1 + np.exp(y * np.einsum("nqd,qd->n", x, w)))
            mean[:] = np.einsum("nqd,n->qd", x, reference) / n
        a, p = np.nonzero(read >= 0)
        if len(a):
            u = done[a] + read[a, p]
            products[a, u % ahead, :, p] = np.einsum("ebd,ed->eb", x[rows[a, u], p[:, None]], w[p])
        (a,) = np.nonzero(complete)
        if len(a):
            u = done[a]
            i, z = rows[a, u], products[a, u % ahead].sum(axis=-1)
            theta = -y[i] / (1 + np.exp(y[i] * z))
            if method == "svrg":
                theta = theta - reference[i]
            if method == "saga":
                for e in np.ndindex(i.shape):  # equal samples see each other
                    reference[i[e]], theta[e] = theta[e], theta[e] - reference[i[e]]
            messages[a, u % ring] = theta
            done[a] += 1
        a, p = np.nonzero(apply >= 0)
        if len(a):
            u = done[a] - 1 - apply[a, p]
            moved = np.zeros_like(w)
            np.add.at(moved, p, np.einsum("eb,ebd->ed", messages[a, u % ring], x[rows[a, u], p[:, None]]))
            w -= lr * (np.bincount(p, minlength=q)[:, None].astype(w.dtype) * (l2 * w + mean) + moved / b)
            if method == "saga":
                mean += moved / n
    return w


def python_loop(table, rows, x, y, *, method, lr, l2, w0):
    """Replay event by event in float64, with plain numbers and lists; x [n][q][d]. Returns w [q][d]."""
    n, q, d = np.shape(x)
    (m, _, b), x, w = rows.shape, np.asarray(x, float).tolist(), np.asarray(w0, float).tolist()

    def theta(i, z):
        return -float(y[i]) / (1 + math.exp(float(y[i]) * z))

    def product(i, part, w):
        return sum(x[i][part][j] * w[part][j] for j in range(d))

    def full(w):
        values = [theta(i, sum(product(i, part, w) for part in range(q))) for i in range(n)]
        mean = [[sum(values[i] * x[i][part][j] for i in range(n)) / n for j in range(d)] for part in range(q)]
        return (values, mean) if method != "sgd" else ([0.0] * n, [[0.0] * d for _ in range(q)])

    reference, mean = full(w)
    products, messages, done = {}, {}, [0] * m
    for t in range(len(table.read)):
        if table.snapshot[t] and method == "svrg":
            reference, mean = full(w)
        for a, part in np.argwhere(table.read[t] >= 0).tolist():
            u = done[a] + int(table.read[t, a, part])
            products[a, u, part] = [product(i, part, w) for i in rows[a, u]]
        for a in np.flatnonzero(table.complete[t]).tolist():
            messages[a, done[a]] = []
            for k, i in enumerate(rows[a, done[a]]):
                value = theta(i, sum(products[a, done[a], part][k] for part in range(q)))
                messages[a, done[a]].append(value - reference[i])
                reference[i] = value if method == "saga" else reference[i]
            done[a] += 1
        for part in range(q):
            due = [(a, done[a] - 1 - int(table.apply[t, a, part])) for a in range(m) if table.apply[t, a, part] >= 0]
            for j in range(d):
                pulls = [sum(v * x[i][part][j] for v, i in zip(messages[e], rows[e], strict=True)) for e in due]
                w[part][j] -= lr * (sum(pulls) / b + len(due) * (l2 * w[part][j] + mean[part][j]))
                mean[part][j] += sum(pulls) / n if method == "saga" else 0
    return w
