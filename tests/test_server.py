"""The server's optimizers against the NumPy oracle, plain averaging, and cohorts in which nobody trains."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxfed as jf
from tests import support
from tests.reference import server
from tests.test_fedavg import BATCHES

OPTIMIZERS = {
    "fedadam": (jf.horizontal.fedadam, server.fedadam(0.1)),
    "fedyogi": (jf.horizontal.fedyogi, server.fedyogi(0.1)),
    "fedavgm": (jf.horizontal.fedavgm, server.fedavgm(0.1, 0.9)),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_agrees_with_the_oracle(x64, name):
    """Four rounds, in one of which only an empty client takes part: then neither w nor the moments move."""
    rows, (model, oracle) = support.clients(sizes=(5, 9, 0, 1)), support.models("softmax")
    factory, by_hand = OPTIMIZERS[name]
    algorithm = jf.FedAvg(model, lr=0.2, server_lr=0.1, server_optimizer=factory, **BATCHES["full"])
    data, w = support.client_data(rows), support.parameters("softmax")
    moments = by_hand[0](w)
    state = support.started(algorithm, data, w)
    for t, cohort, after, _ in support.play(algorithm, data, state=state):
        drawn = support.batches(algorithm, data, t)
        w, moments = server.server_round(oracle, w, moments, rows, cohort, drawn, 0.2, by_hand)
        support.assert_params(after.server.params, w)
        if cohort == (2,):
            support.assert_trees(after.server.extra, state.server.extra, atol=0)
        state = after
    if name == "fedavgm":
        support.assert_params(jax.tree.map(jnp.negative, state.server.extra[0].trace), moments)
    else:
        support.assert_params(jax.tree.map(jnp.negative, state.server.extra.m), moments[0])
        support.assert_params(state.server.extra.v, moments[1])


def test_sgd_at_rate_1_is_plain_averaging_bit_for_bit():
    data = support.client_data(support.clients(), group=2)
    model = support.models("mlp")[0]
    plain = jf.FedAvg(model, **BATCHES["drawn"])
    sgd = plain.replace(server_optimizer=optax.sgd)
    for a, b in zip(support.play(plain, data), support.play(sgd, data), strict=True):
        support.assert_trees(a[2].server.params, b[2].server.params, atol=0)


def test_optax_adam_corrects_the_bias(x64):
    """Its first step is the rate in every coordinate; that of `fedadam` is the rate times 0.1 u / (0.1 |u| + ...)."""
    data = support.client_data(support.clients())
    algorithm = jf.FedAvg(support.models("softmax")[0], server_lr=0.01, server_optimizer=optax.adam, **BATCHES["full"])
    *_, (_, _, state, _) = support.play(algorithm, data, support.COHORTS[:1])
    np.testing.assert_allclose(jnp.abs(state.server.params["kernel"]), 0.01, rtol=1e-5)


@pytest.mark.parametrize("algorithm", support.ALGORITHMS.values(), ids=support.ALGORITHMS)
def test_a_cohort_without_rows_changes_nothing(algorithm):
    """All slots idle, then only the empty client: the state stays bit for bit, and counts nobody."""
    data = support.client_data(support.clients(sizes=(5, 9, 0, 1)))
    algorithm = algorithm()
    states = [s for _, _, s, _ in support.play(algorithm, data, [(0, 1), (), (2,)])]
    infos = [i for *_, i in support.play(algorithm, data, [(0, 1), (), (2,)])]
    rounds = lambda s: support.current(s)._replace(round=0)  # noqa: E731
    for after, info in zip(states[1:], infos[1:], strict=True):
        support.assert_trees(rounds(after), rounds(states[0]), atol=0)
        support.assert_trees(after.clients, states[0].clients, atol=0)
        assert info["cohort"] == 0 and info["update_norm"] == 0 and info["drift"] == 0
    assert support.current(states[2]).round == 3 and support.current(states[2]).visits == 2
