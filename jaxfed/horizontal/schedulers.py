"""Who takes part in a round, and how old the server model is that they read. A round takes one simulated second."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxfed import checks
from jaxfed.horizontal.federate import Event
from jaxfed.nodes import PyTreeNode, field
from jaxfed.types import Array, Key


def _static(default: Any = ...) -> Any:
    return field(pytree_node=False, **({} if default is ... else {"default": default}))


class FullParticipation(PyTreeNode):
    """Every client, every round. `seconds`: simulated seconds a round."""

    num_clients: int = _static()
    seconds: Any = 1.0

    @property
    def cohort_size(self) -> int:
        """Slots of an event."""
        return self.num_clients

    @property
    def max_staleness(self) -> int:
        """The largest delay, in rounds."""
        return 0

    def __call__(self, key: Key, t: Array) -> Event:
        """Return the event of round t."""
        del key
        return Event((t + 1) * self.seconds, jnp.arange(self.num_clients, dtype=jnp.int32))


class UniformCohort(PyTreeNode):
    """`cohort_size` clients drawn uniformly without replacement, anew each round (APFL, Algorithm 1).

    Floyd's sampling: nothing in a round grows with `num_clients`. With `strata=S` the clients are cut into S ranges of
    equal length and each gives cohort_size / S of them: no longer exactly uniform, so only on request.
    """

    num_clients: int = _static()
    cohort_size: int = _static()
    strata: int = _static(1)
    seconds: Any = 1.0

    @property
    def max_staleness(self) -> int:
        """The largest delay, in rounds."""
        return 0

    def __call__(self, key: Key, t: Array) -> Event:
        """Return the event of round t; ids are sorted."""
        each, span = self.cohort_size // self.strata, self.num_clients // self.strata
        keys = jax.random.split(key, self.strata)
        ids = jax.vmap(lambda k: floyd(k, span, each))(keys) + span * jnp.arange(self.strata)[:, None]
        return Event((t + 1) * self.seconds, ids.reshape(-1).astype(jnp.int32))


def floyd(key: Key, n: int, k: int) -> Array:
    """Return k distinct numbers below n, uniformly over all such sets, sorted; O(k^2) work, nothing of size n."""
    top = jnp.arange(n - k, n, dtype=jnp.int32)  # int32: the same cohorts with and without x64
    drawn = jax.random.randint(key, (k,), 0, top + 1, dtype=jnp.int32)

    def body(j, chosen):  # take the draw, or the top if it is taken already (Bentley and Floyd 1987)
        seen = jnp.any(chosen == drawn[j])
        return chosen.at[j].set(jnp.where(seen, top[j], drawn[j]))

    return jnp.sort(jax.lax.fori_loop(0, k, body, jnp.full((k,), -1, drawn.dtype)))


class Stale(PyTreeNode):
    """Clients of another scheduler read server models that are `delay` rounds old ([C] or a number).

    `max_staleness` bounds the delay (static: it sizes the buffer); the algorithm needs at least the same bound. Before
    round `delay` the initial model is read.
    """

    inner: Any
    delay: Any
    max_staleness: int = _static()

    @property
    def num_clients(self) -> int:
        """The clients drawn from."""
        return self.inner.num_clients

    @property
    def cohort_size(self) -> int:
        """Slots of an event."""
        return self.inner.cohort_size

    def __call__(self, key: Key, t: Array) -> Event:
        """Return the event of round t."""
        event = self.inner(key, t)
        delay = jnp.broadcast_to(jnp.asarray(self.delay), (self.num_clients,))[event.ids]
        return event._replace(delay=delay.astype(jnp.int32))


class FromSpeeds(PyTreeNode):
    """A virtual clock: client i computes for `seconds[i]` and hands in at the end of the round in which it is done.

    The server closes a round every `interval` seconds and a client starts again from the model it then gets. So client
    i takes part every p_i = ceil(seconds[i] / interval) rounds with an update that is p_i - 1 rounds old. Clients
    slower than `max_staleness + 1` intervals are refused by the check.
    """

    seconds: Any
    max_staleness: int = _static()
    interval: Any = 1.0

    @property
    def num_clients(self) -> int:
        """The clients drawn from."""
        return np.shape(self.seconds)[0]

    @property
    def cohort_size(self) -> int:
        """Slots of an event."""
        return self.num_clients

    def __call__(self, key: Key, t: Array) -> Event:
        """Return the event of round t; idle clients are masked."""
        del key
        ids = jnp.arange(self.num_clients, dtype=jnp.int32)
        # the margin keeps 4.9 / 0.7 at 7 in float32
        period = jnp.maximum(jnp.ceil(self.seconds / self.interval * (1 - 1e-6)), 1).astype(jnp.int32)
        return Event((t + 1) * self.interval, ids, (t + 1) % period == 0, period - 1)


class Replay(PyTreeNode):
    """Events from tables whose first axis is the round: time [T], ids [T, K], active and delay [T, K] or None."""

    events: Event
    num_clients: int = _static()
    max_staleness: int = _static(0)

    @property
    def cohort_size(self) -> int:
        """Slots of an event."""
        return self.events.ids.shape[1]

    def __call__(self, key: Key, t: Array) -> Event:
        """Return the event of round t."""
        del key
        return jax.tree.map(lambda table: table[t], self.events)


def participation(seed: Any, scheduler: Any, num_rounds: int) -> np.ndarray:
    """Return how often each client takes part in the first rounds of `run(seed, ...)`, int [C]; 0: never sampled.

    A schedule does not depend on what is learned, so this needs no run.
    """
    event_key = jax.random.split(checks.seed(seed)[0], 3)[1]  # as in `core`
    rounds = jnp.arange(num_rounds, dtype=jnp.int32)
    events = jax.jit(jax.vmap(lambda t: scheduler(jax.random.fold_in(event_key, t), t)))(rounds)
    ids = np.asarray(events.ids).ravel()
    if events.active is not None:
        ids = ids[np.asarray(events.active).ravel()]
    return np.bincount(ids, minlength=scheduler.num_clients)
