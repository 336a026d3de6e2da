"""A vertical run as a user sees it: bits that do not depend on how it is cut, records, counts, states, lanes."""

import signal

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxfed as jf
from jaxfed import core, progress, runner, testing
from jaxfed.vertical import BilevelAsync, Epochs, FixedDelay, Objective, Seconds, Synchronous, engine
from jaxfed.vertical.data import Depths
from tests.vertical_support import METHODS, federation

OBJECTIVE = Objective("logistic", "l2", 0.05)
PARTY, BLOCKS, Y = federation(n=60)
SPARSE = federation(n=60, sparse=True)[0]
QUIET = {"progress": False}
FORMS = [(name, form) for name in METHODS for form in ("dense", "sparse") if (name, form) != ("saga_literal", "sparse")]


def of(method, **fields):
    return METHODS[method](OBJECTIVE, lr=0.1, **fields)


def run(algorithm, party=PARTY, num_rounds=40, **options):
    return jf.run(0, algorithm, party, num_rounds=num_rounds, **{**QUIET, **options})


@pytest.mark.parametrize("method, form", FORMS)
def test_a_run_in_pieces_is_the_run_in_one_piece(method, form):
    party = PARTY if form == "dense" else SPARSE
    algorithm = of(method)
    options = {"party": party, "scheduler": BilevelAsync(party), "num_rounds": 300}
    whole = run(algorithm, every=300, chunk=300, **options)
    pieces = run(algorithm, every=7, chunk=5, **options)
    testing.assert_equal(whole.state, pieces.state, "cutting a run changes it")
    assert pieces.dataset.sizes["round"] == 44
    for name in whole.dataset.data_vars:
        np.testing.assert_array_equal(whole.dataset[name][-1], pieces.dataset[name][-1], name)


def test_other_numbers_compile_nothing():
    run(of("saga"), scheduler=BilevelAsync(PARTY), every=9)
    before = runner.compiled_programs()
    other = of("saga").replace(lr=0.02, objective=Objective("logistic", "l2", 0.2))
    jf.run(5, other, PARTY, scheduler=BilevelAsync(PARTY, seed=3, tau1=7), num_rounds=41, every=4, **QUIET)
    assert runner.compiled_programs() == before


@pytest.mark.parametrize("method", ["sgd", "saga"])
def test_a_synchronous_run_goes_on_bit_for_bit(method):
    whole = run(of(method))
    half = run(of(method), num_rounds=20)
    rest = run(of(method), num_rounds=20, state=half.state)
    testing.assert_equal(whole.state.weights, rest.state.weights, "continuing changes the weights")
    np.testing.assert_array_equal(rest.dataset["round"], np.arange(20, 41))
    for name in ("dominated_updates", "block_updates", "messages", "bytes", "epochs"):
        np.testing.assert_array_equal(whole.dataset[name][20:], rest.dataset[name], name)


@pytest.mark.parametrize("method, form", FORMS)
def test_a_saved_run_goes_on(method, form, tmp_path):
    party = PARTY if form == "dense" else SPARSE
    scheduler = BilevelAsync(party)
    first = run(of(method), party, scheduler=scheduler, num_rounds=Epochs(3))
    first.save(tmp_path)
    loaded = jf.load(tmp_path)
    a, b = (run(of(method), party, scheduler=scheduler, num_rounds=20, state=s) for s in (first.state, loaded.state))
    testing.assert_equal(a.state, b.state, "saving changes a state")
    assert float(a.dataset.time[0]) == float(first.dataset.time[-1])
    assert (np.diff(a.dataset.time) >= 0).all() and float(a.dataset.time[-1]) > float(a.dataset.time[0])
    np.testing.assert_allclose(a.dataset.objective[0], first.dataset.objective[-1], rtol=1e-6)


def test_lengths_and_records_in_ticks_epochs_and_seconds():
    scheduler = BilevelAsync(PARTY)
    ds = run(of("sgd"), scheduler=scheduler, num_rounds=Epochs(4), every=Epochs(1)).dataset
    assert ds.sizes["round"] == 5 and ds.epochs[-1] >= 4 > ds.epochs[-2]
    assert float(ds.dominated_updates[-1]) - 4 * 60 < 2
    ds = run(of("sgd"), scheduler=scheduler, num_rounds=Seconds(50), every=Seconds(10)).dataset
    assert ds.sizes["round"] == 6 and (ds.time.values[1:-1] >= [10, 20, 30, 40]).all()
    assert run(of("sgd"), scheduler=scheduler, num_rounds=9, every=4).dataset["round"].values.tolist() == [0, 4, 8, 9]


