"""`averaging.Weighted` against the oracle's weighted average of iterates."""

import jax
import numpy as np
import pytest

import jaxfed as jf
from tests import support
from tests.reference import averages

INNER = {
    "APFL": lambda: jf.APFL(support.softmax(), lr=0.2, adaptive=True, **support.BATCH),
    "FedAvg": lambda: jf.FedAvg(support.softmax(), lr=0.2, **support.BATCH),
    "LocalOnly": lambda: jf.LocalOnly(support.softmax(), lr=0.2, **support.BATCH),
}


@pytest.mark.parametrize("inner", INNER.values(), ids=INNER)
def test_averages_agree_with_the_oracle(x64, inner):
    """(t + a)^2 weighs the server's and the personal models after round t; training is the inner algorithm's."""
    data, inner = support.client_data(support.clients()), inner()
    algorithm = jf.averaging.Weighted(inner, offset=1.5)
    servers, clients = [], []
    for one, (*_, state, info) in zip(support.play(inner, data), support.play(algorithm, data), strict=True):
        support.assert_trees(type(state)(state.server.inner, state.clients.inner), one[2], atol=1e-12)
        assert info.keys() == one[3].keys()
        servers.append(support.to_numpy(inner.server_params(one[2])))
        clients.append(support.to_numpy(inner.client_params(one[2], data)))
        support.assert_params(algorithm.server_params(state), averages.polynomial_average(servers, 1.5))
        support.assert_params(algorithm.client_params(state), averages.polynomial_average(clients, 1.5))


def test_runs_and_is_evaluated_as_any_algorithm():
    """Recorded and predicted are the averages; before the first round they are the initial models."""
    rows = support.clients()
    data = jf.ClientData.from_list(rows)
    algorithm = jf.averaging.Weighted(INNER["APFL"](), offset=2.0)
    out = jf.run(0, algorithm, data, num_rounds=3, progress=False)
    plain = jf.run(0, algorithm.inner, data, num_rounds=3, progress=False).dataset
    assert set(out.dataset) == set(plain) and out.dataset.attrs["parameters"] == plain.attrs["parameters"]
    np.testing.assert_array_equal(out.dataset.mixing_weight, plain.mixing_weight)
    first = lambda ds: ds.isel(round=slice(0, 2))  # noqa: E731
    np.testing.assert_allclose(first(out.dataset).personal_train_loss, first(plain).personal_train_loss, rtol=1e-6)
    assert not np.allclose(out.dataset.server_train_loss[3], plain.server_train_loss[3], rtol=1e-4)
    models, oracle = algorithm.client_params(out.state), support.models("softmax")[1]
    for i, (x, y) in enumerate(rows):
        own = support.to_numpy(support.row(models, i))
        loss = oracle.loss({k: v.astype(float) for k, v in own.items()}, x, y)
        np.testing.assert_allclose(out.dataset.personal_train_loss[3, i], loss, rtol=1e-5)
        outputs = algorithm.predict(out.state, x, client=i)
        np.testing.assert_allclose(outputs, oracle.logits(own, x), rtol=1e-4, atol=1e-5)


def test_resumes_bit_for_bit():
    data = jf.ClientData.from_list(support.clients())
    algorithm = jf.averaging.Weighted(INNER["APFL"](), offset=2.0)
    half = jf.run(0, algorithm, data, num_rounds=2, every=2, progress=False)
    twice = jf.run(0, algorithm, data, num_rounds=2, every=2, state=half.state, progress=False)
    support.assert_trees(twice.state, jf.run(0, algorithm, data, num_rounds=4, every=4, progress=False).state, atol=0)


def test_averages_of_mixed_outputs_are_refused():
    """The mean of mixtures of outputs is no mixture: said, rather than computed field by field."""
    inner = INNER["APFL"]().replace(mix="logits")
    with pytest.raises(ValueError, match="mix: got 'logits'"):
        jf.run(0, jf.averaging.Weighted(inner), jf.ClientData.from_list(support.clients()), num_rounds=1)


def test_the_first_round_counts_as_one():
    """With offset 0 the first iterate alone is the average after round 1, not the initial model."""
    data = support.client_data(support.clients())
    inner = INNER["FedAvg"]()
    algorithm = jf.averaging.Weighted(inner)
    state = algorithm.init(jax.random.key(0), data)
    support.assert_trees(algorithm.server_params(state), inner.server_params(inner.init(jax.random.key(0), data)))
    *_, state, _ = next(iter(support.play(algorithm, data)))
    assert state.server.total == 1
    support.assert_trees(algorithm.server_params(state), support.current(state).params, atol=0)
