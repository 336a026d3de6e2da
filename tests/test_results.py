"""What a Dataset holds, against NumPy: every client each time, both means, the record before the first round."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxfed as jf
from jaxfed import results
from tests import support
from tests.reference import apfl
from tests.test_run import ALGORITHM, SIZES, TEST, TRAIN, run

TEST_SIZES = (3, 2, 4, 0, 1)


@pytest.fixture(scope="module")
def out():
    return run(num_rounds=4, every=2, validation=TEST)


def test_shape_and_names(out):
    ds = out.dataset
    assert dict(ds.sizes) == {"round": 3, "client": 5}
    assert ds["round"].values.tolist() == [0, 2, 4] and ds.client.values.tolist() == [0, 1, 2, 3, 4]
    assert ds.train_size.values.tolist() == list(SIZES) and ds.test_size.values.tolist() == list(TEST_SIZES)
    parts = [f"{m}_{p}_{q}" for m in ("server", "personal") for p in ("train", "validation", "test")
             for q in ("loss", "accuracy")]  # fmt: skip
    assert set(ds) == {*parts, "mixing_weight", "finite", "cohort", "visits", "update_norm", "drift", "alpha_gradient"}
    assert all(ds[p].dims == ("round", "client") for p in [*parts, "mixing_weight"])
    assert ds.attrs["parameters"] == 15 and ds.attrs["bytes_per_visit"] == 2 * 15 * 4
    assert "APFL(" in ds.attrs["algorithm"] and "UniformCohort(" in ds.attrs["scheduler"]
    assert ds.finite.values.all()


def test_metrics_of_every_client_agree_with_numpy(out):
    """Two of five clients train a round, but all are evaluated, on their own rows, with their own alpha and v."""
    oracle, (server, clients) = support.models("softmax")[1], out.state
    w = {k: np.asarray(p, float) for k, p in server.params.items()}
    for part, data in (("train", TRAIN), ("test", TEST), ("validation", TEST)):
        for i in range(5):
            v = {k: np.asarray(p, float)[i] for k, p in clients.v.items()}
            personal = apfl.personal(w, v, float(clients.alpha[i]))
            x, y = data.client(i)
            for name, params in (("server", w), ("personal", personal)):
                loss, accuracy = (out.dataset[f"{name}_{part}_{q}"].values[-1, i] for q in ("loss", "accuracy"))
                if len(y) == 0:
                    assert np.isnan(loss) and np.isnan(accuracy)
                else:
                    np.testing.assert_allclose(loss, oracle.loss(params, x, y), rtol=1e-5)
                    np.testing.assert_allclose(accuracy, oracle.accuracy(params, x, y), atol=1e-6)
    np.testing.assert_array_equal(out.dataset.mixing_weight.values[-1], clients.alpha)


def test_the_record_before_the_first_round(out):
    """Zero parameters: every loss is log 3, every alpha its first value, and nobody has trained."""
    first = out.dataset.isel(round=0)
    for name in ("server_train_loss", "personal_train_loss"):
        np.testing.assert_allclose(first[name], np.log(3), rtol=1e-6)
    assert (first.mixing_weight == 0.5).all() and first.time == 0
    assert all(np.isnan(first[name]) for name in ("cohort", "update_norm", "drift", "alpha_gradient"))
    assert first.visits == 0
    assert out.dataset.cohort.values[1:].tolist() == [2, 2] and out.dataset.visits.values[1:].tolist() == [4, 8]


def test_personal_metrics_follow_the_personal_models(out):
    """Another v of client 2 moves client 2's personal metrics and nothing else (PFLlib #51)."""
    data = TRAIN.with_parts(TEST).place(ALGORITHM, jf.horizontal.FullParticipation(5))
    v = jax.tree.map(lambda x: x.at[2].add(1.0 + jnp.arange(x[2].size).reshape(x[2].shape)), out.state.clients.v)
    moved = out.state._replace(clients=out.state.clients._replace(v=v))
    evaluate = jax.jit(jf.horizontal.measures.evaluate)
    before, after = (evaluate(ALGORITHM, s, data) for s in (out.state, moved))
    for name in before:
        same = np.asarray((before[name] == after[name]) | np.isnan(before[name]))
        assert same.tolist() == ([True] * 5 if name.startswith("server") or name.endswith("accuracy") and same.all()
                                 else [True, True, False, True, True]), name  # fmt: skip
    assert before["personal_test_loss"][2] != after["personal_test_loss"][2]


