"""Fixed-point numbers modulo 2^32 and 2^64, in uint32: sums in them are exact, in any order.

jax has no 64-bit integers unless x64 is on, so numbers modulo 2^64 are two limbs.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxfed.types import Array


class Limbs(NamedTuple):
    """Numbers modulo 2^64: low + 2^32 high, uint32 each."""

    low: Array
    high: Array


def encode(x: Array, bits: int, fraction: int) -> Any:
    """Return round(x 2^fraction), half to even, modulo 2^bits: uint32, or Limbs.

    What is out of range becomes the largest number of its sign, and NaN 0.
    """
    most = 2.0 ** (bits - 1) * (1 - 2.0**-23)  # a float32
    scaled = jnp.clip(jnp.round(x * 2.0**fraction), -most, most)
    if bits == 32:
        return jax.lax.bitcast_convert_type(scaled.astype(jnp.int32), jnp.uint32)
    # by sign and magnitude: the low limb of a small negative number has more digits than float32
    size = jnp.abs(scaled)
    high = jnp.floor(size * 2.0**-32)
    low = size - high * 2.0**32  # exact: at most as many digits as `scaled` has
    return _signed(Limbs(low.astype(jnp.uint32), high.astype(jnp.uint32)), scaled < 0)


def decode(numbers: Any, fraction: int, dtype: Any) -> Array:
    """Return what numbers stand for: those from 2^(bits - 1) on are negative."""
    if not isinstance(numbers, Limbs):
        return jax.lax.bitcast_convert_type(numbers, jnp.int32).astype(dtype) * 2.0**-fraction
    # by sign and magnitude: high 2^32 + low of a small negative number would cancel
    negative = numbers.high >> 31 == 1
    low, high = (limb.astype(dtype) for limb in _signed(numbers, negative))
    size = high * 2.0 ** (32 - fraction) + low * 2.0**-fraction
    return jnp.where(negative, -size, size)


def _signed(numbers: Limbs, negative: Array) -> Limbs:
    """Return -numbers where negative, else numbers."""
    flipped = Limbs(~numbers.low + jnp.uint32(1), ~numbers.high + (numbers.low == 0).astype(jnp.uint32))
    return jax.tree.map(lambda f, n: jnp.where(negative, f, n), flipped, numbers)


def beyond(numbers: Any, count: int) -> Array:
    """Return whether numbers are so large that a sum of `count` of them may be out of range, bool."""
    top = jax.lax.bitcast_convert_type(numbers.high if isinstance(numbers, Limbs) else numbers, jnp.int32)
    most = room(count)  # of 64 bits only the upper half is looked at
    return (top > most - 1) | (top < -most)


def room(count: int) -> int:
    """Return how large, in units of 2^(bits - 32), each of `count` numbers may be whose sum is in range.

    Less than what `encode` makes of a number that is out of range, so that this is seen of one number alone too.
    """
    return min(2**31 // count - 1, 2**31 - 2**9)


def add(a: Any, b: Any) -> Any:
    """Return a + b."""
    if not isinstance(a, Limbs):
        return a + b
    low = a.low + b.low
    return Limbs(low, a.high + b.high + (low < a.low).astype(jnp.uint32))


def subtract(a: Any, b: Any) -> Any:
    """Return a - b."""
    if not isinstance(a, Limbs):
        return a - b
    return Limbs(a.low - b.low, a.high - b.high - (a.low < b.low).astype(jnp.uint32))


def total(numbers: Any, axis: int) -> Any:
    """Return the sum over an axis of fewer than 2^16 numbers."""
    if not isinstance(numbers, Limbs):
        return jnp.sum(numbers, axis, dtype=jnp.uint32)
    half = jnp.uint32(0xFFFF)
    first = jnp.sum(numbers.low & half, axis, dtype=jnp.uint32)
    second = jnp.sum(numbers.low >> 16, axis, dtype=jnp.uint32) + (first >> 16)
    return Limbs((second << 16) | (first & half), jnp.sum(numbers.high, axis, dtype=jnp.uint32) + (second >> 16))