@pytest.mark.parametrize("backward", [True, False])
@pytest.mark.parametrize("delays", ["fixed", "event queue"])
def test_every_record_counts_what_the_table_says(delays, backward):
    """Snapshots before an epoch's first completion, and parties that apply nothing, count as they come."""
    scheduler = FixedDelay(PARTY, 3, 4) if delays == "fixed" else BilevelAsync(PARTY, link=0.5).slow(3, update=3)
    algorithm = of("svrg", epoch_length=20, backward=backward)
    ds = run(algorithm, scheduler=scheduler, num_rounds=60).dataset
    table = jf.vertical.plan(algorithm, PARTY, scheduler, 60).table()
    parties = list(range(4)) if backward else list(PARTY.active)
    counts = (table.apply[:, :, parties] >= 0).sum((1, 2)), table.complete.sum(1), table.snapshot
    applied, dominated, passes = (np.append(0, c.cumsum())[[*range(60), -1]] for c in counts)
    assert passes[-1] > 2 and (np.diff(passes) > 0).any()
    np.testing.assert_array_equal(ds.block_updates, applied)
    np.testing.assert_array_equal(ds.messages, (dominated + passes) * (2 * 3 + len(parties) - 1))
    sent = 2 * 3 * 4 + (len(parties) - 1) * 8
    np.testing.assert_array_equal(ds.bytes, dominated * sent + passes * 60 * (2 * 3 + len(parties) - 1) * 4)


@pytest.mark.parametrize("method", METHODS)
def test_counts_follow_from_the_table(method):
    scheduler = BilevelAsync(PARTY, link=0.5).slow(3, update=3)
    algorithm = of(method)
    ds = run(algorithm, scheduler=scheduler, num_rounds=33).dataset
    plan = jf.vertical.plan(algorithm, PARTY, scheduler, 33)
    table, q = plan.table(), 4
    dominated = np.append(0, table.complete.sum(1).cumsum())
    applied = np.append(0, (table.apply >= 0).sum((1, 2)).cumsum())
    np.testing.assert_array_equal(ds.dominated_updates[:-1], dominated[:33])
    np.testing.assert_array_equal(ds.block_updates[:-1], applied[:33])
    assert ds.dominated_updates[-1] * q == ds.block_updates[-1] == applied[-1], "a run ends drained"
    passes = 0 if method == "sgd" else 1
    assert ds.messages[-1] == (dominated[-1] + passes) * 3 * (q - 1)
    each = 2 * (q - 1) * 4 + (q - 1) * 8  # a float32 each way of two trees, theta and a row number back
    assert ds.bytes[-1] == dominated[-1] * each + passes * 60 * 3 * (q - 1) * 4


def test_lanes_are_the_runs_one_by_one():
    """A last axis of step sizes and penalties on one shared table: several runs in one program."""
    for method in ("sgd", "svrg", "saga"):
        plan = jf.vertical.plan(of(method), PARTY, BilevelAsync(PARTY), 80)
        placed = PARTY.place(Depths(plan.read_depth, plan.message_depth))
        rates, penalties = jnp.array([0.02, 0.1, 0.3]), jnp.array([0.0, 0.05, 0.2])

        def final(algorithm, placed=placed, plan=plan):
            carry = core.init(jax.random.key(0), algorithm, placed)
            carry, _ = core.advance(jax.random.key(0), algorithm, plan.scheduler, placed, carry, 80)
            return engine.weights(algorithm, carry.state)

        together = jax.jit(final)(of(method).replace(lr=rates, objective=OBJECTIVE.replace(l2=penalties)))
        assert together.shape == (4, 4, 3)
        for lane in range(3):
            objective = OBJECTIVE.replace(l2=penalties[lane])
            alone = jax.jit(final)(of(method).replace(lr=rates[lane], objective=objective))
            np.testing.assert_allclose(together[..., lane], alone, rtol=1e-5, atol=1e-6)


