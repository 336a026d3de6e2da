"""The vertical experiments' tiny versions, as a user calls them: their tables, files, and what must hold in them."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from jaxfed import results

ROOT = Path(__file__).parent.parent
NAMES = ("losslessness", "async", "speedup", "staleness")
ALL = """
import contextlib, pathlib, runpy, sys
scripts, out, *names = sys.argv[1:]
sys.path.insert(0, scripts)
for name in names:
    sys.argv = [name, "--smoke", "--out", f"{out}/{name}"]
    with open(f"{out}/{name}.txt", "w") as file, contextlib.redirect_stdout(file):
        runpy.run_path(f"{scripts}/vertical_{name}.py", run_name="__main__")
"""


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    """Return a function that gives a script's Dataset and what it printed. All run in one process: imports are slow."""
    out = tmp_path_factory.mktemp("vertical")
    for name in NAMES:
        (out / name).mkdir()
        (out / name / "results.nc").write_text("from an earlier call")  # its own folder is overwritten
    fast = {"XLA_FLAGS": "--xla_backend_optimization_level=0", "PYTHONPATH": str(ROOT)}  # most of it is compiling
    call = [sys.executable, "-c", ALL, str(ROOT / "scripts"), str(out), *NAMES]
    finished = subprocess.run(call, capture_output=True, text=True, env=os.environ | fast, timeout=600)
    assert finished.returncode == 0, finished.stderr
    assert "Warning" not in finished.stderr
    return lambda name: (results.load_dataset(out / name / "results.nc"), (out / f"{name}.txt").read_text())


@pytest.mark.parametrize("name", NAMES)
def test_figures_are_there(smoke, name):
    _, text = smoke(name)
    folder = Path(text.splitlines()[-1].split()[2].rstrip(":"))
    assert (folder / f"{name}.png").stat().st_size > 20_000


def test_losslessness(smoke):
    ds, text = smoke("losslessness")
    one = ds.isel(problem=0, trial=0)
    at = {name: one.sel(run=name) for name in one["run"].values}
    assert list(at) == ["NonF-SVRG", "VFB2-SVRG", "VFB-SVRG", "AFSVRG-VP"]
    for name in ("VFB2-SVRG", "VFB-SVRG"):
        for metric in ("test_accuracy", "test_auc"):
            assert abs(float(at[name][metric] - at["NonF-SVRG"][metric])) < 0.01
        assert float(at[name]["suboptimality"]) < 1.2 * float(at["NonF-SVRG"]["suboptimality"])
    assert float(at["AFSVRG-VP"]["suboptimality"]) > 5 * float(at["VFB2-SVRG"]["suboptimality"])
    assert (one["suboptimality"] > 0).all()  # nothing is below the optimum of a convex problem
    w, best = one["params"], one["optimum_params"]
    np.testing.assert_allclose(one["distance"], np.linalg.norm(w - best, axis=-1) / np.linalg.norm(best))
    assert (w.sel(run="AFSVRG-VP") == 0).sum() == 14  # the features of 4 of 8 parties
    for name, row in at.items():
        line = next(line for line in text.splitlines() if line.startswith(name))
        assert f"{100 * float(row['test_accuracy']):.2f} ± 0.00" in line


def test_asynchronous_parties_are_faster(smoke):
    ds, text = smoke("async")
    one = ds.isel(problem=0, algorithm=0, trial=0)
    end = one["time"].isel(record=-1)
    quick, slow = (float(end.sel(schedule=name)) for name in ("asynchronous", "synchronous"))
    assert 1.2 * quick < slow < 1.6 * quick  # a party that takes 40 % longer
    assert one["gain"] > 1.2
    seconds = one["seconds"]
    assert float(seconds.sel(schedule="synchronous")) > float(seconds.sel(schedule="asynchronous"))
    for schedule in ("asynchronous", "synchronous"):  # the loss of the target lies between the records around it
        run = one.sel(schedule=schedule)
        after = int(np.searchsorted(run["time"], seconds.sel(schedule=schedule)))
        assert run["suboptimality"][after] <= one["target"] * (1 + 1e-9) <= run["suboptimality"][after - 1]
    assert f"{float(one['gain']):.2f}" in text


def test_more_parties_are_faster(smoke):
    ds, text = smoke("speedup")
    one = ds.isel(algorithm=0, trial=0)
    assert one["parties"].values.tolist() == [1, 4]
    quick, slow = (float(one["speedup"].sel(schedule=name, parties=4)) for name in ("asynchronous", "synchronous"))
    assert quick > slow > 1.5  # to a loss: no upper bound, as a run may need fewer epochs than the base
    pace = [float(one["pace"].sel(schedule=name, parties=4)) for name in ("asynchronous", "synchronous")]
    assert 8 > pace[0] > pace[1] > 1.5  # epochs a second: 4 parties and 2 loops, at most 8 times as many
    alone = one.sel(parties=1, schedule="synchronous")
    assert float(alone["speedup"]) == pytest.approx(1)
    each = alone["time"][-1] / (alone["epochs"][-1] * 455)
    assert float(each) == pytest.approx(1.2, rel=0.01)  # a product and an update of all features, no messages
    assert f"{quick:.2f}" in text


def test_a_sweep_over_staleness_is_one_program(smoke):
    ds, _ = smoke("staleness")
    assert (ds["fixed_programs"] == 0).all()
    assert (ds["fixed_rate"] > 0.1).all() and (ds["bound_rate"] > 0.1).all()
    serial, loose = (float(ds["bound_seconds"].sel(bound=tau).mean()) for tau in (0, 8))
    assert serial > 2 * loose  # a bound of 0 makes three loops take turns
