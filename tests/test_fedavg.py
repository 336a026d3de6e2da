"""FedAvg against the NumPy oracle: batches, weights, cohorts, local optimizers, and limits."""

import numpy as np
import optax
import pytest

import jaxfed as jf
from tests import support
from tests.reference import fedavg

BATCHES = {
    "full": {"batch_size": None, "local_steps": 3},
    "drawn": {"batch_size": 3, "local_steps": 4},
    "passes": {"batch_size": 4, "local_steps": 5, "batches": "epochs"},
    "epochs": {"batch_size": 4, "local_epochs": 2, "batches": "epochs"},
}
OPTIMIZERS = {
    None: (None, None),
    "momentum": (lambda lr: optax.sgd(lr, momentum=0.7), fedavg.sgd_momentum(0.7)),
    "adam": (optax.adam, fedavg.adam()),
}


def agree(name, weights="examples", optimizer=None, group=1, rows=None, seed=0, **settings):
    """Play jaxfed and the oracle side by side; every round's server model agrees to 1e-10."""
    rows = support.clients() if rows is None else rows
    model, oracle = support.models(name)
    local, by_hand = OPTIMIZERS[optimizer]
    algorithm = jf.FedAvg(model, lr=0.2, server_lr=0.7, weights=weights, optimizer=local, **settings)
    data, w = support.client_data(rows, group), support.parameters(name)
    first = support.started(algorithm, data, w)
    for t, cohort, state, info in support.play(algorithm, data, state=first, seed=seed):
        drawn = support.batches(algorithm, data, t, seed)
        updates = [
            fedavg.fedavg_round(oracle, w, rows, [i], drawn, 0.2, optimizer=by_hand) for i in cohort if len(rows[i][1])
        ]
        new = fedavg.fedavg_round(oracle, w, rows, cohort, drawn, 0.2, weights, 0.7, by_hand)
        support.assert_params(state.server.params, new)
        assert info["cohort"] == len(updates)
        change = np.concatenate([(new[k] - w[k]).ravel() for k in w]) / 0.7
        np.testing.assert_allclose(info["update_norm"], np.linalg.norm(change), rtol=1e-8)
        if weights == "uniform":
            each = [np.concatenate([(u[k] - w[k]).ravel() for k in w]) for u in updates]
            drift = np.sqrt(np.mean([np.sum((u - change) ** 2) for u in each]))
            np.testing.assert_allclose(info["drift"], drift, rtol=1e-6, atol=1e-7)
        w = new
    assert state.server.round == len(support.COHORTS)


@pytest.mark.parametrize("batches", BATCHES)
def test_softmax_agrees_with_the_oracle(x64, batches):
    agree("softmax", **BATCHES[batches])


@pytest.mark.parametrize("batches", ["full", "drawn"])
def test_network_agrees_with_the_oracle(x64, batches):
    agree("mlp", weights="uniform", group=3, **BATCHES[batches])


@pytest.mark.parametrize("optimizer", ["momentum", "adam"])
def test_local_optimizers_start_anew_each_round(x64, optimizer):
    agree("softmax", optimizer=optimizer, **BATCHES["full"])


def test_empty_clients_count_for_nothing(x64):
    rows = support.clients(sizes=(5, 0, 7, 1))
    agree("softmax", rows=rows, **BATCHES["full"])
    agree("softmax", rows=rows, weights="uniform", group=4, **BATCHES["drawn"])


def test_kept_optimizer_state_goes_on(x64):
    """One client, full batch, two rounds of one step: momentum over both rounds, as two steps of optax alone."""
    rows = support.clients(sizes=(6,))
    model, oracle = support.models("softmax")
    data, w = support.client_data(rows), support.parameters("softmax")
    for keep in (True, False):
        algorithm = jf.FedAvg(model, lr=0.2, batch_size=None, local_steps=1, keep_optimizer=keep,
                              optimizer=OPTIMIZERS["momentum"][0])  # fmt: skip
        first = support.started(algorithm, data, w)
        *_, (_, _, state, _) = support.play(algorithm, data, [(0,)] * 3, first)
        optimizer, full = fedavg.sgd_momentum(0.7), [np.arange(6)]
        if keep:
            wanted = fedavg.local_sgd(oracle, w, *rows[0], full * 3, 0.2, optimizer)
        else:
            wanted = fedavg.local_sgd(oracle, w, *rows[0], full * 3, 0.2)
        support.assert_params(state.server.params, wanted)


def test_full_batch_is_gradient_descent(x64):
    """All clients, one step, weighted by examples: a gradient step on the pooled rows, to which l2 adds once."""
    rows = support.clients()
    model, oracle = support.models("mlp")
    data, w = support.client_data(rows), support.parameters("mlp")
    algorithm = jf.FedAvg(model, lr=0.3, batch_size=None, local_steps=1)
    first = support.started(algorithm, data, w)
    pooled = [np.concatenate(part) for part in zip(*rows, strict=True)]
    for *_, state, _ in support.play(algorithm, data, [(0, 1, 2, 3)] * 3, first):
        w = {k: w[k] - 0.3 * g for k, g in oracle.grad(w, *pooled).items()}
        support.assert_params(state.server.params, w)


def test_rates_follow_the_global_round(x64):
    """A client that joins late takes the rate of the round, not of its own count (FedNLP #5)."""
    rows = support.clients()
    model, oracle = support.models("softmax")
    data, w = support.client_data(rows), support.parameters("softmax")
    algorithm = jf.FedAvg(model, lr=jf.steps.ExponentialDecay(0.4, 0.5), batch_size=None, local_steps=2)
    first = support.started(algorithm, data, w)
    for t, cohort, state, _ in support.play(algorithm, data, state=first):
        w = fedavg.fedavg_round(oracle, w, rows, cohort, support.batches(algorithm, data, t), 0.4 * 0.5**t)
        support.assert_params(state.server.params, w)
