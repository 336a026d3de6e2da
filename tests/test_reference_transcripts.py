"""The oracle of transcripts: runs worked out by hand, the replayed run, and releases whose effect is known."""

import numpy as np
import pytest

from tests.reference.transcripts import transcript, tree_messages, window
from tests.reference.vertical import replay
from tests.reference.vertical_losses import slope
from tests.reference.vertical_problems import problem, sampler
from tests.reference.vertical_tables import Table, check_table, random_table, synchronous_table

METHODS = pytest.mark.parametrize("method", ["sgd", "svrg", "saga"])


def run(table, method, batch_size=2, active=(2, 0), regularizer="l2", lr=0.1, l2=0.1, n=12, targets=None, **options):
    blocks, y = problem(n=n)
    y = y if targets is None else targets
    loss = options.pop("loss", "logistic")
    rows = sampler(n, batch_size)
    seen = transcript(table, blocks, y, rows, method, loss, regularizer, lr, l2, batch_size, active, **options)
    return seen, (table, blocks, y, rows, method, loss, regularizer, lr, l2, batch_size)


def a_table(seed, method="sgd", updates=40, m=2):
    return random_table(np.random.default_rng(seed), 3, m, updates, 3, 4, 10 if method == "svrg" else None)


def test_one_party_by_hand():
    """One row x = 2, y = 3, squared loss, lr 0.1, l2 0.5: w is 0, 1.2 and 1.38, see test_vertical_reference."""
    once = np.array([[2.0]]), [3.0], lambda a, u: np.array([0])
    for method, passes in (("sgd", []), ("svrg", [(0, -6, 0), (1, -1.2, 2.4)]), ("saga", [(0, -6, 0)])):
        table = synchronous_table(1, 1, 2, 1 if method == "svrg" else None)
        seen = transcript(table, [once[0]], *once[1:], method, "squared", "l2", 0.1, 0.5)
        wanted = [(0, 0, 0, 0, 0.0, 0.0, -6.0, 0), (1, 0, 1, 0, 2.4, 2.4, -1.2, 1)]
        got = [
            (u.tick, u.dominator, u.update, *u.rows, *u.products[0], *u.z, *u.theta, *u.applied) for u in seen.updates
        ]
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-14)
        np.testing.assert_allclose([w[0][0] for w in seen.weights], [1.2, 1.38], rtol=0, atol=1e-14)
        got = [(p.tick, *p.theta, *p.scores) for p in seen.passes]
        assert len(got) == len(passes)
        np.testing.assert_allclose(got, passes, rtol=0, atol=1e-14)


def test_a_delayed_message_by_hand():
    """The table of the test of that name in test_vertical_reference: party 0 applies update 0 in tick 2, never update
    1. The dominator is party 1."""
    read = np.array([[[0, 0]], [[0, 0]], [[-1, -1]]])
    apply = np.array([[[-1, 0]], [[-1, 0]], [[1, -1]]])
    table = Table(read, np.array([[True], [True], [False]]), apply, np.zeros(3, bool), None)
    blocks, rows = [np.ones((1, 1)), np.ones((1, 1))], lambda a, u: np.array([0])
    seen = transcript(table, blocks, [1.0], rows, "sgd", "half_squared", "l2", 0.5, 0.5, active=(1,), w0=[[1.0], [2.0]])
    got = [(u.tick, u.dominator, u.update, *u.products[0], *u.z, *u.theta, *u.applied) for u in seen.updates]
    np.testing.assert_allclose(got, [(0, 1, 0, 1, 2, 3, 2, 2, 0), (1, 1, 1, 1, 0.5, 1.5, 0.5, -1, 1)], atol=1e-15)
    cut = window(seen, 0, 2)
    assert [u.applied for u in cut.updates] == [[-1, 0], [-1, 1]] and len(cut.weights) == 2
    assert [u.update for u in window(seen, 1, 3).updates] == [1] and not window(seen, 2, 3).updates


@METHODS
@pytest.mark.parametrize("seed", range(3))
def test_the_transcript_is_that_of_the_replayed_run(method, seed):
    table = a_table(seed, method)
    seen, problem_ = run(table, method)
    blocks, y, rows = problem_[1:4]
    weights = replay(*problem_)
    for ours, theirs in zip(seen.weights, weights, strict=True):
        np.testing.assert_array_equal(np.concatenate(ours), np.concatenate(theirs))
    walked = check_table(table, 3)
    starts = [[np.zeros(x.shape[1]) for x in blocks], *weights]
    assert [u.tick for u in seen.updates] == walked["complete_tick"].tolist()
    assert [u.applied for u in seen.updates] == walked["apply_tick"].tolist()
    for update, (a, number), read in zip(seen.updates, walked["update"], walked["read_tick"], strict=True):
        assert (update.dominator, update.update) == ((2, 0)[a], number)
        np.testing.assert_array_equal(update.rows, rows(a, number))
        for party in range(3):
            product = blocks[party][update.rows] @ starts[read[party]][party]
            np.testing.assert_array_equal(update.products[:, party], product)
        np.testing.assert_allclose(update.z, update.products.sum(axis=1), rtol=0, atol=1e-14)
        np.testing.assert_array_equal(update.theta, slope("logistic", update.z, y[update.rows]))
    ticks = {"sgd": [], "svrg": np.flatnonzero(table.snapshot).tolist(), "saga": [0]}[method]
    assert [each.tick for each in seen.passes] == ticks and (method != "svrg" or len(ticks) == 4)
    for each in seen.passes:
        scores = np.hstack(blocks) @ np.concatenate(starts[each.tick])
        np.testing.assert_allclose(each.scores, scores, rtol=0, atol=1e-14)
        np.testing.assert_array_equal(each.theta, slope("logistic", each.scores, y))


