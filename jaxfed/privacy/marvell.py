"""Marvell: the noise that makes two classes' thetas hardest to tell apart for its power (Li et al. 2022, 2102.08504).

Whoever tells two distributions apart is wrong with probability (the mean of false positives and false negatives) at
least 1/2 - TV / 2, and by Pinsker's inequality, both ways, TV <= sqrt(sumKL) / 2, sumKL the sum of both
Kullback-Leibler divergences: at least 1/2 - sqrt(sumKL) / 4, as there. Marvell models each class's gradients as normal
and chooses the classes' noise to minimise sumKL under a power constraint. In one dimension, with variances u (y = -1)
and v (y = +1), squared distance g of the means and a share p of positives,

    minimise  sumKL = ((s0 + g) / s1 + (s1 + g) / s0) / 2 - 1,   s0 = u + noise0, s1 = v + noise1,
    subject to  p noise1 + (1 - p) noise0 <= power g,   noise0, noise1 >= 0.
"""

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from jaxfed.checks import fail, numbers
from jaxfed.nodes import PyTreeNode
from jaxfed.types import Array, Key


class Classes(NamedTuple):
    """What a minibatch says of its classes: variances of the negatives and the positives, the squared distance of their
    means, and the share of positives."""

    u: Any
    v: Any
    g: Any
    p: Any


def sum_kl(s0: Any, s1: Any, g: Any) -> Any:
    """Return KL(0 || 1) + KL(1 || 0) of normals with variances s0 and s1 and means sqrt(g) apart."""
    return ((s0 + g) / s1 + (s1 + g) / s0) / 2 - 1


def error_bound(sum_kl: Any) -> Any:
    """Return a lower bound of anyone's error, (false positive rate + false negative rate) / 2."""
    return jnp.maximum(0.5 - jnp.sqrt(sum_kl) / 4, 0)


def optimal_noise(classes: Classes, power: Any) -> tuple[Array, Array]:
    """Return the variances (noise0, noise1) of the optimal noise for negatives and positives.

    The constraint is tight: scaling s0 and s1 up by one factor lowers sumKL. On the line p s1 + (1 - p) s0 = C there is
    one stationary point, at s1 / s0 = E = sqrt((C + (1 - p) g) / (C + p g)), and sumKL grows without limit towards both
    ends; so the optimum is that point, moved to the nearest end of what noise >= 0 leaves. (The authors' code searches
    in d dimensions by alternating minimisation; with d = 1 this is all that is left of it.)
    """
    u, v, g, p = classes
    tiny = jnp.finfo(jnp.result_type(float)).tiny
    total = power * g + p * v + (1 - p) * u
    ratio = jnp.sqrt((total + (1 - p) * g + tiny) / (total + p * g + tiny))
    noise0 = jnp.clip(total / (p * ratio + 1 - p) - u, 0, power * g / (1 - p))
    return noise0, jnp.maximum((power * g - (1 - p) * noise0) / p, 0)  # rounding may leave less than 0


def statistics(theta: Array, y: Array) -> Classes:
    """Return the classes' statistics in each minibatch, [m, 1, *L], of theta [m, b, *L] and y [m, b, 1...].

    A minibatch of one class says nothing of the other. Then that one is taken to be its mirror image about 0, in equal
    share (departure: the paper has no such minibatches; without noise all their labels would be plain).
    """
    ones = (y > 0).astype(theta.dtype)
    share = jnp.mean(ones, axis=1, keepdims=True)

    def moments(weight):
        count = jnp.maximum(jnp.sum(weight, axis=1, keepdims=True), 1)
        mean = jnp.sum(weight * theta, axis=1, keepdims=True) / count
        return mean, jnp.sum(weight * (theta - mean) ** 2, axis=1, keepdims=True) / count

    (m0, u), (m1, v) = moments(1 - ones), moments(ones)
    both, positive = (share > 0) & (share < 1), share > 0.5
    only, spread = jnp.where(positive, m1, m0), jnp.where(positive, v, u)
    g = jnp.where(both, (m1 - m0) ** 2, (2 * only) ** 2)
    return Classes(jnp.where(both, u, spread), jnp.where(both, v, spread), g, jnp.where(both, share, 0.5))


class Marvell(PyTreeNode):
    """theta + noise of the class's optimal variance, from the statistics of its minibatch.

    power: E noise^2 over a minibatch as a multiple of g, the squared distance of the class means (the paper's P = s g).
    It is unbiased given the minibatch, and independent from release to release. Departures: the power is given and not
    raised until sumKL is small enough; and see `statistics`.
    """

    power: Any = 1.0
    aggregates: ClassVar[bool] = False

    def draw(self, key: Key, row_key: Key, y: Array) -> Array:
        """Return a standard normal number."""
        del row_key, y
        return jax.random.normal(key)

    def release(self, theta: Array, y: Array, drawn: Array) -> Array:
        """Return theta with noise."""
        noise0, noise1 = optimal_noise(statistics(theta, y), self.power)
        return theta + jnp.sqrt(jnp.where(y > 0, noise1, noise0)) * drawn

    def check(self, objective: Any, batch_size: int) -> None:
        """Require two classes and minibatches."""
        numbers("defence.power", self.power, 0)
        if not objective.classifies:
            fail("objective.loss", repr(objective.loss), "'logistic' or 'squared_hinge' with Marvell, for two classes")
        if batch_size < 2:
            fail("batch_size", batch_size, "at least 2 with Marvell: it needs statistics of a minibatch")
