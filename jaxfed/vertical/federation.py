"""A vertical federation's data: training rows, with test and validation rows under the same split of columns.

The driver and the runner know no kind of federation; what they need to know of this one, they ask of `VerticalData`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from jaxfed import steps
from jaxfed.checks import same_structure
from jaxfed.types import Carry, Measure, Timetable
from jaxfed.vertical import checks, lazy, measures, secure, traffic, units
from jaxfed.vertical.blocks import Sparse
from jaxfed.vertical.data import Depths, PartyData
from jaxfed.vertical.schedulers import Synchronous
from jaxfed.vertical.shifted import Shifted
from jaxfed.vertical.ticks import Plan

LANES = 64  # points of a sweep on the last axis at once


class VerticalData(NamedTuple):
    """Training, test and validation rows of the same parties."""

    train: PartyData
    test: PartyData | None = None
    validation: PartyData | None = None

    def with_parts(self, test: PartyData | None = None, validation: PartyData | None = None) -> "VerticalData":
        """Return the data with test or validation rows replaced where given."""
        return self._replace(test=test or self.test, validation=validation or self.validation)

    def parts(self) -> dict[str, PartyData]:
        """Return the parts that are there, by name."""
        named = {"train": self.train, "validation": self.validation, "test": self.test}
        return {name: part for name, part in named.items() if part is not None}

    def timetable(
        self, algorithm: Any, scheduler: Any, state: Any, num_rounds: Any, every: Any, mesh: Any
    ) -> Timetable:
        """Return the schedule of `num_rounds` (ticks, Epochs or Seconds) and the ticks after which to record.

        A run ends drained: after its last tick come those that only apply what is still on its way, and the last record
        is taken after them. A run that goes on from a state starts a new schedule (and an epoch of its own).

        Raises ValueError where algorithm, scheduler and data don't go together.
        """
        checks.settings(algorithm, self)
        checks.schedule(scheduler, self.train, mesh)
        per_epoch = self.train.num_rows / algorithm.batch_size
        units.check("num_rounds", num_rounds, per_epoch)  # before `every`, which follows it
        done, before = 0, None
        if state is not None:
            checks.is_state("state", state)
            done, before = int(state.round), state.totals
        every = units.default_every(num_rounds) if every is None else every
        units.check("every", every, per_epoch)
        course = plan(algorithm, self.train, scheduler, num_rounds)
        checks.countable(course)
        ticks = [0, *course.stops(every, per_epoch)]
        ends = [*ticks[:-1], course.num_ticks + course.drain]
        tell = traffic.Traffic(course, algorithm, self.train, before)
        seconds = 0.0 if before is None else float(before.time)

        def ending(stop):  # a schedule's beginning does not depend on its length, so this one has only its own drain
            ticks = min(stop - done, course.num_ticks)
            return self.timetable(algorithm, scheduler, state, ticks, ticks, mesh)

        clocked = Shifted(course.scheduler, done, seconds, Depths(course.read_depth, course.message_depth))
        named, stops = ([done + t for t in counts] for counts in (ticks, ends))
        return Timetable(clocked, named, stops, every, lambda at: tell(at - done), ending)

    def check(self, algorithm: Any) -> None:
        """Raise ValueError where an algorithm's settings don't go together with these data."""
        checks.settings(algorithm, self)

    @property
    def axis(self) -> None:
        """The mesh axis that shards the parties: none, as a run's parties share a device."""
        return None

    def lanes(self, algorithm: Any, paths: tuple[str, ...]) -> tuple[str, int]:
        """Return how a sweep over those fields should hold its lanes (see `lanes.Shape.mode`), and how many points at
        once suit the engine.

        Step sizes, penalties and a defence's strength on dense blocks share one schedule and its rows, on a last axis.
        Other lanes go one by one: with schedules or seeds of their own nothing is shared, and a batch would only be
        slower on a CPU.
        """
        suits = [path in ("lr", "objective.l2") or path.startswith("defence.") for path in paths]
        shared = all(suits) and not isinstance(self.train.blocks, Sparse)
        last = shared and hasattr(algorithm, "message")  # the literal SAGA table has no lanes
        return ("last", LANES) if last else ("one", 1)

    def default_scheduler(self) -> Synchronous:
        """Return what runs when no scheduler is given."""
        return Synchronous(self.train)

    def default_measures(self) -> tuple[Measure, ...]:
        """Return what is recorded when no measures are given."""
        return measures.DEFAULT

    def coords(self) -> dict[str, Any]:
        """Return the coordinates of a Dataset: the parties, how many features each has, who holds labels."""
        active = np.isin(np.arange(self.train.num_parties), self.train.active)
        sizes = ("party", np.array(self.train.sizes))
        return {"party": np.arange(self.train.num_parties), "party_size": sizes, "active": ("party", active)}

    def attributes(self, algorithm: Any) -> dict[str, Any]:
        """Return what a Dataset should say of the run: the labels behind -1 and +1, and the sizes of the problem."""
        train = self.train
        given = {"labels": ", ".join(f"{c} as {s}" for c, s in zip(train.classes, ("-1", "+1"), strict=False))}
        sizes = {"num_rows": train.num_rows, "num_features": train.num_features, "parameters": train.num_features}
        length = epoch_length(algorithm, train)
        more: dict[str, Any] = {} if length is None else {"epoch_length": length}
        if algorithm.secure is not None:
            more["trees"] = repr(algorithm.secure.pairs(train))
        return sizes | (given if train.classes else {}) | more

    def fit_state(self, state: Any, like: Any) -> Any:
        """Return the state of a finished run as the start of this one; nothing is on its way."""
        own = ("weights", "completed", "round", "secret")
        kept = {name: jax.tree.map(jnp.array, getattr(state, name)) for name in own}
        memory = jax.tree.map(jnp.array, state.memory)
        w = lazy.start(kept["weights"], self.train) if isinstance(self.train.blocks, Sparse) else kept["weights"]
        new = like._replace(**kept | {"weights": w, "memory": memory})
        same_structure(new, like)
        return new

    def visible(self, placed: "VerticalData", carry: Carry) -> tuple["VerticalData", Carry]:
        """Return what measures see: no products or messages on their way, so one program serves all schedules."""
        parts = {name: part.replace(depths=Depths()) for name, part in placed.parts().items()}
        return VerticalData(**parts), carry._replace(state=secure.spoil(carry.state)._replace(products=(), messages=()))

    def advice(self, algorithm: Any) -> Callable[[], str]:
        """Return what to say of a run that diverged."""
        train, objective = self.train, algorithm.objective

        def say():
            each = float(steps.initial(algorithm.lr)) * float(objective.l2) * train.num_active
            lazy = isinstance(train.blocks, Sparse) and objective.regularizer == "l2" and each >= 1
            more = f", and sparse blocks need lr l2 m < 1, here {each:.3g}" if lazy else ""
            if algorithm.secure is not None and algorithm.secure.bits is not None:
                limit = algorithm.secure.limit(train.num_parties)
                more += f", and secure holds products below {limit:.3g} (fewer fraction_bits: larger ones)"
            return f"a smaller lr may help (1 / L is {objective.constants(train).step:.3g} here{more})"

        return say

    def final(self, algorithm: Any, state: Any, timetable: Timetable, stop: int) -> Any:
        """Return the state to keep: weights as the blocks have them, memory, counts; nothing is on its way."""
        weights = secure.spoil(state).weights
        if isinstance(weights, lazy.Lazy):
            weights = lazy.value(weights, algorithm.mean(state.memory))
        totals = traffic.totals(timetable.columns(stop))
        return state._replace(weights=weights, products=(), messages=(), totals=totals)

    def trim(self, records: list[dict[str, Any]], dims: dict[str, tuple[str, ...]]) -> list[dict[str, Any]]:
        """Return the records as they are: parties are never padded."""
        del dims
        return records

    def summaries(self, per_client: None, dims: dict[str, tuple[str, ...]]) -> tuple[Callable, dict, dict]:
        """Return (what makes of a record the one to keep: itself, its dims, its coordinates)."""
        del per_client
        return lambda record: record, dims, self.coords()

    def place(
        self, algorithm: Any, scheduler: Any, mesh: Mesh | None = None, group: int | None = None
    ) -> "VerticalData":
        """Return the data on the device, its floats in jax's default type, with room for the schedule's delays."""
        del algorithm, mesh, group
        return VerticalData(**{name: part.place(scheduler.depths) for name, part in self.parts().items()})

    def local(self) -> "VerticalData":
        """Return the data: a run's parties share a device."""
        return self


def plan(algorithm: Any, party: PartyData, scheduler: Any, num_rounds: Any) -> Plan:
    """Return the schedule that a run follows: `plan(...).table()` is its table of ticks, as NumPy arrays.

    num_rounds: ticks, `Epochs` or `Seconds`, as for `run`.
    """
    checks.is_party("party", party)
    checks.settings(algorithm, party.with_parts())
    checks.schedule(scheduler, party, None)
    per_epoch = party.num_rows / algorithm.batch_size
    units.check("num_rounds", num_rounds, per_epoch)
    options: dict[str, Any] = dict(updates_per_epoch=per_epoch, epoch_length=epoch_length(algorithm, party))
    if algorithm.secure is not None:  # sums over trees take their time
        options["trees"] = algorithm.secure.pairs(party)
    return scheduler.plan(num_rounds, **options)


def epoch_length(algorithm: Any, data: Any) -> int | None:
    """Return the dominated updates between two snapshots, None for methods without: by default one pass."""
    if not hasattr(algorithm, "epoch_length"):
        return None
    return algorithm.epoch_length or -(-data.num_rows // algorithm.batch_size)
