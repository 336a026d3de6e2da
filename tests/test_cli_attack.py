"""`jaxfed attack` and protected runs, as a user calls them: what is chosen, what is written, what is refused."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse
from sklearn.datasets import dump_svmlight_file

import jaxfed as jf
from jaxfed.cli import main
from jaxfed.commands import attack as command_attack
from jaxfed.commands import protection
from jaxfed.commands.attack_options import NAMES
from jaxfed.commands.parse import parse
from jaxfed.privacy import matrix_features, matrix_labels, tradeoff
from jaxfed.privacy.marvell import Marvell
from jaxfed.vertical import Epochs, Objective

TOY = "attack --dataset libsvm:FOLDER/toy.txt --parties 4 --active 2"
DIVERGED = "jaxfed: warning: diverged: weights are not finite when the window ends, so its numbers mean little"
SHORT = f"{TOY} --epochs 4 --no-tradeoff"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with small tables: dense, sparse, and one whose numbers are too large for 32-bit masks."""
    path = tmp_path_factory.mktemp("tables")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 6))
    y = np.where(x @ rng.normal(size=6) + 0.5 * rng.normal(size=60) > 0.1, 1, -1)
    dump_svmlight_file(x, y, str(path / "toy.txt"))
    dump_svmlight_file(1e6 * x, y, str(path / "large.txt"))
    few = scipy.sparse.random_array((60, 1200), density=0.02, rng=rng, format="csr", dtype=np.float32)
    dump_svmlight_file(few, y, str(path / "sparse.txt"))
    return path


@pytest.fixture
def call(folder, capsys):
    """Run one line of command; return its status, its lines and its lines of errors, without the steps it reports."""

    def run(line, *more):
        status = main([*line.replace("FOLDER", str(folder)).split(), *map(str, more)])
        out = capsys.readouterr()
        kept = [each for each in out.err.splitlines() if not each.startswith(("attacking: ", "measuring: "))]
        return status, out.out.splitlines(), kept

    return run


def cells(lines):
    """Return the matrix's rows, cell by cell, from what was printed."""
    table = [line for line in lines if line.startswith("| ")][1:]
    return [[cell.strip() for cell in line.replace("\\|", "!").strip("|").split("|")] for line in table]


def test_names_are_those_of_the_attacks():
    assert set(NAMES) == set(matrix_labels.ATTACKS | matrix_features.ATTACKS)
    assert set(command_attack.LABELS) == set(matrix_labels.ATTACKS)


def test_the_chosen_attacks_in_files_and_on_the_screen(call, tmp_path):
    line = f"{SHORT} --attacks unmasking sign sign --attacker 2 --seed 3"
    status, out, err = call(line, "--out", tmp_path / "new")
    assert status == 0 and err == []
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["attacks.json", "attacks.md"]
    held = json.loads((tmp_path / "new" / "attacks.json").read_text())
    assert [row["attack"] for row in held["attacks"]] == ["unmasking"] * 4 + ["sign"] * 2
    assert held["run"]["options"]["attacking"]["attacker"] == 2 and held["run"]["options"]["method"]["method"] == "sgd"
    assert held["attacks"][-1]["attacker"] == "passive party 2" and held["attacks"][-1]["measured"] == 1
    assert out[0] == held["run"]["title"] and "masks 32, defence none, async" in out[0] and "48 rows" in out[0]
    assert (tmp_path / "new" / "attacks.md").read_text().splitlines()[2:] == [x for x in out if x.startswith("|")]
    shown = cells(out)
    assert [row[-1] for row in shown] == [row["verdict"] for row in held["attacks"]]
    assert out[-1] == f"saved in {tmp_path}/new"
    status, _, err = call(line, "--out", tmp_path / "new")
    assert status == 2 and "which holds attacks.json already; wanted another, or --overwrite" in err[0]
    assert call(f"{SHORT} --attacks sign --overwrite", "--out", tmp_path / "new")[0] == 0
    assert len(json.loads((tmp_path / "new" / "attacks.json").read_text())["attacks"]) == 2
    assert call(line)[1][-1] == "not saved: no --out was given"


def test_who_saw_what(call):
    _, out, _ = call(f"{SHORT} --attacks sign --window 3 13")
    first = next(i for i, line in enumerate(out) if line.startswith("values received"))
    assert out[first] == "values received in ticks 3 to 12 (products masked)"
    rows = [line.split() for line in out[first + 2 : first + 6]]
    assert [row[0] for row in rows] == ["0", "1", "2", "3"] and rows[0][1] == "yes"
    assert all(row[1] == "20" for row in rows[2:])  # a passive party: two dominators' thetas of ten ticks, no labels
    _, plain, _ = call(f"{SHORT} --attacks sign --window 3 13 --masks none")
    assert "values received in ticks 3 to 12 (products as they are)" in plain
    numbers = [[row[4] for row in cells(lines)] for lines in (out, plain)]
    assert numbers[0] == numbers[1]  # masks change nothing of theta


