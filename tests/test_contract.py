"""The contract of `jaxfed.testing` for every algorithm.

To add yours, add a line to the table: here, or in `tests.support` to run it through the other tests of all algorithms.
"""

import functools

import pytest

import jaxfed as jf
from jaxfed import testing
from jaxfed.privacy.clients import PrivateUpdates
from tests import support

SOFTMAX, MLP = support.softmax(), jf.models.mlp(3, (5,))
STEPS = dict(local_steps=2, batch_size=4)
ALGORITHMS = {name: make() for name, make in support.ALGORITHMS.items()} | {
    "FedAvg-mlp": jf.FedAvg(MLP, **STEPS),
    "Scaffold-passes": jf.Scaffold(SOFTMAX, option="I", batches="epochs", local_epochs=2, batch_size=4),
    "APFL-mlp": jf.APFL(MLP, adaptive=True, **STEPS),
    "APFL-full": jf.APFL(SOFTMAX, adaptive=True, alpha_every="step", local_steps=2, batch_size=None),
    "APFL-late": jf.APFL(SOFTMAX, max_staleness=2, **STEPS),
    "PrivateUpdates": PrivateUpdates(jf.APFL(SOFTMAX, adaptive=True, **STEPS), clip=0.5, noise_multiplier=0.3),
    "Weighted": jf.averaging.Weighted(jf.APFL(SOFTMAX, **STEPS), offset=2.0),
}
CHECKS = {
    "state_kept": testing.check_state_kept,
    "chunks": functools.partial(testing.check_chunks, num_rounds=4),
    "compiles_once": testing.check_compiles_once,
    "outside_cohort": functools.partial(testing.check_outside_cohort, num_rounds=3),
    "row_padding": functools.partial(testing.check_row_padding, num_rounds=3),
    "client_order": functools.partial(testing.check_client_order, num_rounds=3),
    "vmap": functools.partial(testing.check_vmap, num_rounds=3),
}


@pytest.fixture(scope="module")
def data():
    return testing.ragged_data()


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_contract(name, check, data):
    CHECKS[check](ALGORITHMS[name], data)


@pytest.mark.parametrize("name", ["FedAvg", "Scaffold", "APFL", "APFL-mlp"])
def test_jit_is_eager(name, data):
    testing.check_jit_is_eager(ALGORITHMS[name], data)


def test_a_broken_algorithm_fails():
    class Leaky(jf.FedAvg):
        """Trains clients outside the cohort too: the contract must notice."""

        def init(self, key, data):
            return super().init(key, data)._replace(clients=data.train.size * 1.0)

        def step(self, key, state, data, event):
            state, info = jf.FedAvg.step(self, key, state, data, event)
            return state._replace(clients=state.clients + 1), info

    with pytest.raises(AssertionError, match="idle client moved"):
        testing.check_outside_cohort(Leaky(SOFTMAX, **STEPS), testing.ragged_data(), 2)
