"""A schedule of any length from drained stretches of simulated time: a bank of them, replayed in a random order.

A stretch starts and ends with all parties at rest, so any may follow any. The one at position j of a run depends on
nothing but j and the seed: a longer run begins with the shorter one.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from jaxfed.vertical import units
from jaxfed.vertical.ticks import Plan, Table, concatenate, empty, replay

Name = tuple[str, int]  # which stretch: its kind, its number among those


def choose(position: int, segments: int | None, seed: int) -> int:
    """Return which of the bank's stretches stands at a position; None: every position has its own."""
    if segments is None:
        return position
    return int(np.random.default_rng((seed, 0, position)).integers(segments))


def kinds(segment_updates: int, epoch_length: int | None) -> tuple[int, int, int]:
    """Return how many updates a stretch has, how many stretches an epoch, and how many updates the last one of these.

    A stretch holds whole epochs where they are short; else an epoch is several, the last of them with the remainder.
    """
    if epoch_length is None:
        return segment_updates, 1, segment_updates
    if epoch_length <= segment_updates:
        each = segment_updates // epoch_length * epoch_length
        return each, 1, each
    count = -(-epoch_length // segment_updates)
    return segment_updates, count, epoch_length - (count - 1) * segment_updates


def assemble(
    at: Callable[[int], tuple[Name, Table]], length: Any, updates_per_epoch: float, party: Any, depth: int
) -> Plan:
    """Return the plan that runs stretches at(0), at(1), ... until the length is reached, and drains the last.

    Reads whose update never completes stay in the last rows: nothing uses what they send. depth: 1 + the largest age of
    a message in the table.
    """
    bank: dict[Name, tuple[int, Table]] = {}
    nothing = empty(1, len(party.active), party.num_parties)
    first_rows, tables, ends = [], [], [0.0]
    rows, ticks, dominated = 1, 0, 0
    while not units.reached(length, ticks, dominated, ends[-1]) >= units.target(length, updates_per_epoch):
        name, table = at(len(tables))
        if name not in bank:
            bank[name] = rows, table
            rows += len(table.time)
        first_rows.append(bank[name][0])
        tables.append(table)
        ends.append(ends[-1] + float(table.time[-1]))
        ticks += len(table.time)
        units.foreseen(length, ticks, ends[-1])
        dominated += int(table.complete.sum())

    index = np.concatenate([np.arange(b, b + len(t.time)) for b, t in zip(first_rows, tables, strict=True)])
    time = np.concatenate([t.time + begin for begin, t in zip(ends[:-1], tables, strict=True)])
    stretch = concatenate([nothing, *(table for _, table in bank.values())])
    num_ticks = units.cut(length, updates_per_epoch, stretch.complete.sum(1)[index].cumsum(), time)
    rest = drain(tables[-1], num_ticks - (ticks - len(tables[-1].time)))
    stop = time[num_ticks - 1]
    end = np.maximum.accumulate(np.append(stop, rest.time + ends[-2]))[1:]
    index = np.append(index[:num_ticks], rows + np.arange(len(rest.time)))
    return replay(concatenate([stretch, rest]), index, np.append(time[:num_ticks], end), len(rest.time), depth)


def drain(table: Table, kept: int) -> Table:
    """Return the ticks that apply what is completed and not yet applied after the first `kept` ticks of a table.

    Each (dominator, party) applies its messages in the table's order, one a tick; a tick's time is when the table
    itself has applied them.
    """
    done = table.complete.cumsum(0)
    now = done[kept - 1]
    row, a, party = np.nonzero(table.apply[kept:] >= 0)
    number = done[kept:][row, a] - 1 - table.apply[kept:][row, a, party]
    due = number < now[a]
    row, a, party, number = row[due], a[due], party[due], number[due]
    waits = np.zeros((len(table.time) - kept, *table.apply.shape[1:]), bool)
    waits[row, a, party] = True
    tick = (waits.cumsum(0) - 1)[row, a, party]
    rest = empty(int(tick.max(initial=-1)) + 1, *table.apply.shape[1:])
    rest.apply[tick, a, party] = now[a] - 1 - number
    np.maximum.at(rest.time, tick, table.time[kept:][row])
    return rest
