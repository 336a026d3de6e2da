"""Clients sharded over two devices, in one process of its own: jax counts its devices when it starts."""

import ast
import os
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

import jaxfed as jf
from jaxfed import loads, machine, runner, sweep_setup
from jaxfed.privacy.clients import PrivateUpdates
from tests import support

# two devices; and little optimization, as these programs take far longer to compile than to run
FLAGS = "--xla_force_host_platform_device_count=2 --xla_backend_optimization_level=0"
SIZES = (5, 9, 7, 1, 4, 6, 3)  # seven clients on two devices: one of the eight places stays empty
LATE = jf.horizontal.Stale(jf.horizontal.UniformCohort(7, 3), np.arange(7) % 3, 2)
FULL = {"batch_size": None, "local_steps": 2}
PLAIN = ("FedAvg-passes", "FedAvg-momentum", "LocalOnly", "Scaffold", "APFL-fedtorch")


def feature_sums(algorithm, state, data):
    """The sum of each client's own features, which a measure may read on any device."""

    def one(i):
        view = data.train.view(i)
        return jnp.sum(view.take(view.rows)[0] * view.mask()[:, None])

    return {"feature_sum": jax.vmap(one)(jnp.arange(data.train.rows.shape[0]))}


CASES = {name: (support.ALGORITHMS[name], {}) for name in PLAIN} | {
    "late": (lambda: alpha(max_staleness=2, evaluate_with="local", **FULL), {"scheduler": LATE}),
    "private": (lambda: PrivateUpdates(support.ALGORITHMS["Scaffold"](), 0.5, 0.3), {}),  # one noise for all devices
    "weighted": (lambda: jf.averaging.Weighted(alpha(**FULL), offset=2.0), {"scheduler": None}),
    "weighted fine-tuned": (
        lambda: jf.averaging.Weighted(jf.FineTuned(support.softmax(), tune_steps=2, **FULL)),
        {"measures": [jf.Measure(feature_sums, ("client",))]},
    ),
}


def alpha(**fields):
    return jf.APFL(support.softmax(), lr=0.2, adaptive=True, alpha=np.linspace(0, 1, 7), **(support.BATCH | fields))


def federation():
    rows, tests = support.clients(sizes=SIZES), support.clients(3, sizes=(2, 0, 4, 1, 3, 2, 5))
    return jf.ClientData.from_list(rows), jf.ClientData.from_list(tests, allow_empty=True)


def one(name, **options):
    algorithm, more = CASES[name]
    train, test = federation()
    defaults = {"test": test, "scheduler": jf.horizontal.UniformCohort(7, 3), "num_rounds": 4, "every": 2, "group": 2}
    return jf.run(0, algorithm(), train, progress=False, **(defaults | more | options))


def check(name):
    """Raise unless states and records of the sharded run are those of one device, in the user's client order."""
    alone, mesh = one(name), jf.parallel.mesh(2)
    sharded = one(name, mesh=mesh)
    support.assert_trees(sharded.state, alone.state, rtol=1e-5, atol=1e-6)
    assert sharded.dataset.sizes == alone.dataset.sizes
    for variable in alone.dataset.data_vars:
        a, b = alone.dataset[variable].values, sharded.dataset[variable].values
        np.testing.assert_allclose(b, a, rtol=2e-5, atol=1e-5, err_msg=variable)
    if name in ("late", "weighted"):  # a sharded run goes on where one device stopped, and the reverse
        half = one(name, mesh=mesh, num_rounds=2)
        rest = one(name, num_rounds=2, state=half.state)
        support.assert_trees(rest.state, alone.state, rtol=1e-5, atol=1e-6)
        rest = one(name, num_rounds=2, state=one(name, num_rounds=2).state, mesh=mesh)
        support.assert_trees(rest.state, sharded.state, rtol=1e-5, atol=1e-6)


def collectives(name, mesh):
    """[(kind, number of elements)] of the collectives in the compiled program of a sharded round."""
    algorithm, scheduler = runner.cast(CASES[name][0](), True), runner.cast(jf.horizontal.UniformCohort(7, 3))
    key, (train, test) = jax.random.key(0), federation()
    data = train.with_parts(test).place(algorithm, scheduler, mesh, 2)
    carry = jf.parallel.put_carry(machine.compiled_start(key, algorithm, data), mesh)
    return found_in(machine.compiled_advance.lower(mesh, key, algorithm, scheduler, data, carry, 1).compile().as_text())


