"""Which rows a dominated update takes: uniform with replacement, drawn for (dominator, the update's own number).

Never per tick: so a change of schedule, bound or block changes no sample.
"""

import jax
import jax.numpy as jnp

from jaxfed.types import Array, Key

CHUNK = 64  # updates drawn under one key


def _chunk(key: Key, chunk: Array, batch_size: int, num_rows: int) -> Array:
    # 32 random bits modulo n: the probabilities of rows differ by less than n / 2^32 of themselves
    bits = jax.random.bits(jax.random.fold_in(key, chunk), (CHUNK, batch_size), jnp.uint32)
    return (bits % jnp.uint32(num_rows)).astype(jnp.int32)


def rows(key: Key, first: Array, count: int, batch_size: int, num_rows: int) -> Array:
    """Return the rows of updates first[a], ..., first[a] + count - 1 of each dominator a: int32 [m, count, b]."""

    def one(dominator, start):
        key_a, chunk = jax.random.fold_in(key, dominator), start // CHUNK
        drawn = jax.vmap(lambda c: _chunk(key_a, chunk + c, batch_size, num_rows))(jnp.arange(-(-count // CHUNK) + 1))
        return jax.lax.dynamic_slice_in_dim(drawn.reshape(-1, batch_size), start - chunk * CHUNK, count)

    return jax.vmap(one)(jnp.arange(first.shape[0]), first)
