"""Transcripts against the NumPy oracle, event by event: what was sent, when, and what each party has of it."""

from functools import cache

import numpy as np
import pytest

import jaxfed as jf
from jaxfed import privacy
from jaxfed.vertical import BilevelAsync, FixedDelay, Objective, SecureAggregation, Synchronous
from jaxfed.vertical.aggregation import chain, path
from tests.reference.transcripts import transcript, tree_messages, window
from tests.vertical_support import METHODS, federation, sampler

TREES = ((chain([0, 2, 1, 3]), (0, (3, 2), 1)), (((2, 0), 1, 3), path([2, 3, 0, 1])))
SCHEDULERS = {
    "synchronous": Synchronous,
    "fixed": lambda party: FixedDelay(party, read=2, message=3),
    "event queue": lambda party: BilevelAsync(party, link=0.3, jitter=0.3).slow(1, update=2.5),
}
TICKS = 60


@cache
def parties(form="dense"):
    return federation(sparse=form == "sparse")


def algorithm_of(method, batch_size=1, **options):
    extra = {"epoch_length": 21} if method == "svrg" else {}
    return METHODS[method](Objective("logistic", "l2", 0.05), lr=0.1, batch_size=batch_size, **extra, **options)


def both(method, scheduler, batch_size=1, form="dense", cut=None, **options):
    """jaxfed's transcript, the oracle's, and the table."""
    party, blocks, y = parties(form)
    algorithm, scheduler = algorithm_of(method, batch_size, **options), SCHEDULERS[scheduler](party)
    ours = privacy.record(0, algorithm, party, scheduler=scheduler, num_rounds=TICKS, window=cut)
    table = jf.vertical.plan(algorithm, party, scheduler, TICKS).table()
    rows = sampler(0, party, batch_size)
    theirs = transcript(table, blocks, y, rows, method, "logistic", "l2", 0.1, 0.05, batch_size, party.active)
    return ours, theirs if cut is None else window(theirs, *cut), table


def compare(ours, theirs, tolerance=1e-10):
    """Every number of every update and pass."""
    assert len(ours.tick) == len(theirs.updates) > 10
    wanted = theirs.updates
    for name, found in (("tick", ours.tick), ("dominator", ours.dominator), ("update", ours.update),
                        ("rows", ours.rows), ("applied", ours.applied)):  # fmt: skip
        np.testing.assert_array_equal(found, [getattr(u, name) for u in wanted], name)
    for name, found in (("z", ours.scores), ("theta", ours.theta), ("products", ours.products)):
        np.testing.assert_allclose(found, [getattr(u, name) for u in wanted], rtol=0, atol=tolerance, err_msg=name)
    assert [each.tick for each in ours.passes] == [each.tick for each in theirs.passes]
    for each, other in zip(ours.passes, theirs.passes, strict=True):
        np.testing.assert_allclose(each.theta, other.theta, rtol=0, atol=tolerance)
        np.testing.assert_allclose(each.scores, other.scores, rtol=0, atol=tolerance)


@pytest.mark.parametrize(
    "scheduler, batch_size", [("synchronous", 1), ("fixed", 3), ("event queue", 1), ("event queue", 3)]
)
@pytest.mark.parametrize("method", ["sgd", "svrg", "saga"])
@pytest.mark.usefixtures("x64")
def test_what_was_sent_is_what_the_oracle_sends(method, scheduler, batch_size):
    ours, theirs, table = both(method, scheduler, batch_size)
    compare(ours, theirs)
    weights = ours.weights[parties()[0].blocks.mask()]
    np.testing.assert_allclose(weights, np.concatenate(theirs.weights[-1]), rtol=0, atol=1e-10)
    np.testing.assert_array_equal(ours.time, table.time[ours.tick])
    assert ours.window == (0, len(table.time)) and ours.state is not None
    assert len(ours.passes) == {"sgd": 0, "svrg": int(table.snapshot.sum()), "saga": 1}[method]
    assert (ours.read >= 0).all() and (ours.read <= ours.tick[:, None]).all() and (ours.applied >= 0).all()


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("method, scheduler", [("svrg", "event queue"), ("saga", "fixed"), ("svrg", "synchronous")])
def test_windows_in_the_middle(method, scheduler):
    """With a snapshot at the first tick of the window, inside it, and at the tick after its last."""
    table = both(method, scheduler)[2]
    at = np.flatnonzero(table.snapshot)
    for start, stop in [(at[1] - 3, at[1] + 20), (at[1], at[2]), (at[1] + 1, at[2] + 1)] if len(at) else [(17, 43)]:
        ours, theirs, _ = both(method, scheduler, cut=(int(start), int(stop)))
        compare(ours, theirs)
        weights = ours.weights[parties()[0].blocks.mask()]
        np.testing.assert_allclose(weights, np.concatenate(theirs.weights[-1]), rtol=0, atol=1e-10)
        assert ours.state is None and ours.window == (start, stop)


