"""Tables with the shapes of the VFB2 paper's data sets, for when the real ones are not at hand and for timings."""

import numpy as np
import scipy.sparse

from jaxfed.checks import numbers, whole
from jaxfed.datasets.arrays import Arrays, check

POSITIVE, GROUP = 0.22, 9  # share of defaults; values a category takes


def credit_like(n: int = 24_000, d: int = 90, *, seed: int) -> Arrays:
    """A table like "credit": x float32 [n, d], y int32 [n], 22 % ones; no test rows.

    The first d // 6 columns are standard normal with correlation 0.3 among them, the others one-hot, 9 to a category
    with geometric frequencies. y is drawn from a logistic model whose scores have standard deviation about 1.5.
    """
    whole("n", n, 2)
    whole("d", d, 1)
    rng = np.random.default_rng(seed)
    normal = max(1, d // 6)
    x = np.zeros((n, d), np.float32)
    x[:, :normal] = np.sqrt(0.7) * rng.normal(size=(n, normal)) + np.sqrt(0.3) * rng.normal(size=(n, 1))
    for start in range(normal, d, GROUP):
        values = min(GROUP, d - start)
        probs = 0.5 ** np.arange(values)
        x[np.arange(n), start + rng.choice(values, n, p=probs / probs.sum())] = 1
    z = x @ rng.normal(size=d)
    y = _labels(rng, 1.5 * (z - z.mean()) / (z.std() or 1), POSITIVE)
    return check(Arrays(x, y, name="credit_like", num_classes=2))


def news20_like(
    n: int = 18_000, d: int = 1_350_000, nnz: int = 450, *, spread: float = 0.0, noise: float = 0.1, seed: int
) -> Arrays:
    """Texts like news20.binary: x scipy.sparse.csr_array float32 [n, d], nnz values a row, y int32 [n]; no test rows.

    Words are drawn with probabilities like 1 / (rank + 10), ranks dealt to columns at random. Values are
    (1 + log count) log(1 + n / rows with the word), rows of unit norm. The numbers of distinct words in a row have mean
    nnz and are lognormal, with standard deviation `spread` of the log (0: nearly equal; real texts vary more). y is 1
    where the score of a sparse linear model (one weight in ten) is above its median; a share `noise` of the labels is
    flipped.
    """
    for name, value in (("n", n), ("d", d), ("nnz", nnz)):
        whole(name, value, 2 if name == "n" else 1)
    if nnz > d / 2:
        raise ValueError(f"nnz: got {nnz}, wanted at most half of the {d} columns")
    numbers("spread", spread, 0, 2)
    numbers("noise", noise, 0, 0.5)
    rng = np.random.default_rng(seed)
    probs = 1 / (np.arange(d) + 10.0)
    probs /= probs.sum()
    wanted = nnz * np.exp(spread * rng.normal(size=n) - spread**2 / 2)
    draws = _draws(np.minimum(wanted, d / 2), probs)
    rows = np.repeat(np.arange(n), draws)
    ranks = np.searchsorted(np.cumsum(probs), rng.random(draws.sum()))
    keys, counts = np.unique(rows * d + np.minimum(ranks, d - 1), return_counts=True)
    rows, ranks = np.divmod(keys, d)
    values = (1 + np.log(counts)) * np.log1p(n / np.bincount(ranks, minlength=d)[ranks])
    values /= np.sqrt(np.bincount(rows, values**2, minlength=n))[rows]
    columns = rng.permutation(d)[ranks]
    at = (rows.astype(np.int32), columns.astype(np.int32))
    x = scipy.sparse.coo_array((values.astype(np.float32), at), shape=(n, d)).tocsr()
    x.sort_indices()
    z = x @ (rng.normal(size=d) * (rng.random(d) < 0.1))
    y = (z > np.median(z)) ^ (rng.random(n) < noise)
    return check(Arrays(x, y.astype(np.int32), name="news20_like", num_classes=2))


def _draws(wanted: np.ndarray, probs: np.ndarray) -> np.ndarray:
    """Numbers of draws, int64 [n], that give on average the `wanted` [n] numbers of distinct values."""
    draws = np.geomspace(1, 64 * wanted.max(), 24)
    distinct = [-np.expm1(k * np.log1p(-probs)).sum() for k in draws]
    return np.maximum(1, np.round(np.interp(wanted, distinct, draws))).astype(np.int64)


def _labels(rng: np.random.Generator, z: np.ndarray, positive: float) -> np.ndarray:
    """Labels int32 [n] with P(y = 1) = sigmoid(z + c), c such that the mean of these is `positive`."""
    low, high = -50.0, 50.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _sigmoid(z + middle).mean() < positive else (low, middle)
    return (rng.random(len(z)) < _sigmoid(z + low)).astype(np.int32)


def _sigmoid(z: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-z))
