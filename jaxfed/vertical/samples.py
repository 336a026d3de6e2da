"""Which rows a dominated update takes: uniform with replacement, drawn for (dominator, the update's own number).

Never per tick: so a change of schedule, bound or block changes no sample.
"""

import jax
import jax.numpy as jnp

from jaxfed.types import Array, Key

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def rows(key: Key, first: Array, count: int, batch_size: int, num_rows: int) -> Array:
    """Return the rows of updates first[a], ..., first[a] + count - 1 of each dominator a: int32 [m, count, b].

    Row j of update u is 32 random bits modulo n (so the probabilities of rows differ by less than n / 2^32 of
    themselves): those that Threefry gives for the counter (u, j) under the dominator's key, folded into `key`.
    """
    dominators = jnp.arange(first.shape[0])
    words = jax.vmap(lambda a: jax.random.key_data(jax.random.fold_in(key, a))[-2:])(dominators)  # uint32 [m, 2]
    update = (first[:, None] + jnp.arange(count)).astype(jnp.uint32)[:, :, None]
    row = jnp.arange(batch_size, dtype=jnp.uint32)
    bits = threefry(words[:, 0, None, None], words[:, 1, None, None], update, row)
    return (bits % jnp.uint32(num_rows)).astype(jnp.int32)


def threefry(key0: Array, key1: Array, x0: Array, x1: Array) -> Array:
    """Return the first word of Threefry-2x32 with 20 rounds (Salmon et al. 2011), elementwise on uint32 arrays.

    jax has it too, as a loop on a CPU, which costs a fifth of a tick: unrolled it is one fused operation.
    """
    keys = (key0, key1, key0 ^ key1 ^ jnp.uint32(0x1BD11BDA))
    x0, x1 = x0 + key0, x1 + key1
    for step in range(5):
        for r in ROTATIONS[step % 2]:
            x0 = x0 + x1
            x1 = ((x1 << r) | (x1 >> (32 - r))) ^ x0
        x0, x1 = x0 + keys[(step + 1) % 3], x1 + keys[(step + 2) % 3] + jnp.uint32(step + 1)
    return x0
