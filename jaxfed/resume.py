"""A run on disk while it is going on: written beside the old one and renamed, found again by the same call.

A folder holds `checkpoint.pkl`: the settings' fingerprint, the whole state of the device (of a vertical run with what
is on its way), the last record; and `records-K.pkl` with the records before, each written once. A checkpoint names its
parts by their hashes, and is written after them, so a kill at any moment leaves the old one or the new one whole.
"""

import contextlib
import hashlib
import os
import pickle
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from jaxfed import checkpoint, checks
from jaxfed.fingerprint import differences
from jaxfed.types import Timetable

NAME, LOCK = "checkpoint.pkl", "lock"
FORM = b"jaxfed checkpoint 1\n"
SHOWN = 8  # differing fields named in a refusal


class Packed(NamedTuple):
    """An array: its dtype's name, its shape, its bytes (uint8)."""

    dtype: str
    shape: tuple[int, ...]
    data: np.ndarray


class Found(NamedTuple):
    """What a folder held: the leaves of the carry, the device's round, and the records so far."""

    carry: list[Packed]
    now: int
    records: list[dict[str, np.ndarray]]


class Keeper:
    """Writes one run's checkpoints into a folder, at most one in `seconds`; without a folder it does nothing."""

    def __init__(self, folder: Path | None, seconds: float):
        self.folder, self.seconds = folder, seconds
        self.parts: list[tuple[str, int]] = []  # hash and number of records of each part
        self.settings: dict[str, str] = {}
        self.timetable: Timetable = Timetable(None, [], [], None)
        self.last = time.monotonic()
        self.kept = "nothing is kept"  # or which round is

    def find(self, settings: dict[str, str], timetable: Timetable) -> Found | None:
        """Return the checkpoint of a run with these settings, None where there is none.

        Raises ValueError for one of other settings, or for a file that is cut short.
        """
        self.settings, self.timetable = settings, timetable
        if self.folder is None or not (self.folder / NAME).exists():
            return None
        content, _ = self._read(NAME)
        self._compare(content["settings"], settings)
        now, taken = content["now"], list(zip(content["rounds"], content["stops"], strict=True))
        planned = list(zip(timetable.rounds, timetable.stops, strict=True))
        agreed = next((i for i, (a, b) in enumerate(zip(taken, planned, strict=False)) if a != b), len(taken))
        agreed = min(agreed, len(planned))
        # a shorter run's last record may lie between those of this one; then it is left out
        if agreed < len(taken) - 1 or (agreed < len(planned) and planned[agreed][1] <= now):
            checks.fail("num_rounds", f"{settings['num_rounds']}, with records at other rounds than in {self.folder}",
                        f"at least {content['settings']['num_rounds']}, as there, or another folder")  # fmt: skip
        records = []
        for k, (known, count) in enumerate(content["parts"]):
            part, found = self._read(f"records-{k}.pkl")
            if found != known or len(part) != count:
                self._refuse(f"records-{k}.pkl")
            records += part
        self.parts, self.kept = content["parts"], f"round {now} is kept"
        records = [*records, content["last"]][:agreed]
        return Found(content["carry"], now, [{k: unpack(x) for k, x in record.items()} for record in records])

    def save(self, carry: Any, now: int, records: list[dict[str, Any]], must: bool = False) -> None:
        """Write a checkpoint if one is due: the carry after the device's round `now`, the records until then.

        Where that fails, as on a full disk, a warning says so and the run goes on.
        """
        if self.folder is None or not (must or time.monotonic() - self.last >= self.seconds):
            return
        packed = lambda record: {name: pack(x) for name, x in record.items()}  # noqa: E731
        try:
            kept = sum(count for _, count in self.parts)
            if part := [packed(record) for record in records[kept:-1]]:
                self.parts.append((_write(self.folder / f"records-{len(self.parts)}.pkl", part), len(part)))
            stops, rounds = (column[: len(records)] for column in (self.timetable.stops, self.timetable.rounds))
            content = {"settings": self.settings, "now": now, "stops": stops, "rounds": rounds, "parts": self.parts}
            leaves = [pack(x) for x in jax.tree.leaves(carry)]
            _write(self.folder / NAME, content | {"last": packed(records[-1]), "carry": leaves})
            self.kept = f"round {now} is kept"
        except OSError as error:
            message = f"checkpoint: {self.folder} could not be written ({error.strerror}); the run goes on"
            warnings.warn(message, stacklevel=3)
        self.last = time.monotonic()

    def _compare(self, there: dict[str, str], here: dict[str, str]) -> None:
        """Raise ValueError, with each field, where settings differ. Lengths may, where the schedules agree."""
        same_schedule = there["schedule"] == here["schedule"]
        left_out = ("schedule", "num_rounds") if same_schedule else ("schedule",)
        named = differences(*({k: v for k, v in d.items() if k not in left_out} for d in (here, there)))
        if not named and not same_schedule:
            named = ["a schedule that differs"]
        if named:
            more = f" and {len(named) - SHOWN} more" if len(named) > SHOWN else ""
            checks.fail("checkpoint", f"{self.folder}, of a run with {', '.join(named[:SHOWN])}{more}",
                        "the same settings, or another folder")  # fmt: skip

    def _read(self, name: str) -> tuple[Any, str]:
        """Return what a file holds and its hash."""
        assert self.folder is not None
        try:
            content = memoryview((self.folder / name).read_bytes())
            body, known = content[len(FORM) : -32], bytes(content[-32:])
            whole = hashlib.sha256(body)
            if bytes(content[: len(FORM)]) != FORM or whole.digest() != known:
                self._refuse(name)
            return checkpoint.unpickled(body, ("jaxfed", "numpy")), whole.hexdigest()
        except (FileNotFoundError, pickle.UnpicklingError, EOFError, AttributeError, ImportError):
            self._refuse(name)

    def _refuse(self, name: str) -> NoReturn:
        got = f"{self.folder}, whose {name} is cut short or not of this version of jaxfed"
        checks.fail("checkpoint", got, "a folder as run left it, or another")


