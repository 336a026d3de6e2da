"""Bad input: one line that names the field, what it got and what it wanted, before anything is compiled."""

import re

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxfed as jf

S = jf.horizontal
X, Y = np.ones((6, 4), np.float32), np.array([0, 1, 2, 0, 1, 2])
TWO = [np.arange(3), np.arange(3, 6)]
DATA = jf.ClientData.from_indices(X, Y, TWO)
MODEL = jf.models.logistic_regression(3)
NAN = np.where(np.arange(24).reshape(6, 4) == 9, np.nan, X)
BINARY = jf.models.linear_regression(loss="logistic")
TABLE = S.Event(np.arange(1.0, 3.0), np.array([[0, 1], [1, 0]]), None, np.array([[0, 0], [1, 0]]))


def fedavg(**fields):
    return jf.FedAvg(MODEL, **fields)


def apfl(**fields):
    return jf.APFL(MODEL, **fields)


def make(x=X, y=Y, indices=TWO, **options):
    return lambda: jf.ClientData.from_indices(x, y, indices, **options)


def table(rows=((0, 1), (2, 3)), size=None, **options):
    return lambda: jf.ClientData.from_table(X, Y, np.asarray(rows), size, **options)


def pairs(*clients):
    return lambda: jf.ClientData.from_list(clients)


def run(algorithm=None, data=DATA, seed=0, **options):
    options = {"num_rounds": 2, "progress": False} | options
    return lambda: jf.run(seed, fedavg() if algorithm is None else algorithm, data, **options)


def late(scheduler, bound=1):
    return run(fedavg(max_staleness=bound), scheduler=scheduler)


class Normalised(nn.Module):
    """A network with running statistics, which no average is defined for."""

    @nn.compact
    def __call__(self, x):
        return nn.Dense(3)(nn.BatchNorm(use_running_average=False)(x))


