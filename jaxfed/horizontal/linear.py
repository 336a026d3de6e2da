"""The fast form of APFL's local steps for linear models: one product of matrices for w and v together.

A linear model's outputs are linear in its parameters, so the mixture's outputs are the mixture of outputs and alpha's
gradient is an inner product of outputs: <v - w, grad f(vbar)> = sum (z_v - z_w) r. w and v are stacked on the output
axis, so a step is one forward and one backward product and one pass over the parameters; about 1.5 times the plain form
(`apfl.plain_steps`), to which it is equal up to rounding.
"""

import jax
import jax.numpy as jnp

from jaxfed import models, trees


def apfl_steps(algorithm, rates, w, v, alpha, key, view):
    """Return (w, v, alpha, slope in alpha) after the client's local steps of a linear model, simultaneous order."""
    from jaxfed.horizontal.apfl import move_alpha
    from jaxfed.horizontal.local import run_steps

    model = algorithm.model
    _, apply = models.functions(model.net)
    stacked = trees.map(lambda a, b: jnp.stack([a, b]), w, v)  # leaves [2, outputs, ...]

    def residual(z, y, weight):  # d(mean loss)/dz
        shaped = lambda z: z if model.classifies_many else z.reshape(z.shape[0])  # noqa: E731
        return jax.grad(lambda z: models.mean(model.losses(shaped(z), y), weight))(z)

    def step(carry, x, y, weight, s):
        u, alpha, slope = carry
        merged = trees.map(lambda a: a.reshape(-1, *a.shape[2:]), u)
        z, pull = jax.vjp(lambda u: apply(u, x), merged)
        z_w, z_v = jnp.split(z, 2, axis=-1)
        r_w, r = residual(z_w, y, weight), residual((1 - alpha) * z_w + alpha * z_v, y, weight)
        (move,) = pull(jnp.concatenate([rates.w * r_w, rates.v * alpha * r], axis=-1).astype(z.dtype))

        def descend(u, move):
            w, v = u
            move_w, move_v = move.reshape(u.shape)
            decay = model.l2 * ((1 - alpha) * w + alpha * v)
            return jnp.stack([w - move_w - rates.w * model.l2 * w, v - move_v - rates.v * alpha * decay])

        new = trees.map(lambda u, move: descend(u, move).astype(u.dtype), u, move)
        if not algorithm.adaptive:
            return new, alpha, slope

        def slope_now():
            w, v = trees.map(lambda a: a[0], u), trees.map(lambda a: a[1], u)
            penalty = model.l2 * trees.dot(trees.sub(v, w), trees.lerp(w, v, alpha))
            return jnp.vdot(z_v - z_w, r) + penalty + 2 * algorithm.alpha_l2 * alpha

        return new, *move_alpha(algorithm, rates, alpha, slope, slope_now, s)

    u, alpha, slope = run_steps(algorithm, step, (stacked, alpha, jnp.zeros_like(alpha)), key, view)
    return trees.map(lambda a: a[0], u), trees.map(lambda a: a[1], u), alpha, slope
