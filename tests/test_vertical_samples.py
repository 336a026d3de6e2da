"""The random rows: Threefry as jax has it, the same whatever is asked for at once, uniform."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.random import threefry_2x32

from jaxfed.vertical import samples


def test_threefry_is_that_of_jax():
    rng = np.random.default_rng(0)
    key, x0, x1 = (rng.integers(0, 2**32, n, dtype=np.uint64).astype(np.uint32) for n in (2, 50, 50))
    ours = samples.threefry(*(jnp.asarray(a) for a in (key[0], key[1], x0, x1)))
    theirs = threefry_2x32(jnp.asarray(key), jnp.concatenate([jnp.asarray(x0), jnp.asarray(x1)]))[:50]
    np.testing.assert_array_equal(ours, theirs)


def test_a_draw_depends_on_its_dominator_and_number_alone():
    key, first = jax.random.key(3), jnp.array([0, 5, 11])
    whole = np.asarray(samples.rows(key, jnp.zeros(3, jnp.int32), 40, 4, 1000))
    part = np.asarray(samples.rows(key, first, 7, 4, 1000))
    for a in range(3):
        np.testing.assert_array_equal(part[a], whole[a, first[a] : first[a] + 7])
    assert len({whole[a].tobytes() for a in range(3)}) == 3
    other = np.asarray(samples.rows(jax.random.key(4), jnp.zeros(3, jnp.int32), 40, 4, 1000))
    assert (other != whole).any()


def test_rows_are_uniform():
    n = 10
    drawn = np.asarray(samples.rows(jax.random.key(0), jnp.zeros(2, jnp.int32), 20_000, 5, n)).ravel()
    counts = np.bincount(drawn, minlength=n)
    expected = drawn.size / n
    assert drawn.min() == 0 and drawn.max() == n - 1
    chi2 = np.sum((counts - expected) ** 2 / expected)
    assert chi2 < 40  # 9 degrees of freedom: one in 100,000 is above 40
    pairs = np.bincount(drawn[:-1] * n + drawn[1:], minlength=n * n)
    assert np.sum((pairs - drawn.size / 100) ** 2 / (drawn.size / 100)) < 180  # 99 degrees of freedom
