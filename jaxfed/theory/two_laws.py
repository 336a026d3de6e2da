"""A regression problem in which every assumption of APFL's Theorem 1 holds and all its terms but C are known exactly.

Features x are uniform on the sphere of radius sqrt(d) (so E x x^T = I), targets y = w . x + e with e uniform on
[-sqrt(3) noise, sqrt(3) noise] (standard deviation `noise`). Half of the clients have w_+, half w_-: unit vectors at
distance `distance`, D_i is the law with w_+, and Dbar the even mixture of both, however many clients there are. Hence
everything is bounded, as the theorem wants (with Gaussian features and noise B is infinite), while the true risk is
as simple as theirs: ||h - w_+||^2 + noise^2.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxfed.checks import fail
from jaxfed.theory import disagreement, generalization, mixtures
from jaxfed.types import Array

STARTS, ASCENTS = 32, 16  # of the search for the worst-case disagreement: on average 0.2% below that of 512 and 50


class Settings(NamedTuple):
    """What is varied, arrays [S]: `local_rows` m_i and `rows` m (samples; m_i of the m rows are the client's, at most
    half), `distance` ||w_+ - w_-|| in [0, 2], `noise` (standard deviation of y given x) and `radius` of the ball.
    """

    local_rows: Any
    rows: Any
    distance: Any
    noise: Any
    radius: Any


class Draw(NamedTuple):
    """What one draw of all rows gives, for each setting: `risk` [S, alpha], the true risk of h_alpha on D_i;
    `global_risk` [S], Lhat_Dbar(hbar); `disagreement` [S], lambda_H(S_i), as
    far as ascents find it; and what uniform convergence has to cover,
    `global_excess` [S] = L_Dbar(hbar) - Lhat_Dbar(hbar) and `local_excess` [S] = L_Di(h_1) - Lhat_Di(h_1), h_1 the
    client's own fit.
    """

    risk: Array
    global_risk: Array
    disagreement: Array
    global_excess: Array
    local_excess: Array


class Moments(NamedTuple):
    """Moments of chosen rows: x x^T [d, d], x e [d] and e^2, means over them."""

    gram: Array
    cross: Array
    square: Array


def distribution_distance(distance: Any, noise: Any, d: int) -> np.ndarray:
    """Return ||Dbar - D_i||_1 = ||D_- - D_+||_1 / 2 = E min(1, distance |u . x| / (2 sqrt(3) noise)), u a unit vector.

    Given x, two uniform laws of width 2 sqrt(3) noise, apart by distance |u . x|. Exact: (u . x)^2 / d has the law
    Beta(1/2, (d - 1)/2). At most 1, half the largest possible, since half of Dbar is D_i. d at least 2; on the host.
    """
    from scipy import special

    half = (d - 1) / 2
    k = np.asarray(distance, float) * np.sqrt(d) / (2 * np.sqrt(3) * np.asarray(noise, float))
    cut = np.minimum(1.0, np.divide(1.0, k**2, out=np.ones_like(k), where=k > 0))
    below = special.beta(1, half) / special.beta(0.5, half) * special.betainc(1, half, cut)
    return k * below + special.betaincc(0.5, half, cut)


def loss_constants(settings: Settings, d: int) -> generalization.LossConstants:
    """Return G and B of the squared loss: |h(x)| <= radius sqrt(d), |y| <= sqrt(d) + sqrt(3) noise."""
    largest = np.sqrt(d)
    return generalization.squared_constants(settings.radius, largest, largest + np.sqrt(3) * settings.noise)


def theorem(settings: Settings, draw: Draw, d: int, share: Any, delta: float = 0.05) -> generalization.Terms:
    """Return Theorem 1's terms of a draw (arrays broadcast against [..., S]), with C = share B and d the dimension.

    h_i* is the point of the ball nearest w_+. A linear class of dimension d stands for VC dimension d.
    """
    best = np.square(np.maximum(0, 1 - np.asarray(settings.radius))) + np.square(settings.noise)
    apart = distribution_distance(settings.distance, settings.noise, d)

    def made(s, draw, best, apart, share):
        constants = loss_constants(s, d)
        return generalization.terms(
            draw.global_risk, apart, best, draw.disagreement, m=s.rows, m_i=s.local_rows, d=d,
            constants=constants, complexity_constant=share * constants.bound, delta=delta,
        )  # fmt: skip

    return jax.jit(made)(jax.tree.map(jnp.asarray, settings), draw._replace(risk=()), best, apart, share)


def draws(
    seed: int,
    num_draws: int,
    settings: Settings,
    alphas: Array,
    d: int,
    fit: Any = mixtures.least_in_ball,
    mixed: Any = mixtures.mixed_models,
) -> Draw:
    """Return independent draws of all rows, leaves [num_draws, S, ...], NumPy arrays.

    The settings of a draw share rows: smaller samples are the first rows of larger ones. Raises ValueError if a client
    has more than half of all rows, or `rows` is odd.
    """
    own_rows, own = np.unique(settings.local_rows, return_inverse=True)
    all_rows, pool = np.unique(settings.rows, return_inverse=True)
    if (2 * np.asarray(settings.local_rows) > settings.rows).any() or (all_rows % 2).any():
        fail("local_rows", settings.local_rows, "at most half of rows, which are even")
    most, widest = int(all_rows[-1]) // 2, int(own_rows[-1])
    starts = np.random.default_rng(seed).normal(size=(STARTS, d))

    def measure(rows):
        x, e = rows
        first = jnp.arange(most) < jnp.asarray(own_rows)[:, None]
        half = jnp.arange(most) < jnp.asarray(all_rows)[:, None] // 2
        client = jax.vmap(lambda mask: moments(x[0], e[0], mask))(first)
        plus, minus = (jax.vmap(lambda mask, i=i: moments(x[i], e[i], mask))(half) for i in (0, 1))
        spread = jax.vmap(lambda mask: greatest_mean(starts, x[0, :widest], mask))(first[:, :widest])
        return client, plus, minus, spread

    def fitted(found):
        client, plus, minus, spread, own_axes, all_axes = found
        client, own_axes = jax.tree.map(lambda a: a[own], (client, own_axes))
        plus, minus, all_axes = jax.tree.map(lambda a: a[pool], (plus, minus, all_axes))
        each: Any = jax.vmap(lambda s, *rest: _fitted(s, alphas, *rest, fit=fit, mixed=mixed))
        risk, *rest = each(jax.tree.map(jnp.asarray, settings), client, plus, minus, own_axes, all_axes)
        return Draw(risk, rest[0], 2 * settings.radius * spread[own], *rest[1:])

    def over_draws(part, of):
        return jax.jit(lambda of: jax.lax.map(part, of, batch_size=min(4, num_draws)))(of)

    rows = jax.tree.map(jnp.asarray, sample(seed, num_draws, most, d))
    client, plus, minus, spread = over_draws(measure, rows)
    own_axes, all_axes = (
        jax.tree.map(jnp.asarray, mixtures.eigenvectors(np.asarray(gram)))
        for gram in (client.gram, (plus.gram + minus.gram) / 2)
    )
    found = over_draws(fitted, (client, plus, minus, spread, own_axes, all_axes))
    return jax.tree.map(np.asarray, found)


def sample(seed: int, num_draws: int, rows: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Return x [draw, 2, rows, d] on the sphere of radius sqrt(d) and e [draw, 2, rows] of variance 1, for both laws.

    By NumPy on the host: compiling jax's generator for a CPU takes longer than everything else here. Draw j does not
    depend on how many there are.
    """
    x, e = np.empty((num_draws, 2, rows, d)), np.empty((num_draws, 2, rows))
    for j in range(num_draws):
        rng = np.random.default_rng([seed, j])
        z = rng.normal(size=(2, rows, d))
        x[j] = z * np.sqrt(d / np.sum(np.square(z), axis=-1, keepdims=True))
        e[j] = rng.uniform(-1, 1, (2, rows)) * np.sqrt(3.0)
    return x, e


