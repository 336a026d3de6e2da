"""The contract of every algorithm, as checks that anyone may call on their own: `check_algorithm(MyAlgorithm(...))`.

Each check raises AssertionError with a sentence. They hold for any algorithm whose `step` is `federate`; an algorithm
of another kind can call the checks that concern it one by one.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxfed import core, nodes, parallel, runner
from jaxfed.horizontal.data import ClientData
from jaxfed.horizontal.federation import FedData
from jaxfed.horizontal.schedulers import FullParticipation, UniformCohort
from jaxfed.types import FedState

RTOL = {np.dtype("float32"): 1e-5, np.dtype("float64"): 1e-10}  # where sums are taken in another order


def ragged_data(seed: int = 0, sizes: tuple[int, ...] = (5, 9, 1, 7, 4, 6, 3), classes: int = 3) -> FedData:
    """Return a small federation of unequal clients, 4 features, with test rows; labels depend on the features."""
    rng = np.random.default_rng(seed)

    def clients(extra):
        out = []
        for i, n in enumerate(sizes):
            x = rng.normal(size=(n + extra, 4)) + 0.5 * i
            out.append((x, (np.abs(x).sum(axis=1) * 2).astype(int) % classes))
        return ClientData.from_list(out)

    return FedData(clients(0), clients(2))


def check_algorithm(algorithm: Any, data: FedData | None = None, num_rounds: int = 4) -> None:
    """Run every check of this module on a horizontal algorithm. `data` defaults to `ragged_data()`."""
    data = ragged_data() if data is None else data
    check_state_kept(algorithm, data)
    check_jit_is_eager(algorithm, data)
    check_chunks(algorithm, data, num_rounds)
    check_compiles_once(algorithm, data)
    check_outside_cohort(algorithm, data, num_rounds)
    check_row_padding(algorithm, data, num_rounds)
    check_client_order(algorithm, data, num_rounds)
    check_vmap(algorithm, data, num_rounds)
    if len(jax.devices()) > 1:
        check_sharded(algorithm, data, num_rounds)


def check_state_kept(algorithm: Any, data: FedData) -> None:
    """A step keeps the state's structure, shapes and dtypes; leaves under `clients` have the client axis first."""
    key, algorithm, scheduler, data = _ready(algorithm, data)
    carry = jax.eval_shape(core.init, key, algorithm, data)
    after, _ = jax.eval_shape(core.one_round, key, algorithm, scheduler, data, carry)
    assert jax.tree.structure(carry) == jax.tree.structure(after), "step changes the structure of the state"
    for path, x in jax.tree_util.tree_leaves_with_path(carry):
        y = dict(jax.tree_util.tree_leaves_with_path(after))[path]
        assert (x.shape, x.dtype) == (y.shape, y.dtype), f"step changes {jax.tree_util.keystr(path)} from {x} to {y}"
    if isinstance(carry.state, FedState):
        for x in jax.tree.leaves(carry.state.clients):
            assert x.shape[:1] == data.train.size.shape, f"a leaf under clients has shape {x.shape}"


def check_jit_is_eager(algorithm: Any, data: FedData) -> None:
    """A compiled round is the round without jit, up to rounding."""
    key, algorithm, scheduler, data = _ready(algorithm, data)
    carry = core.init(key, algorithm, data)
    with jax.disable_jit():
        slow, _ = core.one_round(key, algorithm, scheduler, data, carry)
    fast, _ = nodes.jit(core.one_round)(key, algorithm, scheduler, data, carry)
    assert_close(slow, fast, "jit changes the result")