def test_a_sweep_of_delays_is_one_program():
    def final(read, message):
        scheduler = FixedDelay(PARTY, read, message, bound=6)
        placed = PARTY.place(Depths(7, 7))
        carry = core.init(jax.random.key(0), of("saga"), placed)
        return core.advance(jax.random.key(0), of("saga"), scheduler, placed, carry, 60)[0].state.weights

    read, message = jnp.array([0, 2, 6]), jnp.array([3, 0, 6])
    together = jax.jit(jax.vmap(final))(read, message)
    for lane in range(3):
        np.testing.assert_allclose(together[lane], jax.jit(final)(read[lane], message[lane]), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("method, form", FORMS)
def test_float32_follows_float64(method, form):
    party = PARTY if form == "dense" else SPARSE
    single = run(of(method), party, scheduler=BilevelAsync(party), num_rounds=200)
    with jax.enable_x64(True):
        double = run(of(method), party, scheduler=BilevelAsync(party), num_rounds=200)
    assert single.state.weights.dtype == np.float32 and double.state.weights.dtype == np.float64
    np.testing.assert_allclose(single.state.weights, double.state.weights, rtol=0, atol=2e-5)


def test_predict_and_join():
    x, rng = np.hstack(BLOCKS), np.random.default_rng(0)
    party = jf.vertical.split(x, Y, num_parties=3, num_active=1, seed=1, scale="standard", intercept=True)
    new, labels = rng.normal(size=(7, 10)), np.array([1.0, -1, 1, 1, -1, -1, 1])
    test, algorithm = party.like(new, labels), of("saga")
    out = run(algorithm, party, test=test, num_rounds=100)
    scores = np.asarray(algorithm.predict(out.state, test))
    w = party.join(algorithm.params(out.state))
    scaled = (new - x.mean(0)) / x.std(0)
    np.testing.assert_allclose(scores, scaled @ w[:10] + w[10], rtol=1e-4, atol=1e-5)
    assert float(out.dataset.test_accuracy[-1]) == pytest.approx(np.mean((scores > 0) == (labels > 0)))
    part = np.asarray(algorithm.predict(out.state, party.like(new), parties=[0, 2]))
    assert not np.allclose(part, scores)
    rest = np.asarray(algorithm.predict(out.state, party.like(new), parties=[1]))
    np.testing.assert_allclose(part + rest, scores, rtol=1e-4, atol=1e-5)


def test_a_diverging_step_is_flagged_and_never_refused():
    party, _, _ = federation(targets=True)
    algorithm = jf.VFB2SGD(Objective("squared", "l2", 0.1), lr=50.0)
    with pytest.warns(UserWarning, match="diverged: the state is not finite from round .* lr .*1 / L is"):
        out = run(algorithm, party, num_rounds=200, every=20)
    assert not out.dataset.finite[-1] and np.isnan(out.dataset.train_rmse[-1])


@pytest.mark.parametrize("every", [7, 100])
def test_ctrl_c_ends_drained(monkeypatch, every):
    """What was sent before the interrupt is applied everywhere; the run can go on."""
    scheduler = BilevelAsync(PARTY, link=2.0).slow(3, update=4)
    chunks = []
    enter = progress.Pace.__enter__

    def interrupt(self):
        chunks.append(enter(self))
        if len(chunks) == 3:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(progress.Pace, "__enter__", interrupt)
    with pytest.warns(UserWarning, match="interrupted: returning the first 21 of 100 rounds"):
        out = run(of("sgd"), scheduler=scheduler, num_rounds=100, every=every, chunk=7)
    monkeypatch.undo()
    ds = out.dataset
    assert ds["round"].values[-1] == 21
    assert ds.dominated_updates[-1] * 4 == ds.block_updates[-1]
    whole = run(of("sgd"), scheduler=scheduler, num_rounds=int(ds["round"][-1]))
    testing.assert_equal(whole.state, out.state, "an interrupted run is the shorter run")


def test_compare_runs_several_under_one_schedule():
    ds = jf.compare({"a": of("sgd"), "b": of("saga")}, 0, PARTY, num_rounds=30, every=10, seeds=2, progress=False)
    assert dict(ds.objective.sizes) == {"algorithm": 2, "seed": 2, "round": 4}
    alone = jf.run(1, of("saga"), PARTY, num_rounds=30, every=10, **QUIET).dataset
    np.testing.assert_array_equal(ds.objective.sel(algorithm="b", seed=1), alone.objective)


def test_half_a_million_rows():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(500_000, 100)).astype(np.float32)
    y = np.sign(x @ rng.normal(size=100) + rng.normal(size=500_000))
    party = jf.vertical.split(x, y, num_parties=8, num_active=3)
    algorithm = jf.VFB2SAGA(Objective("logistic", "l2", 1e-4), lr=0.005, batch_size=32)
    out = run(algorithm, party, scheduler=BilevelAsync(party), num_rounds=Epochs(1))
    assert float(out.dataset.objective[-1]) < 0.6 * float(out.dataset.objective[0])
    assert out.dataset.train_auc[-1] > 0.9


def test_default_scheduler_is_synchronous():
    testing.assert_equal(run(of("sgd")).state, run(of("sgd"), scheduler=Synchronous(PARTY)).state, "default")
