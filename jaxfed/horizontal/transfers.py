"""What moves between host memory and the device, and how a few clients' part of the data is cut out for it."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxfed.horizontal.data import ClientData


def put(tree: Any) -> Any:
    """Return a tree of NumPy arrays on the device. Nothing else moves anything there."""
    return jax.tree.map(jnp.asarray, tree)


def fetch(tree: Any) -> Any:
    """Return a tree from the device as NumPy arrays. Nothing else moves anything back."""
    return jax.device_get(tree)


def few(part: ClientData, clients: np.ndarray, slots: int, most_rows: int | None) -> ClientData:
    """Return some clients' part, filled up; with `most_rows` of a pool of their own rows, else with no pool at all."""
    rows, size = (padded(a, clients, slots) for a in (part.rows, part.size))
    ids = padded(part.id, clients, slots)
    if most_rows is None:
        return ClientData((), (), rows, size, ids, part.layout)
    mine = np.arange(rows.shape[1]) < size[:, None]
    wanted = rows[mine]
    rows[:] = 0
    rows[mine] = np.arange(len(wanted), dtype=rows.dtype)
    most_rows = max(most_rows, 1)
    return ClientData(padded(part.x, wanted, most_rows), padded(part.y, wanted, most_rows), rows, size, ids,
                      part.layout)  # fmt: skip


def padded(array: np.ndarray, index: np.ndarray, length: int) -> np.ndarray:
    """Return array[index], then zeros, `length` rows in all; always new memory, which a device may keep."""
    out = np.empty((length, *array.shape[1:]), array.dtype)
    out[len(index) :] = 0
    np.take(array, index, axis=0, out=out[: len(index)], mode="clip")  # "raise" would copy it once more
    return out
