"""SCAFFOLD against the NumPy oracle, numbers worked out by hand, and limits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxfed as jf
from tests import support
from tests.reference import fedavg, scaffold
from tests.test_fedavg import BATCHES


def scalar_model():
    """f(w) = curvature / 2 (w - centre)^2 per row (curvature, centre): what the hand-worked numbers are about."""

    def apply(params, x):
        return jnp.sqrt(x[:, :1]) * (params["w"] - x[:, 1:])

    return jf.models.Model((lambda key, x: {"w": jnp.ones(())}, apply), loss="half_squared")


@pytest.mark.parametrize("option", ["I", "II"])
@pytest.mark.parametrize("name, batches", [("softmax", "full"), ("softmax", "epochs"), ("mlp", "drawn")])
def test_agrees_with_the_oracle(x64, name, batches, option):
    """Ragged clients, one of them empty; with "epochs" every client has its own number of steps K_i."""
    rows, (model, oracle) = support.clients(sizes=(5, 9, 0, 1)), support.models(name)
    algorithm = jf.Scaffold(model, lr=0.2, server_lr=0.7, option=option, **BATCHES[batches])
    data, w = support.client_data(rows, group=2 if name == "mlp" else 1), support.parameters(name)
    c, controls = scaffold.init_controls(w, 4)
    first = support.started(algorithm, data, w)
    steps = set()
    for t, cohort, state, _ in support.play(algorithm, data, state=first):
        drawn = support.batches(algorithm, data, t)
        steps |= {len(drawn[i]) for i in drawn}
        w, c, controls = scaffold.scaffold_round(
            oracle, w, c, controls, rows, cohort, drawn, 0.2, 0.7, {"I": 1, "II": 2}[option]
        )
        support.assert_params(state.server.params, w)
        support.assert_params(state.server.extra, c)
        for i in range(4):
            support.assert_params(support.row(state.clients, i), controls[i])
        mean = jax.tree.map(lambda c_i: c_i.sum(0) / 3, state.clients)  # c stays the mean of the c_i
        support.assert_trees(state.server.extra, mean, atol=1e-12)
    assert (len(steps) > 1) == (batches == "epochs")


def test_numbers_worked_out_by_hand(x64):
    """The numbers of `test_reference_rounds`: f_1 = w^2 / 2, f_2 = (w - 3)^2, w = 1, lr 1/4, two steps."""
    rows = [(np.array([[1.0, 0.0]]), np.zeros(1)), (np.array([[2.0, 3.0]]), np.zeros(1))]
    data = support.client_data(rows)
    algorithm = jf.Scaffold(scalar_model(), lr=0.25, local_steps=2, batch_size=None)

    def numbers(algorithm, cohorts):
        *_, (_, _, state, _) = support.play(algorithm, data, cohorts)
        return [float(state.server.params["w"]), float(state.server.extra["w"]), *map(float, state.clients["w"])]

    both = ((0, 1), (0, 1))
    assert numbers(algorithm, both[:1]) == pytest.approx([1.53125, -1.0625, 0.875, -3], abs=1e-14)
    second = [1.8076171875, -0.552734375, 1.58203125, -2.6875]
    assert numbers(algorithm, both) == pytest.approx(second, abs=1e-14)
    # only client 1 of two: w = y_1, but c moves by |S| / C = 1/2 of 0.875
    assert numbers(algorithm, ((0,),)) == pytest.approx([0.5625, 0.4375, 0.875, 0], abs=1e-14)
    first = algorithm.replace(option="I", server_lr=0.5)
    assert numbers(first, both[:1]) == pytest.approx([1.265625, -1.5, 1, -4], abs=1e-14)


@pytest.mark.parametrize("option", ["I", "II"])
def test_one_client_is_sgd(x64, option):
    """With one client c = c_1, so the correction vanishes whatever was drawn."""
    rows, (model, oracle) = support.clients(sizes=(9,)), support.models("softmax")
    algorithm = jf.Scaffold(model, lr=0.2, option=option, **BATCHES["drawn"])
    data, w = support.client_data(rows), support.parameters("softmax")
    first = support.started(algorithm, data, w)
    for t, _, state, _ in support.play(algorithm, data, [(0,)] * 3, first):
        w = fedavg.local_sgd(oracle, w, *rows[0], support.batches(algorithm, data, t)[0], 0.2)
        support.assert_params(state.server.params, w)


def test_a_rate_of_zero_keeps_the_controls(x64):
    rows = support.clients()
    algorithm = jf.Scaffold(support.models("softmax")[0], lr=0.2, **BATCHES["full"])
    data = support.client_data(rows)
    *_, (_, _, state, _) = support.play(algorithm, data, [(0, 1, 2, 3)])
    *_, (_, _, still, _) = support.play(algorithm.replace(lr=0.0), data, [(0, 1, 2, 3)], state)
    support.assert_trees(still.clients, state.clients, atol=0)
    support.assert_trees(still.server.params, state.server.params, atol=0)
