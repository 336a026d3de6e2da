"""The oracles' losses, optimum and scores: finite differences, closed forms, scikit-learn."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from tests.reference import vertical_metrics
from tests.reference.vertical_losses import LOSSES, REGULARIZERS, gradient, hessian, objective
from tests.reference.vertical_problems import best, problem


@pytest.mark.parametrize("loss", LOSSES)
def test_derivatives_of_losses(loss):
    value, first, second = LOSSES[loss]
    z, h = np.random.default_rng(0).normal(size=200) * 3, 1e-6
    y = np.where(np.arange(200) % 2 == 0, 1.0, -1.0)
    np.testing.assert_allclose(first(z, y), (value(z + h, y) - value(z - h, y)) / (2 * h), rtol=0, atol=1e-7)
    np.testing.assert_allclose(second(z, y), (first(z + h, y) - first(z - h, y)) / (2 * h), rtol=0, atol=1e-7)


def test_losses_by_hand():
    """The constants that notes/vertical.md 1.1 works out."""
    one = np.ones(1)
    values = {"logistic": np.log(2), "squared": 1, "half_squared": 0.5, "robust": np.log(1.5), "squared_hinge": 1}
    slopes = {"logistic": -0.5, "squared": -2, "half_squared": -1, "robust": -2 / 3, "squared_hinge": -2}
    for loss in LOSSES:
        assert LOSSES[loss][0](0 * one, one)[0] == pytest.approx(values[loss], abs=1e-15)
        assert LOSSES[loss][1](0 * one, one)[0] == pytest.approx(slopes[loss], abs=1e-15)
    z = np.array([-1000.0, 1000.0])
    np.testing.assert_array_equal(LOSSES["logistic"][0](z, np.ones(2)), [1000, 0])
    np.testing.assert_array_equal(LOSSES["logistic"][1](z, np.ones(2)), [-1, 0])
    np.testing.assert_array_equal(LOSSES["squared_hinge"][0](np.array([2.0, 1, 0]), np.ones(3)), [0, 0, 1])
    slopes = LOSSES["robust"][1](np.linspace(-50, 50, 100001), 0)
    assert np.max(np.abs(slopes)) == pytest.approx(1 / np.sqrt(2), abs=1e-6)


@pytest.mark.parametrize("regularizer", REGULARIZERS)
def test_derivatives_of_objectives(regularizer):
    blocks, y = problem()
    x, h = np.hstack(blocks), 1e-6
    w = np.random.default_rng(1).normal(size=x.shape[1])
    for loss in LOSSES:
        args = (x, y, loss, regularizer, 0.3)
        for j in range(len(w)):
            e = h * np.eye(len(w))[j]
            slope = (objective(w + e, *args) - objective(w - e, *args)) / (2 * h)
            assert gradient(w, *args)[j] == pytest.approx(slope, abs=1e-8)
            curvature = (gradient(w + e, *args) - gradient(w - e, *args)) / (2 * h)
            np.testing.assert_allclose(hessian(w, *args)[j], curvature, rtol=0, atol=1e-7)
    assert REGULARIZERS["l2"][0](np.array([3.0, 4.0])) == 12.5
    assert REGULARIZERS["nonconvex"][0](np.array([1.0, -1.0, 0])) == 0.5


def test_optimum_of_ridge_is_the_normal_equations_and_others_are_stationary():
    blocks, y = problem()
    x = np.hstack(blocks)
    w = np.linalg.solve(2 * x.T @ x / len(y) + 0.1 * np.eye(6), 2 * x.T @ y / len(y))
    np.testing.assert_allclose(best("squared"), w, rtol=0, atol=1e-14)
    for loss in LOSSES:
        for regularizer, l2 in [("l2", 0.1), ("nonconvex", 0.1), ("none", 0.0), ("l2", 1e-4)]:
            w = best(loss, regularizer, l2)
            assert np.max(np.abs(gradient(w, x, y, loss, regularizer, l2))) < 1e-14
            for change in np.vstack([np.eye(6), -np.eye(6)]) * 1e-3:
                args = (x, y, loss, regularizer, l2)
                assert objective(w + change, *args) > objective(w, *args)


def test_scores_by_hand_and_against_scikit_learn():
    rng = np.random.default_rng(0)
    for n in (2, 5, 40, 200):
        y = np.where(np.arange(n) % 3 == 0, 1, -1)
        for z in (rng.normal(size=n), rng.integers(0, 4, n).astype(float), np.zeros(n)):
            auc = vertical_metrics.auc(z, y)
            assert auc == pytest.approx(roc_auc_score(y, z), abs=1e-14)
            pairs = [(a > b) + 0.5 * (a == b) for a in z[y == 1] for b in z[y == -1]]
            assert auc == pytest.approx(np.mean(pairs), abs=1e-14)
    assert np.isnan(vertical_metrics.auc([1.0, 2.0], [1, 1]))
    assert vertical_metrics.accuracy([1.0, -1, 0, 0], [1, 1, 1, -1]) == 0.5
    assert vertical_metrics.rmse([1.0, 2], [4.0, 6]) == np.sqrt(12.5)
