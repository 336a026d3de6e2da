"""Defences against the formulas they come from: moments, SciPy's optimum, and what attackers still get."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import expit
from scipy.stats import norm
from sklearn.metrics import roc_auc_score

from jaxfed.privacy import marvell
from jaxfed.privacy.defences import BatchGradients, Clip, Gaussian, MaxNorm, RandomisedResponse
from jaxfed.privacy.marvell import Classes, Marvell
from jaxfed.vertical import Objective

ALL = {
    "Gaussian": Gaussian(0.7),
    "MaxNorm": MaxNorm(),
    "MaxNorm-bound": MaxNorm(0.5, bound=1.5),
    "Marvell": Marvell(2.0),
    "RandomisedResponse": RandomisedResponse(1.0),
    "RandomisedResponse-plain": RandomisedResponse(1.0, corrected=False),
    "Clip": Clip(0.3),
    "BatchGradients": BatchGradients(),
}


@jax.jit
def released(defence, theta, y, keys, row_keys):
    """What is sent of theta [m, b, *L] with labels [m, b], given keys [m, b]: as the engine does it."""
    drawn = jax.vmap(jax.vmap(defence.draw))(keys, row_keys, y)
    lanes = [1] * (theta.ndim - 2)
    y, drawn = jax.tree.map(lambda x: x.reshape(*x.shape, *lanes), (y, drawn))
    return defence.release(theta, y, drawn)


def play(defence, theta, y, seed=0, row_seed=1):
    """What is sent of theta [m, b, ...] with labels [m, b], each row a sample of its own."""
    theta, y = jnp.asarray(theta, jnp.float32), jnp.asarray(y, jnp.float32)
    keys, row_keys = (jax.random.split(jax.random.key(s), y.shape) for s in (seed, row_seed))
    return np.asarray(released(defence, theta, y, keys, row_keys), np.float64)


def toy(shift=0.0, n=20_000, seed=0):
    """Logits of a calibrated model z ~ N(shift, 1.15^2), labels of probability sigma(z), logistic thetas: AUC 0.76."""
    rng = np.random.default_rng(seed)
    z = shift + 1.15 * rng.normal(size=n)
    y = np.where(rng.random(n) < expit(z), 1.0, -1.0)
    return z, y, expit(z) - (1 + y) / 2


BALANCED, RARE = 0.0, -3.0  # half, or 8 % of the labels are +1


def by_batch(a, size=100):
    return a.reshape(-1, size)


def assert_mean(values, expected, axis=0):
    """The mean over `axis` is the expected one, to 5 of its standard errors."""
    error = values.std(axis=axis) / np.sqrt(values.shape[axis])
    assert (np.abs(values.mean(axis=axis) - expected) <= 5 * error + 1e-6).all()


THETA = np.array([0.9, -0.9, 0.4, -0.02, 0.0, 0.25])  # of one minibatch
LABEL = np.where(THETA > 0, -1.0, 1.0)


def many(defence, theta=THETA, y=LABEL, count=20_000, seed=0):
    """`count` releases of one minibatch [count, b]."""
    return play(defence, np.tile(theta, (count, 1)), np.tile(y, (count, 1)), seed, seed + 1)


def test_gaussian_noise_has_its_mean_and_variance():
    sent = many(Gaussian(0.7))
    assert_mean(sent, THETA)
    assert_mean((sent - THETA) ** 2, 0.49)


@pytest.mark.parametrize("defence, largest", [(MaxNorm(), 0.9), (MaxNorm(bound=1.0), 1.0)], ids=["batch", "bound"])
def test_max_norm_gives_all_rows_one_second_moment(defence, largest):
    """E = theta and E^2 = M^2 whatever the sample, also of theta = 0, where the printed formula is 0 times infinity."""
    sent = many(defence)
    assert_mean(sent, THETA)
    assert_mean(sent**2, largest**2)


def test_max_norm_is_the_papers_formula():
    """theta (1 + sqrt(M^2 / theta^2 - 1) eta), number by number."""
    theta = np.random.default_rng(0).uniform(-1, 1, (4, 50)).astype(np.float32).astype(float)
    keys, row_keys = (jax.random.split(jax.random.key(s), theta.shape) for s in (0, 1))
    eta = np.asarray(jax.vmap(jax.vmap(MaxNorm().draw))(keys, row_keys, jnp.ones(theta.shape)), np.float64)
    largest = np.abs(theta).max(1, keepdims=True)
    expected = theta * (1 + 0.5 * np.sqrt(largest**2 / theta**2 - 1) * eta)
    np.testing.assert_allclose(play(MaxNorm(0.5), theta, np.ones_like(theta)), expected, atol=2e-5)


def test_max_norm_of_single_rows_needs_a_bound():
    """One row has no largest: the logistic loss's bound is 1, others have to be said. Equal rows go out as they are."""
    sent = play(MaxNorm(), np.full((20_000, 1), 0.6), np.ones((20_000, 1)))
    assert_mean(sent**2, 1.0)
    equal = np.array([[0.5, -0.5, 0.5]])  # as before the first update
    np.testing.assert_array_equal(play(MaxNorm(), equal, -np.sign(equal)), equal)
    assert not np.allclose(play(MaxNorm(bound=1.0), equal, -np.sign(equal)), equal, atol=0.1)


