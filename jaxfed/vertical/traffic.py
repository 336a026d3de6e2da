"""What a schedule costs: updates, messages and bytes, counted from its table on the host, in 64-bit integers.

Of each dominated update: 2 (q - 1) messages for the products, as Algorithm 1 sums them over two trees (the run itself
adds them plainly: masks cancel), and q - 1 with (i, theta) backward. SVRG's reference point and SAGA's start evaluate
all n rows: the same, once, with n numbers in a message.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxfed.vertical.ticks import Plan

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
        self.epoch_length = getattr(algorithm, "epoch_length", 0)  # 0: one full pass at the start, or none
        if self.epoch_length is None:
            self.epoch_length = -(-self.rows // self.batch_size)
        self.full_pass = hasattr(algorithm, "refresh") or algorithm.mean_moves
        self.parties = data.num_parties
        self.told = self.parties - 1 if algorithm.backward else len(data.active) - 1
        self.itemsize = jnp.dtype(jnp.result_type(float)).itemsize

    def __call__(self, ticks: int) -> dict[str, Any]:
        """Return the counts after `ticks` ticks: `dominated_updates`, `block_updates`, `messages`, `bytes`, `epochs`
        (passes over the data) and `time` (seconds)."""
        dominated, applied = (int(a[ticks - 1]) if ticks else 0 for a in (self.plan.dominated, self.plan.applied))
        passes = self._passes(dominated, ticks)
        forward, back = 2 * (self.parties - 1), self.told
        each = self.batch_size * (forward * self.itemsize + back * (self.itemsize + 4))
        full = self.rows * (forward + back) * self.itemsize
        if self.told < self.parties - 1:
            applied = applied // self.parties * (self.told + 1) + min(applied % self.parties, self.told + 1)
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

    def _passes(self, dominated: int, ticks: int) -> int:
        """Return how many times all rows were evaluated."""
        if not self.full_pass or (ticks == 0 and self.epoch_length):
            return 0
        if self.epoch_length:
            return max(-(-dominated // self.epoch_length), 1)
        return 1 if self.before is None else 0
