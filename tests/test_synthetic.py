"""Generators against their definitions: moments, divergence by Monte Carlo, optima by their gradients."""

import numpy as np
import pytest

from jaxfed.datasets import synthetic_many
from jaxfed.datasets.synthetic import fedprox, label_skewed_gaussians, quadratics, skewed_labels


@pytest.mark.parametrize(("a", "b"), [(0, 0), (1, 1), (0.25, 4)])
def test_synthetic_has_the_variances_of_the_paper(a, b):
    data = fedprox(a, b, 400, sizes=2, seed=0)
    u, big_b = data.weights.mean(axis=(1, 2)), data.centers.mean(axis=1)
    assert u.var() == pytest.approx(a + 1 / 600, rel=0.25)  # u_k plus the mean of 600 entries of variance 1
    assert big_b.var() == pytest.approx(b + 1 / 60, rel=0.25)
    assert (data.weights - u[:, None, None]).var() == pytest.approx(1, rel=0.02)
    assert (data.centers - big_b[:, None]).var() == pytest.approx(1, rel=0.03)
    assert np.corrcoef(data.biases.mean(axis=1), u)[0, 1] > 0.5 or a < 0.5  # W_k and b_k share u_k


def test_synthetic_inputs_and_labels():
    data = fedprox(1, 1, 3, sizes=20_000, test_fraction=0.0, seed=0)
    for (x, y), w, c, center in zip(data.train, data.weights, data.biases, data.centers, strict=True):
        assert x.shape == (20_000, 60)
        assert x.dtype == np.float32 and y.dtype == np.int32
        np.testing.assert_allclose(x.mean(axis=0), center, atol=0.04)
        np.testing.assert_allclose(x.var(axis=0), np.arange(1, 61) ** -1.2, rtol=0.06)
        for row, label in zip(x[:50], y[:50], strict=True):
            scores = [float(np.dot(w[k], row) + c[k]) for k in range(10)]
            assert scores[label] == max(scores)


def test_synthetic_sizes_and_seed():
    data = fedprox(0, 0, 200, num_features=5, num_classes=3, seed=1)
    sizes = np.array([len(y) + len(t) for (_, y), (_, t) in zip(data.train, data.test, strict=True)])
    assert sizes.min() >= 50
    assert np.median(np.log(np.maximum(sizes - 50, 1))) == pytest.approx(4, abs=0.5)
    train = np.array([len(y) for _, y in data.train])
    np.testing.assert_allclose(train, 0.9 * sizes, atol=0.51)
    again, other = (fedprox(0, 0, 200, num_features=5, num_classes=3, seed=s) for s in (1, 2))
    np.testing.assert_array_equal(data.train[7][0], again.train[7][0])
    assert not np.array_equal(data.weights, other.weights)
    ragged = fedprox(0, 0, 3, sizes=[1, 20, 10], seed=0)
    assert [(len(p[1]), len(q[1])) for p, q in zip(ragged.train, ragged.test, strict=True)] == [(1, 0), (18, 2), (9, 1)]


def log_density(x, y, probs, means, noise):
    """Log density of (x, y), written out from the definition of the law."""
    squares = ((x - means[y]) ** 2).sum(axis=1)
    return np.log(probs[y]) - squares / (2 * noise**2) - x.shape[1] * np.log(noise * np.sqrt(2 * np.pi))


@pytest.mark.parametrize("mean", ["uniform", "sizes"])
def test_divergence_by_monte_carlo(mean):
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.ones(4), size=3)
    sizes = [10, 30, 60]
    data = label_skewed_gaussians(probs, 6, noise=0.7, sizes=sizes, mean=mean, seed=0)
    shares = np.array(sizes) / 100 if mean == "sizes" else np.full(3, 1 / 3)
    client = rng.choice(3, size=100_000, p=shares)  # (x, y) from Dbar: a client, then its law
    y = (rng.random(100_000)[:, None] > probs.cumsum(axis=1)[client]).sum(axis=1)
    x = data.means[y] + 0.7 * rng.normal(size=(len(y), 6))
    laws = np.exp([log_density(x, y, p, data.means, 0.7) for p in probs])
    average = shares @ laws
    for law, exact in zip(laws, data.divergence, strict=True):
        assert np.abs(1 - law / average).mean() == pytest.approx(exact, abs=0.01)  # integral of |dDbar - dD_i|


