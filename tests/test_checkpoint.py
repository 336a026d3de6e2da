"""Checkpoints of `run`: cut at any save and called again it is, bit for bit, the run in one piece; nothing is lost."""

import functools
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import jaxfed as jf
from jaxfed import machine, resume
from jaxfed.fingerprint import digest
from jaxfed.vertical import BilevelAsync
from tests import support, test_run, test_vertical_run

LATE = jf.horizontal.Stale(jf.horizontal.UniformCohort(5, 2), np.arange(5) % 3, 2)
ASYNC = BilevelAsync(test_vertical_run.PARTY, link=2.0).slow(3, update=4)
SVRG = test_vertical_run.of("svrg", epoch_length=20)


def vertical(algorithm=SVRG, **options):
    return test_vertical_run.run(algorithm, **{"scheduler": ASYNC, "num_rounds": 100, "every": 20} | options)


RUNS = {
    "APFL": test_run.run,
    "late": functools.partial(
        test_run.run, algorithm=support.ALGORITHMS["FedAvg-momentum"]().replace(max_staleness=2), scheduler=LATE
    ),
    "sgd": functools.partial(vertical, test_vertical_run.of("sgd")),
    "svrg": vertical,
    "saga": functools.partial(vertical, test_vertical_run.of("saga")),
}


class CutError(Exception):
    """In place of a kill."""


@pytest.fixture
def cut(monkeypatch, tmp_path):
    """cut(run, n): the folder that a run leaves which ends after its n-th chance to save."""

    def leave(run, count, **options):
        save, calls = resume.Keeper.save, []

        def end(self, *args, **kwargs):
            save(self, *args, **kwargs)
            calls.append(args[1])
            if len(calls) == count:
                raise CutError

        with monkeypatch.context() as patch:
            patch.setattr(resume.Keeper, "save", end)
            with pytest.raises(CutError):
                run(checkpoint=tmp_path / "kept", checkpoint_seconds=0, **options)
        return tmp_path / "kept"

    return leave


def assert_same(a, b):
    assert a.dataset.identical(b.dataset)
    support.assert_trees(a.state, b.state, atol=0)


@pytest.mark.parametrize("name", RUNS)
def test_a_run_that_was_cut_goes_on_as_if_it_had_not_been(name, cut):
    """Cut in a window, at its end, and again after having been resumed; then the whole run is there at once."""
    run = RUNS[name]
    whole, chunk = run(), 2 if name in ("APFL", "late") else 7
    for count in (2, 4, 1):
        folder = cut(run, count, chunk=chunk)
    assert_same(run(checkpoint=folder), whole)


def test_a_finished_run_is_returned_and_nothing_is_computed(tmp_path, monkeypatch):
    whole = test_run.run(checkpoint=tmp_path / "a" / "b", checkpoint_seconds=1000)
    for name in ("compiled_start", "compiled_advance", "compiled_observe"):
        monkeypatch.setattr(machine, name, lambda *_: pytest.fail("it computes"))
    assert_same(test_run.run(checkpoint=tmp_path / "a" / "b"), whole)


def test_more_rounds_go_on_and_fewer_are_refused(tmp_path):
    """The record after the 10th round, which a run of 14 does not have, is left out again."""
    options = {"checkpoint": tmp_path, "checkpoint_seconds": 0}
    test_run.run(**options)
    assert_same(test_run.run(num_rounds=14, **options), test_run.run(num_rounds=14))
    assert_same(test_run.run(num_rounds=14, **options), test_run.run(num_rounds=14))
    with pytest.raises(ValueError, match="num_rounds: got 10, with records at other rounds .* wanted at least 14"):
        test_run.run(**options)


def test_goes_on_from_a_state(cut):
    first = test_run.run(num_rounds=5)
    run = functools.partial(test_run.run, num_rounds=5, state=first.state)
    folder = cut(run, 2, chunk=1)
    assert_same(run(checkpoint=folder), run())
    with pytest.raises(ValueError, match=r"checkpoint: got .*, of a run with state '\w{16}' \(here None\)"):
        test_run.run(num_rounds=5, checkpoint=folder)


