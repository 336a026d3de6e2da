"""Step sizes, weights and predictions of the theorems against NumPy; slopes of curves of known rate, and coverage."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxfed.theory import rates

EPSILON, GAP, MU, L, G = 0.01, 0.5, 0.1, 3.0, 2.0


def test_step_sizes_and_weights():
    schedule = rates.descent_steps(c=8.0, mu=0.5, a=10.0)
    t = np.arange(5)
    np.testing.assert_allclose(jax.vmap(schedule)(jnp.arange(5)), 16 / (t + 10), rtol=1e-6)
    np.testing.assert_allclose(rates.weights(jnp.arange(5), 10.0), [100, 121, 144, 169, 196])
    x = np.random.default_rng(0).normal(size=(5, 3))
    wanted = sum((k + 2) ** 2 * x[k] for k in t) / sum((k + 2) ** 2 for k in t)
    np.testing.assert_allclose(rates.weighted_mean(x, 2.0), wanted, rtol=1e-5)


@pytest.mark.usefixtures("x64")
def test_theorem_1():
    wanted = 44 * (G * L**2) ** (1 / 3) / (MU ** (4 / 3) * EPSILON) * np.log(2 * GAP / EPSILON)
    assert float(rates.sgd_epochs(EPSILON, GAP, MU, L, G)) == pytest.approx(wanted)
    wanted = EPSILON * MU ** (1 / 3) / (G * 96 * L**2) ** (1 / 3)
    assert float(rates.sgd_step(EPSILON, MU, L, G)) == pytest.approx(wanted)
    for epsilon in (1e-4, 0.9):  # each of the two is the smaller one
        small = min(epsilon ** (-4 / 3), (1e-4 * L**2) ** (2 / 3) / (epsilon**2 * MU ** (2 / 3)))
        assert float(rates.sgd_staleness(epsilon, MU, L, 1e-4)) == pytest.approx(small)
    # the prediction is epsilon's shape: ten times the accuracy takes ten times the epochs, and a log
    few, many = (float(rates.sgd_epochs(e, GAP, MU, L, G)) for e in (1e-2, 1e-3))
    assert many / few == pytest.approx(10 * np.log(2 * GAP / 1e-3) / np.log(2 * GAP / 1e-2))
    over_grid = jax.vmap(lambda e: rates.sgd_epochs(e, GAP, MU, L, G))(jnp.array([1e-2, 1e-3]))
    np.testing.assert_allclose(over_grid, [few, many])


@pytest.mark.usefixtures("x64")
def test_theorem_2():
    step, tau, eta = 1e-6, 4.0, 3.0
    c = (L**2 * step + L) * step**2 / 2
    rho = step * MU / 2 - 16 * L**2 * eta * c / MU
    told = rates.svrg_epochs(EPSILON, GAP, MU, L, step, tau, eta)
    assert float(told.rho) == pytest.approx(rho) and rho > 0
    assert float(told.inner) == pytest.approx(np.log(0.25) / np.log(1 - rho))
    assert float(told.outer) == pytest.approx(np.log(2 * GAP / EPSILON) / np.log(4 / 3))
    third = 0.05 - 8 * L**2 * np.sqrt(tau) * c / (rho * MU)
    np.testing.assert_allclose(told.slack, [1 - 2 * L**2 * step**2 * tau, rho, third], rtol=1e-12)
    # logarithmic in the accuracy; half the step, half the rate; too large a step is told by its slack
    assert float(rates.svrg_epochs(EPSILON / 10, GAP, MU, L, step).outer - told.outer) == pytest.approx(
        np.log(10) / np.log(4 / 3)
    )
    half, whole = (float(rates.svrg_epochs(EPSILON, GAP, MU, L, s).rho) for s in (0.5e-8, 1e-8))
    assert whole / half == pytest.approx(2, rel=1e-3)
    large = rates.svrg_epochs(EPSILON, GAP, MU, L, 0.1)
    assert float(large.slack[1]) < 0 and np.isnan(float(large.inner))


@pytest.mark.parametrize("exponent", [-2.0, -0.5, 0.7])
def test_slopes_of_exact_curves(exponent):
    x = np.arange(1, 50)
    one = rates.loglog_slope(x, 3 * x**exponent)
    assert one.found.low == pytest.approx(exponent) and one.found.high == pytest.approx(exponent)
    curves = rates.loglog_slope(x, np.outer([1, 2, 5], x**exponent))
    np.testing.assert_allclose(curves.each, exponent)
    digits = rates.semilog_slope(x, np.outer([1, 2], 10 ** (exponent * x)))
    np.testing.assert_allclose(digits.each, exponent)


def test_only_the_window_counts():
    x = np.arange(1.0, 41)
    y = np.where(x <= 20, 1 / x, 7.0)
    assert rates.loglog_slope(x, y, x <= 20).found.low == pytest.approx(-1)
    assert rates.loglog_slope(x, y).found.high > -0.5
    own = np.stack([x <= 20, x <= 10])  # a window for each curve
    np.testing.assert_allclose(rates.loglog_slope(x, np.stack([y, y]), own).each, -1)
    np.testing.assert_allclose(rates.semilog_slope(np.stack([x, 2 * x]), np.stack([10**x, 10**x])).each, [1, 0.5])


def test_intervals_cover_the_slope_as_often_as_they_say():
    rng, x = np.random.default_rng(0), np.arange(1, 21)
    inside = {"one curve": 0, "curves": 0}
    for _ in range(800):
        noise = rng.normal(size=(6, 20)) * 0.3
        walk = np.cumsum(noise, 1) * 0.2  # dependent points: only the interval over curves allows for them
        one = rates.semilog_slope(x, 10 ** (-0.1 * x + noise[0])).found
        many = rates.semilog_slope(x, 10 ** (-0.1 * x + walk)).found
        inside["one curve"] += one.low <= -0.1 <= one.high
        inside["curves"] += many.low <= -0.1 <= many.high
    for name, count in inside.items():
        assert 0.925 <= count / 800 <= 0.975, name  # 0.95, three standard errors
    narrow, wide = (rates.semilog_slope(x, 10 ** (-0.1 * x + noise), level=level).found for level in (0.5, 0.99))
    assert wide.low < narrow.low < narrow.high < wide.high


def test_curves_without_a_slope_are_undecided():
    x = np.arange(1, 6)
    for y, where in (([1, 2, -1, 3, 4], True), ([1, 2, np.nan, 3, 4], True), (np.ones(5), x == 2)):
        assert np.isnan(rates.loglog_slope(x, y, where).found.low)
    both = rates.loglog_slope(x, np.stack([1 / x, -1 / x]))
    assert both.each[0] == pytest.approx(-1) and np.isnan(both.each[1]) and np.isnan(both.found).all()
    assert np.isnan(rates.loglog_slope(np.arange(5), np.ones(5)).found.low)  # log 0
    with pytest.raises(ValueError, match=r"y: got shape \(4,\) with x \(5,\), wanted"):
        rates.loglog_slope(x, np.ones(4))
