"""A run of VFB2 with a random schedule, message by message (Zhang et al. 2021, Algorithms 2 to 7), and what it knew.

In a tick all parties read, then dominators complete, then all parties apply, from their blocks as they were when the
tick began. Of each epoch every dominator completes one update a tick. delay 0 is the synchronous run (see `lags`). SVRG
begins each epoch at a reference point, everything applied.
"""

from collections import namedtuple

import numpy as np

Run = namedtuple("Run", "x y w tick dominator update rows theta scores products read applied passes lr l2")


def slope(loss, z, y):
    """dL/dz."""
    return -y / (1 + np.exp(y * z)) if loss == "logistic" else z - y


def lags(size, m, q, delay, rng):
    """Ticks from reads to completions and from these to applies, each [size, q], 0 to 2 delay, in any order.

    Of delay + 1 successive updates of a dominator, those read last are read when the first is completed, the others one
    a tick before; and the first to be applied is when the last is completed. So no party does two in one tick.
    """
    read, applied = np.zeros((2, size, q), int)
    own = np.arange(size) // m
    for first in range(0, own[-1] + 1, delay + 1):
        for a in range(m):
            group = np.flatnonzero((own >= first) & (own <= first + delay) & (np.arange(size) % m == a))
            for p in range(q):
                for lag in (read, applied):
                    lag[group, p] = rng.permutation(delay + 1)[: len(group)]
                read[group, p] += own[group] - first
                applied[group, p] += delay - (own[group] - first)
    return read, applied


def simulate(x, y, active, epochs, rng, *, method="sgd", loss="logistic", lr=0.5, l2=0.0, batch_size=1, delay=0,
             dtype=np.float64, release=None, start=None):  # fmt: skip
    """Play `epochs`, a list of numbers of updates. x: q blocks [n, d_p]; active: m parties; release(theta, rng): what
    is sent instead. Returns a Run: products [N, b, q] as read, read and applied int [N, q], passes (tick, theta [n],
    scores [n], products [q, n]); all floats of `dtype`, in which everything is computed."""
    x = [np.asarray(block, dtype) for block in x]
    y, lr, l2, n, q, m = np.asarray(y, dtype), dtype(lr), dtype(l2), len(y), len(x), len(active)
    release = release or (lambda theta, rng: theta)
    w = [np.zeros(block.shape[1], dtype) for block in x] if start is None else [np.array(s, dtype) for s in start]
    log, passes, begin, ref, mean, table = [], [], 0, None, None, None
    for size in epochs:
        if method == "svrg" or (method == "saga" and table is None):
            products = np.stack([block @ part for block, part in zip(x, w, strict=True)])
            theta = release(slope(loss, products.sum(0), y), rng).astype(dtype)
            passes.append((begin, theta, products.sum(0), products))
            ref, table = theta, theta.copy()
            mean = [block.T @ theta / dtype(n) for block in x]
        u = np.arange(size)
        tick = begin + delay + u // m
        read, applied = lags(size, m, q, delay, rng)
        read, applied = tick[:, None] - read, tick[:, None] + applied
        rows = rng.integers(0, n, (size, batch_size))
        made = np.zeros((size, batch_size, q), dtype)
        theta, scores, sent = (np.zeros((size, batch_size), dtype) for _ in range(3))
        end = int(applied.max()) + 1
        for t in range(begin, end):
            old, moves = [part.copy() for part in w], [0 * mean_p for mean_p in mean] if mean else None
            for k, p in np.argwhere(read == t):
                made[k, :, p] = x[p][rows[k]] @ old[p]
            for k in np.flatnonzero(tick == t):
                scores[k] = made[k].sum(1)
                theta[k] = release(slope(loss, scores[k], y[rows[k]]), rng)
                for place, row in enumerate(rows[k]):
                    known = {"sgd": dtype(0), "svrg": ref, "saga": table}[method]
                    sent[k, place] = theta[k, place] - (known if method == "sgd" else known[row])
                    if method == "saga":
                        table[row] = theta[k, place]
            for k, p in np.argwhere(applied == t):
                pull = x[p][rows[k]].T @ sent[k]
                w[p] = w[p] - lr * (pull / dtype(batch_size) + l2 * old[p] + (mean[p] if mean else dtype(0)))
                if method == "saga":
                    moves[p] = moves[p] + pull / dtype(n)
            if method == "saga":
                mean = [a + b for a, b in zip(mean, moves, strict=True)]
        log.append((tick, u, rows, theta, scores, made, read, applied))
        begin = end
    tick, u, rows, theta, scores, made, read, applied = (np.concatenate(part) for part in zip(*log, strict=True))
    dominator, number = np.asarray(active)[u % m], np.zeros(len(u), int)
    for a in active:
        number[dominator == a] = np.arange((dominator == a).sum())
    return Run(x, y, w, tick, dominator, number, rows, theta, scores, made, read, applied, passes, lr, l2)