def sign_accuracy(sent, y):
    return np.mean(np.sign(sent.ravel()) == -y.ravel())


@pytest.mark.parametrize("shift, accuracy, auc", [(BALANCED, 0.70, 0.76), (RARE, 0.56, 0.78)], ids=["even", "rare"])
def test_max_norm_hides_signs_but_not_ranks(shift, accuracy, auc):
    """The numbers of the literature's code on toy data, and the exact sign accuracy Phi(|theta| / sqrt(M^2 - theta^2)).

    Controls: without the defence signs are right always; on random labels they are right half the time."""
    _, y, theta = (by_batch(a) for a in toy(shift))
    sent = play(MaxNorm(), theta, y)
    largest = np.abs(theta).max(1, keepdims=True)
    exact = norm.cdf(np.abs(theta) / np.sqrt(np.maximum(largest**2 - theta**2, 1e-12))).mean()
    assert abs(sign_accuracy(sent, y) - exact) < 5 * np.sqrt(0.25 / y.size)
    assert abs(exact - accuracy) < 0.03
    assert abs(roc_auc_score(y.ravel(), -sent.ravel()) - auc) < 0.03
    assert sign_accuracy(theta, y) == 1
    random = np.random.default_rng(1).choice([-1, 1], y.size)
    assert abs(sign_accuracy(sent, random) - 0.5) < 5 * np.sqrt(0.25 / y.size)


@pytest.mark.parametrize("shift", [BALANCED, RARE], ids=["even", "rare"])
def test_noise_that_looks_safe_in_one_message_is_not_after_a_hundred(shift):
    """Gaussian noise of std 1: AUC 0.70 to 0.73 of one message, at least 0.997 of the mean of 100."""
    _, y, theta = toy(shift, 10_000)
    sent = np.stack([play(Gaussian(1.0), theta[None], y[None], seed)[0] for seed in range(100)])
    one = roc_auc_score(y, -sent[0])
    assert 0.69 < one < 0.75  # the literature's 0.70 to 0.73, and two standard errors of 10,000 rows
    assert roc_auc_score(y, -sent.mean(0)) >= 0.997
    assert abs(roc_auc_score(np.random.default_rng(1).permutation(y), -sent.mean(0)) - 0.5) < 0.06


@pytest.mark.parametrize("epsilon, accuracy", [(0.5, 0.62), (1, 0.73), (2, 0.88), (4, 0.98)])
@pytest.mark.parametrize("corrected", [True, False])
def test_randomised_response_bounds_the_sign_attack(epsilon, accuracy, corrected):
    """Signs tell the flipped label and nothing else, at e^eps / (1 + e^eps), however many messages are averaged."""
    _, y, theta = toy(n=10_000)
    sent = [play(RandomisedResponse(epsilon, corrected), theta[None], y[None], seed)[0] for seed in range(3)]
    expected = np.exp(epsilon) / (1 + np.exp(epsilon))
    assert abs(expected - accuracy) < 0.006
    assert abs(sign_accuracy(sent[0], y) - expected) < 5 * np.sqrt(expected * (1 - expected) / y.size)
    np.testing.assert_array_equal(sent[0], sent[1])  # a fixed flip: later messages add nothing
    np.testing.assert_array_equal(sent[0], sent[2])


@pytest.mark.parametrize("loss", ["logistic", "squared", "half_squared"])
def test_randomised_response_is_theta_of_a_flipped_label(loss):
    """Plain, it is theta with y or -y; corrected, its mean over flips is theta."""
    rng = np.random.default_rng(0)
    z, y = rng.normal(size=8), rng.choice([-1.0, 1.0], 8)
    objective = Objective(loss)
    theta, other = (np.asarray(objective.theta(jnp.asarray(z), jnp.asarray(label))) for label in (y, -y))
    sent = many(RandomisedResponse(1.5, corrected=False, loss=loss), theta, y)
    flipped = np.abs(sent - other) < 1e-5
    assert (flipped | (np.abs(sent - theta) < 1e-5)).all()
    assert_mean(flipped.astype(float), 1 / (1 + np.exp(1.5)))
    assert_mean(many(RandomisedResponse(1.5, loss=loss), theta, y), theta)


