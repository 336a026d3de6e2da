"""Very many clients: states on the host are the resident run bit for bit, and only the cohort moves."""

import jax
import numpy as np
import pytest

import jaxfed as jf
from jaxfed import runner
from jaxfed.horizontal import federation as horizontal_federation
from jaxfed.horizontal import host_store, transfers
from tests import support

S = jf.horizontal
COUNT, COHORT = 10_000, 16
OPTIONS = {"num_rounds": 7, "every": 3, "group": 4, "progress": False}
EXACT = ("personal_train_loss", "server_test_accuracy", "mixing_weight", "drift", "update_norm", "finite", "visits")


def federation(count=COUNT, seed=0, most=4):
    """Ragged clients of 1 to 4 rows of 3 features and 3 classes, each with its own shift; test rows for two thirds."""
    rng = np.random.default_rng(seed)
    size = rng.integers(1, most + 1, count).astype(np.int32)
    owner = np.repeat(np.arange(count), size)
    x = rng.normal(size=(len(owner), 3)).astype(np.float32) + rng.normal(size=(count, 3)).astype(np.float32)[owner]
    y = (x.argmax(axis=1) + owner % 2) % 3
    rows = np.zeros((count, most), np.int32)
    rows[np.arange(most) < size[:, None]] = rng.permutation(len(owner))[np.argsort(owner, kind="stable")]
    test = np.where(np.arange(count) % 3 < 2, 1, 0).astype(np.int32)
    return (
        jf.ClientData.from_table(x, y, rows, size),
        jf.ClientData.from_table(x[::-1].copy(), y[::-1].copy(), rows[:, :2], test, allow_empty=True),
    )


TRAIN, TEST = federation()
ALGORITHM = jf.APFL(jf.models.logistic_regression(3, l2=0.01), alpha=np.linspace(0, 1, COUNT, dtype=np.float32), lr=0.2,
                    adaptive=True, **support.BATCH)  # fmt: skip
UNIFORM = S.UniformCohort(COUNT, COHORT)


def run(store, algorithm=ALGORITHM, data=TRAIN, **options):
    options = {"test": TEST, "scheduler": UNIFORM, **OPTIONS} | options
    return jf.run(3, algorithm, data, client_store=store, **options)


