"""Event by event VFB2 against plain centralised methods, limit cases and numbers worked out by hand."""

import numpy as np
import pytest

from tests.reference.vertical import centralised, replay
from tests.reference.vertical_losses import optimum
from tests.reference.vertical_methods import Data, Saga
from tests.reference.vertical_problems import SIZES, best, problem, sampler
from tests.reference.vertical_tables import Table, check_table, random_table, synchronous_table

METHODS = pytest.mark.parametrize("method", ["sgd", "svrg", "saga"])


def final(table, method, loss="logistic", lr=0.1, l2=0.1, batch_size=2, regularizer="l2", **options):
    blocks, y = problem()
    rows = sampler(len(y), batch_size)
    history = replay(table, blocks, y, rows, method, loss, regularizer, lr, l2, batch_size, **options)
    return np.concatenate(history[-1])


@pytest.mark.parametrize("loss, regularizer", [("logistic", "l2"), ("robust", "nonconvex"), ("squared_hinge", "none")])
@pytest.mark.parametrize("m", [1, 2, 3])
@METHODS
def test_synchronous_replay_is_the_centralised_minibatch_method(method, m, loss, regularizer):
    """m b rows with step m lr, from any start, with samples that come twice (up to 9 draws from 12 rows)."""
    blocks, y = problem(n=12)
    rng, b, ticks, lr = np.random.default_rng(3), 3, 30, 0.05
    epoch = 4 * m if method == "svrg" else None
    table = synchronous_table(len(blocks), m, ticks, epoch)
    check_table(table, len(blocks), epoch_length=epoch)
    rows, w0 = sampler(len(y), b), [rng.normal(size=d) for d in SIZES]
    history = replay(table, blocks, y, rows, method, loss, regularizer, lr, 0.2, b, w0)
    joined = [np.concatenate([rows(a, t) for a in range(m)]) for t in range(ticks)]
    plain = centralised(
        np.hstack(blocks), y, joined, method, loss, regularizer, m * lr, 0.2, epoch and 4, np.concatenate(w0)
    )
    for ours, theirs in zip(history, plain, strict=True):
        np.testing.assert_allclose(np.concatenate(ours), theirs, rtol=0, atol=1e-12)


def test_an_epoch_that_m_does_not_divide():
    """Epochs of 5 updates by m = 2: steps of 2, 2 and 1 updates, each a step of lr times its number of updates."""
    blocks, y = problem()
    table, rows = synchronous_table(3, 2, 12, 5), sampler(len(y), 1)
    check_table(table, 3, epoch_length=5)
    np.testing.assert_array_equal(table.complete.sum(axis=1)[:6], [2, 2, 1, 2, 2, 1])
    steps, done = [], [0, 0]
    for flags in table.complete:
        steps.append(np.concatenate([rows(a, done[a]) for a in range(2) if flags[a]]))
        done = [d + f for d, f in zip(done, flags, strict=True)]
    ours = replay(table, blocks, y, rows, "svrg", "logistic", "l2", 0.1, 0.1)
    lr = 0.1 * table.complete.sum(axis=1)
    theirs = centralised(np.hstack(blocks), y, steps, "svrg", "logistic", "l2", lr, 0.1, epoch_length=3)
    np.testing.assert_allclose([np.concatenate(w) for w in ours], theirs, rtol=0, atol=1e-13)


@METHODS
def test_one_sample_by_hand(method):
    """Two steps of ridge regression with one row: w <- w - lr (2 (w x - y) x + l2 w), whatever the method."""
    table = synchronous_table(1, 1, 2, 1 if method == "svrg" else None)
    history = replay(table, [np.array([[2.0]])], [3.0], lambda a, u: np.array([0]), method, "squared", "l2", 0.1, 0.5)
    # 0 - 0.1 (2 (-3) 2) = 1.2; 1.2 - 0.1 (2 (2.4 - 3) 2 + 0.6) = 1.38
    np.testing.assert_allclose([w[0][0] for w in history], [1.2, 1.38], rtol=0, atol=1e-14)