def found_in(text):
    """[(kind, number of elements)] of the collectives in a program's text."""
    kinds = "all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter"
    found = re.findall(rf"= (.*?) ({kinds})(?:-start)?\(", text)
    dims = [[d.split(",") for d in re.findall(r"\w\d+\[([\d,]*)\]", shapes)] for shapes, _ in found]
    sizes = [sum(int(np.prod([int(n) for n in d if n])) for d in shapes) for shapes in dims]
    return [(kind, size) for (_, kind), size in zip(found, sizes, strict=True)]


@pytest.fixture(scope="module")
def report():
    """What the process with two devices printed: a line for each case."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.test_sharding"], capture_output=True, text=True, timeout=600,
        env=os.environ | {"XLA_FLAGS": FLAGS, "JAX_PLATFORMS": "cpu"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(line.split(": ", 1) for line in done.stdout.splitlines())


@pytest.mark.parametrize("name", CASES)
def test_sharded_is_unsharded(report, name):
    assert report[name] == "equal"


@pytest.mark.parametrize("name, model", [("FedAvg-passes", 15), ("late", 15), ("Scaffold", 30), ("APFL-fedtorch", 43)])
def test_a_sharded_round_is_one_all_reduce(report, name, model):
    """One collective, of what a client sends and a few scalars."""
    ((kind, elements),) = ast.literal_eval(report[f"collectives of {name}"])
    assert kind == "all-reduce" and model <= elements <= model + 8


def test_a_mesh_with_two_lanes_is_for_a_sweep(report):
    assert report["two lanes"] == "mesh: got 2 lanes, wanted one, parallel.mesh(client=...): only a sweep has several"


@pytest.mark.parametrize("axis", ["sweep", "client"])
def test_a_sweep_on_a_mesh_is_the_sweep_on_one_device(report, axis):
    assert report[f"sweep over {axis}"] == "equal"


def test_lanes_exchange_nothing_and_a_round_of_sharded_lanes_is_one_all_reduce(report):
    assert report["collectives over lanes"] == "[]"
    found = ast.literal_eval(report["collectives of lanes over clients"])
    # one for a round's sums of all lanes, and one number a lane in a record: whether it is finite
    assert [kind for kind, _ in found] == ["all-reduce"] * 2
    assert [size // LANES for _, size in found] == [19, 1]


LANES = 6


def sweep(mesh, collect=False):
    """A sweep of six points under three seeds, or the collectives of its program."""
    train, test = federation()
    axes = {"alpha": [0.0, 0.25, 1.0], "lr": [0.05, 0.1]}
    algorithm = jf.APFL(support.softmax(), adaptive=True, **support.BATCH)
    given = {"scheduler": jf.horizontal.UniformCohort(7, 3), "num_rounds": 4, "every": 2}
    if not collect:
        return jf.sweep(0, algorithm, train, test=test, axes=axes, seeds=3, mesh=mesh, progress=False, **given)
    options = (test, None, *given.values(), None, False, None, None, mesh, None, None, None)
    whole = sweep_setup.prepare(0, algorithm, train, axes, 3, *options)
    return found_in(loads.lowered(whole.job).compile().as_text())


def main():
    import tests.conftest  # noqa: F401  # the compilation cache

    assert len(jax.devices()) == 2
    for name in CASES:
        try:
            check(name)
            print(f"{name}: equal")
        except Exception as error:
            print(f"{name}: {type(error).__name__} {' '.join(str(error).split())[:600]}")
    try:
        one("late", mesh=jf.parallel.mesh(sweep=2))
    except ValueError as error:
        print("two lanes:", error)
    plain = sweep(None).drop_attrs()
    for axis in ("sweep", "client"):
        mesh = jf.parallel.mesh(sweep=2) if axis == "sweep" else jf.parallel.mesh(2)
        xr.testing.assert_allclose(sweep(mesh).drop_attrs(), plain, rtol=2e-5, atol=1e-5)
        print(f"sweep over {axis}: equal")
        print(f"collectives {'over lanes' if axis == 'sweep' else 'of lanes over clients'}: {sweep(mesh, True)}")
    for name in ("FedAvg-passes", "late", "Scaffold", "APFL-fedtorch"):
        print(f"collectives of {name}: {collectives(name, jf.parallel.mesh(2))}")


if __name__ == "__main__":
    main()
