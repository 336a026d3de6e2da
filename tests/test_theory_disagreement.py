"""lambda_H(S) of Definition 1: the exact value and both bounds against the enumeration of all sign patterns."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxfed.theory import disagreement
from tests.reference import theory_discrepancy as reference

pytestmark = pytest.mark.usefixtures("x64")
SETTINGS = [(1, False), (1, True), (2, False)]


def rows(seed, n, d):
    return np.random.default_rng(seed).normal(size=(n, d)) * np.geomspace(1, 0.3, d)


@pytest.mark.parametrize("d, bias", SETTINGS)
def test_exact_is_what_enumeration_gives(d, bias):
    for seed in range(8):
        x = rows(seed, 9, d) + 0.3 * seed  # one shape: each compiles anew
        want = reference.disagreement(x, 1.5, bias)
        np.testing.assert_allclose(disagreement.exact(x, 1.5, bias=bias), want, rtol=1e-12)


def test_exact_with_rows_on_the_axes_opposite_equal_and_zero():
    x = np.array([[1.0, 0], [-2, 0], [0, 1], [0, -1], [1, 1], [-1, -1], [1, 1], [0, 0]])
    np.testing.assert_allclose(disagreement.exact(x, 1.0), reference.disagreement(x, 1.0), rtol=1e-12)


@pytest.mark.parametrize("d, bias", [(1, True), (2, False), (3, False), (3, True), (5, False)])
def test_the_bounds_enclose_the_value_and_the_ascent_finds_it(d, bias):
    found = []
    for seed in range(8):
        x = rows(seed, 10, d)
        exact = reference.disagreement(x, 2.0, bias)
        low = float(disagreement.lower(jax.random.key(seed), x, 2.0, bias=bias, restarts=32))
        high = float(disagreement.upper(x, 2.0, bias=bias))
        assert low <= exact * (1 + 1e-12) and exact <= high * (1 + 1e-12)
        found.append(low / exact)
    assert np.mean(np.array(found) > 1 - 1e-9) >= 0.75 and min(found) > 0.97  # a local maximum now and then


def test_the_bounds_never_cross_in_many_dimensions():
    for seed in range(5):
        x = rows(seed, 200, 30)
        low = disagreement.lower(jax.random.key(seed), x, 1.0)
        high = disagreement.upper(x, 1.0)
        assert 0.7 * high < low <= high  # of Gaussian rows: sqrt(2 / pi) = 0.8


def test_each_step_ascends():
    x = jnp.asarray(rows(3, 40, 6))
    starts = np.random.default_rng(4).normal(size=(30, 6))
    for u in starts / np.linalg.norm(starts, axis=1, keepdims=True):
        values = [float(jnp.abs(x @ u).sum())]
        for _ in range(6):
            u = disagreement.ascend(x, u)
            np.testing.assert_allclose(jnp.linalg.norm(u), 1, rtol=1e-12)
            values.append(float(jnp.abs(x @ u).sum()))
        assert (np.diff(values) >= -1e-12).all()
        assert values[-1] > values[0]


def test_more_steps_and_restarts_never_lower_the_bound():
    x, key = rows(5, 60, 8), jax.random.key(0)
    by_steps = [float(disagreement.lower(key, x, 1.0, num_steps=s)) for s in (0, 1, 3, 20)]
    assert (np.diff(by_steps) >= -1e-12).all() and by_steps[-1] > by_steps[0]


@pytest.mark.parametrize("bias", [False, True])
def test_equal_rows_have_a_closed_form(bias):
    """All rows x: lambda = 2 R |x|, or 2 R |(x, 1)|, and all three agree."""
    x = np.tile([[3.0, -4.0]], (7, 1))
    want = 2 * 1.5 * np.sqrt(25 + bias)
    assert disagreement.lower(jax.random.key(0), x, 1.5, bias=bias) == pytest.approx(want)
    assert disagreement.upper(x, 1.5, bias=bias) == pytest.approx(want)
    if not bias:
        assert disagreement.exact(x, 1.5) == pytest.approx(want)


def test_it_is_attained_by_two_models_of_the_ball():
    """The definition itself, on a fine grid of pairs h, h' = -h on the circle."""
    x, radius = rows(6, 25, 2), 0.8
    angle = np.linspace(0, np.pi, 20_001)
    w = radius * np.stack([np.cos(angle), np.sin(angle)])
    on_grid = np.abs(x @ w - x @ -w).mean(axis=0).max()
    assert disagreement.exact(x, radius) == pytest.approx(on_grid, rel=1e-6)


@pytest.mark.parametrize("bias", [False, True])
def test_vmap_over_ragged_clients_is_each_client_alone(bias):
    sizes = (3, 8, 5)
    alone = [rows(i, n, 1) for i, n in enumerate(sizes)]
    x = np.full((3, 8, 1), 7.0)  # padding that would count
    for i, own in enumerate(alone):
        x[i, : len(own)] = own
    mask, key = np.arange(8) < np.array(sizes)[:, None], jax.random.key(1)
    radius = np.array([0.5, 1.0, 2.0])
    found = {
        "lower": jax.vmap(lambda x, r, m: disagreement.lower(key, x, r, bias=bias, mask=m))(x, radius, mask),
        "upper": jax.vmap(lambda x, r, m: disagreement.upper(x, r, bias=bias, mask=m))(x, radius, mask),
        "exact": jax.vmap(lambda x, r, m: disagreement.exact(x, r, bias=bias, mask=m))(x, radius, mask),
    }
    for i, own in enumerate(alone):
        r = radius[i]
        assert found["exact"][i] == pytest.approx(reference.disagreement(own, r, bias))
        assert found["upper"][i] == pytest.approx(float(disagreement.upper(own, r, bias=bias)))
        assert found["lower"][i] <= found["exact"][i] * (1 + 1e-12)


def test_what_is_refused():
    with pytest.raises(ValueError, match="x: got 3 parameters, wanted 1 or 2"):
        disagreement.exact(np.ones((4, 2)), 1.0, bias=True)
    with pytest.raises(ValueError, match=r"x: got shape \(4,\), wanted \[rows, feature\]"):
        disagreement.upper(np.ones(4), 1.0)
    with pytest.raises(ValueError, match="restarts: got 0, wanted a whole number of at least 1"):
        disagreement.lower(jax.random.key(0), np.ones((4, 1)), 1.0, restarts=0)
