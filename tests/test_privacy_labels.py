"""Label attacks on runs that a NumPy oracle played, each with a control: shuffled labels, or thetas that are noise."""

import jax
import numpy as np
import pytest
from scipy.stats import norm

from jaxfed.privacy import label_metrics as metrics
from jaxfed.privacy.inversion import at_start, logits, solve, with_scores
from jaxfed.privacy.labels import by_clusters, by_hint, by_norm, by_sign
from jaxfed.privacy.messages import collect, gather
from jaxfed.vertical.objective import Objective
from tests.label_views import view
from tests.reference.privacy_labels import gaussian, simulate
from tests.reference.vertical_losses import slope
from tests.reference.vertical_metrics import auc

SIZES = (5, 4, 3)
WEIGHTS = np.random.default_rng(0).normal(size=12)


def classes(n=300, noise=2.0, **more):
    return gaussian(n, SIZES, WEIGHTS, noise=noise, **more)


def targets(n=120):
    """(blocks, targets in 0 to 1, as min-max scaling gives them)."""
    blocks, _ = classes(n)
    y = np.hstack(blocks) @ WEIGHTS
    return blocks, (y - y.min()) / (y.max() - y.min())


def play(blocks, y, updates, parties=(1,), loss="logistic", **more):
    run = simulate(blocks, y, updates, loss=loss, **more)
    return run, view(blocks, run, parties, loss=loss)


def window(seen, start):
    """The view of a window that begins at update `start`."""
    fields = ("tick", "time", "dominator", "update", "rows", "theta", "scores", "products")
    later = {name: getattr(seen, name)[start:] for name in fields}
    return seen._replace(**later, passes=tuple(p for p in seen.passes if p.tick >= start))


def noisy(seen, sigma, keep=0.0):
    """The view with thetas that are mostly noise."""
    rng = np.random.default_rng(3)
    passes = tuple(p._replace(theta=keep * p.theta + sigma * rng.normal(size=len(p.theta))) for p in seen.passes)
    return seen._replace(theta=keep * seen.theta + sigma * rng.normal(size=seen.theta.shape), passes=passes)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("stale", [0, 8, 64])
def test_signs_tell_every_label_seen_at_any_staleness(stale, dtype):
    blocks, y = classes()
    for updates, b, active in [(150, 1, (0,)), (2000, 1, (0, 2)), (200, 4, (0,))]:
        run, seen = play(blocks, y, updates, stale=stale, dtype=dtype, b=b, active=active)
        guesses = by_sign(seen)
        judged = metrics.judge(y, guesses)
        met = np.isin(np.arange(len(y)), run["rows"])
        assert judged[:6] == (1,) * 6 and judged.coverage == np.mean(met)
        np.testing.assert_array_equal(np.isnan(guesses.labels), ~met)
        np.testing.assert_array_equal(np.isnan(guesses.first), ~met)


def test_a_full_pass_tells_all_labels_at_once():
    blocks, y = classes()
    _, seen = play(blocks, y, 20, svrg=300)
    assert metrics.judge(y, by_sign(seen))[2:] == (1,) * 5
    assert metrics.coverage(by_sign(seen, passes=False).labels) < 0.1


def test_of_a_run_on_shuffled_labels_signs_tell_those_and_not_the_true_ones():
    """The control: what a dominator does not use does not leak."""
    blocks, y = classes(2000)
    shuffled = np.random.default_rng(5).permutation(y)
    _, seen = play(blocks, shuffled, 3000)
    guesses = by_sign(seen)
    assert metrics.accuracy(shuffled, guesses.labels) == 1
    truth = metrics.judge(y, guesses)
    for value in (truth.message_auc, truth.accuracy, truth.auc_first, truth.auc_last, truth.auc_mean):
        assert abs(value - 0.5) < 0.06


