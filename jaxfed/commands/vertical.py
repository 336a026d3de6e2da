"""From the options of a vertical run to its parties, its method and the arguments of `run`."""

import dataclasses
from typing import Any

import jax
import numpy as np

from jaxfed import checks, datasets, vertical
from jaxfed.commands import build, protection
from jaxfed.commands import vertical_options as o
from jaxfed.commands import vertical_schedule as schedule
from jaxfed.datasets import Arrays
from jaxfed.vertical import Objective, PartyData
from jaxfed.vertical.checks import settings
from jaxfed.vertical.objective import CURVATURE

METHODS = {"sgd": vertical.VFB2SGD, "svrg": vertical.VFB2SVRG, "saga": vertical.VFB2SAGA}
TABLES = "a table: breast_cancer, diabetes, credit, libsvm:FILE or tfds:NAME"

# what a run that goes on from another must leave as it was
FIXED = {
    "data": ("dataset", "parties", "active", "intercept", "scale", "data_seed"),
    "method": ("method",),
    "problem": ("loss",),
    "running": ("x64",),
}


def prepare(options: Any) -> tuple[Any, dict[str, Any], Any]:
    """Return (options, arguments of a run, algorithm) after everything that can be refused before it has been.

    The options have the loss and the lr that the data decide where none is given.
    """
    num_rounds, every = schedule.lengths(options.length)
    check(options)
    start_device(options.running)
    train, test = party_data(options.data)
    options = settle(options, train)
    algorithm = method(options)
    settings(algorithm, train.with_parts(test))
    target = options.running.target_accuracy
    if target is not None and (test is None or not algorithm.objective.classifies):
        got = f"{target:g} for {options.data.dataset} with the loss {algorithm.objective.loss}"
        checks.fail("target_accuracy", got, "none, or test rows of two classes and a loss for these")
    arguments = {
        "data": train,
        "test": test,
        "scheduler": schedule.scheduler(options.schedule, train),
        "num_rounds": num_rounds,
        "every": every,
        "progress": False if options.output.quiet else None,
    }
    return options, arguments, algorithm


def start_device(running: o.VerticalRunning) -> None:
    """Set up jax: float64 where it is asked for. The parties of a run share a device."""
    if running.x64:
        jax.config.update("jax_enable_x64", True)


def check(options: Any) -> None:
    """Raise ValueError, with the option's name, for what is wrong whatever the data set holds."""
    data, method, running = options.data, options.method, options.running
    build.check_name(data.dataset)
    for field in ("parties", "active"):
        checks.whole(field, getattr(data, field), 1)
    if data.active > data.parties:
        checks.fail("active", data.active, f"at most {data.parties}, the parties")
    checks.whole("data_seed", data.data_seed, 0)
    checks.numbers("l2", options.problem.l2, 0)
    if method.lr is not None:
        checks.numbers("lr", method.lr, 0)
    checks.whole("batch_size", method.batch_size, 1)
    if method.epoch_length is not None:
        checks.whole("epoch_length", method.epoch_length, 1)
        if method.method != "svrg":
            checks.fail("epoch_length", f"{method.epoch_length} with --method {method.method}", "--method svrg")
    schedule.check(options.schedule)
    schedule.check_export(options.export.export_schedule, options.output.overwrite)
    checks.whole("seed", running.seed, 0)
    if running.target_accuracy is not None:
        checks.numbers("target_accuracy", running.target_accuracy, 0, 1)
    if running.target_objective is not None:
        checks.numbers("target_objective", running.target_objective, -np.inf)


def party_data(data: o.Parties) -> tuple[PartyData, PartyData | None]:
    """Return the training and test rows of a data set (None where it has none), cut between the parties."""
    arrays = datasets.load(data.dataset, data_dir=data.data_dir, download=data.download)
    check_table(data, arrays)
    scale = None if data.scale == "none" else data.scale
    train = vertical.split(
        arrays.x, arrays.y, data.parties, data.active, data.data_seed, intercept=data.intercept, scale=scale
    )
    return train, None if arrays.x_test is None else train.like(arrays.x_test, arrays.y_test)


def check_table(data: o.Parties, arrays: Arrays) -> None:
    """Raise ValueError for images, for more than two classes, and for fewer columns than parties."""
    if arrays.x.ndim != 2:
        checks.fail("dataset", f"{data.dataset!r}, whose rows have the shape {arrays.x.shape[1:]}", TABLES)
    if arrays.num_classes not in (0, 2):
        checks.fail("dataset", f"{data.dataset!r}, which has {arrays.num_classes} classes", "two, or real targets")
    if data.parties > arrays.x.shape[1]:
        checks.fail("parties", data.parties, f"at most {arrays.x.shape[1]}, the columns of {data.dataset}")


def settle(options: Any, train: PartyData) -> Any:
    """Return the options with a loss and an lr: where none is given, `default_lr`."""
    problem, given = options.problem, options.method
    if problem.loss is None:
        problem = dataclasses.replace(problem, loss="logistic" if train.classes else "squared")
    if given.lr is None:
        given = dataclasses.replace(given, lr=default_lr(objective(problem), train))
    return dataclasses.replace(options, problem=problem, method=given)


def default_lr(objective: Objective, train: PartyData) -> float:
    """Return 1 / (4 L) to three digits, L the mean over rows of how fast their gradients change.

    A choice of ours, which leaves room for some updates on their way at once. The theory's L, the largest over rows,
    is ten times larger and more where a few rows are far out.
    """
    l2 = 0.0 if objective.regularizer == "none" else objective.l2
    smoothness = CURVATURE[objective.loss] * float(np.mean(train.blocks.squared_norms())) + l2
    return float(f"{1 / (4 * max(smoothness, 1e-6)):.3g}")


def objective(problem: o.Problem) -> Objective:
    """Return the objective."""
    return Objective(problem.loss or "logistic", problem.regularizer, problem.l2)


def method(options: Any) -> Any:
    """Return the algorithm of settled options."""
    given = options.method
    fields: dict[str, Any] = {"lr": given.lr, "batch_size": given.batch_size, "backward": not given.forward_only}
    if given.method == "svrg":
        fields["epoch_length"] = given.epoch_length
    problem = objective(options.problem)
    fields |= protection.fields(options.protection, problem)
    return METHODS[given.method](problem, **fields)
