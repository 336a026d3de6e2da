"""`run`: pieces and records change no training, a second call compiles nothing, interrupts and divergence are told."""

import signal
import threading
from functools import partial

import jax
import numpy as np
import pytest

import jaxfed as jf
from jaxfed import core, machine, runner
from tests import support

ALGORITHM = jf.APFL(support.softmax(), lr=0.2, adaptive=True, **support.BATCH)
SCHEDULER = jf.horizontal.UniformCohort(5, 2)
SIZES = (5, 9, 7, 1, 4)


def federation(test_scale=1.0):
    """Train and test rows of five clients in one pool; the test rows come last, times `test_scale`. Client 3 has none.

    A scale changes the numbers of the test rows only, so it must change no training.
    """
    rows, extra = support.clients(sizes=SIZES), support.clients(7, sizes=(3, 2, 4, 0, 1))
    x = np.concatenate([x for x, _ in rows] + [test_scale * x for x, _ in extra]).astype(np.float32)
    y = np.concatenate([y for _, y in rows + extra])
    ends = np.cumsum([0, *(len(y) for _, y in rows + extra)])
    indices = [np.arange(a, b) for a, b in zip(ends[:-1], ends[1:], strict=True)]
    return (
        jf.ClientData.from_indices(x, y, indices[:5]),
        jf.ClientData.from_indices(x, y, indices[5:], allow_empty=True),
    )


TRAIN, TEST = federation()


def run(seed=0, algorithm=ALGORITHM, **options):
    defaults = {"test": TEST, "scheduler": SCHEDULER, "num_rounds": 10, "every": 3, "group": 2, "progress": False}
    return jf.run(seed, algorithm, TRAIN, **(defaults | options))


@pytest.fixture(scope="module")
def whole():
    """Ten rounds, recorded before the first and after 3, 6, 9 and 10."""
    return run()


def assert_same(a, b):
    """Bit for bit: the final states, and the records of the rounds that both have."""
    support.assert_trees(a.state, b.state, atol=0)
    shared = np.intersect1d(a.dataset["round"], b.dataset["round"])
    assert len(shared)
    for name in b.dataset.data_vars:
        one, two = a.dataset[name].sel(round=shared).values, b.dataset[name].sel(round=shared).values
        known = np.isfinite(one) | np.isfinite(two)
        if name in ("cohort", "update_norm", "drift", "alpha_gradient"):  # unknown in a run's first record
            known &= np.isfinite(one) & np.isfinite(two)
        np.testing.assert_array_equal(one[known], two[known], err_msg=name)


@pytest.mark.parametrize("options", [{"chunk": 1}, {"chunk": 2}, {"chunk": 50}, {"every": 1}, {"every": 10}], ids=str)
def test_pieces_and_records_change_nothing(whole, options):
    assert_same(whole, run(**options))


def test_ten_rounds_are_five_and_five(whole, tmp_path):
    """From the state in memory, and from one saved and loaded; rounds, visits and the clock go on."""
    half = run(num_rounds=5)
    half.save(tmp_path / "half")
    for state in (half.state, jf.load(tmp_path / "half").state):
        rest = run(num_rounds=5, state=state)
        assert rest.dataset["round"].values.tolist() == [5, 8, 10]
        assert rest.dataset.time.values.tolist() == [5, 8, 10]
        assert_same(whole, rest)
    assert half.state.server.round == 5  # the state that was passed in is still there


def test_seeds():
    """One seed, or its key, gives the same bits; another gives others."""
    first, again, key, other = (run(s, num_rounds=2) for s in (3, 3, jax.random.key(3), 4))
    assert_same(first, again)
    assert_same(first, key)
    assert first.dataset.attrs["seed"] == 3 and key.dataset.attrs["seed"] == "[0, 3]"
    assert (first.state.server.params["kernel"] != other.state.server.params["kernel"]).any()


def test_a_second_call_compiles_nothing(whole):
    """Not even with other rates, another seed, and windows of other lengths."""
    compiled = []

    def listen(event, duration, **_):
        if event == "/jax/core/compile/backend_compile_duration":
            compiled.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        run(7, ALGORITHM.replace(lr=0.05, alpha=0.1), num_rounds=4, every=2)
        assert not compiled
        jax.jit(lambda x: x * 3.25)(1.0)  # the listener hears
        assert compiled
    finally:
        jax.monitoring.clear_event_listeners()


