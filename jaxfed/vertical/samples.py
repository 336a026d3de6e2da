"""Which rows a dominated update takes: uniform with replacement, drawn for (dominator, the update's own number).

Never per tick: so a change of schedule, bound or block changes no sample.
"""

import jax
import jax.numpy as jnp

from jaxfed.types import Array, Key

CHUNK = 64  # rows drawn under one key, if a minibatch is not larger


def _chunk(key: Key, chunk: Array, updates: int, batch_size: int, num_rows: int) -> Array:
    # 32 random bits modulo n: the probabilities of rows differ by less than n / 2^32 of themselves
    bits = jax.random.bits(jax.random.fold_in(key, chunk), (updates, batch_size), jnp.uint32)
    return (bits % jnp.uint32(num_rows)).astype(jnp.int32)


def rows(key: Key, first: Array, count: int, batch_size: int, num_rows: int) -> Array:
    """Return the rows of updates first[a], ..., first[a] + count - 1 of each dominator a: int32 [m, count, b]."""
    each = max(CHUNK // batch_size, 1)  # updates in a chunk: of the batch size alone, so that nothing else moves a draw

    def one(dominator, start):
        key_a, chunk = jax.random.fold_in(key, dominator), start // each
        chunks = chunk + jnp.arange(-(-count // each) + 1)
        drawn = jax.vmap(lambda c: _chunk(key_a, c, each, batch_size, num_rows))(chunks)
        return jax.lax.dynamic_slice_in_dim(drawn.reshape(-1, batch_size), start - chunk * each, count)

    return jax.vmap(one)(jnp.arange(first.shape[0]), first)