def test_a_delayed_message_by_hand():
    """theta of update 0 is formed from the product of tick 0 and applied in tick 2; the regulariser is that of tick 2.

    One row x = (1, 1) over two parties, y = 1, half squared loss, lr 0.5, l2 0.5. Party 1 applies update 0 at once and
    party 0 in tick 2; update 1 is read in tick 1 and never applied by party 0.
    """
    read = np.array([[[0, 0]], [[0, 0]], [[-1, -1]]])
    complete = np.array([[True], [True], [False]])
    apply = np.array([[[-1, 0]], [[-1, 0]], [[1, -1]]])
    table = Table(read, complete, apply, np.zeros(3, bool), None)
    blocks, rows = [np.ones((1, 1)), np.ones((1, 1))], lambda a, u: np.array([0])
    history = replay(table, blocks, [1.0], rows, "sgd", "half_squared", "l2", 0.5, 0.5, w0=[[1.0], [2.0]])
    # z = 3, theta 2: party 1: 2 - 0.5 (2 + 1) = 0.5. z = 1.5, theta 0.5: 0.5 - 0.5 (0.5 + 0.25) = 0.125.
    # Party 0 with update 0: 1 - 0.5 (2 + 0.5) = -0.25.
    np.testing.assert_allclose(history, [[[1], [0.5]], [[1], [0.125]], [[-0.25], [0.125]]], rtol=0, atol=1e-15)
    with pytest.raises(AssertionError, match="ends before"):
        check_table(table, 2)
    ages = check_table(table, 2, drained=False)
    np.testing.assert_array_equal(ages["message_age"], [[1, 0], [-1, 0]])
    np.testing.assert_array_equal(ages["apply_tick"], [[2, 0], [-1, 1]])


def test_an_early_read_misses_the_steps_since():
    """Party 0 answers for update 1 in tick 0 (read 1): its product misses update 0, party 1's does not."""
    read = np.array([[[0, 0]], [[-1, 0]]])
    read = np.concatenate([[[[1, -1]]], read])  # tick 0: party 0 for update 1; tick 1: both for update 0
    complete = np.array([[False], [True], [True]])
    apply = np.where(complete[:, :, None], 0, -1) * np.ones(2, int)
    table = Table(read, complete, apply, np.zeros(3, bool), None)
    ages = check_table(table, 2)
    np.testing.assert_array_equal(ages["read_age"], [[0, 0], [1, 0]])
    blocks, rows = [np.ones((1, 1)), np.ones((1, 1))], lambda a, u: np.array([0])
    history = replay(table, blocks, [0.0], rows, "sgd", "half_squared", "none", 0.25, 0, w0=[[1.0], [1.0]])
    # theta 2: both 1 - 0.5 = 0.5. Then z = 1 (early) + 0.5: both 0.5 - 0.25 * 1.5 = 0.125
    np.testing.assert_allclose(history[2], [[0.125], [0.125]], rtol=0, atol=1e-15)


def test_literal_saga_is_the_textbook_and_differs_from_one_table_only_by_the_regulariser():
    blocks, y = problem(n=12)
    x, rows, ticks = np.hstack(blocks), sampler(12, 2), 40
    table, steps = synchronous_table(3, 1, 40), [rows(0, t) for t in range(ticks)]
    for l2 in (0.0, 0.3):
        runs = {}
        for method in ("saga", "saga_literal"):
            history = replay(table, blocks, y, rows, method, "logistic", "l2", 0.1, l2, 2)
            runs[method] = np.array([np.concatenate(w) for w in history])
            theirs = centralised(x, y, steps, method, "logistic", "l2", 0.1, l2)
            np.testing.assert_allclose(runs[method], theirs, rtol=0, atol=1e-12)
        gap = np.max(np.abs(runs["saga"] - runs["saga_literal"]))
        assert gap < 1e-13 if l2 == 0 else gap > 1e-4


@pytest.mark.parametrize("method", ["svrg", "saga", "saga_literal"])
@pytest.mark.parametrize("kind", ["synchronous", "delayed"])
def test_variance_reduced_methods_reach_the_optimum(method, kind):
    epoch = 120 if method == "svrg" else None
    if kind == "synchronous":
        table = synchronous_table(3, 2, 1500, epoch)
    else:
        table = random_table(np.random.default_rng(5), 3, 2, 3000, 2, 4, epoch)
    assert np.max(np.abs(final(table, method, lr=0.08) - best())) < 1e-8


def test_sgd_stalls_away_from_the_optimum():
    distance = np.max(np.abs(final(synchronous_table(3, 2, 1500), "sgd", lr=0.08) - best()))
    assert 1e-3 < distance < 1


