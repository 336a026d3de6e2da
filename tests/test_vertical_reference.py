"""The vertical engine against the NumPy oracle, which replays the same table event by event: weights at every tick."""

import numpy as np
import pytest

import jaxfed as jf
from jaxfed.vertical import BilevelAsync, FixedDelay, Objective, Synchronous
from tests.reference.vertical import replay
from tests.vertical_support import METHODS, federation, history, sampler

pytestmark = pytest.mark.usefixtures("x64")
TICKS = 120
SPARSE = ("sgd", "svrg", "saga")


def bilevel(party, **options):
    return BilevelAsync(party, link=0.3, jitter=0.3, segment_updates=90, **options).slow(1, update=2.5)


SCHEDULERS = {
    "synchronous": Synchronous,
    "fixed": lambda party: FixedDelay(party, read=2, message=3),
    "fixed by pair": lambda party: FixedDelay(
        party, read=np.array([[0, 1, 2, 3], [3, 0, 1, 0]]), message=np.array([[2, 0, 1, 5], [0, 4, 0, 1]])
    ),
    "event queue": bilevel,
    "event queue, exact order": lambda party: bilevel(party, strict=True),
    "tight bounds": lambda party: bilevel(party, tau1=1, tau2=2, threads=1),
    "serial": lambda party: bilevel(party, tau1=0, tau2=0),
}


def algorithm_of(method, loss="logistic", regularizer="l2", batch_size=1, lr=0.1):
    extra = {"epoch_length": 35} if method == "svrg" else {}
    return METHODS[method](Objective(loss, regularizer, 0.05), lr=lr, batch_size=batch_size, **extra)


def check(method, scheduler, party, blocks, y, algorithm, num_rounds=TICKS, **oracle):
    ours, table = history(algorithm, party, scheduler, num_rounds)
    objective = algorithm.objective
    rows = sampler(0, party, algorithm.batch_size)
    theirs = replay(table, blocks, y, rows, method, objective.loss, objective.regularizer, algorithm.lr,
                    float(objective.l2), algorithm.batch_size, **oracle)  # fmt: skip
    theirs = np.array([np.concatenate(w) for w in theirs])
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-10)
    assert np.abs(theirs[-1]).max() > 0.05, "the run must move"


@pytest.mark.parametrize("name", SCHEDULERS)
@pytest.mark.parametrize("method", METHODS)
def test_dense(method, name):
    party, blocks, y = federation()
    check(method, SCHEDULERS[name](party), party, blocks, y, algorithm_of(method))


@pytest.mark.parametrize("name", SCHEDULERS)
@pytest.mark.parametrize("method", ["sgd", "svrg", "saga"])
def test_sparse(method, name):
    party, blocks, y = federation(sparse=True)
    check(method, SCHEDULERS[name](party), party, blocks, y, algorithm_of(method))


@pytest.mark.parametrize("method, form", [(m, "dense") for m in METHODS] + [(m, "sparse") for m in SPARSE])
def test_minibatches_with_rows_that_come_twice(method, form):
    """11 rows, 3 dominators of 4 rows each: equal rows within minibatches and within ticks."""
    party, blocks, y = federation(n=11, active=(0, 1, 3), sparse=form == "sparse")
    check(method, bilevel(party), party, blocks, y, algorithm_of(method, batch_size=4))


@pytest.mark.parametrize("loss", ["logistic", "squared", "half_squared", "robust", "squared_hinge"])
@pytest.mark.parametrize("regularizer", ["l2", "nonconvex", "none"])
@pytest.mark.parametrize("method", ["svrg"])
def test_losses_and_regularizers(method, regularizer, loss):
    party, blocks, y = federation(targets=loss in ("squared", "half_squared", "robust"))
    check(method, bilevel(party), party, blocks, y, algorithm_of(method, loss, regularizer, lr=0.02))


@pytest.mark.parametrize("regularizer", ["l2", "none"])
@pytest.mark.parametrize("method", ["sgd", "svrg", "saga"])
def test_sparse_scales_that_are_folded_back(method, regularizer):
    """lr l2 = 0.05 shrinks a scale below 1e-2 again and again: nothing shows."""
    party, blocks, y = federation(sparse=True)
    algorithm = METHODS[method](Objective("logistic", regularizer, 0.5), lr=0.1)
    check(method, bilevel(party), party, blocks, y, algorithm, num_rounds=900)


@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.parametrize("method", ["sgd", "svrg", "saga"])
def test_without_backward_updating_only_parties_with_labels_move(method, form):
    party, blocks, y = federation(sparse=form == "sparse")
    algorithm = algorithm_of(method).replace(backward=False)
    check(method, bilevel(party), party, blocks, y, algorithm, apply_parties={0, 2})


@pytest.mark.parametrize("m", [1, 2, 3, 4])
def test_epochs_that_the_number_of_dominators_does_not_divide(m):
    party, blocks, y = federation(active=range(m))
    for scheduler in (Synchronous(party), FixedDelay(party, read=1, message=2), bilevel(party)):
        check("svrg", scheduler, party, blocks, y, algorithm_of("svrg"))


def test_one_party_with_one_feature_and_a_party_with_labels_only():
    party, blocks, y = federation(sizes=(0, 1, 1), active=(0,))
    for method in METHODS:
        check(method, bilevel(party), party, blocks, y, algorithm_of(method))


def test_step_size_schedules_count_ticks():
    party, blocks, y = federation()
    lr = jf.steps.InverseTime(2.0, 10.0)
    ours, _ = history(algorithm_of("sgd").replace(lr=lr), party, Synchronous(party), 30)
    w, rows = np.zeros(10), sampler(0, party, 1)
    for t in range(30):
        batch = np.concatenate([rows(a, t) for a in range(2)])
        x, labels = np.hstack(blocks)[batch], y[batch]
        theta = -labels / (1 + np.exp(labels * (x @ w)))
        w = w - 2.0 / (t + 10) * (theta @ x + 2 * 0.05 * w)
        np.testing.assert_allclose(ours[t], w, rtol=0, atol=1e-12)
