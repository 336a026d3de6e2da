"""Devices: meshes with named axes, and how clients are laid out on them. No-ops without a mesh."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from jaxfed.types import Carry, FedState

CLIENT = "client"
CACHE_BYTES = 1 << 20  # the L2 cache of one core: what the working set of a group of clients should fit in


@dataclass(frozen=True)
class Layout:
    """How clients are mapped, a static choice of the backend that changes results only by rounding.

    `num_clients`: the clients of the user, without padding; `num_filled`: those with rows. `group`: clients trained at
    once by vmap; the round scans over groups. `axis`: the mesh axis that shards clients, or None. `eval_block`: clients
    evaluated at once.
    """

    num_clients: int
    num_filled: int
    group: int = 1
    axis: str | None = None
    eval_block: int = 1


def mesh(client: int | None = None, devices=None) -> Mesh:
    """Return a mesh whose axis "client" shards the clients over `client` devices (default: all of them)."""
    devices = jax.devices() if devices is None else devices
    client = len(devices) if client is None else client
    if not 1 <= client <= len(devices):
        raise ValueError(f"client: got {client}, wanted 1 to {len(devices)}, the number of devices")
    # Auto axes: the default, Explicit, refuses the gathers that client sampling and minibatches are made of.
    return jax.make_mesh((client,), (CLIENT,), axis_types=(AxisType.Auto,), devices=devices[:client])


def use_cpu_cores(count: int | None = None) -> None:
    """Make each core of a CPU a device.

    With clients sharded over two cores, `benchmarks.horizontal` ran 1.5 to 2.8 times faster, the CNN slower.
    Call it before jax is first used. Importing jaxfed never does this by itself. Raises RuntimeError if jax has
    started already.
    """
    import os

    count = len(os.sched_getaffinity(0)) if count is None and hasattr(os, "sched_getaffinity") else count
    jax.config.update("jax_num_cpu_devices", count or os.cpu_count() or 1)


def default_group(num_params: int, cohort: int) -> int:
    """Return how many clients to train at once: all on an accelerator, what the cache holds on a CPU."""
    if jax.default_backend() != "cpu":
        return cohort
    largest = min(max(CACHE_BYTES // (16 * max(num_params, 1)), 1), cohort)
    even = [g for g in range(largest, 0, -1) if cohort % g == 0 and 2 * g > largest]  # no slot of the last group idle
    return even[0] if even else largest


def reduce_sum(axis: str | None, tree: Any) -> Any:
    """Return the sum over the mesh axis, as one all-reduce whatever the number of leaves."""
    if axis is None:
        return tree
    flat, unravel = ravel_pytree(tree)
    return unravel(jax.lax.psum(flat, axis))


def specs(tree: Any) -> Any:
    """Return the sharding of a state: replicated, but for the leaves under `clients` of a horizontal state."""
    if isinstance(tree, FedState):
        return FedState(PartitionSpec(), PartitionSpec(CLIENT))
    return PartitionSpec()


def put(tree: Any, mesh: Mesh | None, spec: PartitionSpec | None = None) -> Any:
    """Return the tree on the devices, every leaf under one spec (default: replicated)."""
    if mesh is None:
        return jax.tree.map(jnp.asarray, tree)
    return jax.device_put(tree, NamedSharding(mesh, spec or PartitionSpec()))


def fetch(tree: Any) -> Any:
    """Return a tree of arrays as NumPy arrays."""
    return jax.device_get(tree)


def put_carry(carry: Carry, mesh: Mesh | None) -> Carry:
    """Return a carry on the devices, its state under its own specs."""
    state = carry.state
    if mesh is not None and isinstance(state, FedState):
        state = FedState(put(state.server, mesh), put(state.clients, mesh, PartitionSpec(CLIENT)))
    else:
        state = put(state, mesh)
    return Carry(put(carry.round, mesh), put(carry.time, mesh), state)