@contextlib.contextmanager
def keeper(folder: str | os.PathLike | None, seconds: float) -> Iterator[Keeper]:
    """Yield the keeper of a folder, which no other run writes to meanwhile; left-overs of killed runs are removed.

    Raises ValueError, before anything is computed, for a folder that can't be made or written to.
    """
    checks.number("checkpoint_seconds", seconds, 0)
    if folder is None:
        yield Keeper(None, seconds)
        return
    if jax.process_count() > 1:
        checks.fail("checkpoint", folder, "None in a run of several processes")
    path = Path(folder)
    with contextlib.ExitStack() as stack:
        try:
            path.mkdir(parents=True, exist_ok=True)
            _lock(stack.enter_context(open(path / LOCK, "wb")), path)
            for left_over in path.glob(f"*{checkpoint.PARTIAL}"):
                left_over.unlink()
        except OSError as error:
            checks.fail("checkpoint", folder, f"a folder that can be made and written to ({error.strerror})")
        yield Keeper(path, seconds)


def _lock(file: BinaryIO, folder: Path) -> None:
    """Keep other runs out until the file is closed or the process ends, where the system has such locks."""
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        checks.fail("checkpoint", f"{folder}, which another run is writing to", "another folder, or to wait for it")
    except (ImportError, OSError):
        pass


def _write(path: Path, content: Any) -> str:
    """Write containers of packed arrays, then their hash; return it."""
    with checkpoint.replacing(path) as file:
        file.write(FORM)
        hashing = _Hashing(file)
        pickle.dump(content, hashing, protocol=5)
        file.write(hashing.whole.digest())
    return hashing.whole.hexdigest()


class _Hashing:
    """A file for pickle that hashes what passes."""

    def __init__(self, file: BinaryIO):
        self.file, self.whole = file, hashlib.sha256()

    def write(self, data: Any) -> int:
        self.whole.update(data)
        return self.file.write(data)


def pack(x: Any) -> Packed:
    """Return an array, a number or a typed key as bytes: any dtype, and nothing that needs code to be read."""
    if isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        x = jax.random.key_data(x)
    array = np.asarray(x)
    return Packed(array.dtype.name, array.shape, np.ascontiguousarray(array).reshape(-1).view(np.uint8))


def unpack(x: Packed) -> np.ndarray:
    """Return the array, bit for bit."""
    return x.data.view(jnp.dtype(x.dtype)).reshape(x.shape)


def restore(leaves: list[Packed], like: Any, key: jax.Array) -> Any:
    """Return the tree of `like` (abstract) with a checkpoint's leaves, copied to the device; ValueError if they differ.

    key: of the run, whose kind keys in the state have.
    """
    wanted, structure = jax.tree_util.tree_flatten_with_path(like)
    if len(leaves) != len(wanted):
        checks.fail("checkpoint", f"a state of {len(leaves)} arrays", f"{len(wanted)}, as this run has")
    out = []
    for leaf, (path, y) in zip(leaves, wanted, strict=True):
        x, is_key = jnp.array(unpack(leaf)), jnp.issubdtype(y.dtype, jax.dtypes.prng_key)
        x = jax.random.wrap_key_data(x, impl=jax.random.key_impl(key)) if is_key else x
        if (x.shape, x.dtype) != (y.shape, y.dtype):
            name = f"checkpoint: state{jax.tree_util.keystr(path)}"
            checks.fail(name, f"{x.dtype}{list(x.shape)}", f"{y.dtype}{list(y.shape)}, as this run has")
        out.append(x)
    return jax.tree.unflatten(structure, out)
