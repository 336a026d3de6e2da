"""The command line's sweeps: which axes and settings reach `sweep`, TOML files, folders, tables, export, bad input."""

import csv
import dataclasses
import subprocess
import sys

import numpy as np
import pytest

import jaxfed as jf
from jaxfed import results, sweeps
from jaxfed.cli import main
from jaxfed.commands import settings
from jaxfed.commands.parse import parse
from jaxfed.commands.sweep import split
from jaxfed.commands.sweep_catalogue import SWEEPS
from tests.test_best import sample

DIGITS = "--dataset digits --num-clients 8 --classes-per-client 2 --data-seed 3 --validation 0.2 --devices 1"


def command(line, *more):
    return main([*line.split(), *map(str, more)])


@pytest.fixture
def called(monkeypatch):
    """Puts a function in place of `sweep` and `estimate` that keeps what it is told and returns a sample's results."""
    told = []

    def sweep(seed, algorithm, data, **options):
        told.append((seed, algorithm, data, options))
        return sample()

    monkeypatch.setattr(sweeps, "sweep", sweep, raising=False)
    monkeypatch.setattr(sweeps, "estimate", lambda *a, **k: f"estimate of {len(k['axes'])} axes", raising=False)
    return told


def test_several_values_are_axes_and_the_rest_is_as_in_a_run(called, capsys):
    line = "sweep apfl --alpha 0 0.25 1 --lr 0.01 0.1 --l2 0 0.5 --server-lr 2 --adaptive --seeds 3 --seed 5 --rounds 7"
    assert command(f"{line} --every 2 --batch 4 --memory 1.5 --cohort-size 3 {DIGITS}") == 0
    ((seed, algorithm, data, options),) = called
    model = jf.models.logistic_regression(10, l2=0.5)
    wanted = jf.APFL(model, lr=0.01, alpha=0.0, adaptive=True, server_lr=2.0, local_steps=10, batch_size=20)
    assert (seed, algorithm) == (5, wanted) and isinstance(data, jf.ClientData)
    assert options.pop("axes") == {"lr": [0.01, 0.1], "alpha": [0.0, 0.25, 1.0], "model.l2": [0.0, 0.5]}
    assert options.pop("scheduler") == jf.horizontal.UniformCohort(8, 3)
    assert {p: len(np.asarray(options.pop(p).size)) for p in ("test", "validation")} == {"test": 8, "validation": 8}
    rest = dict(seeds=3, num_rounds=7, every=2, batch=4, memory=1.5, mesh=None, progress=None, out=None)
    assert options == rest
    said = capsys.readouterr().out
    assert said.startswith(
        "sweep apfl on digits: 8 clients, logistic, 2 x lr, 3 x alpha, 2 x l2, 3 seeds\nbest settings"
    )
    assert said.endswith("not saved: no --out was given\n")


def test_a_rate_that_decays_is_a_schedule_at_every_point(called):
    assert command(f"sweep fedavg --lr 0.1 0.2 --lr-decay 1 0.9 --quiet {DIGITS}") == 0
    _, algorithm, _, options = called[0]
    assert algorithm.lr == jf.steps.ExponentialDecay(0.1, 1.0)
    assert options["axes"] == {"lr.value": [0.1, 0.2], "lr.rate": [1.0, 0.9]} and options["progress"] is False


def test_every_algorithm_has_the_axes_that_its_traced_numbers_allow():
    common = {"lr", "lr_decay", "l2"}
    wanted = {
        "apfl": common | {"alpha", "alpha_lr", "personal_lr", "alpha_l2", "server_lr"},
        "fedavg": common | {"server_lr"},
        "local": common,
        "fine-tuned": common | {"tune_lr", "server_lr"},
        "scaffold": common | {"server_lr"},
        "vfb2": {"lr", "l2"},  # and delays, below
    }
    for name, fields in wanted.items():
        for field in fields:
            _, options = parse(["sweep", name, f"--{field.replace('_', '-')}", "0.5", "0.25"])
            _, axes = split(name, options)
            assert list(axes.values()) == [[0.5, 0.25]] and next(iter(axes)).rpartition(".")[2] in (field, "rate")
        with pytest.raises(ValueError, match=r"wanted one value: each needs a sweep.*axes are lr"):
            parse(["sweep", name, "--batch-size", "5", "10"])
    for name, cls in SWEEPS.items():  # with single values it is the run's options
        _, options = parse(["sweep", name])
        _, run = parse([name])
        point, axes = split(name, options)
        assert (point, axes) == (run, {}), cls


