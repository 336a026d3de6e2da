"""Bad input to vertical runs: one line that names the field, what it got and what it wanted, and no wrong number."""

import re
import shutil

import jax
import numpy as np
import pytest
from scipy import sparse

import jaxfed as jf
from jaxfed.vertical import BilevelAsync, Epochs, FixedDelay, LiteralSAGA, Objective, Seconds, Synchronous, optimum

V = jf.vertical
RNG = np.random.default_rng(0)
X = RNG.normal(size=(20, 6))
Y, TARGETS = (X[:, 0] > 0).astype(int), X @ RNG.normal(size=6)
PARTY, REAL = V.split(X, Y, 3, 2), V.split(X, TARGETS, 3, 2)
SPARSE = V.split(sparse.csr_matrix(X * (X > 0)), Y, 3, 2)
CLIENTS = jf.ClientData.from_list([(X.astype(np.float32), Y)])
FEDAVG = jf.FedAvg(jf.models.logistic_regression(2))
OBJECTIVE = Objective("logistic", "l2", 0.01)
NAN = float("nan")
BROKEN = sparse.csr_matrix(X)
BROKEN.indices[0] = 99


def sgd(objective=OBJECTIVE, **fields):
    return jf.VFB2SGD(objective, **fields)


def run(algorithm=None, data=PARTY, seed=0, **options):
    options = {"num_rounds": 2, "progress": False} | options
    return lambda: jf.run(seed, sgd() if algorithm is None else algorithm, data, **options)


def problem(*args):
    return run(sgd(Objective(*args)))


def late(make=BilevelAsync, **fields):
    return lambda: make(PARTY, **fields)


def measured(dims=(), **named):
    return run(measures=[jf.Measure(lambda algorithm, state, data: named, dims)])


