"""The transcript of a run: it is played as always, and a window of it is written down as it goes."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxfed import core, nodes, runner, steps
from jaxfed.checks import fail, whole
from jaxfed.machine import compiled_advance, compiled_start
from jaxfed.privacy.transcript import Pass, Transcript
from jaxfed.vertical import engine, release, secure
from jaxfed.vertical.fixed_point import Limbs
from jaxfed.vertical.secure import Products
from jaxfed.vertical.ticks import rounded

MOST_BYTES = 2**31


def _watch(key, algorithm, scheduler, data, carry, num_rounds, kept, first):
    return core.advance(key, algorithm, scheduler, data, carry, num_rounds, (kept, first))


_advance_watched = nodes.jit(_watch, donate_argnums=(4, 6))


def record(
    seed: int | jax.Array,
    algorithm: Any,
    data: Any,
    *,
    scheduler: Any = None,
    num_rounds: Any,
    window: tuple[int, int] | None = None,
) -> Transcript:
    """Play a vertical run and return the transcript of its ticks window[0] to window[1] - 1 (default: all of them).

    Arguments as for `run`, whose numbers it has, bit for bit; a run ends with the ticks that apply what is still on its
    way. Raises ValueError for settings that don't go together, for horizontal data, and for a transcript beyond 2 GiB.
    """
    checked = runner.prepare(seed, algorithm, data, None, None, scheduler, None, num_rounds, num_rounds)
    data, scheduler, timetable, key, seed = checked
    if not hasattr(data.train, "blocks"):
        fail(
            "data", type(data.train).__name__, "PartyData: clients keep their data, and what they send is their update"
        )
    settings, total = runner.cast(algorithm, to_float=True), timetable.stops[-1]
    start, stop = in_run(window, total)
    device = runner.cast(timetable.scheduler)
    placed = data.place(settings, device)
    placed = placed._replace(train=placed.train.replace(watched=True))
    carry = compiled_start(key, settings, placed)
    shapes = jax.eval_shape(lambda c: core.one_round(key, settings, device, placed, c)[1], carry)
    size = rounded(stop - start)
    need = size * sum(s.size * s.dtype.itemsize for s in jax.tree.leaves(shapes))
    if need > MOST_BYTES:
        fail("window", f"{stop - start} ticks, {need / 2**30:.3g} GiB", f"at most {MOST_BYTES / 2**30:g} GiB")
    kept = jax.tree.map(lambda s: jnp.zeros((size, *s.shape), s.dtype), shapes)
    if start:
        carry, _ = compiled_advance(None, key, settings, device, placed, carry, start)
    table, passes, now = timetable.scheduler.inner.rows(np.arange(stop)), [], start
    if start == 0 and settings.mean_moves:
        passes.append(_pass(settings, placed.train, carry.state, 0, carry.state))
    snapshots = np.flatnonzero(table.snapshot[start:]) + start if hasattr(settings, "epoch_length") else []
    for goal in sorted({*(int(s) for s in snapshots), *(int(s) + 1 for s in snapshots), stop} - {start}):
        before = jax.tree.map(jnp.array, carry.state) if now in snapshots else None
        carry, kept = _advance_watched(
            key, settings, device, placed, carry, jnp.int32(goal - now), kept, jnp.int32(start)
        )
        if before is not None:
            passes.append(_pass(settings, placed.train, before, now, carry.state))
        now = goal
    seen = jax.tree.map(lambda x: np.asarray(x)[: stop - start], kept)
    final = data.final(settings, carry.state, timetable, timetable.stops[-1]) if stop == total else None
    weights = np.asarray(engine.weights(settings, secure.spoil(carry.state)))
    lr = settings.lr
    rates = jax.vmap(lambda t: steps.at(lr, t))(jnp.arange(start, stop)) if callable(lr) else lr
    return _assemble(algorithm, data.train, table, (start, stop), seen, passes, weights, np.asarray(rates), final)


def in_run(window: Any, total: int) -> tuple[int, int]:
    """Return a window's ticks (None: all of them); ValueError where it is not within a run of `total` ticks."""
    if window is None:
        return 0, total
    if not isinstance(window, (tuple, list)) or len(window) != 2:
        fail("window", repr(window), "two ticks, the first and the one after the last")
    for tick in window:
        whole("window", tick, 0)
    if not window[0] < window[1] <= total:
        fail("window", tuple(window), f"a first tick below a second one, within the {total} ticks of the run")
    return int(window[0]), int(window[1])


