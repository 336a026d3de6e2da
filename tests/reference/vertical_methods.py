"""How a message turns into a block's step: VFB2-SGD, -SVRG and -SAGA (Zhang et al. 2021, Algorithms 2 to 7).

Each class holds what its method remembers and has three methods:
  snapshot(w)              everything is applied, w (list of blocks) is the new reference point
  message(rows, theta)     what the dominator sends for one dominated update, [b]; called once, at completion
  step(party, w, due)      the sum of the estimates v of all due messages, a list of (rows, theta, message) in dominator
                           order, from the party's block w; called once a tick at most, only where something is due
`Data` is what all parties together hold. Features are blocks x_l [n, d_l].
"""

import numpy as np

from tests.reference.vertical_losses import pull, slope


class Data:
    def __init__(self, x_blocks, y, loss, regularizer, l2):
        self.x = [np.asarray(x, float) for x in x_blocks]
        self.y = np.asarray(y, float)
        self.n = len(self.y)
        self.loss, self.regularizer, self.l2 = loss, regularizer, l2

    def theta(self, z, rows):
        return slope(self.loss, z, self.y[rows])

    def all_thetas(self, w):
        rows = np.arange(self.n)
        return self.theta(sum(x @ w_l for x, w_l in zip(self.x, w, strict=True)), rows)

    def penalty(self, w_l):
        return self.l2 * pull(self.regularizer, w_l)


class Sgd:
    """v = (1/b) sum theta x + l2 g'(w)."""

    def __init__(self, data, w):
        self.data = data

    def snapshot(self, w):
        pass

    def message(self, rows, theta):
        return theta

    def step(self, party, w, due):
        x, v = self.data.x[party], np.zeros_like(w)
        for rows, _, message in due:
            v += x[rows].T @ message / len(rows) + self.data.penalty(w)
        return v


class Svrg:
    """v = (1/b) sum (theta - theta_ref) x + G + l2 g'(w), with G = (1/n) sum_j theta_ref_j x_j.

    The reference point is w0 until the first snapshot. `wrong_sign` adds the regulariser of the reference point twice,
    as the printed formula does once its brackets are lost: + l2 g'(w_ref) for the sample, and the one inside the full
    gradient that the right sign cancels. Its fixed point is the optimum for 3 l2.
    """

    def __init__(self, data, w, wrong_sign=False):
        self.data, self.wrong_sign = data, wrong_sign
        self.snapshot(w)

    def snapshot(self, w):
        self.theta_ref = self.data.all_thetas(w)
        self.full = [x.T @ self.theta_ref / self.data.n for x in self.data.x]
        self.penalty_ref = [self.data.penalty(w_l) for w_l in w]

    def message(self, rows, theta):
        return theta - self.theta_ref[rows]

    def step(self, party, w, due):
        x, v = self.data.x[party], np.zeros_like(w)
        for rows, _, message in due:
            v += x[rows].T @ message / len(rows) + self.full[party] + self.data.penalty(w)
            if self.wrong_sign:
                v += 2 * self.penalty_ref[party]
        return v


class Saga:
    """v = (1/b) sum (theta - last theta of the sample) x + A + l2 g'(w), one table of thetas, filled at w0.

    The table is written at completion, sample by sample, so a sample that comes twice sees itself. Every party keeps A,
    which starts as (1/n) sum_j theta_j x_j: all messages of a tick use the A of its start, and then add
    (1/n) sum message x to it. Once everything is applied A is the table's mean again.
    """

    def __init__(self, data, w):
        self.data = data
        self.table = data.all_thetas(w)
        self.mean = [x.T @ self.table / data.n for x in data.x]

    def snapshot(self, w):
        pass

    def message(self, rows, theta):
        message = np.zeros(len(rows))
        for place, row in enumerate(rows):
            message[place] = theta[place] - self.table[row]
            self.table[row] = theta[place]
        return message

    def step(self, party, w, due):
        x, v = self.data.x[party], np.zeros_like(w)
        mean = self.mean[party].copy()
        for rows, _, message in due:
            total = x[rows].T @ message
            v += total / len(rows) + self.mean[party] + self.data.penalty(w)
            mean += total / self.data.n
        self.mean[party] = mean
        return v


class SagaLiteral:
    """v = (1/b) sum (h_i - memory_i) + mean of memory, with h_i = theta x_i + l2 g'(w): Algorithms 6 and 7 as printed.

    Every party keeps one gradient vector per sample, of its own block and with the regulariser in it, filled at w0 and
    written when a message is applied. Messages of one tick take turns in dominator order: each uses the memory and the
    mean that the one before left. Inside a message samples take turns at the memory, so that one that comes twice sees
    itself (as in `Saga`); the mean is the one at the message's turn.
    """

    def __init__(self, data, w):
        self.data = data
        theta = data.all_thetas(w)
        self.memory = [theta[:, None] * x + data.penalty(w_l) for x, w_l in zip(data.x, w, strict=True)]
        self.mean = [memory.mean(axis=0) for memory in self.memory]

    def snapshot(self, w):
        pass

    def message(self, rows, theta):
        return theta

    def step(self, party, w, due):
        x, memory, v = self.data.x[party], self.memory[party], np.zeros_like(w)
        for rows, theta, _ in due:
            total = np.zeros_like(w)
            for place, row in enumerate(rows):
                new = theta[place] * x[row] + self.data.penalty(w)
                total += new - memory[row]
                memory[row] = new
            v += total / len(rows) + self.mean[party]
            self.mean[party] = self.mean[party] + total / self.data.n
        return v


METHODS = {"sgd": Sgd, "svrg": Svrg, "saga": Saga, "saga_literal": SagaLiteral}