@pytest.mark.parametrize("masks", ["float", "64"])
def test_masks_are_chosen(call, masks):
    status, out, _ = call(f"{SHORT} --attacks unmasking --masks {masks}")
    assert status == 0 and f"masks {masks}," in out[0]
    assert [row[-1] for row in cells(out)] == ["as expected", "as expected", "reported", "reported"]


def test_a_defence_is_attacked(call):
    _, bare, _ = call(f"{SHORT} --attacks sign")
    status, out, _ = call(f"{SHORT} --attacks sign response --defence randomised-response --strength 0.5")
    sign, response = cells(out)[0], cells(out)[-1]
    assert status == 0 and "defence randomised-response" in out[0]
    assert float(cells(bare)[0][4]) == 1 and 0.4 < float(sign[4]) < 0.85 and sign[-1] == "differs"
    assert response[6].startswith("1.000 (no defence)")


def test_attacks_that_get_nothing_say_so_and_the_others_are_made(call, tmp_path):
    status, out, err = call(
        f"{TOY} --ticks 3 --batch-size 4 --no-tradeoff --defence batch-gradients --attacks sign residue"
    )
    sign, residue = cells(out)[:2]
    assert status == 0 and err == []
    assert sign[-1] == "not made" and "got no thetas" in sign[3] and residue[-1] != "not made"
    status, out, err = call(f"{TOY} --dataset libsvm:FOLDER/sparse.txt --ticks 30 --no-tradeoff --attacks gram hint")
    assert status == 0 and "got sparse blocks, wanted a dense table" in cells(out)[0][3]
    assert cells(out)[1][0] == "hint" and cells(out)[1][4] == "1.000"
    # with nothing else to show, that is the error
    status, out, err = call(
        f"{TOY} --dataset libsvm:FOLDER/sparse.txt --ticks 30 --no-tradeoff --attacks gram equality"
    )
    assert (
        status == 2
        and out == []
        and err == ["jaxfed: error: data: got sparse blocks, wanted a dense table for this attack"]
    )


def test_products_too_large_for_their_masks_are_told(call):
    status, out, err = call(f"{SHORT} --dataset libsvm:FOLDER/large.txt --attacks sign logits --lr 1")
    assert status == 0 and err == [DIVERGED] and cells(out)[0][4] == "1.000"  # what was sent tells labels all the same
    assert call(f"{SHORT} --dataset libsvm:FOLDER/large.txt --attacks sign --lr 0")[0] == 0


def test_one_tick_and_a_run_that_diverges(call):
    for more in ("--ticks 1", "--epochs 4 --lr 1e20"):
        status, out, err = call(f"{TOY} {more} --no-tradeoff --attacks sign logits norm hint completion unmasking")
        assert status == 0 and err == ([DIVERGED] if "lr" in more else []), (more, err)
        rows = {row[0]: row for row in cells(out)}
        assert rows["norm"][4] == "nan" or "lr" in more
        assert len(rows) >= 6 and {row[-1] for row in rows.values()} <= {
            "as expected",
            "reported",
            "differs",
            "not made",
        }


def test_the_tradeoff_and_its_files(call, tmp_path, monkeypatch):
    few = {name: (*tradeoff.DEFENCES[name][:2], levels, b) for name, levels, b in (
        ("Gaussian", (0.1, 30.0), None), ("clipping", (0.2, 0.1), None))}  # fmt: skip
    monkeypatch.setattr(tradeoff, "DEFENCES", few)
    line = f"{TOY} --epochs 6 --attacks sign --window 0 9 --defence gaussian --strength 2"
    status, out, err = call(line, "--out", tmp_path / "new")
    assert status == 0 and err == []
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["attacks.json", "attacks.md", "tradeoff.nc",
                                                                          "tradeoff.png"]  # fmt: skip
    assert (tmp_path / "new" / "tradeoff.png").read_bytes().startswith(b"\x89PNG")
    ds = jf.results.load_dataset(tmp_path / "new" / "tradeoff.nc")
    assert dict(ds.sizes) == {"defence": 2, "level": 3} and list(ds["defence"].values) == list(few)
    # level 0 is without any defence and of the whole run, whatever the run's own defence and window are
    assert (ds["auc_message"].values[:, 0] == 1).all() and (ds["auc_run"].values[:, 0] == 1).all()
    run = "vfb2 --method sgd --dataset libsvm:FOLDER/toy.txt --parties 4 --active 2 --epochs 6 --masks 32 --quiet"
    assert call(run, "--out", tmp_path / "run")[0] == 0
    final = float(jf.load(tmp_path / "run").dataset["test_accuracy"][-1])
    assert ds["accuracy"].values[0, 0] == ds["accuracy"].values[1, 0] == pytest.approx(final)
    assert ds["auc_message"].values[0, 2] < 0.75 < ds["auc_message"].values[0, 1]  # noise hides
    assert (ds["auc_message"].values[1] == 1).all()  # clipping does not
    shown = [row.split()[-3:] for row in out if row.startswith("Gaussian")]
    np.testing.assert_allclose(np.array(shown, float)[:, 0], ds["accuracy"].values[0], atol=6e-4)


