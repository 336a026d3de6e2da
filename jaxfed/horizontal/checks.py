"""The checks of horizontal data, algorithms and schedulers."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from jaxfed import steps
from jaxfed.checks import fail, numbers, one_of, whole
from jaxfed.losses import LOSSES

CHOICES = {
    "batches": ("with_replacement", "epochs"),
    "weights": ("uniform", "examples"),
    "option": ("I", "II"),
    "mix": ("params", "logits"),
    "alpha_every": ("round", "step"),
    "order": ("simultaneous", "sequential"),
    "alpha_gradient": ("exact", "fedtorch"),
    "evaluate_with": ("server", "local"),
    "form": ("auto", "plain"),
}
RATES = ("lr", "server_lr", "alpha_lr", "personal_lr", "tune_lr", "alpha_l2")
BLOCK = 1 << 16  # rows that are looked at together: a pool may fill half of the memory
COUNTS = ("local_steps", "batch_size", "local_epochs", "tune_steps")


def pool(x: Any, y: Any, name: str = "data") -> tuple[np.ndarray, np.ndarray]:
    """Return features and labels as arrays after checking lengths, finiteness and class numbers."""
    if hasattr(x, "toarray"):
        fail(f"{name}.x", "a sparse array", "a dense one: x.toarray() (vertical runs take sparse ones)")
    try:
        x, y = np.asarray(x), np.asarray(y)
    except ValueError:
        fail(name, "rows of unequal shapes", "arrays x [rows, features...] and y [rows]")
    if x.ndim < 2 or x.dtype.kind not in "biuf":
        fail(f"{name}.x", f"shape {x.shape} of {x.dtype}", "numbers of shape [rows, features...]")
    if y.ndim != 1 or len(x) != len(y):
        fail(f"{name}.y", f"shape {y.shape}", f"({len(x)},), one label for each row of x")
    if y.dtype.kind not in "biuf":
        fail(f"{name}.y", f"labels of {y.dtype}", "class numbers or real targets")
    for field, a in (("x", x), ("y", y)):
        if a.dtype.kind in "iu" and a.size and (int(a.min()) < -(2**31) or int(a.max()) >= 2**31):
            fail(f"{name}.{field}", f"the integer {a.max() if a.max() >= 2**31 else a.min()}", "integers of 32 bits")
    if not len(x):
        fail(f"{name}.x", "no rows", "at least one")
    for field, a in (("x", x), ("y", y)):
        for first in range(0, len(a) if np.issubdtype(a.dtype, np.floating) else 0, BLOCK):
            finite = np.isfinite(a[first : first + BLOCK])
            if not finite.all():
                row = first + int(np.argmin(finite.reshape(len(finite), -1).all(axis=1)))
                fail(f"{name}.{field}", f"a value that is not finite in row {row}", "finite numbers")
    return x, y.astype(np.int32, copy=False) if np.issubdtype(y.dtype, np.integer) else y


def indices(indices: Sequence[np.ndarray], num_rows: int, allow_empty: bool, name: str = "data") -> None:
    """Require clients, each with rows of the pool."""
    if not len(indices):
        fail(f"{name}.indices", "no clients", "at least one")
    for i, index in enumerate(indices):
        if len(index) and not np.issubdtype(index.dtype, np.integer):
            fail(f"{name}.indices[{i}]", f"{index.dtype}", "row numbers (np.flatnonzero makes them of a mask)")
        if len(index) and (index.min() < 0 or index.max() >= num_rows):
            fail(f"{name}.indices[{i}]", f"rows {index.min()} to {index.max()}", f"0 to {num_rows - 1}")
    empty = [i for i, index in enumerate(indices) if not len(index)]
    if empty and not allow_empty:
        fail(f"{name}.indices[{empty[0]}]", f"no rows ({len(empty)} such clients)",
             "at least one row a client, or allow_empty=True")  # fmt: skip


def table(rows: Any, size: Any, num_rows: int, allow_empty: bool, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return a table of row numbers int32 [C, n_max], padding 0, and sizes int32 [C], after the checks of `indices`."""
    rows = np.asarray(rows)
    if rows.ndim != 2 or rows.dtype.kind not in "iu" or not rows.size:
        fail(f"{name}.rows", f"{rows.dtype} of shape {rows.shape}", "row numbers of shape [clients, most rows]")
    count, longest = rows.shape
    size = np.full(count, longest, np.int32) if size is None else np.asarray(size)
    if size.shape != (count,) or size.dtype.kind not in "iu":
        fail(
            f"{name}.size", f"{size.dtype} of shape {size.shape}", f"integers of shape ({count},), one for each client"
        )
    if size.min() < 0 or size.max() > longest:
        fail(f"{name}.size", f"{size.min()} to {size.max()}", f"0 to {longest}, the width of rows")
    if size.min() == 0 and not allow_empty:
        fail(f"{name}.size[{int(np.argmin(size))}]", f"no rows ({int((size == 0).sum())} such clients)",
             "at least one row a client, or allow_empty=True")  # fmt: skip
    if size.min() < longest:
        rows = np.where(np.arange(longest) < size[:, None], rows, 0)
    if rows.min() < 0 or rows.max() >= num_rows:
        fail(f"{name}.rows", f"rows {rows.min()} to {rows.max()}", f"0 to {num_rows - 1}")
    return rows.astype(np.int32, copy=False), size.astype(np.int32, copy=False)


