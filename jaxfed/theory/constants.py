"""The constants of the theorems, measured for a model and a data set: L, mu, sigma^2, zeta_i, Delta_i, G and B.

APFL (Deng et al. 2020, arXiv 2003.13461), the convergence theorems: f_i is L-smooth and mu-strongly convex; sigma^2
bounds E ||grad f_i(w; xi) - grad f_i(w)||^2; zeta_i = sup_w ||grad F(w) - grad f_i(w)||^2 is the gradient diversity,
Delta_i = ||v_i* - w*||^2 the gap between the optima of f_i and of F = mean_i f_i.

On all of R^d the suprema are infinite unless the clients' Hessians agree, so here they are taken over a stated set: the
ball ||w - center|| <= radius, exactly, for least squares (`least_squares`); given points otherwise (`at_points`), which
bounds a supremum from below. Everything but `at_points` is computed on the host with NumPy in float64.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxfed.checks import fail, number, one_of, whole
from jaxfed.theory import generalization

CURVATURES = {  # the least and the greatest second derivative of each loss in the outputs of a linear model
    "squared": (2.0, 2.0),
    "half_squared": (1.0, 1.0),
    "logistic": (0.0, 1 / 4),
    "squared_hinge": (0.0, 2.0),
    "robust": (-1 / 8, 1.0),  # (1 - r^2/2) / (1 + r^2/2)^2: least at r^2 = 6
    "softmax_cross_entropy": (0.0, 1 / 2),  # eigenvalues of diag(p) - p p^T
}
MOST_PARAMETERS = 2_000  # of `at_points`, whose Hessians are dense


class Constants(NamedTuple):
    """Constants of each client, arrays float [C].

    `smoothness`: L_i, the greatest eigenvalue of f_i's Hessian; `convexity`: mu_i, the least; `variance`: sigma_i^2 of
    the gradient of one row drawn at random (a minibatch of b rows drawn with replacement has 1 / b of it);
    `diversity`: zeta_i; `gaps`: Delta_i. The theorems' L is the largest L_i, their mu the least mu_i.
    """

    smoothness: np.ndarray
    convexity: np.ndarray
    variance: np.ndarray
    diversity: np.ndarray
    gaps: np.ndarray


class Curvature(NamedTuple):
    """Bounds for all w: every eigenvalue of f_i's Hessian lies within [`convexity`, `smoothness`], arrays float [C].

    `exact`: whether both ends are attained (squared losses).
    """

    smoothness: np.ndarray
    convexity: np.ndarray
    exact: bool


def least_squares(
    clients: Sequence[tuple[Any, Any]],
    *,
    radius: float,
    center: Any = None,
    weights: Any = None,
    scale: float = 1.0,
    l2: float = 0.0,
) -> Constants:
    """Return the constants of f_i(w) = scale / 2 mean_j (x_ij . w - y_ij)^2 + l2 / 2 ||w||^2, exactly.

    Args:
      clients: (x_i [n_i, d], y_i [n_i]) each, as in `synthetic.quadratics(...).clients`.
      radius: of the ball over which sigma_i^2 and zeta_i are suprema; 0 for their values at the center.
      center: the ball's, [d]; None: the minimiser of F.
      weights: [C], of the f_i in F; None: equal, as in the paper.
      scale: 1 for the half squared loss, 2 for the squared one.
      l2: the penalty.

    Raises ValueError where an optimum is not unique (no l2, and less rows than features), for a radius below 0 and
    weights below 0 or of another number.
    """
    number("radius", radius, 0)
    rows = [(np.asarray(x, float), np.asarray(y, float)) for x, y in clients]
    share = _shares(weights, len(rows))
    d = rows[0][0].shape[1]
    hessians = np.stack([scale * x.T @ x / len(x) + l2 * np.eye(d) for x, _ in rows])
    linear = np.stack([scale * x.T @ y / len(x) for x, y in rows])
    values = np.linalg.eigvalsh(hessians)
    if values[:, 0].min() <= 1e-12 * values[:, -1].max():
        fail(
            "clients", f"client {values[:, 0].argmin()} without a unique optimum", "at least d independent rows, or l2"
        )
    mean_hessian, mean_linear = np.tensordot(share, hessians, 1), np.tensordot(share, linear, 1)
    optimum = np.linalg.solve(mean_hessian, mean_linear)
    center = optimum if center is None else np.asarray(center, float)
    optima = np.linalg.solve(hessians, linear[..., None])[..., 0]
    diversity, variance = [], []
    for (x, y), hessian, part in zip(rows, hessians, linear, strict=True):
        off = hessian - mean_hessian
        diversity.append(greatest_in_ball(off.T @ off, off.T @ (off @ center - part + mean_linear), radius)
                         + np.sum((off @ center - part + mean_linear) ** 2))  # fmt: skip
        # a row's gradient is scale (x x^T) v + scale r x at center + v, with r the residual at the center
        r, squares = scale * (x @ center - y), np.sum(x**2, axis=1)
        mean = scale * x.T @ x / len(x)
        matrix = scale**2 * (x.T * squares) @ x / len(x) - mean @ mean
        vector = scale * x.T @ (squares * r) / len(x) - mean @ (x.T @ r / len(x))
        constant = np.mean(r**2 * squares) - np.sum((x.T @ r / len(x)) ** 2)
        variance.append(greatest_in_ball(matrix, vector, radius) + constant)
    gaps = np.sum((optima - optimum) ** 2, axis=1)
    return Constants(values[:, -1], values[:, 0], np.array(variance), np.array(diversity), gaps)


def greatest_in_ball(matrix: np.ndarray, vector: np.ndarray, radius: float) -> float:
    """Return the maximum of v . matrix v + 2 vector . v over ||v|| <= radius; matrix [d, d] positive semidefinite.

    The trust-region problem's dual, which is tight: the least of nu radius^2 + sum_k q_k^2 / (nu - lambda_k) over nu
    at least the greatest eigenvalue, by bisection of its derivative; lambda and q are the eigenvalues and the vector
    in their axes.
    """
    number("radius", radius, 0)
    if radius == 0:
        return 0.0
    values, axes = np.linalg.eigh(np.asarray(matrix, float))
    squares, top = np.square(axes.T @ np.asarray(vector, float)), values[-1]
    low, high = top, top + np.sqrt(squares.sum()) / radius
    for _ in range(200):  # until the interval is one float wide
        middle = 0.5 * (low + high)
        if not low < middle < high:
            break
        rises = np.sum(squares / np.square(middle - values)) < radius**2
        low, high = (low, middle) if rises else (middle, high)
    apart = high - values
    inverse = np.divide(squares, apart, out=np.zeros_like(squares), where=apart > 0)
    return float(high * radius**2 + inverse.sum())


def curvature(model: Any, data: Any) -> Curvature:
    """Return bounds of the curvature of every client's objective for a linear model and ClientData.

    The Hessian is X^T diag(loss'') X / n_i + l2 I over rows with a one for the bias, so it lies between the loss's
    least and greatest second derivative (`CURVATURES`) times an extreme eigenvalue of the Gram matrix, plus l2.
    Bounds hold for all w. Raises ValueError for a model that is not linear.
    """
    if not model.linear:
        fail("model.net", type(model.net).__name__, "a linear one (for others: at_points)")
    one_of("model.loss", model.loss, tuple(CURVATURES))
    least, greatest = CURVATURES[model.loss]
    grams = [np.linalg.eigvalsh(x.T @ x / len(x)) for x, _ in rows_of(data)]
    low, high = np.array([(max(g[0], 0.0), g[-1]) for g in grams]).T
    l2 = float(model.l2)
    return Curvature(greatest * high + l2, least * (low if least > 0 else high) + l2, least == greatest)


def rows_of(data: Any, bias: bool = True) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return each client's rows (x_i [n_i, d], y_i [n_i]) of ClientData in float64, flat, with a last column of ones.

    uint8 images are scaled to [0, 1], as the simulator does. Without `bias`, no ones.
    """
    clients = []
    for i in range(data.num_clients):
        x, y = data.client(i)
        x = x.reshape(len(x), -1).astype(float) / (255 if x.dtype == np.uint8 else 1)
        clients.append((np.hstack([x, np.ones((len(x), 1))]) if bias else x, np.asarray(y, float)))
    return clients