def test_a_vertical_sweep(called, capsys):
    line = "sweep vfb2 --method saga --l2 0.001 0.1 --parties 4 --active 2 --epochs 2 --seeds 2 --seed 3"
    assert command(line) == 0
    ((seed, algorithm, data, options),) = called
    assert seed == 3 and isinstance(algorithm, jf.VFB2SAGA) and isinstance(data, jf.PartyData)
    assert options["axes"] == {"objective.l2": [0.001, 0.1]} and options["num_rounds"] == jf.vertical.Epochs(2)
    _, run = parse("vfb2 --method saga --l2 0.1 --parties 4 --active 2".split())
    from jaxfed.commands import vertical

    assert algorithm == vertical.prepare(run)[2]  # the step size is that of the largest l2
    assert "saga, 4 parties, 2 active, async, 2 x l2, 2 seeds" in capsys.readouterr().out


def test_delays_are_axes_of_the_scheduler_whose_bound_is_the_greatest(called):
    assert command("sweep vfb2 --scheduler fixed --read-delay 0 2 --message-delay 3 0 --ticks 20 --quiet") == 0
    options = called[0][3]
    assert options["axes"] == {"scheduler.read": [0, 2], "scheduler.message": [3, 0]}
    assert options["scheduler"] == jf.vertical.FixedDelay(options["scheduler"].party, 2, 3, bound=3)


def test_a_dry_run_prints_the_estimate_and_makes_nothing(called, tmp_path, capsys):
    assert command(f"sweep local --lr 0.1 0.2 --dry-run --out {tmp_path}/new {DIGITS}") == 0
    assert not called and not (tmp_path / "new").exists()
    assert capsys.readouterr().out.splitlines()[1] == "estimate of 1 axes"


def test_a_file_holds_the_same_options_and_the_line_overrides_it(tmp_path):
    file = tmp_path / "alpha.toml"
    file.write_text('algorithm = "apfl"\nalpha = [0, 0.5]\nlr = 0.3\nlocal-steps = 4\nadaptive = true\nmix = "logits"\n'
                    'batch_size = "full"\nseeds = 20\n')  # fmt: skip
    typed = "--alpha 0 0.5 --lr 0.3 --local-steps 4 --adaptive --mix logits --batch-size full --seeds 20"
    _, wanted = parse(["sweep", "apfl", *typed.split()])
    for words in (["--config", str(file)], ["apfl", f"--config={file}"]):
        name, options = parse(["sweep", *words])
        assert name == "sweep apfl"
        assert dataclasses.replace(options, sweep=dataclasses.replace(options.sweep, config=None)) == wanted
    _, options = parse(["sweep", "apfl", "--alpha", "1", "--no-adaptive", "--config", str(file), "--seeds", "2"])
    assert (options.mixing.alpha, options.mixing.adaptive, options.sweep.seeds) == ((1.0,), False, 2)
    assert options.local.local_steps == 4


def test_settings_come_back_as_they_were(tmp_path):
    for name in SWEEPS:
        command, options = parse(["sweep", name, "--lr", "0.1", "0.2", "--seeds", "3"])
        settings.save(command, options, tmp_path)
        assert settings.load(tmp_path) == (f"sweep {name}", options)