def test_summaries_agree_with_numpy(out):
    ds = out.dataset
    values, sizes = ds.personal_test_accuracy.values[-1], np.array(TEST_SIZES)
    have = sizes > 0
    by_example = np.sum(values[have] * sizes[have]) / sizes.sum()
    np.testing.assert_allclose(results.mean_over_clients(ds.personal_test_accuracy)[-1], values[have].mean(), rtol=1e-6)
    np.testing.assert_allclose(results.mean_over_examples(ds.personal_test_accuracy)[-1], by_example, rtol=1e-6)
    np.testing.assert_allclose(results.worst(ds.personal_test_accuracy)[-1], values[have].min())
    np.testing.assert_allclose(results.worst(ds.server_test_loss)[-1], np.nanmax(ds.server_test_loss.values[-1]))
    np.testing.assert_allclose(results.decile(ds.personal_test_accuracy)[-1], np.quantile(values[have], 0.1), rtol=1e-6)
    np.testing.assert_allclose(results.spread(ds.personal_test_accuracy)[-1], values[have].std(), rtol=1e-5)
    summary = results.summary(ds)
    np.testing.assert_allclose(summary["mean_over_examples"], by_example, rtol=1e-6)
    np.testing.assert_allclose(summary["worst_client"], values[have].min())
    # all test rows pooled, each with its own client's model: the same number (PFLlib #115)
    right = [np.argmax(ALGORITHM.predict(out.state, TEST.client(i)[0], client=i), axis=1) == TEST.client(i)[1]
             for i in range(5) if sizes[i]]  # fmt: skip
    np.testing.assert_allclose(np.concatenate(right).mean(), by_example, rtol=1e-6)
    np.testing.assert_allclose(results.bytes_sent(ds), [0, 4 * 120, 8 * 120])


def test_best_and_first_rounds(out):
    ds = out.dataset
    mean = ds.personal_validation_accuracy.mean("client").values
    assert results.best_round(ds) == ds["round"].values[mean.argmax()]
    assert results.best_round(ds, "server_train_loss") == 4
    assert results.rounds_to(ds, 2.0) is None and results.rounds_to(ds, 0.0) == 0
    with pytest.raises(ValueError, match="by: got 'personal_test_accuracy', wanted a quantity of validation"):
        results.best_round(ds, "personal_test_accuracy")
    with pytest.raises(ValueError, match="by: got 'loss', wanted one of"):
        results.best_round(ds, "loss")


def test_saved_runs_come_back(out, tmp_path):
    out.save(tmp_path / "a")
    back = jf.load(tmp_path / "a")
    assert back.dataset.identical(out.dataset)
    support.assert_trees(back.state, jax.tree.map(np.asarray, out.state), atol=0)
    with pytest.raises(FileExistsError, match="path: got .*a, which holds results already"):
        out.save(tmp_path / "a")
    out.save(tmp_path / "a", overwrite=True)
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == ["results.nc", "state.pkl"]
    with pytest.raises(FileNotFoundError, match="path: got"):
        jf.load(tmp_path / "b")
    (tmp_path / "a" / "state.pkl").write_bytes(b"\x80\x04cos\nsystem\n.")
    with pytest.raises(ValueError, match="wanted a state written by save .*os.system, which is not allowed"):
        jf.load(tmp_path / "a")


def test_measures_of_the_user():
    """Added to the data's own, on all clients; a name that is taken already is replaced."""

    def sizes(algorithm, state, data):
        return {"rows": data.train.size.astype(float), "mixing_weight": jnp.zeros(5)}

    extra = jf.Measure(sizes, ("client",))
    norm = jf.Measure(lambda algorithm, state, data: {"norm": jf.trees.norm(state.server.params)})
    ds = run(num_rounds=1, measures=[extra, norm]).dataset
    assert ds.rows.values.tolist() == [list(SIZES)] * 2 and (ds.mixing_weight == 0).all()
    assert ds.norm.dims == ("round",) and ds.norm[0] == 0 and ds.norm[1] > 0
    with pytest.raises(ValueError, match=r"measures: got shape \(\) for 'norm', wanted axes"):
        run(num_rounds=1, measures=[norm._replace(dims=("client",))])


def test_regression_has_no_accuracy():
    data = jf.ClientData.from_list([(np.ones((3, 2)), np.arange(3.0)), (np.ones((1, 2)), np.zeros(1))])
    ds = jf.run(0, jf.FedAvg(jf.models.linear_regression(), batch_size=None), data, num_rounds=1).dataset
    assert not [name for name in ds if "accuracy" in str(name)]
    np.testing.assert_allclose(ds.server_train_loss[0], [5 / 6, 0])
    assert results.summary(ds, "train")["worst_client"] == ds.personal_train_loss[1].max()
