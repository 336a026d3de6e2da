"""The checks of vertical algorithms, schedulers and data that go together."""

from typing import Any

import jax
import numpy as np

from jaxfed.checks import fail, numbers, one_of, whole
from jaxfed.losses import REGULARIZERS
from jaxfed.vertical.blocks import Sparse
from jaxfed.vertical.objective import CURVATURE


def settings(algorithm: Any, data: Any) -> None:
    """Check an algorithm against training, test and validation rows."""
    if not hasattr(algorithm, "objective"):
        fail("algorithm", type(algorithm).__name__, "a vertical one for PartyData: VFB2SGD, VFB2SVRG or VFB2SAGA")
    objective = algorithm.objective
    if not hasattr(objective, "theta"):
        fail("objective", type(objective).__name__, 'vertical.Objective, say Objective("logistic", "l2", 1e-4)')
    one_of("objective.loss", objective.loss, list(CURVATURE))
    one_of("objective.regularizer", objective.regularizer, [*REGULARIZERS, "none"])
    for field, value in (("objective.l2", objective.l2), ("lr", algorithm.lr)):
        if value is None:
            fail(field, None, "a number" + (", or a schedule of jaxfed.steps" if field == "lr" else ""))
        numbers(field, value, 0)
        for leaf in jax.tree.leaves(value):
            if np.shape(leaf):
                fail(field, f"shape {np.shape(leaf)}", "one number")
    whole("batch_size", algorithm.batch_size, 1)
    if getattr(algorithm, "epoch_length", None) is not None:
        whole("epoch_length", algorithm.epoch_length, 1)
    train = data.train
    if isinstance(train.blocks, Sparse) and objective.regularizer == "nonconvex":
        wanted = "'l2' or 'none', since only these can be applied lazily (or dense blocks: x.toarray())"
        fail("objective.regularizer", "'nonconvex' for sparse blocks", wanted)
    for name, part in data.parts().items():
        _labels(name, part, objective)
        if (part.sizes, part.active) != (train.sizes, train.active):
            fail(name, f"parties of {part.sizes} columns", f"{train.sizes}, as train has: party.like(x, y) makes it")


def _labels(name: str, part: Any, objective: Any) -> None:
    if not hasattr(part, "blocks"):
        fail(name, type(part).__name__, "PartyData (vertical.split, PartyData.from_blocks; party.like for test rows)")
    if part.y is None:
        fail(f"{name}.y", None, "labels: party.like(x, y)")
    if objective.classifies and not part.classes:
        found = np.unique(np.asarray(part.y))
        other = "real targets have the losses squared, half_squared, robust"
        fail(f"{name}.y", f"{len(found)} values, {found[0]:g} to {found[-1]:g}",
             f"labels of two classes for the loss {objective.loss!r} ({other})")  # fmt: skip


def schedule(scheduler: Any, data: Any, mesh: Any) -> None:
    """Check a vertical scheduler against the parties."""
    if isinstance(scheduler, type) or not hasattr(scheduler, "plan"):
        got = repr(scheduler) if isinstance(scheduler, type) else type(scheduler).__name__
        fail("scheduler", got, "a vertical one: Synchronous(party), FixedDelay(party, ...) or BilevelAsync(party)")
    got, wanted = ((p.num_parties, tuple(p.active)) for p in (scheduler.party, data))
    if got != wanted:
        got, wanted = (f"{count} parties, of which active {active}" for count, active in (got, wanted))
        fail("scheduler.party", got, f"{wanted}, as the data have")
    if mesh is not None:
        fail("mesh", repr(mesh), "None: the parties of one vertical run share a device")


def countable(plan: Any) -> None:
    """Require that the device's 32-bit counters hold the run."""
    if len(plan.time) >= 2**31 or (len(plan.dominated) and plan.dominated[-1] >= 2**31):
        fail("num_rounds", f"{len(plan.time)} ticks", "fewer than 2^31 ticks and dominated updates")


def is_state(field: str, got: Any) -> None:
    """Require the state of a finished vertical run."""
    if not hasattr(got, "totals") or not hasattr(got.totals, "time"):
        fail(field, type(got).__name__, "the state of an earlier vertical run (its field `state`)")