@pytest.fixture(scope="module", autouse=True)
def small_blocks():
    """Records in several blocks of clients, the last of which overlaps the one before."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(horizontal_federation, "EVALUATED_BYTES", 1 << 17)
        yield


@pytest.fixture(scope="module")
def resident():
    """Seven rounds of 16 of 10,000 clients, all on the device."""
    return run("device")


@pytest.fixture
def pools_on_host(monkeypatch):
    """Pools of any size move row by row, and all moves are small."""
    monkeypatch.setattr(host_store, "RESIDENT_BYTES", 0)
    monkeypatch.setattr(host_store, "MOVED_BYTES", 5 << 17)


def assert_same(one, two):
    """Bit for bit: states and records."""
    support.assert_trees(one.state, two.state, atol=0)
    assert list(one.dataset) == list(two.dataset)
    for name in one.dataset.variables:
        np.testing.assert_array_equal(one.dataset[name].values, two.dataset[name].values, err_msg=str(name))


def test_a_table_is_indices():
    """`from_table` against `from_indices`; nothing of the final type is copied; padding may hold anything."""
    train, test = federation(50)
    rows = [np.asarray(train.rows)[i, :n] for i, n in enumerate(train.size)]
    support.assert_trees(train, jf.ClientData.from_indices(train.x, train.y, rows), atol=0)
    wild = np.where(np.arange(4) < train.size[:, None], train.rows, 10**6)
    support.assert_trees(train, jf.ClientData.from_table(train.x, train.y, wild, train.size), atol=0)
    full = np.arange(8, dtype=np.int32).reshape(4, 2)
    made = jf.ClientData.from_table(train.x, train.y.astype(np.int32), full)
    assert np.shares_memory(made.rows, full) and np.shares_memory(made.x, train.x) and made.layout.num_filled == 4
    assert test.layout.num_filled == (np.arange(50) % 3 < 2).sum()


@pytest.mark.parametrize("chunk", [None, 2, pytest.param(1, marks=pytest.mark.slow)])
def test_host_is_resident_bit_for_bit(resident, pools_on_host, chunk):
    assert_same(resident, run("host", chunk=chunk))


def test_blocks_overlap(pools_on_host, monkeypatch):
    """What these tests rely on: records in several blocks of clients, whose last has to begin early."""
    made, build = [], host_store.build
    monkeypatch.setattr(host_store, "build", lambda *args: made.append(build(*args)) or made[-1])
    run("host", num_rounds=1)
    assert made[0].block < COUNT / 2 and COUNT % made[0].block and not made[0].pools


MODEL = ALGORITHM.model
OTHERS = {
    "FedAvg": jf.FedAvg(MODEL, optimizer=support.momentum, keep_optimizer=True, **support.BATCH),
    "FineTuned": jf.FineTuned(MODEL, tune_steps=2, **support.BATCH),
    "Scaffold": jf.Scaffold(MODEL, max_staleness=2, **support.BATCH),
    "APFL": jf.APFL(MODEL, evaluate_with="local", local_epochs=1, batch_size=3, batches="epochs"),
}
LONGER = ("FedAvg", "FineTuned", "APFL")


@pytest.mark.parametrize("name", ["Scaffold", *(pytest.param(n, marks=pytest.mark.slow) for n in LONGER)])
def test_other_states_and_stale_servers(name, pools_on_host):
    """Optimizer states, controls, local models; the server's past; a model that trains when it is evaluated."""
    algorithm, train = OTHERS[name], federation(400)[0]
    scheduler = S.UniformCohort(400, 16)
    if algorithm.max_staleness:
        scheduler = S.Stale(scheduler, np.arange(400) % 3, max_staleness=2)
    options = {"test": None, "scheduler": scheduler, "num_rounds": 5}
    assert_same(run("device", algorithm, train, **options), run("host", algorithm, train, **options))


@pytest.mark.slow
def test_idle_slots_and_everybody(pools_on_host):
    """A virtual clock: every client has a slot, most are idle in most rounds; in some rounds all are."""
    train = federation(60)[0]
    scheduler = S.FromSpeeds(np.where(np.arange(60) % 2, 2.0, 3.0), max_staleness=2)
    algorithm = ALGORITHM.replace(alpha=0.3, max_staleness=2)
    options = {"test": None, "scheduler": scheduler}
    assert_same(run("device", algorithm, train, **options), run("host", algorithm, train, **options))


def test_going_on_from_a_saved_state(resident, tmp_path):
    """Three rounds, then four more on the host, from states of either store and from disk."""
    for store in ("device", "host"):
        half = run(store, num_rounds=3)
        before = jax.tree.map(np.array, half.state.clients)
        if store == "host":
            assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(half.state.clients))
            half.save(tmp_path)
            half = jf.load(tmp_path)
        rest = run("host", num_rounds=4, state=half.state)
        support.assert_trees(resident.state, rest.state, atol=0)
        support.assert_trees(before, half.state.clients, atol=0)  # what was passed in is still there
    support.assert_trees(resident.state, run("device", num_rounds=4, state=half.state).state, atol=0)
    x = TRAIN.x[:5]
    np.testing.assert_array_equal(ALGORITHM.predict(rest.state, x, 77), ALGORITHM.predict(resident.state, x, 77))


