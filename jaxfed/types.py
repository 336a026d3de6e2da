"""The few types that everything else speaks of.

Axis letters, used in every docstring: C clients, K cohort slots, q parties, m dominators, n rows, b minibatch,
d features, T rounds, S sweep points, R records.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax

Array = jax.Array
Key = jax.Array  # a typed key, from `jax.random.key`
State = Any  # what an algorithm carries from round to round, a NamedTuple of arrays
Info = Any  # what is only looked at: a NamedTuple of scalars, kept for recorded rounds
Event = Any  # who acts and how stale, made by a scheduler
Data = Any  # any pytree that the algorithm and the measures understand
Params = Any  # the parameters of a model


class Algorithm(Protocol):
    """A frozen pytree of hyperparameters with two pure methods.

    It may have two more, for what can be looked up for many rounds at once, before they are played one by one:
    `block_size(data) -> int`, static, and `prepare(key, state, data, events, most) -> (state, events, length)`. Events
    have a first axis of that size; the returned ones, with a field `time`, are what `step` then gets one by one, the
    first `length` of them exactly (1 to `most`), before `prepare` is called again. So it may move counters on for all
    of them. Blocks must never change a result.
    """

    def init(self, key: Key, data: Data) -> State:
        """Return the state before the first round."""
        ...

    def step(self, key: Key, state: State, data: Data, event: Event) -> tuple[State, Info]:
        """Return the state after one more round."""
        ...


class Scheduler(Protocol):
    """A frozen pytree that says who acts in round t, and how old is what they read."""

    def __call__(self, key: Key, t: Array) -> Event:
        """Return the event of round t; its field `time` is the simulated clock at the round's end, in seconds."""
        ...


class Measure(NamedTuple):
    """Named arrays computed from a state in one pass over the data.

    `fn(algorithm, state, data)` returns a dict of arrays whose axes are named by `dims`. On a mesh it sees all clients
    (and those that pad their number, which are cut off its result); with `per_device` it sees each device's own.
    """

    fn: Callable[[Any, State, Data], dict[str, Array]]
    dims: tuple[str, ...] = ()
    per_device: bool = False


class Timetable(NamedTuple):
    """The rounds of one run, as its data lay them out: the device's scheduler, and when to record.

    `stops`: rounds of the device after which to record, the first (before any) included; `rounds`: what the records are
    called. `columns(stop)` returns what the schedule itself tells of that moment, numbers to add to the record.
    `ending(stop)`: for a run that is interrupted there, the timetable of the rounds that bring it to an orderly end.
    """

    scheduler: Any
    rounds: list[int]
    stops: list[int]
    every: Any  # what was asked for, or the default
    columns: Callable[[int], dict[str, Any]] = lambda stop: {}
    ending: Callable[[int], "Timetable | None"] = lambda stop: None


class Carry(NamedTuple):
    """What the driver carries: rounds done (int32), simulated seconds (float), and the algorithm's state."""

    round: Any
    time: Any
    state: State


class FedState(NamedTuple):
    """A horizontal state. Leaves under `server` are replicated, leaves under `clients` have the client axis first."""

    server: Any
    clients: Any