@pytest.mark.parametrize("defence", [Gaussian(1.0), MaxNorm(), Marvell(2.0), RandomisedResponse(2.0)], ids=repr)
def test_gradients_stay_unbiased(defence):
    """The mean over releases of sum_i theta_i x_i is the gradient."""
    rng = np.random.default_rng(0)
    _, y, theta = toy(n=12)
    x = rng.normal(size=(12, 3))
    assert_mean(many(defence, theta, y) @ x, theta @ x)


def test_clipping_biases_and_keeps_signs():
    sent = play(Clip(0.3), THETA[None], LABEL[None])[0]
    np.testing.assert_allclose(sent, [0.3, -0.3, 0.3, -0.02, 0, 0.25], rtol=1e-6)


def test_batch_gradients_keep_theta_and_say_so():
    np.testing.assert_allclose(play(BatchGradients(), THETA[None], LABEL[None])[0], THETA, rtol=1e-6)
    assert [name for name, defence in ALL.items() if defence.aggregates] == ["BatchGradients"]


CLASSES = [
    (Classes(0.02, 0.05, 0.6, 0.5), 1.0),
    (Classes(0.05, 0.02, 0.6, 0.1), 0.3),
    (Classes(0.0, 0.0, 1.0, 0.3), 1.0),  # two points
    (Classes(0.9, 0.01, 0.2, 0.5), 0.5),  # all noise belongs to one class
    (Classes(0.01, 0.9, 0.2, 0.7), 0.5),
    (Classes(0.02, 0.05, 0.6, 0.92), 20.0),
]


@pytest.mark.parametrize("classes, power", CLASSES)
def test_marvell_is_scipys_optimum(x64, classes, power):
    """SciPy minimises sumKL over how the power is split; and a tenth less power is worse."""
    u, v, g, p = classes

    def objective(share, power=power):
        s0, s1 = u + share * power * g / (1 - p), v + (1 - share) * power * g / p
        return 0.5 * ((s0 + g) / s1 + (s1 + g) / s0) - 1 if s0 > 0 < s1 else np.inf

    grid = np.linspace(0, 1, 201)
    best = grid[np.argmin([objective(s) for s in grid])]
    low, high = max(best - 0.005, 0), min(best + 0.005, 1)
    found = minimize_scalar(objective, (low, high), bounds=(low, high), method="bounded", options={"xatol": 1e-12})
    noise0, noise1 = (float(a) for a in marvell.optimal_noise(Classes(*map(jnp.float64, classes)), power))
    assert noise0 >= 0 <= noise1
    assert p * noise1 + (1 - p) * noise0 == pytest.approx(power * g, rel=1e-9)
    value = float(marvell.sum_kl(u + noise0, v + noise1, g))
    assert value == pytest.approx(min(found.fun, objective(0), objective(1)), rel=1e-6)
    assert value < min(objective(s, 0.9 * power) for s in grid)


def lowest_error(negatives, positives):
    """The least mean of false positives and false negatives of any threshold, either way round."""
    values = np.sort(np.concatenate([negatives, positives]))[::20]
    below = [np.searchsorted(np.sort(a), values, side="right") / a.size for a in (negatives, positives)]
    return 0.5 - np.abs(below[0] - below[1]).max() / 2


@pytest.mark.parametrize("power", [1.0, 4.0])
def test_no_threshold_beats_marvells_bound(power):
    """Normal classes, as the theorem has them: errors stay above 1/2 - sqrt(sumKL) / 4, and far below it without noise.

    The noise's own bound is measured too: variances of what is sent are those that sumKL was computed from."""
    rng = np.random.default_rng(0)
    y = np.where(rng.random(100_000) < 0.3, 1.0, -1.0)
    theta = np.where(y > 0, -0.6 + 0.15 * rng.normal(size=y.size), 0.3 + 0.2 * rng.normal(size=y.size))
    sent = play(Marvell(power), theta[None], y[None])[0]
    s0, s1, g = sent[y < 0].var(), sent[y > 0].var(), (theta[y > 0].mean() - theta[y < 0].mean()) ** 2
    noise = marvell.optimal_noise(Classes(theta[y < 0].var(), theta[y > 0].var(), g, (y > 0).mean()), power)
    np.testing.assert_allclose([s0, s1], [theta[y < 0].var() + noise[0], theta[y > 0].var() + noise[1]], rtol=0.05)
    bound = float(marvell.error_bound(marvell.sum_kl(s0, s1, g)))
    error = lowest_error(sent[y < 0], sent[y > 0])
    assert 0 < bound <= error + 5 * np.sqrt(0.25 / 30_000)
    assert lowest_error(theta[y < 0], theta[y > 0]) < 0.02 < bound


