"""What lets a test play the same federation in jaxfed and in the NumPy oracles of `tests.reference`."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jaxfed as jf
from jaxfed.horizontal import local
from tests.reference import models as reference
from tests.reference.problems import MLP_SHAPES, SOFTMAX_SHAPES, draw

SIZES = (5, 9, 7, 1)
FEATURES, CLASSES, HIDDEN = 4, 3, 5
COHORTS = ((0, 1, 2, 3), (1, 3), (2,), (0, 3, 2))

QUICK = {"xla_backend_optimization_level": 0}  # small programs take far longer to compile than to run
BATCH = {"local_steps": 3, "batch_size": 3}


def softmax():
    """Softmax regression with a penalty."""
    return jf.models.logistic_regression(CLASSES, l2=0.1)


# Every horizontal algorithm, with its states and options in use: what the contract tests run over.
ALGORITHMS = {
    "FedAvg": lambda: jf.FedAvg(softmax(), lr=0.2, **BATCH),
    "FedAvg-passes": lambda: jf.FedAvg(softmax(), lr=0.2, local_epochs=1, batch_size=3, batches="epochs"),
    "FedAvg-momentum": lambda: jf.FedAvg(softmax(), lr=0.1, optimizer=momentum, keep_optimizer=True,
                                         server_optimizer=jf.horizontal.fedadam, server_lr=0.1, **BATCH),
    "FineTuned": lambda: jf.FineTuned(softmax(), lr=0.2, tune_steps=2, **BATCH),
    "LocalOnly": lambda: jf.LocalOnly(softmax(), lr=0.2, **BATCH),
    "Scaffold": lambda: jf.Scaffold(softmax(), lr=0.2, **BATCH),
    "APFL": lambda: jf.APFL(softmax(), lr=0.2, adaptive=True, **BATCH),
    "APFL-fedtorch": lambda: jf.APFL.fedtorch(jf.models.mlp(CLASSES, (HIDDEN,)), lr=0.2, local_steps=3),
}  # fmt: skip


def momentum(lr):
    """A local optimizer with a state."""
    return optax.sgd(lr, momentum=0.5)


def clients(seed=0, sizes=SIZES):
    """Ragged classification clients [(x_i [n_i, 4], y_i [n_i])], 3 classes."""
    rng = np.random.default_rng(seed)
    return [(rng.normal(size=(n, FEATURES)), rng.integers(0, CLASSES, n)) for n in sizes]


def client_data(rows, group=1):
    """The same clients as ClientData on the device, `group` of them trained at once."""
    data = jf.ClientData.from_list(rows, allow_empty=True)
    data = data.replace(layout=dataclasses.replace(data.layout, group=group))
    return jax.tree.map(jnp.asarray, data)


def models(name, l2=0.1):
    """(jaxfed's model, the oracle's) of "softmax" or "mlp"."""
    if name == "softmax":
        return jf.models.logistic_regression(CLASSES, l2=l2), reference.Softmax(l2)
    return jf.models.mlp(CLASSES, (HIDDEN,), l2=l2), reference.Mlp(l2)


def parameters(name, seed=1):
    """Random parameters as the oracle has them."""
    return draw(np.random.default_rng(seed), SOFTMAX_SHAPES if name == "softmax" else MLP_SHAPES)


def to_jax(params):
    """The oracle's parameters in jaxfed's structure."""
    if "kernel" in params:
        return jax.tree.map(jnp.asarray, dict(params))
    layer = lambda i: {k: jnp.asarray(params[f"{k}{i}"]) for k in ("kernel", "bias")}  # noqa: E731
    return {"Dense_0": layer(0), "Dense_1": layer(1)}


def to_numpy(params):
    """jaxfed's parameters in the oracle's structure."""
    if "kernel" in params:
        return {k: np.asarray(v) for k, v in params.items()}
    return {f"{k}{i}": np.asarray(v) for i in range(2) for k, v in params[f"Dense_{i}"].items()}


def current(state):
    """The server of a state, whether or not it has a past or an average around it."""
    server = getattr(state.server, "inner", state.server)
    return getattr(server, "now", server)


def stack(trees):
    """Trees on a new first axis."""
    return jax.tree.map(lambda *x: jnp.stack(x), *trees)


def row(tree, i):
    """Row i of every leaf."""
    return jax.tree.map(lambda x: x[i], tree)


def started(algorithm, data, w):
    """The state before the first round, but with the oracle's parameters w on the server."""
    state = algorithm.init(jax.random.key(0), data)
    return state._replace(server=state.server._replace(params=to_jax(w)))