@pytest.mark.usefixtures("x64")
def test_read_is_the_tick_of_each_answer():
    for scheduler in ("fixed", "event queue"):
        ours, _, table = both("sgd", scheduler)
        done = table.complete.cumsum(0) - table.complete
        for name, row in zip(ours.read, zip(ours.dominator, ours.update, strict=True), strict=True):
            a = parties()[0].active.index(row[0])
            for party, tick in enumerate(name):
                assert done[tick, a] + table.read[tick, a, party] == row[1] and table.read[tick, a, party] >= 0


@pytest.mark.parametrize("method, form", [("saga", "dense"), ("saga_literal", "dense"), ("svrg", "sparse")])
def test_a_recorded_run_is_the_run(method, form):
    """Bit for bit."""
    party = parties(form)[0]
    algorithm, scheduler = algorithm_of(method, 2), SCHEDULERS["event queue"](party)
    out = jf.run(0, algorithm, party, scheduler=scheduler, num_rounds=TICKS, every=TICKS, progress=False)
    seen = privacy.record(0, algorithm, party, scheduler=scheduler, num_rounds=TICKS)
    jf.testing.assert_equal(out.state, seen.state, "a transcript changes the run")
    np.testing.assert_array_equal(seen.weights, out.state.weights)
    part = privacy.record(0, algorithm, party, scheduler=scheduler, num_rounds=TICKS, window=(20, 40))
    inside = (seen.tick >= 20) & (seen.tick < 40)
    for name in ("tick", "rows", "theta", "scores", "products"):
        np.testing.assert_array_equal(getattr(part, name), getattr(seen, name)[inside])
    start = seen.passes[0]  # at w = 0
    assert start.tick == 0 and not start.scores.any() and (method == "svrg" or len(seen.passes) == 1)
    np.testing.assert_allclose(start.theta, -np.asarray(party.y) / 2, rtol=1e-6)


@pytest.mark.usefixtures("x64")
def test_sparse_blocks():
    for method in ("sgd", "saga"):
        compare(*both(method, "event queue", form="sparse")[:2])


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("bits", [32, 64, None])
def test_what_goes_over_the_trees(bits):
    """Every edge of every coalition's view holds the oracle's messages of the products and masks of the transcript."""
    masks = SecureAggregation(bits=bits, trees=TREES)
    ours, _, _ = both("sgd", "event queue", 2, secure=masks)
    party = parties()[0]
    asked = transcript_of(ours)
    pairs = dict(zip(party.active, TREES, strict=True))
    fraction = None if bits is None else masks.fraction
    wanted = tree_messages(asked, pairs, ours.masks.tolist(), np.float64, bits, fraction)
    assert ours.fraction_bits == fraction
    found = {}
    for coalition in range(4):
        view = ours.view(coalition)
        for each in view.sums:
            dominator = int(ours.dominator[each.updates[0]])
            assert each.receiver == coalition
            assert each.values.dtype == {32: np.uint32, 64: np.uint64, None: np.float64}[bits]
            found[dominator, each.tree, each.sender, each.receiver, each.leaves] = each
    assert found.keys() == wanted.keys() and len(found) == 2 * 2 * 3
    for edge, (updates, values) in wanted.items():
        np.testing.assert_array_equal(found[edge].updates, updates)
        if bits is None:
            np.testing.assert_array_equal(found[edge].values, values)
        else:
            assert found[edge].values.tolist() == values.tolist()
    two = ours.view([3, 1])
    assert {(s.tree, s.sender, s.receiver, s.leaves) for s in two.sums} == {k[1:] for k in wanted if k[3] in (1, 3)}


def transcript_of(ours):
    """As much of the oracle's transcript as `tree_messages` needs, from jaxfed's products."""
    from tests.reference.transcripts import Transcript, Update

    numbers = zip(ours.tick, ours.dominator, ours.update, ours.rows, ours.products, strict=True)
    return Transcript([Update(*each, None, None, None) for each in numbers], [], [])


def test_refusals_and_the_size_of_a_transcript():
    party = parties()[0]
    given = dict(scheduler=Synchronous(party), num_rounds=10)
    for cut, message in [
        ((3, 3), r"window: got \(3, 3\), wanted a first tick below a second one, within the 10 ticks of the run"),
        ((0, 11), r"window: got \(0, 11\), wanted a first tick below"),
        ((-1, 4), r"window: got -1, wanted a whole number of at least 0"),
        (5, r"window: got 5, wanted two ticks"),
    ]:
        with pytest.raises(ValueError, match=message):
            privacy.record(0, algorithm_of("sgd"), party, window=cut, **given)
    rows = [(np.zeros((4, 2)), np.arange(4) % 2)] * 2
    with pytest.raises(ValueError, match="data: got ClientData, wanted PartyData"):
        privacy.record(0, jf.FedAvg(jf.models.logistic_regression(2)), jf.ClientData.from_list(rows), num_rounds=2)
    with pytest.raises(ValueError, match=r"window: got .* ticks, .* GiB, wanted at most 2 GiB"):
        privacy.record(0, algorithm_of("sgd", 100_000), party, scheduler=Synchronous(party), num_rounds=5000)
    with pytest.raises(ValueError, match="parties: got 4, wanted numbers of parties, 0 to 3"):
        privacy.record(0, algorithm_of("sgd"), party, **given).view(4)
