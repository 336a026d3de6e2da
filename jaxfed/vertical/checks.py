"""The checks of vertical algorithms, schedulers and data that go together."""

from typing import Any

import numpy as np

from jaxfed import steps
from jaxfed.checks import fail, flag, number, numbers, one_of, whole
from jaxfed.losses import REGULARIZERS
from jaxfed.vertical.blocks import Sparse
from jaxfed.vertical.objective import CURVATURE


def settings(algorithm: Any, data: Any) -> None:
    """Check an algorithm against training, test and validation rows."""
    if not hasattr(algorithm, "objective"):
        fail("algorithm", type(algorithm).__name__, "a vertical one for PartyData: VFB2SGD, VFB2SVRG or VFB2SAGA")
    objective = algorithm.objective
    is_party("train", data.train)
    problem(objective)
    _rate("lr", algorithm.lr)
    flag("backward", algorithm.backward)
    whole("batch_size", algorithm.batch_size, 1)
    protection(algorithm, data.train)
    if getattr(algorithm, "epoch_length", None) is not None:
        whole("epoch_length", algorithm.epoch_length, 1)
    train = data.train
    if isinstance(train.blocks, Sparse) and objective.regularizer == "nonconvex":
        wanted = "'l2' or 'none', since only these can be applied lazily (or dense blocks: x.toarray())"
        fail("objective.regularizer", "'nonconvex' for sparse blocks", wanted)
    for name, part in data.parts().items():
        is_party(name, part)
        labels(name, part, objective)
        _same_split(name, part, train)


def protection(algorithm: Any, party: Any) -> None:
    """Check masks, defence and the parties' own factors of the step size."""
    secure, defence, factors = algorithm.secure, algorithm.defence, algorithm.factors
    if secure is not None:
        if isinstance(secure, type) or not hasattr(secure, "pairs"):
            fail("secure", repr(secure), "vertical.SecureAggregation(), or None")
        secure.check(party)
    if defence is not None:
        if isinstance(defence, type) or not (hasattr(defence, "draw") and hasattr(defence, "release")):
            fail("defence", repr(defence), "one of privacy.defences, anything with draw and release, or None")
        if hasattr(defence, "check"):
            defence.check(algorithm.objective, algorithm.batch_size)
    if factors is not None:
        numbers("factors", factors, -np.inf)
        if np.shape(factors) != (party.num_parties,):
            fail("factors", f"shape {np.shape(factors)}", f"({party.num_parties},), one number per party, or None")


def problem(objective: Any) -> None:
    """Check an objective by itself."""
    if isinstance(objective, type) or not hasattr(objective, "theta"):
        got = repr(objective) if isinstance(objective, type) else type(objective).__name__
        fail("objective", got, 'vertical.Objective, say Objective("logistic", "l2", 1e-4)')
    one_of("objective.loss", objective.loss, list(CURVATURE))
    one_of("objective.regularizer", objective.regularizer, [*REGULARIZERS, "none"])
    number("objective.l2", objective.l2, 0)


def _rate(field: str, got: Any) -> None:
    """Require a step size: one number, or a schedule (those of `jaxfed.steps` of single numbers)."""
    if got is None:
        fail(field, None, "a number, or a schedule of jaxfed.steps")
    if not callable(got) or isinstance(got, type):
        number(field, got, 0)
    elif not isinstance(got, (steps.Constant, steps.ExponentialDecay, steps.InverseTime)):
        numbers(field, got, -np.inf)
    else:
        for name, value in vars(got).items():
            number(f"{field}.{name}", value, 1e-30 if name == "offset" else 0)


def _same_split(name: str, part: Any, train: Any) -> None:
    """Require rows under the training rows' split: the same columns at each party, labels, classes and scaling."""
    like = "as train has: party.like(x, y) makes it"
    if part.sizes != train.sizes:
        fail(name, f"parties of {part.sizes} columns", f"{train.sizes}, {like}")
    if part.active != train.active:
        fail(name, f"labels at the parties {part.active}", f"{train.active}, {like}")
    if type(part.blocks) is not type(train.blocks):
        got, wanted = (type(data.blocks).__name__.lower() for data in (part, train))
        fail(name, f"{got} blocks", f"{wanted} ones, {like}")
    if part.columns is None or train.columns is None:  # placed by the user: no more is known
        return
    for field in ("columns", "shift", "scale"):
        own, wanted = getattr(part, field), getattr(train, field)
        if (own is None) != (wanted is None) or (own is not None and not np.array_equal(own, wanted)):
            fail(f"{name}.{field}", "those of another split", f"the same {like}")
    for field in ("classes", "intercept"):
        if getattr(part, field) != getattr(train, field):
            fail(f"{name}.{field}", getattr(part, field), f"{getattr(train, field)}, {like}")


def is_party(name: str, part: Any) -> None:
    """Require party data."""
    if not (hasattr(part, "blocks") and hasattr(part, "like")):
        fail(name, type(part).__name__, "PartyData (vertical.split, PartyData.from_blocks; party.like for test rows)")


def labels(name: str, part: Any, objective: Any) -> None:
    """Require labels that suit the loss."""
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