def event(cohort, num_clients, delay=None):
    """The event of a cohort: a slot for every client, those outside masked."""
    ids = np.arange(num_clients, dtype=np.int32)
    return jf.horizontal.Event(np.float32(1), ids, np.isin(ids, cohort), delay)


@partial(jax.jit, compiler_options=QUICK)
def step(algorithm, key, state, data, event):
    """One compiled round."""
    return algorithm.step(key, state, data, event)


@partial(jax.jit, static_argnames="group", compiler_options=QUICK)
def final(algorithm, data, num_rounds=3, scheduler=None, group=2):
    """The state after some rounds, as `run` computes it, without measures."""
    data = data.replace(layout=dataclasses.replace(data.layout, group=group))
    scheduler = jf.horizontal.FullParticipation(data.num_clients) if scheduler is None else scheduler
    key = jax.random.key(0)
    carry = jf.core.init(key, algorithm, data)
    return jf.core.advance(key, algorithm, scheduler, data, carry, num_rounds)[0].state


def round_key(seed, t):
    """The key of round t, as the driver derives it from the run's."""
    return jax.random.fold_in(jax.random.split(jax.random.key(seed), 3)[2], t)


def play(algorithm, data, cohorts=COHORTS, state=None, seed=0, delays=None):
    """Yield (t, cohort, state after, info) of rounds played one by one, from `state` or the algorithm's own start."""
    state = algorithm.init(jax.random.split(jax.random.key(seed), 3)[0], data) if state is None else state
    for t, cohort in enumerate(cohorts):
        e = event(cohort, data.rows.shape[0], None if delays is None else np.asarray(delays[t], np.int32))
        state, info = step(algorithm, round_key(seed, t), state, data, e)
        yield t, cohort, state, info


@partial(jax.jit, static_argnums=0, compiler_options=QUICK)
def _drawn(settings, key, data):
    algorithm = jf.FedAvg(None, **dict(settings))

    def one(i):
        view = data.view(i)
        return local.draw(algorithm, jax.random.fold_in(key, view.id), view)

    return jax.vmap(one)(jnp.arange(data.rows.shape[0]))


def batches(algorithm, data, t, seed=0):
    """{client: its own row numbers of each local step} that jaxfed draws in round t; masked rows are left out."""
    names = ("local_steps", "batch_size", "batches", "local_epochs")
    settings = tuple((name, getattr(algorithm, name)) for name in names)
    size, table = np.asarray(data.size), np.asarray(data.rows)
    if algorithm.batch_size is None:
        steps = algorithm.local_epochs or algorithm.local_steps
        return {i: [np.arange(n)] * steps for i, n in enumerate(size) if n}
    rows, weight = _drawn(settings, round_key(seed, t), data)
    rows, out = np.asarray(rows), {}
    for i in np.flatnonzero(size):
        own = {int(r): j for j, r in enumerate(table[i, : size[i]])}
        keep = np.ones(rows[i].shape, bool) if weight is None else np.asarray(weight[i]) > 0
        local_rows = [np.array([own[int(r)] for r in step[k]]) for step, k in zip(rows[i], keep, strict=True)]
        out[i] = [b for b in local_rows if len(b)]
    return out


def assert_trees(a, b, atol=1e-10, rtol=0.0):
    """Equal structures whose leaves agree; atol 0 and rtol 0: bit for bit."""
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        x, y = np.asarray(x), np.asarray(y)
        assert x.dtype == y.dtype
        np.testing.assert_allclose(x, y, rtol=rtol, atol=atol)


def assert_params(params, oracle, atol=1e-10):
    """jaxfed's parameters agree with the oracle's."""
    params = to_numpy(params)
    assert params.keys() == oracle.keys()
    for k in oracle:
        np.testing.assert_allclose(params[k], oracle[k], rtol=0, atol=atol, err_msg=k)
