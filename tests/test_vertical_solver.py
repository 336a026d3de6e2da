"""The central optimum against Newton's method in NumPy, and against known values on the credit table."""

import os
import warnings
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

import jaxfed as jf
from jaxfed import vertical
from jaxfed.vertical import blocks
from tests.reference import vertical_losses as reference

CLASSES = ("logistic", "squared_hinge")
DATA = Path(os.environ.get("JAXFED_DATA_DIR", "no folder"))


def rows(loss, n=80, d=7):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(n, d)) * np.linspace(0.3, 3, d)
    z = x @ rng.normal(size=d) + rng.normal(size=n) + 0.5
    return x, np.where(z > 0, 1.0, -1.0) if loss in CLASSES else z


def check_stationary(found, objective, party):
    """The gradient at `found`, by the oracle, is as small as it says."""
    x, y, w = blocks.matrix(party.blocks), np.asarray(party.y), found.params[party.blocks.mask()]
    x = x.toarray() if sparse.issparse(x) else x
    problem = (x.astype(float), y.astype(float), objective.loss, objective.regularizer, float(objective.l2))
    norm = np.linalg.norm(reference.gradient(w, *problem))
    assert norm <= 1e-10 and found.gradient_norm <= 1e-10
    assert found.value == pytest.approx(reference.objective(w, *problem), rel=1e-12, abs=1e-14)
    return w, problem


@pytest.mark.parametrize("regularizer, l2", [("l2", 1e-3), ("nonconvex", 1e-3), ("none", 0.0)])
@pytest.mark.parametrize("loss", ["logistic", "squared", "half_squared", "robust", "squared_hinge"])
def test_optimum_is_that_of_newtons_method(loss, regularizer, l2):
    x, y = rows(loss)
    intercept = loss != "robust"
    party = vertical.split(x, y, 3, seed=2, intercept=intercept)
    objective = vertical.Objective(loss, regularizer, l2)
    found = vertical.optimum(objective, party)
    assert found.params.dtype == np.float64 and found.params.shape == party.blocks.mask().shape
    w, problem = check_stationary(found, objective, party)
    best = reference.optimum(*problem)
    np.testing.assert_allclose(w, best, rtol=0, atol=1e-7)
    assert found.value == pytest.approx(reference.objective(best, *problem), abs=1e-13)
    if not intercept:
        np.testing.assert_array_equal(party.split_params(party.join(found.params)), found.params)


def test_it_does_not_depend_on_the_split():
    x, y = rows("logistic")
    objective = vertical.Objective("logistic", "l2", 1e-3)
    parties = [vertical.split(x, y, q, seed=q, intercept=True) for q in (1, 3, 7)]
    parties.append(vertical.non_federated(parties[-1]))
    found = [party.join(vertical.optimum(objective, party).params) for party in parties]
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], rtol=0, atol=1e-9)


@pytest.mark.parametrize("wide", [False, True])
def test_sparse_is_dense(wide, monkeypatch):
    """Also by conjugate gradients, as for many coordinates."""
    if wide:
        monkeypatch.setattr("jaxfed.vertical.solver.NARROW", 0)
    x, y = rows("logistic", n=200, d=40)
    x[np.abs(x) < 1] = 0
    objective = vertical.Objective("logistic", "l2", 1e-4)
    dense, thin = (vertical.split(form, y, 4, seed=0) for form in (x, sparse.csr_array(x)))
    found = vertical.optimum(objective, thin)
    check_stationary(found, objective, thin)
    same = vertical.optimum(objective, dense)
    np.testing.assert_allclose(thin.join(found.params), dense.join(same.params), rtol=0, atol=1e-6)


def test_what_has_no_minimiser_is_warned_of():
    x = np.linspace(-1, 1, 20)[:, None]
    party = vertical.split(x, x[:, 0] > 0, 1)
    with pytest.warns(UserWarning, match="optimum: got a gradient of norm .*, wanted at most 0"):
        vertical.optimum(vertical.Objective("logistic", "none"), party, tolerance=0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        vertical.optimum(vertical.Objective("logistic", "l2", 1e-2), party)


def test_what_is_refused():
    x, y = rows("squared")
    party = vertical.split(x, y, 2)
    with pytest.raises(ValueError, match="party.y: got None, wanted labels"):
        vertical.optimum(vertical.Objective("squared"), party.like(x))
    with pytest.raises(ValueError, match="party.y: got .* values, .*, wanted labels of two classes"):
        vertical.optimum(vertical.Objective("logistic"), party)
    with pytest.raises(ValueError, match="objective.l2: got shape"):
        vertical.optimum(vertical.Objective("squared", "l2", np.ones(2)), party)


@pytest.mark.skipif(not (DATA / "uci_credit_card.csv.gz").is_file(), reason="JAXFED_DATA_DIR has no credit data")
@pytest.mark.parametrize("regularizer, value", [("l2", 0.43909565), ("nonconvex", 0.43886685)])
def test_credit(regularizer, value):
    """Values from an independent computation of f* on D1, problems (13) and (14) with l2 = 1e-4."""
    ex = jf.datasets.load("credit")
    party = vertical.split(ex.x, ex.y, 8, 3)
    found = vertical.optimum(vertical.Objective("logistic", regularizer, 1e-4), party)
    assert found.value == pytest.approx(value, abs=6e-9) and found.gradient_norm <= 1e-10


def test_non_federated_runs_equal_one_dominator():
    """Serial SVRG on joined features is SVRG with any split and one synchronous dominator, to rounding."""
    x, y = rows("logistic")
    party = vertical.split(x, y, 3, seed=0, intercept=True)
    one = vertical.non_federated(party)
    assert (one.num_parties, one.active, one.num_features) == (1, (0,), 8)
    algorithm = jf.VFB2SVRG(vertical.Objective("logistic", "l2", 1e-3), lr=0.05)
    runs = [jf.run(0, algorithm, data, num_rounds=vertical.Epochs(3)) for data in (party, one)]
    ours, theirs = (data.join(run.state.weights) for data, run in zip((party, one), runs, strict=True))
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)


def test_afsvrg_vp_leaves_passive_parties_alone():
    x, y = rows("logistic")
    party = vertical.split(x, y, 4, 2, seed=0)
    algorithm = vertical.afsvrg_vp(vertical.Objective("logistic", "l2", 1e-3), 0.05)
    w = np.asarray(jf.run(0, algorithm, party, num_rounds=vertical.Epochs(2)).state.weights)
    assert (w[2:] == 0).all() and (np.abs(w[:2])[party.blocks.mask()[:2]] > 1e-3).all()
