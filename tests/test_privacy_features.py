"""Equality solving against closed forms, and against guesses that need no score."""

import numpy as np
import pytest

from jaxfed.privacy.features import Outputs, feature_error, guesses, outputs, projections, rank_correlation, solve
from tests.privacy_views import view_of
from tests.reference.privacy_features import simulate


def play_run(d, *, n=500, passives=1, passes=4, **settings):
    """A run with features uniform in [0, 1]; the first party, which has the labels, has two of them."""
    rng = np.random.default_rng(0)
    x = [rng.random((n, 2)), *(rng.random((n, d)) for _ in range(passives))]
    z = sum((block - 0.5) @ rng.normal(size=block.shape[1]) * 4 for block in x)
    y = np.where(rng.random(n) < 1 / (1 + np.exp(-z)), 1.0, -1.0)
    return simulate(x, y, (0,), (passes * n,), rng, **({"lr": 0.1, "l2": 1e-4} | settings))


def released(run, party=1):
    """Outputs of every row under the final weights, as of a released model."""
    a = run.x[party] @ run.w[party]
    return Outputs(np.arange(len(a)), a, np.broadcast_to(run.w[party], run.x[party].shape))


def test_one_feature_is_exact():
    run = play_run(1)
    found = solve(released(run))
    assert feature_error(found.features, run.x[1]).max() < 1e-28
    assert np.all(found.rank == 1)


@pytest.mark.parametrize("d", [2, 4])
def test_errors_are_those_of_a_projection(d):
    """Least norm loses x without its part along w, around the middle x - 1/2 without it: (d - 1) / d of the squares,
    1/3 and 1/12 a feature for features uniform in [0, 1], if w has no preferred direction."""
    rng = np.random.default_rng(0)
    x, w = rng.random((400, d)), rng.normal(size=(400, d))
    told = Outputs(np.arange(400), np.sum(x * w, 1), w)
    found = {name: np.mean(feature_error(solve(told, name).features, x))
             for name in ("least", "clipped", "middle", "chebyshev")}  # fmt: skip
    assert found["least"] == pytest.approx((d - 1) / (3 * d), rel=0.15)
    assert found["middle"] == pytest.approx((d - 1) / (12 * d), rel=0.15)
    guess = {name: np.mean(feature_error(g, x)) for name, g in guesses(x, rng).items()}
    assert guess["uniform"] == pytest.approx(1 / 6, rel=0.15)
    assert guess["middle"] == pytest.approx(1 / 12, rel=0.15)
    assert guess["mean"] == pytest.approx(1 / 12, rel=0.15)
    assert found["least"] > guess["middle"]  # solving is worse than not looking
    assert found["clipped"] < found["least"]
    assert max(found["chebyshev"], found["middle"]) < 0.95 * guess["middle"]


@pytest.mark.parametrize("d", [2, 4])
def test_a_released_model_errs_by_its_direction(d):
    run = play_run(d)
    x, w = run.x[1], run.w[1]
    away = np.eye(d) - np.outer(w, w) / (w @ w)
    least = np.mean(feature_error(solve(released(run)).features, x))
    assert least == pytest.approx(np.trace(away @ x.T @ x @ away) / len(x) / d, rel=1e-9)
    middle = np.mean(feature_error(solve(released(run), "middle").features, x))
    assert middle == pytest.approx(np.trace(away @ (x - 0.5).T @ (x - 0.5) @ away) / len(x) / d, rel=1e-9)
    assert middle < np.mean(feature_error(guesses(x, np.random.default_rng(0))["middle"], x))


def test_estimates_fit_the_equation_and_the_range():
    run = play_run(4, n=200)
    told = released(run)
    for name in ("least", "middle", "chebyshev"):
        found = solve(told, name).features
        np.testing.assert_allclose(np.sum(found * told.weights, 1), told.a, atol=1e-8)
    for name in ("clipped", "chebyshev"):
        found = solve(told, name).features
        assert found.min() >= -1e-9
        assert found.max() <= 1 + 1e-9


@pytest.mark.parametrize(("w", "a", "middle", "centre"), [
    ([1, 1], 0.5, [0.25, 0.25], [0.25, 0.25]),  # from (0.5, 0) to (0, 0.5)
    ([1, 2], 1, [0.4, 0.3], [0.5, 0.25]),  # from (1, 0) to (0, 0.5)
    ([2, 2], 3.5, [0.875, 0.875], [0.875, 0.875]),
    ([1, 0], 0.3, [0.3, 0.5], [0.3, 0.5]),
    ([1, 1, 1], 1, [1 / 3] * 3, [1 / 3] * 3),  # a triangle
    ([1, 1], 5, [2.5, 2.5], [1, 1]),  # out of range: the nearest to it
])  # fmt: skip
def test_by_hand(w, a, middle, centre):
    told = Outputs(np.array([3]), np.array([float(a)]), np.array([w], float))
    np.testing.assert_allclose(solve(told, "middle").features, [middle], atol=1e-9)
    np.testing.assert_allclose(solve(told, "chebyshev").features, [centre], atol=1e-9)
    moved = Outputs(told.row, told.a * 10 + np.sum(w) * -5.0, told.weights)  # the range [-5, 5]
    np.testing.assert_allclose(solve(moved, "chebyshev", -5, 5).features, [np.array(centre) * 10 - 5], atol=1e-8)


