"""Masked runs and runs with a defence: against the NumPy oracles, as lanes of a sweep, in pieces."""

from typing import Any

import jax
import numpy as np
import pytest

import jaxfed as jf
from jaxfed import privacy, resume, testing
from jaxfed.nodes import PyTreeNode
from jaxfed.vertical import BilevelAsync, Epochs, FixedDelay, Objective, SecureAggregation, Synchronous
from tests.reference.transcripts import transcript
from tests.reference.vertical import replay
from tests.vertical_support import METHODS, federation, history, sampler

FORMS = {form: federation(sparse=form == "sparse") for form in ("dense", "sparse")}
PARTY = FORMS["dense"][0]
SCHEDULERS = {
    "synchronous": Synchronous,
    "fixed": lambda party: FixedDelay(party, read=2, message=3),
    "event queue": lambda party: BilevelAsync(party, link=0.3, jitter=0.3).slow(1, update=2.5),
}
MASKS = {
    32: (SecureAggregation(bits=32, fraction_bits=24), 1e-5),
    64: (SecureAggregation(bits=64), 1e-7),
    None: (SecureAggregation(bits=None, scale=2.0), 1e-10),
}
SECRET_ROWS, SECRET_PASSES = 0x7FFFFFFF, 0x7FFFFFFE


class Noise(PyTreeNode):
    """theta + std * normal, fresh for each."""

    std: Any

    def draw(self, key, row_key, y):
        """A standard normal number."""
        return jax.random.normal(key)

    def release(self, theta, y, drawn):
        """Theta and noise."""
        return theta + self.std * drawn


class Flip(PyTreeNode):
    """-theta for a share of the rows, the same ones for the whole run."""

    share: Any

    def draw(self, key, row_key, y):
        """A uniform number of the row's own."""
        return jax.random.uniform(row_key)

    def release(self, theta, y, drawn):
        """Theta or -theta."""
        return jax.numpy.where(drawn < self.share, -theta, theta)


def algorithm_of(method, **options):
    extra = {"epoch_length": 35} if method == "svrg" else {}
    return METHODS[method](Objective("logistic", "l2", 0.05), **{"lr": 0.1, "batch_size": 2} | extra | options)


CASES = [(method, "dense", "event queue", 64) for method in METHODS]
CASES += [(method, "sparse", "event queue", bits) for method, bits in (("sgd", None), ("svrg", 64), ("saga", 32))]
CASES += [("sgd", "dense", scheduler, bits) for scheduler in ("synchronous", "fixed") for bits in (32, None)]
CASES += [("saga", "dense", "fixed", 64)]


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("method, form, scheduler, bits", CASES)
def test_masks_change_no_run_beyond_their_rounding(method, form, scheduler, bits):
    """Against the oracle that knows none, on the masked run's own table (sums over trees take their time)."""
    party, blocks, y = FORMS[form]
    masks, tolerance = MASKS[bits]
    ours, table = history(algorithm_of(method, secure=masks), party, SCHEDULERS[scheduler](party), 120)
    theirs = replay(table, blocks, y, sampler(0, party, 2), method, "logistic", "l2", 0.1, 0.05, 2)
    theirs = np.array([np.concatenate(w) for w in theirs])
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance)
    assert np.abs(theirs[-1]).max() > 0.05 and (bits is None or (ours != theirs).any())


def drawn_by_hand(defence, active, y):
    """The oracle's release: keys as `release` says, one theta after the other."""
    key, fold, labels = jax.random.split(jax.random.key(0), 3)[0], jax.random.fold_in, jax.numpy.asarray(y)

    @jax.jit
    def one(fresh, row):
        return defence.draw(fresh, fold(fold(key, SECRET_ROWS), row), labels[row])

    def release(theta, dominator, update, rows):
        if dominator is None:
            tick = [0, *TICKS][update]
            each = [one(fold(fold(fold(key, SECRET_PASSES), tick), row), row) for row in rows]
        else:
            own = fold(fold(key, active.index(dominator)), update)
            each = [one(fold(own, j), row) for j, row in enumerate(rows)]
        return np.asarray(defence.release(theta, None, np.array(each)))

    return release


TICKS: list[int] = []  # of SVRG's passes after the first


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("defence", [Noise(0.4), Flip(0.3)], ids=["noise", "flip"])
@pytest.mark.parametrize("method", ["sgd", "svrg", "saga"])
def test_what_is_released_is_what_all_use(method, defence):
    """The oracle with the same draws: in messages, in SVRG's reference points and in SAGA's table."""
    party, blocks, y = FORMS["dense"]
    algorithm, scheduler = algorithm_of(method, defence=defence), SCHEDULERS["event queue"](party)
    ours = privacy.record(0, algorithm, party, scheduler=scheduler, num_rounds=60)
    table = jf.vertical.plan(algorithm, party, scheduler, 60).table()
    TICKS[:] = np.flatnonzero(table.snapshot)[1:].tolist()
    rows, own = sampler(0, party, 2), drawn_by_hand(defence, party.active, y)
    theirs = transcript(table, blocks, y, rows, method, "logistic", "l2", 0.1, 0.05, 2, party.active, release=own)
    np.testing.assert_allclose(ours.theta, [u.theta for u in theirs.updates], rtol=0, atol=1e-10)
    np.testing.assert_allclose(ours.scores, [u.z for u in theirs.updates], rtol=0, atol=1e-10)
    for each, other in zip(ours.passes, theirs.passes, strict=True):
        np.testing.assert_allclose(each.theta, other.theta, rtol=0, atol=1e-10)
    weights = ours.weights[party.blocks.mask()]
    np.testing.assert_allclose(weights, np.concatenate(theirs.weights[-1]), rtol=0, atol=1e-10)
    plain = -y[ours.rows] / (1 + np.exp(y[ours.rows] * ours.scores))
    assert (np.abs(ours.theta - plain) > 1e-3).mean() > 0.1, "a defence must act"


