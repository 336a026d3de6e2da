"""The command line's vertical runs: their files, tables, predictions, schedules, and what is refused in one line."""

import subprocess
import sys

import jax
import numpy as np
import pytest
import scipy.sparse
from sklearn.datasets import dump_svmlight_file

import jaxfed as jf
from jaxfed.cli import main
from jaxfed.commands import settings, vertical, vertical_schedule
from jaxfed.commands.parse import parse
from jaxfed.vertical import Epochs, Objective, Seconds
from tests.test_cli import DRIVER

PARTIES = "--parties 4 --active 2 --data-seed 3"
RUN = f"vfb2 --method saga {PARTIES} --lr 0.03 --epochs 2 --every 0.5 --straggler 0.4 --straggler-party 1"


def command(line, *more):
    return main([*line.split(), *map(str, more)])


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder with two epochs of VFB2-SAGA, and the file of its schedule."""
    folder = tmp_path_factory.mktemp("runs") / "saga"
    file = folder.parent / "schedule.npz"
    targets = "--target-accuracy 0.9 --target-objective 0.2"
    assert command(f"{RUN} {targets} --quiet --out {folder} --export-schedule {file}") == 0
    return folder


def cancer():
    ex = jf.datasets.load("breast_cancer")
    party = jf.vertical.split(ex.x, ex.y, num_parties=4, num_active=2, seed=3)
    return party, party.like(ex.x_test, ex.y_test)


def test_a_run_is_the_librarys_and_its_table_tells_the_last_record(saved, capsys):
    party, test = cancer()
    saga = jf.VFB2SAGA(Objective("logistic", "l2", 1e-4), lr=0.03)
    scheduler = jf.vertical.BilevelAsync(party).slow(1, update=1.4)
    out = jf.run(0, saga, party, test=test, scheduler=scheduler, num_rounds=Epochs(2), every=Epochs(0.5))
    run = jf.load(saved)
    ds = run.dataset
    assert sorted(path.name for path in saved.iterdir()) == ["figure.png", "results.nc", "settings.json", "state.pkl"]
    assert ds.drop_attrs().identical(out.dataset.drop_attrs())
    np.testing.assert_array_equal(run.state.weights, out.state.weights)
    (saved / "figure.png").unlink()
    assert command(f"show {saved}") == 0
    shown, last = capsys.readouterr().out, ds.isel(round=-1)
    assert (saved / "figure.png").read_bytes().startswith(b"\x89PNG")
    lines = shown.splitlines()
    assert lines[0] == "vfb2 saga on breast_cancer: lr 0.03, 4 parties, 2 active, async, party 1 40% slower (update)"
    assert lines[1].split() == ["epoch", "2,", "tick", str(int(last["round"])), "train", "test"]
    rows = {line.split()[0]: line.split()[1:] for line in lines}
    for name, kind in (("accuracy", "accuracy"), ("AUC", "auc")):
        wanted = [float(last[f"{part}_{kind}"]) for part in ("train", "test")]
        np.testing.assert_allclose(np.array(rows[name], float), wanted, atol=6e-5)
    assert f"objective {float(last['objective']):.6g}, gradient norm" in shown
    assert f"{int(last['dominated_updates']):,} dominated updates, {int(last['block_updates']):,} block" in shown
    assert f"sent: {int(last['messages']):,} messages, {float(last['bytes']) / 1e3:.3g} kB" in shown
    at = ds.isel(round=int(np.argmax(ds["objective"].values <= 0.2)))
    assert f"objective 0.2: epoch {float(at['epochs']):.3g}, {float(at['time']):.6g} s, after" in shown
    assert "test accuracy 0.9: epoch " in shown
    assert command(f"show {saved} --target-objective 0") == 0 and "objective 0: not reached" in capsys.readouterr().out


def test_the_exported_schedule_is_the_one_that_ran(saved):
    ds = jf.load(saved).dataset
    with np.load(saved.parent / "schedule.npz") as table:
        assert table["read"].shape == table["apply"].shape == (len(table["time"]), 2, 4)
        assert table["active"].tolist() == [0, 1] and int(table["num_ticks"]) == int(ds["round"][-1])
        assert table["complete"].sum() == int(ds["dominated_updates"][-1])
        assert (table["apply"] >= 0).sum() == int(ds["block_updates"][-1])
        assert table["time"][-1] == pytest.approx(float(ds["time"][-1]))


def test_predicts_as_the_run_was_evaluated(saved, tmp_path, capsys):
    last = jf.load(saved).dataset.isel(round=-1)
    for part in ("test", "train"):
        assert command(f"predict {saved} --rows {part}") == 0
        out = capsys.readouterr()
        lines = out.out.splitlines()
        table = np.array([line.split(",") for line in lines[1:]], float)
        assert lines[0] == "row,label,score,prediction"
        accuracy, auc = (float(last[f"{part}_{kind}"]) for kind in ("accuracy", "auc"))
        assert (table[:, 1] == table[:, 3]).mean() == pytest.approx(accuracy, abs=1e-6)
        np.testing.assert_array_equal(table[:, 3], table[:, 2] > 0)
        assert f"{len(table)} {part} rows: accuracy {accuracy:.4f}, AUC {auc:.4f}" in out.err
    x = jf.datasets.load("breast_cancer").x
    np.save(tmp_path / "x.npy", x)
    np.savetxt(tmp_path / "plain.csv", x, delimiter=",")
    np.savetxt(tmp_path / "names.csv", x, delimiter=",", header=",".join(f"c{i}" for i in range(30)), comments="")
    wanted = [[line.split(",")[0], *line.split(",")[2:]] for line in lines]
    for name in ("x.npy", "plain.csv", "names.csv"):
        assert command(f"predict {saved} --x {tmp_path}/{name} --out {tmp_path}/y.csv") == 0
        got = [line.split(",") for line in (tmp_path / "y.csv").read_text().splitlines()]
        assert got[0] == ["row", "score", "prediction"] == wanted[0]
        np.testing.assert_allclose(np.array(got[1:], float), np.array(wanted[1:], float), rtol=1e-4, atol=1e-4)


def test_continues_as_one_run_would(tmp_path):
    line = f"vfb2 --method saga {PARTIES} --lr 0.03 --scheduler sync --jitter 0 --quiet"
    assert command(f"{line} --ticks 6 --every 2 --out {tmp_path}/whole") == 0
    assert command(f"{line} --ticks 4 --every 2 --out {tmp_path}/half") == 0
    assert command(f"vfb2 --continue-from {tmp_path}/half --ticks 2 --quiet --out {tmp_path}/rest") == 0
    whole, rest = jf.load(tmp_path / "whole"), jf.load(tmp_path / "rest")
    assert rest.dataset["round"].values.tolist() == [4, 5, 6]
    for name in ("objective", "test_auc", "dominated_updates", "bytes", "epochs"):
        np.testing.assert_array_equal(whole.dataset[name][-2:], rest.dataset[name][::2])
    np.testing.assert_allclose(whole.dataset["time"][-2:], rest.dataset["time"][::2])
    states = [run.state._replace(totals=()) for run in (whole, rest)]
    for a, b in zip(*map(jax.tree.leaves, states), strict=True):
        np.testing.assert_array_equal(a, b)
    assert settings.load(tmp_path / "rest")[1].method.lr == 0.03


def test_real_targets(tmp_path, capsys):
    line = f"vfb2 --dataset diabetes {PARTIES} --intercept --scheduler fixed --read-delay 1 --message-delay 2 --x64"
    with jax.enable_x64(True):
        assert command(f"{line} --epochs 8 --seed 5 --out {tmp_path}/new") == 0
        shown = capsys.readouterr().out
        ds = jf.load(tmp_path / "new").dataset
        assert command(f"predict {tmp_path}/new") == 0
    jax.config.update("jax_enable_x64", False)
    out = capsys.readouterr()
    rows = np.column_stack([jf.datasets.load("diabetes").x, np.ones(353)])
    lr = 1 / (4 * (2 * (rows**2).sum(1).mean() + 1e-4))
    assert shown.startswith(f"vfb2 svrg on diabetes: lr {lr:.3g}, 4 parties, 2 active, fixed delays of 1 and 2 ticks")
    assert ds.attrs["x64"] == 1 and ds["objective"].dtype == np.float64
    rmse = float(ds["test_rmse"][-1])
    assert 40 < rmse < 65 and f"root mean squared error  {float(ds['train_rmse'][-1]):.4f}  {rmse:.4f}" in shown
    assert out.out.startswith("row,label,prediction\n") and f"root mean squared error {rmse:.4f}" in out.err


def test_a_sparse_file(tmp_path, capsys):
    rng = np.random.default_rng(0)
    x = scipy.sparse.random_array((60, 1200), density=0.02, rng=rng, format="csr", dtype=np.float32)
    dump_svmlight_file(x, np.where(np.asarray(x.sum(1)) > np.median(x.sum(1)), 1, -1), str(tmp_path / "rows.txt"))
    line = f"vfb2 --method sgd --batch-size 2 --dataset libsvm:{tmp_path}/rows.txt --parties 3 --active 1"
    assert command(f"{line} --scale maxabs --seconds 60 --out {tmp_path}/new") == 0
    assert "saved in" in capsys.readouterr().out
    assert len(jf.load(tmp_path / "new").dataset["round"]) == 21
    columns = jf.datasets.load(f"libsvm:{tmp_path}/rows.txt").x.shape[1]
    scipy.sparse.save_npz(tmp_path / "x.npz", scipy.sparse.csr_array(x[:7, :columns]))
    assert command(f"predict {tmp_path}/new --x {tmp_path}/x.npz") == 0
    assert len(capsys.readouterr().out.splitlines()) == 8


def test_options_reach_the_method_and_the_scheduler():
    party, _ = cancer()
    words = f"vfb2 {PARTIES} --lr 0.5 --batch-size 3 --l2 0.25 --loss robust --regularizer nonconvex"
    objective = Objective("robust", "nonconvex", 0.25)
    times = dict(update=2.0, reply=0.5, link=0.3, jitter=0.2, threads=5, seed=7)
    said = "--update-time 2 --reply-time 0.5 --link-time 0.3 --jitter 0.2 --threads 5 --schedule-seed 7"
    on = jf.vertical.BilevelAsync(party, tau1=3, tau2=0, strict=True, **times)
    sync = jf.vertical.Synchronous(party, **times)
    cases = {
        f"--method sgd --scheduler async --tau1 3 --tau2 0 --strict {said} --straggler 0.5 --straggler-kind reply": (
            jf.VFB2SGD(objective, 0.5, 3), on.slow(3, reply=1.5),
        ),
        f"--method svrg --epoch-length 40 --scheduler sync {said} --straggler 9 --straggler-kind start"
        " --straggler-party 2": (jf.VFB2SVRG(objective, 0.5, 3, 40), sync.slow(2, start=9.0)),
        "--method svrg --forward-only --scheduler fixed --read-delay 3 --message-delay 1 --update-time 2": (
            jf.VFB2SVRG(objective, 0.5, 3, backward=False), jf.vertical.FixedDelay(party, 3, 1, tick=2.0),
        ),
    }  # fmt: skip
    for line, (algorithm, scheduler) in cases.items():
        _, options = parse([*words.split(), *line.split()])
        assert vertical.method(options) == algorithm, line
        assert vertical_schedule.scheduler(options.schedule, party) == scheduler, line


def test_lengths():
    wanted = {
        "": (Epochs(20), Epochs(1)),
        "--epochs 3": (Epochs(3), Epochs(1)),
        "--epochs 3 --every 0.5": (Epochs(3), Epochs(0.5)),
        "--ticks 60": (60, 3),
        "--ticks 7": (7, 1),
        "--ticks 60 --every 4": (60, 4),
        "--seconds 50": (Seconds(50), Seconds(2.5)),
        "--seconds 50 --every 10": (Seconds(50), Seconds(10)),
    }
    for line, lengths in wanted.items():
        assert vertical_schedule.lengths(parse(["vfb2", *line.split()])[1].length) == lengths, line


def test_the_figure_shows_the_datasets_numbers(saved):
    ds = jf.load(saved).dataset
    by_epoch, by_time, quality = jf.plots.vertical_run({"a": ds, "b": ds.isel(round=slice(3))}, optimum=0.05)
    for ax, x in ((by_epoch, "epochs"), (by_time, "time")):
        np.testing.assert_array_equal(ax.lines[0].get_xdata(), ds[x])
        np.testing.assert_array_equal(ax.lines[0].get_ydata(), ds["objective"] - 0.05)
        assert len(ax.lines[1].get_xdata()) == 3 and ax.get_yscale() == "log"
    np.testing.assert_array_equal(quality.lines[0].get_ydata(), ds["test_accuracy"])
    assert [text.get_text() for text in by_epoch.get_legend().get_texts()] == ["a", "b"]
    with pytest.raises(ValueError, match="metric: got 'rmse', wanted one that was recorded of the run"):
        jf.plots.vertical_run(ds, metric="rmse")
    with pytest.raises(ValueError, match="runs: got the dims round, wanted the Dataset of a vertical run"):
        jf.plots.vertical_run(ds[["objective"]])


def test_a_diverging_run_warns_and_is_kept(tmp_path, capsys):
    line = f"vfb2 --method sgd --dataset diabetes {PARTIES} --lr 100 --scheduler sync --ticks 60 --out {tmp_path}/new"
    assert command(line) == 0
    out = capsys.readouterr()
    assert out.err.startswith("jaxfed: warning: diverged") and len(out.err.splitlines()) == 1
    assert "diverged: not finite from tick" in out.out and (tmp_path / "new" / "figure.png").exists()


def test_help_needs_no_jax():
    code = "import sys, jaxfed.cli\ntry: jaxfed.cli.main(['vfb2', '--help'])\nfinally: print('jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "--straggler-kind" in done.stdout and done.stdout.splitlines()[-1] == "False"


def test_ctrl_c_keeps_what_is_finished(tmp_path):
    line = f"vfb2 --method sgd {PARTIES} --scheduler fixed --ticks 3000000 --out {tmp_path}/new"
    done = subprocess.run([sys.executable, "-c", DRIVER, *line.split()], capture_output=True, text=True, timeout=120)
    assert done.returncode == 130, done.stderr
    assert done.stderr.startswith("jaxfed: warning: interrupted: returning the first ")
    run = jf.load(tmp_path / "new")
    assert 0 < int(run.dataset["round"][-1]) <= int(run.state.round) < 3000000


BAD = {
    "vfb2 --parties 0": "parties: got 0, wanted a whole number of at least 1",
    "vfb2 --active 9": "active: got 9, wanted at most 8, the parties",
    "vfb2 --parties 31": "parties: got 31, wanted at most 30, the columns of breast_cancer",
    "vfb2 --dataset digits": "dataset: got 'digits', whose rows have the shape (8, 8, 1), wanted a table",
    "vfb2 --dataset brest_cancer": "dataset: got 'brest_cancer', wanted one of",
    "vfb2 --dataset libsvm:nowhere": "libsvm: no file 'nowhere'",
    "vfb2 --dataset libsvm:FOLDER/three.txt --parties 2 --active 1": "which has 3 classes, wanted two, or real targets",
    "vfb2 --method sdg": "method: got 'sdg', wanted one of 'sgd', 'svrg', 'saga' (did you mean sgd?)",
    "vfb2 --lr -1": "lr: got -1, wanted at least 0",
    "vfb2 --l2 -1": "l2: got -1, wanted at least 0",
    "vfb2 --batch-size 0": "batch_size: got 0",
    "vfb2 --epoch-length 0": "epoch_length: got 0",
    "vfb2 --method saga --epoch-length 9": "epoch_length: got 9 with --method saga, wanted --method svrg",
    "vfb2 --dataset diabetes --loss logistic": "train.y: got 194 values, 25 to 346, wanted labels of two classes",
    "vfb2 --epochs 2 --ticks 3": "length: got --epochs and --ticks, wanted one of --epochs, --ticks, --seconds",
    "vfb2 --epochs 0": "epochs: got 0, wanted more than 0",
    "vfb2 --ticks 0": "ticks: got 0, wanted a whole number of at least 1",
    "vfb2 --ticks 9 --every 0.5": "every: got 0.5 with --ticks, wanted a whole number of ticks",
    "vfb2 --seconds nan": "seconds: got nan",
    "vfb2 --every -1": "every: got -1",
    "vfb2 --tau1 121": "tau1: got 121, wanted at most 120",
    "vfb2 --tau2 3 --scheduler sync": "tau2: got 3 with --scheduler sync, wanted --scheduler async",
    "vfb2 --read-delay 1": "read_delay: got 1 with --scheduler async, wanted --scheduler fixed",
    "vfb2 --scheduler fixed --message-delay 121": "message_delay: got 121, wanted 0 to 120",
    "vfb2 --scheduler fixed --straggler 1": "straggler: got 1.0 with --scheduler fixed, wanted --scheduler sync",
    "vfb2 --straggler -1": "straggler: got -1, wanted at least 0",
    "vfb2 --straggler 1 --straggler-party 8": "straggler_party: got 8, wanted 0 to 7",
    "vfb2 --straggler-party 1": "straggler_party: got 1, wanted --straggler with it",
    "vfb2 --straggler-kind link": "straggler_kind: got link, wanted --straggler with it",
    "vfb2 --ticks 99999999999": "num_rounds: got 99999999999, 1e+11 ticks or updates and more, wanted at most 1e+08",
    "vfb2 --dataset libsvm:FOLDER/few.txt": "4 rows of which the rarest class has 1, wanted two rows of each class",
    "vfb2 --update-time 0": "update_time: got 0, wanted more than 0 seconds",
    "vfb2 --jitter 1": "jitter: got 1, wanted 0 to 0.57",
    "vfb2 --threads 0": "threads: got 0",
    "vfb2 --target-accuracy 90": "target_accuracy: got 90, wanted 0 to 1",
    "vfb2 --target-accuracy 0.9 --dataset diabetes": "target_accuracy: got 0.9 for diabetes with the loss squared",
    "vfb2 --export-schedule FOLDER/x.csv": "wanted a name that ends in .npz",
    "vfb2 --export-schedule FOLDER/schedule.npz": "which is there already; wanted another, or --overwrite",
    "vfb2 --out SAVED": "holds results.nc already",
    "vfb2 --continue-from SAVED --parties 5": "parties: got 5, wanted 4, as in",
    "vfb2 --continue-from SAVED --method sgd": "method: got sgd, wanted saga, as in",
    "vfb2 --continue-from SAVED --loss robust": "loss: got robust, wanted logistic, as in",
    "vfb2 --continue-from SAVED --batch-size 2": "state.memory.old: got float32[2, 1], wanted float32[2, 2]",
    "apfl --continue-from SAVED": "continue_from: got a run of 'vfb2'",
    "predict SAVED --client 0": "client: got 0, wanted none: a vertical run has parties",
    "predict SAVED --server": "server: got True, wanted none",
    "predict SAVED --rows validation": "rows: got 'validation', wanted train or test",
    "predict SAVED --x SAVED/settings.json": "wanted a NumPy file of one array",
    "predict SAVED --x FOLDER/three.csv": "x: got float64 of shape (2, 3), wanted numbers of shape (rows, 30)",
    "predict SAVED --x FOLDER/words.csv": "words.csv, wanted a NumPy file of one array, or a .csv file of numbers",
    "show SAVED --target-accuracy 2": "target_accuracy: got 2, wanted 0 to 1",
}


@pytest.mark.parametrize("line", BAD)
def test_bad_input_is_one_line_and_exit_status_2(line, saved, tmp_path, capsys):
    (tmp_path / "three.txt").write_text("".join(f"{i % 3} 1:{i} 2:1\n" for i in range(30)))
    (tmp_path / "few.txt").write_text("1 1:1\n1 2:1\n1 1:2\n-1 1:1\n")
    (tmp_path / "three.csv").write_text("1,2,3\n4,5,6\n")
    (tmp_path / "words.csv").write_text("1,2,3\na,b,c\n")
    (tmp_path / "schedule.npz").touch()
    assert main(line.replace("SAVED", str(saved)).replace("FOLDER", str(tmp_path)).split()) == 2
    out = capsys.readouterr()
    assert out.out == "" and len(out.err.splitlines()) == 1
    assert out.err.startswith("jaxfed: error: ") and BAD[line] in out.err
