"""The Gram attack that knows how many features there are, against true inner products of simulated runs."""

import numpy as np
import pytest

from jaxfed.privacy import gram, low_rank
from tests.privacy_views import others_gram, view_of
from tests.reference.privacy_features import simulate


def play_run(*, n=30, sizes=(2, 1, 2), passes=8, **settings):
    rng = np.random.default_rng(0)
    x = [rng.normal(size=(n, d)) for d in sizes]
    z = sum(block @ rng.normal(size=block.shape[1]) for block in x)
    y = np.where(rng.random(n) < 1 / (1 + np.exp(-0.3 * z)), 1.0, -1.0)
    return simulate(x, y, (0,), (n * passes,), rng, lr=0.1, l2=1e-3, **settings)


def error(found, run, parties=(0,)):
    truth = others_gram(run, parties)[np.ix_(found.columns, found.columns)]
    return np.linalg.norm(found.gram - truth) / np.linalg.norm(truth)


@pytest.mark.parametrize(("dtype", "most"), [(np.float64, 1e-8), (np.float32, 1e-4)])
def test_far_fewer_scores_than_rows_are_enough(dtype, most):
    run = play_run(dtype=dtype)
    view = view_of(run, (0,))
    alone = gram.attack(view, at_zero=True)
    assert not alone.determined.all()  # 8 scores of 30 unknowns
    assert alone.rank.max() < 20
    for seed in (0, 1):
        found = low_rank.attack(view, 3, rng=np.random.default_rng(seed))
        assert found.residual < most
        assert error(found, run) < most
        assert found.unknowns == 90
        np.testing.assert_allclose(sum(f @ f.T for f in found.factors), found.gram, atol=1e-12)


def test_too_few_features_do_not_fit_and_more_do_not_hurt():
    run = play_run(passes=10, n=20)
    view = view_of(run, (0,))
    assert low_rank.attack(view, 2, rng=np.random.default_rng(0)).residual > 0.05
    assert error(low_rank.attack(view, 4, rng=np.random.default_rng(0)), run) < 1e-3


def test_the_schedule_known_and_unknown():
    run = play_run(passes=30, delay=2)
    view = view_of(run, (0,))
    knowing = low_rank.attack(view, (1, 2), rng=np.random.default_rng(0), applied=run.applied, read=run.read)
    assert error(knowing, run) < 1e-6
    for factor, block in zip(knowing.factors, run.x[1:], strict=True):
        np.testing.assert_allclose(factor @ factor.T, (block @ block.T)[np.ix_(knowing.columns, knowing.columns)],
                                   atol=1e-4)  # fmt: skip
    blind = low_rank.attack(view, 3, rng=np.random.default_rng(0), weighted=False)
    assert blind.residual > 0.1  # it can see that it is wrong
    assert 0.05 < error(blind, run) < 0.6  # and is near all the same
    truth = others_gram(run, (0,))[np.ix_(blind.columns, blind.columns)]
    assert np.corrcoef(blind.gram.ravel(), truth.ravel())[0, 1] > 0.85


@pytest.mark.parametrize("control", ["thetas", "scores"])
def test_controls(control):
    run = play_run(passes=20)
    view, rng = view_of(run, (0,)), np.random.default_rng(0)
    if control == "thetas":
        view = view._replace(theta=rng.permutation(view.theta))
    else:
        view = view._replace(scores=rng.permutation(view.scores))
    found = low_rank.attack(view, 3, rng=rng)
    truth = others_gram(run, (0,))[np.ix_(found.columns, found.columns)]
    assert found.residual > 0.5
    off = ~np.eye(len(truth), dtype=bool)
    assert abs(np.corrcoef(found.gram[off], truth[off])[0, 1]) < 0.3


def test_errors_name_the_field():
    view = view_of(play_run(passes=1), (0,))
    with pytest.raises(ValueError, match=r"^num_features: got 2 numbers, wanted one"):
        low_rank.attack(view, (1, 2), rng=np.random.default_rng(0))
    with pytest.raises(ValueError, match=r"^num_features: got 0, wanted"):
        low_rank.attack(view, 0, rng=np.random.default_rng(0))
    with pytest.raises(ValueError, match=r"^iterations: got 0"):
        low_rank.attack(view, 1, rng=np.random.default_rng(0), iterations=0)
    with pytest.raises(ValueError, match=r"^weighted: got 1"):
        low_rank.attack(view, 1, rng=np.random.default_rng(0), weighted=1)  # pyright: ignore