def test_a_killed_attack_leaves_what_it_had_done(folder, call, tmp_path):
    code = (
        "import os, signal, sys\nfrom jaxfed.privacy import matrix_labels\nfrom jaxfed.cli import main\n"
        "matrix_labels.ATTACKS['hint'] = lambda runs: os.kill(os.getpid(), signal.SIGKILL)\nmain(sys.argv[1:])"
    )
    words = f"{SHORT} --attacks sign hint --out {tmp_path}/new".replace("FOLDER", str(folder)).split()
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, timeout=120)
    assert done.returncode == -9 and [file.name for file in (tmp_path / "new").iterdir()] == ["attacks.json"]
    kept = json.loads((tmp_path / "new" / "attacks.json").read_text())["attacks"]
    assert [row["attack"] for row in kept] == ["sign", "sign"] and kept[0]["measured"] == 1
    again = f"{SHORT} --attacks sign --out {tmp_path}/new"
    status, _, err = call(again)
    assert status == 2 and "attacks.json already" in err[0]
    assert call(f"{again} --overwrite")[0] == 0


def test_masks_and_defences_of_a_run(call, tmp_path):
    line = "vfb2 --method sgd --dataset libsvm:FOLDER/toy.txt --parties 4 --active 2 --epochs 2 --lr 0.1 --quiet"
    line += " --scheduler fixed"  # the others' clocks count the trees' messages too
    for name, more in {"none": "", "32": "--masks 32", "hidden": "--masks 64 --defence gaussian --strength 3"}.items():
        assert call(f"{line} {more}", "--out", tmp_path / name)[0] == 0
    none, masked, hidden = (jf.load(tmp_path / name).dataset for name in ("none", "32", "hidden"))
    np.testing.assert_allclose(masked["objective"], none["objective"], rtol=1e-4)  # fixed point rounds at 2^-20
    assert not np.allclose(hidden["objective"], none["objective"], rtol=1e-2)
    wider = float(hidden["bytes"][-1] - masked["bytes"][-1])  # 3 numbers over each of two trees, 4 bytes more
    assert wider == 2 * 3 * 4 * float(hidden["dominated_updates"][-1])
    assert call(f"show {tmp_path}/hidden")[0] == 0


def test_a_sweep_is_masked_too(call, tmp_path):
    line = "sweep vfb2 --method sgd --dataset libsvm:FOLDER/toy.txt --parties 4 --active 2 --epochs 2 --quiet"
    line += " --lr 0.05 0.1"
    assert call(f"{line} --masks 32", "--out", tmp_path / "sweep")[0] == 0
    ds = jf.results.load_dataset(tmp_path / "sweep" / "results.nc")
    run = line.removeprefix("sweep ").replace("--lr 0.05 0.1", "--lr 0.1 --masks 32")
    assert call(run, "--out", tmp_path / "run")[0] == 0
    one = jf.load(tmp_path / "run").dataset
    np.testing.assert_allclose(ds.sel(lr=0.1)["objective"].squeeze(), one["objective"], rtol=1e-6)


def test_options_reach_the_algorithm():
    wanted = {
        "--masks none": (None, None),
        "--masks float --mask-scale 7 --defence clip --strength 0.25": (("float", 7), jf.privacy.defences.Clip(0.25)),
        "--masks 64 --batch-size 2 --defence marvell --strength 3": ((64, 1), Marvell(3.0)),
        "--masks 32 --defence max-norm --strength 2": ((32, 1), jf.privacy.defences.MaxNorm(2.0)),
        "--defence randomised-response": ((32, 1), jf.privacy.defences.RandomisedResponse()),
    }
    for line, (masks, defence) in wanted.items():
        options = parse(["attack", *line.split()])[1]
        got = protection.fields(options.protection, Objective("logistic", "l2", 1e-4))
        assert got["defence"] == defence, line
        secure = got["secure"]
        assert (None if secure is None else (secure.bits or "float", secure.scale)) == masks, line
    runs, about = command_attack.prepare(
        parse("attack --parties 5 --active 2 --attacker 3 --known 9 --seed 4".split())[1]
    )
    assert (runs.attacker, runs.known, runs.seed, runs.num_rounds) == (3, 9, 4, Epochs(20))
    assert "active (0, 1)" in about["title"] and runs.test is not None


