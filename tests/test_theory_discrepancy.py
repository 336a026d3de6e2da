"""||Dbar - D_i||_1: exact values against loops, estimates against closed forms, intervals against repeats."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from sklearn.naive_bayes import GaussianNB

from jaxfed.datasets import synthetic
from jaxfed.theory import discrepancy
from tests.reference import theory_discrepancy as reference


def laws(label_probs, means, noise=1.0):
    """Gaussians [n, ...] with one law of x given y."""
    n = len(label_probs)
    return discrepancy.Gaussians(
        jnp.asarray(label_probs, float), jnp.broadcast_to(jnp.asarray(means, float), (n, *np.shape(means))),
        jnp.full((n,), noise),
    )  # fmt: skip


def shifted(means, noise=1.0):
    """One Gaussian for each client: one class, whose mean differs."""
    means = jnp.asarray(means, float)
    return discrepancy.Gaussians(jnp.ones((len(means), 1)), means[:, None, :], jnp.full((len(means),), noise))


@partial(jax.jit, static_argnames=("density", "num_samples"))
def estimate(key, laws, density, num_samples):
    return discrepancy.monte_carlo(key, laws, density, discrepancy.draw, num_samples)


def test_label_skew_is_the_sum_over_classes():
    probs = np.random.default_rng(0).dirichlet(np.full(5, 0.4), 7)
    np.testing.assert_allclose(discrepancy.label_skew(probs), reference.label_distances(probs), rtol=1e-5)


@pytest.mark.parametrize("skew", [0.0, 0.3, 1.0])
def test_label_skew_of_equally_skewed_clients(skew):
    found = discrepancy.label_skew(synthetic.skewed_labels(8, 4, skew))
    np.testing.assert_allclose(found, np.full(8, 2 * skew * (1 - 1 / 4)), atol=1e-6)


def test_monte_carlo_of_the_joint_law_is_the_label_skew():
    federation = synthetic.label_skewed_gaussians(
        np.random.default_rng(1).dirichlet(np.full(3, 0.5), 4), 5, separation=1.0, seed=2
    )
    found = estimate(jax.random.key(0), discrepancy.gaussians(federation), discrepancy.joint_log_density, 4000)
    exact = federation.divergence
    np.testing.assert_allclose(discrepancy.label_skew(federation.label_probs), exact, rtol=1e-5)
    assert (np.abs(found.value - exact) < 4.5 * found.error).all()
    assert (found.error < 0.02).all()


def test_monte_carlo_of_the_features_is_what_quadrature_gives_and_less_than_the_joint():
    probs, means = np.array([[0.8, 0.15, 0.05], [0.1, 0.8, 0.1], [0.2, 0.1, 0.7]]), [-1.0, 0.5, 1.5]
    found = estimate(jax.random.key(1), laws(probs, np.array(means)[:, None]), discrepancy.feature_log_density, 20000)
    exact = reference.feature_distances(probs, means, 1.0)
    assert (np.abs(found.value - exact) < 4.5 * found.error).all()
    assert (exact < 0.8 * reference.label_distances(probs)).all()  # these classes overlap
    apart = reference.feature_distances(probs, [-20.0, 0.0, 20.0], 1.0)
    np.testing.assert_allclose(apart, reference.label_distances(probs), rtol=1e-4)  # and these do not


def test_monte_carlo_of_disjoint_laws_is_exact():
    found = estimate(jax.random.key(2), laws(np.eye(3), np.zeros((3, 2))), discrepancy.joint_log_density, 8)
    np.testing.assert_allclose(found.value, np.full(3, 2 * (1 - 1 / 3)), rtol=1e-5)
    np.testing.assert_allclose(found.error, 0, atol=1e-6)


def test_monte_carlo_is_unbiased_and_its_intervals_cover_two_shifted_gaussians():
    a, b, noise, repeats = [0.0, 0.0], [0.6, 0.8], 0.7, 600
    exact = reference.two_gaussians(a, b, noise) / 2  # ||(P + Q) / 2 - P|| = ||P - Q|| / 2
    keys = jax.random.split(jax.random.key(3), repeats)
    found = jax.vmap(lambda key: estimate(key, shifted([a, b], noise), discrepancy.feature_log_density, 200))(keys)
    for i in range(2):
        value, error = np.asarray(found.value[:, i], float), np.asarray(found.error[:, i], float)
        assert stats.ttest_1samp(value, exact).pvalue > 1e-3
        covered = lambda width, value=value, error=error: int((np.abs(value - exact) < width * error).sum())  # noqa: E731
        assert stats.binomtest(covered(1.96), repeats, 0.95).pvalue > 1e-3
        assert stats.binomtest(covered(0.98), repeats, 0.95).pvalue < 1e-6  # the test would see half the error


def test_monte_carlo_has_bounded_terms_for_many_clients():
    """Importance sampling from Dbar alone would have terms up to n - 1 here."""
    n = 30
    found = estimate(jax.random.key(4), laws(np.eye(n), np.zeros((n, 1))), discrepancy.joint_log_density, 4)
    np.testing.assert_allclose(found.value, np.full(n, 2 * (1 - 1 / n)), rtol=1e-4)


def federation(seed, skew, size, clients=3):
    probs = synthetic.skewed_labels(clients, clients, skew)
    return synthetic.label_skewed_gaussians(probs, 4, separation=1.0, sizes=size, test_fraction=0, seed=seed)


class Memory:
    """A classifier that knows its training rows by heart and takes all others for the nearest one's."""

    def fit(self, x, y, sample_weight):
        self.x, self.y = x, y

    def predict(self, x):
        return self.y[np.argmin(((x[:, None] - self.x) ** 2).sum(axis=2), axis=1)]


