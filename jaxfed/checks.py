"""Checks at the boundary, on the host, before anything is traced. A message names the field, what it got, and what it
wanted. Those of horizontal runs are in `horizontal.checks`.
"""

import difflib
from collections.abc import Sequence
from typing import Any, NoReturn

import jax
import numpy as np


def fail(field: str, got: Any, wanted: str) -> NoReturn:
    """Raise the ValueError that all checks raise."""
    raise ValueError(f"{field}: got {got}, wanted {wanted}")


def one_of(field: str, got: Any, choices: Sequence[Any]) -> None:
    """Require one of the choices, names or others; a near miss of a name is named."""
    if got not in choices:
        near = difflib.get_close_matches(str(got), [choice for choice in choices if isinstance(choice, str)], n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        fail(field, repr(got), f"one of {', '.join(map(repr, choices))}{hint}")


def whole(field: str, got: Any, least: int) -> None:
    """Require an int of at least `least`."""
    if isinstance(got, bool) or not isinstance(got, (int, np.integer)) or got < least:
        fail(field, repr(got), f"a whole number of at least {least}")


def numbers(field: str, value: Any, low: float, high: float = np.inf) -> None:
    """Require that every number in a pytree is finite and lies within [low, high]."""
    for leaf in jax.tree.leaves(value):
        if np.asarray(leaf).dtype.kind not in "iuf":
            fail(field, repr(leaf), "a number")
        leaf = np.asarray(leaf, float)
        bad = leaf[~((leaf >= low) & (leaf <= high) & np.isfinite(leaf))]
        if bad.size:
            fail(field, f"{bad.flat[0]:g}", f"{'at least ' if high == np.inf else ''}{low:g}"
                 + (", and finite" if high == np.inf else f" to {high:g}"))  # fmt: skip


def number(field: str, got: Any, low: float, high: float = np.inf) -> None:
    """Require one finite number within [low, high]: no None, list or array."""
    if got is None or isinstance(got, (list, tuple, dict)):
        fail(field, repr(got), "one number")
    numbers(field, got, low, high)
    if np.shape(got):
        fail(field, f"shape {np.shape(got)}", "one number")


def flag(field: str, got: Any) -> None:
    """Require True or False."""
    if not isinstance(got, (bool, np.bool_)):
        fail(field, repr(got), "True or False")


def rounds(num_rounds: Any, every: Any, chunk: Any = None, group: Any = None) -> None:
    """Require sensible lengths of a run, in rounds, and a sensible group of clients."""
    whole("num_rounds", num_rounds, 1)
    whole("every", every, 1)
    pieces(chunk, group)


def pieces(chunk: Any, group: Any) -> None:
    """Require a sensible number of rounds and of clients to hand to the device at once, or None."""
    for field, value in (("chunk", chunk), ("group", group)):
        if value is not None:
            whole(field, value, 1)


def seed(got: Any) -> tuple[jax.Array, Any]:
    """Return a typed key and what to record of the seed, from an int or a typed key."""
    if isinstance(got, (int, np.integer)) and not isinstance(got, bool):
        if not 0 <= got < 2**32:  # jax keeps 32 bits of it, so others would give the numbers of another seed
            fail("seed", got, f"0 to {2**32 - 1}")
        return jax.random.key(int(got)), int(got)
    if isinstance(got, jax.Array) and jax.numpy.issubdtype(got.dtype, jax.dtypes.prng_key) and got.shape == ():
        return got, str(np.asarray(jax.random.key_data(got)).tolist())
    fail("seed", repr(got), "an int or one typed key (jax.random.key)")


def is_algorithm(field: str, got: Any) -> None:
    """Require an algorithm, an instance of one."""
    if isinstance(got, type) or not (hasattr(got, "init") and hasattr(got, "step")):
        fail(field, repr(got) if isinstance(got, type) else type(got).__name__, "an algorithm, say FedAvg(model)")


def mesh(got: Any) -> None:
    """Require a mesh of devices, or None."""
    if got is not None and not isinstance(got, jax.sharding.Mesh):
        fail("mesh", repr(got), "a mesh (jaxfed.parallel.mesh()), or None for one device")
    if got is not None and "client" not in got.axis_names:
        fail("mesh", f"the axes {got.axis_names}", 'one named "client" (jaxfed.parallel.mesh())')
    owners = set() if got is None else {device.process_index for device in got.devices.flat}
    if owners and owners != {jax.process_index()} and len(owners) < jax.process_count():
        fail("mesh", f"devices of the processes {sorted(owners)}", "devices of one process, or of all of them")


def one_lane(mesh: Any) -> None:
    """Require a mesh all of whose devices one run can use."""
    if mesh is not None and mesh.shape.get("sweep", 1) > 1:
        fail("mesh", f"{mesh.shape['sweep']} lanes", "one, parallel.mesh(client=...): only a sweep has several")


def measures(got: Any) -> None:
    """Require measures with tuples of dims, none of them the record's own."""
    for i, measure in enumerate(got):
        if not (hasattr(measure, "fn") and isinstance(measure.dims, tuple)) or "round" in measure.dims:
            fail(f"measures[{i}]", repr(measure), 'Measure(fn, dims) with a tuple of dims that lacks "round"')


def many_clients(client_store: Any, per_client: Any, data: Any) -> None:
    """Require what `run` offers for very many clients, and a federation that has clients."""
    one_of("client_store", client_store, ("device", "host"))
    if per_client is not None:
        flag("per_client", per_client)
    if not hasattr(data, "on_host") and (client_store == "host" or per_client is not None):
        field, got = ("per_client", per_client) if client_store == "device" else ("client_store", repr(client_store))
        fail(field, f"{got} for {type(data.train).__name__}", "ClientData with it: parties are few")


def distinct(field: str, names: Any, others: Any) -> None:
    """Require that no name is among the others."""
    if taken := set(names) & set(others):
        fail(field, f"the name {min(taken)!r}", f"one that the round does not report: {sorted(others)}")


def is_data(field: str, got: Any) -> None:
    """Require something that the driver can ask for its parts: ClientData, PartyData, or what joins several of one."""
    if got is not None and not (hasattr(got, "with_parts") and hasattr(got, "train")):
        fail(field, type(got).__name__, "ClientData (say from ClientData.from_list) or PartyData (vertical.split)")


def same_structure(state: Any, like: Any) -> None:
    """Require the structure, shapes and dtypes that this run's own state has."""
    if jax.tree.structure(state) != jax.tree.structure(like):
        leaves = (jax.tree_util.tree_leaves_with_path(tree) for tree in (state, like))
        got, wanted = ({jax.tree_util.keystr(path) for path, _ in tree} for tree in leaves)
        parts = (sorted(got - wanted) or ["less than wanted"], sorted(wanted - got) or ["nothing more"])
        fail("state", f"the state of another algorithm, with {', '.join(parts[0])}", ", ".join(parts[1]))
    for (path, x), y in zip(jax.tree_util.tree_leaves_with_path(state), jax.tree.leaves(like), strict=True):
        if x.dtype != y.dtype or x.shape != y.shape:
            name = f"state{jax.tree_util.keystr(path)}"
            fail(name, f"{x.dtype}{list(x.shape)}", f"{y.dtype}{list(y.shape)}, as this run has")
