"""Rates: the step sizes of the theorems, what they predict, and slopes of measured curves with their intervals.

Constants that the VFB2 paper prints (44, 96, 0.25, 4/3) are here as printed, for the shape of a prediction and not for
its size: the step from one line of Theorem 1's proof to the next needs L* gamma tau >= 1 where gamma is small, so its
bounds are orders of magnitude from what is measured. APFL's constants aren't in the copy that this was written from:
they are arguments, c and a, and no value of theirs is the paper's.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxfed.checks import fail
from jaxfed.steps import InverseTime
from jaxfed.theory.claims import Interval, of_mean
from jaxfed.types import Array


def descent_steps(c: Any, mu: Any, a: Any) -> InverseTime:
    """Return the step sizes eta_t = c / (mu (t + a)), a schedule t -> eta_t: the form of APFL's theorems on rates.

    c: a number without unit. mu: strong convexity of every local risk. a: offset, in the unit of t (local steps in the
    paper; the package's algorithms count rounds).
    """
    return InverseTime(c / mu, a)


def weights(t: Array, a: Any) -> Array:
    """Return p_t = (t + a)^2, the iterate's weight at t in the mean that APFL's theorems bound; any shape."""
    return jnp.square(t + a)


def weighted_mean(values: Array, a: Any) -> Array:
    """Return sum_t p_t x_t / sum_t p_t of values [T, ...] at t = 0, ..., T - 1, [...]."""
    values = jnp.asarray(values)
    p = weights(jnp.arange(values.shape[0]), a)
    return jnp.tensordot(p / jnp.sum(p), values, 1)


def sgd_step(epsilon: Any, mu: Any, smoothness: Any, bound: Any) -> Array:
    """Return epsilon (mu / (96 G L*^2))^(1/3), the largest step of VFB2's Theorem 1, for shape: linear in epsilon.

    epsilon: wanted E f - f*. mu: strong convexity of each f_i. smoothness: L*, the greatest of all Lipschitz constants
    of gradients. bound: G, on E |block gradient|^2.
    """
    return epsilon * jnp.cbrt(mu / (96 * bound * jnp.square(smoothness)))


def sgd_epochs(epsilon: Any, gap: Any, mu: Any, smoothness: Any, bound: Any) -> Array:
    """Return 44 (G L*^2)^(1/3) / (mu^(4/3) epsilon) log(2 gap / epsilon), the epochs of VFB2's Theorem 1, for shape.

    As in `sgd_step`; gap: f(w_0) - f*. An epoch is the paper's v(t): updates that visit every block once, not a pass
    over the rows. At the step of `sgd_step`, and while tau is at most `sgd_staleness`.
    """
    scale = 44 * jnp.cbrt(bound * jnp.square(smoothness)) / (mu ** (4 / 3) * epsilon)
    return scale * jnp.log(2 * gap / epsilon)


def sgd_staleness(epsilon: Any, mu: Any, smoothness: Any, bound: Any) -> Array:
    """Return min(epsilon^(-4/3), (G L*^2)^(2/3) / (epsilon^2 mu^(2/3))), the largest tau of VFB2's Theorem 1.

    tau = max(tau_1^2, tau_2^2, eta_1^2): squares of delays, in block updates (the paper's global iterations).
    """
    other = jnp.cbrt(jnp.square(bound * jnp.square(smoothness) / mu)) / jnp.square(epsilon)
    return jnp.minimum(epsilon ** (-4 / 3), other)


class SVRG(NamedTuple):
    """What VFB2's Theorem 2 says of a step size: rho, the contraction of an inner epoch; the inner epochs of an outer
    loop and the outer loops (not rounded up); `slack` [3]: the first three conditions, met where positive."""

    rho: Array
    inner: Array
    outer: Array
    slack: Array


def svrg_epochs(epsilon: Any, gap: Any, mu: Any, smoothness: Any, step: Any, tau: Any = 1.0, eta: Any = 1.0) -> SVRG:
    """Return Theorem 2's prediction for VFB2-SVRG, for shape: log(1 / epsilon) times a number that the step decides.

    C = (L*^2 gamma + L*) gamma^2 / 2, rho = gamma mu / 2 - 16 L*^2 eta C / mu; inner = log 0.25 / log(1 - rho), outer =
    log(2 gap / epsilon) / log(4/3). gap: f(w_0) - f*. step: gamma. tau as in `sgd_staleness`. eta: eta_1, block updates
    in which every block is visited. Conditions: 1 - 2 L*^2 gamma^2 tau > 0; rho > 0; 8 L*^2 sqrt(tau) C / (rho mu) <=
    0.05. The fourth, which bounds G, is printed with its fractions in disorder and left out. inner is nan where rho is
    not in (0, 1).
    """
    square = jnp.square(smoothness)
    c = (square * step + smoothness) * jnp.square(step) / 2
    rho = step * mu / 2 - 16 * square * eta * c / mu
    rate = jnp.where((rho > 0) & (rho < 1), rho, jnp.nan)
    third = 0.05 - 8 * square * jnp.sqrt(tau) * c / (rate * mu)
    slack = jnp.stack(jnp.broadcast_arrays(1 - 2 * square * jnp.square(step) * tau, rho, third))
    outer = jnp.log(2 * gap / epsilon) / jnp.log(4 / 3)
    return SVRG(rho, jnp.log(0.25) / jnp.log1p(-rate), outer, slack)


class Slope(NamedTuple):
    """The slope of a curve: its interval, and that of each curve [curves] by least squares."""

    found: Interval
    each: np.ndarray


def loglog_slope(x: Any, y: Any, where: Any = True, level: float = 0.95) -> Slope:
    """Return the exponent s of y ~ x^s: the slope of log y against log x. Arguments as in `semilog_slope`; x > 0."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return _slope(np.log10(np.asarray(x, float)), y, where, level)


def semilog_slope(x: Any, y: Any, where: Any = True, level: float = 0.95) -> Slope:
    """Return the slope of log10 y against x, in digits for each unit of x: of a linear rate, minus digits an epoch.

    x [n] or [curves, n]; y [n], one curve, or [curves, n], say a curve for each seed; where: bool, points that count,
    broadcast against y. Of several curves each has its slope by least squares, and the interval is Student's over
    them: curves must be independent, the points of one need not be. Of one curve it is that of `scipy.stats.linregress`
    with Student's t, which takes its residuals for independent: too narrow for the iterates of one run.

    The interval is nan, hence undecided, where a curve has fewer than 2 points that count (one curve: 3), or one of
    them isn't positive. Raises ValueError for other shapes.
    """
    return _slope(np.asarray(x, float), y, where, level)


def _slope(x: np.ndarray, y: Any, where: Any, level: float) -> Slope:
    from scipy import stats

    y = np.asarray(y, float)
    if y.ndim not in (1, 2) or x.shape not in (y.shape, y.shape[-1:]):
        fail("y", f"shape {y.shape} with x {x.shape}", "[n] or [curves, n] with as many x")
    curves = np.atleast_2d(y)
    with np.errstate(invalid="ignore", divide="ignore"):
        curves = np.log10(curves)
    xs, kept = np.broadcast_to(x, curves.shape), np.broadcast_to(np.asarray(where, bool), curves.shape)
    nan = Interval(np.nan, np.nan)
    each, single = np.full(len(curves), np.nan), nan
    for i, (a, b, keep) in enumerate(zip(xs, curves, kept, strict=True)):
        a, b = a[keep], b[keep]
        if len(a) < 2 or not np.isfinite([a, b]).all() or np.ptp(a) == 0:
            continue
        fit: Any = stats.linregress(a, b)
        each[i] = fit.slope
        if len(a) > 2:
            half = fit.stderr * stats.t.ppf((1 + level) / 2, len(a) - 2)
            single = Interval(float(fit.slope - half), float(fit.slope + half))
    return Slope(single if y.ndim == 1 else of_mean(each, level), each)