def test_one_every_so_many_seconds_and_at_the_end(tmp_path, monkeypatch):
    written, write = [], resume._write
    monkeypatch.setattr(resume, "_write", lambda path, content: written.append(path.name) or write(path, content))
    test_run.run(checkpoint=tmp_path, checkpoint_seconds=1000)
    assert written == ["records-0.pkl", "checkpoint.pkl"]
    written.clear()
    test_run.run(7, checkpoint=tmp_path / "often", checkpoint_seconds=0, chunk=3)
    assert written.count("checkpoint.pkl") == 4 and written.count("records-0.pkl") == 1


def test_arrays_of_any_kind_come_back_bit_for_bit():
    cases = [np.float32([1, np.nan, -0.0]), np.zeros((0, 3)), np.int64(-5), True, 2.5, np.ones((2, 3), bool).T]
    for x in (*cases, jnp.bfloat16(1.5), np.arange(6, dtype=ml_dtypes.float8_e4m3fn).reshape(2, 3)):
        back = resume.unpack(resume.pack(x))
        assert back.dtype == np.asarray(x).dtype and back.shape == np.shape(x)
        assert back.tobytes() == np.asarray(x).tobytes()
    tree = {"key": jax.random.key(3), "x": jnp.ones(2)}
    leaves = [resume.pack(x) for x in jax.tree.leaves(tree)]
    back = resume.restore(leaves, jax.eval_shape(lambda: tree), jax.random.key(0))
    assert jax.random.uniform(back["key"]) == jax.random.uniform(tree["key"])
    with pytest.raises(ValueError, match=r"state\['x'\]: got float32\[2\], wanted float32\[3\]"):
        resume.restore(leaves, jax.eval_shape(lambda: tree | {"x": jnp.ones(3)}), jax.random.key(0))


def scaled(by):
    return lambda x: by * x


def test_functions_differ_by_their_code_and_by_what_they_hold():
    models = [jf.models.cnn(3), jf.models.mlp(3), functools.partial(scaled, 2), functools.partial(scaled, 3)]
    closures = [scaled(2), scaled(3), scaled(np.arange(3.0)), lambda x: x + 1, lambda x: x + 2, len, support.momentum]
    different = models + closures
    assert len({digest(f) for f in different}) == len(different)
    assert digest(scaled(2)) == digest(scaled(2))
    assert digest(np.float32(0.1)) == digest(0.1) == digest(jnp.float32(0.1))


def process(*words, **environment):
    """What another Python prints, which keeps its compiled programs where this one does."""
    cache = {"JAX_COMPILATION_CACHE_DIR": jax.config.jax_compilation_cache_dir}
    environment |= cache | {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, *words], env=os.environ | environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


PROCESS = """
import sys
import jax
import jaxfed as jf
from jaxfed import resume
from jaxfed.fingerprint import digest
from tests import support
from tests.test_checkpoint import CutError, THINGS, assert_same
from tests.test_sharding import one

folder, save, calls = sys.argv[1], resume.Keeper.save, []

def end(self, *args, **kwargs):
    save(self, *args, **kwargs)
    calls.append(1)
    if len(calls) == 2:
        raise CutError

print(digest(THINGS))
options = {"mesh": jf.parallel.mesh(2), "checkpoint": folder, "checkpoint_seconds": 0}
whole = one("late", mesh=options["mesh"])
resume.Keeper.save = end
try:
    one("late", chunk=1, **options)
except CutError:
    resume.Keeper.save = save
    assert_same(one("late", **options), whole)
    try:
        one("late", checkpoint=folder)
    except ValueError as error:
        print(error)
"""
THINGS = [support.ALGORITHMS["FedAvg-momentum"](), jf.models.cnn(3), scaled({"a", "b", "c"}), jax.nn.relu]


@pytest.mark.slow
def test_two_devices_and_texts_that_are_the_same_in_every_process(tmp_path):
    flags = "--xla_force_host_platform_device_count=2 --xla_backend_optimization_level=0"
    out = process("-c", PROCESS, str(tmp_path), XLA_FLAGS=flags, PYTHONHASHSEED="7")
    told, refused = out.splitlines()
    assert told == digest(THINGS)
    assert "of a run with devices 2 (here 1), wanted the same settings" in refused


def killed(*words):
    lines = process("-m", "tests.kill", *words).splitlines()
    assert lines and all(line.endswith("then bit for bit the run in one piece") for line in lines)


def test_three_kills_lose_nothing():
    killed("--kills", "3", "--kinds", "vertical")


@pytest.mark.slow
def test_twenty_kills_lose_nothing():
    killed("--kills", "20")
