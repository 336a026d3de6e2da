"""Local steps: which rows they see; LocalOnly and FineTuned against the NumPy oracle."""

import jax
import numpy as np
import optax
import pytest

import jaxfed as jf
from tests import support
from tests.reference import fedavg, local, trees
from tests.test_fedavg import BATCHES

ROWS = support.clients(sizes=(5, 9, 0, 1))


@pytest.mark.parametrize("name, batches", [("softmax", "drawn"), ("mlp", "passes")])
def test_local_only_agrees_with_the_oracle(x64, name, batches):
    """Every client's own model; the server's is their mean over the clients with rows, kept up to date."""
    model, oracle = support.models(name)
    algorithm, data = jf.LocalOnly(model, lr=0.2, **BATCHES[batches]), support.client_data(ROWS)
    w = support.parameters(name)
    v = [w] * 4
    first = support.started(algorithm, data, w)._replace(clients=support.stack([support.to_jax(w)] * 4))
    for t, cohort, state, _ in support.play(algorithm, data, state=first):
        v = local.local_only_round(oracle, v, ROWS, cohort, support.batches(algorithm, data, t), 0.2)
        for i in range(4):
            support.assert_params(support.row(state.clients, i), v[i])
        support.assert_params(algorithm.server_params(state), trees.weighted_mean([v[i] for i in (0, 1, 3)], [1] * 3))


def test_local_only_with_an_optimizer_agrees_with_the_oracle(x64):
    model, oracle = support.models("softmax")
    sgd = lambda lr: optax.sgd(lr, momentum=0.7)  # noqa: E731
    algorithm = jf.LocalOnly(model, lr=0.2, optimizer=sgd, **BATCHES["full"])
    data, v = support.client_data(ROWS), [{"kernel": np.zeros((3, 4)), "bias": np.zeros(3)}] * 4
    for t, cohort, state, _ in support.play(algorithm, data):
        drawn = support.batches(algorithm, data, t)
        v = local.local_only_round(oracle, v, ROWS, cohort, drawn, 0.2, fedavg.sgd_momentum(0.7))
        for i in range(4):
            support.assert_params(support.row(state.clients, i), v[i])


def test_fine_tuned_agrees_with_the_oracle(x64):
    """The server is FedAvg's; the personal models are w after local steps, w itself for a client without rows."""
    model, oracle = support.models("softmax")
    algorithm = jf.FineTuned(model, lr=0.2, tune_lr=0.3, tune_steps=5, batch_size=None, local_steps=2)
    data, w = support.client_data(ROWS), {"kernel": np.zeros((3, 4)), "bias": np.zeros(3)}
    for t, cohort, state, _ in support.play(algorithm, data):
        w = fedavg.fedavg_round(oracle, w, ROWS, cohort, support.batches(algorithm, data, t), 0.2)
        support.assert_params(algorithm.server_params(state), w)
    full = {i: [np.arange(len(y))] * 5 for i, (_, y) in enumerate(ROWS)}
    tuned = local.fine_tune(oracle, w, ROWS, range(4), full, 0.3)
    models = algorithm.client_params(state, data)
    for i in range(4):
        support.assert_params(support.row(models, i), tuned[i])
        x = support.clients(5)[0][0]
        np.testing.assert_allclose(
            algorithm.predict(state, x, client=i, data=data), oracle.logits(tuned[i], x), rtol=0, atol=1e-10
        )
    with pytest.raises(ValueError, match="data: got None, wanted the training data"):
        algorithm.client_params(state)
    with pytest.raises(ValueError, match="client: got 4, wanted 0 to 3"):
        algorithm.predict(state, x, client=4, data=data)


def test_fine_tuned_takes_the_users_own_data():
    """`client_params` works on the ClientData that the user made, not only on one placed on a device."""
    algorithm = jf.FineTuned(support.models("softmax")[0], tune_steps=2, local_steps=1)
    data = jf.ClientData.from_list(support.clients())
    state = algorithm.init(jax.random.key(0), data)
    assert algorithm.client_params(state, data)["bias"].shape == (4, 3)


def test_passes_show_every_row_once():
    """Each pass is a new order of the client's own rows, also where the last batch is not full or there is one row."""
    rows = support.clients(sizes=(5, 9, 7, 1, 8))
    data = support.client_data(rows)
    algorithm = jf.FedAvg(None, batch_size=4, local_epochs=3, batches="epochs")
    orders = set()
    for t in range(3):
        drawn = support.batches(algorithm, data, t)
        for i, (_, y) in enumerate(rows):
            per_pass = -(-len(y) // 4)
            assert len(drawn[i]) == 3 * per_pass
            for e in range(3):
                one = np.concatenate(drawn[i][e * per_pass : (e + 1) * per_pass])
                assert sorted(one) == list(range(len(y)))
                orders |= {tuple(one)} if i == 1 else set()
    assert len(orders) == 9


def test_passes_are_cut_off_by_local_steps():
    data = support.client_data(support.clients())
    algorithm = jf.FedAvg(None, batch_size=4, local_steps=5, batches="epochs")
    drawn = support.batches(algorithm, data, 0)
    assert [len(drawn[i]) for i in range(4)] == [5] * 4
    assert [[len(b) for b in drawn[i]] for i in (0, 1, 3)] == [[4, 1, 4, 1, 4], [4, 4, 1, 4, 4], [1] * 5]
    assert sorted(np.concatenate(drawn[1][:3])) == list(range(9))


def test_drawn_rows_are_uniform_over_the_clients_own():
    """Chi-square at about five standard deviations; fresh draws each round; a client's do not depend on the others."""
    data = support.client_data(support.clients())
    algorithm = jf.FedAvg(None, batch_size=40, local_steps=100)
    drawn = support.batches(algorithm, data, 0)
    for i, n in enumerate(support.SIZES):
        counts = np.bincount(np.concatenate(drawn[i]), minlength=n)
        expected = 4000 / n
        assert len(counts) == n
        assert np.sum((counts - expected) ** 2 / expected) < n - 1 + 5 * np.sqrt(2 * n)
    again = support.batches(algorithm, data, 1)
    assert any((a != b).any() for a, b in zip(drawn[0], again[0], strict=True))
    fewer = support.batches(algorithm, support.client_data(support.clients()[:2]), 0)
    np.testing.assert_array_equal(fewer[0], drawn[0])


def test_images_are_scaled_on_use():
    """uint8 rows train as the same rows divided by 255, and are predicted so."""
    rng = np.random.default_rng(0)
    images = [(rng.integers(0, 256, (6, 2, 2, 1), dtype=np.uint8), rng.integers(0, 3, 6)) for _ in range(2)]
    scaled = [((x / 255).astype(np.float32), y) for x, y in images]
    algorithm = jf.FedAvg(jf.models.logistic_regression(3), **BATCHES["full"])
    states = [list(support.play(algorithm, support.client_data(r), [(0, 1)] * 2))[-1][2] for r in (images, scaled)]
    support.assert_trees(*states, atol=1e-6)
    np.testing.assert_allclose(
        algorithm.predict(states[0], images[0][0]), algorithm.predict(states[0], scaled[0][0]), atol=1e-6
    )