def check_chunks(algorithm: Any, data: FedData, num_rounds: int) -> None:
    """A run in pieces is the run in one piece, bitwise; so is a run that is recorded more often."""
    whole = runner.run(0, algorithm, data, num_rounds=num_rounds, every=num_rounds, chunk=num_rounds, progress=False)
    pieces = runner.run(0, algorithm, data, num_rounds=num_rounds, every=1, chunk=1, progress=False)
    assert_equal(whole.state, pieces.state, "cutting a run changes it")
    half = runner.run(0, algorithm, data, num_rounds=num_rounds // 2, progress=False)
    rest = runner.run(0, algorithm, data, num_rounds=num_rounds - num_rounds // 2, state=half.state, progress=False)
    assert_equal(whole.state, rest.state, "continuing a run changes it")


def check_compiles_once(algorithm: Any, data: FedData) -> None:
    """Other values of traced fields, seeds and lengths compile nothing new."""
    runner.run(0, algorithm, data, num_rounds=3, every=2, progress=False)
    before = runner.compiled_programs()
    nudged = jax.tree.map(lambda x: np.asarray(x, float) * 0.5, algorithm)
    runner.run(1, nudged, data, num_rounds=5, every=3, progress=False)
    assert runner.compiled_programs() == before, "a second run with other numbers compiles again"


def check_outside_cohort(algorithm: Any, data: FedData, num_rounds: int) -> None:
    """Clients outside the cohort keep their states bit for bit, and somebody inside moves (if there are states)."""
    key, algorithm, scheduler, data = _ready(algorithm, data, cohort=2)
    carry = core.init(key, algorithm, data)
    for t in range(num_rounds):
        event = scheduler(jax.random.fold_in(jax.random.split(key, 3)[1], t), jnp.int32(t))
        out = np.setdiff1d(np.arange(data.train.num_clients), np.asarray(event.ids))
        after, _ = nodes.jit(core.one_round)(key, algorithm, scheduler, data, carry)
        averaged = hasattr(getattr(carry.state, "clients", None), "average")  # averages over rounds move for all
        if isinstance(carry.state, FedState) and not averaged:
            idle = lambda state, out=out: jax.tree.map(lambda x: x[out], state.clients)  # noqa: E731
            assert_equal(idle(carry.state), idle(after.state), "an idle client moved")
        carry = after


def check_row_padding(algorithm: Any, data: FedData, num_rounds: int) -> None:
    """A wider row table, whose added entries are padding, changes nothing but rounding."""
    wide = data._replace(train=data.train.replace(rows=np.pad(data.train.rows, ((0, 0), (0, 5)))))
    first = runner.run(0, algorithm, data, num_rounds=num_rounds, progress=False)
    assert_close(first.state, runner.run(0, algorithm, wide, num_rounds=num_rounds, progress=False).state,
                 "padding of the row table changes the result")  # fmt: skip


def check_client_order(algorithm: Any, data: FedData, num_rounds: int) -> None:
    """Clients in another order, with their numbers, give the same states in that order, up to rounding."""
    key, algorithm, scheduler, data = _ready(algorithm, data)
    order = np.random.default_rng(0).permutation(data.train.num_clients)

    def permuted(part):
        return part.replace(rows=part.rows[order], size=part.size[order], id=part.id[order])

    moved = FedData(permuted(data.train), data.test and permuted(data.test))
    a, b = (
        core.advance(key, algorithm, scheduler, d, core.init(key, algorithm, d), num_rounds)[0].state
        for d in (data, moved)
    )
    assert_close(a.server, b.server, "the order of clients changes the server")
    assert_close(jax.tree.map(lambda x: x[order], a.clients), b.clients, "the order of clients changes their states")


def check_vmap(algorithm: Any, data: FedData, num_rounds: int) -> None:
    """A batch over any traced field is the loop over its values, up to rounding."""
    key, algorithm, scheduler, data = _ready(algorithm, data)
    factors = jnp.array([0.5, 1.0])
    batch = jax.tree.map(lambda x: factors.reshape(-1, *[1] * x.ndim) * x, algorithm)

    def final(algorithm):
        carry = core.init(key, algorithm, data)
        return core.advance(key, algorithm, scheduler, data, carry, num_rounds)[0].state

    together = jax.jit(jax.vmap(final))(batch)
    for i in range(2):
        alone = jax.jit(final)(jax.tree.map(lambda x, i=i: x[i], batch))
        assert_close(alone, jax.tree.map(lambda x, i=i: x[i], together), "vmap over the fields changes the result")


def check_sharded(algorithm: Any, data: FedData, num_rounds: int) -> None:
    """Clients sharded over two devices give the run of one device, up to rounding, states and records alike."""
    scheduler = UniformCohort(data.train.num_clients, 3)
    options: dict[str, Any] = dict(scheduler=scheduler, num_rounds=num_rounds, progress=False)
    one = runner.run(0, algorithm, data, **options)
    two = runner.run(0, algorithm, data, mesh=parallel.mesh(client=2), **options)
    assert_close(one.state, two.state, "sharding changes the state")
    for name in one.dataset.data_vars:
        np.testing.assert_allclose(one.dataset[name], two.dataset[name], 1e-4, 1e-5, err_msg=f"sharding changes {name}")


def assert_equal(a: Any, b: Any, message: str) -> None:
    """Require equality of every bit of every leaf (nan equals nan)."""
    for (path, x), y in zip(jax.tree_util.tree_leaves_with_path(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(np.asarray(x), np.asarray(y), f"{message}: {jax.tree_util.keystr(path)}")


def assert_close(a: Any, b: Any, message: str) -> None:
    """Require equality up to the order of sums: relative to the largest entry of a leaf, 1e-5 in float32."""
    for (path, x), y in zip(jax.tree_util.tree_leaves_with_path(a), jax.tree.leaves(b), strict=True):
        x, y = np.asarray(x), np.asarray(y)
        rtol = RTOL.get(x.dtype, 0)
        atol = rtol * max(float(np.max(np.abs(x), initial=0)), 1e-3)
        np.testing.assert_allclose(x, y, rtol, atol, err_msg=f"{message}: {jax.tree_util.keystr(path)}")


def _ready(algorithm: Any, data: FedData, cohort: int | None = None) -> tuple[Any, Any, Any, FedData]:
    count = data.train.num_clients
    scheduler = FullParticipation(count) if cohort is None else UniformCohort(count, cohort)
    algorithm, scheduler = runner.cast(algorithm, to_float=True), runner.cast(scheduler)
    return jax.random.key(0), algorithm, scheduler, data.place(algorithm, scheduler)
