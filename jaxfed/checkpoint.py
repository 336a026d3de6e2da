"""A state on disk: written beside the old one and renamed, read back into the same structure."""

import contextlib
import io
import os
import pickle
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import jax
import numpy as np

from jaxfed import results

ALLOWED = ("jaxfed", "optax", "numpy", "collections", "builtins")
PARTIAL = ".partial"  # how the names of files end that are being written


@contextlib.contextmanager
def replacing(path: str | os.PathLike) -> Iterator[BinaryIO]:
    """Yield a file that takes the place of `path` at the end. A kill leaves the old file or the new one, never half."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=PARTIAL)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        results.share(temporary)
        os.replace(temporary, path)
    finally:
        Path(temporary).unlink(missing_ok=True)


def save_state(state: Any, path: str | os.PathLike) -> None:
    """Write a pytree of arrays, as `replacing` does."""
    with replacing(path) as file:
        pickle.dump(jax.tree.map(np.asarray, state), file)


def load_state(path: str | os.PathLike, allow: tuple[str, ...] = ()) -> Any:
    """Read a pytree written by `save_state`, as NumPy arrays.

    The file may hold only arrays, Python's containers and named tuples of jaxfed, optax and the packages in `allow`
    (for states of your own algorithms): anything else is refused, since a pickle can run code. Raises
    FileNotFoundError, or ValueError for a file that is not a state.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"path: got {path}, wanted a state written by save")
    try:
        return unpickled(Path(path).read_bytes(), ALLOWED + tuple(allow))
    except (pickle.UnpicklingError, EOFError, AttributeError, ImportError) as error:
        raise ValueError(f"path: got {path}, wanted a state written by save ({error})") from error


def unpickled(content: bytes | memoryview, allowed: tuple[str, ...]) -> Any:
    """Return what was pickled: arrays, containers, and named tuples of the packages `allowed`, and nothing else."""
    return _Unpickler(io.BytesIO(content), allowed).load()


def of_one_save(folder: Path, dataset: Any, state: Any) -> None:
    """Raise ValueError for results and a state that end at different moments."""
    of_state = getattr(getattr(state, "server", None), "round", None)
    name, last = "round", dataset["round"][-1]
    if hasattr(state, "totals") and "dominated_updates" in dataset:
        name, last, of_state = "update", dataset["dominated_updates"][-1], state.totals.dominated_updates
    if of_state is not None and int(of_state) != int(last):
        raise ValueError(
            f"path: got {folder}, whose results end at {name} {int(last)} and whose state at {name} {int(of_state)};"
            " wanted the two files of one save (was one cut short?)"
        )


class _Unpickler(pickle.Unpickler):
    """A reader that builds nothing but named tuples and arrays of known packages."""

    def __init__(self, file, allowed):
        super().__init__(file)
        self.allowed = allowed

    def find_class(self, module, name):
        package = module.split(".")[0]
        found = super().find_class(module, name) if package in self.allowed and "." not in name else None
        arrays = package == "numpy" and name in ("ndarray", "dtype", "_reconstruct", "_frombuffer")
        containers = package in ("builtins", "collections") and name in ("dict", "list", "tuple", "set", "OrderedDict")
        named_tuple = isinstance(found, type) and issubclass(found, tuple) and package not in ("numpy", "builtins")
        if not (arrays or containers or named_tuple):
            raise pickle.UnpicklingError(f"the file names {module}.{name}, which is not allowed")
        return found