def at_points(model: Any, data: Any, points: Any, *, optima: Any = None, weights: Any = None) -> Constants:
    """Return the constants of any model over given points: a sample of the suprema, so bounds from inside.

    `smoothness`, `variance` and `diversity` are the largest values at the points, each at most the true supremum;
    `convexity` the least eigenvalue there, at least the true infimum (below 0 where f_i is not convex). At each point
    they are exact: all rows of a client, no sampling of rows.

    Args:
      model: a Model with at most 2,000 parameters (its Hessians are dense).
      data: ClientData without empty clients.
      points: parameters with a leading axis, [points, ...]; say the models of a run.
      optima: (v_i* [C, ...], w* [...]), parameters; None: `gaps` is nan.
      weights: [C], of the f_i in F; None: equal.
    """
    import jax
    import jax.numpy as jnp
    from jax.flatten_util import ravel_pytree

    first = jax.tree.map(lambda leaf: leaf[0], points)
    _, back = ravel_pytree(first)
    flat = jax.vmap(lambda tree: ravel_pytree(tree)[0])(points)
    if flat.shape[1] > MOST_PARAMETERS:
        fail("points", f"{flat.shape[1]} parameters", f"at most {MOST_PARAMETERS}")
    whole("points", len(flat), 1)
    share = jnp.asarray(_shares(weights, data.num_clients))
    data = jax.tree.map(jnp.asarray, data)

    def client(w, i):
        view = data.view(i)
        x, y = view.take(view.rows)
        weight = view.mask().astype(flat.dtype)

        def objective(w):
            return model.objective(back(w), x, y, weight)

        rows = jax.vmap(lambda x, y: jax.grad(lambda w: model.objective(back(w), x[None], y[None]))(w))(x, y)
        gradient = jax.grad(objective)(w)
        squares = jnp.sum(jnp.square(rows - gradient), axis=1)
        eigenvalues = jnp.linalg.eigvalsh(jax.hessian(objective)(w))
        return gradient, jnp.sum(weight * squares) / jnp.sum(weight), eigenvalues[-1], eigenvalues[0]

    @jax.jit
    def point(w):
        gradients, variance, high, low = jax.lax.map(lambda i: client(w, i), jnp.arange(data.num_clients))
        off = gradients - share @ gradients
        return variance, jnp.sum(jnp.square(off), axis=1), high, low

    variance, diversity, high, low = (np.asarray(a, float) for a in jax.lax.map(point, flat))
    gaps = np.full(data.num_clients, np.nan) if optima is None else optimum_gaps(*optima)
    return Constants(high.max(0), low.min(0), variance.max(0), diversity.max(0), gaps)