def test_the_lost_brackets_triple_the_regulariser():
    """notes/vertical.md 1.4: with the wrong sign SVRG converges to the optimum of 3 l2, with the right one to l2's."""
    table = synchronous_table(3, 2, 3000, 40)  # short epochs: the wrong one gains a constant factor an epoch
    right, wrong = final(table, "svrg", lr=0.08), final(table, "svrg", lr=0.08, wrong_sign=True)
    assert np.max(np.abs(right - best(l2=0.1))) < 1e-12
    assert np.max(np.abs(wrong - best(l2=0.3))) < 1e-12
    assert np.max(np.abs(best(l2=0.1) - best(l2=0.3))) > 0.05


def test_without_backward_updating_only_the_parties_with_labels_move():
    """AFSVRG-VP converges to the optimum over the blocks that move, the others staying where they started."""
    table = synchronous_table(3, 2, 1500, 120)
    w = final(table, "svrg", lr=0.08, apply_parties={0, 1})
    blocks, y = problem()
    np.testing.assert_array_equal(w[4:], 0)
    alone = optimum(np.hstack(blocks[:2]), y, "logistic", "l2", 0.1)
    np.testing.assert_allclose(w[:4], alone, rtol=0, atol=1e-8)


@pytest.mark.parametrize("seed", range(12))
def test_random_tables_are_legal_and_broken_ones_are_caught(seed):
    rng = np.random.default_rng(seed)
    q, m, depth, ring = int(rng.integers(1, 5)), int(rng.integers(1, 4)), int(rng.integers(1, 4)), 1 + seed % 5
    epoch = int(rng.integers(3, 9)) if seed % 2 else None
    table = random_table(rng, q, m, 40, depth, ring, epoch, busy=rng.uniform(0.2, 1))
    ages = check_table(table, q, epoch_length=epoch, read_depth=depth, message_depth=ring)
    assert len(ages["update"]) == 40 and table.read.max() < depth and table.apply.max() < ring
    assert np.all(ages["read_tick"] <= ages["complete_tick"][:, None])
    assert np.all(ages["apply_tick"] >= ages["complete_tick"][:, None])
    for field, value in [("read", -1), ("apply", -1), ("complete", False), ("apply", 100)]:
        broken = Table(table.read.copy(), table.complete.copy(), table.apply.copy(), table.snapshot, table.time)
        column = getattr(broken, field)
        places = np.argwhere(column >= 0) if field != "complete" else np.argwhere(column)
        column[tuple(places[rng.integers(len(places))])] = value
        with pytest.raises(AssertionError):
            check_table(broken, q, epoch_length=epoch, message_depth=ring)


def test_a_snapshot_with_a_message_or_an_answer_under_way_is_caught():
    table = random_table(np.random.default_rng(0), 3, 2, 20, 2, 3, epoch_length=5)
    start = np.flatnonzero(table.snapshot)[1]
    for shift in (-1, 1):
        moved = table.snapshot.copy()
        moved[start], moved[start + shift] = False, True
        with pytest.raises(AssertionError):
            check_table(Table(table.read, table.complete, table.apply, moved, table.time), 3, epoch_length=5)


def test_saga_means_are_those_of_the_table_once_everything_is_applied():
    """However messages fall into ticks, a party's running mean ends as (1/n) sum_j theta_j x_j of the table."""
    blocks, y = problem(n=10)
    data = Data(blocks, y, "logistic", "l2", 0.1)
    w = [np.zeros(d) for d in SIZES]
    memory, rng = Saga(data, w), np.random.default_rng(2)
    due = []
    for _ in range(20):
        rows, theta = rng.integers(0, 10, 4), rng.normal(size=4)
        due.append((rows, theta, memory.message(rows, theta)))
    for party in range(3):
        for start in range(0, 20, 5):
            memory.step(party, w[party], due[start : start + 5])
        np.testing.assert_allclose(memory.mean[party], blocks[party].T @ memory.table / 10, rtol=0, atol=1e-14)


def test_refusals():
    with pytest.raises(ValueError, match="wrong_sign"):
        final(synchronous_table(3, 1, 1), "sgd", wrong_sign=True)
    with pytest.raises(ValueError, match="rows"):
        blocks, y = problem()
        replay(synchronous_table(3, 1, 1), blocks, y, sampler(60, 2), "sgd", "logistic", "l2", 0.1, 0.1, 3)
    with pytest.raises(ValueError, match="epoch_length"):
        centralised(np.hstack(blocks), y, [], "svrg", "logistic", "l2", 0.1, 0.1)