def client_list(clients: Sequence[tuple[Any, Any]]) -> None:
    """Require pairs of features and labels whose lengths and shapes agree."""
    if not len(clients):
        fail("clients", "an empty list", "one pair (x_i, y_i) for each client")
    shape = np.shape(clients[0][0])[1:]
    for i, (x, y) in enumerate(clients):
        if hasattr(x, "toarray"):
            fail(f"clients[{i}].x", "a sparse array", "a dense one: x.toarray() (vertical runs take sparse ones)")
        if len(x) != len(y):
            fail(f"clients[{i}]", f"{len(x)} rows of x and {len(y)} labels", "equal numbers")
        if np.shape(x)[1:] != shape:
            fail(f"clients[{i}].x", f"rows of shape {np.shape(x)[1:]}", f"{shape}, as client 0 has")


def is_state(field: str, got: Any) -> None:
    """Require a horizontal state, not the run that holds it."""
    if not (hasattr(got, "server") and hasattr(got, "clients")):
        fail(field, type(got).__name__, "the state of an earlier run (its field `state`)")


def settings(algorithm: Any, data: Any) -> None:
    """Check a horizontal algorithm and its data: fields, labels against the model, parts that go together."""
    if not (hasattr(algorithm, "model") or hasattr(algorithm, "inner")):
        fail("algorithm", type(algorithm).__name__, "a horizontal one for ClientData: say APFL(model)")
    averaged = hasattr(algorithm, "offset") and hasattr(algorithm, "inner")
    while hasattr(algorithm, "inner"):
        numbers("offset", getattr(algorithm, "offset", None), 0)
        if hasattr(algorithm, "check"):
            algorithm.check(data)
        algorithm = algorithm.inner
    if averaged and getattr(algorithm, "mix", "params") != "params":
        fail("mix", repr(algorithm.mix), '"params" inside averaging.Weighted: outputs have no average among models')
    train = data.train
    for field, choices in CHOICES.items():
        if hasattr(algorithm, field):
            one_of(field, getattr(algorithm, field), choices)
    for field in COUNTS:
        if getattr(algorithm, field, None) is not None:
            whole(field, getattr(algorithm, field), 1)
    for field in RATES:
        numbers(field, getattr(algorithm, field, None), 0)
        if getattr(algorithm, field, 0) is None and field in ("lr", "server_lr", "alpha_l2"):
            fail(field, None, "a number, or a schedule of jaxfed.steps")
        for leaf in jax.tree.leaves(getattr(algorithm, field, None)):
            if np.shape(leaf):
                fail(field, f"shape {np.shape(leaf)}", "one number")
        if isinstance(getattr(algorithm, field, None), steps.InverseTime):
            numbers(f"{field}.offset", getattr(algorithm, field).offset, 1e-30)
    if algorithm.local_epochs is not None and algorithm.batch_size is not None and algorithm.batches != "epochs":
        fail("local_epochs", algorithm.local_epochs, 'batches="epochs" with it, or None')
    for field in ("optimizer", "server_optimizer"):
        made = getattr(algorithm, field, None)
        if made is not None and not callable(made):
            fail(field, repr(made) if isinstance(made, str) else type(made).__name__,
                 "a function of the rate that returns an optax transformation, say optax.adam")  # fmt: skip
    if not hasattr(algorithm.model, "objective"):
        fail("model", type(algorithm.model).__name__, "a jaxfed.Model: Model(net), or one of jaxfed.models")
    one_of("model.loss", algorithm.model.loss, list(LOSSES))
    if algorithm.model.l2 is not None:
        numbers("model.l2", algorithm.model.l2, 0)
        if np.shape(algorithm.model.l2):
            fail("model.l2", f"shape {np.shape(algorithm.model.l2)}", "one number")
    if hasattr(algorithm, "alpha"):
        numbers("alpha", algorithm.alpha, 0, 1)
        if np.shape(algorithm.alpha) not in ((), (train.num_clients,)):
            fail("alpha", f"shape {np.shape(algorithm.alpha)}", f"one number, or one for each of {train.num_clients}")
    for name, part in data.parts().items():
        if not hasattr(part, "num_clients"):
            fail(name, type(part).__name__, "ClientData, as train is")
        if part.num_clients != train.num_clients:
            fail(name, f"{part.num_clients} clients", f"{train.num_clients}, as there are in train")
        if part.x.shape[1:] != train.x.shape[1:]:
            fail(f"{name}.x", f"rows of shape {part.x.shape[1:]}", f"{train.x.shape[1:]}, as train has")
        labels(algorithm.model, part, name)


