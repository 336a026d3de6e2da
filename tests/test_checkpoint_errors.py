"""Checkpoints that must not be gone on from: other settings, named; files that were harmed; folders of no use."""

import jax
import pytest

import jaxfed as jf
from jaxfed import machine, resume
from jaxfed.vertical import BilevelAsync, FixedDelay
from tests import support, test_run
from tests.test_checkpoint import ASYNC, assert_same, vertical

SLOWER = test_run.SCHEDULER.replace(seconds=2.0)
STRICTER = test_run.ALGORITHM.replace(model=jf.models.logistic_regression(3, l2=0.2))
FEDAVG = support.ALGORITHMS["FedAvg"]()
ONE = jf.Measure(lambda algorithm, state, data: {"one": 1.0})
OTHERS = {
    r"algorithm.lr 0.2 \(here 0.1\), ": {"algorithm": test_run.ALGORITHM.replace(lr=0.1)},
    r"algorithm.model.l2 0.1 \(here 0.2\), ": {"algorithm": STRICTER},
    r"algorithm jaxfed.horizontal.apfl.APFL \(here jaxfed.horizontal.fedavg.FedAvg\), ": {"algorithm": FEDAVG},
    r"scheduler.seconds 1 \(here 2\), ": {"scheduler": SLOWER},
    r"every 3 \(here 2\), group 2 \(here 1\), ": {"every": 2, "group": 1},
    r"seed 0 \(here 1\), ": {"seed": 1},
    r"data.test.x float32\[36, 4\] \w{16} \(here float32\[36, 4\] \w{16}\), ": {"test": test_run.federation(2.0)[1]},
    r"measures \(\) \(here tuple of 1\), ": {"measures": [ONE]},
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    test_run.run(checkpoint=folder)
    return folder


@pytest.mark.parametrize("message", OTHERS)
def test_other_settings_are_refused_by_name(message, finished):
    with pytest.raises(ValueError, match=f"^checkpoint: got .*, of a run with {message}wanted the same settings"):
        test_run.run(checkpoint=finished, **OTHERS[message])


def test_x64_is_another_run(finished):
    with jax.enable_x64(True), pytest.raises(ValueError, match=r"x64 0 \(here 1\), wanted the same settings"):
        test_run.run(checkpoint=finished)


def test_other_schedules_of_a_vertical_run_are_refused(tmp_path):
    """A longer run's schedule ends otherwise: what is on its way at the 100th tick is not applied there."""
    vertical(checkpoint=tmp_path)
    for message, options in {
        r"num_rounds 100 \(here 120\)": {"num_rounds": 120},
        r"scheduler.seed 0 \(here 4\)": {"scheduler": BilevelAsync(ASYNC.party, link=2.0, seed=4).slow(3, update=4)},
        r"scheduler jaxfed.*BilevelAsync \(here jaxfed.*FixedDelay\)": {"scheduler": FixedDelay(ASYNC.party, 3, 4)},
    }.items():
        with pytest.raises(ValueError, match=f"of a run with {message}, wanted the same"):
            vertical(checkpoint=tmp_path, **options)


@pytest.mark.parametrize("name", ["checkpoint.pkl", "records-0.pkl"])
@pytest.mark.parametrize("harm", ["cut", "flipped", "empty", "text", "another's"])
def test_harmed_files_are_refused(name, harm, tmp_path):
    if harm == "another's" and name == "checkpoint.pkl":
        name = "records-0.pkl"  # a whole checkpoint of another run is refused by its settings
    folder = tmp_path / "kept"
    test_run.run(checkpoint=folder)
    content = (folder / name).read_bytes()
    middle = len(content) // 2
    test_run.run(1, checkpoint=tmp_path / "other")
    harmed = {
        "cut": content[:-100],
        "flipped": content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :],
        "empty": b"",
        "text": b"no checkpoint",
        "another's": (tmp_path / "other" / name).read_bytes(),
    }
    (folder / name).write_bytes(harmed[harm])
    with pytest.raises(ValueError, match=f"^checkpoint: got .*, whose {name} is cut short or not of this version"):
        test_run.run(checkpoint=folder)
    (folder / name).write_bytes(content)
    test_run.run(checkpoint=folder)


def test_folders_that_cannot_be_used_are_refused_before_the_first_round(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "compiled_advance", lambda *_: pytest.fail("it ran"))
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ValueError, match="^checkpoint: got .*file.*, wanted a folder that can be made and written"):
            test_run.run(checkpoint=folder)
    with pytest.raises(ValueError, match="^checkpoint_seconds: got -1, wanted at least 0"):
        test_run.run(checkpoint=tmp_path / "new", checkpoint_seconds=-1)
    with pytest.raises(ValueError, match="^checkpoint: got .*, wanted None: a folder keeps one run"):
        jf.compare({"APFL": test_run.ALGORITHM}, 0, test_run.TRAIN, num_rounds=2, checkpoint=tmp_path / "new")
    with resume.keeper(tmp_path / "new", 0):
        with pytest.raises(ValueError, match="new, which another run is writing to, wanted another folder"):
            test_run.run(checkpoint=tmp_path / "new")


def test_a_full_disk_is_told_and_the_run_goes_on(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(resume, "_write", full)
    with pytest.warns(UserWarning, match=r"checkpoint: .* could not be written \(No space left on device\)"):
        out = test_run.run(checkpoint=tmp_path)
    assert_same(out, test_run.run())
