"""The axes of a sweep: which fields take which values, and how a point's values get into the settings.

A field is named by its path: "alpha" or "model.l2" in the algorithm, "scheduler.delay" in the scheduler, "data" for the
training rows themselves. Only traced fields can vary: a static one changes the program, and `compare` is for those.
"""

import difflib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxfed.checks import fail

SCHEDULER, DATA = "scheduler", "data"


class Axis(NamedTuple):
    """One dimension of a sweep: `values[i]` holds, for each of `paths`, its value at the i-th place."""

    dim: str
    paths: tuple[str, ...]
    values: list[tuple]
    labels: list[tuple]


class LogUniform(NamedTuple):
    """Numbers between low and high, uniform in their logarithm."""

    low: float
    high: float


class Uniform(NamedTuple):
    """Numbers between low and high."""

    low: float
    high: float


def sample(count: int, seed: int, **ranges: Any) -> list[dict[str, float]]:
    """Return `count` random points for `sweep(axes=...)`: {field: value}, each drawn from its range.

    ranges: field=(low, high), `Uniform(low, high)` or `LogUniform(low, high)`; for a path with dots pass a dict:
    `sample(20, 0, **{"model.l2": LogUniform(1e-6, 1e-2)})`.
    """
    rng = np.random.default_rng(seed)
    points: list[dict[str, float]] = [{} for _ in range(count)]
    for path, given in ranges.items():
        low, high = given
        log = isinstance(given, LogUniform)
        if not (np.isfinite([low, high]).all() and low < high and (low > 0 or not log)):
            fail(path, given, "low < high, finite" + (", above 0 for LogUniform" if log else ""))
        drawn = np.exp(rng.uniform(np.log(low), np.log(high), count)) if log else rng.uniform(low, high, count)
        for point, value in zip(points, drawn, strict=True):
            point[path] = float(value)
    return points


def parse(axes: Any) -> list[Axis]:
    """Return the axes of {path: values}, {(path, path): pairs} or a list of points [{path: value}, ...].

    Values are numbers, arrays, or nodes of one structure; for "data" a list of data or a dict, label to data. Zipped
    paths share a dimension named by them, "lr,alpha_lr"; points share the dimension "point".
    """
    if isinstance(axes, Mapping):
        found = [_axis(key, values) for key, values in axes.items()]
    elif isinstance(axes, Sequence) and not isinstance(axes, str) and all(isinstance(p, Mapping) for p in axes):
        if not axes or any(set(p) != set(axes[0]) for p in axes) or not axes[0]:
            fail("axes", f"{len(axes)} points of fields {sorted({k for p in axes for k in p})}",
                 "at least one point, all of the same fields")  # fmt: skip
        paths = tuple(axes[0])
        rows = [tuple(p[path] for path in paths) for p in axes]
        found = [Axis("point", paths, rows, rows)]
    else:
        fail("axes", type(axes).__name__, "a dict, path to values, or a list of points")
    paths = [path for axis in found for path in axis.paths]
    if twice := {path for path in paths if paths.count(path) > 1}:
        fail("axes", f"{min(twice)!r} twice", "each field once")
    for a in paths:
        for b in paths:
            if a != b and b.startswith(a + "."):
                fail("axes", f"{a!r} and {b!r}, a part of it", "one of them")
    return found


def _axis(key: Any, values: Any) -> Axis:
    paths = (key,) if isinstance(key, str) else tuple(key)
    if not paths or not all(isinstance(path, str) and path for path in paths):
        fail("axes", repr(key), "a field's path, or a tuple of those that vary together")
    labels = None
    if isinstance(values, Mapping):
        if paths != (DATA,):
            fail(f"axes[{key!r}]", "a dict", 'a list of values (a dict, label to data, is for "data")')
        labels, values = [(label,) for label in values], list(values.values())
    if isinstance(values, str) or not hasattr(values, "__len__") or len(values) == 0:
        fail(f"axes[{key!r}]", repr(values), "a list of at least one value")
    rows = [(v,) if len(paths) == 1 else tuple(v) if np.iterable(v) else (v,) for v in values]
    for i, row in enumerate(rows):
        if len(row) != len(paths):
            fail(f"axes[{key!r}][{i}]", f"{len(row)} values", f"{len(paths)}, one for each of {paths}")
    return Axis(",".join(paths), paths, rows, labels or rows)