def test_order_of_messages_and_what_repeats_add_up_to():
    blocks, y = classes(50)
    run, seen = play(blocks, y, 30, svrg=10, b=2, stale=2)
    told = collect(seen)
    for p, (tick, theta, _) in enumerate(run["passes"]):
        at = 50 * p + 2 * tick
        np.testing.assert_array_equal(told.theta[at : at + 50], theta)
        np.testing.assert_array_equal(told.rows[at : at + 50], np.arange(50))
        assert np.all(told.update[at : at + 50] == -1 - p) and np.all(np.isnan(told.own[at : at + 50]))
        np.testing.assert_array_equal(told.theta[at + 50 : at + 70], run["theta"][tick : tick + 10].ravel())
        np.testing.assert_array_equal(told.own[at + 50 : at + 70], run["products"][tick : tick + 10, :, 1].ravel())
    guesses = by_sign(seen)
    for row in range(50):
        mine = [-theta for i, theta in zip(told.rows, told.theta, strict=True) if i == row]
        assert (guesses.first[row], guesses.last[row]) == (mine[0], mine[-1])
        assert guesses.mean[row] == pytest.approx(sum(mine) / len(mine), abs=1e-15)
    votes = gather(5, np.array([0, 0, 0, 1, 1, 2, 4]), np.array([1, 1, -9, 1, -2, 0, np.nan]))
    np.testing.assert_array_equal(votes.labels, [1, -1, np.nan, np.nan, np.nan])
    np.testing.assert_array_equal(votes.mean, [-7 / 3, -0.5, 0, np.nan, np.nan])


def test_squared_hinge_tells_labels_and_scores_within_the_margin_and_nothing_beyond():
    blocks, y = classes(noise=0.0)
    run, seen = play(blocks, y, 4000, loss="squared_hinge", lr=0.02, stale=4)
    found, margin = logits(seen), (y[run["rows"]] * run["scores"]).ravel()
    inside = margin < 1
    assert 0.1 < np.mean(inside) < 0.9
    np.testing.assert_array_equal(np.isnan(found.z), ~inside)
    np.testing.assert_array_equal(found.labels[inside], y[run["rows"].ravel()][inside])
    np.testing.assert_allclose(found.z[inside], run["scores"].ravel()[inside], rtol=0, atol=1e-14)
    guesses = by_sign(seen)
    assert metrics.accuracy(y, guesses.labels) == 1
    met = np.isin(np.arange(len(y)), run["rows"][inside.reshape(run["rows"].shape)])
    np.testing.assert_array_equal(~np.isnan(guesses.labels), met)


def test_clusters_tell_labels_without_the_loss():
    blocks, y = classes(shift=-1.5)
    known = {int(i): int(y[i]) for i in range(5)}
    for loss in ("logistic", "squared_hinge"):
        _, seen = play(blocks, y, 1500, svrg=500, loss=loss, lr=0.02)
        for guesses in (by_clusters(seen, known=known), by_clusters(seen, prior=np.mean(y > 0))):
            judged = metrics.judge(y, guesses, known)
            assert (judged.accuracy, judged.auc_first, judged.auc_mean, judged.coverage) == (1,) * 4
        if loss == "logistic":
            means = by_clusters(seen, known=known, at=None)  # the pass at w = 0: two values of theta
            assert metrics.accuracy(y, means.labels) == 1 and metrics.coverage(means.labels) == 1
        wrong = by_clusters(seen, known={row: -label for row, label in known.items()})
        assert metrics.accuracy(y, wrong.labels) == 0  # all hangs on the one bit that `known` settles
    _, late = play(blocks, y, 1500, lr=0.05)  # two means lie badly in a run that learns fast; the ranking is right
    assert metrics.judge(y, by_clusters(late, known=known, at=None), known).auc_mean == 1
    blind = metrics.judge(y, by_clusters(noisy(seen, 1.0), known=known), known)
    assert abs(blind.accuracy - 0.5) < 0.12 and abs(blind.auc_mean - 0.5) < 0.12
    with pytest.raises(ValueError, match="known: got {}, wanted a label of a sample"):
        by_clusters(seen)
    with pytest.raises(ValueError, match="known: got {}, wanted"):
        by_clusters(seen, prior=0.5)


@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 1e-5), (np.float64, 1e-13)])
def test_thetas_tell_the_scores_and_the_sum_of_the_others_products(dtype, tolerance):
    blocks, y = classes()
    run, seen = play(blocks, y, 2000, parties=(1, 2), stale=8, lr=0.02, dtype=dtype, svrg=700)
    found, told = logits(seen), collect(seen)
    assert metrics.accuracy(y[found.rows], found.labels) == 1
    updates = told.update >= 0
    z = run["scores"].ravel()
    assert 4 < np.max(np.abs(z))
    assert metrics.largest_error(z, found.z[updates]) <= tolerance
    assert metrics.largest_error(run["products"][:, :, 0].ravel(), found.others[updates]) <= tolerance
    for p, (_, _, scores) in enumerate(run["passes"]):
        assert metrics.largest_error(scores, found.z[told.update == -1 - p]) <= tolerance
    off = logits(noisy(seen, 0.5, keep=1.0)).z[updates]
    assert np.nanmedian(np.abs(off - z)) > 0.3  # the control


