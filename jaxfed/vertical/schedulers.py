"""Who reads, completes and applies when: a barrier after every round, or dominating loops that do not wait.

A scheduler's `plan` gives the schedule of a run of a known length; it is made on the host, from the scheduler's own
seed. Times are simulated seconds, one number or one per party.
"""

import dataclasses
from functools import partial
from typing import Any

import numpy as np

from jaxfed import checks
from jaxfed.vertical import timing, units
from jaxfed.vertical.barrier import round_seconds
from jaxfed.vertical.cutting import cut
from jaxfed.vertical.event_queue import simulate
from jaxfed.vertical.fixed_delay import FixedDelay
from jaxfed.vertical.segments import Name, assemble, choose, kinds
from jaxfed.vertical.ticks import Plan, Table, empty, replay

__all__ = ["BilevelAsync", "FixedDelay", "Synchronous"]


@dataclasses.dataclass(frozen=True)
class Synchronous:
    """All dominators read the same weights each round: the minibatch method of m b rows with step m lr. One tick each.

    The m dominators ask together. A round takes as long as the slowest answer, and then the slowest end of the m
    messages' updates at any party, each link included. Everybody waits for the slowest, so a straggler holds up all;
    the first round waits for the latest start. Fields as in `BilevelAsync`.
    """

    party: Any
    update: Any = 1.0
    reply: Any = 0.2
    link: Any = 0.1
    start: Any = 0.0
    jitter: float = 0.1
    seed: int = 0
    threads: Any = None

    slow = timing.slow

    def __post_init__(self):
        timing.settle(self)

    def plan(
        self, length: Any, *, updates_per_epoch: float, epoch_length: int | None = None, trees: Any = None
    ) -> Plan:
        """Return the schedule of a run of that length: ticks, Epochs or Seconds.

        updates_per_epoch: dominated updates in a pass over the data. With `epoch_length` (in dominated updates) every
        epoch begins with a snapshot, and its last tick completes what is left of it. trees: the pair of each dominator
        over which products are summed (`aggregation`); None: parties answer the dominator directly.
        """
        units.check_plan(length, updates_per_epoch, epoch_length)
        m, times = len(self.party.active), timing.times(self)
        seconds = partial(round_seconds, self.party, times, self.threads, seed=self.seed, trees=trees)
        num_rounds, num_ticks = 512, 0
        if not isinstance(length, units.Seconds):  # that many are enough; of seconds, try twice as many
            num_rounds = int(units.target(length, updates_per_epoch) / 2) + 1
        while not 0 < num_ticks <= num_rounds:
            num_rounds *= 2
            round_in_epoch = np.arange(num_rounds) % -(-(epoch_length or m) // m)
            begins = (round_in_epoch == 0) & (epoch_length is not None)
            left = (epoch_length or m) - round_in_epoch * m
            dominated = np.minimum(left, m).cumsum()
            time = max(self.start) + seconds(num_rounds).cumsum()
            num_ticks = units.cut(length, updates_per_epoch, dominated, time)
            units.foreseen(length, num_rounds, time[-1])
        index = np.add(begins + 1, 2 * (left < m))[:num_ticks]
        return replay(self._bank((epoch_length or m) % m), index, time[:num_ticks], 0, 1)

    def _bank(self, rest: int) -> Table:
        """Return the rows: empty, whole, whole with a snapshot, the last of an epoch, the last and first of one."""
        bank = empty(5, len(self.party.active), self.party.num_parties)
        bank.complete[1:3] = True
        bank.complete[3:, :rest] = True
        bank.read[:] = bank.apply[:] = np.where(bank.complete, 0, -1)[:, :, None]
        bank.snapshot[[2, 4]] = True
        return bank


@dataclasses.dataclass(frozen=True)
class BilevelAsync:
    """Bilevel asynchronous parties (VFB2): one dominating loop per active party, and update threads at every party.

    `event_queue` says what happens when, and how the bounds are kept.

    party: PartyData, or anything with `num_parties` and `active`. tau1, tau2: bounds, in dominated updates of all
    dominators, 0 to 120. update, reply, link: seconds of a block update, of a forward product, of a message's way to or
    from a party. start: when a party starts. jitter: coefficient of variation of each duration. threads: update threads
    of a party (m). segment_updates, segments: so many updates are simulated at a stretch, and so many stretches are
    replayed with fresh samples; segments=None simulates all anew. strict: keep the exact order in real time inside
    ticks, with about three times as many of them.
    """

    party: Any
    tau1: int = 8
    tau2: int = 8
    update: Any = 1.0
    reply: Any = 0.2
    link: Any = 0.1
    start: Any = 0.0
    jitter: float = 0.1
    seed: int = 0
    threads: Any = None
    segment_updates: int = 2000
    segments: int | None = 8
    strict: bool = False

    slow = timing.slow

    def __post_init__(self):
        timing.settle(self)
        for field in ("tau1", "tau2"):
            checks.whole(field, getattr(self, field), 0)
            if getattr(self, field) > 120:
                checks.fail(field, getattr(self, field), "at most 120: ages are kept in a byte")
        checks.whole("segment_updates", self.segment_updates, 1)
        if self.segment_updates > 10**6:
            checks.fail("segment_updates", self.segment_updates, "at most 1000000, which are simulated at once")
        checks.flag("strict", self.strict)
        if self.segments is not None:
            checks.whole("segments", self.segments, 1)

    def synchronous(self) -> Synchronous:
        """Return the synchronous run of the same parties, times and seed."""
        shared = {field.name: getattr(self, field.name) for field in dataclasses.fields(Synchronous)}
        return Synchronous(**shared)

    def plan(
        self, length: Any, *, updates_per_epoch: float, epoch_length: int | None = None, trees: Any = None
    ) -> Plan:
        """Return the schedule of a run of that length: ticks, Epochs or Seconds.

        updates_per_epoch: dominated updates in a pass over the data. With `epoch_length` (in dominated updates, of all
        dominators) all parties come to rest after each epoch, and the next begins with a snapshot. trees: as for
        `Synchronous`.
        """
        units.check_plan(length, updates_per_epoch, epoch_length)
        each, per_epoch, remainder = kinds(self.segment_updates, epoch_length)
        made: dict[Name, Table] = {}

        def at(position: int) -> tuple[Name, Table]:
            last = (position + 1) % per_epoch == 0
            kind, updates = ("last", remainder) if last and remainder < each else ("whole", each)
            name = kind, choose(position, self.segments, self.seed)
            if position == 0 and max(self.start) > 0:  # only the run's first stretch has parties that start late
                name = "late", 0
            if name not in made:
                made[name] = self._stretch(name, updates, epoch_length, trees)
            table = made[name]
            if per_epoch > 1 and position % per_epoch == 0:
                name = f"{name[0]}, first", name[1]
                snapshot = np.arange(len(table.time)) == 0
                table = made.setdefault(name, table._replace(snapshot=snapshot))
            return name, table

        return assemble(at, length, updates_per_epoch, self.party, self.tau2 + 1)

    def _stretch(self, name: Name, updates: int, epoch_length: int | None, trees: Any) -> Table:
        """Return the table of a stretch; its number and kind seed it."""
        kind, number = name
        times = timing.times(self)
        if kind != "late":
            times = times._replace(start=np.zeros_like(times.start))
        rng = np.random.default_rng((self.seed, 3, ("whole", "last", "late").index(kind), number))
        barrier = epoch_length if epoch_length is not None and epoch_length <= updates else None
        bounds = self.tau1, self.tau2
        events = simulate(self.party, times, self.threads, bounds, updates, barrier or updates, rng, trees)
        return cut(events, len(self.party.active), barrier, self.tau2 if self.strict else None)
