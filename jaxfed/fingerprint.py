"""What a run's numbers depend on, as text by field path: how a checkpoint knows its run again.

Fields are followed into dataclasses, named tuples, containers, partial functions and plain objects. Arrays become a
hash of their bytes, functions their name and a hash of their code, of what they close over and of the plain globals
that they name. What a function calls by a global name is not followed.
"""

import dataclasses
import functools
import hashlib
import re
import types
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

PLAIN = (bool, int, float, complex, str, bytes, type(None), np.number, np.bool_)


def fingerprint(**parts: Any) -> dict[str, str]:
    """Return the text of every field below the parts, by path: {"algorithm.lr": "0.1", ...}."""
    found: dict[str, str] = {}
    for name, value in parts.items():
        _walk(name, value, found, ())
    return found


def of_run(
    attrs: dict[str, Any],
    algorithm: Any,
    scheduler: Any,
    data: Any,
    timetable: Any,
    state: Any,
    measures: Any,
    group: int | None,
) -> dict[str, str]:
    """Return the fingerprint of a run. attrs: as `runner.describe` tells them; state: what it starts from, or None.

    What changes no bit, as the length of the device's calls, is not in it.
    """
    told = {name: attrs[name] for name in ("seed", "num_rounds", "every", "devices", "device", "x64", "versions")}
    config = {
        name: getattr(jax.config, f"jax_{name}") for name in ("default_matmul_precision", "threefry_partitionable")
    }
    more = {"state": None if state is None else digest(state), "measures": tuple(measures or ()), "group": group}
    schedule = {"schedule": digest(timetable.scheduler)}  # a vertical run's table of ticks
    return fingerprint(algorithm=algorithm, scheduler=scheduler, data=data, **told, **config, **more, **schedule)


def digest(value: Any) -> str:
    """Return one hash of all fields below a value."""
    return _hash(*(f"{name}={text}" for name, text in fingerprint(value=value).items()))


def differences(here: dict[str, str], there: dict[str, str]) -> list[str]:
    """Return the fields that differ, each with both texts; not those below another that differs."""
    names = [name for name in sorted(here.keys() | there.keys()) if here.get(name) != there.get(name)]
    below = lambda name, other: name.startswith((f"{other}.", f"{other}["))  # noqa: E731
    top = [name for name in names if not any(below(name, other) for other in names)]
    return [f"{name} {there.get(name, 'absent')} (here {here.get(name, 'absent')})" for name in top]


def _walk(name: str, value: Any, found: dict[str, str], above: tuple[int, ...]) -> None:
    """Add the texts of a value and of all below it; `above` are the ids of what leads to it."""
    if id(value) in above:
        found[name] = "a cycle"
        return
    children = list(_children(value))
    found[name] = _text(value, bool(children), (*above, id(value)))
    for key, child in children:
        _walk(f"{name}{key}", child, found, (*above, id(value)))


def _children(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the ends of the paths of what is directly below a value, and these values: nothing for a leaf."""
    if isinstance(value, (*PLAIN, type, np.ndarray, jax.Array, types.FunctionType)):
        return
    if dataclasses.is_dataclass(value):
        yield from ((f".{f.name}", getattr(value, f.name, None)) for f in dataclasses.fields(value))
    elif isinstance(value, tuple) and (names := getattr(value, "_fields", None)):
        yield from ((f".{name}", child) for name, child in zip(names, value, strict=True))
    elif isinstance(value, dict):
        yield from ((f"[{key!r}]", child) for key, child in value.items())
    elif isinstance(value, (list, tuple)):
        if not all(isinstance(child, PLAIN) for child in value):
            yield from ((f"[{i}]", child) for i, child in enumerate(value))
    elif isinstance(value, functools.partial):
        yield from ((".func", value.func), (".args", value.args), (".keywords", value.keywords))
    elif isinstance(value, types.MethodType):
        yield from ((".function", value.__func__), (".self", value.__self__))
    elif hasattr(value, "__wrapped__"):
        yield ".function", value.__wrapped__
    elif type(value).__repr__ is object.__repr__ and hasattr(value, "__dict__"):
        yield from ((f".{key}", child) for key, child in vars(value).items())


def _text(value: Any, has_fields: bool, above: tuple[int, ...]) -> str:
    """Return the text of a leaf, or the class of what has fields, or a container's length."""
    if has_fields and type(value) in (list, tuple, dict):
        return f"{type(value).__name__} of {len(value)}"
    if has_fields or isinstance(value, type):
        kind = value if isinstance(value, type) else type(value)
        return f"{kind.__module__}.{kind.__qualname__}"
    if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    if isinstance(value, (np.ndarray, jax.Array)):
        array = np.asarray(value)
        if array.shape == () and array.dtype.kind in "biuf":
            return _text(array[()], False, above)
        data = repr(array.tolist()).encode() if array.dtype.hasobject else np.ascontiguousarray(array).data.cast("B")
        return f"{array.dtype}{list(array.shape)} {_hash(data)}"
    if isinstance(value, (bool, np.bool_)):
        return str(bool(value))
    if isinstance(value, (int, float, np.number)):  # 1 and 1.0 are one setting, 0.1 and float32(0.1) too
        return str(value).removesuffix(".0")
    if isinstance(value, types.FunctionType):
        return f"{value.__module__}.{value.__qualname__} {_code(value, above)}"
    if isinstance(value, (set, frozenset)):
        return _short(repr(sorted(map(repr, value))))
    return _short(re.sub(r" at 0x[0-9a-f]+", "", repr(value)))


def _short(text: str) -> str:
    return text if len(text) <= 100 else f"{text[:60]}... {_hash(text)}"


def _hash(*parts: Any) -> str:
    """Return the first digits of a SHA-256 hash of texts or bytes."""
    whole = hashlib.sha256()
    for part in parts:
        whole.update(part.encode() if isinstance(part, str) else part)
        whole.update(b"\0")
    return whole.hexdigest()[:16]


def _code(function: types.FunctionType, above: tuple[int, ...]) -> str:
    """Return a hash of what a function does, as far as it can be seen from itself."""
    found: dict[str, str] = {}

    def add(name: str, code: types.CodeType) -> None:
        found[name] = code.co_code.hex()
        globals_ = {n: function.__globals__.get(n) for n in code.co_names}
        plain = {n: value for n, value in globals_.items() if isinstance(value, PLAIN)}
        _walk(f"{name} names", [*code.co_names, plain], found, above)
        for i, const in enumerate(code.co_consts):
            add(f"{name} {i}", const) if isinstance(const, types.CodeType) else _walk(f"{name} {i}", const, found, ())

    add("code", function.__code__)
    _walk("defaults", [function.__defaults__, function.__kwdefaults__], found, above)
    for i, cell in enumerate(function.__closure__ or ()):
        try:
            _walk(f"closure {i}", cell.cell_contents, found, above)
        except ValueError:  # not filled yet
            found[f"closure {i}"] = "empty"
    return _hash(*(f"{name}={text}" for name, text in found.items()))
