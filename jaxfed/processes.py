"""Several processes, on one machine or many, that act as one: started together, they hold the devices of all.

Every process runs the same program on the same data. What crosses between them inside a round is the one all-reduce of
a mesh; here is the rest: how they start, what they agree on between two calls of the device, and how results that are
spread over them become whole in each. In one process nothing here does anything.
"""

import contextlib
import functools
import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxfed import checks

TIMEOUT = 300  # seconds that processes wait for each other at the start
GRACE = 3  # seconds that the first one outlives an error: its end ends the others, who should say what theirs was


def start_processes(
    coordinator: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    cpu_devices: int | None = None,
    *,
    timeout: int = TIMEOUT,
) -> None:
    """Join the processes of one run; call it first of all, before jax is used. `jax.devices()` are then those of all.

    Args:
      coordinator: "HOST:PORT" of the first process, a free port there that the others can reach.
      num_processes, process_id: how many there are, and which this one is, from 0. Under Slurm and Open MPI (and on
        TPUs) all three are found by jax and may be left out.
      cpu_devices: devices that this process makes of its CPU (default: one, or what `parallel.use_cpu_cores` says).
      timeout: seconds to wait for the others.

    Raises ValueError for arguments that can't be, RuntimeError where jax has started already, ConnectionError for an
    address that can't be had. Where the others are not met in time, the process ends with a line and status 2.
    """
    if coordinator is not None and not re.fullmatch(r"\S+:\d+", str(coordinator)):
        checks.fail("coordinator", repr(coordinator), "HOST:PORT of the first process")
    if num_processes is not None:
        checks.whole("num_processes", num_processes, 1)
    if process_id is not None:
        checks.whole("process_id", process_id, 0)
        if num_processes is not None and process_id >= num_processes:
            checks.fail("process_id", process_id, f"0 to {num_processes - 1}")
    checks.whole("timeout", timeout, 1)
    if cpu_devices is not None:
        checks.whole("cpu_devices", cpu_devices, 1)
    # jax would take SIGTERM for a sign that the machine is about to go, and go on
    jax.config.update("jax_enable_preemption_service", False)
    alarm = threading.Timer(timeout, _give_up, (coordinator, timeout))  # jax itself would abort, with a page of C++
    alarm.daemon = True
    alarm.start()
    try:
        if cpu_devices is not None:
            jax.config.update("jax_num_cpu_devices", cpu_devices)
        jax.distributed.initialize(coordinator, num_processes, process_id, initialization_timeout=timeout + 60)
    except ValueError as error:
        got = ", ".join(f"{v}" for v in (coordinator, num_processes, process_id) if v is not None) or "nothing"
        wanted = "all three, or a start by Slurm or Open MPI, which tell them"
        raise ValueError(f"coordinator, num_processes, process_id: got {got}, wanted {wanted}") from error
    except jax.errors.JaxRuntimeError as error:
        why = " ".join(str(error).split())
        raise ConnectionError(
            f"coordinator: got {coordinator}, wanted a free port of the first process ({why})"
        ) from error
    except RuntimeError as error:
        raise RuntimeError(
            "start_processes: got a process in which jax has started already, wanted the call before any other use"
        ) from error
    finally:
        alarm.cancel()


def _give_up(coordinator: str | None, timeout: int) -> None:
    print(
        f"jaxfed: error: coordinator: got not all processes at {coordinator or 'the address that was found'} within"
        f" {timeout} seconds, wanted all of them started and able to reach it",
        file=sys.stderr,
        flush=True,
    )
    os._exit(2)


def started() -> bool:
    """Return whether this is one of several processes; unlike `jax.process_count`, it does not start jax."""
    return jax.distributed.is_initialized() and jax.process_count() > 1


def first() -> bool:
    """Return whether this process is the one that prints and writes files."""
    return not jax.distributed.is_initialized() or jax.process_index() == 0


def of_each(count: int | None = None) -> list[Any]:
    """Return the first `count` devices of each process (None: all), those of a process together."""
    return [
        device
        for i in range(jax.process_count())
        for device in [found for found in jax.devices() if found.process_index == i][:count]
    ]


def spans(mesh: Mesh | None) -> bool:
    """Return whether a mesh has devices of other processes."""
    return mesh is not None and mesh.is_multi_process


def place(x: Any, sharding: NamedSharding) -> jax.Array:
    """Return an array on the devices of all processes; each has the whole array and hands over its own part."""
    if isinstance(x, jax.Array) and not x.is_fully_addressable:
        return jax.device_put(x, sharding)
    x = np.asarray(x)
    x = x.astype(jax.dtypes.canonicalize_dtype(x.dtype), copy=False)
    return jax.make_array_from_callback(x.shape, sharding, lambda index: x[index])


def whole(tree: Any) -> Any:
    """Return the tree with arrays that are spread over processes gathered into each of them, leaf by leaf.

    Each device holds the largest leaf whole for that time. All processes must call it with the same tree.
    """

    def leaf(x):
        if not isinstance(x, jax.Array) or x.is_fully_addressable:
            return x
        x = x if x.is_fully_replicated else _replicate(NamedSharding(x.sharding.mesh, PartitionSpec()))(x)
        return jnp.asarray(x.addressable_data(0))

    return jax.tree.map(leaf, tree)


def fetch(tree: Any) -> Any:
    """Return the tree as NumPy arrays, the same in every process: `jax.device_get` where there is one."""
    return jax.device_get(whole(tree))


def agree(mesh: Mesh | None, *numbers: float) -> tuple[float, ...]:
    """Return the largest of each number over the processes of a mesh, so that all of them decide the same."""
    if not spans(mesh):
        return numbers
    assert mesh is not None
    mine = np.asarray([numbers], np.float32)
    sharding = NamedSharding(mesh, PartitionSpec(mesh.axis_names))
    every = jax.make_array_from_callback((mesh.size, len(numbers)), sharding, lambda index: mine)
    found = _largest(NamedSharding(mesh, PartitionSpec()))(every)
    return tuple(np.asarray(found.addressable_data(0)).tolist())


@contextlib.contextmanager
def together() -> Iterator[None]:
    """Where the block fails in one process, fail in all: the others would wait for it for ever.

    The block must not use devices of other processes. Where only another process failed, raises ValueError for bad
    input there, KeyboardInterrupt for Ctrl-C, else RuntimeError.
    """
    kinds = (RuntimeError, ValueError, KeyboardInterrupt)
    mine = 1
    try:
        yield
        mine = 0
    except (ValueError, OSError, ModuleNotFoundError):
        mine = 2
        raise
    except KeyboardInterrupt:
        mine = 3
        raise
    finally:
        worst = agree(Mesh(np.asarray(jax.devices()), ("all",)), mine)[0] if started() else mine
    if worst:
        raise kinds[int(worst) - 1]("another process failed, and says why on its own error stream")


def leave(status: int) -> None:
    """End this process at once if it is one of several: after an error the others may wait for it, and must be told."""
    if not jax.distributed.is_initialized():
        return
    sys.stdout.flush()
    sys.stderr.flush()
    if first():
        time.sleep(GRACE)
    os._exit(status)


@functools.cache
def _replicate(sharding: NamedSharding) -> Any:
    return jax.jit(lambda x: x, out_shardings=sharding)


@functools.cache
def _largest(sharding: NamedSharding) -> Any:
    return jax.jit(lambda x: x.max(0), out_shardings=sharding)
