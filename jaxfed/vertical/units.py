"""Lengths of a vertical run: rounds (ticks), passes over the data, or simulated seconds."""

from typing import Any, NamedTuple

import numpy as np

from jaxfed import checks

MOST = 10**8  # ticks or updates of a schedule: each takes some 50 bytes of the host's memory


class Epochs(NamedTuple):
    """`count` passes over the data: count * n / b dominated updates."""

    count: float


class Seconds(NamedTuple):
    """`count` simulated seconds."""

    count: float


def check(field: str, length: Any, updates_per_epoch: Any) -> None:
    """Require a positive length, of a known unit."""
    if isinstance(length, Epochs | Seconds):
        name = f"{field}: {type(length).__name__}.count"
        checks.number(name, length.count, 0)
        if not length.count > 0:
            checks.fail(name, length.count, "more than 0")
    elif isinstance(length, bool) or not isinstance(length, int | np.integer) or length < 1:
        checks.fail(field, repr(length), "a number of ticks of at least 1, Epochs(count) or Seconds(count)")
    checks.numbers("updates_per_epoch", updates_per_epoch, 0)
    if not updates_per_epoch > 0:
        checks.fail("updates_per_epoch", updates_per_epoch, "more than 0")


def check_plan(length: Any, updates_per_epoch: Any, epoch_length: Any) -> None:
    """Require what a scheduler's plan needs."""
    check("length", length, updates_per_epoch)
    if not isinstance(length, Seconds):
        bounded(length, target(length, updates_per_epoch))
    if epoch_length is not None:
        checks.whole("epoch_length", epoch_length, 1)


def bounded(length: Any, count: float) -> None:
    """Require that so many ticks or dominated updates of a schedule fit into memory."""
    if count > MOST:
        checks.fail("num_rounds", f"{length!r}, {count:.3g} ticks or updates and more",
                    f"at most {MOST:.0e} in one schedule (a run goes on from `state`)")  # fmt: skip


def foreseen(length: Any, ticks: int, time: float) -> None:
    """Require that a schedule whose first ticks take so long reaches its length in ticks that fit into memory."""
    bounded(length, max(ticks, length.count / time * ticks if isinstance(length, Seconds) and time > 0 else 0))


def target(length: Any, updates_per_epoch: float) -> float:
    """Return the length as a number: of ticks, of dominated updates, or of seconds. Rounding of the product is undone,
    so that 0.1 epochs of 30 updates are 3."""
    if isinstance(length, Epochs):
        return length.count * updates_per_epoch * (1 - 1e-12)
    return length.count * (1 - 1e-12) if isinstance(length, Seconds) else length


def reached(length: Any, ticks: Any, dominated: Any, time: Any) -> Any:
    """Return that of the three counts which `length` is measured in; numbers or arrays."""
    if isinstance(length, Epochs):
        return dominated
    return time if isinstance(length, Seconds) else ticks


def cut(length: Any, updates_per_epoch: float, dominated: np.ndarray, time: np.ndarray) -> int:
    """Return the first number of ticks after which the length is reached, or one more than there are."""
    counts = reached(length, np.arange(1, len(time) + 1), dominated, time)
    return int(np.searchsorted(counts, target(length, updates_per_epoch))) + 1


def default_every(length: Any) -> Any:
    """Return when to record a run of that length where nothing is said: each tick, each epoch, or 20 times."""
    if isinstance(length, Epochs):
        return Epochs(1)
    return Seconds(length.count / 20) if isinstance(length, Seconds) else 1


def marks(every: Any, updates_per_epoch: float, dominated: np.ndarray, time: np.ndarray) -> list[int]:
    """Return the numbers of ticks after which `every`, twice `every`, and so on is reached, and the last tick's."""
    check("every", every, updates_per_epoch)
    counts = reached(every, np.arange(1, len(time) + 1), dominated, time)
    step = target(every, updates_per_epoch)
    # which multiple each tick has reached: where that grows, one is passed
    passed = np.floor_divide(counts, step).astype(np.int64)
    found = np.flatnonzero(np.diff(passed, prepend=0) > 0) + 1
    return np.union1d(found, [len(time)]).tolist()