CASES = {
    # rows and labels
    "data.x: got a value that is not finite in row 2, wanted finite numbers": make(NAN),
    "data.y: got a value that is not finite in row 1, wanted finite numbers": make(y=np.array([0, np.nan, 1, 0, 1, 1])),
    "data.y: got shape (5,), wanted (6,), one label for each row of x": make(y=Y[:5]),
    "data.x: got shape (6,) of float64, wanted numbers of shape [rows, features...]": make(np.ones(6)),
    "data.x: got shape (6, 1) of <U1, wanted numbers": make(np.full((6, 1), "a")),
    "data.x: got no rows, wanted at least one": make(X[:0], Y[:0], []),
    "data.indices: got no clients, wanted at least one": make(indices=[]),
    "data.indices[1]: got rows 3 to 6, wanted 0 to 5": make(indices=[[0], [3, 6]]),
    "data.indices[0]: got rows -1 to 0, wanted 0 to 5": make(indices=[[-1, 0]]),
    "data.indices[0]: got bool, wanted row numbers": make(indices=[Y > 1]),
    "data.indices[0]: got float64, wanted row numbers": make(indices=[[0.5]]),
    "data.indices[1]: got no rows (1 such clients), wanted at least one row a client, or allow_empty=True": make(
        indices=[[0], []]
    ),
    "data.rows: got int64 of shape (2,), wanted row numbers of shape [clients, most rows]": table((0, 1)),
    "data.rows: got float64 of shape (1, 1), wanted row numbers": table([[0.5]]),
    "data.rows: got rows 0 to 6, wanted 0 to 5": table([[0, 6]]),
    "data.size: got int64 of shape (1,), wanted integers of shape (2,), one for each client": table(size=[1]),
    "data.size: got 1 to 3, wanted 0 to 2, the width of rows": table(size=[1, 3]),
    "data.size[1]: got no rows (1 such clients), wanted at least one row a client, or allow_empty=True": table(
        size=[1, 0]
    ),
    "clients: got an empty list, wanted one pair (x_i, y_i) for each client": pairs(),
    "clients[1]: got 3 rows of x and 2 labels, wanted equal numbers": pairs((X[:3], Y[:3]), (X[:3], Y[:2])),
    "clients[1].x: got rows of shape (3,), wanted (4,), as client 0 has": pairs((X[:3], Y[:3]), (X[:3, :3], Y[:3])),
    "train.y: got the label 3, wanted 0 to 2, the classes of the model": run(data=make(y=Y + 1)()),
    "train.y: got the label -1, wanted 0 to 2, the classes of the model": run(data=make(y=Y - 1)()),
    "train.y: got labels of float64, wanted class numbers (integers) for the loss 'softmax_cross_entropy'": run(
        data=make(y=Y / 2)()
    ),
    "train.y: got the label 0, wanted -1 or +1 for the loss 'logistic'": run(jf.FedAvg(BINARY)),
    "test.y: got the label 3, wanted 0 to 2": run(test=make(y=Y + 1)()),
    "test: got 1 clients, wanted 2, as there are in train": run(test=make(indices=TWO[:1])()),
    "validation.x: got rows of shape (3,), wanted (4,), as train has": run(validation=make(X[:, :3])()),
    "data: got tuple, wanted ClientData": run(data=(X, Y)),
    "test: got tuple, wanted ClientData": run(test=(X, Y)),
    # algorithms
    "alpha: got 1.5, wanted 0 to 1": run(apfl(alpha=1.5)),
    "alpha: got nan, wanted 0 to 1": run(apfl(alpha=np.array([0.1, np.nan]))),
    "alpha: got shape (3,), wanted one number, or one for each of 2": run(apfl(alpha=np.zeros(3))),
    "alpha_lr: got -0.1, wanted at least 0, and finite": run(apfl(alpha_lr=-0.1)),
    "alpha_l2: got -1, wanted at least 0": run(apfl(alpha_l2=-1)),
    "personal_lr: got -1, wanted at least 0": run(apfl(personal_lr=-1)),
    "tune_lr: got -1, wanted at least 0": run(jf.FineTuned(MODEL, tune_lr=-1)),
    "lr: got -0.1, wanted at least 0, and finite": run(fedavg(lr=-0.1)),
    "lr: got inf, wanted at least 0, and finite": run(fedavg(lr=jf.steps.ExponentialDecay(np.inf, 0.9))),
    "lr: got 'fast', wanted a number": run(fedavg(lr="fast")),
    "lr: got None, wanted a number": run(fedavg(lr=None)),
    "lr: got shape (3,), wanted one number": run(fedavg(lr=np.full(3, 0.1))),
    "lr.offset: got 0, wanted at least": run(fedavg(lr=jf.steps.InverseTime(1.0, 0.0))),
    "server_lr: got -1, wanted at least 0": run(fedavg(server_lr=-1)),
    "model.l2: got -1, wanted at least 0": run(jf.FedAvg(jf.models.logistic_regression(3, l2=-1))),
    "model.loss: got 'hinge', wanted one of": run(jf.FedAvg(jf.models.linear_regression(loss="hinge"))),
    "model.net: got a module with the collections ['batch_stats'], wanted parameters only": run(
        jf.FedAvg(jf.Model(Normalised()))
    ),
    "model: got Dense, wanted a jaxfed.Model": run(jf.FedAvg(nn.Dense(3))),
    "optimizer: got GradientTransformationExtraArgs, wanted a function of the rate": run(
        fedavg(optimizer=optax.sgd(0.1))
    ),
    "server_optimizer: got 'adam', wanted a function of the rate": run(fedavg(server_optimizer="adam")),
    "local_steps: got 0, wanted a whole number of at least 1": run(fedavg(local_steps=0)),
    "batch_size: got 2.5, wanted a whole number of at least 1": run(fedavg(batch_size=2.5)),
    "local_epochs: got True, wanted a whole number": run(fedavg(local_epochs=True, batches="epochs")),
    "tune_steps: got 0, wanted a whole number of at least 1": run(jf.FineTuned(MODEL, tune_steps=0)),
    'local_epochs: got 2, wanted batches="epochs" with it, or None': run(fedavg(local_epochs=2)),
    "batches: got 'epoch', wanted one of 'with_replacement', 'epochs' (did you mean 'epochs'?)": run(
        fedavg(batches="epoch")
    ),
    "weights: got 'sizes', wanted one of 'uniform', 'examples'": run(fedavg(weights="sizes")),
    "option: got 'i', wanted one of 'I', 'II'": run(jf.Scaffold(MODEL, option="i")),
    "mix: got 'logit', wanted one of 'params', 'logits' (did you mean 'logits'?)": run(apfl(mix="logit")),
    "mix: got 'logits', wanted \"params\" inside averaging.Weighted": run(jf.averaging.Weighted(apfl(mix="logits"))),
    "alpha_every: got 'epoch', wanted one of": run(apfl(alpha_every="epoch")),
    "order: got 'sequence', wanted one of 'simultaneous', 'sequential' (did you mean 'sequential'?)": run(
        apfl(order="sequence")
    ),
    "alpha_gradient: got 'true', wanted one of": run(apfl(alpha_gradient="true")),
    "evaluate_with: got 'locals', wanted one of": run(apfl(evaluate_with="locals")),
    "form: got 'fast', wanted one of": run(apfl(form="fast")),
    "offset: got -1, wanted at least 0": run(jf.averaging.Weighted(fedavg(), offset=-1)),
    # schedulers
    "scheduler.num_clients: got 3, wanted 2, the clients of the data": run(scheduler=S.FullParticipation(3)),
    "scheduler.cohort_size: got 3, wanted at most 2, the number of clients": run(scheduler=S.UniformCohort(2, 3)),
    "scheduler.cohort_size: got 0, wanted a whole number of at least 1": run(scheduler=S.UniformCohort(2, 0)),
    "scheduler.strata: got 0, wanted a whole number of at least 1": run(scheduler=S.UniformCohort(2, 2, strata=0)),
    "scheduler.strata: got 2, wanted a divisor of num_clients and of cohort_size": run(
        scheduler=S.UniformCohort(2, 1, strata=2)
    ),
    "scheduler.seconds: got -1, wanted at least 0": run(scheduler=S.UniformCohort(2, 1, seconds=-1)),
    "max_staleness: got 0, wanted at least 1 on the algorithm": run(scheduler=S.Stale(S.FullParticipation(2), 1, 1)),
    "scheduler.delay: got 2, wanted 0 to 1": late(S.Stale(S.FullParticipation(2), [0, 2], 1)),
    "scheduler.delay: got -1, wanted 0 to 1": late(S.Stale(S.FullParticipation(2), -1, 1)),
    "scheduler.delay: got shape (3,), wanted (2,)": late(S.Stale(S.FullParticipation(2), [0, 1, 0], 1)),
    "scheduler.cohort_size: got 9, wanted at most 2": late(S.Stale(S.UniformCohort(2, 9), 1, 1)),
    "scheduler.seconds: got 2.5, wanted 0 to 2": late(S.FromSpeeds([1.0, 2.5], 1)),
    "scheduler.seconds: got shape (), wanted (2,)": late(S.FromSpeeds(2.0, 1)),
    "scheduler.interval: got 0, wanted at least": late(S.FromSpeeds([1.0, 1.0], 1, interval=0.0)),
    "scheduler.events: got 2 rounds, wanted at least 3": run(
        scheduler=S.Replay(TABLE._replace(delay=None), 2), num_rounds=3
    ),
    "scheduler.events.ids: got 0 to 2, wanted 0 to 1": late(
        S.Replay(TABLE._replace(ids=np.array([[0, 1], [2, 0]])), 2)
    ),
    "scheduler.events.ids: got a client twice in round 1": late(
        S.Replay(TABLE._replace(ids=np.array([[0, 1], [1, 1]])), 2)
    ),
    "scheduler.max_staleness: got 0, wanted the bound of scheduler.events.delay": late(S.Replay(TABLE, 2)),
    # the run
    "num_rounds: got 0, wanted a whole number of at least 1": run(num_rounds=0),
    "num_rounds: got 2.0, wanted a whole number of at least 1": run(num_rounds=2.0),
    "every: got 0, wanted a whole number of at least 1": run(every=0),
    "chunk: got 0, wanted a whole number of at least 1": run(chunk=0),
    "group: got -1, wanted a whole number of at least 1": run(group=-1),
    "seed: got 0.5, wanted an int or one typed key (jax.random.key)": run(seed=0.5),
    "seed: got True, wanted an int or one typed key": run(seed=True),
    "seed: got Array([0, 1], dtype=uint32), wanted an int or one typed key": run(seed=jnp.array([0, 1], jnp.uint32)),
    "client: got 9, wanted 1 to 1, the number of devices": lambda: jf.parallel.mesh(9, jax.devices()[:1]),
    "sweep: got 9, wanted 1 to 1, the number of devices": lambda: jf.parallel.mesh(None, jax.devices()[:1], sweep=9),
    "mesh: got the axes ('x',), wanted one named": run(mesh=jax.sharding.Mesh(np.array(jax.devices()[:1]), ("x",))),
    "coordinator: got 'here', wanted HOST:PORT": lambda: jf.parallel.start_processes("here", 2, 0),
    "num_processes: got 0, wanted a whole number": lambda: jf.parallel.start_processes("a:1", 0, 0),
    "process_id: got 2, wanted 0 to 1": lambda: jf.parallel.start_processes("a:1", 2, 2),
    "depth: got 0, wanted at least 1": lambda: jf.history.start(jnp.zeros(2), 0),
}  # fmt: skip


