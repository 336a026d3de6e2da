"""Client data: one pool of rows, and a table that says which rows are whose."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxfed.horizontal import checks
from jaxfed.nodes import PyTreeNode, field
from jaxfed.parallel import Layout
from jaxfed.types import Array


class View(NamedTuple):
    """What one client sees: the pool (x [pool, ...], y [pool]), its rows [n_max], its size and its global id."""

    x: Array
    y: Array
    rows: Array
    size: Array
    id: Array

    def take(self, rows: Array) -> tuple[Array, Array]:
        """Return features and labels of pool rows. uint8 images are scaled to [0, 1] here, so the pool stays small."""
        x = self.x[rows]
        if x.dtype == jnp.uint8:
            x = x.astype(jnp.result_type(float)) / 255
        return x, self.y[rows]

    def mask(self) -> Array:
        """Return which entries of `rows` are the client's, bool [n_max]; the others are padding."""
        return jnp.arange(self.rows.shape[0]) < self.size


class ClientData(PyTreeNode):
    """Rows of many clients: x [pool, ...], y [pool], rows int32 [C, n_max], size int32 [C], id int32 [C].

    Row i of the table holds client i's `size[i]` row numbers, then padding, which no computation uses. `id` is the
    client's number in the user's order; its random numbers derive from it. Integer labels are class numbers.
    """

    x: Any
    y: Any
    rows: Any
    size: Any
    id: Any
    layout: Layout = field(pytree_node=False)

    @classmethod
    def from_indices(
        cls, x, y, indices: Sequence[np.ndarray], *, allow_empty: bool = False, name: str = "data"
    ) -> "ClientData":
        """Make client data from a pool x [n, ...], y [n] and one array of row numbers for each client.

        Rows may be shared between clients. Raises ValueError for no clients, lengths that differ, row numbers outside
        the pool, features or labels that are not finite, negative class numbers, and clients without rows unless
        `allow_empty`.
        """
        x, y = checks.pool(x, y, name)
        indices = [np.asarray(i).reshape(-1) for i in indices]
        checks.indices(indices, len(x), allow_empty, name)
        size = np.array([len(i) for i in indices], np.int32)
        rows = np.zeros((len(indices), max(int(size.max()), 1)), np.int32)
        for i, index in enumerate(indices):
            rows[i, : len(index)] = index
        return cls(x, y, rows, size, np.arange(len(size), dtype=np.int32), Layout(len(size), int((size > 0).sum())))

    @classmethod
    def from_table(cls, x, y, rows, size=None, *, allow_empty: bool = False, name: str = "data") -> "ClientData":
        """Make client data from a pool x [n, ...], y [n] and a table of row numbers [C, n_max], for very many clients.

        `size` [C]: how many of a line's numbers count (None: all); the rest is padding. Nothing is copied that has its
        final type already: x and y any, rows and size int32. Rows may be shared between clients. Raises ValueError as
        `from_indices` does.
        """
        x, y = checks.pool(x, y, name)
        rows, size = checks.table(rows, size, len(x), allow_empty, name)
        ids = np.arange(len(size), dtype=np.int32)
        return cls(x, y, rows, size, ids, Layout(len(size), int((size > 0).sum())))

    @classmethod
    def from_list(cls, clients: Sequence[tuple[Any, Any]], *, allow_empty: bool = False) -> "ClientData":
        """Make client data from one pair (x_i [n_i, ...], y_i [n_i]) for each client; sizes may differ."""
        checks.client_list(clients)
        ends = np.cumsum([0] + [len(x) for x, _ in clients])
        indices = [np.arange(a, b) for a, b in zip(ends[:-1], ends[1:], strict=True)]
        x = np.concatenate([np.asarray(x) for x, _ in clients])
        y = np.concatenate([np.asarray(y) for _, y in clients])
        return cls.from_indices(x, y, indices, allow_empty=allow_empty)

    @property
    def num_clients(self) -> int:
        """The number of clients, without padding."""
        return self.layout.num_clients

    @property
    def train(self) -> "ClientData":
        """The training rows: themselves. (So algorithms take either this or a `FedData`.)"""
        return self

    def sample(self) -> Array:
        """Return one row [1, ...], for shapes."""
        return View(self.x, self.y, self.rows[0], self.size[0], self.id[0]).take(jnp.zeros((1,), jnp.int32))[0]

    def view(self, i) -> View:
        """Return what client i (its position in the table) sees."""
        return View(self.x, self.y, *(jnp.take(a, i, axis=0, mode="clip") for a in (self.rows, self.size, self.id)))

    def client(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        """Return client i's own rows (x_i [n_i, ...], y_i [n_i]) as NumPy arrays, on the host."""
        rows = np.asarray(self.rows)[i, : int(np.asarray(self.size)[i])]
        return np.asarray(self.x)[rows], np.asarray(self.y)[rows]

    def with_parts(self, test: "ClientData | None" = None, validation: "ClientData | None" = None):
        """Return this training data together with test and validation rows of the same clients."""
        from jaxfed.horizontal.federation import FedData

        return FedData(self, test, validation)


def shard(data: ClientData, shards: int, layout: Layout) -> ClientData:
    """Return the data padded and ordered so that cutting every array in `shards` equal parts gives each its clients.

    Clients stay in order; padding clients (no rows, ids past the last) fill up the last shards. Each part of the pool
    holds the rows of its own clients. Row numbers count over all parts; `local` makes them a device's own.
    """
    x, y, table, size = (np.asarray(a) for a in (data.x, data.y, data.rows, data.size))
    per = -(-len(size) // shards)
    pad = per * shards - len(size)
    table = np.pad(table, ((0, pad), (0, 0)))
    size = np.pad(size, (0, pad))
    parts, tables = [], []
    for s in range(shards):
        mine, n = table[s * per : (s + 1) * per], size[s * per : (s + 1) * per]
        used = np.arange(mine.shape[1]) < n[:, None]
        pool, inverse = np.unique(mine[used], return_inverse=True)
        renumbered = np.zeros_like(mine)
        renumbered[used] = inverse
        parts.append(pool if len(pool) else np.zeros(1, pool.dtype))
        tables.append(renumbered)
    longest = max(len(p) for p in parts)
    tables = [table + s * longest for s, table in enumerate(tables)]
    pool = np.concatenate([np.pad(p, (0, longest - len(p)), mode="edge") for p in parts])
    ids = np.arange(per * shards, dtype=np.int32)
    return ClientData(x[pool], y[pool], np.concatenate(tables), size, ids, layout)


def local(data: ClientData) -> ClientData:
    """Return, inside a shard_map over the clients' axis, this device's part: row numbers count from its start."""
    return data.replace(rows=data.rows - jax.lax.axis_index(data.layout.axis) * data.x.shape[0])
