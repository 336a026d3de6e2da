"""Constants against closed forms, finite differences and a search of the set over which they are suprema."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxfed as jf
from jaxfed.datasets import synthetic
from jaxfed.theory import constants
from tests.reference import quadratic

RADIUS = 0.7


@pytest.fixture(autouse=True)
def in_float64(x64):
    """All of this in float64."""


@pytest.fixture(scope="module")
def problem():
    """Four least-squares clients in three dimensions, their optima known."""
    return synthetic.quadratics(4, 3, sizes=[10, 12, 9, 20], heterogeneity=0.8, condition=4.0, noise=0.3, seed=3)


@pytest.fixture(scope="module")
def measured(problem):
    return constants.least_squares(problem.clients, radius=RADIUS)


def gradient(w, x, y):
    return x.T @ (x @ w - y) / len(x)


def on_sphere(center, n=20_000, seed=0):
    """Points of the ball's surface, where a convex function is greatest."""
    u = np.random.default_rng(seed).normal(size=(n, len(center)))
    return center + RADIUS * u / np.linalg.norm(u, axis=1, keepdims=True)


def test_quadratics_match_their_truth(problem, measured):
    values = np.linalg.eigvalsh(problem.hessians)
    np.testing.assert_allclose(measured.smoothness, values[:, -1], rtol=1e-10)
    np.testing.assert_allclose(measured.convexity, values[:, 0], rtol=1e-10)
    gaps = np.sum((problem.local_optima - problem.global_optimum) ** 2, axis=1)
    np.testing.assert_allclose(measured.gaps, gaps, rtol=1e-8)
    clients = list(zip(problem.hessians, problem.local_optima, strict=True))
    np.testing.assert_allclose(measured.gaps, quadratic.optimum_gaps(clients), rtol=1e-8)
    at_optimum = constants.least_squares(problem.clients, radius=0.0)
    np.testing.assert_allclose(
        at_optimum.diversity, quadratic.gradient_diversity(clients, problem.global_optimum), rtol=1e-8
    )


def test_smoothness_and_convexity_bound_the_change_of_gradients(problem, measured):
    rng = np.random.default_rng(0)
    for (x, y), smooth, convex in zip(problem.clients, measured.smoothness, measured.convexity, strict=True):
        slopes = []
        for _ in range(3000):
            w, step = rng.normal(size=3), rng.normal(size=3)
            change = gradient(w + 1e-4 * step, x, y) - gradient(w - 1e-4 * step, x, y)
            slopes.append(change @ step / (2e-4 * step @ step))
        assert convex * (1 - 1e-6) <= min(slopes) <= 1.1 * convex
        assert 0.95 * smooth <= max(slopes) <= smooth * (1 + 1e-6)


def test_diversity_and_variance_are_the_suprema_over_the_ball(problem, measured):
    points = on_sphere(problem.global_optimum)
    for i, (x, y) in enumerate(problem.clients):
        found, spread = [], []
        for w in points[:4000]:
            mean = np.mean([gradient(w, *client) for client in problem.clients], axis=0)
            rows = (x @ w - y)[:, None] * x
            found.append(np.sum((gradient(w, x, y) - mean) ** 2))
            spread.append(np.mean(np.sum((rows - rows.mean(axis=0)) ** 2, axis=1)))
        for most, searched in ((measured.diversity[i], max(found)), (measured.variance[i], max(spread))):
            assert 0.99 * most <= searched <= most * (1 + 1e-9)
    inner = constants.least_squares(problem.clients, radius=RADIUS / 2)
    assert (inner.diversity < measured.diversity).all() and (inner.variance < measured.variance).all()


def test_clients_that_agree_have_no_diversity_and_no_gaps(problem):
    same = constants.least_squares([problem.clients[0]] * 3, radius=2.0)
    np.testing.assert_allclose(same.diversity, 0, atol=1e-20)
    np.testing.assert_allclose(same.gaps, 0, atol=1e-20)
    assert (same.variance > 0).all()


