"""What parties say to each other in a tick: products to the dominators, theta back. The same for all methods."""

from typing import Any, NamedTuple

import jax.numpy as jnp

from jaxfed.types import Array
from jaxfed.vertical import backward, release, secure
from jaxfed.vertical.backward import Lookup, VerticalState


class Sent(NamedTuple):
    """After a tick's reads and completions: theta [m, b, *L] as dominators send it, the ring of products and the secret
    as they are now, and what a transcript shows, {} without one."""

    theta: Array
    products: Any
    secret: Any
    seen: dict[str, Any]


def exchange(algorithm: Any, state: VerticalState, data: Any, event: Any, evaluated: Array) -> Sent:
    """Return what the reads and completions of a tick make of the products evaluated in it, [m, b, q, *L]."""
    tick, secret = event.tick, state.secret
    if algorithm.secure is None:
        products = backward.answer(state.products, tick, evaluated)
        z = backward.sums(products, tick)
    else:
        products, z, secret = secure.exchange(algorithm.secure, state, data, event, evaluated)
    theta = algorithm.objective.theta(z, backward.spread(tick.y, z))
    sent = release.message(algorithm, theta, tick.y, event.drawn)
    seen = {}
    if data.watched:
        seen = {"scores": z, "theta": sent, "rows": event.rows, "products": backward.chosen(products, tick)}
        seen |= {} if algorithm.secure is None else {"masks": event.masks.own}
    return Sent(sent, products, secret, seen)


def own_rate(algorithm: Any, tick: Lookup, ndim: int) -> Array:
    """Return the step size of a tick; each party's own, [q, 1...] of `ndim` axes, where it multiplies it."""
    rate = backward.rate(algorithm.lr, tick)
    return rate if algorithm.factors is None else rate * jnp.reshape(algorithm.factors, (-1, *[1] * (ndim - 1)))
