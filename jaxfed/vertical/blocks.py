"""The features of all parties behind one small interface: dense blocks, or padded sparse rows.

The coordinates of the parties, one party after the other, form one vector of length d. A dense block keeps a party's
part of it as a zero padded row of [q, d_max]; a sparse one keeps the vector flat, [d], since parties of a million
features would be padded for nothing. The methods hide the difference. Dense parameters may have a last axis of lanes
(see `backward`), which scores, products and pulls then have too.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxfed.checks import fail
from jaxfed.nodes import PyTreeNode, field
from jaxfed.types import Array

MAX_BYTES = 8 * 2**30  # of padded blocks; more is refused rather than left to the system's out-of-memory killer


class Dense(PyTreeNode):
    """Blocks x [n, q, d_max], zero padded; party l has `sizes[l]` features. Parameters are w [q, d_max].

    A row's features at all parties are neighbours in memory: that is how they are read (a departure from the design).
    """

    x: Any
    sizes: tuple[int, ...] = field(pytree_node=False)

    @property
    def num_parties(self) -> int:
        """The number of parties, q."""
        return len(self.sizes)

    @property
    def num_rows(self) -> int:
        """The number of rows, n."""
        return self.x.shape[0]

    def mask(self) -> np.ndarray:
        """Return which entries of w are coordinates, bool [q, d_max]; the others are padding, zero for ever."""
        return np.arange(self.x.shape[2]) < np.array(self.sizes)[:, None]

    def zeros(self) -> Array:
        """Return parameters of zeros [q, d_max], in JAX's default float."""
        return jnp.zeros((self.num_parties, self.x.shape[2]))

    def products(self, w: Array) -> Array:
        """Return the partial product of each party with each row, [q, n]."""
        return jnp.einsum("nld,ld...->ln...", self.x, w, precision="highest")

    def scores(self, w: Array, parties: Array | None = None) -> Array:
        """Return sum over parties of x_l w_l, [n]; `parties`, bool [q], leaves some out."""
        if parties is not None:
            w = jnp.where(np.reshape(parties, (-1, *[1] * (w.ndim - 1))), w, 0)
        flat = jnp.reshape(w, (-1, *w.shape[2:]))
        return jnp.matmul(self._flat(), flat, precision="highest")

    def pull(self, theta: Array) -> Array:
        """Return sum_i theta_i x_i (a sum, not a mean), [q, d_max], from theta [n]."""
        moved = jnp.tensordot(self._flat(), theta, ((0,), (0,)), precision="highest")
        return moved.reshape(*self.x.shape[1:], *theta.shape[1:])

    def _flat(self) -> Array:
        """Return the features of all parties as one matrix [n, q d_max]."""
        return jnp.reshape(self.x, (self.x.shape[0], -1))

    def take(self, rows: Array) -> Array:
        """Return features [..., q, d_max] of rows [...]."""
        return _get(self.x, rows)

    def take_each(self, rows: Array) -> Array:
        """Return features [..., q, d_max] of rows [..., q], another one for each party."""
        q = self.num_parties
        return _get(self.x.reshape(-1, self.x.shape[2]), rows * q + jnp.arange(q))

    def row_bytes(self) -> int:
        """Return the bytes of one row of all parties."""
        return self.num_parties * self.x.shape[2] * self.x.dtype.itemsize

    def squared_norms(self) -> np.ndarray:
        """Return |x_i|^2 of every row, NumPy [n]."""
        return np.einsum("nld,nld->n", np.asarray(self.x, float), np.asarray(self.x, float))


class Sparse(PyTreeNode):
    """Padded sparse rows: indices int32 and values [n, q, k]. Parameters are w [d], flat.

    `indices` are positions in w; party l's are in offsets[l]:offsets[l + 1], sorted in each row. A row is padded with
    entries of value 0 that point at the party's first coordinate.
    """

    indices: Any
    values: Any
    offsets: tuple[int, ...] = field(pytree_node=False)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of features of each party."""
        return tuple(b - a for a, b in zip(self.offsets[:-1], self.offsets[1:], strict=True))

    @property
    def num_parties(self) -> int:
        """The number of parties, q."""
        return len(self.offsets) - 1

    @property
    def num_rows(self) -> int:
        """The number of rows, n."""
        return self.values.shape[0]

    def mask(self) -> np.ndarray:
        """Return which entries of w are coordinates: all of them, bool [d]."""
        return np.ones(self.offsets[-1], bool)

    def zeros(self) -> Array:
        """Return parameters of zeros [d], in JAX's default float."""
        return jnp.zeros(self.offsets[-1])

    def products(self, w: Array) -> Array:
        """Return the partial product of each party with each row, [q, n]."""
        return jnp.sum(self.values * jnp.asarray(w).at[self.indices].get(mode="promise_in_bounds"), axis=-1).T

    def scores(self, w: Array, parties: Array | None = None) -> Array:
        """Return sum over parties of x_l w_l, [n]; `parties`, bool [q], leaves some out."""
        return _sum(self.products(w), parties)

    def pull(self, theta: Array) -> Array:
        """Return sum_i theta_i x_i (a sum, not a mean), [d], from theta [n]."""
        terms = self.values * jnp.asarray(theta)[:, None, None]
        return jnp.zeros(self.offsets[-1], terms.dtype).at[self.indices].add(terms, mode="promise_in_bounds")

    def take(self, rows: Array) -> tuple[Array, Array]:
        """Return indices and values [..., q, k] of rows [...]."""
        return _get(self.indices, rows), _get(self.values, rows)

    def take_each(self, rows: Array) -> tuple[Array, Array]:
        """Return indices and values [..., q, k] of rows [..., q], another one for each party."""
        q, k = self.num_parties, self.values.shape[2]
        at = rows * q + jnp.arange(q)
        return _get(self.indices.reshape(-1, k), at), _get(self.values.reshape(-1, k), at)

    def row_bytes(self) -> int:
        """Return the bytes of one padded row of all parties."""
        return self.num_parties * self.values.shape[2] * (4 + self.values.dtype.itemsize)

    def squared_norms(self) -> np.ndarray:
        """Return |x_i|^2 of every row, NumPy [n]."""
        return np.sum(np.square(np.asarray(self.values, float)), axis=(1, 2))