@pytest.mark.parametrize(("dtype", "most"), [(np.float64, 1e-12), (np.float32, 1e-2)])
def test_several_known_models_give_all_features(dtype, most):
    """Weights of every update known: a row seen d times is solved, and the error follows the rank."""
    run = play_run(3, n=30, passes=20, dtype=dtype)
    ticks, weights, w = run.tick, [], np.zeros(3, dtype)
    for u in range(len(ticks)):
        weights.append(w)
        w = w - run.lr * (run.theta[u, 0] * run.x[1][run.rows[u, 0]] + run.l2 * w)
    view = view_of(run, (0,))
    found = solve(outputs(view, weights=np.array(weights)))
    assert np.all(found.rank == 3)
    assert np.abs(found.features - run.x[1][found.rows]).max() < most
    early = solve(outputs(view._replace(scores=np.where(ticks[:, None] < 80, view.scores, np.nan)),
                          weights=np.array(weights)))  # fmt: skip
    part = early.rank < 3
    times = np.array([np.sum(run.rows[:80] == row) for row in early.rows])
    first = np.isin(early.rows, run.rows[0])  # seen at w = 0, which says nothing
    np.testing.assert_array_equal(early.rank, np.minimum(times - first, 3))
    assert part.any()
    assert (~part).any()
    assert np.abs(early.features - run.x[1][early.rows])[~part].max() < 1e4 * most
    assert np.abs(early.features - run.x[1][early.rows])[part].max() > 0.1


def test_passes_are_outputs_of_all_rows():
    rng = np.random.default_rng(0)
    x = [rng.random((40, 2)), rng.random((40, 3))]
    run = simulate(x, rng.choice([-1.0, 1.0], 40), (0,), (40,) * 5, rng, method="svrg", lr=0.2)
    own = [products[0] for *_, products in run.passes]
    solved = [np.linalg.lstsq(x[1], products[1])[0] for *_, products in run.passes]
    view = view_of(run, (0,))
    view = view._replace(scores=np.full_like(view.scores, np.nan))  # only the passes
    found = solve(outputs(view, weights=np.zeros(3), pass_weights=np.array(solved), pass_products=own))
    assert np.all(found.rank == 3)
    np.testing.assert_allclose(found.features, x[1], atol=1e-8)


def test_two_passive_parties_are_one_block():
    run = play_run(2, passives=2, n=100)
    told = outputs(view_of(run, (0,)))
    np.testing.assert_allclose(told.a, run.products[:, 0, 1:].sum(1), atol=1e-12)
    assert told.weights is None


def test_a_black_box_tells_one_projection():
    one, four = play_run(1), play_run(4)
    told, late = (outputs(view_of(run, (0,))._replace(scores=np.where(run.tick[:, None] > 1000, run.scores, np.nan)))
                  for run in (one, four))  # fmt: skip
    told = projections(told, 500)
    assert np.isnan(told).any()  # rows that were not drawn
    assert abs(rank_correlation(told, one.x[1])[0]) > 0.8  # a feature's order, if not its values
    among = rank_correlation(projections(late, 500), four.x[1])
    assert np.all(np.abs(among) < 0.95)
    seen = np.unique(late.row)  # what the final weights' projection has to do with each feature
    mixed = four.x[1][seen] @ four.w[1]
    expected = [np.corrcoef(mixed, column)[0, 1] for column in four.x[1][seen].T]
    np.testing.assert_allclose(among, expected, atol=0.1)
    shuffled = np.random.default_rng(1).permutation(told)
    assert abs(rank_correlation(shuffled, one.x[1])[0]) < 0.15


@pytest.mark.parametrize("control", ["weights", "scores"])
def test_controls(control):
    run, rng = play_run(1), np.random.default_rng(2)
    told = released(run)
    if control == "weights":
        told = told._replace(weights=rng.normal(size=told.weights.shape))
    else:
        told = told._replace(a=rng.permutation(told.a))
    wrong = np.mean(feature_error(solve(told, "clipped").features, run.x[1]))
    assert wrong > np.mean(feature_error(guesses(run.x[1], rng)["middle"], run.x[1]))


def test_errors_name_the_field():
    run = play_run(2, n=30)
    view = view_of(run, (0,))
    with pytest.raises(ValueError, match="^estimate: got 'best', wanted"):
        solve(released(run), "best")
    with pytest.raises(ValueError, match="^found: got outputs without weights"):
        solve(outputs(view))
    with pytest.raises(ValueError, match="^low: got"):
        solve(released(run), "middle", low=2.0)
    with pytest.raises(ValueError, match="^weights: got shape"):
        outputs(view, weights=np.zeros((3, 2)))
    with pytest.raises(ValueError, match="^pass_weights, pass_products: got one"):
        outputs(view, weights=np.zeros(2), pass_weights=np.zeros((1, 2)))
    with pytest.raises(ValueError, match="^pass_weights: got 1 passes, wanted 0"):
        outputs(view, weights=np.zeros(2), pass_weights=np.zeros((1, 2)), pass_products=[np.zeros(30)])
    with pytest.raises(ValueError, match="^scores: got shape"):
        outputs(view, scores=np.zeros(3))
