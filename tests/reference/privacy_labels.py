"""VFB2-SGD and -SVRG with stale reads and late messages, and all that every party gets to see: views for label attacks.

One dominated update a tick. Update u of dominator active[u % m] reads party l's block as it was 0 to `stale` updates
before; party l applies it 0 to `stale` updates later, with the regulariser of the block as it then is.
"""

import numpy as np

from tests.reference.vertical_losses import slope


def gaussian(n, sizes, weights, shift=0.0, noise=0.0, seed=0):
    """(blocks of standard normal features, labels sign(x . weights + shift + noise e))."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, sum(sizes)))
    y = np.where(x @ weights + shift + noise * rng.normal(size=n) > 0, 1.0, -1.0)
    return np.split(x, np.cumsum(sizes)[:-1], axis=1), y


def simulate(
    blocks,
    y,
    updates,
    *,
    active=(0,),
    loss="logistic",
    lr=0.1,
    l2=1e-4,
    b=1,
    stale=0,
    svrg=0,
    noise=0.0,
    factors=None,
    dtype=np.float64,
    seed=1,
):
    """A dict of what happened, all arrays by update: dominator [N], rows, theta, scores [N, b], products [N, b, q],
    gradients (a list of q arrays [N, d_l]), passes (tuples of tick, theta [n], scores [n]), weights (q blocks).

    svrg: updates between two reference points (0: plain SGD). noise: the standard deviation of what is added to every
    theta that is sent. factors: of each party's own steps.
    """
    rng = np.random.default_rng(seed)
    x, y, q, n = [block.astype(dtype) for block in blocks], np.asarray(y, dtype), len(blocks), len(y)
    past = [[np.zeros(block.shape[1], dtype)] for block in x]  # of each party's block, the newest last
    factors = np.ones(q) if factors is None else factors
    waiting = [[] for _ in x]  # (when, rows, value)
    rows, theta, scores, products, passes, gradients = [], [], [], [], [], [[] for _ in x]
    mean, reference = [np.zeros(block.shape[1], dtype) for block in x], np.zeros(n, dtype)

    def apply(party, batch, value):
        w = past[party][-1]
        step = value @ x[party][batch] / b + mean[party] + l2 * w
        past[party] = [*past[party][-stale - 1 :], (w - lr * factors[party] * step).astype(dtype)]

    for u in range(updates):
        if svrg and u % svrg == 0:
            for party in range(q):
                for _, batch, value in waiting[party]:
                    apply(party, batch, value)
            waiting = [[] for _ in x]
            past = [[blocks_then[-1]] for blocks_then in past]
            z = sum(x[party] @ past[party][-1] for party in range(q))
            reference = slope(loss, z, y).astype(dtype)
            mean = [block.T @ reference / n for block in x]
            passes.append((u, reference, z))
        batch = rng.integers(0, n, b)
        ages = rng.integers(0, stale + 1, (2, q))
        read = [past[party][max(0, len(past[party]) - 1 - ages[0, party])] for party in range(q)]
        products.append(np.stack([x[party][batch] @ read[party] for party in range(q)], 1))
        scores.append(products[-1].sum(1))
        sent = slope(loss, scores[-1], y[batch]) + noise * rng.normal(size=b)
        rows.append(batch)
        theta.append(sent.astype(dtype))
        for party in range(q):
            gradients[party].append(theta[-1] @ x[party][batch] / b)
            value = theta[-1] - reference[batch] if svrg else theta[-1]
            waiting[party].append((u + ages[1, party], batch, value))
            due = [message for message in waiting[party] if message[0] <= u]
            waiting[party] = [message for message in waiting[party] if message[0] > u]
            for _, late_batch, value in due:
                apply(party, late_batch, value)
    return {
        "dominator": np.array(active)[np.arange(updates) % len(active)],
        "rows": np.array(rows),
        "theta": np.array(theta),
        "scores": np.array(scores),
        "products": np.array(products),
        "gradients": [np.array(g) for g in gradients],
        "passes": passes,
        "weights": [blocks_then[-1] for blocks_then in past],
    }
