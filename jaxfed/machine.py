"""What plays a run: the device with everything on it, or a host that moves each round's clients to the device."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxfed import core, nodes, parallel
from jaxfed.progress import Pace
from jaxfed.types import Carry, Measure, Timetable

compiled_start = nodes.jit(core.init)
compiled_observe = nodes.jit(core.observe, static_argnums=(0, 1))
compiled_advance = nodes.jit(core.advance_on, static_argnums=(0,), donate_argnums=(5,))


class Machine(NamedTuple):
    """The placed data, and functions of the arguments of `core.init`, `core.observe` and `core.advance_on`.

    `dims`: the axes of every measured array. `hold`: takes a carry as it was made, or read from a file, to where the
    rounds are played; `whole`: makes a final state the caller's.
    """

    data: Any
    dims: dict[str, tuple[str, ...]]
    start: Callable
    observe: Callable
    advance: Callable
    pace: Pace
    hold: Callable[[Carry], Carry]
    whole: Callable[[Any], Any]


def assemble(
    data: Any,
    key: Any,
    algorithm: Any,
    timetable: Timetable,
    scheduler: Any,
    added: Sequence[Measure],
    mesh: Any,
    group: int | None,
    chunk: int | None,
    client_store: str,
) -> Machine:
    """Return what plays a run of these settings. `added`: measures beside the data's own."""
    store = None
    if client_store == "host":
        store = data.on_host(algorithm, scheduler, mesh, group, chunk, timetable.stops, added)
    placed = data.place(algorithm, scheduler, mesh, group) if store is None else store.data
    recorded = (*data.default_measures(), *added)
    taken = {"time", "finite", "round", *data.coords(), *timetable.columns(timetable.stops[0])}
    lengths = {name: len(own) for name, own in placed.coords().items() if isinstance(own, np.ndarray)}
    dims = core.record_dims(key, algorithm, placed, recorded, taken, lengths)
    start, observe, advance = compiled_start, compiled_observe, compiled_advance
    if store is None:
        put = lambda carry: parallel.put_carry(carry, mesh)  # noqa: E731
        return Machine(placed, dims, start, observe, advance, Pace(chunk), put, parallel.whole)
    start, observe, advance = store.over(start, observe, advance, dims)
    return Machine(placed, dims, start, observe, advance, Pace(store.rounds), _split, lambda state: state)


def _split(carry: Carry) -> Carry:
    """Return a carry whose clients are NumPy arrays to write to, and whose other leaves are on the device."""
    state = carry.state
    ours = lambda x: isinstance(x, np.ndarray) and x.flags.writeable  # noqa: E731
    clients = jax.tree.map(lambda x: x if ours(x) else np.array(x), state.clients)
    server = jax.tree.map(jnp.asarray, state.server)
    return Carry(jnp.asarray(carry.round), jnp.asarray(carry.time), state._replace(server=server, clients=clients))


def compiled_programs() -> int:
    """Return how many programs runs have compiled in this process; tests assert that it stays put."""
    return sum(f._cache_size() for f in (compiled_start, compiled_observe, compiled_advance))
