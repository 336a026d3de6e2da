"""The command line: runs on small digits, their files, predictions, Ctrl-C. Bad input is in test_cli_errors."""

import json
import os
import signal
import subprocess
import sys

import jax
import numpy as np
import pytest

import jaxfed as jf
from jaxfed.cli import main
from jaxfed.commands import build, settings
from jaxfed.commands.catalogue import COMMANDS
from jaxfed.commands.parse import parse

DIGITS = "--dataset digits --num-clients 8 --classes-per-client 2 --data-seed 3 --validation 0.2".split()
HERE = ["--devices", "1"]  # jax runs already in this process, so no more devices can be asked for


def command(line, *more):
    return main([*line.split(), *map(str, more)])


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder with four rounds of adaptive APFL."""
    folder = tmp_path_factory.mktemp("runs") / "apfl"
    line = "apfl --adaptive --alpha 0.3 --rounds 4 --target-accuracy 0.5 --quiet"
    assert command(line, *DIGITS, *HERE, "--out", folder) == 0
    return folder


def test_writes_its_files_and_shows_the_table_of_the_run(saved, capsys):
    before = (saved / "figure.png").read_bytes()
    (saved / "figure.png").unlink()
    assert command("show", saved) == 0
    shown, ds = capsys.readouterr().out, jf.load(saved).dataset
    assert sorted(path.name for path in saved.iterdir()) == ["figure.png", "results.nc", "settings.json", "state.pkl"]
    assert before.startswith(b"\x89PNG") and (saved / "figure.png").read_bytes().startswith(b"\x89PNG")
    last = ds.isel(round=-1)
    for model, column in (("personal", -2), ("server", -1)):
        accuracy = last[f"{model}_test_accuracy"].values
        rows = {line.split("  ")[0]: line.split() for line in shown.splitlines()}
        assert float(rows["mean over clients"][column]) == pytest.approx(accuracy.mean(), abs=6e-5)
        by_example = (accuracy * ds["test_size"].values).sum() / ds["test_size"].values.sum()
        assert float(rows["mean over examples"][column]) == pytest.approx(by_example, abs=6e-5)
        assert float(rows["worst client"][column]) == pytest.approx(accuracy.min(), abs=6e-5)
    assert f"alpha: {last['mixing_weight'].values.mean():.4f} over clients" in shown
    reached = int(ds["round"].values[ds["personal_test_accuracy"].values.mean(axis=1) >= 0.5][0])
    kilobytes = 650 * 4 * 2 * 8 * np.array([reached, 4]) / 1e3  # parameters, bytes, both ways, clients, rounds
    assert f"accuracy 0.5 by personal: round {reached}, after {kilobytes[0]:.3g} kB" in shown
    assert f"sent, both ways: {kilobytes[1]:.3g} kB" in shown


def test_continues_as_one_run_would(saved, tmp_path):
    line = "apfl --adaptive --alpha 0.3 --rounds 2 --quiet"
    assert command(line, *DIGITS, *HERE, "--out", tmp_path / "half") == 0
    more = ["--continue-from", tmp_path / "half", *HERE, "--out", tmp_path / "rest", "--quiet"]
    assert command("apfl", *more) == 0  # every other setting is that of the first half
    whole, rest = jf.load(saved), jf.load(tmp_path / "rest")
    assert rest.dataset["round"].values.tolist() == [2, 3, 4]
    for a, b in zip(jax.tree.leaves(whole.state), jax.tree.leaves(rest.state), strict=True):
        np.testing.assert_array_equal(a, b)
    for name in ("personal_test_loss", "mixing_weight", "server_validation_accuracy"):
        np.testing.assert_array_equal(whole.dataset[name].values[-3:], rest.dataset[name].values)


def test_predicts_as_the_run_was_evaluated(saved, tmp_path, capsys):
    ds = jf.load(saved).dataset.isel(round=-1)
    for rows, model in (("test", "personal"), ("validation", "personal"), ("train", "server")):
        assert command(f"predict {saved} --client 5 --rows {rows}", *(["--server"] if model == "server" else [])) == 0
        out = capsys.readouterr()
        table = np.array([line.split(",") for line in out.out.splitlines()[1:]], int)
        wanted = float(ds[f"{model}_{rows}_accuracy"][5])
        assert (table[:, 1] == table[:, 2]).mean() == pytest.approx(wanted, abs=1e-6)
        assert len(table) == int(ds[f"{rows}_size"][5]) and f"accuracy {wanted:.4f}" in out.err
    _, data = build.client_data(settings.load(saved)[1].data)
    np.save(tmp_path / "x.npy", data.test.client(5)[0])
    assert command(f"predict {saved} --client 5 --x {tmp_path}/x.npy --out {tmp_path}/y.csv") == 0
    assert command(f"predict {saved} --client 5") == 0
    with_labels = [line.split(",") for line in capsys.readouterr().out.splitlines()]
    assert [line.split(",") for line in (tmp_path / "y.csv").read_text().splitlines()] == [
        [row, prediction] for row, _, prediction in with_labels
    ]


def test_fine_tuning_on_cohorts(tmp_path, capsys):
    assert command("fine-tuned", *DIGITS, *HERE, "--rounds", 1, "--cohort-size", 3, "--out", tmp_path / "new") == 0
    ds = jf.load(tmp_path / "new").dataset
    assert float(ds["cohort"][-1]) == 3 and "alpha:" not in capsys.readouterr().out


def test_options_reach_the_algorithm():
    model = jf.models.mlp(10, hidden=(7, 5), l2=0.25)
    local = dict(local_steps=3, batches="epochs", local_epochs=2, batch_size=None, lr=0.5)
    words = "--local-steps 3 --batches epochs --local-epochs 2 --batch-size full --lr 0.5"
    words += " --model mlp --hidden 7 5 --l2 0.25"
    decay = jf.steps.ExponentialDecay(0.5, 0.9)
    cases = {
        "apfl --alpha 0.2 --adaptive --alpha-lr 0.3 --mix logits --order sequential --alpha-every step --alpha-l2 0.1"
        " --evaluate-with local --weights examples --server-lr 2 --lr-decay 0.9": jf.APFL(
            model, **local | {"lr": decay}, alpha=0.2, adaptive=True, alpha_lr=0.3, mix="logits", order="sequential",
            alpha_every="step", alpha_l2=0.1, evaluate_with="local", weights="examples", server_lr=2.0,
        ),
        "fedavg --server-optimizer yogi --server-lr 0.1 --weights uniform": jf.FedAvg(
            model, **local, server_optimizer=jf.horizontal.fedyogi, server_lr=0.1, weights="uniform"
        ),
        "local": jf.LocalOnly(model, **local),
        "fine-tuned --tune-steps 4 --tune-lr 0.7": jf.FineTuned(model, **local, tune_steps=4, tune_lr=0.7),
        "scaffold --control I --server-lr 0.5": jf.Scaffold(model, **local, option="I", server_lr=0.5),
        "apfl --preset fedtorch": jf.APFL.fedtorch(model, lr=0.5, local_steps=3, local_epochs=2, batch_size=None),
    }  # fmt: skip
    arrays = jf.datasets.load("digits")
    for line, wanted in cases.items():
        name, options = parse([*line.split(), *words.split()])
        assert build.algorithm(name, options, build.model(options.net, arrays)) == wanted, line
    _, options = parse("fedavg --momentum 0.9".split())
    assert build.algorithm("fedavg", options, model).optimizer.keywords == {"momentum": 0.9}


def test_the_preset_is_the_librarys_and_other_options_override_it():
    model = jf.models.logistic_regression(10)
    changed = dict(lr=0.2, batch_size=10, mix="params")
    for words, fields in (("", {}), ("--lr 0.2 --batch-size 10 --mix params", changed)):
        name, options = parse(f"apfl --preset fedtorch {words}".split())
        assert build.algorithm(name, options, model) == jf.APFL.fedtorch(model, **fields)


def test_partition_options():
    wanted = {
        "": jf.horizontal.Iid(),
        "--iid": jf.horizontal.Iid(),
        "--classes-per-client 3": jf.horizontal.Classes(3),
        "--concentration 0.3": jf.horizontal.Dirichlet(0.3),
        "--quantity 0.7": jf.horizontal.Quantity(0.7),
    }
    for line, partition in wanted.items():
        assert build.partition(parse(["local", *line.split()])[1].data) == partition


def test_models_for_real_targets():
    arrays = jf.datasets.load("diabetes")
    net = lambda *words: parse(["local", "--model", *words])[1].net  # noqa: E731
    assert build.model(net("linear", "--l2", "0.5"), arrays) == jf.models.linear_regression(l2=0.5)
    assert build.model(net("mlp", "--hidden", "4"), arrays).loss == "half_squared"


@pytest.mark.parametrize("name", COMMANDS)
def test_settings_come_back_as_they_were(name, tmp_path):
    words = {"show": ["runs/a"], "export": ["runs/a"], "predict": ["runs/a", "--client", "1"], "vfb2": ["--lr", "0.5"],
             "theory": ["--only", "a", "b", "--smoke"],
             "attack": ["--attacks", "sign", "hint", "--window", "0", "9", "--masks", "64"]}  # fmt: skip
    words = words.get(name, ["--hidden", "3", "4", "5"])
    _, options = parse([name, *words])
    settings.save(name, options, tmp_path)
    assert settings.load(tmp_path) == (name, options)


def test_compare(tmp_path, capsys):
    line = "compare --algorithms fedavg scaffold apfl-adaptive --seeds 2 --rounds 2 --target-accuracy 0.1"
    assert command(line, *DIGITS, *HERE, "--out", tmp_path / "new") == 0
    first = capsys.readouterr().out
    ds = jf.results.load_dataset(tmp_path / "new" / "results.nc")
    assert ds["algorithm"].values.tolist() == ["fedavg", "scaffold", "apfl-adaptive"] and ds.sizes["seed"] == 2
    rows = {line.split()[0]: line for line in first.splitlines()}
    for name in ds["algorithm"].values:
        mean = ds["personal_test_accuracy"].sel(algorithm=name).isel(round=-1).values.mean()
        assert f" {mean:.4f} +- " in rows[name]
    assert "166 kB" in rows["scaffold"] and "83.2 kB" in rows["fedavg"]  # 650 x 4 bytes x 2 ways x 8 clients x 2 rounds
    assert command("show", tmp_path / "new") == 0
    assert capsys.readouterr().out.splitlines() == first.splitlines()[:-1]
    assert command(f"predict {tmp_path}/new --client 0") == 2


def test_a_diverging_run_warns_and_is_kept(tmp_path, capsys):
    line = f"fedavg --lr 1000 --l2 1000 --rounds 3 --out {tmp_path}/new"
    assert command(line, *DIGITS, *HERE) == 0
    out = capsys.readouterr()
    assert out.err.startswith("jaxfed: warning: diverged") and len(out.err.splitlines()) == 1
    assert "diverged: not finite from round" in out.out
    assert not bool(jf.load(tmp_path / "new").dataset["finite"][-1])


def test_results_are_replaced_only_on_request_and_refused_before_the_run(saved, monkeypatch, capsys):
    content = (saved / "results.nc").read_bytes()
    monkeypatch.setattr(jf, "run", lambda *_, **__: pytest.fail("it ran"))
    assert command("local", *DIGITS, *HERE, "--out", saved) == 2
    assert "holds results.nc already" in capsys.readouterr().err and (saved / "results.nc").read_bytes() == content
    with pytest.raises(pytest.fail.Exception, match="it ran"):
        command("local --overwrite", *DIGITS, *HERE, "--out", saved)


def test_help_and_version(capsys):
    for words in ([], ["--help"], ["apfl", "--help"], ["--version"]):
        with pytest.raises(SystemExit) as end:
            main(words)
        assert end.value.code in (0, None)
    text = capsys.readouterr().out
    assert all(f"\n  {name} " in text for name in COMMANDS) and "--classes-per-client" in text


def test_a_process_uses_every_core_and_changes_nothing_but_rounding(saved, tmp_path):
    line = "apfl --adaptive --alpha 0.3 --rounds 4"
    done = subprocess.run(
        [sys.executable, "-m", "jaxfed.cli", *line.split(), *DIGITS, "--out", tmp_path / "new"],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("apfl on digits: 8 clients, 2 classes each") and done.stderr == ""
    ds, here = jf.load(tmp_path / "new").dataset, jf.load(saved).dataset
    assert ds.attrs["devices"] == len(os.sched_getaffinity(0))
    np.testing.assert_allclose(ds["personal_train_loss"], here["personal_train_loss"], rtol=1e-5)


DRIVER = """
import os, signal, sys, threading, time
from jaxfed.cli import main