AS_TRAIN = "as train has: party.like(x, y) makes it"
CASES = {
    # tables
    "x: got a masked array, wanted x.filled(np.nan) and present=": lambda: V.split(np.ma.masked_array(X, X > 1), Y, 3),
    "x: got a broken sparse array (": lambda: V.split(BROKEN, Y, 3),
    "columns: got 5, wanted a list of columns for each party": lambda: V.split(X, Y, columns=5),
    "columns[0]: got the column [0], wanted 0 to 5": lambda: V.split(X, Y, columns=[[[0], 1], [2, 3, 4, 5]]),
    "intercept: got 'yes', wanted True or False": lambda: V.split(X, Y, 3, intercept="yes"),
    "allow_unused: got None, wanted True or False": lambda: V.split(X, Y, columns=[[0]], allow_unused=None),
    "always: got 5, wanted a list of parties": lambda: V.overlap(20, 3, 0.5, always=5),
    "fraction: got None, wanted one number": lambda: V.overlap(20, 3, None),
    "ids: got None, wanted a list of arrays, the ids of each party": lambda: V.align(None),
    "first: got 5, wanted 0 to 1": lambda: V.align([[1], [1]], first=5),
    "party: got ClientData, wanted PartyData": lambda: V.non_federated(CLIENTS),
    "data: got the number 1e+300, wanted at most 3.4e+38, which float32 holds": run(
        data=V.split(np.where(X == X[2, 1], 1e300, X), Y, 3)
    ),
    # the problem and the method
    "objective.loss: got 'logistc', wanted one of 'logistic',": problem("logistc"),
    "objective.regularizer: got 'l1', wanted one of 'l2',": problem("logistic", "l1"),
    "objective.l2: got [0.1, 0.2], wanted one number": problem("logistic", "l2", [0.1, 0.2]),
    "objective.l2: got None, wanted one number": problem("logistic", "l2", None),
    "objective.l2: got {'a': 0.1}, wanted one number": problem("logistic", "l2", {"a": 0.1}),
    "objective.l2: got shape (1,), wanted one number": problem("logistic", "l2", np.array([0.1])),
    "objective.l2: got -1, wanted at least 0, and finite": problem("logistic", "l2", -1),
    "objective: got <class 'jaxfed.vertical.objective.Objective'>, wanted vertical.Objective": run(sgd(Objective)),
    "objective.regularizer: got 'nonconvex' for sparse blocks": run(sgd(Objective("robust", "nonconvex")), SPARSE),
    "data: got sparse blocks, wanted dense ones for LiteralSAGA": run(LiteralSAGA(OBJECTIVE), SPARSE),
    "lr: got None, wanted a number, or a schedule of jaxfed.steps": run(sgd(lr=None)),
    "lr: got [0.1, 0.2], wanted one number": run(sgd(lr=[0.1, 0.2])),
    "lr.value: got [0.1, 0.2], wanted one number": run(sgd(lr=jf.steps.ExponentialDecay([0.1, 0.2], 0.9))),
    "lr.offset: got 0, wanted at least 1e-30, and finite": run(sgd(lr=jf.steps.InverseTime(0.1, 0.0))),
    "lr: got <class 'jaxfed.steps.Constant'>, wanted a number": run(sgd(lr=jf.steps.Constant)),
    "batch_size: got 2.0, wanted a whole number of at least 1": run(sgd(batch_size=2.0)),
    "backward: got 'no', wanted True or False": run(sgd(backward="no")),
    "epoch_length: got 0, wanted a whole number of at least 1": run(jf.VFB2SVRG(OBJECTIVE, epoch_length=0)),
    "objective: got str, wanted vertical.Objective": lambda: optimum("logistic", PARTY),
    "party: got ClientData, wanted PartyData (": lambda: optimum(OBJECTIVE, CLIENTS),
    "tolerance: got None, wanted one number": lambda: optimum(OBJECTIVE, PARTY, None),
    "party.y: got 20 values": lambda: optimum(OBJECTIVE, REAL),
    # data that do not go together
    "train.y: got 20 values, ": run(data=REAL),
    "train.y: got 3 values, 0 to 2, wanted labels of two classes": run(data=V.split(X, np.arange(20) % 3, 3)),
    "train.y: got None, wanted labels": run(data=PARTY.like(X)),
    "test.y: got None, wanted labels": run(test=PARTY.like(X)),
    "data: got None, wanted ClientData": run(data=None),
    "algorithm: got FedAvg, wanted a vertical one for PartyData": run(FEDAVG),
    "algorithm: got VFB2SGD, wanted a horizontal one for ClientData": run(data=CLIENTS),
    "test: got ClientData, wanted PartyData (": run(test=CLIENTS),
    "test: got PartyData, wanted ClientData, as train is": run(FEDAVG, CLIENTS, test=PARTY),
    "clients[0].x: got a sparse array, wanted a dense one: x.toarray()": lambda: jf.ClientData.from_list(
        [(sparse.csr_matrix(X), Y)]
    ),
    "data.x: got a sparse array, wanted a dense one": lambda: jf.ClientData.from_indices(
        sparse.csr_matrix(X), Y, [np.arange(5)]
    ),
    f"test.columns: got those of another split, wanted the same {AS_TRAIN}": run(test=V.split(X, Y, 3, 2, seed=5)),
    f"test: got parties of (3, 3) columns, wanted (2, 2, 2), {AS_TRAIN}": run(test=V.split(X, Y, 2, 2)),
    f"test: got labels at the parties (0,), wanted (0, 1), {AS_TRAIN}": run(test=V.split(X, Y, 3, 1)),
    f"test: got sparse blocks, wanted dense ones, {AS_TRAIN}": run(test=SPARSE),
    f"test.classes: got (5, 7), wanted (0, 1), {AS_TRAIN}": run(test=V.split(X, np.where(Y > 0, 7, 5), 3, 2)),
    f"test.classes: got (0, 1), wanted (), {AS_TRAIN}": run(sgd(Objective("squared")), REAL, test=PARTY),
    "test.shift: got those of another split": run(test=V.split(X, Y, 3, 2, scale="standard")),
    # schedulers
    "party: got int, wanted PartyData, or anything with num_parties and active": lambda: BilevelAsync(3),
    "reply: got None, wanted a number, or one per party: [3]": late(reply=None),
    "link: got None, wanted a number, or one per party: [3]": late(Synchronous, link=None),
    "update: got {'a': 1}, wanted a number, or one per party: [3]": late(update={"a": 1}),
    "jitter: got None, wanted one number": late(jitter=None),
    "strict: got 'no', wanted True or False": late(strict="no"),
    "segment_updates: got 1000000000, wanted at most 1000000": late(segment_updates=10**9),
    "update: got None, wanted one number": lambda: BilevelAsync(PARTY).slow(0, update=None),
    "tick: got 0, wanted more than 0 seconds": late(FixedDelay, tick=0),
    "tick: got None, wanted one number": late(FixedDelay, tick=None),
    "bound: got 2, wanted at least the largest delay, 3": run(scheduler=FixedDelay(PARTY, 3, bound=2)),
    "scheduler.party: got 3 parties, of which active (0,), wanted 3 parties": run(
        scheduler=BilevelAsync(V.split(X, Y, 3, 1))
    ),
    "scheduler: got <class 'jaxfed.vertical.schedulers.BilevelAsync'>, wanted a vert": run(scheduler=BilevelAsync),
    "party: got ndarray, wanted PartyData (": lambda: V.plan(sgd(), X, late()(), 3),
    "scheduler: got str, wanted a vertical one": lambda: V.plan(sgd(), PARTY, "async", 3),
    # lengths
    "num_rounds: got 0, wanted a number of ticks of at least 1": run(num_rounds=0),
    "num_rounds: got 2147483648, 2.15e+09 ticks or updates and more, wanted at most 1e+08": run(num_rounds=2**31),
    "num_rounds: got Epochs(count=1000000000000.0), 2e+13 ticks": run(num_rounds=Epochs(1e12)),
    "num_rounds: got Seconds(count=1000000000000.0), ": run(num_rounds=Seconds(1e12)),
    "num_rounds: got Seconds(count=1000000000001.0), ": run(num_rounds=Seconds(1e12 + 1), scheduler=late()()),
    "num_rounds: got Seconds(count=1000000000002.0), ": run(num_rounds=Seconds(1e12 + 2), scheduler=late(FixedDelay)()),
    "num_rounds: Epochs.count: got 0, wanted more than 0": run(num_rounds=Epochs(0)),
    "num_rounds: Epochs.count: got None, wanted one number": run(num_rounds=Epochs(None)),
    "every: got 1.5, wanted a number of ticks": run(every=1.5),
    "every: Seconds.count: got nan, wanted at least 0": run(every=Seconds(NAN)),
    # the rest of a run
    "mesh: got Mesh(": run(mesh=jf.parallel.mesh()),
    "seed: got 4294967296, wanted 0 to 4294967295": run(seed=2**32),
    "measures: got the name 'messages', wanted one without / and none of": measured(messages=np.zeros(())),
    "measures: got the name 'epochs', wanted one without / and none of": measured(epochs=np.zeros(())),
    "measures: got shape (2,) for 'own', wanted axes ('party',) of lengths": measured(("party",), own=np.zeros(2)),
    "algorithms: got list, wanted a dict, name to algorithm": lambda: jf.compare([sgd()], 0, PARTY, num_rounds=2),
    "algorithm: got FedAvg, wanted a vertical one": lambda: jf.compare({"a": FEDAVG}, 0, PARTY, num_rounds=2),
}


