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
    """A frozen pytree of hyperparameters with two pure methods."""

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


class Carry(NamedTuple):
    """What the driver carries: rounds done (int32), simulated seconds (float), and the algorithm's state."""

    round: Any
    time: Any
    state: State


class FedState(NamedTuple):
    """A horizontal state. Leaves under `server` are replicated, leaves under `clients` have the client axis first."""

    server: Any
    clients: Any
