"""Definition 1 of APFL (arXiv 2003.13461): the worst-case disagreement lambda_H(S) of linear models in a ball.

lambda_H(S) = sup over h, h' in H of mean_{x in S} |h(x) - h'(x)|. For H = {x -> w . x: |w| <= R} the difference w - w'
runs through the ball of radius 2 R, so lambda_H(S) = 2 R max_{|u| = 1} mean |x . u|, in units of the outputs: the
maximum of a convex function, NP-hard in general. With `bias`, h(x) = w . x + b and the ball is |(w, b)| <= R.

Arguments of all: x [rows, feature]; radius R; bias; mask [rows], which rows count (None: all; at least one must). They
vmap over clients: `jax.vmap(lambda x, mask: lower(key, x, 1.0, mask=mask))(x, masks)` with padded rows.
"""

import jax
import jax.numpy as jnp

from jaxfed import checks
from jaxfed.types import Array, Key


def lower(
    key: Key, x: Array, radius: Array | float, *, bias: bool = False, mask: Array | None = None, restarts: int = 16,
    num_steps: int = 50,
) -> Array:  # fmt: skip
    """Return a lower bound []: the best of monotone ascents from random directions and from the spectral one.

    `num_steps` of `ascend` each (it comes to rest after a few). Attained by a pair of models, so a bound whatever
    the restarts find.
    """
    checks.whole("restarts", restarts, 1)
    checks.whole("num_steps", num_steps, 0)
    x = _rows(x, bias, mask)
    starts = jax.random.normal(key, (restarts - 1, x.shape[1]), x.dtype)
    starts = jnp.concatenate([jnp.linalg.eigh(x.T @ x)[1][:, -1:].T, starts])
    starts = starts / jnp.linalg.norm(starts, axis=1, keepdims=True)
    best = jax.vmap(lambda u: jax.lax.fori_loop(0, num_steps, lambda _, u: ascend(x, u), u))(starts)
    return 2 * radius * jnp.max(jnp.abs(x @ best.T).sum(axis=0)) / _count(x, mask)


def ascend(x: Array, u: Array) -> Array:
    """Return u' = X^T sign(X u) / |X^T sign(X u)| for x = X [rows, d] and a unit vector u [d].

    sum |x . u'| >= sum |x . u|, as sign(X u)^T X u' = |X^T sign(X u)| >= sign(X u)^T X u. u where X u = 0.
    """
    g = x.T @ jnp.where(x @ u >= 0, 1, -1)
    size = jnp.linalg.norm(g)
    return jnp.where(size > 0, g / jnp.where(size > 0, size, 1), u)


def upper(x: Array, radius: Array | float, *, bias: bool = False, mask: Array | None = None) -> Array:
    """Return the spectral upper bound [], 2 R sqrt(lambda_max(X^T X / rows)): mean |x . u| <= sqrt(mean (x . u)^2)."""
    x = _rows(x, bias, mask)
    return 2 * radius * jnp.linalg.norm(x, ord=2) / jnp.sqrt(_count(x, mask))


def exact(x: Array, radius: Array | float, *, bias: bool = False, mask: Array | None = None) -> Array:
    """Return lambda_H(S) [] for models of one or two parameters (with the bias), in O(rows log rows).

    max_u sum |x . u| = max over signs s of |X^T s|. As u turns, the signs of X u change at one row after the other in
    the order of their angles: with every x in the upper half plane only prefixes of that order are negative.

    Raises ValueError for three or more parameters.
    """
    x = _rows(x, bias, mask)
    if x.shape[1] > 2:
        checks.fail("x", f"{x.shape[1]} parameters", "1 or 2 for the exact value (lower and upper bound it)")
    if x.shape[1] == 1:
        return 2 * radius * jnp.abs(x).sum() / _count(x, mask)
    half = jnp.where((x[:, 1:] < 0) | ((x[:, 1:] == 0) & (x[:, :1] < 0)), -x, x)
    turned = half[jnp.argsort(jnp.arctan2(half[:, 1], half[:, 0]))]
    sums = turned.sum(axis=0) - 2 * jnp.cumsum(turned, axis=0)
    return 2 * radius * jnp.max(jnp.linalg.norm(sums, axis=1)) / _count(x, mask)


def _rows(x: Array, bias: bool, mask: Array | None) -> Array:
    """Return the rows as the models see them; those that do not count are zero, and so add nothing."""
    checks.flag("bias", bias)
    x = jnp.asarray(x, jnp.result_type(float))
    if x.ndim != 2:
        checks.fail("x", f"shape {x.shape}", "[rows, feature]")
    x = jnp.concatenate([x, jnp.ones((x.shape[0], 1), x.dtype)], axis=1) if bias else x
    return x if mask is None else jnp.where(mask[:, None], x, 0)


def _count(x: Array, mask: Array | None) -> Array | int:
    return x.shape[0] if mask is None else jnp.sum(mask)