Blocks = Dense | Sparse


def _get(x: Array, rows: Array) -> Array:
    """Return x[rows] of row numbers known to be in range: no check of each."""
    return x.at[rows.astype(jnp.uint32)].get(mode="promise_in_bounds", wrap_negative_indices=False)


def _sum(products: Array, parties: Array | None) -> Array:
    """Return the sum over (some of) the parties of products [q, n, *L]."""
    return jnp.sum(products if parties is None else jnp.asarray(products)[np.asarray(parties)], axis=0)


def dense(x: np.ndarray, sizes: tuple[int, ...], *, max_bytes: int = MAX_BYTES) -> Dense:
    """Cut x [n, d], the parties' columns one after the other, into padded blocks. ValueError beyond `max_bytes`."""
    widest = max(max(sizes), 1)
    shape = (len(x), len(sizes), widest)
    if (need := len(sizes) * len(x) * widest * x.dtype.itemsize) > max_bytes:
        got = f"blocks of {need / 2**30:.3g} GiB ({len(sizes)} parties, {len(x)} rows, {widest} columns at the widest)"
        fail("x", got, f"at most {max_bytes / 2**30:.3g} GiB: parties of more equal sizes, or a sparse x")
    out = np.zeros(shape, x.dtype)
    ends = np.cumsum(sizes)
    for party, (a, b) in enumerate(zip(ends - sizes, ends, strict=True)):
        out[:, party, : b - a] = x[:, a:b]
    return Dense(out, sizes)


def sparse(x: Any, sizes: tuple[int, ...], *, max_bytes: int = MAX_BYTES) -> Sparse:
    """Cut a CSR matrix x [n, d], the parties' columns one after the other, into padded rows, in O(non-zeros).

    x must have sorted indices without duplicates. ValueError where the padded form would exceed `max_bytes`.
    """
    n, q = x.shape[0], len(sizes)
    offsets = np.cumsum((0, *sizes))
    owner = np.repeat(np.arange(q), sizes)
    cell = np.repeat(np.arange(n) * q, np.diff(x.indptr)) + owner[x.indices]  # (row, party), in order
    counts = np.bincount(cell, minlength=n * q)
    k = max(int(counts.max(initial=0)), 1)
    if (need := q * n * k * (4 + x.data.dtype.itemsize)) > max_bytes:
        row, party = divmod(int(counts.argmax()), q)
        got = f"padded rows of {need / 2**30:.3g} GiB ({q} parties, {n} rows, each padded to the {k} non-zeros of row "
        wanted = f"at most {max_bytes / 2**30:.3g} GiB: cut the rows with very many non-zeros, or take more parties"
        fail("x", got + f"{row} at party {party})", wanted)
    # entry e of the matrix goes to [row, party, e - (first entry of its cell)]
    starts = np.cumsum(counts) - counts
    place = np.repeat(np.arange(n * q) * k - starts, counts) + np.arange(len(cell))
    first = np.minimum(offsets[:-1], offsets[-1] - 1).astype(np.int32)
    indices = np.broadcast_to(first[:, None], (n, q, k)).copy()
    values = np.zeros((n, q, k), x.data.dtype)
    indices.reshape(-1)[place] = x.indices
    values.reshape(-1)[place] = x.data
    return Sparse(indices, values, tuple(int(a) for a in offsets))


def matrix(blocks: Blocks) -> Any:
    """Return the joined features [n, d], the parties' columns one after the other: an array, or a SciPy CSR matrix."""
    if isinstance(blocks, Dense):
        x = np.asarray(blocks.x)
        return np.concatenate([x[:, party, :size] for party, size in enumerate(blocks.sizes)], axis=1)
    from scipy import sparse as scipy_sparse

    values, n = np.asarray(blocks.values), blocks.num_rows
    row, party, slot = np.nonzero(values)
    entries = (values[row, party, slot], (row, np.asarray(blocks.indices)[row, party, slot]))
    return scipy_sparse.csr_matrix(entries, shape=(n, blocks.offsets[-1]))