def test_label_skewed_gaussians_follow_their_law():
    probs = np.array([[0.7, 0.2, 0.1], [0.0, 0.5, 0.5]])
    data = label_skewed_gaussians(probs, 5, separation=4.0, noise=2.0, sizes=20_000, seed=0)
    for (x, y), own in zip(data.train, probs, strict=True):
        np.testing.assert_allclose(np.bincount(y, minlength=3) / len(y), own, atol=0.02)
        for c in np.flatnonzero(own):
            np.testing.assert_allclose(x[y == c].mean(axis=0), data.means[c], atol=0.2)
            np.testing.assert_allclose(x[y == c].std(axis=0), 2.0, rtol=0.06)
    gaps = np.linalg.norm(data.means[:, None] - data.means[None], axis=-1)
    np.testing.assert_allclose(gaps, 8 * (1 - np.eye(3)), atol=1e-9)
    assert [len(y) for _, y in data.test] == [4_000, 4_000]


@pytest.mark.parametrize("skew", [0.0, 0.3, 1.0])
def test_skewed_labels_have_the_stated_divergence(skew):
    probs = skewed_labels(20, 5, skew)
    np.testing.assert_allclose(probs.sum(axis=1), 1)
    data = label_skewed_gaussians(probs, 5, seed=0)
    np.testing.assert_allclose(data.divergence, 2 * skew * (1 - 1 / 5), atol=1e-12)


def gradient(w, x, y):
    return sum((row @ w - target) * row for row, target in zip(x, y, strict=True)) / len(y)


@pytest.mark.parametrize("mean", ["uniform", "sizes"])
def test_quadratics_optima_have_zero_gradient(mean):
    sizes = [12, 40, 25]
    data = quadratics(3, 4, sizes=sizes, condition=20.0, mean=mean, seed=0)
    shares = np.array(sizes) / 77 if mean == "sizes" else np.full(3, 1 / 3)
    gradients = np.array([gradient(data.global_optimum, x, y) for x, y in data.clients])
    assert np.abs(gradients).max() > 0.01  # no client is content at the global optimum
    np.testing.assert_allclose(shares @ gradients, 0, atol=1e-12)
    for (x, y), w, least in zip(data.clients, data.local_optima, data.local_minima, strict=True):
        np.testing.assert_allclose(gradient(w, x, y), 0, atol=1e-12)
        assert least == pytest.approx(sum((x @ w - y) ** 2) / (2 * len(y)))
    at_optimum = [sum((x @ data.global_optimum - y) ** 2) / (2 * len(y)) for x, y in data.clients]
    assert data.global_minimum == pytest.approx(shares @ at_optimum)