@pytest.mark.parametrize("skew", [0.0, 0.5])
@pytest.mark.parametrize("make", [GaussianNB, Memory])
def test_the_classifiers_limit_is_below_the_distance_as_often_as_it_says(skew, make):
    repeats, level, exact = 120, 0.8, 2 * skew * (1 - 1 / 3)
    low = [
        discrepancy.classifier_bound(federation(k, skew, 60).train, seed=k, level=level, make=make).low[k % 3]
        for k in range(repeats)
    ]
    below = int((np.array(low) <= exact + 1e-9).sum())
    assert stats.binomtest(below, repeats, level, alternative="less").pvalue > 1e-3


def test_the_classifiers_bound_is_near_the_distance_with_many_rows():
    """The best set A for label skew is a set of labels, which a linear classifier of indicators finds."""
    found = discrepancy.classifier_bound(federation(0, 0.6, 4000).train, seed=0)
    exact = 2 * 0.6 * (1 - 1 / 3)
    assert (found.low > exact - 0.12).all() and (found.low < found.value).all()
    np.testing.assert_allclose(found.value, exact, atol=0.05)


def test_the_classifiers_bound_sees_shifted_features_and_unequal_sizes():
    rng = np.random.default_rng(0)
    sizes, means = (400, 900, 1500), (0.0, 0.0, 2.0)
    clients = [(rng.normal(m, 1, (n, 1)), np.zeros(n, int)) for n, m in zip(sizes, means, strict=True)]
    found = discrepancy.classifier_bound(clients, seed=1)
    exact = 2 / 3 * reference.two_gaussians([0.0], [2.0], 1.0)
    np.testing.assert_allclose(found.value[2], exact, atol=0.07)
    assert exact - 0.2 < found.low[2] < exact


@pytest.mark.parametrize(
    "clients, options, message",
    [
        ([(np.zeros((9, 1)), np.zeros(9, int))], {}, "clients: got 1, wanted at least 2"),
        ([(np.zeros((9, 1)), np.zeros(8, int))] * 2, {}, r"clients\[0\]: got 9 rows and 8 labels"),
        ([(np.zeros((3, 1)), np.zeros(3, int))] * 2, {}, r"clients\[0\]: got 3 rows and 3 labels"),
        ([(np.zeros((9, 1)), np.zeros(9))] * 2, {}, r"clients\[0\]: got labels of type float64"),
        ([(np.zeros((9, 1)), np.zeros(9, int))] * 2, {"level": 1.0}, "level: got 1.0, wanted more than 0"),
    ],
)
def test_the_classifiers_bound_refuses(clients, options, message):
    with pytest.raises(ValueError, match=message):
        discrepancy.classifier_bound(clients, seed=0, **options)


def test_monte_carlo_refuses_one_sample():
    with pytest.raises(ValueError, match="num_samples: got 1, wanted a whole number of at least 2"):
        estimate(jax.random.key(0), laws(np.eye(2), np.zeros((2, 1))), discrepancy.joint_log_density, 1)
