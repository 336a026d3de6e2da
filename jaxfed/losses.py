"""Pointwise losses L(z, y), their derivatives in z, and regularizers g(w) with theirs.

`z` are the model's outputs for one row (a vector of logits, or a scalar) and `y` its label or target. Losses for
two classes take y in {-1, +1}. They are static choices of a model, named by a string.
"""

import jax
import jax.numpy as jnp


@jax.custom_jvp
def softmax_cross_entropy(z, y):
    """-log softmax(z)[y]; z [..., C], y int [...]."""
    return jax.nn.logsumexp(z, axis=-1) - jnp.take_along_axis(z, y[..., None], axis=-1)[..., 0]


@softmax_cross_entropy.defjvp
def _softmax_cross_entropy_jvp(primals, tangents):
    """The derivative in closed form: a quarter of the operations that differentiating the sum and the gather takes."""
    (z, y), (dz, _) = primals, tangents
    return softmax_cross_entropy(z, y), jnp.sum(softmax_cross_entropy_derivative(z, y) * dz, axis=-1)


def softmax_cross_entropy_derivative(z, y):
    """softmax(z) - onehot(y); [..., C]."""
    return jax.nn.softmax(z, axis=-1) - jax.nn.one_hot(y, z.shape[-1], dtype=z.dtype)


def logistic(z, y):
    """log(1 + exp(-y z)), y in {-1, +1}."""
    return jax.nn.softplus(-y * z)


def logistic_derivative(z, y):
    """-y / (1 + exp(y z))."""
    return -y * jax.nn.sigmoid(-y * z)


def squared(z, y):
    """(z - y)^2, the paper's squared loss (without the half)."""
    return jnp.square(z - y)


def squared_derivative(z, y):
    """2 (z - y)."""
    return 2 * (z - y)


def half_squared(z, y):
    """(z - y)^2 / 2."""
    return jnp.square(z - y) / 2


def half_squared_derivative(z, y):
    """z - y."""
    return z - y


def robust(z, y):
    """log(r^2 / 2 + 1) with r = z - y: bounded influence."""
    return jnp.log1p(jnp.square(z - y) / 2)


def robust_derivative(z, y):
    """r / (r^2 / 2 + 1) with r = z - y."""
    return (z - y) / (jnp.square(z - y) / 2 + 1)


def squared_hinge(z, y):
    """max(0, 1 - y z)^2, y in {-1, +1} (APFL, section 3.2)."""
    return jnp.square(jnp.maximum(0, 1 - y * z))


def squared_hinge_derivative(z, y):
    """-2 y max(0, 1 - y z)."""
    return -2 * y * jnp.maximum(0, 1 - y * z)


def half_squared_norm(w):
    """|w|^2 / 2, elementwise; its derivative is w."""
    return jnp.square(w) / 2


def half_squared_norm_derivative(w):
    """The derivative of `half_squared_norm`, elementwise."""
    return w


def nonconvex(w):
    """w^2 / (2 (1 + w^2)), elementwise (VFB2, problem 14)."""
    return jnp.square(w) / (2 * (1 + jnp.square(w)))


def nonconvex_derivative(w):
    """w / (1 + w^2)^2, elementwise."""
    return w / jnp.square(1 + jnp.square(w))


LOSSES = {
    "softmax_cross_entropy": (softmax_cross_entropy, softmax_cross_entropy_derivative),
    "logistic": (logistic, logistic_derivative),
    "squared": (squared, squared_derivative),
    "half_squared": (half_squared, half_squared_derivative),
    "robust": (robust, robust_derivative),
    "squared_hinge": (squared_hinge, squared_hinge_derivative),
}
REGULARIZERS = {
    "l2": (half_squared_norm, half_squared_norm_derivative),
    "nonconvex": (nonconvex, nonconvex_derivative),
}
