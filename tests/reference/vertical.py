"""VFB2 event by event (Zhang et al. 2021, Algorithms 2 to 7), and the centralised methods that it must equal.

A table of T ticks has read [T, m, q], complete [T, m], apply [T, m, q] and snapshot [T], for q parties and m
dominators. In a tick, in this order: the reference point is taken where snapshot says so; party l with read[a, l] = r
>= 0 evaluates its partial product for update number completed[a] + r of dominator a (completed as before the tick);
dominator a with complete[a] sums the q products of update number completed[a], forms theta and sends it; party l with
apply[a, l] = k >= 0 applies update number completed[a] - 1 - k (completed as after the tick). Products and steps are
evaluated with the blocks as at the tick's start, and a party's steps of one tick are summed.
"""

import numpy as np

from tests.reference.vertical_losses import gradient, pull, slope
from tests.reference.vertical_methods import METHODS, Data


def replay(
    table,
    x_blocks,
    y,
    rows,
    method,
    loss,
    regularizer,
    lr,
    l2,
    batch_size=1,
    w0=None,
    apply_parties=None,
    wrong_sign=False,
):
    """The weights after every tick: a list of T lists of q blocks [d_l].

    x_blocks: q arrays [n, d_l]; y [n]; rows(a, u) gives the sample numbers [b] of update u of dominator a, the same
    whenever asked. method: "sgd", "svrg", "saga", "saga_literal" (see vertical_methods). w0: q blocks, zero by default.
    apply_parties: the parties that move at all (all by default); in AFSVRG-VP, those with labels. wrong_sign: svrg with
    the lost brackets. Raises KeyError where a table asks for a product or a message that isn't there.
    """
    table_read, table_apply = np.asarray(table.read), np.asarray(table.apply)
    num_ticks, m, q = table_read.shape
    moves = set(range(q)) if apply_parties is None else set(apply_parties)
    data = Data(x_blocks, y, loss, regularizer, l2)
    w = [np.zeros(x.shape[1]) for x in data.x] if w0 is None else [np.array(w_l, float) for w_l in w0]
    if wrong_sign and method != "svrg":
        raise ValueError(f"wrong_sign: got method {method!r}, wanted 'svrg'")
    memory = METHODS[method](data, w, wrong_sign) if method == "svrg" else METHODS[method](data, w)

    samples, products, sent = {}, {}, {}
    completed = [0] * m
    history = []
    for t in range(num_ticks):
        if table.snapshot[t]:
            memory.snapshot(w)

        for a in range(m):
            for party in range(q):
                if table_read[t, a, party] >= 0:
                    u = completed[a] + int(table_read[t, a, party])
                    samples[a, u] = np.asarray(rows(a, u))
                    if samples[a, u].shape != (batch_size,):
                        raise ValueError(f"rows({a}, {u}): got shape {samples[a, u].shape}, wanted ({batch_size},)")
                    products[a, u, party] = data.x[party][samples[a, u]] @ w[party]

        for a in range(m):
            if table.complete[t][a]:
                u = completed[a]
                z = np.zeros(batch_size)
                for party in range(q):
                    z += products.pop((a, u, party))
                theta = data.theta(z, samples[a, u])
                sent[a, u] = (samples[a, u], theta, memory.message(samples[a, u], theta))
                completed[a] += 1

        for party in range(q):
            due = []
            for a in range(m):
                if table_apply[t, a, party] >= 0:
                    due.append(sent[a, completed[a] - 1 - int(table_apply[t, a, party])])
            if due and party in moves:
                w[party] = w[party] - lr * memory.step(party, w[party], due)

        history.append([w_l.copy() for w_l in w])
    return history


def centralised(x, y, rows, method, loss, regularizer, lr, l2, epoch_length=None, w0=None):
    """Plain minibatch SGD, SVRG or SAGA on joined features x [n, d]: the list of weights [d] after every step.

    rows: one array of sample numbers per step. lr: a number, or one per step. epoch_length: steps between SVRG's
    reference points, the first before step 0. method "saga" keeps the regulariser out of the table, "saga_literal" in
    it (the textbook's SAGA on f_i with its regulariser). Samples of a minibatch take turns at SAGA's table.
    """
    x, y, n = np.asarray(x, float), np.asarray(y, float), len(y)
    w = np.zeros(x.shape[1]) if w0 is None else np.array(w0, float)
    lr = np.broadcast_to(lr, len(rows))
    if (method == "svrg") != (epoch_length is not None):
        raise ValueError(f"epoch_length: got {epoch_length} for {method}, wanted it for svrg and for nothing else")

    def batch_gradient(w, batch):
        return gradient(w, x[batch], y[batch], loss, regularizer, l2)

    def sample_gradient(w, i):
        bare = slope(loss, x[i] @ w, y[i]) * x[i]
        return bare + l2 * pull(regularizer, w) if method == "saga_literal" else bare

    if method in ("saga", "saga_literal"):
        table = np.array([sample_gradient(w, i) for i in range(n)])
        mean = table.mean(axis=0)
    history = []
    for t, batch in enumerate(rows):
        if method == "sgd":
            v = batch_gradient(w, batch)
        elif method == "svrg":
            if t % epoch_length == 0:
                w_ref, full = w, gradient(w, x, y, loss, regularizer, l2)
            v = batch_gradient(w, batch) - batch_gradient(w_ref, batch) + full
        else:
            total = np.zeros_like(w)
            for i in batch:
                new = sample_gradient(w, i)
                total, table[i] = total + new - table[i], new
            v = total / len(batch) + mean
            mean = mean + total / n
            if method == "saga":
                v = v + l2 * pull(regularizer, w)
        w = w - lr[t] * v
        history.append(w)
    return history
