"""The quickstart's tiny version, as a user calls it: its table, its files, and what the figure says of them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jaxfed import results

ROOT = Path(__file__).parent.parent
NAMES = ["FedAvg", "SCAFFOLD", "LocalOnly", "FineTuned", "APFL 0.25", "APFL 0.5", "APFL 0.75", "APFL adaptive"]


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    out = tmp_path_factory.mktemp("quickstart")
    (out / "results.nc").write_text("from an earlier call")  # its own folder is overwritten
    fast = {"XLA_FLAGS": "--xla_backend_optimization_level=0", "PYTHONPATH": str(ROOT)}  # most of the time is compiling
    call = [sys.executable, str(ROOT / "scripts" / "quickstart.py"), "--smoke", "--out", str(out)]
    finished = subprocess.run(call, capture_output=True, text=True, env=os.environ | fast, timeout=600)
    assert finished.returncode == 0, finished.stderr
    return out, finished


def test_table_has_the_numbers_of_the_file(done):
    out, finished = done
    ds = results.load_dataset(out / "results.nc")
    assert ds["algorithm"].values.tolist() == NAMES
    for name in NAMES:
        row = next(line for line in finished.stdout.splitlines() if line.startswith(name))
        cells = row.removeprefix(name).split()
        last = ds.sel(algorithm=name).isel(seed=0, round=-1)
        assert cells[0] == f"{100 * float(last['personal_test_accuracy'].mean()):.1f}"
        assert cells[3] == f"{100 * float(last['server_test_accuracy'].mean()):.1f}"
        assert cells[6] == f"{100 * float(last['personal_test_accuracy'].quantile(0.1)):.0f}"
        assert cells[8] == (f"{float(last['mixing_weight'].mean()):.2f}" if "APFL" in name else "-")
    assert "Warning" not in finished.stderr


def test_files_are_there(done):
    out, _ = done
    assert (out / "quickstart.png").stat().st_size > 50_000
    diversity = results.load_dataset(out / "diversity.nc")
    assert diversity["classes"].values.tolist() == [10, 5, 2, 1]
    ds = results.load_dataset(out / "results.nc").isel(round=-1)
    for name in diversity["algorithm"].values:
        same = diversity["personal_test_loss"].sel(algorithm=name, classes=2)
        assert (same.values == ds["personal_test_loss"].sel(algorithm=name).values).all()


def test_the_note_on_equal_server_models_is_true(done):
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        import quickstart
    finally:
        sys.path.remove(str(ROOT / "scripts"))
    ds = results.load_dataset(done[0] / "results.nc")
    shown, note = quickstart.without_twins(ds)
    assert note == "FedAvg's server model is also that of FineTuned and APFL"
    assert shown["server_test_accuracy"].sel(algorithm=["FedAvg", "SCAFFOLD", "LocalOnly"]).notnull().all()
    assert shown["server_test_accuracy"].sel(algorithm=["FineTuned", "APFL 0.5"]).isnull().all()
    assert shown["personal_test_accuracy"].sel(algorithm=["FedAvg", "SCAFFOLD"]).isnull().all()
    apart = ds.copy(deep=True)
    apart["server_test_accuracy"].loc[{"algorithm": "APFL 0.25"}] += 0.1
    assert quickstart.without_twins(apart)[0]["server_test_accuracy"].sel(algorithm="APFL 0.25").notnull().all()
