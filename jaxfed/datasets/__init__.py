"""Data sets as NumPy arrays, by name: `load("mnist5k")`. Generators with a known truth are in `synthetic`."""

import difflib
from pathlib import Path

from jaxfed.datasets import bundled, credit, idx, libsvm, synthetic, tfds
from jaxfed.datasets.arrays import Arrays, check

NAMES = ("mnist5k", "digits", "breast_cancer", "diabetes", "credit", "tfds:NAME", "idx:FOLDER", "libsvm:FILE")

__all__ = ["NAMES", "Arrays", "check", "load", "synthetic", "tfds"]


def load(name: str, *, data_dir: str | Path | None = None, download: bool = False) -> Arrays:
    """A data set by name, checked.

    - "mnist5k", "digits": images; "breast_cancer", "diabetes": tables. They ship in installed packages (`bundled`).
    - "credit": the UCI credit card table of the VFB2 paper, from a file in `data_dir` (`credit`).
    - "tfds:NAME": any image or tabular set of TensorFlow Datasets, from a prepared directory `data_dir` (default: the
      environment variable JAXFED_DATA_DIR, else TFDS's default). Downloads only with `download=True` (`tfds`).
    - "idx:FOLDER": the four files of an MNIST-style folder (`idx`).
    - "libsvm:TRAIN" or "libsvm:TRAIN,TEST": LIBSVM text, plain, .gz or .bz2; wide ones stay sparse (`libsvm`).

    Raises ValueError for an unknown name, FileNotFoundError at once for a set that is not there.
    """
    kind, _, rest = name.partition(":")
    if kind == "tfds" and rest:
        return tfds.load_prepared(rest, data_dir, download)
    if kind == "idx" and rest:
        return idx.load_folder(rest)
    if kind == "libsvm" and rest:
        return libsvm.load_files(rest, data_dir)
    if name == "credit":
        return credit.load_credit(data_dir)
    for loader in (bundled.mnist5k, bundled.digits, bundled.breast_cancer, bundled.diabetes):
        if name == loader.__name__:
            return loader()
    nearest = difflib.get_close_matches(name, NAMES, n=1, cutoff=0.0)[0]
    raise ValueError(f"name: got {name!r}, wanted one of {', '.join(NAMES)}; the nearest is {nearest!r}")
