"""Delays of a fixed number of ticks: for a sweep over staleness, as one compiled program."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxfed import checks
from jaxfed.nodes import PyTreeNode, field
from jaxfed.types import Array, Key
from jaxfed.vertical import timing, units
from jaxfed.vertical.ticks import Plan, Tick


def _static(default: Any = ...) -> Any:
    return field(pytree_node=False, **({} if default is ... else {"default": default}))


_CHUNK = 1024


class FixedDelay(PyTreeNode):
    """Each dominator completes one update a tick; reads are `read` ticks before it, applies `message` ticks after it.

    read, message: ticks, ints or int [m, q] (dominator, party), traced; 0: the same tick. bound: the largest delay that
    may be set, static (default: the largest of these). The first completion is at tick max(read). With `epoch_length` E
    (set by `plan`) an epoch is bound + ceil(E / m) + bound ticks: reads only, completions (the last tick completes what
    is left of E), applies only; nothing crosses from one to the next. The bound, not the delays, sets that length.
    tick: seconds of a tick. last: ticks after which nothing is read or completed.
    """

    party: Any = _static()
    read: Any = 0
    message: Any = 0
    bound: Any = _static(None)
    tick: Any = 1.0
    last: Any = 2**30
    epoch_length: int | None = _static(None)

    def __post_init__(self):
        if not isinstance(self.party, timing.Parties):
            object.__setattr__(self, "party", timing.parties(self.party))
        if self.bound is None:
            if isinstance(self.read, Tracer) or isinstance(self.message, Tracer):
                checks.fail("bound", None, "a whole number, because the delays are traced")
            _check(self)
            object.__setattr__(self, "bound", int(max(np.max(self.read), np.max(self.message))))

    def __call__(self, key: Key | None, t: Array) -> Tick:
        """Return tick t."""
        del key
        read, message = self._delays(jnp)
        m, bound = len(self.party.active), self.bound
        t = jnp.asarray(t, jnp.int32)
        if self.epoch_length is None:
            s, begin, first = t, 0, read.max()  # ticks since the epoch began, its first tick, its first completion
            whole = self.last - first + jnp.zeros(m, jnp.int32)  # updates of each dominator in the epoch
            snapshot = jnp.zeros((), bool)
        else:
            ticks = -(-self.epoch_length // m)
            s, first = t % (ticks + 2 * bound), bound
            begin = t - s
            rest = self.epoch_length % m
            whole = jnp.where((rest == 0) | (np.arange(m) < rest), ticks, ticks - 1).astype(jnp.int32)
            whole = jnp.clip(self.last - begin - first, 0, whole)
            snapshot = (s == 0) & (t < self.last)
        whole = jnp.maximum(whole, 0)
        before, after = jnp.clip(s - first, 0, whole), jnp.clip(s - first + 1, 0, whole)
        asked, due = s - first + read, s - first - message  # numbers of updates within the epoch
        whole, before, applied = whole[:, None], before[:, None], after[:, None] - 1 - due
        ahead = jnp.where((asked >= 0) & (asked < whole), asked - before, -1)
        age = jnp.where((due >= 0) & (due < whole), applied, -1)
        time = (t + 1) * jnp.asarray(self.tick, float)
        return Tick(ahead.astype(jnp.int8), after > before[:, 0], age.astype(jnp.int8), snapshot, time)

    def rows(self, ticks: np.ndarray) -> Tick:
        """Return those ticks (int [T]), stacked, as NumPy arrays."""
        parts = []
        for begin in range(0, max(len(ticks), 1), _CHUNK):  # of one length, so that it compiles once
            part = ticks[begin : begin + _CHUNK]
            rows = _stack(self, np.resize(part, _CHUNK) if len(part) else np.zeros(_CHUNK, int))
            parts.append([np.asarray(column)[: len(part)] for column in rows])
        return Tick._make(np.concatenate(columns) for columns in zip(*parts, strict=True))

    def plan(
        self, length: Any, *, updates_per_epoch: float, epoch_length: int | None = None, trees: Any = None
    ) -> Plan:
        """Return the schedule of a run of that length: ticks, Epochs or Seconds. The drain has `bound` ticks.

        updates_per_epoch: dominated updates in a pass over the data. epoch_length: in dominated updates. trees: of the
        sums of products; they take no time here, where all that is known of delays is given.
        """
        del trees
        units.check_plan(length, updates_per_epoch, epoch_length)
        _check(self)
        most = units.target(length, updates_per_epoch)  # a number of ticks that is surely enough:
        if isinstance(length, units.Epochs):
            most *= 1 if epoch_length is None else (_period(self, epoch_length) / epoch_length)
            most += self.bound + (0 if epoch_length is None else _period(self, epoch_length))
        elif isinstance(length, units.Seconds):
            most /= float(self.tick)
        units.bounded(length, most)
        num_ticks = int(most) + 2
        dominated, _ = self._counts(num_ticks, num_ticks, epoch_length)
        time = np.arange(1, num_ticks + self.bound + 1) * float(self.tick)
        num_ticks = units.cut(length, updates_per_epoch, dominated, time[:num_ticks])
        total = num_ticks + self.bound
        dominated, applied = self._counts(total, num_ticks, epoch_length)
        scheduler = self.replace(last=num_ticks, epoch_length=epoch_length)
        return Plan(scheduler, num_ticks, self.bound, dominated, applied, time[:total], self.bound + 1, self.bound + 1)

    def _delays(self, xp: Any) -> tuple[Any, Any]:
        """Return both delays as int [m, q]."""
        shape = len(self.party.active), self.party.num_parties
        return tuple(xp.broadcast_to(xp.asarray(delay), shape).astype("int32") for delay in (self.read, self.message))

    def _counts(self, num_ticks: int, last: int, epoch_length: int | None) -> tuple[np.ndarray, np.ndarray]:
        """Return the dominated and block updates after each tick."""
        (read, message), m = self._delays(np), len(self.party.active)
        t = np.arange(num_ticks)
        if epoch_length is None:
            completes, rest = t >= read.max(), np.full(num_ticks, m)
        else:
            s = t % _period(self, epoch_length) - self.bound
            completes = (s >= 0) & (s < -(-epoch_length // m))
            rest = np.minimum(epoch_length - s * m, m)
        count = np.where(completes & (t < last), rest, 0)  # dominators that complete
        applied = np.zeros(num_ticks, np.int64)
        for delay in range(int(message.max()) + 1):
            parties = np.append(0, (message == delay).sum(1).cumsum())  # pairs, by how many dominators complete
            applied[delay:] += parties[count[: max(num_ticks - delay, 0)]]
        return count.cumsum(), applied.cumsum()


@jax.jit
def _stack(scheduler: FixedDelay, ticks: Array) -> Tick:
    return jax.vmap(lambda t: scheduler(None, t))(ticks)


def _period(self: FixedDelay, epoch_length: int) -> int:
    return -(-epoch_length // len(self.party.active)) + 2 * self.bound


def _check(self: FixedDelay) -> None:
    """Require whole delays of a fitting shape, within the bound."""
    shape = (len(self.party.active), self.party.num_parties)
    for name in ("read", "message"):
        delay = np.asarray(getattr(self, name))
        if delay.dtype.kind not in "iu" or delay.shape not in ((), shape):
            checks.fail(name, f"{delay.dtype}{list(delay.shape)}", f"an int, or ints {list(shape)}: dominator, party")
        checks.numbers(name, delay, 0, 120)
    checks.number("tick", self.tick, 0)
    if not self.tick > 0:
        checks.fail("tick", self.tick, "more than 0 seconds")
    if self.bound is not None:
        checks.whole("bound", self.bound, 0)
        checks.numbers("bound", self.bound, 0, 120)
        if self.bound < max(np.max(self.read), np.max(self.message)):
            most = max(np.max(self.read), np.max(self.message))
            checks.fail("bound", self.bound, f"at least the largest delay, {most}")