def optimum_gaps(local: Any, shared: Any) -> np.ndarray:
    """Return Delta_i = ||v_i* - w*||^2, [C], from parameters v* [C, ...] and w* [...]."""
    import jax

    squares = jax.tree.map(
        lambda v, w: np.sum(np.square(np.asarray(v, float) - w).reshape(len(v), -1), 1), local, shared
    )
    return np.sum(jax.tree.leaves(squares), axis=0)


def loss_constants(loss: str, data: Any, radius: float, bias: bool = True) -> generalization.LossConstants:
    """Return G and B of Theorem 1 on the rows of ClientData, for linear predictors with ||h|| <= radius.

    The largest ||x|| (with a one for the bias) and |y| are those of these rows, so the theorem's constants, which hold
    for every possible row, are at least these. Raises ValueError for a loss but "squared" and "squared_hinge".
    """
    one_of("loss", loss, ("squared", "squared_hinge"))
    number("radius", radius, 0)
    rows = rows_of(data, bias)
    largest_x = max(float(np.linalg.norm(x, axis=1).max()) for x, _ in rows)
    if loss == "squared_hinge":
        return generalization.squared_hinge_constants(radius, largest_x)
    return generalization.squared_constants(radius, largest_x, max(float(np.abs(y).max()) for _, y in rows))


def _shares(weights: Any, num_clients: int) -> np.ndarray:
    share = np.ones(num_clients) if weights is None else np.asarray(weights, float)
    if share.shape != (num_clients,) or not (share >= 0).all() or not 0 < share.sum() < np.inf:
        fail("weights", f"shape {share.shape}", f"{num_clients} numbers of at least 0, not all 0")
    return share / share.sum()
