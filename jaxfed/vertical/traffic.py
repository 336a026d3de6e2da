"""What a schedule costs: updates, messages and bytes, counted from its table on the host, in 64-bit integers.

Of each dominated update: 2 (q - 1) messages for the products, as Algorithm 1 sums them over two trees (without `secure`
the run itself adds them plainly: masks cancel), and q - 1 with (i, theta) backward. SVRG's reference point and SAGA's
start evaluate all n rows: the same, once, with n numbers in a message.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxfed.vertical.ticks import Plan, Table

COUNTS = ("dominated_updates", "block_updates", "messages", "bytes")


class Totals(NamedTuple):
    """Counts over all runs that led to a state, int64, and simulated seconds, float64."""

    dominated_updates: Any
    block_updates: Any
    messages: Any
    bytes: Any
    time: Any
    epochs: Any


def totals(columns: dict[str, Any]) -> Totals:
    """Return the totals of a record's columns."""
    return Totals(**{name: np.int64(columns[name]) for name in COUNTS}, time=np.float64(columns["time"]),
                  epochs=np.float64(columns["epochs"]))  # fmt: skip


class Traffic:
    """The counts of a plan after so many of its ticks, on top of those before it."""

    def __init__(self, plan: Plan, algorithm: Any, data: Any, before: Totals | None):
        self.plan, self.before = plan, before
        self.rows, self.batch_size = data.num_rows, algorithm.batch_size
        self.parties = data.num_parties
        self.applied, self.snapshots = plan.applied, None
        if not algorithm.backward:
            own = list(data.active)
            self.applied = _counted(plan, lambda table: (table.apply[:, :, own] >= 0).sum((1, 2)))
        if hasattr(algorithm, "epoch_length"):
            self.snapshots = _counted(plan, lambda table: table.snapshot)
        self.starts_with_pass = algorithm.mean_moves and before is None  # SAGA's table
        self.told = self.parties - 1 if algorithm.backward else len(data.active) - 1
        self.itemsize = jnp.dtype(jnp.result_type(float)).itemsize
        bits = None if algorithm.secure is None else algorithm.secure.bits
        self.number = self.itemsize if bits is None else bits // 8

    def __call__(self, ticks: int) -> dict[str, Any]:
        """Return the counts after `ticks` ticks: `dominated_updates`, `block_updates`, `messages`, `bytes`, `epochs`
        (passes over the data) and `time` (seconds)."""
        dominated, applied = (int(a[ticks - 1]) if ticks else 0 for a in (self.plan.dominated, self.applied))
        passes = int(self.starts_with_pass)
        if self.snapshots is not None and ticks:
            passes += int(self.snapshots[ticks - 1])
        forward, back = 2 * (self.parties - 1), self.told
        each = self.batch_size * (forward * self.number + back * (self.itemsize + 4))
        full = self.rows * (forward * self.number + back * self.itemsize)
        found = dict(
            dominated_updates=dominated,
            block_updates=applied,
            messages=(dominated + passes) * (forward + back),
            bytes=dominated * each + passes * full,
        )
        if self.before is not None:
            found = {name: count + int(getattr(self.before, name)) for name, count in found.items()}
        seconds = float(self.plan.time[ticks - 1]) if ticks else 0.0
        start = 0.0 if self.before is None else float(self.before.time)
        # whole rows, so that a run that goes on has the very numbers of the run in one piece
        earlier = 0 if self.before is None else round(float(self.before.epochs) * self.rows)
        epochs = (earlier + dominated * self.batch_size) / self.rows
        return {name: np.int64(count) for name, count in found.items()} | {"epochs": epochs, "time": start + seconds}


def _counted(plan: Plan, count: Callable[[Table], np.ndarray], stretch: int = 1 << 16) -> np.ndarray:
    """Return the running sum of what `count` finds in each tick of a plan's table, which is never expanded whole."""
    starts = range(0, len(plan.time), stretch)
    found = [np.asarray(count(plan.table(start, start + stretch)), np.int64) for start in starts]
    return np.concatenate(found).cumsum()
