"""Clipped and noisy client updates against NumPy, limits, and what one client can do at most."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import kstest

import jaxfed as jf
from jaxfed.privacy.clients import PrivateUpdates, clipped
from tests import support
from tests.reference import fedavg, scaffold, trees

UNIFORM = {"lr": 0.2, "weights": "uniform", **support.BATCH}
INNER = {
    "FedAvg": lambda: jf.FedAvg(support.softmax(), **UNIFORM),
    "FineTuned": lambda: jf.FineTuned(support.softmax(), **UNIFORM),
    "Scaffold": support.ALGORITHMS["Scaffold"],
    "APFL": support.ALGORITHMS["APFL"],
    "APFL-fedtorch": support.ALGORITHMS["APFL-fedtorch"],
}
ROWS = support.clients()


def one_round(algorithm, rows=ROWS, cohort=(0, 1, 3), w=None, seed=0):
    """The state after one round of the cohort."""
    data = support.client_data(rows)
    state = None if w is None else support.started(algorithm, data, w)
    return next(iter(support.play(algorithm, data, (cohort,), state, seed)))[2]


def cut(update, clip):
    """The update, a list of dicts of arrays that belong together, cut to the norm `clip`."""
    norm = np.sqrt(sum(trees.dot(part, part) for part in update))
    return [trees.scale(min(1.0, clip / norm), part) for part in update]


@pytest.mark.parametrize("clip", [0.05, 0.4, 100.0])
def test_a_round_is_numpys(x64, clip):
    """The mean of the clients' steps, each cut by the norm over all its leaves; without noise."""
    model, oracle = support.models("softmax")
    algorithm, w = PrivateUpdates(jf.FedAvg(model, **UNIFORM), clip, 0.0), support.parameters("softmax")
    drawn = support.batches(algorithm.inner, support.client_data(ROWS), 0)
    sent = [trees.sub(fedavg.local_sgd(oracle, w, *ROWS[i], drawn[i], 0.2), w) for i in (0, 1, 3)]
    lengths = [np.sqrt(trees.dot(u, u)) for u in sent]
    assert {0.05: min(lengths) > 0.05, 0.4: min(lengths) < 0.4 < max(lengths), 100.0: max(lengths) < 100}[clip]
    mean = trees.weighted_mean([cut([u], clip)[0] for u in sent], [1, 1, 1])
    support.assert_params(one_round(algorithm, w=w).server.params, trees.add(w, mean))


def test_scaffold_clips_model_and_control_together(x64):
    """One norm over both; the clients' own controls are untouched."""
    model, oracle = support.models("softmax")
    algorithm, w = PrivateUpdates(jf.Scaffold(model, lr=0.2, **support.BATCH), 1.0, 0.0), support.parameters("softmax")
    drawn = support.batches(algorithm.inner, support.client_data(ROWS), 0)
    c, controls = scaffold.init_controls(w, 4)
    sent = []
    for i in (0, 1, 3):  # the round of one client tells what it sends
        moved, _, own = scaffold.scaffold_round(oracle, w, c, controls, ROWS, (i,), drawn, 0.2)
        sent.append(cut([trees.sub(moved, w), own[i]], 1.0))
    state = one_round(algorithm, w=w)
    mean = [trees.weighted_mean(parts, [1, 1, 1]) for parts in zip(*sent, strict=True)]
    support.assert_params(state.server.params, trees.add(w, mean[0]))
    support.assert_params(state.server.extra, trees.scale(3 / 4, mean[1]))
    _, _, own = scaffold.scaffold_round(oracle, w, c, controls, ROWS, (0, 1, 3), drawn, 0.2)
    for i in range(4):
        support.assert_params(support.row(state.clients, i), own[i])


@pytest.mark.parametrize("name", INNER)
def test_without_noise_and_with_a_wide_clip_it_is_the_inner_algorithm(name):
    """To the bit, over rounds, the report too."""
    inner, data = INNER[name](), support.client_data(ROWS)
    inner = inner.replace(weights="uniform") if name.startswith("APFL") else inner
    both = (support.play(algorithm, data) for algorithm in (inner, PrivateUpdates(inner, 1e6, 0.0)))
    for (*_, plain, info), (*_, private, private_info) in zip(*both, strict=True):
        support.assert_trees(private, plain, atol=0)
        support.assert_trees(private_info, info, atol=0)


@pytest.mark.parametrize("cohort", [(0, 1, 3), (2,)])
def test_the_sum_gets_noise_of_the_multiplier_times_the_clip(cohort):
    """So the mean has that over the cohort's size, normal, in every leaf, fresh in every round and for every seed."""
    inner, n = INNER["FedAvg"](), len(cohort)
    noise = []
    for seed in range(60):
        ways = [one_round(PrivateUpdates(inner, 0.5, m), cohort=cohort, seed=seed).server.params for m in (0.0, 3.0)]
        noise.append({k: np.asarray(ways[1][k] - ways[0][k]) * n / 1.5 for k in ways[0]})
    for k in ("kernel", "bias"):
        values = np.concatenate([a[k].ravel() for a in noise])
        assert kstest(values, "norm").pvalue > 1e-3
        assert kstest(values * 1.25, "norm").pvalue < 0.05 or k == "bias"  # 720 numbers notice a wrong deviation
    data = support.client_data(ROWS)
    first, second = (
        [s.server.params["bias"] for *_, s, _ in support.play(PrivateUpdates(inner, 1e-9, m), data)] for m in (0.0, 1e9)
    )
    steps = np.diff(np.asarray(second) - np.asarray(first), axis=0, prepend=0)
    assert len(np.unique(np.round(steps, 5))) == steps.size


