"""Sinks get every record's numbers while the run goes on, and can't harm it; packages are faked, so none is needed."""

import sys
import types

import numpy as np
import pytest

import jaxfed as jf
from jaxfed import results, sinks, testing
from jaxfed.cli import main

DATA = testing.ragged_data()
MODEL = jf.models.logistic_regression(3)
LINE = "apfl --dataset digits --num-clients 8 --classes-per-client 2 --rounds 2 --devices 1"


class Kept(list):
    """Keeps what it gets, and when: how many rounds had been recorded."""

    def record(self, round, values):
        self.append((round, values))


class Broken:
    calls = 0

    def record(self, round, values):
        self.calls += 1
        raise OSError("the disk is full")


def run(algorithm=None, data=DATA, **options):
    algorithm = jf.APFL(MODEL, local_steps=2, batch_size=4) if algorithm is None else algorithm
    return jf.run(0, algorithm, data, num_rounds=5, every=2, progress=False, **options)


def test_a_sink_gets_the_datasets_numbers_at_its_rounds():
    kept = Kept()
    ds = run(sinks=[kept]).dataset
    assert [round for round, _ in kept] == ds["round"].values.tolist() == [0, 2, 4, 5]
    frame = results.to_frame(ds).set_index("round")
    for round, values in kept:
        row = {name: float(value) for name, value in frame.loc[round].items()}
        assert values.keys() == {name for name in row if round or not np.isnan(row[name])}  # no info before the first
        for name, value in values.items():
            assert isinstance(value, float)
            assert value == pytest.approx(row[name], rel=1e-6, nan_ok=True), name
    assert {"time", "finite", "mixing_weight_mean_over_clients", "personal_train_loss_mean_over_clients"} <= set(values)
    assert "cohort" in kept[1][1] and "cohort" not in kept[0][1]


def test_clients_without_test_rows_are_left_out_and_one_that_diverged_is_not():
    dims = {"personal_test_loss": ("client",), "path": ("step",)}
    coords = {"test_size": ("client", np.array([3, 0, 1]))}
    record = {"personal_test_loss": np.array([1.0, np.nan, 2.0]), "path": np.ones(4), "drift": np.float32(0.5)}
    name = "personal_test_loss_mean_over_clients"
    assert sinks.figures(record, dims, coords) == {name: 1.5, "drift": 0.5}
    assert np.isnan(sinks.figures(record | {"personal_test_loss": np.full(3, np.nan)}, dims, coords)[name])


def test_a_failing_sink_is_given_up_with_one_warning_and_the_run_is_the_same():
    broken, kept = Broken(), Kept()
    with pytest.warns(UserWarning, match="Broken failed .OSError: the disk is full.; the run goes on") as said:
        out = run(sinks=[broken, kept])
    assert len(said) == 1 and broken.calls == 1 and len(kept) == 4
    assert out.dataset.identical(run().dataset)


def test_what_is_no_sink_is_refused():
    with pytest.raises(ValueError, match=r"sinks\[1\]: got str, wanted an object with record"):
        run(sinks=[Kept(), "tensorboard"])


def test_a_vertical_run_feeds_them_too():
    x = np.random.default_rng(0).normal(size=(20, 4))
    party = jf.vertical.split(x, (x[:, 0] > 0) * 1, num_parties=2, num_active=1, seed=0)
    kept = Kept()
    ds = run(jf.VFB2SGD(jf.vertical.Objective(), lr=0.1), party, sinks=(kept,)).dataset
    assert [values["objective"] for _, values in kept] == ds["objective"].values.tolist()


def fake(monkeypatch, written):
    """Stand-ins for both packages, which note in `written` what they are told."""

    class SummaryWriter:
        def __init__(self, folder):
            written.append(("open", folder))

        def add_scalar(self, name, value, step):
            written.append((name, value, step))

        def flush(self):
            written.append("flush")

        def close(self):
            written.append("close")

    log = types.SimpleNamespace(log=lambda values, step: written.append((values, step)),
                                finish=lambda: written.append("finish"))  # fmt: skip

    def init(**settings):
        written.append(settings)
        return log

    monkeypatch.setitem(sys.modules, "tensorboardX", types.SimpleNamespace(SummaryWriter=SummaryWriter))
    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(init=init))


def test_both_packages_are_called_as_they_are_documented(monkeypatch):
    written = []
    fake(monkeypatch, written)
    with sinks.TensorBoard("logs") as board:
        board.record(3, {"loss": 0.5, "accuracy": 0.25})
    assert written == [("open", "logs"), ("loss", 0.5, 3), ("accuracy", 0.25, 3), "flush", "close"]
    written.clear()
    with sinks.Wandb(project="p", mode="offline") as log:
        log.record(3, {"loss": 0.5})
    assert written == [{"project": "p", "mode": "offline"}, ({"loss": 0.5}, 3), "finish"]


def test_the_command_line_feeds_both_and_a_sink_that_cannot_be_closed_loses_nothing(monkeypatch, tmp_path, capsys):
    written = []
    fake(monkeypatch, written)
    monkeypatch.setattr(sys.modules["tensorboardX"].SummaryWriter, "close", lambda self: 1 / 0)
    line = [*LINE.split(), "--tensorboard", "logs", "--wandb", "project", "--out", str(tmp_path / "new")]
    assert main(line) == 0
    ds = jf.load(tmp_path / "new").dataset
    name = "personal_test_accuracy"
    means = results.mean_over_clients(ds[name]).values
    board = [item for item in written if isinstance(item, tuple) and item[0] == f"{name}_mean_over_clients"]
    assert [step for *_, step in board] == [0, 1, 2]
    np.testing.assert_allclose([value for _, value, _ in board], means, rtol=1e-6)
    logged = [item for item in written if isinstance(item, tuple) and isinstance(item[0], dict)]
    np.testing.assert_allclose([values[f"{name}_mean_over_clients"] for values, _ in logged], means, rtol=1e-6)
    assert {"project": "project"} in written and written[-1] == "finish"
    assert "TensorBoard failed (ZeroDivisionError" in capsys.readouterr().err


@pytest.mark.parametrize(("option", "package"), [("--tensorboard", "tensorboardX"), ("--wandb", "wandb")])
def test_a_missing_package_is_said_before_the_run(option, package, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr(jf, "run", lambda *_, **__: pytest.fail("it ran"))
    assert main([*LINE.split(), option, "x"]) == 2
    err = capsys.readouterr().err
    assert f"sinks: got no package {package}, wanted it installed" in err and 'pip install -e ".[track]"' in err
