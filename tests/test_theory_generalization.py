"""Theorem 1's bound and alpha* against the paper written in NumPy, a numerical minimiser and finite differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

from jaxfed import losses
from jaxfed.theory import generalization as g
from tests.reference import theory_generalization as reference

FIELDS = g.Terms._fields


def random_terms(n=200, seed=0):
    """Positive terms over six orders of magnitude, [n] each."""
    rng = np.random.default_rng(seed)
    return g.Terms(*(10 ** rng.uniform(-3, 3, n) for _ in FIELDS))


@pytest.fixture(autouse=True)
def in_float64(x64):
    """All of this in float64."""


def test_terms_bound_and_alpha_match_the_paper():
    rng = np.random.default_rng(1)
    for _ in range(20):
        risk, distance, best, spread, c, big_b, big_g = rng.uniform(0.1, 2, 7)
        d, m_i, n = rng.integers(1, 50, 3)
        m, delta, alpha = n * m_i, rng.uniform(0.01, 0.5), rng.uniform()
        terms = g.terms(
            risk, distance, best, spread, m=m, m_i=m_i, d=d, constants=g.LossConstants(big_g, big_b),
            complexity_constant=c, delta=delta,
        )  # fmt: skip
        shared = reference.global_side(risk, big_b, distance, c, d, delta, m)
        own = reference.local_side(best, c, d, delta, m_i, big_g, spread)
        np.testing.assert_allclose(g.sides(terms), (shared, own), rtol=1e-12)
        np.testing.assert_allclose(g.bound(alpha, terms), reference.bound(alpha, shared, own), rtol=1e-12)
        np.testing.assert_allclose(g.best_alpha(terms), reference.best_alpha(shared, own), rtol=1e-12)


def test_alpha_star_minimises_the_bound():
    terms = random_terms(20)
    for i, star in enumerate(np.asarray(g.best_alpha(terms))):
        one = g.Terms(*(float(t[i]) for t in terms))
        shared = sum(one[:3])
        own = sum(one[3:])
        found = optimize.minimize_scalar(
            lambda a, shared=shared, own=own: reference.bound(a, shared, own), bounds=(0, 1), method="bounded",
            options={"xatol": 1e-10},
        )  # fmt: skip
        assert star == pytest.approx(found.x, abs=1e-7)
        assert float(g.best_bound(one)) == pytest.approx(found.fun, rel=1e-9)
    shared, own = g.sides(terms)
    np.testing.assert_allclose(g.best_bound(terms), 2 / (1 / shared + 1 / own), rtol=1e-12)


def test_alpha_star_is_strictly_inside_and_moves_as_the_paper_says():
    terms = random_terms()
    star = np.asarray(g.best_alpha(terms))
    assert ((star > 0) & (star < 1)).all()
    for name in FIELDS:
        more = np.asarray(g.best_alpha(terms._replace(**{name: 1.1 * getattr(terms, name)})))
        assert ((more > star) if name in FIELDS[:3] else (more < star)).all(), name
    rng = np.random.default_rng(2)
    base = {"m": 500.0, "m_i": 50.0, "distance": 0.5, "disagreement": 1.0}
    signs = {"distance": 1, "m_i": 1, "m": -1, "disagreement": -1}
    for _ in range(50):
        here = {name: value * rng.uniform(0.2, 2) for name, value in base.items()}
        rest = {"global_risk": rng.uniform(), "local_risk": rng.uniform(), "complexity_constant": rng.uniform(0.01, 3)}
        constants = g.LossConstants(*rng.uniform(0.1, 5, 2))

        def star_at(values, rest=rest, constants=constants):
            return float(g.best_alpha(g.terms(**values, **rest, d=7, constants=constants)))

        for name, sign in signs.items():
            assert sign * (star_at({**here, name: 1.2 * here[name]}) - star_at(here)) > 0, name


def test_limits():
    zero, inf = g.Terms(*[0.0] * 6), float("inf")
    shared, own = zero._replace(divergence=2.0), zero._replace(disagreement=2.0)
    assert float(g.best_alpha(shared)) == 1 and float(g.best_bound(shared)) == 0
    assert float(g.best_alpha(own)) == 0 and float(g.best_bound(own)) == 0
    assert np.isnan(g.best_alpha(zero))
    assert np.isnan(g.best_alpha(g.Terms(*[inf] * 6)))
    no_rows = g.terms(
        1.0, 0.5, 1.0, 1.0, m=10, m_i=0, d=2, constants=g.LossConstants(1.0, 2.0), complexity_constant=1.0
    )
    assert float(g.best_alpha(no_rows)) == 0
    assert float(g.best_bound(no_rows)) == float(2 * g.sides(no_rows)[0])
    no_shared = shared._replace(divergence=inf, local_risk=3.0)
    assert float(g.best_alpha(no_shared)) == 1 and float(g.best_bound(no_shared)) == 6
    both = g.Terms(1.0, 2.0, 3.0, 1.5, 2.5, 2.0)
    assert float(g.best_alpha(both)) == 0.5 and float(g.best_bound(both)) == 6
    np.testing.assert_allclose(g.bound(np.array([0.0, 1.0]), both._replace(local_risk=0.0)), [12, 9])


def test_slopes_are_the_derivatives():
    terms = jax.tree.map(jnp.asarray, random_terms(50, seed=3))
    auto = jax.vmap(jax.grad(g.best_alpha))(terms)
    for name, exact, by_grad in zip(FIELDS, g.slopes(terms), auto, strict=True):
        np.testing.assert_allclose(exact, by_grad, rtol=1e-10, err_msg=name)

    def star(m, m_i):
        return g.best_alpha(made(m, m_i))

    def made(m, m_i):
        return g.terms(0.7, 0.4, 0.6, 0.9, m=m, m_i=m_i, d=5, constants=g.LossConstants(2.0, 3.0),
                       complexity_constant=0.8)  # fmt: skip

    h = 1e-4
    by_m, by_own = g.slope_in_global_rows(made(90.0, 30.0), 90.0), g.slope_in_local_rows(made(90.0, 30.0), 30.0)
    np.testing.assert_allclose(by_m, (star(90 + h, 30.0) - star(90 - h, 30.0)) / (2 * h), rtol=1e-6)
    np.testing.assert_allclose(by_own, (star(90.0, 30 + h) - star(90.0, 30 - h)) / (2 * h), rtol=1e-6)
    assert by_m < 0 < by_own


def test_grids_and_clients_vmap():
    terms, alphas = random_terms(6), np.linspace(0, 1, 5)
    table = jax.vmap(lambda a: jax.vmap(lambda t: g.bound(a, t))(terms))(alphas)
    assert table.shape == (5, 6)
    np.testing.assert_allclose(table, g.bound(alphas[:, None], terms), rtol=1e-12)


@pytest.mark.parametrize("loss", ["squared", "squared_hinge"])
def test_loss_constants_are_attained_and_never_exceeded(loss):
    rng = np.random.default_rng(0)
    radius, largest_x, largest_y = 1.5, 2.0, 1.0 if loss == "squared_hinge" else 0.7
    if loss == "squared":
        constants = g.squared_constants(radius, largest_x, largest_y)
    else:
        constants = g.squared_hinge_constants(radius, largest_x)
    z = rng.uniform(-1, 1, 10_000) * radius * largest_x
    y = rng.choice([-1.0, 1.0], z.size) if loss == "squared_hinge" else rng.uniform(-1, 1, z.size) * largest_y
    value, slope = losses.LOSSES[loss]
    far = radius * largest_x, -largest_y
    for function, most in ((value, constants.bound), (lambda z, y: abs(slope(z, y)), constants.lipschitz)):
        assert np.max(function(z, y)) <= most
        np.testing.assert_allclose(function(*map(jnp.asarray, far)), most, rtol=1e-12)