@pytest.mark.parametrize(("message", "call"), CASES.items(), ids=CASES)
def test_refused(message, call):
    with pytest.raises(ValueError, match="^" + re.escape(message)) as caught:
        call()
    assert "\n" not in str(caught.value)


@pytest.fixture(scope="module")
def finished():
    return run(sgd(batch_size=4), num_rounds=10)()


def test_refused_states(finished):
    small = V.split(X, Y, 2, 2)
    for message, call in {
        "state: got Run, wanted the state of an earlier vertical run": run(state=finished),
        "state: got VerticalState, wanted the state of": run(state=finished.state._replace(totals=())),
        "state: got the state of another algorithm, with less": run(jf.VFB2SAGA(OBJECTIVE), state=finished.state),
        "state.weights.u: got float32[3, 2], wanted float32[6]": run(data=SPARSE, state=finished.state),
        "state: got Run, wanted the state of a vertical run": lambda: sgd().params(finished),
        "parties: got [7], wanted numbers of parties, 0 to 2": lambda: sgd().predict(finished.state, PARTY, [7]),
        "data: got ndarray, wanted PartyData": lambda: sgd().predict(finished.state, X),
        "data: got parameters of shape (2, 3), wanted (3, 2)": lambda: sgd().predict(finished.state, small),
    }.items():
        with pytest.raises(ValueError, match="^" + re.escape(message)):
            call()


def test_two_files_of_different_runs_are_refused(finished, tmp_path):
    finished.save(tmp_path / "a")
    run(sgd(batch_size=4), num_rounds=4)().save(tmp_path / "b")
    shutil.copy(tmp_path / "b" / "state.pkl", tmp_path / "a" / "state.pkl")
    with pytest.raises(ValueError, match="results end at update 20 and whose state at update 8; wanted the two files"):
        jf.load(tmp_path / "a")


def test_epochs_count_rows_whatever_the_batch_size_was(finished):
    rest = run(num_rounds=10, state=finished.state)()
    assert finished.dataset.epochs[-1] == 10 * 2 * 4 / 20
    assert rest.dataset.epochs[-1] == (10 * 2 * 4 + 10 * 2) / 20


def test_new_rows_get_the_form_of_the_split():
    dense, own = V.split(X, Y, 3, 2, scale="standard"), sparse.csr_matrix(X)
    np.testing.assert_array_equal(dense.like(own, Y).blocks.x, dense.like(X, Y).blocks.x)
    for a, b in zip(jax.tree.leaves(SPARSE.like(X).blocks), jax.tree.leaves(SPARSE.like(own).blocks), strict=True):
        np.testing.assert_array_equal(a, b)


def test_delays_longer_than_the_run():
    for method in (jf.VFB2SGD, jf.VFB2SVRG):
        scheduler = FixedDelay(PARTY, 0, 50)
        ds = run(method(OBJECTIVE), num_rounds=2, every=2, scheduler=scheduler)().dataset
        assert ds.dominated_updates[-1] * 3 == ds.block_updates[-1]


def test_a_constant_schedule_is_its_number():
    a, b = (run(sgd(lr=lr), num_rounds=5, every=5)() for lr in (0.1, jf.steps.Constant(0.1)))
    np.testing.assert_allclose(a.state.weights, b.state.weights, rtol=1e-6)


def test_test_rows_of_one_class_have_no_auc_and_no_auc_is_above_1():
    one = Y == 1
    ds = run(test=PARTY.like(X[one], Y[one]), num_rounds=40, every=1)().dataset
    assert ds.test_auc.isnull().all() and (ds.train_auc <= 1).all()


def test_a_lazy_scale_that_vanishes_is_flagged():
    with pytest.warns(UserWarning, match="diverged: .*; a smaller lr may .* sparse blocks need lr l2 m < 1, here 5"):
        run(sgd(Objective(l2=5.0), lr=0.5), SPARSE)()
