"""Limit cases and invariants of the vertical methods, in float64."""

import numpy as np
import pytest

import jaxfed as jf
from jaxfed.vertical import BilevelAsync, FixedDelay, Objective, Synchronous
from tests.reference.vertical import centralised
from tests.vertical_support import METHODS, SIZES, federation, history, sampler

pytestmark = pytest.mark.usefixtures("x64")
ALL = pytest.mark.parametrize("method", METHODS)
OBJECTIVE = Objective("logistic", "l2", 0.05)
ROUNDS = 60


def of(method, lr=0.1, batch_size=2, epoch_length=40):
    extra = {"epoch_length": epoch_length} if method == "svrg" else {}
    return METHODS[method](OBJECTIVE, lr=lr, batch_size=batch_size, **extra)


def close(a, b, atol=1e-12):
    np.testing.assert_allclose(a, b, rtol=0, atol=atol)
    assert np.abs(np.asarray(a)[-1]).max() > 0.05, "the run must move"


@pytest.mark.parametrize(
    "method, m", [(method, m) for method in METHODS for m in (1, 2, 4) if (method, m > 1) != ("saga_literal", True)]
)
def test_synchronous_is_the_centralised_minibatch_method(method, m):
    """m b rows with step m lr, on joined features (the printed SAGA's means move between two messages of a tick)."""
    party, blocks, y = federation(active=range(m))
    algorithm = of(method, epoch_length=10 * m)
    ours, _ = history(algorithm, party, Synchronous(party), ROUNDS)
    rows = sampler(0, party, 2)
    batches = [np.concatenate([rows(a, t) for a in range(m)]) for t in range(ROUNDS)]
    epoch = 10 if method == "svrg" else None
    theirs = centralised(np.hstack(blocks), y, batches, method, "logistic", "l2", 0.1 * m, 0.05, epoch)
    close(ours, theirs)


@ALL
def test_one_party_is_the_plain_method(method):
    party, blocks, y = federation()
    one = jf.vertical.non_federated(party)
    algorithm = of(method)
    ours, _ = history(algorithm, one, Synchronous(one), ROUNDS)
    rows = sampler(0, one, 2)
    epoch = 40 if method == "svrg" else None
    batches = [rows(0, t) for t in range(ROUNDS)]
    close(ours, centralised(np.hstack(blocks), y, batches, method, "logistic", "l2", 0.1, 0.05, epoch))


@ALL
def test_any_number_of_parties_gives_the_same_weights(method):
    _, blocks, y = federation()
    x, found = np.hstack(blocks), []
    for q in (1, 2, 5, 10):
        party = jf.vertical.split(x, y, num_parties=q, num_active=1, seed=q)
        w, _ = history(of(method), party, Synchronous(party), ROUNDS)
        found.append(party.join(w[-1]))
    for w in found[1:]:
        close([found[0]], [w])


@ALL
def test_the_order_of_passive_parties_and_of_columns_does_not_matter(method):
    _, blocks, y = federation()
    x, rng = np.hstack(blocks), np.random.default_rng(3)
    columns = np.split(np.arange(10), np.cumsum(SIZES)[:-1])
    moved = [rng.permutation(columns[j]) for j in (0, 1, 3, 2)]
    runs = []
    for split in (columns, moved):
        party = jf.vertical.split(x, y, columns=[list(c) for c in split], active=[0, 1])
        # delays of pairs, so that a party keeps its own when it moves
        message = np.array([[0, 1, 2, 2], [1, 0, 2, 2]])
        w, _ = history(of(method), party, FixedDelay(party, message=message), ROUNDS)
        runs.append(party.join(w[-1]))
    close([runs[0]], [runs[1]])


@ALL
@pytest.mark.parametrize("bound", [None, 3])
def test_no_delay_is_synchronous(method, bound):
    party, _, _ = federation()
    fixed, table = history(of(method), party, FixedDelay(party, 0, 0, bound=bound), ROUNDS)
    moves = table.complete.any(1)  # with epochs and a bound there are ticks in which nothing happens
    synchronous, _ = history(of(method), party, Synchronous(party), int(moves.sum()))
    close(fixed[moves], synchronous)


@ALL
def test_no_staleness_at_all_is_the_serial_loop(method):
    """tau1 = tau2 = 0: each dominated update is read, completed and applied before the next is read."""
    party, blocks, y = federation()
    scheduler = BilevelAsync(party, tau1=0, tau2=0, link=0.3, jitter=0.3)
    ours, table = history(of(method), party, scheduler, ROUNDS)
    assert (table.complete.sum(1) == 1).all()
    rows, done, batches = sampler(0, party, 2), [0, 0], []
    for flags in table.complete:
        a = int(np.argmax(flags))
        batches.append(rows(a, done[a]))
        done[a] += 1
    epoch = 40 if method == "svrg" else None
    close(ours, centralised(np.hstack(blocks), y, batches, method, "logistic", "l2", 0.1, 0.05, epoch))


@pytest.mark.parametrize("loss", ["logistic", "squared", "half_squared", "robust", "squared_hinge"])
def test_theta_is_unbiased_summed_over_all_rows(loss):
    """The mean of theta_i x_i over rows is the gradient of the loss: here by finite differences of the objective."""
    party, blocks, y = federation(targets=loss in ("squared", "half_squared", "robust"))
    objective, w = Objective(loss, "none"), np.random.default_rng(0).normal(size=10) / 3
    data, x, step = party.place(), np.hstack(blocks), 1e-6
    value = lambda w: float(objective.value(party.split_params(w), data))  # noqa: E731
    slopes = [(value(w + step * e) - value(w - step * e)) / (2 * step) for e in np.eye(10)]
    theta = np.asarray(objective.theta(x @ w, data.y))
    np.testing.assert_allclose(theta @ x / len(y), slopes, atol=1e-7)


def test_masked_parts_of_a_sample_add_nothing_and_learn_nothing():
    """A party without a row: as if its features of the row were zero."""
    _, blocks, y = federation()
    present = np.random.default_rng(0).random((40, 4)) < 0.7
    masked = jf.PartyData.from_blocks(blocks, y, active=[0, 2], present=present)
    zeroed = [b * present[:, [p]] for p, b in enumerate(blocks)]
    filled = jf.PartyData.from_blocks(zeroed, y, active=[0, 2])
    for method in ("sgd", "saga"):
        a, b = (history(of(method), party, BilevelAsync(party), ROUNDS)[0] for party in (masked, filled))
        np.testing.assert_array_equal(a, b)


def test_labels_of_any_two_values_give_the_same_run():
    _, blocks, y = federation()
    runs = []
    for labels in (y, (y > 0).astype(int), np.where(y > 0, 2, 1), np.where(y > 0, "yes", "no")):
        party = jf.PartyData.from_blocks(blocks, labels, active=[0, 2])
        runs.append(history(of("sgd"), party, Synchronous(party), ROUNDS)[0])
    for run in runs[1:]:
        np.testing.assert_array_equal(runs[0], run)
