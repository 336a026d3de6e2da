"""On the credit data (the paper's D1): the methods approach the optimum of an independent solver, and never pass it."""

import os

import numpy as np
import pytest

import jaxfed as jf
from jaxfed.vertical import BilevelAsync, Epochs, Objective, Synchronous

BEST = {"l2": 0.43909565, "nonconvex": 0.43886685}  # l2 = 1e-4, no intercept

pytestmark = [
    pytest.mark.skipif("JAXFED_DATA_DIR" not in os.environ, reason="JAXFED_DATA_DIR names no folder with the data"),
    pytest.mark.usefixtures("x64"),
]


@pytest.fixture(scope="module")
def credit():
    ex = jf.datasets.load("credit")
    assert ex.x.shape == (24_000, 90)
    party = jf.vertical.split(ex.x, ex.y, num_parties=8, num_active=3)
    return party, party.like(ex.x_test, ex.y_test)


@pytest.mark.parametrize("regularizer", BEST)
@pytest.mark.parametrize("method, lr, near", [(jf.VFB2SGD, 0.002, 8e-3), (jf.VFB2SVRG, 0.01, 2e-4),
                                              (jf.VFB2SAGA, 0.01, 2e-4)])  # fmt: skip
def test_the_optimum_is_approached_and_never_passed(credit, method, lr, near, regularizer):
    party, test = credit
    algorithm = method(Objective("logistic", regularizer, 1e-4), lr=lr)
    for scheduler in (BilevelAsync(party).slow(7, update=1.4), Synchronous(party)):
        ds = jf.run(0, algorithm, party, test=test, scheduler=scheduler, num_rounds=Epochs(15), progress=False).dataset
        gap = ds.objective.values - BEST[regularizer]
        assert (gap > -5e-9).all(), "below the optimum"
        assert gap[-1] < near
        assert 0.80 < ds.test_accuracy[-1] < 0.85 and 0.74 < ds.test_auc[-1] < 0.80


def test_lossless_against_the_centralised_method(credit):
    party, test = credit
    algorithm = jf.VFB2SVRG(Objective("logistic", "l2", 1e-4), lr=0.01)
    one, one_test = jf.vertical.non_federated(party), jf.vertical.non_federated(test)
    options = {"num_rounds": Epochs(15), "progress": False}
    ours = jf.run(0, algorithm, party, test=test, scheduler=BilevelAsync(party), **options).dataset
    plain = jf.run(0, algorithm, one, test=one_test, **options).dataset
    np.testing.assert_allclose(ours.test_auc[-1], plain.test_auc[-1], atol=1e-4)
    np.testing.assert_allclose(ours.test_accuracy[-1], plain.test_accuracy[-1], atol=1e-3)
