"""A small classification problem in three blocks, for trying the vertical oracles."""

import numpy as np

from tests.reference.vertical_losses import optimum

SIZES = (3, 1, 2)  # features of each of q = 3 parties


def problem(seed=0, n=60):
    """n rows in three blocks, noisy classes in -1 and +1."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, sum(SIZES)))
    y = np.where(x @ rng.normal(size=sum(SIZES)) + rng.normal(size=n) > 0, 1.0, -1.0)
    return np.split(x, np.cumsum(SIZES)[:-1], axis=1), y


def sampler(n, batch_size, seed=7):
    """rows(a, u), drawn with replacement, the same whenever asked."""
    return lambda a, u: np.random.default_rng((seed, a, u)).integers(0, n, batch_size)


def best(loss="logistic", regularizer="l2", l2=0.1):
    blocks, y = problem()
    return optimum(np.hstack(blocks), y, loss, regularizer, l2)