def test_marvells_statistics_are_those_of_each_minibatch():
    """NumPy's, and for a minibatch of one class those of its mirror image."""
    _, y, theta = (by_batch(a, 20) for a in toy(n=400))
    y[3], theta[3] = 1, -np.abs(theta[3])
    y[4], theta[4] = -1, np.abs(theta[4])
    found = marvell.statistics(jnp.asarray(theta), jnp.asarray(y))
    for i, (t, labels) in enumerate(zip(theta, y, strict=True)):
        if i in (3, 4):
            expected = t.var(), t.var(), (2 * t.mean()) ** 2, 0.5
        else:
            a, b = t[labels < 0], t[labels > 0]
            expected = a.var(), b.var(), (b.mean() - a.mean()) ** 2, np.mean(labels > 0)
        np.testing.assert_allclose([float(a[i, 0]) for a in found], expected, rtol=1e-4, atol=1e-6)
    sent = play(Marvell(4.0), theta, y)
    assert np.isfinite(sent).all() and (np.sign(sent[3]) > 0).any() and (np.sign(sent[4]) < 0).any()


def test_noise_of_no_strength_changes_nothing():
    _, y, theta = (by_batch(a) for a in toy(n=500))
    for defence in (Gaussian(0.0), MaxNorm(0.0), Marvell(0.0), Clip(1.0), RandomisedResponse(60.0)):
        np.testing.assert_allclose(play(defence, theta, y), theta, atol=1e-6)


@pytest.mark.parametrize("name", ["Gaussian", "MaxNorm", "MaxNorm-bound", "Marvell", "RandomisedResponse", "Clip"])
def test_lanes_are_single_runs(name):
    """A strength [L] against theta [m, b, L] is each of its numbers alone, and thetas of lanes do not mix."""
    _, y, theta = (by_batch(a, 20) for a in toy(n=200))
    lanes = np.stack([theta, 0.7 * theta, 0.3 * theta], -1)
    factors = np.array([0.5, 1.0, 2.0], np.float32)
    together = play(jax.tree.map(lambda x: x * factors, ALL[name]), lanes, y)
    for i, factor in enumerate(factors):
        alone = play(jax.tree.map(lambda x, f=factor: x * f, ALL[name]), lanes[..., i], y)
        np.testing.assert_allclose(together[..., i], alone, rtol=1e-5, atol=1e-6)


def test_draws_depend_on_the_right_key():
    """A flip on the sample's key alone; noise on the release's key alone."""
    _, y, theta = (a[None] for a in toy(n=200))
    for name, defence in ALL.items():
        first = play(defence, theta, y, 0, 1)
        assert np.array_equal(first, play(defence, theta, y, 2, 1)) == (name not in RELEASE_KEYED)
        assert np.array_equal(first, play(defence, theta, y, 0, 3)) == (not name.startswith("RandomisedResponse"))


RELEASE_KEYED = ("Gaussian", "MaxNorm", "MaxNorm-bound", "Marvell")

REFUSED = [
    (Gaussian(-1.0), "logistic", 4, "defence.std: got -1"),
    (Gaussian(jnp.array([0.1, jnp.nan])), "logistic", 4, "defence.std: got nan"),
    (MaxNorm(), "robust", 1, "defence.bound: got None with batch_size 1, wanted a number .* 0.7071 bounds"),
    (MaxNorm(), "squared", 1, "none bounds theta"),
    (Marvell(), "logistic", 1, "batch_size: got 1, wanted at least 2"),
    (Marvell(), "squared", 8, "objective.loss: got 'squared'"),
    (Marvell(-1.0), "logistic", 8, "defence.power"),
    (RandomisedResponse(), "robust", 1, "defence.loss: got 'logistic', wanted 'robust'"),
    (RandomisedResponse(loss="robust"), "robust", 1, "defence.loss: got 'robust', wanted one of"),
    (RandomisedResponse(0.0), "logistic", 1, "defence.epsilon: got 0"),
    (Clip(-0.1), "logistic", 1, "defence.bound: got -0.1"),
    (BatchGradients(), "logistic", 1, "batch_size: got 1, wanted at least 2"),
]


@pytest.mark.parametrize("defence, loss, batch_size, message", REFUSED)
def test_what_does_not_suit_is_refused(defence, loss, batch_size, message):
    with pytest.raises(ValueError, match=message):
        defence.check(Objective(loss), batch_size)


def test_what_suits_is_admitted():
    for defence in ALL.values():
        defence.check(Objective("logistic"), 8)
    for defence in (Gaussian(), MaxNorm(), MaxNorm(bound=1.0), RandomisedResponse(), Clip()):
        defence.check(Objective("logistic"), 1)
    MaxNorm(bound=0.8).check(Objective("robust"), 1)
    RandomisedResponse(0.0, corrected=False).check(Objective("logistic"), 1)
