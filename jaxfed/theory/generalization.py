"""APFL's Theorem 1: the bound on the risk of a mixed model as a function of alpha, and the alpha that minimises it.

Deng et al. 2020 (arXiv 2003.13461), section 3.2. With probability at least 1 - delta over the training rows, the risk
of h_alpha = alpha h_loc + (1 - alpha) hbar (equation 1) on client i's law D_i is at most

    2 (1 - alpha)^2 A + 2 alpha^2 Z,    A = Lhat_Dbar(hbar) + B ||Dbar - D_i||_1 + C sqrt((d + log 1/delta) / m),
                                        Z = L_Di(h_i*) + 2 C sqrt((d + log 1/delta) / m_i) + G lambda_H(S_i),

whose minimiser is A / (A + Z) (equation 3). A is here the global side, Z the local side. The paper says only that C
exists; risks, B and C have the loss's unit, so C is best thought of as a multiple of B. All functions are jnp
functions of arrays that broadcast against each other: they vmap over grids and over clients, and have derivatives.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp

from jaxfed.types import Array


class Terms(NamedTuple):
    """The six terms of Theorem 1, each at least 0, in the loss's unit; arrays that broadcast.

    Global side: `global_risk`, the empirical risk of hbar on the rows of Dbar; `divergence`, B ||Dbar - D_i||_1;
    `global_complexity`, C sqrt((d + log 1/delta) / m). Local side: `local_risk`, the true risk of h_i*, the best
    hypothesis on D_i; `local_complexity`, 2 C sqrt((d + log 1/delta) / m_i); `disagreement`, G lambda_H(S_i).
    """

    global_risk: Any
    divergence: Any
    global_complexity: Any
    local_risk: Any
    local_complexity: Any
    disagreement: Any


class LossConstants(NamedTuple):
    """`lipschitz`: G, the loss's Lipschitz constant in the prediction; `bound`: B, its largest value."""

    lipschitz: Array
    bound: Array


def terms(
    global_risk: Any,
    distance: Any,
    local_risk: Any,
    disagreement: Any,
    *,
    m: Any,
    m_i: Any,
    d: Any,
    constants: LossConstants,
    complexity_constant: Any,
    delta: Any = 0.05,
) -> Terms:
    """Return Theorem 1's terms.

    Args:
      global_risk: Lhat_Dbar(hbar).
      distance: ||Dbar - D_i||_1, a number in [0, 2].
      local_risk: L_Di(h_i*).
      disagreement: lambda_H(S_i) of Definition 1, in the prediction's unit.
      m: training rows of all clients together.
      m_i: training rows of client i (samples).
      d: the VC dimension of the class.
      constants: G and B of the loss on this class.
      complexity_constant: C.
      delta: the probability with which the bound may fail.
    """
    shared = complexity_constant * complexity(m, d, delta)
    own = 2 * complexity_constant * complexity(m_i, d, delta)
    return Terms(
        *map(jnp.asarray, (global_risk, constants.bound * distance, shared)),
        *map(jnp.asarray, (local_risk, own, constants.lipschitz * disagreement)),
    )


def complexity(rows: Any, d: Any, delta: Any = 0.05) -> Array:
    """Return sqrt((d + log 1/delta) / rows), without a unit: what the theorem multiplies by C; inf for no rows."""
    return jnp.sqrt((jnp.asarray(d) + jnp.log(1 / jnp.asarray(delta))) / jnp.asarray(rows))


def sides(terms: Terms) -> tuple[Array, Array]:
    """Return (A, Z): the sums of the global and of the local terms."""
    shared = jnp.asarray(terms.global_risk) + terms.divergence + terms.global_complexity
    return shared, jnp.asarray(terms.local_risk) + terms.local_complexity + terms.disagreement


def bound(alpha: Any, terms: Terms) -> Array:
    """Return Theorem 1's right side at mixing weights alpha in [0, 1].

    A side with weight 0 counts as 0 even where it is infinite (m_i = 0 at alpha = 0: a client without rows).
    """
    alpha = jnp.asarray(alpha)
    shared, own = sides(terms)
    shared = jnp.where(alpha == 1, 0, jnp.square(1 - alpha) * shared)
    return 2 * (shared + jnp.where(alpha == 0, 0, jnp.square(alpha) * own))


def best_alpha(terms: Terms) -> Array:
    """Return alpha* = A / (A + Z), the minimiser of the bound (equation 3).

    Strictly between 0 and 1 where both sides are positive and finite. Limits: 0 where A = 0 or Z is infinite (no local
    rows), 1 where Z = 0 or A is infinite; nan where both are 0 (the bound is then 0 for every alpha) or both infinite.
    """
    shared, own = sides(terms)
    return jnp.where(jnp.isinf(shared) & jnp.isfinite(own), 1, shared / (shared + own))


def best_bound(terms: Terms) -> Array:
    """Return the bound at alpha*: 2 A Z / (A + Z), below twice the lesser side and A itself where A = Z.

    nan where alpha* is.
    """
    return bound(best_alpha(terms), terms)


def slopes(terms: Terms) -> Terms:
    """Return the derivatives of alpha* by each term: Z / (A + Z)^2 for the global ones, -A / (A + Z)^2 for the local.

    So alpha* rises with divergence, with m_i and with the risk of hbar, and falls with m, with the risk of h_i* and
    with the disagreement. In the theorem one side's risk is held while the other's changes; in a real problem they move
    together. In one over the loss's unit; nan where a side is infinite or both are 0.
    """
    shared, own = sides(terms)
    total = jnp.square(shared + own)
    up, down = own / total, -shared / total
    return Terms(up, up, up, down, down, down)


def slope_in_local_rows(terms: Terms, m_i: Any) -> Array:
    """Return the derivative of alpha* by m_i, per sample: A / (A + Z)^2 times local_complexity / (2 m_i), never < 0."""
    return -slopes(terms).local_complexity * terms.local_complexity / (2 * jnp.asarray(m_i))


def slope_in_global_rows(terms: Terms, m: Any) -> Array:
    """Return the derivative of alpha* by m, per sample, m_i held: -Z / (A + Z)^2 times global_complexity / (2 m)."""
    return -slopes(terms).global_complexity * terms.global_complexity / (2 * jnp.asarray(m))


def squared_constants(radius: Any, largest_x: Any, largest_y: Any) -> LossConstants:
    """Return G and B of the squared loss (z - y)^2 for linear predictors in a ball.

    Args:
      radius: the ball's, ||h|| <= radius, so |z| <= radius largest_x.
      largest_x: a bound on ||x||; one does not exist for Gaussian features, and the theorem then does not apply.
      largest_y: a bound on |y|.
    """
    error = jnp.asarray(radius) * largest_x + largest_y
    return LossConstants(2 * error, jnp.square(error))


def squared_hinge_constants(radius: Any, largest_x: Any) -> LossConstants:
    """Return G and B of the squared hinge max(0, 1 - y z)^2, y in {-1, +1}, for linear predictors in a ball.

    That is `squared_constants` with |y| = 1, as max(0, 1 - y z) is at most 1 + |z|.
    """
    return squared_constants(radius, largest_x, 1.0)