def test_quadratics_hessians_and_homogeneous_limit():
    data = quadratics(2, 3, sizes=20_000, condition=100.0, heterogeneity=0.0, noise=0.0, seed=0)
    for hessian in data.hessians:
        np.testing.assert_allclose(np.linalg.eigvalsh(hessian), [0.01, 0.1, 1], rtol=0.05)
    np.testing.assert_allclose(data.local_optima, np.broadcast_to(data.global_optimum, (2, 3)), atol=1e-9)
    np.testing.assert_allclose(data.truth, data.local_optima, atol=1e-9)
    assert data.global_minimum < 1e-20


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fedprox(-1, 0, 3, seed=0), "a: got -1"),
        (lambda: fedprox(0, np.inf, 3, seed=0), "b: got inf"),
        (lambda: fedprox(0, 0, 0, seed=0), "num_clients: got 0"),
        (lambda: fedprox(0, 0, 3, sizes=[1, 2], seed=0), "sizes: got "),
        (lambda: fedprox(0, 0, 3, sizes=0, seed=0), "sizes: got "),
        (lambda: fedprox(0, 0, 3, test_fraction=1.0, seed=0), r"test_fraction: got 1.0"),
        (lambda: label_skewed_gaussians(np.ones((2, 2)), 4, seed=0), "label_probs: got "),
        (lambda: label_skewed_gaussians(np.eye(4), 3, seed=0), "num_features: got 3"),
        (lambda: label_skewed_gaussians(np.eye(4), 4, noise=0.0, seed=0), "noise: got "),
        (lambda: label_skewed_gaussians(np.eye(4), 4, mean="rows", seed=0), "mean: got "),
        (lambda: skewed_labels(4, 2, 1.5), r"skew: got 1.5"),
        (lambda: quadratics(2, 5, sizes=4, seed=0), "sizes: got 4"),
        (lambda: quadratics(2, 5, condition=0.5, seed=0), "condition: got 0.5"),
        (lambda: quadratics(2, 5, mean="rows", seed=0), "mean: got "),
    ],
)
def test_messages_name_the_field(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_many_clients_follow_the_rules_of_their_block():
    """Labels by the rules that `fill` returns; means and covariances of the law; equal sizes in one pool."""
    a, b, count, n, features = 2.0, 3.0, 3 * synthetic_many.BLOCK - 100, 8, 4
    many = synthetic_many.fedprox_many(a, b, count, n, num_features=features, num_classes=3, seed=5)
    x, y = many.x.reshape(count, n, features), many.y.reshape(count, n)
    assert x.dtype == np.float32 and (many.rows == np.arange(count * n).reshape(count, n)).all()
    last = slice(2 * synthetic_many.BLOCK, None)
    again, labels = np.empty_like(x[last]), np.empty_like(y[last])
    rules = synthetic_many.fill(again, labels, a, b, 3, seed=5, block=2)
    np.testing.assert_array_equal(again, x[last])
    weights, biases = (rule[: len(again)].astype(float) for rule in rules)
    scores = np.einsum("ink,ick->inc", x[last].astype(float), weights) + biases[:, None]
    chosen = np.take_along_axis(scores, y[last][..., None], axis=2)[..., 0]
    assert (chosen >= scores.max(axis=2) - 1e-4).all()  # within rounding of float32
    flat = np.concatenate([rules.weights.reshape(len(rules.weights), -1), rules.biases], axis=1)
    assert np.cov(flat[:, 0], flat[:, 1])[0, 1] == pytest.approx(a, rel=0.2)  # a client's entries share u_k ~ N(0, a)
    assert flat.var(axis=0).mean() == pytest.approx(1 + a, rel=0.1)
    centers = x.mean(axis=1)
    scale = np.arange(1, features + 1) ** -1.2
    covariance = b + np.diag(1 + scale / n)
    np.testing.assert_allclose(np.cov(centers.T), covariance, rtol=0.1, atol=0.1)
    np.testing.assert_allclose(x.var(axis=1, ddof=1).mean(axis=0), scale, rtol=0.05)


def test_many_clients_do_not_depend_on_their_number():
    few = synthetic_many.fedprox_many(1, 1, 30, 2, num_features=3, seed=1)
    more = synthetic_many.fedprox_many(1, 1, 1500, 2, num_features=3, seed=1)
    other = synthetic_many.fedprox_many(1, 1, 30, 2, num_features=3, seed=2)
    for part in ("x", "y"):
        np.testing.assert_array_equal(getattr(few, part), getattr(more, part)[:60])
    assert (few.x != other.x).any() and (more.x[:60] != more.x[-60:]).any()


def test_many_clients_refuse_bad_numbers():
    for message, arguments in {
        "a: got -1, wanted a finite number >= 0": (-1, 1, 3),
        "num_clients: got 0, wanted an integer >= 1": (1, 1, 0),
        "num_clients * rows_per_client: got 20000000000, wanted less than 2": (1, 1, 10**9),
    }.items():
        with pytest.raises(ValueError) as told:
            synthetic_many.fedprox_many(*arguments, seed=0)
        assert str(told.value).startswith(message)