def test_scores_are_as_exact_as_the_rounding_of_theta_allows():
    z = np.linspace(-40, 40, 4001, dtype=np.float32)[:, None]
    for y in (-1.0, 1.0):
        rows, theta = np.arange(len(z))[:, None], slope("logistic", z.astype(float), y).astype(np.float32)
        _, seen = play(*classes(5), 1)
        seen = seen._replace(x=np.zeros((len(z), 1)), rows=rows, theta=theta, tick=np.arange(len(z)),
                             products=np.zeros((*z.shape, 1)))  # fmt: skip
        found = logits(seen).z
        beyond = np.isnan(found)
        np.testing.assert_array_equal(beyond, (np.abs(theta) == 1)[:, 0])  # theta is rounded to 1
        assert np.all(-y * z[beyond, 0] > 16)
        error = np.abs(found - z[:, 0])[~beyond]
        allowed = 2**-24 * (1 + np.exp(-y * z[~beyond, 0].astype(float)))  # half a last digit; float64 adds 1e-14
        near = -y * z[~beyond, 0] < 10
        assert np.all(error[near] <= 1.01 * allowed[near] + 1e-13)


def test_scores_from_the_thetas_that_jaxfed_computes():
    z = np.random.default_rng(0).normal(size=(2000, 3)).astype(np.float32) * 1.5
    y = np.where(np.arange(2000) % 3 == 0, 1.0, -1.0).astype(np.float32)
    _, seen = play(*classes(5), 1)
    rows = np.broadcast_to(np.arange(2000)[:, None], z.shape)
    theta = np.asarray(jax.jit(Objective("logistic").theta)(z, y[rows]))
    assert theta.dtype == np.float32
    told = dict(rows=rows, theta=theta, tick=np.arange(2000), products=z[:, :, None] / 2)
    seen = seen._replace(x=np.zeros((2000, 1)), **told)
    found, near = logits(seen), (-y[rows] * z).ravel() < 4
    np.testing.assert_array_equal(found.labels, y[found.rows])
    assert metrics.largest_error(z.ravel()[near], found.z[near]) < 1e-5
    assert metrics.largest_error(z.ravel()[near] / 2, found.others[near]) < 1e-5


def test_norms_tell_rare_positives_and_nothing_of_balanced_classes():
    weak = dict(noise=8.0, seed=1)
    for shift, share in [(-12.5, (0.06, 0.1)), (0.0, (0.45, 0.55))]:
        (first, *others), y = classes(800, shift=shift, **weak)
        blocks = [np.hstack([first, np.ones((800, 1))]), *others]  # with an intercept
        assert share[0] < np.mean(y > 0) < share[1]
        _, seen = play(blocks, y, 9000, lr=0.02)
        guesses = by_norm(window(seen, 3000), prior=np.mean(y > 0))
        judged = metrics.judge(y, guesses)
        each = metrics.auc_of_batches(y[guesses.rows], guesses.each, 100)
        aucs = (judged.message_auc, judged.auc_last, judged.auc_mean)
        if shift:
            assert min(aucs) > 0.99 and judged.accuracy > 0.97 and np.nanquantile(each, 0.95) == 1
        else:
            assert max(abs(value - 0.5) for value in aucs) < 0.08 and abs(judged.accuracy - 0.5) < 0.08
            assert np.nanquantile(each, 0.95) < 0.7
        hint = metrics.judge(y, by_hint(seen, {int(np.argmax(y)): 1}), [int(np.argmax(y))])
        assert hint[1:6] == (1,) * 5  # one known positive tells all, balanced or not
    assert np.all(np.isnan(by_norm(seen).labels))


