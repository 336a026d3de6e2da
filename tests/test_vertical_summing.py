"""Sums over trees take simulated time: against the oracle's messages, slow replays, and closed forms."""

import dataclasses
import itertools

import numpy as np
import pytest

import jaxfed as jf
from jaxfed.vertical import Objective, SecureAggregation, summing
from jaxfed.vertical.aggregation import balanced, chain, depth, path, star
from jaxfed.vertical.barrier import round_seconds
from jaxfed.vertical.cutting import cut
from jaxfed.vertical.event_queue import simulate
from jaxfed.vertical.schedulers import BilevelAsync, FixedDelay, Synchronous
from jaxfed.vertical.timing import Parties, times
from tests.reference.secure import aggregation_time
from tests.reference.vertical_tables import check_table
from tests.test_vertical_schedulers import interpret, some
from tests.vertical_support import federation

P = Parties(8, (0, 1, 2))


def pairs_of(party, seed=0, shapes=None):
    """A pair of trees for each dominator, of all shapes."""
    rng, q, found = np.random.default_rng(seed), party.num_parties, []
    for root in party.active:
        trees = []
        for _ in range(2):
            order = [root, *rng.permutation([p for p in range(q) if p != root]).tolist()]
            shape = rng.choice(shapes or ["balanced", "chain", "path", "star"])
            trees.append({"balanced": balanced, "chain": chain, "path": path}[shape](order) if shape != "star"
                         else star(root, q))  # fmt: skip
        found.append(tuple(trees))
    return tuple(found)


@pytest.mark.parametrize("seed", range(40))
def test_the_end_is_that_of_the_messages_one_by_one(seed):
    rng = np.random.default_rng(seed)
    q = int(rng.integers(1, 10))
    pair = pairs_of(Parties(q, (int(rng.integers(q)),)), seed)[0]
    numbers = rng.uniform(0, 1, (4, q)) * rng.choice([0.1, 10], (4, q))
    asked, answered, link1, link2 = numbers.tolist()
    wanted = aggregation_time(pair, answered, link1, link2, asked)
    assert summing.end(summing.hops(pair), asked, answered, link1, link2) == wanted
    rows = rng.uniform(0, 1, (4, 5, q))
    ours = summing.end(summing.hops(pair), *(column.T for column in rows), np.maximum)
    theirs = [aggregation_time(pair, rows[1, i], rows[2, i], rows[3, i], rows[0, i]) for i in range(5)]
    np.testing.assert_array_equal(ours, theirs)


def seconds_of_a_round(scheduler, trees):
    """A synchronous round without jitter, by loops."""
    party, t = scheduler.party, times(scheduler)
    q, answered = party.num_parties, []
    for root, pair in zip(party.active, trees, strict=True):
        ask = [0.0 if p == root else t.link[p] for p in range(q)]
        answered.append(aggregation_time(pair, [ask[p] + t.reply[p] for p in range(q)], t.link, t.link, ask))
    ends = []
    for p in range(q):
        free = [0.0] * scheduler.threads
        for root in party.active:
            thread = free.index(min(free))
            free[thread] = max(free[thread], 0.0 if p == root else t.link[p]) + t.update[p]
            ends.append(free[thread])
    return max(answered) + max(ends)


@pytest.mark.parametrize("seed", range(12))
def test_synchronous_rounds_without_jitter(seed):
    rng = np.random.default_rng(seed)
    draw = lambda: rng.uniform(0.1, 2, 8)  # noqa: E731
    scheduler = Synchronous(P, draw(), draw(), draw(), jitter=0.0, threads=int(rng.integers(1, 4)))
    trees = pairs_of(P, seed)
    plan = scheduler.plan(9, updates_per_epoch=100, trees=trees)
    each = seconds_of_a_round(scheduler, trees)
    np.testing.assert_allclose(plan.time, each * np.arange(1, 10), rtol=1e-12)
    plain = scheduler.plan(9, updates_per_epoch=100)
    for ours, theirs in zip(plan.table()[:4], plain.table()[:4], strict=True):
        np.testing.assert_array_equal(ours, theirs)


def random_run(seed, jitter=None, bounds=None):
    """A random scheduler, trees of its parties, and the events of 120 updates."""
    scheduler, epoch = some(seed)
    changed = {} if jitter is None else dict(jitter=jitter)
    changed |= {} if bounds is None else dict(tau1=bounds[0], tau2=bounds[1])
    scheduler = dataclasses.replace(scheduler, **changed)
    trees = pairs_of(scheduler.party, seed)
    rng = np.random.default_rng(seed)
    given = scheduler.party, times(scheduler), scheduler.threads, (scheduler.tau1, scheduler.tau2), 120, epoch
    return scheduler, trees, epoch, simulate(*given, rng, trees)


