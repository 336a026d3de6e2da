"""The host's side of a sweep: which lanes go together, what they need, and how far they are."""

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from jaxfed import lanes, parallel
from jaxfed.checks import fail
from jaxfed.lanes import LAST, ONE, VMAP, Load, Settings, Shape
from jaxfed.types import Measure

WINDOWS = 32  # records that a call of the device can hold, for each lane


class Job(NamedTuple):
    """A sweep that is checked and placed: what the device's program is called with.

    mesh, shape, paths, measures and by_client are static, as in `lanes.play`; keys [seeds] or [points, seeds]; values:
    for each path the stacked values [points, ...]; windows: the records that one call can hold.
    """

    mesh: Mesh | None
    shape: Shape
    paths: tuple[str, ...]
    measures: tuple[Measure, ...]
    by_client: tuple[str, ...]
    settings: Settings
    keys: Any
    values: tuple[Any, ...]
    num_points: int
    num_seeds: int
    windows: int


class Block(NamedTuple):
    """The lanes of one load: their points int [n, points] and seeds int [n, seeds]. Repeated ones fill it up."""

    points: np.ndarray
    seeds: np.ndarray


def blocks(shape: Shape, num_points: int, num_seeds: int) -> list[Block]:
    """Return the loads of a sweep, in order: all points of the first seeds, then of the next."""
    cut = lambda start, size, count: np.minimum(np.arange(start, start + size), count - 1)  # noqa: E731
    every = [
        (cut(p, shape.points, num_points), cut(s, shape.seeds, num_seeds))
        for s in range(0, num_seeds, shape.seeds)
        for p in range(0, num_points, shape.points)
    ]
    size = shape.batches * shape.devices
    out = []
    for i in range(0, len(every), size):
        chosen = every[i : i + size]
        chosen += [chosen[-1]] * (size - len(chosen))
        out.append(Block(*(np.stack(part) for part in zip(*chosen, strict=True))))
    return out


def load(job: Job, block: Block) -> Load:
    """Return what a block's lanes are played with."""
    at = block.points
    keys = job.keys[at, block.seeds][:, None] if job.shape.own_keys else job.keys[block.seeds]
    return Load(keys, jax.tree.map(lambda x: jnp.asarray(x[at]), job.values))


def balanced(count: int, most: int) -> int:
    """Return the largest part of `count` cut into as few equal parts as hold at most `most`."""
    return -(-count // -(-count // max(most, 1)))


def shape_of(
    mode: str, most: int, num_points: int, num_seeds: int, mesh: Mesh | None, own_keys: bool, batch: int | None
) -> Shape:
    """Return the shape of a sweep in which batches hold at most `batch` lanes (None: `most`), one of them a load."""
    devices = 1 if mesh is None else mesh.shape.get(lanes.LANE, 1)
    if own_keys or mode == LAST:
        mode = ONE if mode == LAST and own_keys else mode
    most = most if batch is None else batch
    if mode == ONE:
        return Shape(ONE, 1, 1, 1, devices, own_keys)
    # with fewer points than lanes a device takes, more devices share them out
    points = balanced(num_points, min(most, max(-(-num_points * num_seeds // devices), 1)))
    seeds = 1
    # Each seed has cohorts and minibatches of its own. A batch of them shares nothing: it fills an accelerator, but on
    # a CPU it is no faster. On devices that share clients out, loops over cohorts would differ in length.
    alone = own_keys or (mesh is not None and mesh.shape.get(parallel.CLIENT, 1) > 1)
    if mode == VMAP and not alone and points == num_points and (batch or jax.default_backend() != "cpu"):
        seeds = balanced(num_seeds, max(min(most // points, -(-num_seeds // devices)), 1))
    return Shape(mode, points, seeds, 1, devices, own_keys)


def smaller(shape: Shape, keep_lanes: bool = False) -> Shape | None:
    """Return a shape that needs less memory: fewer batches in a load, then fewer lanes in a batch. None: it can't."""
    if shape.batches > 1:
        return shape._replace(batches=shape.batches // 2)
    if keep_lanes or shape.lanes == 1:
        return None
    field = "seeds" if shape.seeds > 1 else "points"
    return shape._replace(**{field: -(-getattr(shape, field) // 2)})


class Estimate(NamedTuple):
    """What a sweep will need: lanes, those in one batch, calls of the device (loads), bytes on each device at once
    and seconds (None where they were not measured)."""

    lanes: int
    batch: int
    loads: int
    bytes: int
    seconds: float | None

    def __str__(self) -> str:
        """Say it in a line."""
        size = f"{self.bytes / 2**30:.2f} GiB" if self.bytes >= 2**30 else f"{self.bytes / 2**20:.0f} MiB"
        took = "" if self.seconds is None else f", about {_duration(self.seconds)} once compiled"
        return (f"{self.lanes} lanes, {self.batch} in a batch, in {self.loads} loads; "
                f"{size} on each device{took}")  # fmt: skip


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def bytes_of(job: Job) -> int:
    """Return the bytes that a load takes on each device, as its compiled program says: data, states, scratch."""
    compiled = lowered(job).compile()
    sizes = compiled.memory_analysis()
    kept = sizes.argument_size_in_bytes + sizes.output_size_in_bytes - sizes.alias_size_in_bytes
    return int(kept + sizes.temp_size_in_bytes)


def lowered(job: Job) -> Any:
    """Return the program that plays a load, lowered: `.compile()` tells its memory and its text."""
    first = load(job, blocks(job.shape, job.num_points, job.num_seeds)[0])
    carry = jax.eval_shape(lambda s, b: lanes.start(job.mesh, job.shape, job.paths, s, b), job.settings, first)
    carry = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), carry)
    windows = jax.ShapeDtypeStruct((job.windows,), jnp.int32)
    return lanes.compiled_play.lower(*job[:6], first, carry, windows, jnp.int32(1))


def available() -> int:
    """Return the bytes that a device may take by default: half of a host's free memory, nine tenths of an
    accelerator's."""
    stats = jax.local_devices()[0].memory_stats() if jax.default_backend() != "cpu" else None
    if stats and "bytes_limit" in stats:
        return int(0.9 * (stats["bytes_limit"] - stats.get("bytes_in_use", 0)))
    try:
        with open("/proc/meminfo") as info:
            free = {line.split(":")[0]: int(line.split()[1]) << 10 for line in info}
        return free["MemAvailable"] // 2 // max(len(jax.local_devices()), 1)
    except (OSError, KeyError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4 // max(len(jax.local_devices()), 1)


def pieces(lengths: Sequence[int], rounds: int, most: int) -> tuple[list[int], list[int]]:
    """Return (the next windows to play, what is left): about `rounds` rounds, at most `most` windows.

    A window that is longer is cut: its first part has a negative sign, as no record belongs to it.
    """
    chosen: list[int] = []
    rest = list(lengths)
    while rest and len(chosen) < most and (not chosen or sum(map(abs, chosen)) + rest[0] <= rounds):
        if rest[0] > rounds and rounds > 0:
            chosen.append(-rounds)
            rest[0] -= rounds
            break
        chosen.append(rest.pop(0))
    return chosen, rest


def check_mesh(mesh: Mesh | None) -> None:
    """Require a mesh with the axis of lanes, or none."""
    if mesh is not None and (lanes.LANE not in mesh.shape or set(mesh.shape) - {lanes.LANE, parallel.CLIENT}):
        fail("mesh", f"axes {tuple(mesh.shape)}", "those of parallel.mesh(sweep=..., client=...)")
