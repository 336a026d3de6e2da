"""Synthetic(a, b) for very many clients: one pool in float32, made block by block with nothing beside it.

The law is that of `synthetic.fedprox`, with as many rows for every client; the draws are others. Client i's rows are
the same whatever the number of clients.
"""

from typing import NamedTuple

import numpy as np

BLOCK = 1024  # clients that are drawn together, each block from a random stream of its own


class ManyClients(NamedTuple):
    """x float32 [C * n, feature], y int32 [C * n], rows int32 [C, n]: `ClientData.from_table(*many)` takes them."""

    x: np.ndarray
    y: np.ndarray
    rows: np.ndarray


class Rules(NamedTuple):
    """A block's labelling rules y = argmax(weights_i x + biases_i): float32 [BLOCK, class, feature], [BLOCK, class]."""

    weights: np.ndarray
    biases: np.ndarray


def fedprox_many(
    a: float,
    b: float,
    num_clients: int,
    rows_per_client: int = 20,
    *,
    num_features: int = 60,
    num_classes: int = 10,
    seed: int,
) -> ManyClients:
    """Return Synthetic(a, b) (Li et al. 2020, section 5.1) with equal sizes: a million clients of 20 rows are 4.9 GB.

    The labelling rules (two and a half times the bytes of one client's rows) are not kept; `fill` gives a block's.
    Raises ValueError for negative variances and for numbers below 1.
    """
    for name, value in (("a", a), ("b", b)):
        if not (np.isfinite(value) and value >= 0):
            raise ValueError(f"{name}: got {value}, wanted a finite number >= 0")
    counts = {"num_clients": num_clients, "rows_per_client": rows_per_client, "num_features": num_features}
    for name, value in (counts | {"num_classes": num_classes}).items():
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
            raise ValueError(f"{name}: got {value!r}, wanted an integer >= 1")
    rows = num_clients * rows_per_client
    if rows >= 2**31:
        raise ValueError(f"num_clients * rows_per_client: got {rows}, wanted less than 2^31, row numbers of 32 bits")
    x = np.empty((num_clients, rows_per_client, num_features), np.float32)
    y = np.empty((num_clients, rows_per_client), np.int32)
    for block in range(-(-num_clients // BLOCK)):
        here = slice(block * BLOCK, (block + 1) * BLOCK)
        fill(x[here], y[here], a, b, num_classes, seed, block)
    table = np.arange(rows, dtype=np.int32).reshape(num_clients, rows_per_client)
    return ManyClients(x.reshape(rows, num_features), y.reshape(rows), table)


def fill(x: np.ndarray, y: np.ndarray, a: float, b: float, num_classes: int, seed: int, block: int) -> Rules:
    """Write block number `block`'s rows x [clients, n, feature] and labels y [clients, n]; return its clients' rules.

    The rules are drawn for all `BLOCK` clients, also where the last block has fewer, and each client's rows after one
    another: so no client depends on how many there are.
    """
    rng = np.random.default_rng([seed, block])
    count, _, num_features = x.shape

    def normal(*shape):
        return rng.standard_normal(shape, np.float32)

    u = np.float32(np.sqrt(a)) * normal(BLOCK)
    rules = Rules(normal(BLOCK, num_classes, num_features), normal(BLOCK, num_classes))
    rules.weights[...] += u[:, None, None]
    rules.biases[...] += u[:, None]
    centers = normal(BLOCK, num_features) + np.float32(np.sqrt(b)) * normal(BLOCK)[:, None]
    rng.standard_normal(out=x, dtype=np.float32)
    x *= (np.arange(1, num_features + 1) ** -0.6).astype(np.float32)  # standard deviations
    x += centers[:count, None]
    scores = x @ rules.weights[:count].transpose(0, 2, 1)
    scores += rules.biases[:count, None]
    y[...] = scores.argmax(axis=2)
    return rules