def test_shared_hessians_make_diversity_a_constant():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(8, 3))
    clients = [(x, x @ w) for w in rng.normal(size=(3, 3))]
    near, far = (constants.least_squares(clients, radius=r) for r in (0.0, 50.0))
    np.testing.assert_allclose(near.diversity, far.diversity, rtol=1e-8)


@pytest.mark.parametrize("case", ["generic", "hard", "zero", "linear"])
def test_greatest_value_in_a_ball(case):
    rng = np.random.default_rng(1)
    root = rng.normal(size=(3, 3))
    matrix, vector = root @ root.T, rng.normal(size=3)
    if case == "hard":  # the linear term is orthogonal to the top axis: two maximisers, no root of the secular equation
        matrix, vector = np.diag([1.0, 2.0, 5.0]), np.array([0.1, 0.2, 0.0])
    elif case == "zero":
        vector = np.zeros(3)
    elif case == "linear":
        matrix = np.zeros((3, 3))
    most = constants.greatest_in_ball(matrix, vector, RADIUS)
    v = on_sphere(np.zeros(3), n=200_000)
    searched = np.max(np.einsum("nd,de,ne->n", v, matrix, v) + 2 * v @ vector)
    assert searched <= most * (1 + 1e-12) and searched == pytest.approx(most, rel=2e-3)
    if case == "zero":
        assert most == pytest.approx(RADIUS**2 * np.linalg.eigvalsh(matrix)[-1], rel=1e-12)
    if case == "linear":
        assert most == pytest.approx(2 * RADIUS * np.linalg.norm(vector), rel=1e-12)


def test_points_of_a_model_agree_with_the_closed_form(problem):
    data = jf.ClientData.from_list(problem.clients)
    model = jf.models.linear_regression(l2=0.2)
    rows = constants.rows_of(data)
    exact = constants.least_squares(rows, radius=0.0, l2=0.2)
    mean_h = np.mean([x.T @ x / len(x) + 0.2 * np.eye(4) for x, _ in rows], axis=0)
    optimum = np.linalg.solve(mean_h, np.mean([x.T @ y / len(x) for x, y in rows], axis=0))
    local = [np.linalg.solve(x.T @ x / len(x) + 0.2 * np.eye(4), x.T @ y / len(x)) for x, y in rows]

    def params(w):
        return {"kernel": jnp.asarray(w)[..., None, :3], "bias": jnp.asarray(w)[..., 3:]}

    found = constants.at_points(model, data, params(optimum[None]), optima=(params(np.stack(local)), params(optimum)))
    for name in constants.Constants._fields:
        np.testing.assert_allclose(getattr(found, name), getattr(exact, name), rtol=1e-8, atol=1e-12, err_msg=name)
    ball = constants.least_squares(rows, radius=1.0, l2=0.2)
    near = optimum + 0.5 * np.random.default_rng(0).uniform(-1, 1, (7, 4))
    inner = constants.at_points(model, data, params(near))
    assert (inner.diversity <= ball.diversity).all() and (inner.variance <= ball.variance).all()
    assert np.isnan(inner.gaps).all()