@pytest.mark.parametrize("message", CASES)
def test_bad_input_is_told_in_one_line(message):
    with pytest.raises(ValueError, match="^" + re.escape(message)) as error:
        CASES[message]()
    assert "\n" not in str(error.value) and re.match(r"[\w.\[\]]+: got .+, wanted .+", str(error.value))


@pytest.fixture(scope="module")
def state():
    return run(apfl(batch_size=None, local_steps=1))().state


def test_states_of_other_runs_are_refused(state):
    """Of another algorithm, model, number of clients or precision, each by the first thing that differs."""
    three = jf.ClientData.from_indices(X, Y, [[0], [1], [2]])
    for wanted, call in {
        "state: got": run(fedavg(), state=state),
        "state.server.params['bias']: got float32[3], wanted float32[4]": run(
            jf.APFL(jf.models.logistic_regression(4)), state=state
        ),
        "state.clients.v['bias']: got float32[2, 3], wanted float32[3, 3]": run(apfl(), three, state=state),
        "state: got Run, wanted": run(apfl(), state=jf.Run(None, state)),
    }.items():
        with pytest.raises(ValueError, match="^" + re.escape(wanted)) as error:
            call()
        assert "\n" not in str(error.value) and len(str(error.value)) < 500
    with jax.enable_x64(True), pytest.raises(ValueError, match=r"\['bias'\]: got float32\[3\], wanted float64\[3\]"):
        run(apfl(), state=state)()


def test_good_edges_are_accepted(state):
    """What the checks must let through: alpha at its ends, rates of 0, an idle client, one slot, int seconds."""
    data = jf.ClientData.from_indices(X, Y, [[0], []], allow_empty=True)
    once = {"batch_size": None, "local_steps": 1}
    run(apfl(alpha=[0, 1], lr=0, **once), data, seed=np.int64(3), scheduler=S.UniformCohort(2, 1, seconds=2))()
    late(S.FromSpeeds([1, 2], 1))()
