"""Very many clients: states on the host are the resident run bit for bit, and only the cohort moves."""

import jax
import numpy as np
import pytest

import jaxfed as jf
from jaxfed import runner
from jaxfed.horizontal import host_store
from tests import support

S = jf.horizontal
COUNT, COHORT = 10_000, 16
OPTIONS = {"num_rounds": 7, "every": 3, "group": 4, "progress": False}
EXACT = ("personal_train_loss", "server_test_accuracy", "mixing_weight", "drift", "update_norm", "finite", "visits")


def federation(count=COUNT, seed=0, most=4):
    """Ragged clients of 1 to 4 rows of 3 features and 3 classes, each with its own shift; test rows for two thirds."""
    rng = np.random.default_rng(seed)
    size = rng.integers(1, most + 1, count).astype(np.int32)
    owner = np.repeat(np.arange(count), size)
    x = rng.normal(size=(len(owner), 3)).astype(np.float32) + rng.normal(size=(count, 3)).astype(np.float32)[owner]
    y = (x.argmax(axis=1) + owner % 2) % 3
    rows = np.zeros((count, most), np.int32)
    rows[np.arange(most) < size[:, None]] = rng.permutation(len(owner))[np.argsort(owner, kind="stable")]
    test = np.where(np.arange(count) % 3 < 2, 1, 0).astype(np.int32)
    return (
        jf.ClientData.from_table(x, y, rows, size),
        jf.ClientData.from_table(x[::-1].copy(), y[::-1].copy(), rows[:, :2], test, allow_empty=True),
    )


TRAIN, TEST = federation()
ALGORITHM = jf.APFL(jf.models.logistic_regression(3, l2=0.01), alpha=np.linspace(0, 1, COUNT, dtype=np.float32), lr=0.2,
                    adaptive=True, **support.BATCH)  # fmt: skip
UNIFORM = S.UniformCohort(COUNT, COHORT)


def run(store, algorithm=ALGORITHM, data=TRAIN, **options):
    options = {"test": TEST, "scheduler": UNIFORM, **OPTIONS} | options
    return jf.run(3, algorithm, data, client_store=store, **options)


@pytest.fixture(scope="module")
def resident():
    """Seven rounds of 16 of 10,000 clients, all on the device."""
    return run("device")


@pytest.fixture
def pools_on_host(monkeypatch):
    """Pools of any size move row by row, and all moves are small."""
    monkeypatch.setattr(host_store, "RESIDENT_BYTES", 0)
    monkeypatch.setattr(host_store, "MOVED_BYTES", 1 << 18)


def assert_same(one, two):
    """Bit for bit: states and records."""
    support.assert_trees(one.state, two.state, atol=0)
    assert list(one.dataset) == list(two.dataset)
    for name in one.dataset.variables:
        np.testing.assert_array_equal(one.dataset[name].values, two.dataset[name].values, err_msg=str(name))


@pytest.mark.parametrize("chunk", [None, 1, 2])
def test_host_is_resident_bit_for_bit(resident, pools_on_host, chunk):
    assert_same(resident, run("host", chunk=chunk))