def _pass(algorithm: Any, party: Any, before: Any, tick: int, after: Any) -> Pass:
    """Return the full pass at a state's weights, whose thetas the later state's memory holds (the printed SAGA's holds
    whole gradients: there they are computed again)."""
    w = engine.weights(algorithm, before)
    theta = getattr(after.memory, "theta", None)
    theta = release.of_all(algorithm, party, w, before.secret, tick)() if theta is None else theta
    products = np.asarray(party.blocks.products(w)).T
    return Pass(tick, np.asarray(theta)[: party.num_rows], np.asarray(party.blocks.scores(w)), products)


def _assemble(algorithm, party, table, window, seen, passes, weights, lr, final) -> Transcript:
    """Return the transcript: of each tick's arrays, the rows of dominators that complete, in order."""
    start, stop = window
    after = table.complete.cumsum(0)
    before = after - table.complete
    tick, a = np.nonzero(table.complete[start:])
    at = lambda x: x[tick, a]  # noqa: E731
    update = before[start:][tick, a]
    place = np.full((len(party.active), int(after.max(initial=0)) + 1), -1)  # of an update among the window's
    place[a, update] = np.arange(len(tick))
    applies = table.apply >= 0
    if not algorithm.backward:
        applies = applies & np.isin(np.arange(party.num_parties), party.active)
    applied = _when(applies, after[:, :, None] - 1 - table.apply, place, len(tick))
    read = _when(table.read >= 0, before[:, :, None] + table.read, place, len(tick))
    secure, products = algorithm.secure, seen["products"]
    hidden = masks = None
    if isinstance(products, Products):
        hidden, masks = (at(_whole_numbers(x)) for x in (products.hidden, seen["masks"]))
        products = products.plain
    scores, theta = at(seen["scores"]), at(seen["theta"])
    if secure is not None and secure.bits is not None:  # from a number that was too large on nothing is known
        fits = np.abs(at(products)) < secure.limit(party.num_parties)
        lost = np.logical_or.accumulate(~fits.all((1, 2)))[:, None]
        scores, theta = (np.where(lost, np.nan, x).astype(x.dtype) for x in (scores, theta))
    return Transcript(
        party=party,
        window=window,
        tick=tick + start,
        time=table.time[start:][tick],
        dominator=np.asarray(party.active)[a],
        update=update,
        rows=at(seen["rows"]),
        scores=scores,
        theta=theta,
        products=at(products),
        hidden=hidden,
        masks=masks,
        read=read,
        applied=applied,
        passes=tuple(passes),
        weights=weights,
        trees=None if secure is None else secure.pairs(party),
        loss=algorithm.objective.loss,
        regularizer=algorithm.objective.regularizer,
        l2=float(algorithm.objective.l2),
        lr=lr if lr.ndim else float(lr),
        batch_size=algorithm.batch_size,
        fraction_bits=None if secure is None or secure.bits is None else secure.fraction,
        aggregated=bool(getattr(algorithm.defence, "aggregates", False)),
        backward=algorithm.backward,
        state=final,
    )


def _when(happens: np.ndarray, update: np.ndarray, place: np.ndarray, count: int) -> np.ndarray:
    """Return the tick [count, q] in which something happened to each of the window's updates, -1 where it did not.

    happens bool [T, m, q]; update int [T, m, q]: to which of the dominator's own."""
    found = np.full((count, happens.shape[2]), -1)
    tick, a, party = np.nonzero(happens)
    number = update[tick, a, party].astype(int)
    known = number < place.shape[1]
    row = np.where(known, place[a, np.minimum(number, place.shape[1] - 1)], -1)
    found[row[row >= 0], party[row >= 0]] = tick[row >= 0]
    return found


def _whole_numbers(x: Any) -> np.ndarray:
    """Return floats, uint32, or the uint64 of two limbs, as a NumPy array."""
    if isinstance(x, Limbs):
        return np.asarray(x.low, np.uint64) | (np.asarray(x.high, np.uint64) << np.uint64(32))
    return np.asarray(x)
