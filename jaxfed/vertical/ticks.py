"""The table of ticks: what every party does, in which order. The schedule does not depend on what is learned.

q parties, m dominators (dominator a is party `active[a]`). A dominated update is q reads, one completion, q applies. In
a tick all parties act in parallel, in this order: snapshot; all reads, from the blocks as when the tick began; all
completions; all applies, again from the blocks as when the tick began. (As in the project's design, but for the row's
cut: there applies come first. Here the applies that follow a row's completions belong to it, so what is recorded after
a tick is a clean state.)
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxfed.nodes import PyTreeNode
from jaxfed.types import Array, Key
from jaxfed.vertical import units


class Tick(NamedTuple):
    """One row: the event that the device gets in a round."""

    read: Any  # int8 [m, q]; r >= 0: answer for update completed[a] + r, counted before this tick; -1: nothing
    complete: Any  # bool [m]; dominator a completes its update number completed[a]
    apply: Any  # int8 [m, q]; k >= 0: apply update completed[a] - 1 - k, counted after the tick's completions; -1
    snapshot: Any  # bool []; everything is applied: take the reference point of SVRG, before the tick's reads
    time: Any  # float []; simulated seconds at the tick's end; None in a bank


class Table(NamedTuple):
    """A stretch of ticks on the host, fields as in `Tick`."""

    read: np.ndarray  # int8 [T, m, q]
    complete: np.ndarray  # bool [T, m]
    apply: np.ndarray  # int8 [T, m, q]
    snapshot: np.ndarray  # bool [T]
    time: np.ndarray  # float64 [T]


def empty(num_ticks: int, num_active: int, num_parties: int) -> Table:
    """Return ticks in which nothing happens, at time 0."""
    nothing = np.full((num_ticks, num_active, num_parties), -1, np.int8)
    flags = np.zeros((num_ticks, num_active), bool)
    return Table(nothing, flags, nothing.copy(), np.zeros(num_ticks, bool), np.zeros(num_ticks))


def concatenate(tables: Any) -> Table:
    """Return one stretch after the other; times are left as they are."""
    return Table._make(np.concatenate(columns) for columns in zip(*tables, strict=True))


class Replay(PyTreeNode):
    """The device's scheduler: tick t is row `index[t]` of a bank of rows (`shifted.Shifted` begins it later).

    The last entry of `index` names an empty row, so ticks past the end do nothing. table: Tick [N, ...] without time;
    index: int32 [T]; time: float [T], seconds.
    """

    table: Tick
    index: Any
    time: Any

    def __call__(self, key: Key | None, t: Array) -> Tick:
        """Return tick t."""
        del key
        at = jnp.clip(t, 0, self.index.shape[0] - 1)
        index, time = jnp.asarray(self.index), jnp.asarray(self.time)
        tick = jax.tree.map(lambda column: jnp.asarray(column)[index[at]], self.table)
        return tick._replace(time=time[at])

    def rows(self, ticks: np.ndarray) -> Tick:
        """Return those ticks (int [T]), stacked, as NumPy arrays."""
        at = np.clip(ticks, 0, len(self.index) - 1)
        rows = (np.asarray(column)[np.asarray(self.index)[at]] for column in self.table[:4])
        return Tick._make((*rows, np.asarray(self.time)[at]))


class Plan(NamedTuple):
    """A schedule of a known length, as the driver runs it: `num_ticks` rounds, then `drain` ticks that only apply."""

    scheduler: Any  # the device's: a Tick for t = 0 .. num_ticks + drain - 1
    num_ticks: int
    drain: int
    dominated: np.ndarray  # int64 [num_ticks + drain]; dominated updates completed after each tick
    applied: np.ndarray  # int64 [num_ticks + drain]; block updates (one party, one message) after each tick
    time: np.ndarray  # float64 [num_ticks + drain]; seconds
    read_depth: int  # 1 + largest `read` that the scheduler's bounds allow
    message_depth: int  # 1 + largest `apply` that they allow

    def table(self, start: int = 0, stop: int | None = None) -> Table:
        """Return ticks start to stop (default: all, with the drain), expanded."""
        ticks = np.arange(start, len(self.time) if stop is None else min(stop, len(self.time)))
        return Table._make((*self.scheduler.rows(ticks)[:4], self.time[ticks]))

    def stops(self, every: Any, updates_per_epoch: float) -> list[int]:
        """Return the numbers of ticks after which to record, one per `every` (ticks, Epochs or Seconds); the last is
        num_ticks. A tick that passes several marks at once is named once."""
        n = self.num_ticks
        return units.marks(every, updates_per_epoch, self.dominated[:n], self.time[:n])


def replay(bank: Table, index: np.ndarray, time: np.ndarray, drain: int, depth: int) -> Plan:
    """Return the plan that replays rows `index` (int [T]) of a bank whose row 0 is empty; time: seconds, [T].

    The last `drain` rows only apply; `depth`: as `message_depth`, and the most rows that a drain can have. Tables are
    padded to rounded lengths, so that runs of other seeds compile to the same program.
    """
    dominated = bank.complete.sum(1)[index].cumsum()
    applied = (bank.apply >= 0).sum((1, 2))[index].cumsum()
    num_ticks = len(index) - drain
    padded = np.zeros(rounded(num_ticks + depth + 1), np.int32)  # 0: the empty row
    padded[: len(index)] = index
    clock = np.full(len(padded), time[-1])
    clock[: len(time)] = time
    room = empty(rounded(len(bank.time)) - len(bank.time), *bank.read.shape[1:])
    rows = Tick._make((*concatenate([bank, room])[:4], None))
    return Plan(Replay(rows, padded, clock), num_ticks, drain, dominated, applied, time, 1, depth)


def rounded(n: int) -> int:
    """Return the next power of two."""
    return 1 << max(n - 1, 0).bit_length()
