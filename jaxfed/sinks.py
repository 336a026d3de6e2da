"""Where a run's figures also go while it runs: TensorBoard, Weights & Biases, or whatever has `record`.

A sink is an object with `record(round, {name: float})`. `run(sinks=...)` calls it once for each record, between two
calls of the device. Both packages are optional: `pip install -e ".[track]"`.
"""

import os
import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from jaxfed import checks
from jaxfed.sweep_results import MEAN


class TensorBoard:
    """Writes into a folder for TensorBoard: `with TensorBoard("logs/apfl") as board: jf.run(..., sinks=[board])`."""

    def __init__(self, folder: str | os.PathLike):
        self.writer = _package("tensorboardX", "TensorBoard").SummaryWriter(str(folder))

    def record(self, round: int, values: dict[str, float]) -> None:
        """Write one record, to be seen at once."""
        for name, value in values.items():
            self.writer.add_scalar(name, value, round)
        self.writer.flush()

    def __enter__(self) -> "TensorBoard":
        return self

    def __exit__(self, *_: Any) -> None:
        _guarded(self, self.writer.close)


class Wandb:
    """Logs to Weights & Biases: `with Wandb(project="apfl", mode="offline") as log: jf.run(..., sinks=[log])`.

    The arguments are those of `wandb.init`.
    """

    def __init__(self, **init: Any):
        self.run = _package("wandb", "Weights & Biases").init(**init)

    def record(self, round: int, values: dict[str, float]) -> None:
        """Log one record."""
        self.run.log(values, step=round)

    def __enter__(self) -> "Wandb":
        return self

    def __exit__(self, *_: Any) -> None:
        _guarded(self, self.run.finish)


class Feed:
    """Hands a run's records to its sinks. One that fails is given up with a warning: it never ends the run.

    data: the run's, which trims records and knows who has rows. dims: name to the axes of each array in a record.
    """

    def __init__(self, sinks: Sequence[Any], data: Any, dims: dict[str, tuple[str, ...]]):
        self.left = list(sinks)
        for i, sink in enumerate(self.left):
            if not callable(getattr(sink, "record", None)):
                checks.fail(f"sinks[{i}]", type(sink).__name__, "an object with record(round, {name: float})")
        self.data, self.dims = data, dims

    def __call__(self, round: int, record: dict[str, Any]) -> None:
        """Hand over the record of a round."""
        if self.left:
            (record,) = self.data.trim([record], self.dims)
            values = figures(record, self.dims, self.data.coords())
            self.left = [sink for sink in self.left if _guarded(sink, sink.record, round, dict(values))]


def figures(record: dict[str, Any], dims: dict[str, tuple[str, ...]], coords: dict[str, Any]) -> dict[str, float]:
    """Return a record's numbers: those that are one number, and of one a client the mean over clients with rows.

    The latter are named `{name}_mean_over_clients`, as in `results.to_frame`; other arrays are left out.
    """
    out = {}
    for name, value in record.items():
        value, axes = np.asarray(value), dims.get(name, ())
        if not axes and value.ndim == 0:
            out[name] = float(value)
        elif axes == ("client",):
            size = coords.get(f"{'_'.join(name.split('_')[1:2])}_size")
            has = np.ones(len(value), bool) if size is None else np.asarray(size[1]) > 0
            out[f"{name}{MEAN}"] = float(np.mean(value[has], dtype=float)) if has.any() else np.nan
    return out


def _package(name: str, what: str) -> Any:
    """Return a package; ModuleNotFoundError, with advice, where it is not installed."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        wanted = f'wanted it installed for {what}: pip install -e ".[track]"'
        raise ModuleNotFoundError(f"sinks: got no package {name}, {wanted}", name=name) from error


def _guarded(sink: Any, call: Any, *arguments: Any) -> bool:
    """Call, and return whether it went well; if not, a warning says so."""
    try:
        call(*arguments)
    except Exception as error:  # whatever it is, the run is worth more
        cause = f"{type(error).__name__}: {error}"
        warnings.warn(f"sinks: {type(sink).__name__} failed ({cause}); the run goes on without it", stacklevel=3)
        return False
    return True
