"""Rows that have exactly the effect of the events' order in real time (`BilevelAsync(strict=True)`).

Parties meet only in completions, so each event goes into the earliest row that keeps: the order of reads and applies at
its party, with all reads of a row before its one apply; the order of completions, one a row; an update's reads, then
its completion, then its applies. Two more rules keep the ages in rows within the bounds: reads come after the row of
the last completion before their loop's start, and completion c after all applies of the messages below c - tau2.
"""

import numpy as np

from jaxfed.vertical.event_queue import Events


def exact_rows(events: Events, order: np.ndarray, tau2: int, epoch: int) -> list[np.ndarray]:
    """Return the rows of applies [N, q], completions [N] and reads [N, q].

    order: the events' numbers in order of time, as `cutting.in_time` gives them. After every `epoch` updates a row
    begins that no earlier event shares.
    """
    n, q = events.read.shape
    rows = [0] * len(order)
    completed = [-1] * (n + 1)  # the row of completion c; the last stands for none
    ready = [0] * n  # the row of an update's last read so far
    moved, missing = [0] * n, [q] * n  # the row of a message's last apply so far; how many are missing
    latest: list[int] = []  # per message that is applied everywhere, as all before it: the last row of all these
    at = [0] * q  # each party's first free row
    seen, floor = events.seen.tolist(), 0
    for event in order.tolist():
        if event < n * q:
            party, c = divmod(event, n)
            row = max(at[party], completed[c])
            at[party] = row + 1
            moved[c] = max(moved[c], row)
            missing[c] -= 1
            while len(latest) < n and not missing[len(latest)]:
                latest.append(max(moved[len(latest)], latest[-1] if latest else 0))
                if len(latest) % epoch == 0:
                    floor = latest[-1] + 1
        elif event < n * q + n:
            c = event - n * q
            row = max(ready[c], completed[c - 1] + 1)
            if c > tau2:
                row = max(row, latest[c - tau2 - 1] + 1)
            completed[c] = row
        else:
            party, c = divmod(event - n * (q + 1), n)
            row = at[party] = max(at[party], completed[seen[c] - 1] + 1, floor)
            ready[c] = max(ready[c], row)
        rows[event] = row
    flat = np.array(rows)
    return [flat[: n * q].reshape(q, n).T, flat[n * q : n * q + n], flat[n * q + n :].reshape(q, n).T]
