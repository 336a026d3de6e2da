"""The server's side: its state, and its optimizers on the mean update (FedOpt, Reddi et al. 2021, Algorithm 2).

The mean update u = mean_i (w_i - w) is minus a gradient. Without an optimizer w <- w + server_lr u, so rate 1 is plain
averaging by definition. `fedadam`, `fedyogi` and `fedavgm` are that paper's, without bias correction; any function of
the rate that returns an optax transformation serves too (`optax.adam` corrects the bias).
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import optax

from jaxfed import trees
from jaxfed.types import Array, Params


class Server(NamedTuple):
    """A server: the model's parameters, what else it keeps (an optimizer's state, a control variate), and counts.

    `round`: rounds done; `visits`: client visits so far, summed over rounds; both int32.
    """

    params: Params
    extra: Any = ()
    round: Array | int = 0
    visits: Array | int = 0


def new_server(params: Params, extra: Any = ()) -> Server:
    """Return a server before the first round."""
    return Server(params, extra, jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32))


def start_server(algorithm, params: Params) -> Server:
    """Return the server before the first round."""
    optimizer = algorithm.server_optimizer
    extra = () if optimizer is None else optimizer(algorithm.server_lr).init(params)
    return new_server(params, extra)


def apply_update(algorithm, server: Server, update: Params) -> Server:
    """Return the server after the mean update."""
    if algorithm.server_optimizer is None:
        return server._replace(params=trees.axpy(algorithm.server_lr, update, server.params))
    optimizer = algorithm.server_optimizer(algorithm.server_lr)
    change, extra = optimizer.update(trees.scale(-1, update), server.extra, server.params)
    return server._replace(params=trees.add(server.params, change), extra=extra)


class Moments(NamedTuple):
    """First and second moments of the pseudo-gradient, in the parameters' structure."""

    m: Params
    v: Params


def _adaptive(lr, b1, b2, tau, yogi) -> optax.GradientTransformation:
    def init(params):
        return Moments(trees.zeros_like(params), trees.map(lambda p: jnp.full_like(p, tau**2), params))

    def update(updates, state, params=None):  # updates: the pseudo-gradient -u
        del params
        m = trees.lerp(updates, state.m, b1)
        square = trees.map(jnp.square, updates)
        if yogi:
            v = trees.map(lambda v, s: v - (1 - b2) * s * jnp.sign(v - s), state.v, square)
        else:
            v = trees.lerp(square, state.v, b2)
        return trees.map(lambda m, v: -lr * m / (jnp.sqrt(v) + tau), m, v), Moments(m, v)

    return optax.GradientTransformation(init, update)


def fedadam(lr, b1: float = 0.9, b2: float = 0.99, tau: float = 1e-3) -> optax.GradientTransformation:
    """FedAdam: m <- b1 m + (1 - b1) u, v <- b2 v + (1 - b2) u^2, w <- w + lr m / (sqrt(v) + tau); v starts at tau^2."""
    return _adaptive(lr, b1, b2, tau, yogi=False)


def fedyogi(lr, b1: float = 0.9, b2: float = 0.99, tau: float = 1e-3) -> optax.GradientTransformation:
    """FedYogi: as FedAdam with v <- v - (1 - b2) u^2 sign(v - u^2)."""
    return _adaptive(lr, b1, b2, tau, yogi=True)


def fedavgm(lr, momentum: float = 0.9) -> optax.GradientTransformation:
    """FedAvgM (Hsu et al. 2019): m <- momentum m + u, w <- w + lr m."""
    return optax.sgd(lr, momentum=momentum)


SERVER_OPTIMIZERS = {"adam": fedadam, "yogi": fedyogi, "momentum": fedavgm}
