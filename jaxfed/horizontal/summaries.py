"""Summaries over clients, which take the place of arrays with a value for each of very many clients.

Of a default quantity `name` [C] a record keeps, in float64:

- `name_mean_over_clients` and, where it is of a part's rows, `name_mean_over_examples`;
- `name_spread`, the standard deviation over clients, and `name_worst_client` (the greatest loss, the least accuracy);
- `name_deciles` [decile], the boundaries 1 to 9 between tenths of the clients, exact.

They are the figures of `jaxfed.results`: clients without rows of the part are left out, and nobody else.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from jaxfed.checks import fail

MOST_CLIENTS = 20_000  # with more, a run records summaries unless it is asked for every client
DECILES = np.arange(1, 10)


def summaries(
    parts: dict[str, Any], per_client: bool | None, dims: dict[str, tuple[str, ...]], coords: dict[str, Any]
) -> tuple[Callable[[dict], dict], dict[str, tuple[str, ...]], dict[str, Any]]:
    """Return (what makes of a record [C] the one to keep, the names of its axes, the coordinates they need).

    `parts`: ClientData by name; `dims`: the axes of what is measured. With `per_client` (None: at most `MOST_CLIENTS`
    clients) all stays as it is; arrays of the user's own measures always do. Raises ValueError for a measure that has
    the name of a summary.
    """
    count = parts["train"].num_clients
    if per_client or (per_client is None and count <= MOST_CLIENTS):
        return lambda record: record, dims, coords
    sizes = {name: _size(name, parts) for name, axes in dims.items() if axes == ("client",) and _default(name, parts)}
    like = np.ones(count)
    new = {key: value.ndim for name, size in sizes.items() for key, value in of(name, like, size).items()}
    if taken := sorted(set(new) & set(dims)):
        fail("measures", f"the name {taken[0]!r}", "another: a summary over clients has it (or per_client=True)")
    kept = {name: axes for name, axes in dims.items() if name not in sizes}
    kept |= {name: ("decile",) * ndim for name, ndim in new.items()}

    def shorten(record: dict[str, Any]) -> dict[str, Any]:
        out = {name: value for name, value in record.items() if name not in sizes}
        for name, size in sizes.items():
            out |= of(name, np.asarray(record[name])[:count], size)
        return out

    clients = any("client" in axes for axes in kept.values())
    return shorten, kept, (coords if clients else {}) | {"decile": DECILES}


def of(name: str, values: np.ndarray, size: np.ndarray | None) -> dict[str, np.ndarray]:
    """Return the summaries of one quantity [C]; `size` [C]: the rows of its part, None for one of no part."""
    values = values.astype(np.float64)
    if size is not None:
        values, size = values[size > 0], size[size > 0]
    loss, some = name.endswith("loss"), len(values) > 0
    nan = np.float64(np.nan)
    out: dict[str, Any] = {"mean_over_clients": values.mean() if some else nan}
    if size is not None:
        out["mean_over_examples"] = np.average(values, weights=size) if some else nan
    out["spread"] = values.std() if some else nan
    if size is not None:
        out["worst_client"] = (values.max() if loss else values.min()) if some else nan
    out["deciles"] = np.quantile(values, DECILES / 10) if some else np.full(len(DECILES), nan)
    return {f"{name}_{key}": np.asarray(value) for key, value in out.items()}


def _default(name: str, parts: dict[str, Any]) -> bool:
    """Return whether a name is one of the default measures' for each client."""
    model, _, rest = name.partition("_")
    part, _, quantity = rest.partition("_")
    measured = model in ("server", "personal") and part in parts and quantity in ("loss", "accuracy")
    return measured or name == "mixing_weight"


def _size(name: str, parts: dict[str, Any]) -> np.ndarray | None:
    part = parts.get(name.split("_")[1])
    return None if part is None else np.asarray(part.size)
