"""Small random federations, and what a test needs to compare dicts of arrays."""

import numpy as np

from tests.reference import trees

SOFTMAX_SHAPES = {"kernel": (3, 4), "bias": (3,)}
MLP_SHAPES = {"kernel0": (5, 4), "bias0": (5,), "kernel1": (3, 5), "bias1": (3,)}


def draw(rng, shapes):
    return {k: rng.normal(size=shape) for k, shape in shapes.items()}


def federation(seed=0, sizes=(5, 9, 7, 0), steps=(3, 4, 2, 3)):
    """Ragged classification clients, the last one empty, and their minibatches."""
    rng = np.random.default_rng(seed)
    clients = [(rng.normal(size=(n, 4)), rng.integers(0, 3, n)) for n in sizes]
    batches = {i: [rng.integers(0, n, 4) for _ in range(steps[i])] for i, n in enumerate(sizes) if n > 0}
    return rng, clients, batches


def scalar(w):
    return {"w": np.array([w], float)}


def numerical_grad(f, params, h=1e-6):
    out = trees.zeros_like(params)
    for k in params:
        for index in np.ndindex(params[k].shape):
            up, down = trees.copy(params), trees.copy(params)
            up[k][index] += h
            down[k][index] -= h
            out[k][index] = (f(up) - f(down)) / (2 * h)
    return out


def assert_close(a, b, atol=1e-12):
    assert a.keys() == b.keys()
    for k in a:
        np.testing.assert_allclose(a[k], b[k], rtol=0, atol=atol)


def assert_equal(a, b):
    assert_close(a, b, atol=0)