def test_help_needs_no_jax():
    code = "import sys, jaxfed.cli\ntry: jaxfed.cli.main(['attack', '--help'])\nfinally: print('jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "--mask-scale" in done.stdout and done.stdout.splitlines()[-1] == "False"
    assert all(name in done.stdout for name in ("--attacks NAME", "--window FIRST STOP", "randomised-response"))


BAD = {
    "attack --attacker 0": "attacker: got 0, wanted a passive party: [3, 4, 5, 6, 7]",
    "attack --attacker 8": "attacker: got 8, wanted a passive party: [3, 4, 5, 6, 7]",
    "attack --attacker -1": "attacker: got -1, wanted a passive party",
    "attack --active 8": "active: got 8, wanted fewer than the 8 parties: a passive one attacks",
    "attack --parties 31": "parties: got 31, wanted at most 30, the columns of breast_cancer",
    "attack --attacks sgin": "attacks: got 'sgin', wanted one of 'sign', 'clusters',",
    "attack --attacks": "attacks: got nothing, wanted one of 'sign', 'clusters',",
    "theory --only": "only: got nothing, wanted",
    "attack --dataset diabetes": "loss: got squared, wanted logistic",
    "attack --loss squared_hinge": "loss: got squared_hinge, wanted logistic",
    "attack --known 1": "known: got 1, wanted a whole number of at least 2",
    "attack --known 454": "known: got 454, wanted at most 453, so that some of the rows are left",
    f"{TOY} --ticks 9 --window 0 10": "window: got (0, 10), wanted a first tick below a second one, within the 9 ticks",
    f"{TOY} --ticks 9 --window 5 5": "window: got (5, 5)",
    f"{TOY} --ticks 9 --window -1 5": "window: got -1, wanted a whole number of at least 0",
    "attack --window 3": "window: got '3', wanted whole numbers",
    "attack --strength 1": "strength: got 1 with --defence none, wanted --defence with it",
    "attack --defence clip --strength -1": "strength: got -1, wanted at least 0",
    "attack --defence gaussian --strength nan": "strength: got nan",
    "attack --defence randomised-response --strength 0": "strength: got 0, wanted at least 1e-06",
    "attack --mask-scale 2": "mask_scale: got 2 with --masks 32, wanted --masks float",
    "attack --masks float --mask-scale -1": "mask_scale: got -1, wanted at least 0",
    "attack --masks 33": "masks: got '33', wanted one of 'none', 'float', '32', '64'",
    "attack --defence marvell": "batch_size: got 1, wanted at least 2 with Marvell",
    "attack --defence batch-gradients": "batch_size: got 1, wanted at least 2 with BatchGradients",
    "attack --defence batch-gradients --batch-size 2 --strength 1": "strength: got 1 with --defence batch-gradients",
    "attack --forward-only --attacks sign gram --no-tradeoff": "forward_only: got True, wanted --attacks equality gram",
    "attack --forward-only --attacks gram": "forward_only: got True",
    "attack --seed -1": "seed: got -1",
    "attack --out FOLDER/toy.txt": "toy.txt, which is a file; wanted a folder",
    "attack --out FOLDER/toy.txt/new": "out: got FOLDER/toy.txt/new, wanted a folder that can be made",
    "vfb2 --strength 1": "strength: got 1 with --defence none",
    "vfb2 --defence marvell": "batch_size: got 1, wanted at least 2 with Marvell",
    "vfb2 --defence randomised-response --loss robust": "loss: got 'robust', wanted one of 'logistic', 'squared'",
    "vfb2 --masks 32 --mask-scale 2": "mask_scale: got 2 with --masks 32",
    "sweep vfb2 --masks 32 --mask-scale 2": "mask_scale: got 2 with --masks 32",
    "sweep vfb2 --defence gauss": "defence: got 'gauss', wanted one of 'none', 'gaussian'",
}  # fmt: skip


@pytest.mark.parametrize("line", BAD)
def test_bad_input_is_one_line_and_exit_status_2(line, call, folder):
    status, out, err = call(line)
    assert status == 2 and out == [] and len(err) == 1
    assert err[0].startswith("jaxfed: error: ") and BAD[line].replace("FOLDER", str(folder)) in err[0]


def test_a_folder_that_cannot_be_written(call, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)  # root writes everywhere
    status, _, err = call(f"{SHORT} --attacks sign --out {tmp_path}/mine")
    assert status == 2 and "wanted a folder that can be written to" in err[0]


def test_an_error_within_is_no_traceback(call, monkeypatch):
    monkeypatch.setitem(matrix_labels.ATTACKS, "sign", lambda runs: 1 / 0)
    status, _, err = call(f"{SHORT} --attacks sign")
    assert status == 1 and err == ["jaxfed: error: ZeroDivisionError: division by zero"]