def test_rollout_is_run(whole):
    """The pure driver inside one jit gives the same final state and records, up to rounding."""
    algorithm, scheduler = runner.cast(ALGORITHM, True), runner.cast(SCHEDULER)
    data = TRAIN.with_parts(TEST).place(algorithm, scheduler, group=2)
    rollout = partial(core.rollout, measures=data.default_measures(), num_rounds=10, every=3)
    carry, records = jax.jit(rollout)(jax.random.key(0), algorithm, scheduler, data)
    assert carry.round == 10 and carry.time == 10
    support.assert_trees(carry.state, whole.state, atol=1e-6)
    after = whole.dataset.isel(round=slice(1, None))
    for name in after.data_vars:
        np.testing.assert_allclose(records[name], after[name], rtol=1e-5, atol=1e-6, err_msg=name)


def test_grouping_changes_only_rounding(whole):
    for group in (1, 5):
        support.assert_trees(run(group=group).state, whole.state, atol=1e-5)


def test_test_rows_are_not_trained_on(whole):
    """Other test rows in the same pool: the same states bit for bit, but another test loss."""
    train, test = federation(test_scale=50.0)
    other = jf.run(0, ALGORITHM, train, test=test, scheduler=SCHEDULER, num_rounds=10, every=3, group=2, progress=False)
    support.assert_trees(other.state, whole.state, atol=0)
    np.testing.assert_array_equal(other.dataset.personal_train_loss, whole.dataset.personal_train_loss)
    assert (other.dataset.personal_test_loss != whole.dataset.personal_test_loss).any()


def test_x64_agrees_with_float32():
    """On full batches and with everybody: what is drawn at random differs between the two."""
    options = {"algorithm": ALGORITHM.replace(batch_size=None), "scheduler": None, "num_rounds": 3}
    narrow = run(**options)
    with jax.enable_x64(True):
        wide = run(**options)
    assert all(x.dtype == np.float64 for x in jax.tree.leaves((wide.state.server.params, wide.state.clients)))
    assert wide.dataset.personal_test_loss.dtype == np.float64 and wide.dataset.attrs["x64"] == 1
    np.testing.assert_allclose(narrow.state.clients.v["kernel"], wide.state.clients.v["kernel"], atol=1e-5)
    np.testing.assert_allclose(narrow.dataset.personal_test_loss, wide.dataset.personal_test_loss, atol=1e-5)


def test_divergence_is_told():
    """The run goes on to its end, flagged from the first record in which a parameter is not finite."""
    growing = jf.steps.ExponentialDecay(1.0, 1e12)
    with pytest.warns(UserWarning, match="diverged") as told:
        out = run(algorithm=ALGORITHM.replace(lr=growing), num_rounds=6, every=1)
    finite = out.dataset.finite.values
    at = int(np.argmin(finite))
    assert 1 < at < 6 and finite[:at].all() and not finite[at:].any() and len(finite) == 7
    assert str(told[0].message).startswith(f"diverged: the state is not finite from round {at} on; a smaller lr")
    assert told[0].filename == __file__
    assert jf.trees.all_finite(run(algorithm=ALGORITHM.replace(lr=growing), num_rounds=at - 1).state)


def test_ctrl_c_returns_what_is_finished(whole, monkeypatch):
    """An interrupt after the second record: six of ten rounds, the same as in a whole run."""
    headline = runner.headline

    def press(bar, record):
        headline(bar, record)
        if press.left == 0:
            signal.raise_signal(signal.SIGINT)
        press.left -= 1

    press.left = 1
    monkeypatch.setattr(runner, "headline", press)
    with pytest.warns(UserWarning, match="interrupted: returning the first 6 of 10 rounds"):
        out = run(num_rounds=10)
    assert out.dataset["round"].values.tolist() == [0, 3, 6]
    monkeypatch.undo()
    assert_same(out, run(num_rounds=6))
    with pytest.raises(KeyboardInterrupt):  # Ctrl-C is Python's own again
        signal.raise_signal(signal.SIGINT)


def test_runs_in_a_thread(whole):
    """Where no signal can be caught, as in a server or a notebook's worker."""
    results = []
    thread = threading.Thread(target=lambda: results.append(run()))
    thread.start()
    thread.join()
    assert_same(whole, results[0])


def test_memory_does_not_grow_with_rounds(whole):
    """What stays on the device after 60 rounds is what stays after 6, and the state is updated in place."""

    def live():
        return sum(x.nbytes for x in jax.live_arrays())

    run(num_rounds=6)
    before = live()
    run(num_rounds=60, every=1)
    assert live() == before
    algorithm, scheduler = runner.cast(ALGORITHM, True), runner.cast(SCHEDULER)
    data = TRAIN.with_parts(TEST).place(algorithm, scheduler, group=2)
    carry = core.init(jax.random.key(0), algorithm, data)
    machine.compiled_advance(None, jax.random.key(0), algorithm, scheduler, data, carry, 1)
    assert carry.state.clients.v["kernel"].is_deleted()