def points(axes: Sequence[Axis]) -> list[dict[str, Any]]:
    """Return the points of the grid of all axes, the last axis fastest: {path: value}."""
    out: list[dict[str, Any]] = [{}]
    for axis in axes:
        out = [point | dict(zip(axis.paths, row, strict=True)) for point in out for row in axis.values]
    return out


def check(axes: Sequence[Axis], algorithm: Any, scheduler: Any) -> None:
    """Require that each path leads to a traced field, whose values are numbers (or nodes) of one shape each."""
    for axis in axes:
        for j, path in enumerate(axis.paths):
            if path == DATA:
                continue
            owner, rest = (scheduler, path[len(SCHEDULER) + 1 :]) if _of_scheduler(path) else (algorithm, path)
            _traced(path, owner, rest.split(".") if rest else [])
            column = [row[j] for row in axis.values]
            for value in column:
                for leaf in jax.tree.leaves(value, is_leaf=lambda x: x is None):
                    if leaf is None or isinstance(leaf, str) or np.asarray(leaf).dtype.kind not in "iufb":
                        fail(f"axes[{path!r}]", repr(value), "numbers")
            shapes = {(jax.tree.structure(v), tuple(np.shape(x) for x in jax.tree.leaves(v))) for v in column}
            if len(shapes) > 1:
                fail(f"axes[{path!r}]", "values of several shapes", "one shape for all of them")


def _traced(path: str, node: Any, names: Sequence[str]) -> None:
    if not names:
        fail(f"axes[{path!r}]", "no field", f"a field of it, say {path}.delay")
    for i, name in enumerate(names):
        fields = fields_of(node)
        if name not in fields:
            near = difflib.get_close_matches(name, [k for k, traced in fields.items() if traced], 1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            fail("axes", repr(path), f"a traced field of {type(node).__name__}: "
                 f"{', '.join(k for k, traced in fields.items() if traced)}{hint}")  # fmt: skip
        if not fields[name]:
            fail("axes", f"{path!r}, a static field", "a traced one; compare({...}) runs static choices side by side")
        node = getattr(node, name)
        if callable(node) and i + 1 < len(names):
            continue


def fields_of(node: Any) -> dict[str, bool]:
    """Return the fields of a node, each with whether it is traced."""
    if hasattr(node, "__dataclass_fields__"):
        return {k: f.metadata.get("pytree_node", True) for k, f in node.__dataclass_fields__.items()}
    return dict.fromkeys(getattr(node, "_fields", ()), True)


def _of_scheduler(path: str) -> bool:
    return path == SCHEDULER or path.startswith(SCHEDULER + ".")


def substitute(path: str, value: Any, algorithm: Any, scheduler: Any) -> tuple[Any, Any]:
    """Return algorithm and scheduler with the field of that path set. ("data" is not theirs: unchanged.)"""
    if path == DATA:
        return algorithm, scheduler
    if _of_scheduler(path):
        return algorithm, _set(scheduler, path.split(".")[1:], value)
    return _set(algorithm, path.split("."), value), scheduler


def _set(node: Any, names: Sequence[str], value: Any) -> Any:
    if not names:
        return value
    new = _set(getattr(node, names[0]), names[1:], value)
    replace = node._replace if hasattr(node, "_replace") else node.replace
    return replace(**{names[0]: new})


def stacked(values: Sequence[Any]) -> Any:
    """Return values of one structure as one with a first axis: floats and ints alike become NumPy arrays."""
    return jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *values)


def coordinates(axes: Sequence[Axis]) -> dict[str, tuple[str, Any]]:
    """Return the coordinates of a Dataset: for each path its values along the axis's dimension, texts where they are
    no numbers."""
    out: dict[str, tuple[str, Any]] = {}
    for axis in axes:
        for j, path in enumerate(axis.paths):
            column = [row[j] for row in axis.labels]
            numbers = all(np.ndim(v) == 0 and isinstance(v, (int, float, np.number)) for v in column)
            simple = numbers or all(isinstance(v, str) for v in column)
            texts = [v if isinstance(v, str) else f"{i}: {v!r}"[:60] if path != DATA else str(i)
                     for i, v in enumerate(column)]  # fmt: skip
            out[path] = (axis.dim, np.array(column if simple else texts, dtype=None if numbers else object))
    return out
