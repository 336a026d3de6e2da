"""The central optimum f*: what losslessness and convergence are measured against, in float64 on the host."""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize

from jaxfed.checks import number
from jaxfed.vertical import blocks as forms
from jaxfed.vertical import checks
from jaxfed.vertical.objective import Objective

NARROW = 500  # coordinates for which a Hessian is made and decomposed; for more there are only products with it
MOST_NEWTON_STEPS = 60
MOST_CG_STEPS = 2000


class Optimum(NamedTuple):
    """params: as the blocks have them (`party.join` puts them in the user's order), float64; value: f there;
    gradient_norm: the Euclidean norm of its gradient."""

    params: np.ndarray
    value: float
    gradient_norm: float


class Problem(NamedTuple):
    """f on joined features: `value(w)` gives f and its gradient [d], `curvature(w)` the Hessian as a function of
    [d] or [d, k]."""

    value: Callable[[np.ndarray], tuple[float, np.ndarray]]
    curvature: Callable[[np.ndarray], Callable[[np.ndarray], np.ndarray]]
    width: int


def optimum(objective: Objective, party: Any, tolerance: float = 1e-10) -> Optimum:
    """Return the minimiser of f over all parties' coordinates, from w = 0: the intercept, if any, is one of them.

    L-BFGS, then Newton steps (by conjugate gradients for many coordinates) until the gradient's norm is at most
    `tolerance`; dense and sparse blocks. Always in float64, whatever JAX's setting. Where f is not convex (loss
    "robust", regularizer "nonconvex") it is a stationary point, not above the start, and not always the one that
    another method finds.

    Warns where the tolerance is not reached: there may be no minimiser (separable classes without a regulariser), or
    rounding may hinder. Raises ValueError for rows without labels, or without two classes where the loss needs them.
    """
    checks.problem(objective)
    party = getattr(party, "train", party)
    checks.is_party("party", party)
    checks.labels("party", party, objective)
    number("tolerance", tolerance, 0)
    problem = _problem(objective, party)
    steps = 100 if problem.width <= NARROW else 1000
    options = dict(maxiter=steps, maxcor=20, ftol=0.0, gtol=tolerance / np.sqrt(max(problem.width, 1)))
    w = minimize(problem.value, np.zeros(problem.width), jac=True, method="L-BFGS-B", options=options).x
    w = _newton(problem, w, tolerance)
    value, gradient = problem.value(w)
    norm = float(np.linalg.norm(gradient))
    if not norm <= tolerance:
        warnings.warn(f"optimum: got a gradient of norm {norm:.2g}, wanted at most {tolerance:g}", stacklevel=2)
    mask = party.blocks.mask()
    params = np.zeros(mask.shape)
    params[mask] = w
    return Optimum(params, float(value), norm)


def _problem(objective: Objective, party: Any) -> Problem:
    x = forms.matrix(party.blocks).astype(np.float64)
    y, n = np.asarray(party.y, np.float64), party.num_rows
    l2 = np.float64(objective.l2)
    exact = objective.replace(l2=1.0)

    # JAX's part: elementwise functions of the scores and of the weights, in float64 by `enable_x64`
    @jax.jit
    def losses(z, y):
        return jnp.mean(exact.losses(z, y)), exact.theta(z, y) / n

    @jax.jit
    def penalty(w):
        return exact.penalty(w), exact.penalty_gradient(w)

    @jax.jit
    def second(z, y, w):
        slope = lambda f, at: jax.jvp(f, (at,), (jnp.ones_like(at),))[1]  # noqa: E731
        return slope(lambda z: exact.theta(z, y), z) / n, slope(exact.penalty_gradient, w)

    def value(w):
        with jax.enable_x64(True):
            (loss, theta), (g, slope) = jax.device_get((losses(x @ w, y), penalty(w)))
        return float(loss + l2 * g), x.T @ theta + l2 * slope

    def curvature(w):
        with jax.enable_x64(True):
            of_rows, of_weights = jax.device_get(second(x @ w, y, w))
        return lambda v: x.T @ (of_rows * (x @ v).T).T + l2 * (of_weights * v.T).T

    return Problem(value, curvature, x.shape[1])


def _newton(problem: Problem, w: np.ndarray, tolerance: float) -> np.ndarray:
    """Return w after Newton steps until the gradient's norm is at most `tolerance`, or no step makes progress.

    A step is halved until f falls enough or, where f is too flat for float64 to tell, the gradient shrinks.
    """
    value, gradient = problem.value(w)
    for _ in range(MOST_NEWTON_STEPS):
        norm = np.linalg.norm(gradient)
        if norm <= tolerance:
            break
        matrix = problem.curvature(w)
        if problem.width <= NARROW:
            direction = _solve(matrix(np.eye(problem.width)), -gradient)
        else:
            direction = _conjugate_gradients(matrix, -gradient, min(0.1, np.sqrt(norm)))
        size = 1.0
        while size > 1e-6:
            new_value, new_gradient = problem.value(w + size * direction)
            flat = abs(new_value - value) <= 1e-12 * max(abs(value), 1e-300) and np.linalg.norm(new_gradient) < norm
            if flat or new_value < value + 1e-4 * size * (gradient @ direction):
                break
            size /= 2
        else:
            break
        w, value, gradient = w + size * direction, new_value, new_gradient
    return w


def _solve(matrix: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return v with |matrix| v = target, where |matrix| has the absolute eigenvalues: downhill at a saddle too."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    values = np.maximum(np.abs(values), 1e-13 * max(np.abs(values).max(), 1e-300))
    return vectors @ (vectors.T @ target / values)


def _conjugate_gradients(matrix: Callable, target: np.ndarray, accuracy: float) -> np.ndarray:
    """Return v with |matrix(v) - target| <= accuracy |target|, or what is found before a direction that curves down."""
    v, left = np.zeros_like(target), target.copy()
    direction, square = left.copy(), left @ left
    wanted = accuracy**2 * square
    for _ in range(MOST_CG_STEPS):
        if square <= wanted:
            break
        image = matrix(direction)
        curve = direction @ image
        if curve <= 0:
            return v if v.any() else direction
        v += square / curve * direction
        left -= square / curve * image
        old, square = square, left @ left
        direction = left + square / old * direction
    return v