def interrupt():
    def advanced():  # until the first rounds are compiled and under way
        advance = getattr(sys.modules.get("jaxfed.machine"), "compiled_advance", None)
        return advance is not None and advance._cache_size() > 0
    while not advanced():
        time.sleep(0.01)
    time.sleep(1)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt, daemon=True).start()
sys.exit(main(sys.argv[1:]))
"""


def test_ctrl_c_keeps_what_is_finished(tmp_path):
    words = [*"local --rounds 100000000 --every 10 --x64 --devices 1".split(), *DIGITS, "--out", tmp_path / "new"]
    done = subprocess.run([sys.executable, "-c", DRIVER, *words], capture_output=True, text=True, timeout=120)
    assert done.returncode == 130, done.stderr
    assert done.stderr.startswith("jaxfed: warning: interrupted: returning the first ")
    run = jf.load(tmp_path / "new")
    assert 0 < int(run.dataset["round"][-1]) == int(run.state.server.round) < 100000000
    assert run.dataset.attrs["x64"] == 1 and run.state.clients["bias"].dtype == np.float64
    assert json.loads((tmp_path / "new" / "settings.json").read_text())["running"]["rounds"] == 100000000


def test_ctrl_c_before_the_first_round_is_said_in_a_line(monkeypatch, capsys):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(jf, "run", interrupted)
    assert command("fedavg", *DIGITS, *HERE) == 130
    assert capsys.readouterr().err == "jaxfed: interrupted: stopped before all results were written\n"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
