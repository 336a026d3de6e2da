"""The mixed model h_alpha of APFL's equation 1 for least squares on linear predictors in a ball, solved exactly.

hbar = argmin Lhat_Dbar(h), h_loc = argmin Lhat_Di(alpha h + (1 - alpha) hbar), both over ||h|| <= radius, and
h_alpha = alpha h_loc + (1 - alpha) hbar. Both are quadratics over a ball: one eigendecomposition of the Gram matrix and
a bisection of the secular equation, for all alpha at once. Without a ball (radius inf) h_alpha is the least-squares fit
to the client's rows for every alpha > 0: h_loc undoes whatever is mixed in.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxfed.types import Array

STEPS = 40  # of the bisection: beyond float32's precision
TINY = 1e-6  # eigenvalues below this share of the greatest one count as 0: their directions hold no rows


def least_in_ball(values: Array, vector: Array, radius: Any) -> Array:
    """Return argmin over ||h|| <= radius of sum_k values_k h_k^2 / 2 - vector_k h_k, the shortest where several, [d].

    Args:
      values: eigenvalues of the Hessian, at least 0, [d].
      vector: the linear term in the same axes, [d]; 0 where `values` are.
      radius: of the ball; inf for no constraint.
    """
    norm = jnp.sqrt(jnp.sum(jnp.square(vector)))
    flat = values <= TINY * jnp.max(values)

    def h(nu):
        whole = values + nu
        usable = ~flat | (nu > 0)
        return jnp.where(usable, vector, 0) / jnp.where(usable & (whole > 0), whole, 1)

    def halve(_, ends):
        low, high = ends
        middle = 0.5 * (low + high)
        outside = jnp.sum(jnp.square(h(middle))) > jnp.square(radius)
        return jnp.where(outside, middle, low), jnp.where(outside, high, middle)

    free = h(0.0)
    _, nu = jax.lax.fori_loop(0, STEPS, halve, (jnp.zeros_like(norm), norm / radius))
    return jnp.where(jnp.sum(jnp.square(free)) <= jnp.square(radius), free, h(nu))


def shared_model(values: Array, axes: Array, linear: Array, radius: Any, fit: Any = least_in_ball) -> Array:
    """Return hbar [d] from the pooled rows' X^T y / m [d], and eigenvalues [d] and axes [d, d] of their X^T X / m."""
    return axes @ fit(values, axes.T @ linear, radius)


def mixed_models(
    alphas: Array, values: Array, axes: Array, linear: Array, shared: Array, radius: Any, fit: Any = least_in_ball
) -> Array:
    """Return h_alpha [alpha, d] for mixing weights alphas [alpha], from one client's rows.

    Args:
      alphas: in [0, 1]; at 0, h_alpha is hbar, whatever h_loc.
      values: eigenvalues of X^T X / m_i of the client's rows, at least 0, [d].
      axes: its eigenvectors, in columns, [d, d].
      linear: X^T y / m_i, [d].
      shared: hbar, [d].
      radius: of the ball in which h_loc ranges (hbar is taken as it is).
      fit: solves the quadratic in the ball (values, vector, radius) -> [d].
    """
    target, own = axes.T @ linear, axes.T @ shared

    def one(alpha):
        rest = target - (1 - alpha) * values * own
        return alpha * fit(jnp.square(alpha) * values, alpha * rest, radius) + (1 - alpha) * own

    return jax.vmap(one)(alphas) @ axes.T


def eigenvectors(gram: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return eigenvalues [..., d], at least 0, and eigenvectors in columns [..., d, d] of Gram matrices, on the host.

    By NumPy: on a CPU with two threads, two of jax's batched eigh in one program can wait for each other for ever (seen
    with jaxlib 0.10.2), each with a thread of the pool that the other's parts need.
    """
    values, axes = np.linalg.eigh(gram)
    return np.maximum(values, 0), axes
