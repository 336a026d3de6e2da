"""How long synchronous rounds take."""

from typing import Any

import numpy as np

from jaxfed.vertical import summing
from jaxfed.vertical.aggregation import Pair
from jaxfed.vertical.timing import Parties, Times, durations


def round_seconds(
    party: Parties, times: Times, threads: int, num_rounds: int, seed: int, trees: Any = None
) -> np.ndarray:
    """Return the seconds of each round, [num_rounds]: the slowest answer, then the slowest end of an update.

    All m messages leave at once; a party's update threads take them in the dominators' order, each the earliest free
    thread. Rounds are independent, so a bounded number of them is simulated, at most 16,384, and later ones are drawn
    from these. More rounds begin with the same ones. trees: as for `event_queue.simulate`.
    """
    m, q = len(party.active), party.num_parties
    most = min(max(2_000_000 // (5 * m * q), 256), 16384)
    rng = np.random.default_rng((seed, 1))
    seconds = _simulate(party, times, threads, min(num_rounds, most), rng, trees)
    if num_rounds <= most:
        return seconds
    again = np.random.default_rng((seed, 2)).random(num_rounds - most)
    return np.append(seconds, seconds[(again * most).astype(int)])


def _simulate(
    party: Parties, times: Times, threads: int, num_rounds: int, rng: np.random.Generator, trees: Any
) -> np.ndarray:
    drawn = durations(times, rng, (num_rounds, len(party.active)))  # [rounds, m, 5, q]
    for a, p in enumerate(party.active):
        drawn[:, a, [0, 2, 3], p] = 0.0  # the dominator's own part takes no link
    answered = drawn[:, :, :3].sum(2).max((1, 2))
    if trees is not None:
        masks = durations(times, rng.spawn(1)[0], (num_rounds, len(party.active)))[:, :, 2]
        answered = np.max([_summed(pair, drawn[:, a], masks[:, a]) for a, pair in enumerate(trees)], 0)
    free, last = np.zeros((num_rounds, party.num_parties, threads)), np.zeros(num_rounds)
    for message in range(len(party.active)):
        arrival, work = drawn[:, message, 3], drawn[:, message, 4]
        thread = free.argmin(2)[:, :, None]
        end = np.maximum(np.take_along_axis(free, thread, 2)[:, :, 0], arrival) + work
        np.put_along_axis(free, thread, end[:, :, None], 2)
        last = np.maximum(last, end.max(1))
    return answered + last


def _summed(pair: Pair, drawn: np.ndarray, masks: np.ndarray) -> np.ndarray:
    """Return when a dominator's sums over two trees are done, [rounds]; drawn [rounds, 5, q], masks [rounds, q]."""
    ask, reply, link = (drawn[:, i].T for i in range(3))
    return summing.end(summing.hops(pair), ask, ask + reply, link, masks.T, np.maximum)  # type: ignore[arg-type]
