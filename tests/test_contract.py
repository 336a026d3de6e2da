"""The contract of `jaxfed.testing` for every algorithm. To add yours, add a line to the table."""

import functools

import optax
import pytest

import jaxfed as jf
from jaxfed import testing

SOFTMAX, MLP = jf.models.logistic_regression(3, l2=1e-2), jf.models.mlp(3, (5,))
STEPS = dict(local_steps=2, batch_size=4)
ALGORITHMS = {
    "fedavg": jf.FedAvg(SOFTMAX, **STEPS),
    "fedavg_mlp": jf.FedAvg(MLP, **STEPS),
    "fedadam_momentum": jf.FedAvg(
        SOFTMAX,
        server_optimizer=jf.horizontal.fedadam,
        optimizer=functools.partial(optax.sgd, momentum=0.9),
        keep_optimizer=True,
        **STEPS,
    ),
    "local": jf.LocalOnly(SOFTMAX, **STEPS),
    "fine_tuned": jf.FineTuned(SOFTMAX, tune_steps=2, **STEPS),
    "scaffold": jf.Scaffold(SOFTMAX, **STEPS),
    "scaffold_epochs": jf.Scaffold(SOFTMAX, option="I", batches="epochs", local_epochs=2, batch_size=4),
    "apfl": jf.APFL(SOFTMAX, adaptive=True, **STEPS),
    "apfl_plain": jf.APFL(MLP, adaptive=True, **STEPS),
    "apfl_full": jf.APFL(SOFTMAX, adaptive=True, alpha_every="step", local_steps=2, batch_size=None),
    "apfl_fedtorch": jf.APFL.fedtorch(MLP, local_steps=2, batch_size=4),
    "apfl_late": jf.APFL(SOFTMAX, max_staleness=2, **STEPS),
    "weighted": jf.averaging.Weighted(jf.APFL(SOFTMAX, **STEPS), offset=2.0),
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


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "apfl", "apfl_plain"])
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
