"""What dominators send in place of theta: the hook where defences act, and the secret that it and masks draw from.

A defence (`privacy.defences`, or your own) is a pytree with two pure methods:

  draw(key, row_key, y) -> drawn          randomness for one theta that is sent; scalars. `key` is fresh for each,
                                          `row_key` a sample's own, the same during the whole run; y: its label
  release(theta, y, drawn) -> theta       theta [m, b, *L], y and the leaves of drawn [m, b, 1...]; full passes: m = 1

What is released is all that the parties, the dominator's own block included, ever use: SVRG's reference and SAGA's
table hold releases. Its fields are traced strengths, swept like any other (`axes={"defence.std": ...}`).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxfed.types import Array, Key
from jaxfed.vertical.backward import spread

_ROWS, _PASSES, MASKS = 0x7FFFFFFF, 0x7FFFFFFE, 0x7FFFFFFD  # folded into the secret where a dominator's number would be


class Secret(NamedTuple):
    """What the parties' own randomness comes from: a key, uint32 [2], the same for the whole of a run that goes on; and
    where a fixed-point number was too large for its range so far, bool [m, b, q, *L] (() without such numbers)."""

    key: Array
    too_large: Any


def start(algorithm: Any, key: Key, data: Any, lanes: tuple[int, ...]) -> Any:
    """Return the secret of a new run, () where nothing is drawn."""
    if algorithm.secure is None and algorithm.defence is None:
        return ()
    fixed = algorithm.secure is not None and algorithm.secure.bits is not None
    shape = data.num_active, algorithm.batch_size, data.num_parties, *lanes
    return Secret(jax.random.key_data(key)[-2:], jnp.zeros(shape, bool) if fixed else ())


def _key(secret: Secret) -> Key:
    return jax.random.wrap_key_data(secret.key, impl="threefry2x32")


def prepare(algorithm: Any, secret: Any, completes: Array, rows: Array, y: Array) -> Any:
    """Return what the defence draws for a block of B ticks, () without one.

    completes [B, m]: own numbers of updates; rows, y [B, m, b].
    """
    if algorithm.defence is None:
        return ()
    key = _key(secret)
    samples = jax.random.fold_in(key, _ROWS)
    place = jnp.arange(rows.shape[2])

    def one(a, update, j, row, label):
        fresh = jax.random.fold_in(jax.random.fold_in(jax.random.fold_in(key, a), update), j)
        return algorithm.defence.draw(fresh, jax.random.fold_in(samples, row), label)

    minibatch = jax.vmap(one, (None, None, 0, 0, 0))
    dominators = jax.vmap(minibatch, (0, 0, None, 0, 0))
    ticks = jax.vmap(dominators, (None, 0, None, 0, 0))
    return ticks(jnp.arange(rows.shape[1]), completes, place, rows, y)


def message(algorithm: Any, theta: Array, y: Array, drawn: Any) -> Array:
    """Return what is sent for theta [m, b, *L] of rows with labels y [m, b]."""
    if algorithm.defence is None:
        return theta
    y, drawn = jax.tree.map(lambda x: spread(x, theta), (y, drawn))
    return algorithm.defence.release(theta, y, drawn).astype(theta.dtype)


def of_all(algorithm: Any, data: Any, w: Array, secret: Any, number: Array | int) -> Callable[[], Array]:
    """Return a function that gives theta of every row at w as it is sent in full pass `number`, [n, *L]."""

    def thetas():
        z = data.blocks.scores(w)
        theta = algorithm.objective.theta(z, jnp.reshape(data.y, (-1, *[1] * (z.ndim - 1))))
        if algorithm.defence is None:
            return theta
        key = _key(secret)
        fresh, samples = jax.random.fold_in(jax.random.fold_in(key, _PASSES), number), jax.random.fold_in(key, _ROWS)
        at = lambda row, y: algorithm.defence.draw(  # noqa: E731
            jax.random.fold_in(fresh, row), jax.random.fold_in(samples, row), y
        )
        drawn = jax.vmap(at)(jnp.arange(data.num_rows), data.y)
        return message(algorithm, theta[None], data.y[None], jax.tree.map(lambda x: x[None], drawn))[0]

    return thetas
