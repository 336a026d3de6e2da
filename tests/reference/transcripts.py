"""Who saw what in a vertical run: a table of ticks played event by event, everything sent written down.

The table is that of `tests.reference.vertical`, and so is the order within a tick. A defence is a function
release(theta, dominator, update, rows) -> theta [b] of what a dominator (a party number) computed for its update of
that number. What is released is what everybody uses from then on: the dominator itself, SVRG's reference thetas, SAGA's
table. Full passes are released too, all n rows at once, with dominator None and the number of the pass, from 0.
"""

from typing import NamedTuple

import numpy as np

from tests.reference.secure import fixed_sum, float_sum
from tests.reference.vertical_methods import METHODS, Data


class Update(NamedTuple):
    tick: int  # in which it was completed
    dominator: int  # a party number
    update: int  # the dominator's own number
    rows: np.ndarray  # [b]
    products: np.ndarray  # [b, q]; as they were read
    z: np.ndarray  # [b]; their sums
    theta: np.ndarray  # [b]; what was sent to all
    applied: list  # [q]; the tick in which each party applied it, -1: in none


class Pass(NamedTuple):
    tick: int  # before which it happened
    theta: np.ndarray  # [n]; what was sent to all
    scores: np.ndarray  # [n]


class Transcript(NamedTuple):
    updates: list  # in the order of completion, within a tick of the dominators
    passes: list
    weights: list  # after every tick, q blocks


class Watched(Data):
    """The data of all parties, where every full pass is released and written down."""

    def __init__(self, *problem, release):
        super().__init__(*problem)
        self.release, self.passes, self.tick = release, [], 0

    def all_thetas(self, w):
        rows = np.arange(self.n)
        scores = sum(x @ w_l for x, w_l in zip(self.x, w, strict=True))
        theta = self.release(self.theta(scores, rows), None, len(self.passes), rows)
        self.passes.append(Pass(self.tick, theta, scores))
        return theta.copy()  # SAGA writes in its table


def transcript(
    table, x_blocks, y, rows, method, loss, regularizer, lr, l2, batch_size=1, active=(0,), w0=None, release=None
):
    """The Transcript of a run: arguments as `tests.reference.vertical.replay` has them, method "sgd", "svrg", "saga".

    active: the party number of each dominator. An SVRG table must begin with a snapshot. Raises KeyError where a table
    asks for a product or a message that isn't there.
    """
    if method not in ("sgd", "svrg", "saga"):
        raise ValueError(f"method: got {method!r}, wanted 'sgd', 'svrg' or 'saga'")
    if method == "svrg" and not table.snapshot[0]:
        raise ValueError("snapshot: got none before tick 0, wanted one: SVRG's first pass")
    read, apply = np.asarray(table.read), np.asarray(table.apply)
    num_ticks, m, q = read.shape
    if release is None:
        release = lambda theta, dominator, update, rows: theta  # noqa: E731
    problem = (x_blocks, y, loss, regularizer, l2)
    data = Watched(*problem, release=release)
    w = [np.zeros(x.shape[1]) for x in data.x] if w0 is None else [np.array(w_l, float) for w_l in w0]
    if method == "svrg":  # the reference point before the first snapshot is nobody's: no pass
        memory = METHODS[method](Data(*problem), w)
        memory.data = data
    else:
        memory = METHODS[method](data, w)

    asked, sent, updates, weights, completed = {}, {}, [], [], [0] * m
    for t in range(num_ticks):
        data.tick = t
        if table.snapshot[t]:
            memory.snapshot(w)
        for a, party in np.argwhere(read[t] >= 0).tolist():
            u = completed[a] + int(read[t, a, party])
            asked[a, u, party] = data.x[party][rows(a, u)] @ w[party]
        for a in np.flatnonzero(table.complete[t]).tolist():
            u = completed[a]
            batch, products = np.asarray(rows(a, u)), [asked.pop((a, u, party)) for party in range(q)]
            if batch.shape != (batch_size,):
                raise ValueError(f"rows({a}, {u}): got shape {batch.shape}, wanted ({batch_size},)")
            z = sum(products)
            theta = release(data.theta(z, batch), active[a], u, batch)
            sent[a, u] = (batch, theta, memory.message(batch, theta)), [-1] * q
            updates.append(Update(t, active[a], u, batch, np.stack(products, axis=1), z, theta, sent[a, u][1]))
            completed[a] += 1
        moved = []
        for party in range(q):
            due = []
            for a in np.flatnonzero(apply[t, :, party] >= 0).tolist():
                message, applied = sent[a, completed[a] - 1 - int(apply[t, a, party])]
                due.append(message)
                applied[party] = t
            moved.append(w[party] - lr * memory.step(party, w[party], due) if due else w[party])
        w = moved
        weights.append([w_l.copy() for w_l in w])
    return Transcript(updates, data.passes, weights)


def window(transcript, start, stop):
    """What was sent in ticks start to stop - 1: updates completed in them, and where in them they were applied."""
    inside = lambda tick: start <= tick < stop  # noqa: E731
    updates = [
        update._replace(applied=[tick if inside(tick) else -1 for tick in update.applied])
        for update in transcript.updates
        if inside(update.tick)
    ]
    passes = [each for each in transcript.passes if inside(each.tick)]
    return Transcript(updates, passes, transcript.weights[start:stop])


def tree_messages(transcript, pairs, masks, dtype=np.float64, bits=None, fraction_bits=None):
    """What went over the edges: {(dominator, tree 1 or 2, sender, receiver, leaves): (updates [N_a], values [N_a, b])}.

    pairs: {dominator: (T1, T2)}. masks [N, b, q]: floats, or with `bits` ints from 0 to 2^bits - 1. updates: places in
    the transcript's list. values: of `dtype`, or ints.
    """
    found = {}
    for place, update in enumerate(transcript.updates):
        for products, mask in zip(update.products, masks[place], strict=True):
            pair = pairs[update.dominator]
            if bits is None:
                done = float_sum(pair, products, mask, dtype)
            else:
                done = fixed_sum(pair, products, mask, bits, fraction_bits)
            for tree, messages in ((1, done.masked), (2, done.masks)):
                for sender, receiver, leaves, value in messages:
                    edge = found.setdefault((update.dominator, tree, sender, receiver, leaves), {})
                    edge.setdefault(place, []).append(value)
    kind = dtype if bits is None else object
    return {
        edge: (np.array(list(values)), np.array(list(values.values()), dtype=kind)) for edge, values in found.items()
    }
