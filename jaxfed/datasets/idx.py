"""IDX files, the format of MNIST, Fashion-MNIST and EMNIST, plain or gzipped."""

import gzip
from pathlib import Path

import numpy as np

from jaxfed.datasets.arrays import Arrays, check

_DTYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def read(path: str | Path) -> np.ndarray:
    """The array in one IDX file: 0, 0, type, number of dimensions, big-endian int32 sizes, then the values.

    Raises ValueError for a file that is not IDX or has another length than its header says.
    """
    content = Path(path).read_bytes()
    if content[:2] == b"\x1f\x8b":
        content = gzip.decompress(content)
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in _DTYPES:
        raise ValueError(f"{path}: not an IDX file, it starts with {content[:4].hex(' ') or 'nothing'}")
    dtype, ndim = np.dtype(_DTYPES[content[2]]), content[3]
    start = 4 + 4 * ndim
    if len(content) < start:
        raise ValueError(f"{path}: got a file of {len(content)} bytes, wanted a header of {start} bytes")
    shape = tuple(int(size) for size in np.frombuffer(content, ">i4", ndim, 4))
    wanted = start + dtype.itemsize * int(np.prod(shape, dtype=np.int64))
    if len(content) != wanted:
        raise ValueError(f"{path}: got {len(content)} bytes, wanted {wanted} for shape {shape}")
    return np.frombuffer(content, dtype, offset=start).reshape(shape).astype(dtype.newbyteorder("="))


def read_split(folder: str | Path, which: str) -> tuple[np.ndarray, np.ndarray]:
    """Images [n, height, width] and labels [n] of `which` ("train" or "t10k"), from the file names of MNIST."""
    return read(_find(folder, f"{which}-images-idx3-ubyte")), read(_find(folder, f"{which}-labels-idx1-ubyte"))


def load_folder(folder: str | Path) -> Arrays:
    """The four files of an MNIST-style folder: x uint8 [n, height, width, 1], y int32, classes counted from the labels.

    Raises FileNotFoundError that names the missing file, ValueError for broken ones.
    """
    (x, y), (x_test, y_test) = read_split(folder, "train"), read_split(folder, "t10k")
    num_classes = 1 + int(max(y.max(initial=0), y_test.max(initial=0)))
    y, y_test = y.astype(np.int32), y_test.astype(np.int32)
    return check(Arrays(x[..., None], y, x_test[..., None], y_test, f"idx:{folder}", num_classes))


def _find(folder: str | Path, name: str) -> Path:
    for path in (Path(folder) / name, Path(folder) / f"{name}.gz"):
        if path.exists():
            return path
    raise FileNotFoundError(f"{folder}: no file {name} or {name}.gz")
