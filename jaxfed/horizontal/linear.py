"""The fast form of APFL's local steps for linear models: one product of matrices for w and v together.

A linear model's outputs are linear in its parameters, so the mixture's outputs are the mixture of outputs and alpha's
gradient is an inner product of outputs: <v - w, grad f(vbar)> = sum (z_v - z_w) r. w and v are stacked on the output
axis, so a step is one forward and one backward product and one pass over the parameters: 1.1 to 1.4 times as fast as
the plain form (`apfl.plain_steps`; `benchmarks.horizontal`, 784 x 10, two cores), to which it is equal up to rounding.
"""

import jax
import jax.numpy as jnp

from jaxfed import losses, models, trees


def apfl_steps(algorithm, rates, w, v, alpha, key, view):
    """Return (w, v, alpha, slope in alpha) after the client's local steps of a linear model, simultaneous order."""
    from jaxfed.horizontal.apfl import move_alpha
    from jaxfed.horizontal.local import run_steps

    model = algorithm.model
    _, apply = models.functions(model.net)
    stacked = trees.map(lambda a, b: jnp.stack([a, b]), w, v)  # leaves [2, outputs, ...]

    derivative = losses.LOSSES[model.loss][1]

    def residuals(z, y, weight):  # d(mean loss)/dz for the outputs of two models, z [2, b, outputs]
        r = derivative(z, y) if model.classifies_many else derivative(z[..., 0], y)[..., None]
        if weight is None:
            return r / y.shape[0]
        return r * (weight / jnp.maximum(jnp.sum(weight), 1))[:, None]

    def pair(for_w, for_v, ndim):  # one number for w and one for v, against leaves [2, ...]
        both = jnp.stack([jnp.asarray(for_w, alpha.dtype), jnp.asarray(for_v, alpha.dtype)])
        return both.reshape(2, *[1] * (ndim - 1))

    def penalty(u, alpha):  # l2's part of the slope in alpha
        if model.l2 is None:
            return 0
        w, v = trees.map(lambda a: a[0], u), trees.map(lambda a: a[1], u)
        return model.l2 * trees.dot(trees.sub(v, w), trees.lerp(w, v, alpha))

    # Where alpha moves in a round's first step only, that step's u is known here. A branch of the step that reads u
    # would make XLA copy it in every step.
    first = penalty(stacked, alpha) if algorithm.adaptive and algorithm.alpha_every == "round" else None

    def step(carry, x, y, weight, s):
        u, alpha, slope = carry
        z, pull = jax.vjp(lambda u: apply(u, x), trees.map(lambda a: a.reshape(-1, *a.shape[2:]), u))
        z_w, z_v = jnp.split(z, 2, axis=-1)  # [b, outputs] each
        r = residuals(jnp.stack([z_w, (1 - alpha) * z_w + alpha * z_v]), y, weight)
        scaled = pair(rates.w, rates.v * alpha, 3) * r
        (move,) = pull(jnp.concatenate([scaled[0], scaled[1]], axis=-1).astype(z.dtype))

        def descend(u, move):  # in one pass: the data's part, and l2's, which pulls w by w and v by alpha vbar
            if model.l2 is None:
                return (u - move.reshape(u.shape)).astype(u.dtype)
            decay = pair(rates.w, rates.v * alpha * alpha, u.ndim) * u
            cross = pair(0, rates.v * alpha * (1 - alpha), u.ndim) * u[:1]
            return (u - move.reshape(u.shape) - model.l2 * (decay + cross)).astype(u.dtype)

        new = trees.map(descend, u, move)
        if not algorithm.adaptive:
            return new, alpha, slope
        now = penalty(u, alpha) if first is None else first
        slope_now = lambda: jnp.vdot(z_v - z_w, r[1]) + now + 2 * algorithm.alpha_l2 * alpha  # noqa: E731
        return new, *move_alpha(algorithm, rates, alpha, slope, slope_now, s)

    u, alpha, slope = run_steps(algorithm, step, (stacked, alpha, jnp.zeros_like(alpha)), key, view)
    return trees.map(lambda a: a[0], u), trees.map(lambda a: a[1], u), alpha, slope