def moments(x: Array, e: Array, mask: Array) -> Moments:
    """Return the moments of the rows x [n, d], e [n] that the mask [n] chooses."""
    share = mask / jnp.sum(mask)
    return Moments((x.T * share) @ x, (share * e) @ x, share @ jnp.square(e))


def greatest_mean(starts: Any, x: Array, mask: Array) -> Array:
    """Return max over unit u of the mean of |u . x_j| over chosen rows x [n, d], mask [n], as ascents find it.

    From `starts` [start, d], any vectors but 0; the best one counts (`disagreement.ascend`), so it is a bound from
    below. `disagreement.lower` starts from an eigenvector, too: `mixtures.eigenvectors` says why that is avoided here.
    """
    x = jnp.where(mask[:, None], x, 0)
    u = jax.vmap(lambda u: jax.lax.fori_loop(0, ASCENTS, lambda _, u: disagreement.ascend(x, u), u))(
        jnp.asarray(starts)
    )
    return jnp.max(jnp.sum(jnp.abs(u @ x.T), axis=1)) / jnp.sum(mask)


def truths(distance: Any, d: int) -> tuple[Array, Array]:
    """Return w_+ and w_- [d], unit vectors at the given distance, which lie in the plane of the first two axes."""
    half = jnp.asarray(distance) / 2
    first, second = jnp.eye(d)[0] * jnp.sqrt(jnp.maximum(0, 1 - jnp.square(half))), jnp.eye(d)[1] * half
    return first + second, first - second


def _risk(h: Array, w: Array, noise: Array, rows: Moments) -> Array:
    """Mean squared error of h on rows with moments given, y = w . x + noise e."""
    off = h - w
    return off @ rows.gram @ off - 2 * noise * rows.cross @ off + jnp.square(noise) * rows.square


def _fitted(s: Settings, alphas: Array, *found: Any, fit: Any, mixed: Any) -> tuple[Array, ...]:
    """Risks of one setting (scalars): those of `Draw` without the disagreement."""
    client, plus, minus, (own_values, own_axes), (all_values, all_axes) = found
    w, v = truths(s.distance, client.cross.shape[0])
    linear = client.gram @ w + s.noise * client.cross
    pooled = (plus.gram @ w + minus.gram @ v + s.noise * (plus.cross + minus.cross)) / 2
    shared = mixtures.shared_model(all_values, all_axes, pooled, s.radius, fit)
    models = mixed(jnp.append(alphas, 1), own_values, own_axes, linear, shared, s.radius, fit)
    risk = jnp.sum(jnp.square(models - w), axis=1) + jnp.square(s.noise)
    train = (_risk(shared, w, s.noise, plus) + _risk(shared, v, s.noise, minus)) / 2
    both = (jnp.sum(jnp.square(shared - w)) + jnp.sum(jnp.square(shared - v))) / 2 + jnp.square(s.noise)
    return risk[:-1], train, both - train, risk[-1] - _risk(models[-1], w, s.noise, client)
