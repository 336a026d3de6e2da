"""The simulation of bilevel asynchronous parties: when each read, completion and application happens.

A dominating loop of active party a: at time s it asks all parties. Party l evaluates its product when the request
arrives (its READ), after link_l, but not before it has started; its listener answers at once, whatever else it does,
after reply_l, and the answer takes link_l. The dominator's own part takes reply_a and no link. With the last answer the
update is ready; it completes (COMPLETE) then, or later where a bound says so. theta goes to the others, link_l. Each
party has `threads` update threads; messages get the earliest free one in order of completion, take update_l, and the
block is moved at their END (APPLY). The dominator's own message takes a thread of its own and no link. When its own
APPLY is done, the loop starts again.

Bounds count dominated updates completed in between, by all dominators. tau1: from the start of an update's reads to its
own completion. tau2: from a completion to its application, at any party. The rules that keep them (others deadlock):
- completion number c waits until all messages below c - tau2 are applied everywhere; so does a loop that starts when c
  updates are completed. So a read misses at most tau1 + tau2 of the updates completed before its own, and
  tau1 = tau2 = 0 is the serial method;
- a loop starts only while at most tau1 others read;
- a reader at place j (0: started first) completes only if each older reader, at place p < j, has an allowance of at
  least p + 1, where allowance = tau1 - completions since its start. The oldest never waits for this.
"""

from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np

from jaxfed.vertical import summing
from jaxfed.vertical.aggregation import Pair
from jaxfed.vertical.timing import Parties, Times, durations

_START, _READY = 0, 1  # at equal times loops start first: else completions could keep one waiting


class Events(NamedTuple):
    """What happened, seconds; row c is the update that completed as number c."""

    dominator: np.ndarray  # int [N], 0 to m - 1
    seen: np.ndarray  # int [N]; how many were completed when its loop started
    began: np.ndarray  # float64 [N]; when that was
    read: np.ndarray  # float64 [N, q]
    complete: np.ndarray  # float64 [N], never falling
    apply: np.ndarray  # float64 [N, q]


def simulate(
    party: Parties,
    times: Times,
    threads: int,
    bounds: tuple[int, int],
    updates: int,
    epoch: int,
    rng: np.random.Generator,
    trees: Sequence[Pair] | None = None,
) -> Events:
    """Return `updates` dominated updates from rest to rest. After every `epoch` of them all parties come to rest before
    the next starts. bounds: (tau1, tau2). trees: of each dominator, the pair over which answers are summed on their way
    (Algorithm 1); a message takes its sender's link, and masks leave when the request arrives."""
    (tau1, tau2), active, q = bounds, party.active, party.num_parties
    drawn = durations(times, rng, (updates,))
    ask, reply, send, work = (drawn[:, i] for i in (0, 1, 3, 4))
    answer = reply + drawn[:, 2]  # from the read to the answer's arrival
    ways = None if trees is None else [summing.hops(pair) for pair in trees]
    masks = None if trees is None else durations(times, rng.spawn(1)[0], (updates,))[:, 2]
    late, latest = times.start, float(times.start.max())
    free = np.repeat(times.start, threads)  # when each thread is, [q * threads]
    base = np.arange(q) * threads
    began, seen, complete, dominator, order, applied = [], [], [], [], [], []  # applied: running maximum, everywhere
    apply = np.empty((updates, q))  # by number of start, as `drawn`
    line: list[int] = []  # updates that read, oldest first
    held: list[tuple] = []  # ready, but an older one has no allowance
    idle: deque[tuple] = deque()  # loops that wait for a place among the readers
    heap: list[tuple] = sorted((float(late[p]), _START, float(late[p]), a) for a, p in enumerate(active))
    limit = min(epoch, updates)
    while len(order) < updates:
        if not heap:  # all at rest
            idle.clear()
            heap = [(applied[-1], _START, applied[-1], a) for a in range(len(active))]
            limit = min(limit + epoch, updates)
        now, kind, which, a = heappop(heap)
        done, p = len(order), active[a]
        gate = applied[done - tau2 - 1] if done > tau2 else 0.0
        if gate > now and not (kind == _START and len(began) == limit):
            heappush(heap, (gate, kind, which, a))
        elif kind == _START:
            u = len(began)
            if u == limit:
                continue
            if len(line) > tau1:
                idle.append((which, a))
                continue
            ask[u, p] = send[u, p] = 0.0
            answer[u, p] = reply[u, p]
            read = ask[u] + now if now >= latest else np.maximum(ask[u] + now, late)
            if ways is None or masks is None:
                arrivals = read + answer[u]
                ready = arrivals.item(arrivals.argmax())
            else:
                columns = read, read + reply[u], drawn[u, 2], masks[u]
                ready = summing.end(ways[a], *(column.tolist() for column in columns))
            heappush(heap, (ready, _READY, u, a))
            line.append(u)
            began.append(now)
            seen.append(done)
            dominator.append(a)
        elif any(tau1 - done + seen[v] <= j for j, v in enumerate(line[: line.index(which)])):
            held.append((which, a))
        else:
            line.remove(which)
            order.append(which)
            complete.append(now)
            thread = free.reshape(q, threads).argmin(1) + base
            end = np.maximum(free[thread], send[which] + now)
            end += work[which]
            free[thread] = apply[which] = end
            last = end.item(end.argmax())
            applied.append(max(last, applied[-1]) if applied else last)
            own = end.item(p)
            heappush(heap, (own, _START, own, a))
            for u, b in held:
                heappush(heap, (now, _READY, u, b))
            held.clear()
            if idle:
                wanted, b = idle.popleft()
                heappush(heap, (now, _START, wanted, b))
    at, begin = np.array(order), np.array(began)
    reads = np.maximum(ask + begin[:, None], late)
    return Events(
        np.array(dominator)[at], np.array(seen)[at], begin[at], reads[at], np.array(complete), apply[at]
    )  # fmt: skip
