"""What the methods reach: the central optimum, at a linear rate, whatever the delay; SGD a noise floor."""

import numpy as np
import pytest

import jaxfed as jf
from jaxfed.vertical import BilevelAsync, Epochs, FixedDelay, Objective, Synchronous
from tests.reference.vertical_losses import objective as value_of
from tests.reference.vertical_losses import optimum
from tests.vertical_support import METHODS, federation

pytestmark = pytest.mark.usefixtures("x64")
L2 = 0.1


def run(algorithm, party, scheduler, epochs, every=5, seed=0):
    return jf.run(seed, algorithm, party, scheduler=scheduler, num_rounds=Epochs(epochs), every=Epochs(every),
                  progress=False)  # fmt: skip


def reached(out, algorithm, party, best):
    return np.linalg.norm(party.join(algorithm.params(out.state)) - best)


@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.parametrize("method", ["svrg", "saga"])
def test_the_optimum_at_a_linear_rate_whatever_the_delay(method, form):
    party, blocks, y = federation(n=80, sparse=form == "sparse")
    x = np.hstack(blocks)
    best = optimum(x, y, "logistic", "l2", L2)
    f_best = value_of(best, x, y, "logistic", "l2", L2)
    wrong = optimum(x, y, "logistic", "l2", 3 * L2)  # where the sign of the copied text would lead
    algorithm = METHODS[method](Objective("logistic", "l2", L2), lr=0.02)
    for delay in (0, 8, 32):
        scheduler = FixedDelay(party, delay, delay, bound=32)
        out = run(algorithm, party, scheduler, epochs=200, every=20)
        assert reached(out, algorithm, party, best) < 1e-8, delay
        assert np.linalg.norm(best - wrong) > 0.05
        gap = out.dataset.objective.values - f_best
        assert (gap > -1e-13).all(), "below the optimum"
        assert (gap[2:4] < 1e-2 * gap[1:3]).all(), "a linear rate: each 20 passes gain two digits or more"


@pytest.mark.parametrize("scheduler", ["async", "exact order", "synchronous"])
@pytest.mark.parametrize("method", ["svrg", "saga", "saga_literal"])
def test_the_optimum_under_the_event_queue(method, scheduler):
    party, blocks, y = federation(n=80)
    make = Synchronous if scheduler == "synchronous" else BilevelAsync
    options = {"strict": True} if scheduler == "exact order" else {}
    algorithm = METHODS[method](Objective("logistic", "l2", L2), lr=0.1)
    out = run(algorithm, party, make(party, jitter=0.3, **options).slow(3, update=1.5), epochs=80, every=80)
    best = optimum(np.hstack(blocks), y, "logistic", "l2", L2)
    assert reached(out, algorithm, party, best) < 1e-8


def test_sgd_has_a_noise_floor_that_falls_with_the_step():
    party, blocks, y = federation(n=80)
    x = np.hstack(blocks)
    f_best = value_of(optimum(x, y, "logistic", "l2", L2), x, y, "logistic", "l2", L2)
    floors = []
    for lr in (0.2, 0.02):
        out = run(jf.VFB2SGD(Objective("logistic", "l2", L2), lr=lr), party, BilevelAsync(party), epochs=200)
        floors.append(float(out.dataset.objective[-20:].mean()) - f_best)
    assert floors[1] > 1e-6 and floors[0] > 3 * floors[1]


@pytest.mark.parametrize("method", ["sgd", "svrg", "saga"])
def test_the_gradient_of_a_nonconvex_problem_falls(method):
    party, _, _ = federation(n=80)
    algorithm = METHODS[method](Objective("logistic", "nonconvex", L2), lr=0.02)
    norms = run(algorithm, party, BilevelAsync(party), epochs=250, every=50).dataset.gradient_norm.values
    assert norms[-1] < (0.2 if method == "sgd" else 3e-4) * norms[0]
    if method != "sgd":
        assert (np.diff(norms) < 0).all()


def test_without_backward_updating_the_objective_is_worse():
    party, blocks, y = federation(n=80)  # parties 0 and 2 of 4 hold labels
    x = np.hstack(blocks)
    objective = Objective("logistic", "l2", L2)
    full = run(jf.VFB2SVRG(objective, lr=0.1), party, BilevelAsync(party), 40).dataset
    algorithm = jf.vertical.afsvrg_vp(objective, lr=0.1)
    out = run(algorithm, party, BilevelAsync(party), 40)
    w = party.join(algorithm.params(out.state))
    columns = np.split(np.arange(10), np.cumsum(party.sizes)[:-1])
    assert not w[np.concatenate([columns[1], columns[3]])].any()
    own = np.concatenate([columns[0], columns[2]])
    best_of_own = optimum(x[:, own], y, "logistic", "l2", L2)
    np.testing.assert_allclose(w[own], best_of_own, atol=1e-6)
    assert out.dataset.objective[-1] > full.objective[-1] + 0.02
    assert out.dataset.block_updates[-1] * 2 == full.block_updates[-1]


def test_lossless_against_the_centralised_method():
    party, blocks, y = federation(n=80)
    algorithm = jf.VFB2SVRG(Objective("logistic", "l2", L2), lr=0.1)
    one = jf.vertical.non_federated(party)
    ours, plain = (run(algorithm, p, s, 40) for p, s in ((party, BilevelAsync(party)), (one, Synchronous(one))))
    for name in ("train_accuracy", "train_auc"):
        assert float(ours.dataset[name][-1]) == pytest.approx(float(plain.dataset[name][-1]), abs=1e-9)
