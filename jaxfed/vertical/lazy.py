"""Sparse blocks: weights kept so that a tick costs O(non-zeros of the rows touched), not O(features).

Party l's block is w_l = s_l u_l + c_l v_l: a scale that holds the regulariser's shrinking, and v the mean gradient that
the method adds to each message (none for SGD; SVRG's G, fixed in an epoch; SAGA's running mean). Applying k messages,
w <- w - lr (l2 k w + k v + sum theta x / b), becomes

  s <- s (1 - lr l2 k),  c <- c (1 - lr l2 k) - lr k,  u <- u - (lr / s) sum theta x / b,

and where v moves by d = sum theta x / n after it (SAGA), u <- u - (c / s) d. Scales are kept as sums of logarithms, as
float32 cannot hold 1 - lr l2, and folded back into u before they get too small for it. Only the l2 regulariser can be
lazy: the nonconvex one is refused on sparse data.
"""

from typing import Any

import jax
import jax.numpy as jnp

from jaxfed.nodes import PyTreeNode, field
from jaxfed.types import Array
from jaxfed.vertical import backward, exchange
from jaxfed.vertical.backward import VerticalState

SMALLEST_LOG = -4.6  # of a scale: 1e-2


class Lazy(PyTreeNode):
    """u [d]; log_scale and factor [q], the logarithm of s and c. Static: the number of coordinates of each party."""

    u: Array
    log_scale: Array
    factor: Array
    sizes: tuple[int, ...] = field(pytree_node=False)


def start(w: Array, data: Any) -> Lazy:
    """Return weights w [d] with scale 1."""
    return Lazy(w, jnp.zeros(data.num_parties, w.dtype), jnp.zeros(data.num_parties, w.dtype), data.blocks.sizes)


def value(weights: Lazy, mean: Array | None) -> Array:
    """Return w [d]."""
    each = lambda x: jnp.repeat(x, jnp.array(weights.sizes), total_repeat_length=sum(weights.sizes))  # noqa: E731
    w = each(jnp.exp(weights.log_scale)) * weights.u
    return w if mean is None else w + each(weights.factor) * mean


def renormalise(weights: Lazy, mean: Array | None, round: Array, every: int) -> Lazy:
    """Return the same weights with scale 1 where a scale has become small; only in ticks that `every` divides, so that
    cutting a run elsewhere changes nothing."""
    small = (round % every == 0) & jnp.any(weights.log_scale < SMALLEST_LOG)

    def fold(weights):
        zeros = jnp.zeros_like(weights.factor)
        return weights.replace(u=value(weights, mean), log_scale=zeros, factor=zeros)

    return jax.lax.cond(small, fold, lambda weights: weights, weights)


def step(algorithm: Any, state: VerticalState, data: Any, event: Any) -> tuple[VerticalState, dict]:
    """Return the state after one tick on sparse blocks, and what there was to see."""
    weights, tick, objective = state.weights, event.tick, algorithm.objective
    mean = algorithm.mean(state.memory)
    sent = exchange.exchange(algorithm, state, data, event, _forward(weights, mean, event))
    values, memory = algorithm.message(state.memory, sent.theta, tick, event.extra)
    messages = backward.send(state.messages, tick, values)

    indices, x = event.apply
    moved = backward.due(messages, tick)[..., None] * x  # [m, b, q, k]
    count, lr = tick.count, exchange.own_rate(algorithm, tick, 1)
    shrink = lr * objective.l2 * count if objective.regularizer != "none" else jnp.zeros_like(count)
    log_scale = weights.log_scale + jnp.log1p(-shrink)
    share, factor = jnp.broadcast_to(lr / algorithm.batch_size, count.shape), weights.factor
    if mean is not None:
        factor = factor - shrink * factor - lr * count
    if mean is not None and algorithm.mean_moves:
        share = share + factor / data.num_rows
        moved_mean = mean.at[indices].add((moved / data.num_rows).astype(mean.dtype), mode="promise_in_bounds")
        memory = memory._replace(mean=moved_mean)
    steps = -(share * jnp.exp(-log_scale))[:, None] * moved
    u = weights.u.at[indices].add(steps.astype(weights.u.dtype), mode="promise_in_bounds")
    weights = weights.replace(u=u, log_scale=log_scale.astype(u.dtype), factor=factor.astype(u.dtype))
    state = state._replace(weights=weights, memory=memory, messages=messages)
    return state._replace(products=sent.products, secret=sent.secret), sent.seen


def _forward(weights: Lazy, mean: Array | None, event: Any) -> Array:
    """Return partial products [m, b, q]; those with SVRG's fixed v were looked up with the block."""
    indices, x = event.read
    each = lambda v: jnp.sum(v.at[indices].get(mode="promise_in_bounds") * x, -1)  # noqa: E731
    scaled = jnp.exp(weights.log_scale) * each(weights.u)
    if mean is None:
        return scaled
    fixed = getattr(event.extra, "products", None)
    return scaled + weights.factor * (each(mean) if fixed is None else fixed)
