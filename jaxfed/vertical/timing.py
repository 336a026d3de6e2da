"""How long parties take: per-party times of an update, a reply and a link, with jitter, and stragglers.

Each duration is multiplied by its own factor, uniform on 1 +- sqrt(3) jitter: mean 1, coefficient of variation
`jitter`, never 0.
"""

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from jaxfed import checks


class Parties(NamedTuple):
    """What a schedule needs of the data: how many parties, and which of them dominate."""

    num_parties: int
    active: tuple[int, ...]


class Times(NamedTuple):
    """Mean seconds per party, float [q]."""

    update: np.ndarray
    reply: np.ndarray
    link: np.ndarray
    start: np.ndarray
    jitter: float


def parties(party: Any) -> Parties:
    """Return the numbers of parties behind a PartyData, or anything with `num_parties` and `active`."""
    if not (hasattr(party, "num_parties") and hasattr(party, "active")):
        checks.fail("party", type(party).__name__, "PartyData, or anything with num_parties and active")
    checks.whole("party.num_parties", party.num_parties, 1)
    active = tuple(int(p) for p in party.active)
    if not active or len(set(active)) < len(active) or not set(active) <= set(range(party.num_parties)):
        checks.fail("party.active", list(active), f"distinct party numbers, 0 to {party.num_parties - 1}")
    return Parties(int(party.num_parties), active)


def per_party(field: str, value: Any, num_parties: int) -> tuple[float, ...]:
    """Return one number a party, from one for all or one each."""
    if value is None or isinstance(value, dict):
        checks.fail(field, repr(value), f"a number, or one per party: [{num_parties}]")
    checks.numbers(field, value, 0)
    if np.shape(value) not in ((), (num_parties,)):
        checks.fail(field, f"shape {list(np.shape(value))}", f"a number, or one per party: [{num_parties}]")
    return tuple(np.broadcast_to(np.asarray(value, float), num_parties).tolist())


def settle(scheduler: Any) -> None:
    """Check a new scheduler's party, times, threads and seed, and put them into their full form."""
    party = parties(scheduler.party)
    values: dict[str, Any] = {"party": party}
    for field in ("update", "reply", "link", "start"):
        values[field] = per_party(field, getattr(scheduler, field), party.num_parties)
    if not min(values["update"]) > 0:
        checks.fail("update", min(values["update"]), "more than 0 seconds")
    checks.number("jitter", scheduler.jitter, 0, 0.57)  # at 1 / sqrt(3) a duration could be 0
    checks.whole("seed", scheduler.seed, 0)
    values["threads"] = len(party.active) if scheduler.threads is None else scheduler.threads
    checks.whole("threads", values["threads"], 1)
    for field, value in values.items():
        object.__setattr__(scheduler, field, value)


def times(scheduler: Any) -> Times:
    """Return a scheduler's times as arrays."""
    columns = [np.array(getattr(scheduler, field)) for field in ("update", "reply", "link", "start")]
    return Times._make((*columns, float(scheduler.jitter)))


def slow(self: Any, party: int, update: float = 1.0, reply: float = 1.0, link: float = 1.0, start: float = 0.0) -> Any:
    """Return a copy with that party's times multiplied, and `start` (seconds) added to its start: a straggler."""
    checks.whole("party", party, 0)
    if party >= self.party.num_parties:
        checks.fail("party", party, f"a party number, 0 to {self.party.num_parties - 1}")
    changed = {}
    for field, factor in (("update", update), ("reply", reply), ("link", link), ("start", start)):
        checks.number(field, factor, 0)
        values = list(getattr(self, field))
        values[party] = values[party] + factor if field == "start" else values[party] * factor
        changed[field] = tuple(values)
    return dataclasses.replace(self, **changed)


def durations(times: Times, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Return seconds [*shape, 5, q]: the request's link, the reply, the answer's link, the message's link, the update.

    Drawn row by row: more rows begin with the same ones.
    """
    mean = np.stack([times.link, times.reply, times.link, times.link, times.update])
    if times.jitter == 0:
        return np.broadcast_to(mean, (*shape, *mean.shape)).copy()
    factor = rng.random((*shape, *mean.shape))
    factor *= 2 * np.sqrt(3) * times.jitter
    factor += 1 - np.sqrt(3) * times.jitter
    factor *= mean
    return factor