@pytest.mark.parametrize("name", ["FedAvg", "Scaffold"])
def test_one_client_moves_the_mean_by_at_most_its_share_of_the_clip(name):
    """Whatever its rows: against the same client with other rows at most 2 clip / cohort, and that is reached."""
    inner = INNER[name]()
    huge, opposite = ([*ROWS[:3], (f * 1e3 * np.ones((1, 4)), np.array([0]))] for f in (1, -1))
    moves = {}
    for clip in (0.1, 1e6):
        states = [one_round(PrivateUpdates(inner, clip, 0.0), rows) for rows in (huge, opposite)]
        change = jax.tree.map(lambda a, b: a - b, *(s.server.params for s in states))
        moves[clip] = float(jf.trees.norm(change))
    assert moves[0.1] <= 2 * 0.1 / 3 * (1 + 1e-5)
    assert moves[1e6] > 10  # the control: without clipping it owns the model
    if name == "FedAvg":
        assert moves[0.1] > 0.9 * 2 * 0.1 / 3


def test_an_update_that_is_not_finite_counts_for_nothing():
    fine = {"a": jnp.array([3.0, 0.0]), "b": jnp.array(4.0)}
    np.testing.assert_allclose(clipped(fine, 1.0)["a"], [0.6, 0])
    np.testing.assert_array_equal(clipped(fine, 5.0)["b"], 4.0)
    np.testing.assert_array_equal(clipped({"a": jnp.zeros(2)}, 1.0)["a"], 0)
    for bad in (jnp.nan, jnp.inf, 1e30):
        cut = clipped({"a": jnp.array([1.0, bad]), "b": jnp.ones(2)}, 1.0)
        np.testing.assert_array_equal(cut["a"], 0)
        np.testing.assert_array_equal(cut["b"], 0)


def test_what_clients_keep_is_theirs():
    """APFL's v, alpha and reports after a round are those without privacy; w is not."""
    inner = INNER["APFL"]().replace(weights="uniform")
    plain, private = one_round(inner), one_round(PrivateUpdates(inner, 0.1, 1.0))
    support.assert_trees(private.clients, plain.clients, atol=0)
    assert not np.allclose(private.server.params["kernel"], plain.server.params["kernel"], atol=1e-2)


def test_it_runs_is_recorded_averaged_predicted_and_swept():
    """As any algorithm: the inner one's measures, a sweep over the noise that is its single runs."""
    data, inner = jf.ClientData.from_list(ROWS), INNER["APFL"]().replace(weights="uniform")
    algorithm = PrivateUpdates(inner, 0.5, 0.2)
    options = dict(num_rounds=2, every=2, progress=False)
    out, plain = (jf.run(0, a, data, **options) for a in (algorithm, inner))
    assert set(out.dataset) == set(plain.dataset)
    assert out.dataset.attrs["bytes_per_visit"] == plain.dataset.attrs["bytes_per_visit"]
    x = ROWS[1][0]
    np.testing.assert_array_equal(algorithm.predict(out.state, x, client=1), inner.predict(out.state, x, client=1))
    half = jf.run(0, algorithm, data, num_rounds=1, progress=False)
    rest = jf.run(0, algorithm, data, num_rounds=1, progress=False, state=half.state)
    support.assert_trees(rest.state, out.state, atol=0)
    averaged = jf.run(0, jf.averaging.Weighted(algorithm), data, **options)
    support.assert_trees(averaged.state.server.inner, out.state.server, atol=0)
    axes = {"noise_multiplier": [0.0, 0.2], "clip": [0.5, 1.0]}
    swept = jf.sweep(0, algorithm, data, axes=axes, **options)
    for name in ("server_train_loss", "update_norm"):
        point = swept[name].sel(noise_multiplier=0.2, clip=0.5, method="nearest").squeeze("seed", drop=True)
        np.testing.assert_allclose(point.values, out.dataset[name].values, rtol=1e-4)


WEIGHED = jf.FedAvg(support.softmax(), **support.BATCH)
REFUSED = {
    "weights: got 'examples', wanted 'uniform' inside PrivateUpdates": PrivateUpdates(WEIGHED),
    "inner: got LocalOnly, wanted one whose clients send": PrivateUpdates(support.ALGORITHMS["LocalOnly"]()),
    "inner: got Weighted": PrivateUpdates(jf.averaging.Weighted(INNER["FedAvg"]())),
    "inner: got PrivateUpdates": PrivateUpdates(PrivateUpdates(INNER["FedAvg"]())),
    "clip: got 0": PrivateUpdates(INNER["FedAvg"](), 0.0),
    "clip: got inf": PrivateUpdates(INNER["FedAvg"](), np.inf),
    "noise_multiplier: got -1": PrivateUpdates(INNER["FedAvg"](), 1.0, -1.0),
    "noise_multiplier: got shape": PrivateUpdates(INNER["FedAvg"](), 1.0, np.ones(2)),
    "lr: got -1": PrivateUpdates(INNER["FedAvg"]().replace(lr=-1.0)),
    "mix: got 'logits'": jf.averaging.Weighted(
        PrivateUpdates(INNER["APFL"]().replace(mix="logits", weights="uniform")), offset=1.0
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_breaks_the_promise_is_refused(message):
    with pytest.raises(ValueError, match=message):
        jf.run(0, REFUSED[message], jf.ClientData.from_list(ROWS), num_rounds=1, progress=False)


def test_clients_without_rows_are_refused():
    data = jf.ClientData.from_list(support.clients(sizes=(5, 0, 3)), allow_empty=True)
    with pytest.raises(ValueError, match="train.size: got a client without rows"):
        jf.run(0, PrivateUpdates(INNER["FedAvg"]()), data, num_rounds=1, progress=False)
