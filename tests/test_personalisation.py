"""Where personalisation should pay and where it should not, on real digits, over seeds."""

import numpy as np
import pytest

import jaxfed as jf

CLIENTS, WIDTH = 20, 400
SETTINGS = {"lr": 0.3, "local_steps": 5, "batch_size": 20}


def federation(partition, seed):
    """Train and test rows; tables padded to one width, so that every split runs the same compiled program."""
    parts = jf.horizontal.split(jf.datasets.load("digits"), partition, CLIENTS, seed)
    return [part.replace(rows=np.pad(part.rows, ((0, 0), (0, WIDTH - part.rows.shape[1])))) for part in parts]


def final(algorithm, partition, seed):
    """(mean over clients of the personal models' accuracy on each client's test rows, mean alpha) after 40 rounds."""
    train, test = federation(partition, seed)
    ds = jf.run(seed, algorithm, train, test=test, num_rounds=40, every=40, progress=False).dataset
    alpha = float(ds.mixing_weight[-1].mean()) if "mixing_weight" in ds else np.nan
    return jf.results.summary(ds)["mean_over_clients"], alpha


@pytest.fixture(scope="module")
def outcome():
    """{split: (APFL's accuracy less FedAvg's [seed], its learned alpha [seed])}."""
    model = jf.models.logistic_regression(10)
    fedavg, apfl = jf.FedAvg(model, weights="uniform", **SETTINGS), jf.APFL(model, alpha=0.5, adaptive=True, **SETTINGS)
    out = {}
    for name, partition in (("iid", jf.horizontal.Iid()), ("two classes", jf.horizontal.Classes(2))):
        ours, theirs = (np.array([final(a, partition, s) for s in range(3)]) for a in (apfl, fedavg))
        out[name] = ours[:, 0] - theirs[:, 0], ours[:, 1]
    return out


def test_it_pays_where_clients_differ(outcome):
    gain, alpha = outcome["two classes"]
    assert (gain > 0.03).all(), gain
    assert (alpha > 0.5).all(), alpha


def test_it_does_not_beat_fedavg_where_clients_are_alike(outcome):
    gain, alpha = outcome["iid"]
    assert (gain < 0.01).all(), gain
    assert (alpha < 0.5).all(), alpha
