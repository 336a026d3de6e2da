"""Arithmetic on pytrees of arrays."""

from typing import Any

import jax
import jax.numpy as jnp

Tree = Any


def map(f, *a: Tree) -> Tree:
    """Return f applied to corresponding leaves."""
    return jax.tree.map(f, *a)


def add(a: Tree, b: Tree) -> Tree:
    """Return a + b."""
    return jax.tree.map(jnp.add, a, b)


def sub(a: Tree, b: Tree) -> Tree:
    """Return a - b."""
    return jax.tree.map(jnp.subtract, a, b)


def scale(c, a: Tree) -> Tree:
    """Return c a, in the dtypes of a."""
    return jax.tree.map(lambda x: (c * x).astype(x.dtype), a)


def axpy(c, x: Tree, y: Tree) -> Tree:
    """Return c x + y, in the dtypes of y."""
    return jax.tree.map(lambda x, y: (c * x + y).astype(y.dtype), x, y)


def lerp(a: Tree, b: Tree, weight) -> Tree:
    """Return (1 - weight) a + weight b; exactly a at weight 0 and exactly b at weight 1 for finite values."""
    return jax.tree.map(lambda x, y: ((1 - weight) * x + weight * y).astype(x.dtype), a, b)


def dot(a: Tree, b: Tree) -> jax.Array:
    """Return the sum of products over all leaves, a scalar."""
    return sum((jnp.vdot(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)), jnp.zeros(()))


def norm(a: Tree) -> jax.Array:
    """Return the Euclidean norm over all leaves, a scalar."""
    return jnp.sqrt(dot(a, a))


def zeros_like(a: Tree) -> Tree:
    """Return zeros in the shapes and dtypes of a."""
    return jax.tree.map(jnp.zeros_like, a)


def where(condition, a: Tree, b: Tree) -> Tree:
    """Return a where the scalar condition holds, else b."""
    return jax.tree.map(lambda x, y: jnp.where(condition, x, y), a, b)


def repeat(a: Tree, n: int) -> Tree:
    """Return n copies of a along a new first axis."""
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (n, *x.shape)), a)


def take(a: Tree, index) -> Tree:
    """Return the rows `index` (an int or an int array) of every leaf. Indices out of range are clamped."""
    return jax.tree.map(lambda x: jnp.take(x, index, axis=0, mode="clip"), a)


def scatter(a: Tree, index, rows: Tree) -> Tree:
    """Return a with the rows `index` replaced. Indices must be distinct; those out of range are dropped."""
    return jax.tree.map(lambda x, r: x.at[index].set(r.astype(x.dtype), mode="drop"), a, rows)


def put_row(a: Tree, index, row: Tree) -> Tree:
    """Return a with the one row `index` replaced, in place where the compiler can; the index is clamped."""
    return jax.tree.map(lambda x, r: jax.lax.dynamic_update_index_in_dim(x, r.astype(x.dtype), index, 0), a, row)


def weighted_mean(a: Tree, weights: jax.Array) -> Tree:
    """Return the mean of a's rows with weights [rows]; zeros where all weights are zero."""
    total = jnp.sum(weights)
    p = weights / jnp.where(total > 0, total, 1)
    return jax.tree.map(lambda x: jnp.tensordot(p.astype(x.dtype), x, axes=1), a)


def all_finite(a: Tree) -> jax.Array:
    """Return whether every floating leaf is finite, a bool scalar."""
    leaves = [x for x in jax.tree.leaves(a) if jnp.issubdtype(x.dtype, jnp.inexact)]
    return jnp.array([jnp.all(jnp.isfinite(x)) for x in leaves] or [True]).all()


def size(a: Tree) -> int:
    """Return the number of elements over all leaves."""
    return sum(x.size for x in jax.tree.leaves(a))