@pytest.mark.parametrize("seed", range(30))
def test_bounds_hold_while_answers_are_summed_on_their_way(seed):
    """In real time, and in the table of ticks; check_table counts others of one tick too."""
    scheduler, _, epoch, events = random_run(seed)
    n, q = events.read.shape
    m = len(scheduler.party.active)
    assert (events.read <= events.complete[:, None]).all() and (events.apply > events.complete[:, None]).all()
    assert (np.arange(n) - events.seen).max() <= scheduler.tau1
    since = np.searchsorted(events.complete, events.apply.max(1)) - np.arange(n) - 1
    assert since.max() <= scheduler.tau2
    table = cut(events, m, epoch, scheduler.tau2 if scheduler.strict else None)
    assert max(interpret(table, epoch)[2]) <= scheduler.tau2
    ages = check_table(table, q, epoch_length=epoch)
    assert ages["message_age"].max() <= scheduler.tau2 + m - 1
    assert (table.complete.sum(), table.snapshot.sum()) == (n, -(-n // epoch))
    assert ages["read_age"].max() <= scheduler.tau1 + m - 1


@pytest.mark.parametrize("seed", range(30))
def test_completions_without_jitter_are_those_of_a_slow_replay(seed):
    """From each update's own reads: never earlier than its sums; and then where no bound holds it back."""
    loose = seed % 2 == 0
    scheduler, trees, epoch, events = random_run(seed, 0.0, (120, 120) if loose else None)
    t, active = times(scheduler), scheduler.party.active
    q = scheduler.party.num_parties
    for u, a in enumerate(events.dominator):
        root = active[a]
        reads = [max(events.began[u] + (0.0 if p == root else t.link[p]), t.start[p]) for p in range(q)]
        np.testing.assert_allclose(events.read[u], reads, rtol=0, atol=1e-9)
        end = aggregation_time(trees[a], [reads[p] + t.reply[p] for p in range(q)], t.link, t.link, reads)
        assert events.complete[u] >= end - 1e-9
        if loose:
            assert events.complete[u] <= end + 1e-9
    if loose and epoch >= 20:  # each loop starts again at the end of its own update
        for a, p in enumerate(active):
            own = np.flatnonzero(events.dominator == a)
            inside = own[1:] % epoch >= len(active) * 2
            np.testing.assert_allclose(events.began[own[1:]][inside], events.apply[own[:-1], p][inside], atol=1e-9)


def test_a_loop_alone_takes_its_depth():
    """One dominator, equal times, no jitter: ask + reply + depth * link, and then the update; serial with tau2 = 0."""
    update, reply, link = 1.0, 0.25, 0.5
    party = Parties(8, (0,))
    order, found = list(range(8)), {}
    for name, tree in (("star", star(0, 8)), ("balanced", balanced(order)), ("path", path(order))):
        pair = (tree, tree)
        given = dict(update=update, reply=reply, link=link, jitter=0.0)
        sums = link + reply + depth(tree) * link
        plan = Synchronous(party, **given).plan(5, updates_per_epoch=100, trees=(pair,))
        np.testing.assert_allclose(plan.time, (sums + link + update) * np.arange(1, 6))
        events = simulate(party, times(BilevelAsync(party, **given)), 9, (120, 120), 30, 30,
                          np.random.default_rng(0), (pair,))  # fmt: skip
        np.testing.assert_allclose(events.complete, sums + (sums + update) * np.arange(30))
        events = simulate(party, times(BilevelAsync(party, **given)), 9, (0, 0), 30, 30,
                          np.random.default_rng(0), (pair,))  # fmt: skip
        np.testing.assert_allclose(events.complete, sums + (sums + link + update) * np.arange(30))
        found[name] = plan.time[-1]
    assert found["star"] < found["balanced"] < found["path"]


@pytest.mark.parametrize("kind", [Synchronous, BilevelAsync])
def test_deeper_trees_take_longer_and_stars_as_long_as_direct_answers(kind):
    """With jitter: the same durations are drawn, with trees and without. A star's masks are all but always there."""
    scheduler = kind(P, update=1.0, reply=4.0, link=0.5, jitter=0.2)
    ends = {}
    for name in ("star", "balanced", "path"):
        trees = pairs_of(P, 0, [name])
        ends[name] = scheduler.plan(400, updates_per_epoch=100, trees=trees).time[-1] / 400
    plain = scheduler.plan(400, updates_per_epoch=100)
    again = scheduler.plan(400, updates_per_epoch=100, trees=None)
    assert ends["star"] < ends["balanced"] < ends["path"]
    direct = scheduler.plan(400, updates_per_epoch=100, trees=pairs_of(P, 0, ["star"]))
    np.testing.assert_allclose(direct.time, plain.time, rtol=1e-12)
    for one, two in itertools.chain(zip(plain.table(), again.table(), strict=True),
                                    zip(plain.table()[:4], direct.table()[:4], strict=True)):  # fmt: skip
        np.testing.assert_array_equal(one, two)


def test_runs_with_masks_take_the_time_of_their_trees():
    """A plan asks `secure` for trees; FixedDelay knows nothing but its delays; a longer run begins with the shorter."""
    party, _, _ = federation()
    plain = jf.VFB2SGD(Objective("logistic", "l2", 0.05))
    trees = tuple((path([a, *(p for p in range(4) if p != a)]),) * 2 for a in party.active)
    masked = plain.replace(secure=SecureAggregation(trees=trees))
    for scheduler in (Synchronous(party), BilevelAsync(party)):
        ours = jf.vertical.plan(masked, party, scheduler, 50)
        wanted = scheduler.plan(50, updates_per_epoch=40, trees=trees)
        np.testing.assert_array_equal(ours.time, wanted.time)
        assert ours.time[49] > jf.vertical.plan(plain, party, scheduler, 50).time[49]
        longer = jf.vertical.plan(masked, party, scheduler, 80)
        np.testing.assert_array_equal(longer.time[:50], ours.time[:50])
    fixed = FixedDelay(party, 2, 1)
    both = [jf.vertical.plan(algorithm, party, fixed, 50) for algorithm in (plain, masked)]
    np.testing.assert_array_equal(both[0].time, both[1].time)
    many = round_seconds(P, times(Synchronous(P)), 3, 20_000, 0, pairs_of(P))
    assert set(many[16384:]) <= set(many[:16384]) and len(set(many[:16384])) == 16384
    few = round_seconds(P, times(Synchronous(P)), 3, 100, 0, pairs_of(P))
    np.testing.assert_array_equal(few, many[:100])