@METHODS
def test_scaled_releases_with_a_step_size_to_match_change_nothing(method):
    """Without a regulariser v is linear in all thetas, those of passes and tables too: 8 theta with lr / 8 is the run.

    A defence that left SVRG's reference or SAGA's table as they were would show.
    """
    table = a_table(5, method)
    plain, _ = run(table, method, regularizer="none")
    scaled, _ = run(table, method, regularizer="none", lr=0.1 / 8, release=lambda theta, *of: 8 * theta)
    for ours, theirs in zip(scaled.weights, plain.weights, strict=True):
        np.testing.assert_allclose(np.concatenate(ours), np.concatenate(theirs), rtol=0, atol=1e-13)
    for ours, theirs in zip(scaled.updates, plain.updates, strict=True):
        np.testing.assert_allclose(ours.theta, 8 * theirs.theta, rtol=0, atol=1e-12)


@METHODS
def test_releases_that_move_the_targets_are_the_run_on_those_targets(method):
    """Half squared loss: theta = z - y, so theta + c_i is the theta of target y_i - c_i. Each release gets its rows."""
    rng, table = np.random.default_rng(0), a_table(6, method)
    targets, shift = rng.normal(size=12), rng.normal(size=12)
    half = {"loss": "half_squared", "lr": 0.03}
    asked = []

    def release(theta, dominator, update, rows):
        asked.append((dominator, update, tuple(rows)))
        return theta + shift[rows]

    moved, _ = run(table, method, targets=targets, release=release, **half)
    plain, _ = run(table, method, targets=targets - shift, **half)
    for ours, theirs in zip(moved.weights, plain.weights, strict=True):
        np.testing.assert_allclose(np.concatenate(ours), np.concatenate(theirs), rtol=0, atol=1e-12)
    other, _ = run(table, method, targets=targets, **half)
    assert np.abs(np.concatenate(other.weights[-1]) - np.concatenate(plain.weights[-1])).max() > 0.01
    passes = [(None, number, tuple(range(12))) for number in range(len(moved.passes))]
    assert [call for call in asked if call[0] is None] == passes
    updates = [(u.dominator, u.update, tuple(u.rows)) for u in moved.updates]
    assert [call for call in asked if call[0] is not None] == updates


@pytest.mark.parametrize("bits", [None, 32])
def test_what_goes_over_the_edges_of_the_trees(bits):
    """Two dominators, parties 2 and 0 of 3, each with its trees: every edge has a value for each row of an update."""
    seen, _ = run(a_table(7), "sgd")
    pairs = {2: ((2, (0, 1)), ((2, 1), 0)), 0: ((0, 2, 1), (0, (2, 1)))}
    rng, shape = np.random.default_rng(1), (len(seen.updates), 2, 3)
    masks = rng.normal(size=shape) if bits is None else rng.integers(0, 2**32, shape)
    found = tree_messages(seen, pairs, masks, bits=bits, fraction_bits=16)
    edges = {(2, 1, 1, 0, (1,)), (2, 1, 0, 2, (0, 1)), (2, 2, 1, 2, (1,)), (2, 2, 0, 2, (0,)),
             (0, 1, 2, 0, (2,)), (0, 1, 1, 0, (1,)), (0, 2, 1, 2, (1,)), (0, 2, 2, 0, (1, 2))}  # fmt: skip
    assert set(found) == edges
    products = np.array([u.products for u in seen.updates])
    for (dominator, tree, _, _, leaves), (updates, values) in found.items():
        assert updates.tolist() == [i for i, u in enumerate(seen.updates) if u.dominator == dominator]
        sums = masks[updates][..., leaves].sum(-1)
        if bits is None:
            wanted = sums + products[updates][..., leaves].sum(-1) * (tree == 1)
            np.testing.assert_allclose(values, wanted, rtol=0, atol=1e-14)
        else:
            wanted = sums + np.round(products * 2**16).astype(int)[updates][..., leaves].sum(-1) * (tree == 1)
            np.testing.assert_array_equal(values.astype(int), wanted % 2**32)


def test_refusals_of_transcripts():
    with pytest.raises(ValueError, match="method"):
        run(a_table(0), "saga_literal")
    with pytest.raises(ValueError, match="snapshot"):
        run(a_table(0), "svrg")
    with pytest.raises(ValueError, match="rows"):
        transcript(a_table(0), *problem(), sampler(60, 2), "sgd", "logistic", "l2", 0.1, 0.1, 3, (0, 1))