def moved(monkeypatch, count, most=5, num_rounds=6, every=3):
    """Bytes that rounds move, records left out, where every client has `most` rows, and the number of clients."""
    total = []

    def counted(fn):
        def call(tree):
            out = fn(tree)
            total.extend(leaf.nbytes for leaf in jax.tree.leaves(out))
            return out

        return call

    monkeypatch.setattr(transfers, "put", counted(transfers.put))
    monkeypatch.setattr(transfers, "fetch", counted(transfers.fetch))
    advance, spent = host_store.HostStore.advance, []

    def alone(*args):
        total.clear()
        out = advance(*args)
        spent.append(sum(total))
        return out

    monkeypatch.setattr(host_store.HostStore, "advance", alone)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(count * most, 3)).astype(np.float32), rng.integers(0, 3, count * most)
    train = jf.ClientData.from_table(x, y, np.arange(count * most, dtype=np.int32).reshape(count, most))
    scheduler = S.UniformCohort(count, COHORT)
    run("host", ALGORITHM.replace(alpha=0.5), train, test=None, scheduler=scheduler, num_rounds=num_rounds, every=every)
    return sum(spent) / num_rounds


@pytest.mark.parametrize("count", [500, 4000])
def test_a_round_moves_its_cohort(monkeypatch, pools_on_host, count):
    """In: v [3, 3], its bias, alpha, 5 rows of 3 features and a label, 5 row numbers, size, id, the slot's event; out:
    the state. (All 4 bytes; and each round's time.) Nothing depends on the number of clients."""
    state, rows = 9 + 3 + 1, 5 * (3 + 1)
    each = 4 * (2 * state + rows + 5 + 2 + 1)
    assert moved(monkeypatch, count) == COHORT * each + 4


def test_a_shared_pool_stays_on_the_device(monkeypatch):
    """A small pool moves once, before the first round: rounds then move tables and states only."""
    monkeypatch.setattr(host_store, "RESIDENT_BYTES", 1 << 20)
    assert moved(monkeypatch, 500) == COHORT * 4 * (2 * 13 + 5 + 2 + 1) + 4


def test_nothing_compiles_again(pools_on_host):
    """Not for other rates and seeds."""
    run("host")
    before = runner.compiled_programs()
    jf.run(9, ALGORITHM.replace(lr=0.1), TRAIN, test=TEST, scheduler=UNIFORM, client_store="host", **OPTIONS)
    assert runner.compiled_programs() == before


class Crowded(jf.FedAvg):
    """An algorithm whose client states depend on who is beside them."""

    def init(self, key, data):
        state = super().init(key, data)
        return state._replace(clients=jax.numpy.arange(data.train.rows.shape[0], dtype=float))


ERRORS = {
    "client_store: got 'hots', wanted one of 'device', 'host' (did you mean 'host'?)": dict(store="hots"),
    "per_client: got 1, wanted True or False": dict(store="device", per_client=1),
    "mesh: got Mesh": dict(store="host", mesh=True),
    "algorithm: got Weighted, whose step is its own": dict(store="host", algorithm=jf.averaging.Weighted(ALGORITHM)),
    "measures[0]: got dims (), per_device=True, wanted per_device=True and": dict(
        store="host", measures=[jf.Measure(lambda *_: {"a": 1.0}, (), per_device=True)]
    ),
    "client_store: got 'host' and an init of Crowded that depends": dict(
        store="host", algorithm=Crowded(ALGORITHM.model)
    ),
    "measures: got the name 'mixing_weight_spread', wanted another": dict(
        store="device", per_client=False, measures=[jf.Measure(lambda *_: {"mixing_weight_spread": np.zeros(())})]
    ),
}


@pytest.mark.parametrize("message", ERRORS)
def test_what_is_refused(message, pools_on_host):
    options = dict(ERRORS[message])
    if "mesh" in options:
        options["mesh"] = jf.parallel.mesh(1)
    with pytest.raises(ValueError) as told:
        run(**options)
    assert str(told.value).startswith(message)


def test_parties_have_no_clients():
    party = jf.vertical.split(np.eye(4), np.array([0, 1, 0, 1]), num_parties=2, num_active=1, seed=0)
    vertical = jf.VFB2SGD(jf.vertical.Objective("logistic", "l2", l2=0.1))
    for option in ({"client_store": "host"}, {"per_client": False}):
        with pytest.raises(ValueError, match="wanted ClientData with it"):
            jf.run(0, vertical, party, num_rounds=2, **option)


