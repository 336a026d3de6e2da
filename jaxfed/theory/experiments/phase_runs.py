"""The federations of the experiment `phase`, and the compiled function that plays algorithms on them.

`jf.sweep` would do the same; without its records, loads and meshes the program compiles in a quarter of the time.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxfed as jf
from jaxfed.axes import stacked
from jaxfed.datasets import synthetic
from jaxfed.horizontal.federation import FedData
from jaxfed.models import mean
from jaxfed.nodes import jit
from jaxfed.theory import discrepancy

LANES = 64  # federations times algorithms computed at once


def gaussians(size: Any, seed: int, federation: Callable) -> tuple[list[FedData], np.ndarray]:
    """Return the federations [replicate, skew, rows], flat, over common pools, and ||Dbar - D_i||_1 [skew].

    Within a replicate all skews share the class means and the random numbers, and fewer rows are the first of many.
    """
    n, most = size.clients, max(size.rows)
    laws = [synthetic.skewed_labels(n, n, skew) for skew in size.skews]
    total = most + size.test_rows
    options = dict(separation=2.0, sizes=total, test_fraction=size.test_rows / total)
    drawn = [federation(probs, size.features, seed=k, **options) for k in numbers(size, seed) for probs in laws]
    x, y, x_test, y_test = (
        np.concatenate([client[i] for one in drawn for client in getattr(one, part)])
        for part in ("train", "test")
        for i in (0, 1)
    )
    data = []
    for first in np.arange(len(drawn) * n).reshape(len(drawn), n, 1):
        test = jf.ClientData.from_table(x_test, y_test, first * size.test_rows + np.arange(size.test_rows))
        for m in size.rows:
            data.append(FedData(jf.ClientData.from_table(x, y, first * most + np.arange(m)), test))
    return data, distances(laws)


def digits(size: Any, seed: int, partition: Callable) -> tuple[list[FedData], np.ndarray]:
    """Return scikit-learn's digits split [replicate, classes], flat, and ||Dbar - D_i||_1 [classes].

    The distance is that of the training labels, exact because the split of a class among its clients is random; the
    mean over clients and replicates.
    """
    examples, n, data = jf.datasets.load("digits"), size.digit_clients, []
    for number in numbers(size, seed):
        for k in size.classes:
            train, test = jf.horizontal.split(examples, partition(k), num_clients=n, seed=number)
            data.append(FedData(train, test))
    counts = np.array([[np.bincount(one.train.client(i)[1], minlength=10) for i in range(n)] for one in data])
    found = distances(counts / counts.sum(axis=2, keepdims=True))
    return data, found.reshape(size.replicates, len(size.classes)).mean(axis=0)


def distances(laws: Any) -> np.ndarray:
    """Return the mean over clients of ||Dbar - D_i||_1 [F] from laws of labels [F, client, class]."""
    return np.asarray(jax.jit(jax.vmap(discrepancy.label_skew))(np.asarray(laws)), float).mean(axis=1)


def numbers(size: Any, seed: int) -> list[int]:
    """Return a seed for each replicate."""
    return np.random.SeedSequence(seed).generate_state(size.replicates).tolist()


def play(algorithms: Sequence[Any], data: Sequence[FedData], size: Any, seed: int) -> np.ndarray:
    """Return (loss, accuracy) [2, replicate, federation of it, algorithm] of the clients' models after the last round.

    The algorithms are of one class with equal static fields; the data are in order of replicates, over common pools.
    Means over the clients that have test rows. Within a replicate all see the same random numbers.
    """
    alike = data[0].alike(list(data))
    each = len(data) // size.replicates
    seeds = np.repeat(np.array(numbers(size, seed), np.uint32), each)
    points = jax.tree.map(lambda x: x.astype(jnp.result_type(float)), stacked(algorithms))
    most = max(LANES // len(algorithms), 1)
    batch = max(b for b in range(1, most + 1) if len(data) % b == 0)  # a remainder would compile a second body
    tables = stacked([d.tables() for d in alike])
    found = _play(batch, points, alike[0], tables, seeds, np.int32(size.num_rounds))
    return np.asarray(found, float).reshape(2, size.replicates, each, len(algorithms))


def _play_all(batch: int, points: Any, shared: FedData, tables: Any, seeds: Any, num_rounds: Any) -> Any:
    scheduler = shared.default_scheduler()

    def lane(algorithm, seed, data):
        key = jax.random.key(seed)
        carry = jf.core.init(key, algorithm, data)
        state = jf.core.advance(key, algorithm, scheduler, data, carry, num_rounds)[0].state

        def one(i, params):
            view = data.test.view(i)
            (x, y), weight = view.take(view.rows), view.mask().astype(jnp.result_type(float))
            z = algorithm.model.outputs(params, x)
            right = algorithm.model.correct(z, y).astype(weight.dtype)
            return mean(algorithm.model.losses(z, y), weight), mean(right, weight)

        values = jax.vmap(one)(jnp.arange(data.test.rows.shape[0]), algorithm.client_params(state, data))
        return jnp.stack([mean(v, (data.test.size > 0).astype(v.dtype)) for v in values])

    def federation(table, seed):
        return jax.vmap(lambda algorithm: lane(algorithm, seed, shared.with_tables(table)))(points)

    found = jax.lax.map(lambda both: federation(*both), (tables, seeds), batch_size=batch)
    return jnp.moveaxis(found, -1, 0)


_play = jit(_play_all, static_argnums=(0,))