def labels(model: Any, part: Any, name: str) -> None:
    """Require labels that the model's loss understands: class numbers below its outputs, -1 and +1, or targets."""

    def outputs(x):
        return model.outputs(model.init(jax.random.key(0), x), x)

    z = jax.eval_shape(outputs, jax.eval_shape(type(part).sample, part))
    y = np.asarray(part.y)
    if model.classifies_many:
        if z.ndim != 2:
            fail("model.net", f"outputs of shape {z.shape} for one row", "(1, classes)")
        if not np.issubdtype(y.dtype, np.integer):
            fail(f"{name}.y", f"labels of {y.dtype}", f"class numbers (integers) for the loss {model.loss!r}")
        if y.min() < 0 or y.max() >= z.shape[1]:
            worst = y.min() if y.min() < 0 else y.max()
            fail(f"{name}.y", f"the label {worst}", f"0 to {z.shape[1] - 1}, the classes of the model")
    elif model.loss in ("logistic", "squared_hinge") and not np.isin(y, (-1, 1)).all():
        fail(f"{name}.y", f"the label {y[~np.isin(y, (-1, 1))][0]}", f"-1 or +1 for the loss {model.loss!r}")


def schedule(scheduler: Any, algorithm: Any, num_clients: int, last_round: int) -> None:
    """Check a horizontal scheduler, and those it holds, against the algorithm and the number of clients."""
    algorithm = getattr(algorithm, "inner", algorithm)
    if not callable(scheduler) or isinstance(scheduler, type):
        fail("scheduler", repr(scheduler), "a scheduler, say UniformCohort(num_clients, cohort_size)")
    if hasattr(scheduler, "inner"):
        schedule(scheduler.inner, algorithm, num_clients, last_round)
    if hasattr(scheduler, "interval"):  # FromSpeeds: a client that needs longer than the bound allows
        numbers("scheduler.interval", scheduler.interval, 1e-30)
        _per_client("scheduler.seconds", scheduler.seconds, num_clients, scalar=False)
        slowest = (scheduler.max_staleness + 1) * float(scheduler.interval) * (1 + 5e-7)  # rounding is not lateness
        numbers("scheduler.seconds", scheduler.seconds, 0, slowest)
    elif hasattr(scheduler, "seconds"):
        numbers("scheduler.seconds", scheduler.seconds, 0)
    if scheduler.num_clients != num_clients:
        fail("scheduler.num_clients", scheduler.num_clients, f"{num_clients}, the clients of the data")
    whole("scheduler.cohort_size", scheduler.cohort_size, 1)
    if scheduler.cohort_size > num_clients:
        fail("scheduler.cohort_size", scheduler.cohort_size, f"at most {num_clients}, the number of clients")
    if hasattr(scheduler, "strata"):
        whole("scheduler.strata", scheduler.strata, 1)
        if scheduler.cohort_size % scheduler.strata or scheduler.num_clients % scheduler.strata:
            fail("scheduler.strata", scheduler.strata, "a divisor of num_clients and of cohort_size")
    whole("scheduler.max_staleness", scheduler.max_staleness, 0)
    bound = scheduler.max_staleness
    if bound > algorithm.max_staleness:
        fail("max_staleness", algorithm.max_staleness, f"at least {bound} on the algorithm, the scheduler's bound")
    if hasattr(scheduler, "delay"):
        _per_client("scheduler.delay", scheduler.delay, num_clients, scalar=True)
        numbers("scheduler.delay", scheduler.delay, 0, bound)
        if np.any(np.asarray(scheduler.delay) % 1):
            fail("scheduler.delay", scheduler.delay, "whole rounds")
    if hasattr(scheduler, "events"):
        _replay(scheduler.events, num_clients, bound, last_round)


def _per_client(field: str, got: Any, num_clients: int, scalar: bool) -> None:
    if np.shape(got) != (num_clients,) and not (scalar and np.shape(got) == ()):
        fail(field, f"shape {np.shape(got)}", f"({num_clients},), one for each client{', or one number' * scalar}")


def _replay(events: Any, num_clients: int, bound: int, last_round: int) -> None:
    ids = np.asarray(events.ids)
    if ids.ndim != 2 or ids.dtype.kind not in "iu":
        fail("scheduler.events.ids", f"{ids.dtype} of shape {ids.shape}", "integers [rounds, slots]")
    for field, shape in (("time", ids.shape[:1]), ("active", ids.shape), ("delay", ids.shape)):
        table = getattr(events, field)
        if table is not None and np.shape(table) != shape:
            fail(f"scheduler.events.{field}", f"shape {np.shape(table)}", str(shape))
    if len(ids) < last_round:
        fail("scheduler.events", f"{len(ids)} rounds", f"at least {last_round}, the last round of the run")
    if ids.size and (ids.min() < 0 or ids.max() >= num_clients):
        fail("scheduler.events.ids", f"{ids.min()} to {ids.max()}", f"0 to {num_clients - 1}")
    repeated = np.flatnonzero((np.diff(np.sort(ids, axis=1), axis=1) == 0).any(axis=1))
    if repeated.size:
        fail("scheduler.events.ids", f"a client twice in round {repeated[0]}", "distinct clients in each round")
    if events.delay is not None:
        if bound == 0 and np.any(events.delay):
            fail("scheduler.max_staleness", bound, "the bound of scheduler.events.delay")
        numbers("scheduler.events.delay", events.delay, 0, bound)