def test_hints_of_either_class_and_their_controls():
    blocks, y = classes()
    run, seen = play(blocks, y, 600, stale=8)
    negative = int(run["rows"][np.argmax(y[run["rows"][:, 0]] < 0), 0])
    positive = int(run["rows"][np.argmax(y[run["rows"][:, 0]] > 0), 0])
    for known in ({positive: 1}, {negative: -1}, {negative: -1, positive: 1}):
        assert metrics.judge(y, by_hint(seen, known), known)[:6] == (1,) * 6
    blind = metrics.judge(y, by_hint(noisy(seen, 1.0), {positive: 1}), [positive])
    assert abs(blind.auc_mean - 0.5) < 0.1 and abs(blind.message_auc - 0.5) < 0.06
    unseen = int(np.flatnonzero(~np.isin(np.arange(len(y)), run["rows"]))[0])
    with pytest.raises(ValueError, match="wanted a row that was seen"):
        by_hint(seen, {unseen: 1})
    with pytest.raises(ValueError, match="known: got row 300"):
        by_hint(seen, {300: 1})
    with pytest.raises(ValueError, match=r"known\[2\]: got 0"):
        by_hint(seen, {2: 0})


@pytest.mark.parametrize("loss", ["squared", "half_squared", "robust"])
def test_at_the_start_theta_tells_the_target(loss):
    blocks, y = targets()
    run, seen = play(blocks, y, 200, loss=loss, lr=0.02, b=4)
    found = at_start(seen)
    assert metrics.mean_error(y, found.values) < 1e-15
    np.testing.assert_array_equal(~np.isnan(found.values), np.isin(np.arange(len(y)), run["rows"][0]))
    _, full = play(blocks, y, 200, loss=loss, lr=0.02, svrg=50, dtype=np.float32)
    found = at_start(full)
    assert metrics.coverage(found.values) == 1 and metrics.mean_error(y, found.values) < 1e-7
    assert np.sum(~np.isnan(found.each)) == len(y) + 1  # the first pass and the first update, not the later ones
    assert metrics.coverage(at_start(window(full, 10)).values) == 0  # the control: a window that begins later
    bare = seen._replace(x=np.zeros((len(y), 0)), products=0 * seen.products)  # of an attacker without features
    assert metrics.mean_error(y, at_start(bare).values) < 1e-15 and np.sum(~np.isnan(at_start(bare).each)) == 4
    assert metrics.coverage(at_start(window(bare, 10)).values) == 0
    if loss != "robust":
        later = with_scores(seen, np.zeros_like(run["scores"]))
        assert metrics.mean_error(y, later.values) > 0.05


def test_at_the_start_of_an_asynchronous_run_the_error_is_what_others_have_moved():
    blocks, y = targets()
    run, seen = play(blocks, y, 200, loss="half_squared", lr=0.1, stale=16)
    found = at_start(seen)
    early = ~np.isnan(found.each)
    assert 3 < np.sum(early) < 40 and np.all(run["products"][early][:, 0, 1] == 0)
    np.testing.assert_allclose(found.each[early] - y[found.rows[early]], -run["scores"][early, 0], rtol=0, atol=1e-14)
    assert np.any(run["scores"][early] != 0)


@pytest.mark.parametrize("loss", ["squared", "half_squared", "robust", "logistic"])
def test_a_known_score_and_theta_tell_the_target(loss):
    blocks, y = classes() if loss == "logistic" else targets()
    run, seen = play(blocks, y, 400, loss=loss, lr=0.02, stale=8)
    found = with_scores(seen, run["scores"])
    each = y[found.rows]
    near = np.abs(each - run["scores"].ravel()) < 1.2
    assert metrics.largest_error(each[near], found.each[near]) < 1e-13
    if loss != "logistic":
        wrong = with_scores(seen, np.roll(run["scores"], 1, 0))
        assert metrics.mean_error(y, wrong.values) > 0.05
    with pytest.raises(ValueError, match="scores: got shape"):
        with_scores(seen, run["scores"][1:])


def test_robust_beyond_the_root_of_two_gives_the_other_root():
    r = np.linspace(-6, 6, 1201)
    theta = slope("robust", np.zeros(len(r)), -r)
    inside = np.abs(r) <= np.sqrt(2)
    found = -solve("robust", theta, np.zeros(len(r)))
    np.testing.assert_allclose(found[inside], r[inside], rtol=0, atol=1e-12)
    np.testing.assert_allclose(found[~inside], 2 / r[~inside], rtol=0, atol=1e-12)  # the roots' product is 2
    with pytest.raises(ValueError, match="view.loss: got 'hinge'"):
        solve("hinge", theta, theta)


