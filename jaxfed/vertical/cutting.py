"""From events in real time to ticks: intervals that are as long as the rules allow.

Intervals: applies go first, then reads, then completions. So a message may not complete and be applied in one interval
(then, as a dominator's next loop starts after its own apply, no dominator completes twice or reads twice either), and a
(dominator, party) pair may not apply twice. Row t of the table holds the reads and completions of interval t and the
applies of interval t + 1: the same sequence, in the order that `ticks` fixes. An apply may come before reads that in
real time precede it within the interval, never after one that follows it: no read misses more than in real time, and no
message is older when it is applied.

Each rule says that the partner of an event falls in a later interval. With the events numbered in order of time, an
interval that begins at event b ends before the smallest partner of any event from b on: a suffix minimum.
"""

import numpy as np

from jaxfed.vertical.event_queue import Events
from jaxfed.vertical.exact_order import exact_rows
from jaxfed.vertical.ticks import Table, empty


def cut(events: Events, num_active: int, epoch: int | None, strict: int | None = None) -> Table:
    """Return the table of events that start and end at rest. Ticks in which nothing happens are left out.

    Every `epoch` updates there is a barrier; the first tick after it, and the first of all, is a snapshot (None: none).
    strict: tau2, for the rows of `exact_order` in place of intervals. A tick's time, in seconds, is that of the latest
    event executed so far.
    """
    n, q = events.read.shape
    order, rank = in_time(events)
    if strict is None:
        apply, complete, read = (rank[part] for part in _parts(n, q))
        own = [np.flatnonzero(events.dominator == a) for a in range(num_active)]
        interval = _intervals(_partners(apply, complete, own))
        rows = [interval[apply] - 1, interval[complete], interval[read]]
    else:
        rows = exact_rows(events, order, strict, epoch or n)
    used = np.zeros(max(part.max() for part in rows) + 1, bool)
    for part in rows:
        used[part] = True
    apply, complete, read = (np.cumsum(used)[part] - 1 for part in rows)
    table = _fill(events, num_active, int(used.sum()), apply, complete, read)
    if epoch:
        table.snapshot[np.minimum.reduceat(read.min(1), np.arange(0, n, epoch))] = True
    return table


def in_time(events: Events) -> tuple[np.ndarray, np.ndarray]:
    """Return the events' numbers in order of time, and the place of each number in that order.

    Numbers: applies, party by party, then completions, then reads, party by party. So at equal times applies come
    first, then completions: that never makes an age larger.
    """
    times = np.concatenate([events.apply.T.ravel(), events.complete, events.read.T.ravel()])
    order = np.argsort(times, kind="stable")  # each party's run is nearly sorted, which this makes use of
    rank = np.empty(len(times), np.int32)
    rank[order] = np.arange(len(times), dtype=np.int32)
    return order, rank


def _parts(n: int, q: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the numbers that `in_time` gives to applies [N, q], completions [N] and reads [N, q]."""
    apply = np.arange(n * q).reshape(q, n).T
    return apply, n * q + np.arange(n), n * (q + 1) + apply


def _partners(apply: np.ndarray, complete: np.ndarray, own: list[np.ndarray]) -> np.ndarray:
    """Return for each event, by place in time, the first event that may not share its interval."""
    total = 2 * apply.size + len(complete)
    partner = np.full(total + 1, total, np.int32)
    partner[complete] = apply.min(1)
    for mine in own:
        column = np.sort(apply[mine], axis=0)
        partner[column[:-1]] = column[1:]
    return partner


def _intervals(partner: np.ndarray) -> np.ndarray:
    """Return the interval of every event, from 0, made from left to right as long as possible."""
    end = np.minimum.accumulate(partner[::-1])[::-1].tolist()
    last = len(end) - 1
    begins, b = np.zeros(last, np.int32), end[0]
    while b < last:
        begins[b] = 1
        b = end[b]
    return np.cumsum(begins)


def _fill(events: Events, num_active: int, num_rows: int, apply, complete, read) -> Table:
    """Return the table with every event in its row."""
    table = empty(num_rows, num_active, events.read.shape[1])
    party, dominator = np.arange(events.read.shape[1]), events.dominator[:, None]
    table.complete[complete, events.dominator] = True
    table.read[read, dominator, party] = 0
    number = np.empty(len(complete), int)  # of each update among its dominator's own
    for a in range(num_active):
        mine = events.dominator == a
        number[mine] = np.arange(mine.sum())
    done = table.complete.cumsum(0)[apply, dominator]
    table.apply[apply, dominator, party] = done - 1 - number[:, None]
    for rows, times in ((apply, events.apply), (complete, events.complete), (read, events.read)):
        np.maximum.at(table.time, rows, times)
    np.maximum.accumulate(table.time, out=table.time)
    return table
