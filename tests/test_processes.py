"""Two processes on this machine's loopback are one run: the numbers of one device, in both of them."""

import ast
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest
import xarray as xr

import jaxfed as jf
from jaxfed.cli import main as main_alone
from tests import support, test_sharding

ROOT = Path(__file__).parents[1]
ROUNDS = 6


def one(mesh=None, **options):
    """Adaptive APFL of seven uneven clients, three a round."""
    train, test = test_sharding.federation()
    defaults = {"test": test, "scheduler": jf.horizontal.UniformCohort(7, 3), "num_rounds": ROUNDS, "every": 2}
    return jf.run(3, test_sharding.alpha(), train, mesh=mesh, group=2, progress=False, **(defaults | options))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def together(commands, timeout=300, **environment):
    """Run commands at once and return [(exit status, stdout, stderr)]; none is left behind."""
    flags = "--xla_backend_optimization_level=0"  # these programs take far longer to compile than to run
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags, "PYTHONPATH": str(ROOT)} | environment
    started = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
        for command in commands
    ]
    try:
        end = time.monotonic() + timeout
        texts = [process.communicate(timeout=max(end - time.monotonic(), 1)) for process in started]
        return [(process.returncode, *text) for process, text in zip(started, texts, strict=True)]
    finally:
        for process in started:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def alone():
    return one()


@pytest.mark.parametrize("devices", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_two_processes_are_one_run(devices, alone, tmp_path):
    port = free_port()
    words = [sys.executable, "-m", "tests.test_processes", str(port), str(devices), str(tmp_path)]
    done = together([[*words, str(i)] for i in range(2)])
    assert [code for code, *_ in done] == [0, 0], done[0][2][-1500:] + done[1][2][-1500:]
    first, second = (jf.load(tmp_path / f"whole{i}") for i in range(2))
    assert first.dataset.identical(second.dataset)  # to the last bit, attributes too
    for run in (first, second):
        assert run.dataset.sizes == alone.dataset.sizes
        support.assert_trees(run.state, alone.state, rtol=2e-5, atol=1e-6)
        for name in alone.dataset.data_vars:
            got, wanted = run.dataset[name].values, alone.dataset[name].values
            np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=1e-5, err_msg=name)
    halves = [jf.load(tmp_path / f"rest{i}") for i in range(2)]  # the run in two pieces
    for half in halves:
        support.assert_trees(half.state, first.state, rtol=0, atol=0)
    # Ctrl-C came to the second process only
    cut = [jf.load(tmp_path / f"cut{i}").dataset for i in range(2)]
    assert cut[0].identical(cut[1]) and cut[0]["round"].values.tolist() == [0, 1]
    swept = [xr.load_dataset(tmp_path / f"sweep{i}.nc", engine="h5netcdf") for i in range(2)]
    assert swept[0].identical(swept[1])  # lanes spread over both
    xr.testing.assert_allclose(swept[0].drop_attrs(), test_sharding.sweep(None).drop_attrs(), rtol=2e-5, atol=1e-5)
    ((kind, elements),) = ast.literal_eval(done[1][1].split("collectives of a round: ")[1])
    assert kind == "all-reduce" and 15 <= elements <= 23  # the model's 15 parameters, and a few scalars


LINE = "fedavg --dataset digits --num-clients 5 --cohort-size 3 --rounds 3 --seed 4".split()


def commands(first, second):
    """Run LINE in two processes, each with more options of its own, as `together` does."""
    port, words = free_port(), [sys.executable, "-m", "jaxfed.cli", *LINE, "--num-processes", "2"]
    cache = {
        "JAX_COMPILATION_CACHE_DIR": str(jax.config.values["jax_compilation_cache_dir"]),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1",
    }
    ways = [["--coordinator", f"127.0.0.1:{port}", "--process-id", str(i)] for i in range(2)]
    return together([[*words, *ways[0], *first], [*words, *ways[1], *second]], **cache)


@pytest.mark.slow
def test_command_line_in_two_processes(tmp_path):
    """The first process alone writes and prints; the numbers are those of one process."""
    out = ["--devices", "1", "--out", str(tmp_path / "both")]
    done = commands(out, out)
    assert [code for code, *_ in done] == [0, 0], done
    printed = [line for line in done[1][1].splitlines() if not line.startswith("[Gloo]")]  # a library's own, in C++
    assert "personal" in done[0][1] and printed == [] and done[1][2] == ""
    assert main_alone([*LINE, "--devices", "1", "--quiet", "--out", str(tmp_path / "alone")]) == 0
    both, alone = (jf.load(tmp_path / name) for name in ("both", "alone"))
    support.assert_trees(both.state, alone.state, rtol=2e-5, atol=1e-6)
    assert both.dataset.attrs["devices"] == 2
    np.testing.assert_allclose(both.dataset.personal_test_loss, alone.dataset.personal_test_loss, rtol=2e-5)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["alone", "both"]


@pytest.mark.slow
def test_bad_input_of_one_process_ends_both():
    done = commands(["--dataset", "digits"], ["--dataset", "idx:nowhere"])  # as where one machine lacks the files
    assert [code for code, *_ in done] == [2, 2], done
    assert "another process failed" in done[0][2] and "nowhere" in done[1][2]


def main(port, devices, folder, number):
    """One of the processes of the test above."""
    import tests.conftest  # noqa: F401  # the compilation cache
    from jaxfed import interrupts

    jf.parallel.start_processes(f"127.0.0.1:{port}", 2, number, devices)
    assert len(jax.devices()) == 2 * devices and jax.local_device_count() == devices
    mesh = jf.parallel.mesh()
    one(mesh, chunk=None).save(f"{folder}/whole{number}")
    half = one(mesh, num_rounds=2)
    one(mesh, num_rounds=ROUNDS - 2, state=half.state).save(f"{folder}/rest{number}")
    with interrupts.deferred() as interrupted:
        if number == 1:
            interrupted.set()
        one(mesh, chunk=1).save(f"{folder}/cut{number}")
    test_sharding.sweep(jf.parallel.mesh(client=1, sweep=2 * devices)).to_netcdf(
        f"{folder}/sweep{number}.nc", engine="h5netcdf"
    )
    print("collectives of a round:", test_sharding.collectives("FedAvg-passes", mesh))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]), sys.argv[3], int(sys.argv[4]))