def test_a_folder_is_shown_exported_and_goes_on_only_with_its_own_settings(called, tmp_path, capsys):
    folder, line = tmp_path / "new", f"sweep apfl --alpha 0 0.5 1 --lr 0.01 0.1 --seeds 2 {DIGITS} --out {tmp_path}/new"
    assert command(f"{line} --by server_validation_loss --top 2") == 0
    first = capsys.readouterr().out.splitlines()
    assert called[0][3]["out"] == str(folder)
    assert sorted(path.name for path in folder.iterdir()) == ["figure.png", "results.nc", "settings.json"]
    assert "best settings by validation loss of the server's model (least first)" in first[1]
    (folder / "figure.png").unlink()
    assert command(f"show {folder}") == 0
    assert capsys.readouterr().out.splitlines() == first[:-1]
    assert (folder / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert command(f"show {folder} --by personal_test_loss --top 1") == 0
    said = capsys.readouterr().out
    assert "CHOSEN ON TEST ROWS" in said and "the best 1 of 6" in said
    assert command(f"export {folder} --csv {tmp_path}/table.csv") == 0
    with open(tmp_path / "table.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    lane = sample().sel(alpha=0.5, lr=0.1, seed=8, round=5)
    (row,) = [r for r in rows if [float(r[k]) for k in ("alpha", "lr", "seed", "round")] == [0.5, 0.1, 8, 5]]
    wanted = float(lane["personal_test_accuracy"][:3].mean())
    assert float(row["personal_test_accuracy_mean_over_clients"]) == pytest.approx(wanted) and len(rows) == 24
    capsys.readouterr()
    assert command(f"export {folder}") == 0
    assert capsys.readouterr().out.splitlines() == (tmp_path / "table.csv").read_text().splitlines()
    for bad, said in ((f"export {folder} --csv {tmp_path}/table.csv", "which is there already"),
                      (f"export {folder} --csv {tmp_path}/no/table.csv", "a file in a folder that is there"),
                      (f"predict {folder} --client 1", "got a sweep in"),
                      (f"show {folder} --target-accuracy 0.5", "target_accuracy: got 0.5, wanted none for a sweep"),
                      (f"{line} --alpha 0 1 --rounds 3", "whose sweep has alpha (0.0, 0.5, 1.0) in place of "
                       "(0.0, 1.0), rounds 100 in place of 3, wanted the same, another, or --overwrite"),
                      (f"sweep local {DIGITS} --out {folder}", "which holds a run of 'sweep apfl'"),
                      (f"local {DIGITS} --out {folder}", "holds results.nc already")):  # fmt: skip
        assert command(bad) == 2
        assert said in capsys.readouterr().err
    assert len(called) == 1
    assert command(f"{line} --batch 3 --quiet") == 0 and len(called) == 1  # all is there
    (folder / "results.nc").unlink()
    assert command(f"{line} --batch 3 --quiet") == 0 and len(called) == 2  # the same sweep goes on
    (folder / "load-00000.nc").touch()
    assert command(f"{line} --rounds 3 --quiet --overwrite") == 0 and len(called) == 3
    assert not (folder / "load-00000.nc").exists()
    (folder / "results.nc").unlink()
    assert command(f"show {folder}") == 2
    assert "whose sweep is not finished" in capsys.readouterr().err
    results.save_dataset(sample(), tmp_path / "python" / "results.nc")  # of a sweep in Python: there are no settings
    assert command(f"show {tmp_path}/python") == 0
    assert capsys.readouterr().out.startswith("best settings by validation accuracy")


def test_an_unfinished_sweep_is_kept_as_such(monkeypatch, tmp_path, capsys):
    whole = sample()
    ended = whole.where(whole["seed"] == 7)
    monkeypatch.setattr(sweeps, "sweep", lambda *a, **k: ended, raising=False)
    assert command(f"sweep local {DIGITS} --out {tmp_path}/new") == 130
    said = capsys.readouterr().out
    assert "NOT FINISHED: 6 of 12 runs" in said and said.endswith("/new: the same line goes on\n")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["settings.json"]


def test_results_are_saved_before_the_table_can_fail(called, tmp_path, capsys):
    assert command(f"sweep local --by personal_validation_auc {DIGITS} --out {tmp_path}/new") == 2
    assert "by: got 'personal_validation_auc', wanted one of" in capsys.readouterr().err
    assert (tmp_path / "new" / "results.nc").exists()


def test_help_lists_the_axes_and_waits_for_nothing(capsys):
    for words in (["sweep"], ["sweep", "--help"], ["sweep", "apfl", "--help"]):
        with pytest.raises(SystemExit) as end:
            main(words)
        assert end.value.code in (0, None)
    said = capsys.readouterr().out
    assert "jaxfed sweep ALGORITHM" in said and "--alpha A ..." in said and "--dry-run" in said
    script = "import sys; from jaxfed.cli import main\ntry: main(['sweep', 'apfl', '--help'])\n"
    script += "except SystemExit: sys.exit('jax' in sys.modules or 'pandas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True).returncode == 0


def test_a_sweep_of_digits_has_the_runs_of_the_library(tmp_path, capsys):
    line = f"sweep apfl --alpha 0 0.5 --lr 0.05 0.2 --seeds 2 --rounds 2 --out {tmp_path}/new {DIGITS}"
    assert command(line) == 0
    assert "best settings by validation accuracy" in capsys.readouterr().out
    ds = results.load_dataset(tmp_path / "new" / "results.nc")
    assert list(results.sweep_axes(ds)) == ["lr", "alpha"]
    run = f"apfl --alpha 0.5 --lr 0.05 --seed 1 --rounds 2 --quiet --out {tmp_path}/run {DIGITS}"
    assert command(run) == 0
    lane, one = ds.sel(alpha=0.5, lr=0.05, seed=1), jf.load(tmp_path / "run").dataset
    for name in ("personal_test_accuracy", "server_train_loss", "mixing_weight"):
        np.testing.assert_allclose(lane[name], one[name], rtol=1e-5)


def test_a_sweep_of_one_vertical_run_is_that_run(tmp_path):
    """One value, one seed: there is no axis at all along which lanes lie."""
    line = "vfb2 --method sgd --lr 0.01 --epochs 2 --parties 4 --active 2 --quiet"
    assert command(f"sweep {line} --out {tmp_path}/sweep") == 0 and command(f"{line} --out {tmp_path}/run") == 0
    ds, one = results.load_dataset(tmp_path / "sweep" / "results.nc"), jf.load(tmp_path / "run").dataset
    assert ds.sizes["seed"] == 1
    for name in ("objective", "test_auc", "dominated_updates"):
        np.testing.assert_allclose(ds[name].squeeze(), one[name], rtol=1e-6)