@pytest.mark.parametrize("method, defence, field", [("sgd", Noise(0.4), "std"), ("svrg", Flip(0.3), "share")])
def test_a_defences_strength_is_an_axis(method, defence, field):
    """On the last axis, next to masks: each lane is the run with that strength."""
    algorithm = algorithm_of(method, defence=defence, secure=SecureAggregation())
    assert PARTY.with_parts().lanes(algorithm, (f"defence.{field}", "lr"))[0] == "last"
    given = dict(scheduler=SCHEDULERS["event queue"](PARTY), num_rounds=40, every=20, progress=False)
    strengths = [0.0, 0.5, 1.0]
    ds = jf.sweep(0, algorithm, PARTY, axes={f"defence.{field}": strengths}, **given)
    found = ds.objective.values.reshape(3, -1)
    for strength, lane in zip(strengths, found, strict=True):
        one = algorithm.replace(defence=defence.replace(**{field: strength}))
        np.testing.assert_allclose(lane, jf.run(0, one, PARTY, **given).dataset.objective, rtol=2e-5)
    if method == "sgd":
        none = jf.run(0, algorithm.replace(defence=None), PARTY, **given).dataset.objective
        np.testing.assert_allclose(found[0], none, rtol=2e-5)
    assert np.ptp(found[:, -1]) > 0.01


def test_the_size_of_float_masks_is_an_axis():
    algorithm = algorithm_of("sgd", secure=SecureAggregation(bits=None))
    given = dict(scheduler=Synchronous(PARTY), num_rounds=40, every=40, progress=False)
    ds = jf.sweep(0, algorithm, PARTY, axes={"secure.scale": [0.0, 1e2, 1e6]}, **given)
    ends = ds.objective.values.reshape(3, -1)[:, -1]
    plain = float(jf.run(0, algorithm.replace(secure=None), PARTY, **given).dataset.objective[-1])
    assert abs(ends[0] - plain) < 1e-6 and abs(ends[1] - plain) < 1e-4 < abs(ends[2] - plain)
    one = jf.run(0, algorithm.replace(secure=SecureAggregation(bits=None, scale=1e6)), PARTY, **given).dataset
    np.testing.assert_allclose(ends[2], one.objective[-1], rtol=1e-6)


class CutError(Exception):
    """In place of a kill."""


@pytest.mark.parametrize("defence", [Noise(0.4), Flip(0.3)], ids=["noise", "flip"])
def test_a_protected_run_in_pieces_is_the_run_in_one(defence, tmp_path, monkeypatch):
    """Bit for bit: cut by calls of the device, from a checkpoint, and from a state (whose updates go on counting)."""
    algorithm = algorithm_of("sgd", defence=defence, secure=SecureAggregation(bits=64))
    given: dict[str, Any] = dict(scheduler=Synchronous(PARTY), every=Epochs(1), progress=False)
    whole = jf.run(0, algorithm, PARTY, num_rounds=Epochs(4), **given)
    chunked = jf.run(0, algorithm, PARTY, num_rounds=Epochs(4), chunk=7, **given)
    testing.assert_equal(whole.state, chunked.state, "chunks change a run")
    save, calls = resume.Keeper.save, []

    def end(self, *args, **kwargs):
        save(self, *args, **kwargs)
        calls.append(args)
        if len(calls) == 3:
            raise CutError

    kept: dict[str, Any] = dict(checkpoint=tmp_path, checkpoint_seconds=0, **given)
    with monkeypatch.context() as patch:
        patch.setattr(resume.Keeper, "save", end)
        with pytest.raises(CutError):
            jf.run(0, algorithm, PARTY, num_rounds=Epochs(4), chunk=7, **kept)
    again = jf.run(0, algorithm, PARTY, num_rounds=Epochs(4), **kept)
    testing.assert_equal(whole.state, again.state, "a checkpoint changes a run")
    first = jf.run(0, algorithm, PARTY, num_rounds=Epochs(2), **given)
    rest = jf.run(0, algorithm, PARTY, num_rounds=Epochs(2), state=first.state, **given)
    assert not np.array_equal(first.state.weights, rest.state.weights)
    np.testing.assert_array_equal(whole.state.weights, rest.state.weights)
    for key, other in zip(whole.state.secret, rest.state.secret, strict=True):
        np.testing.assert_array_equal(key, other)
