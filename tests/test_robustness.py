"""What an adversary found: each was silent or lost work once."""

import os
import pickle
import signal
import threading

import flax.linen as nn
import numpy as np
import pytest

import jaxfed as jf
from jaxfed import checkpoint, results, testing

MODEL = jf.models.logistic_regression(3)
FEDAVG = jf.FedAvg(MODEL, local_steps=2, batch_size=4)


@pytest.fixture(scope="module")
def data():
    return testing.ragged_data(sizes=(5, 6, 7))


def test_ctrl_c_amid_the_setup_of_a_comparison_keeps_what_is_finished(data):
    """The second algorithm's setup is interrupted, long before its first round."""

    class Interrupting(jf.FedAvg):
        def message(self, server):  # called in the setup of a run
            os.kill(os.getpid(), signal.SIGINT)
            return server.params

    assert threading.current_thread() is threading.main_thread()
    slow = Interrupting(MODEL, local_steps=2, batch_size=4)
    with pytest.warns(UserWarning, match="interrupted"):
        ds = jf.compare({"a": FEDAVG, "b": slow}, 0, data, num_rounds=3, progress=False)
    assert ds["algorithm"].values.tolist() == ["a"] and ds.sizes["round"] == 4


def test_comparison_checks_all_before_it_runs_any(data):
    started = []

    class Counting(jf.FedAvg):
        def message(self, server):
            started.append(1)
            return server.params

    with pytest.raises(ValueError, match="^lr: got -1"):
        jf.compare({"a": Counting(MODEL), "b": FEDAVG.replace(lr=-1.0)}, 0, data, num_rounds=1)
    assert not started


@pytest.mark.parametrize(
    ("measures", "message"),
    [
        ([jf.Measure(lambda a, s, d: {"q": np.zeros(2)}, ("client",))], r"measures: got shape \(2,\) for 'q'"),
        ([jf.Measure(lambda a, s, d: {"drift": np.zeros(())})], "measures: got the name 'drift'"),
        ([jf.Measure(lambda a, s, d: {"train_size": np.zeros(())})], "measures: got the name 'train_size'"),
        ([jf.Measure(lambda a, s, d: {"a/b": np.zeros(())})], "measures: got the name 'a/b'"),
        ([jf.Measure(lambda a, s, d: np.zeros(()))], "measures: got a measure that returns"),
        ([jf.Measure(lambda a, s, d: {"q": np.zeros(3)}, ("round",))], r"measures\[0\]: got"),
        (jf.Measure(lambda a, s, d: {}), r"measures\[0\]: got"),
    ],
)
def test_bad_measures_are_refused_before_the_first_round(data, measures, message):
    with pytest.raises(ValueError, match=message):
        jf.run(0, FEDAVG, data, num_rounds=1, measures=measures, progress=False)


def test_a_save_cut_short_is_noticed(data, tmp_path, monkeypatch):
    jf.run(0, FEDAVG, data, num_rounds=1, progress=False).save(tmp_path)
    more = jf.run(0, FEDAVG, data, num_rounds=3, progress=False)
    monkeypatch.setattr(results, "save_dataset", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        more.save(tmp_path, overwrite=True)
    with pytest.raises(ValueError, match="results end at round 1 and whose state at round 3"):
        jf.load(tmp_path)


def test_a_state_file_can_build_nothing_but_arrays_and_named_tuples(tmp_path):
    victim = tmp_path / "victim"
    victim.write_bytes(b"data")

    class Evil:
        def __reduce__(self):
            return np.memmap, (str(victim), "uint8", "w+", 0, (4,))

    (tmp_path / "state.pkl").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(ValueError, match="memmap, which is not allowed"):
        checkpoint.load_state(tmp_path / "state.pkl")
    assert victim.read_bytes() == b"data"


def test_integers_beyond_32_bits_are_refused():
    x, y = np.ones((4, 2)), np.arange(4) % 3
    for bad_x, bad_y in ((x, y + 2**32), (x, y - 2**32), (np.full((4, 2), 2**32 + 3), y)):
        with pytest.raises(ValueError, match="wanted integers of 32 bits"):
            jf.ClientData.from_indices(bad_x, bad_y, [range(4)])


def test_a_diverged_client_is_not_left_out_of_the_means():
    x = np.ones((2, 2))
    clients = [(x, [0.0, 1.0]), (x * 1e18, [0.0, 1.0]), (np.zeros((0, 2)), np.zeros(0))]
    train = jf.ClientData.from_list([(a, np.asarray(b)) for a, b in clients], allow_empty=True)
    local = jf.LocalOnly(jf.models.linear_regression(), lr=0.01, batch_size=None)
    with pytest.warns(UserWarning, match="diverged"):
        ds = jf.run(0, local, train, num_rounds=6, progress=False).dataset
    figures = results.summary(ds)
    assert all(np.isnan(figures[key]) for key in ("mean_over_clients", "mean_over_examples", "worst_client"))
    first = results.summary(ds, round=0)  # nan of the client without rows is left out
    np.testing.assert_allclose([first["mean_over_clients"], first["worst_client"]], 0.25)


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_seeds_that_would_be_another_seeds_numbers_are_refused(seed, data):
    with pytest.raises(ValueError, match=f"^seed: got {seed}, wanted 0 to 4294967295"):
        jf.run(seed, FEDAVG, data, num_rounds=1)


def test_scaffolds_update_norm_is_the_models(data):
    """From zero controls its first round is FedAvg's with uniform weights."""
    fields = dict(local_steps=2, batch_size=4)
    one = jf.run(0, jf.Scaffold(MODEL, **fields), data, num_rounds=1, progress=False).dataset
    two = jf.run(0, jf.FedAvg(MODEL, weights="uniform", **fields), data, num_rounds=1, progress=False).dataset
    for name in ("update_norm", "drift"):
        np.testing.assert_allclose(one[name][1], two[name][1], rtol=1e-5)


def test_layers_that_draw_are_refused(data):
    class Net(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.Dropout(0.5, deterministic=False)(nn.Dense(3)(x))

    with pytest.raises(ValueError, match="^model.net: got a module whose layers draw random numbers"):
        jf.run(0, jf.FedAvg(jf.Model(Net())), data, num_rounds=1)


def test_summary_without_test_rows_is_of_the_training_rows(data):
    out = jf.run(0, FEDAVG, data.train, num_rounds=1, progress=False)
    assert results.summary(out.dataset) == results.summary(out.dataset, part="train")
    with pytest.raises(ValueError, match="^part, model: got 'test'"):
        results.summary(out.dataset, part="test")
    assert "array" not in repr(out).lower() and len(repr(out)) < 500


def test_permissions_are_those_of_a_new_file(data, tmp_path):
    jf.run(0, FEDAVG, data, num_rounds=1, progress=False).save(tmp_path)
    (tmp_path / "new").write_text("")
    modes = {path.name: path.stat().st_mode for path in tmp_path.iterdir()}
    assert len(set(modes.values())) == 1, modes
