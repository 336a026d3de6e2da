"""The last K values of a pytree: how a bounded delay is modelled."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


class History(NamedTuple):
    """A ring buffer: slots [K, ...] with K = largest delay + 1, and the index of the newest (int32)."""

    slots: Any
    head: jax.Array


def start(value: Any, depth: int) -> History:
    """Return a history of `depth` slots that all hold `value`: before the first push every age reads it."""
    if depth < 1:
        raise ValueError(f"depth: got {depth}, wanted at least 1 (the largest delay plus one)")
    slots = jax.tree.map(lambda x: jnp.broadcast_to(x, (depth, *x.shape)), value)
    return History(slots, jnp.zeros((), jnp.int32))


def push(history: History, value: Any) -> History:
    """Return the history with `value` as the newest; the oldest is forgotten."""
    depth = jax.tree.leaves(history.slots)[0].shape[0]
    head = (history.head + 1) % depth
    slots = jax.tree.map(lambda s, x: s.at[head].set(x), history.slots, value)
    return History(slots, head)


def read(history: History, delay) -> Any:
    """Return the value `delay` pushes ago (0: the newest). Under vmap every client or party reads its own age.

    A delay beyond the depth can't be told from a short one inside compiled code: schedulers state their bound and
    `checks` compares it with the depth.
    """
    depth = jax.tree.leaves(history.slots)[0].shape[0]
    return jax.tree.map(lambda s: s[(history.head - delay) % depth], history.slots)