@pytest.mark.parametrize("unsure", [True, False])
def test_noise_that_looks_safe_in_a_message_is_not_after_a_hundred_epochs(unsure):
    """Gaussian noise of deviation 1 on every theta; per message and accumulated, beside what the clean thetas imply.

    Of a model that fits well less leaks: its thetas are small beside the noise.
    """
    n, sigma = 200, 1.0
    weights = np.random.default_rng(0).normal(size=24)
    blocks, y = gaussian(n, (6, 6, 6, 6), weights, noise=8.0 if unsure else 2.0)
    run, seen = play(blocks, y, 100 * n, lr=0.002 if unsure else 0.01, noise=sigma)
    judged = metrics.judge(y, by_sign(seen))
    if unsure:
        assert 0.7 < judged.message_auc < 0.73 and judged.message_accuracy < 0.68
        assert judged.auc_mean >= 0.997 and judged.accuracy > 0.95
    else:
        assert judged.message_auc < 0.65 and 0.85 < judged.auc_mean < 0.95
    rows = run["rows"].ravel()
    clean, count = slope("logistic", run["scores"].ravel(), y[rows]), np.bincount(rows, minlength=n)
    some = slice(None, None, 10)
    up, down = clean[some][y[rows[some]] < 0], clean[some][y[rows[some]] > 0]
    expected = np.mean(norm.cdf((up[:, None] - down) / (sigma * np.sqrt(2))))
    assert judged.message_auc == pytest.approx(expected, abs=0.02)
    mean = np.bincount(rows, clean, n) / count
    gap = np.subtract.outer(mean[y < 0], mean[y > 0])
    spread = sigma * np.sqrt(np.add.outer(1 / count[y < 0], 1 / count[y > 0]))
    assert judged.auc_mean == pytest.approx(np.mean(norm.cdf(gap / spread)), abs=0.003 if unsure else 0.03)
    blind = metrics.judge(y, by_sign(noisy(seen, sigma)))  # the control: noise alone says nothing, however often
    assert abs(blind.auc_mean - 0.5) < 0.12 and abs(blind.message_auc - 0.5) < 0.02


def test_metrics_by_hand_and_by_ranks():
    rng = np.random.default_rng(2)
    y, score = rng.choice([-1.0, 1.0], 60), np.round(rng.normal(size=60), 1)
    score[::7] = np.nan
    met = ~np.isnan(score)
    assert metrics.auc(y, score) == pytest.approx(auc(score[met], y[met]), abs=1e-12)
    skip = [1, 2]
    met[skip] = False
    assert metrics.auc(y, score, skip) == pytest.approx(auc(score[met], y[met]), abs=1e-12)
    truth, guess = np.array([1.0, -1, 1, -1]), np.array([1.0, 1, np.nan, -1])
    assert metrics.accuracy(truth, guess) == pytest.approx(2 / 3)
    assert metrics.accuracy(truth, guess, [1]) == 1
    assert metrics.coverage(guess) == 0.75
    assert (metrics.mean_error(truth, guess), metrics.largest_error(truth, guess)) == (pytest.approx(2 / 3), 2)
    batches = metrics.auc_of_batches(np.array([1, 1, -1, 1, 1.0]), np.array([3, 2, 0, 1, 9.0]), 2)
    np.testing.assert_array_equal(batches, [np.nan, 1])
    nothing = metrics.judge(truth, gather(4, np.zeros(0, int), np.zeros(0)))
    assert nothing.coverage == 0 and np.all(np.isnan(nothing[:6]))
    with pytest.raises(ValueError, match="truth: got shape"):
        metrics.auc(truth, guess[1:])


def test_attacks_on_theta_refuse_a_view_without_it():
    blocks, y = classes(20)
    hidden = view(blocks, simulate(blocks, y, 5, b=3), (1,), aggregated=True)
    for attack in (by_sign, by_norm, logits, at_start, lambda seen: by_hint(seen, {0: 1})):
        with pytest.raises(ValueError, match="view: got no thetas"):
            attack(hidden)
    _, ridge = play(*targets(), 3, loss="squared")
    with pytest.raises(ValueError, match="view.loss: got 'squared'"):
        logits(ridge)