@pytest.mark.parametrize("loss", list(constants.CURVATURES))
def test_curvature_of_linear_models_holds_everywhere(loss):
    rng = np.random.default_rng(4)
    many = loss == "softmax_cross_entropy"
    labels = {
        "softmax_cross_entropy": lambda n: rng.integers(0, 3, n),
        "logistic": lambda n: rng.choice([-1.0, 1.0], n),
    }
    draw = labels.get(loss, labels["logistic"] if loss == "squared_hinge" else lambda n: 2 * rng.normal(size=n))
    data = jf.ClientData.from_list([(rng.normal(size=(n, 2)), draw(n)) for n in (6, 9)])
    model = jf.models.logistic_regression(3, l2=0.1) if many else jf.models.linear_regression(l2=0.1, loss=loss)
    bounds = constants.curvature(model, data)
    zeros = model.init(jax.random.key(0), data.sample())
    points = jax.tree.map(lambda a: 3 * rng.normal(size=(40, *a.shape)), zeros)
    points = jax.tree.map(lambda a, z: np.concatenate([z[None], a]), points, zeros)
    sampled = constants.at_points(model, data, points)
    assert (sampled.smoothness <= bounds.smoothness * (1 + 1e-12)).all()
    assert (sampled.convexity >= bounds.convexity - 1e-12).all()
    assert bounds.exact == (loss in ("squared", "half_squared"))
    if bounds.exact:
        np.testing.assert_allclose(sampled.smoothness, bounds.smoothness, rtol=1e-10)
        np.testing.assert_allclose(sampled.convexity, bounds.convexity, rtol=1e-10)
    else:  # no second derivative lies outside the table's range, and both ends are its limits
        least, greatest = constants.CURVATURES[loss]
        if not many:
            second = jax.vmap(jax.grad(jax.grad(jf.losses.LOSSES[loss][0])), (0, None))(
                jnp.linspace(-30, 30, 4001), 1.0
            )
            assert second.min() == pytest.approx(least, abs=1e-4) and second.max() == pytest.approx(greatest, abs=1e-4)
    assert (sampled.smoothness > 0.2 * bounds.smoothness).all()  # not a bound that nothing comes near


def test_loss_constants_of_data_cover_every_row(problem):
    data = jf.ClientData.from_list(problem.clients)
    got = constants.loss_constants("squared", data, radius=2.0)
    largest_x = max(np.sqrt(1 + np.sum(x**2, axis=1)).max() for x, _ in problem.clients)
    largest_y = max(np.abs(y).max() for _, y in problem.clients)
    assert float(got.bound) == pytest.approx((2 * largest_x + largest_y) ** 2)
    assert float(got.lipschitz) == pytest.approx(2 * (2 * largest_x + largest_y))
    hinge = constants.loss_constants("squared_hinge", data, radius=2.0, bias=False)
    largest_x = max(np.linalg.norm(x, axis=1).max() for x, _ in problem.clients)
    assert float(hinge.bound) == pytest.approx((1 + 2 * largest_x) ** 2)


def test_images_are_scaled_as_the_simulator_does():
    images = np.arange(12, dtype=np.uint8).reshape(3, 2, 2, 1)
    ((x, y),) = constants.rows_of(jf.ClientData.from_list([(images, np.array([0, 1, 0]))]), bias=False)
    np.testing.assert_allclose(x, images.reshape(3, 4) / 255)
    np.testing.assert_array_equal(y, [0, 1, 0])


def test_errors_say_what_is_wanted(problem):
    with pytest.raises(ValueError, match="clients: got client 0 without a unique optimum"):
        constants.least_squares([(np.ones((2, 3)), np.ones(2))], radius=1.0)
    with pytest.raises(ValueError, match="radius: got -1"):
        constants.least_squares(problem.clients, radius=-1.0)
    with pytest.raises(ValueError, match="weights: got shape"):
        constants.least_squares(problem.clients, radius=1.0, weights=[1.0])
    data = jf.ClientData.from_list([(np.ones((2, 3)), np.array([0, 1]))])
    with pytest.raises(ValueError, match="model.net: got Mlp, wanted a linear one"):
        constants.curvature(jf.models.mlp(2), data)
    with pytest.raises(ValueError, match="loss: got .logistic."):
        constants.loss_constants("logistic", data, 1.0)
    points = jax.tree.map(lambda a: a[None], jf.models.mlp(2).init(jax.random.key(0), data.sample()))
    with pytest.raises(ValueError, match="at most 2000"):
        constants.at_points(jf.models.mlp(2), data, points)