def test_own_measures_stream(pools_on_host):
    """A measure of the user's for each client, by blocks: what it gives of all at once; it stays beside summaries."""

    def last(algorithm, state, data):
        return {"last": jax.numpy.stack([state.clients.alpha, data.train.size.astype(float)])}

    measure = jf.Measure(last, ("what", "client"), per_device=True)
    out = run("host", measures=[measure], num_rounds=1, per_client=False)
    assert out.dataset["last"].dims == ("round", "what", "client")
    np.testing.assert_array_equal(out.dataset["last"][-1, 0], out.state.clients.alpha)
    np.testing.assert_array_equal(out.dataset["last"][0, 1], TRAIN.size)


@pytest.mark.parametrize("store", ["device", "host"])
def test_summaries_are_the_figures_of_all_clients(resident, store):
    """Against `results` on the Dataset with every client, which tests of its own hold to plain sums."""
    full, out = resident.dataset, run(store, per_client=False).dataset
    assert not any("client" in v.dims for v in out.variables.values())
    for name in ("server_train_loss", "personal_test_loss", "personal_test_accuracy", "server_train_accuracy"):
        values = full[name].astype(float)
        for figure, known in {
            "mean_over_clients": jf.results.mean_over_clients(values),
            "mean_over_examples": jf.results.mean_over_examples(values),
            "spread": jf.results.spread(values),
            "worst_client": jf.results.worst(values),
        }.items():
            np.testing.assert_allclose(out[f"{name}_{figure}"], known, rtol=1e-12, atol=1e-12, err_msg=name)
        for k in (1, 5, 9):
            known = jf.results.decile(values, k)
            np.testing.assert_allclose(out[f"{name}_deciles"].sel(decile=k), known, rtol=1e-12)
    np.testing.assert_allclose(out.mixing_weight_mean_over_clients, full.mixing_weight.astype(float).mean("client"))
    assert "mixing_weight_mean_over_examples" not in out and "mixing_weight" not in out
    for part, model in (("test", "personal"), ("train", "server")):
        known = jf.results.summary(full, part, model)
        assert jf.results.summary(out, part, model) == pytest.approx(known, rel=1e-5)
    assert jf.results.best_round(out, "personal_train_loss") == jf.results.best_round(full, "personal_train_loss")
    reached = float(jf.results.mean_over_clients(full["server_test_accuracy"])[1])
    assert jf.results.rounds_to(out, reached - 1e-6, "server_test_accuracy") == 3
    with pytest.raises(ValueError, match="wanted an array with dim"):
        jf.results.worst(out["server_train_loss_spread"])
    assert jf.plots.curves(out, "personal_train_loss").lines


def test_summaries_beyond_a_size(monkeypatch):
    """By default for more clients than stated; a mesh's padding and clients without rows are left out."""
    train, test = federation(41)
    monkeypatch.setattr(S.summaries, "MOST_CLIENTS", 40)
    options = {"num_rounds": 1, "progress": False, "test": test}
    short, long = (jf.run(0, jf.FedAvg(ALGORITHM.model), train, per_client=p, **options).dataset for p in (None, True))
    assert "client" not in short.dims and long.sizes["client"] == 41
    monkeypatch.setattr(S.summaries, "MOST_CLIENTS", 41)
    assert "client" in jf.run(0, jf.FedAvg(ALGORITHM.model), train, **options).dataset.dims
    values = long["server_test_loss"].values[-1]
    assert np.isnan(values).any()
    assert short["server_test_loss_mean_over_clients"].values[-1] == pytest.approx(np.nanmean(values.astype(float)))


def test_nobody_has_test_rows():
    found = S.summaries.of("server_test_loss", np.full(3, np.nan), np.zeros(3, int))
    assert all(np.isnan(value).all() for value in found.values()) and found["server_test_loss_deciles"].shape == (9,)
