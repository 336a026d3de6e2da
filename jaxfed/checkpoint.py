"""A state on disk: written beside the old one and renamed, read back into the same structure."""

import io
import os
import pickle
import tempfile
from pathlib import Path
from typing import Any

import jax
import numpy as np

ALLOWED = ("jaxfed", "optax", "numpy", "collections", "builtins", "flax")


def save_state(state: Any, path: str | os.PathLike) -> None:
    """Write a pytree of arrays. A kill leaves the old file or the new one, never half of one."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".partial")
    try:
        with os.fdopen(handle, "wb") as file:
            pickle.dump(jax.tree.map(np.asarray, state), file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        Path(temporary).unlink(missing_ok=True)


def load_state(path: str | os.PathLike, allow: tuple[str, ...] = ()) -> Any:
    """Read a pytree written by `save_state`, as NumPy arrays.

    The file may name only classes of jaxfed, optax, flax, NumPy and Python's containers, and of the packages in
    `allow` (for states of your own algorithms): anything else is refused, since a pickle can run code. Raises
    FileNotFoundError, or ValueError for a file that is not a state.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"path: got {path}, wanted a state written by save")
    try:
        return _Unpickler(io.BytesIO(Path(path).read_bytes()), ALLOWED + tuple(allow)).load()
    except (pickle.UnpicklingError, EOFError, AttributeError, ImportError) as error:
        raise ValueError(f"path: got {path}, wanted a state written by save ({error})") from error


class _Unpickler(pickle.Unpickler):
    """A reader that builds nothing but named tuples and arrays of known packages."""

    def __init__(self, file, allowed):
        super().__init__(file)
        self.allowed = allowed

    def find_class(self, module, name):
        found = super().find_class(module, name) if module.split(".")[0] in self.allowed else None
        harmless = isinstance(found, type) or getattr(found, "__name__", "") in ("_reconstruct", "_frombuffer")
        if not harmless or "." in name:
            raise pickle.UnpicklingError(f"the file names {module}.{name}, which is not allowed")
        return found
