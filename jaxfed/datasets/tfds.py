"""TensorFlow Datasets without TensorFlow: the only importer of `tensorflow_datasets`.

Sets are read from a prepared directory in array_record format, the one that needs no TensorFlow and has random access.
Preparing most official sets from their raw downloads does need TensorFlow, once; `prepare_arrays` and `prepare_idx`
do not.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np

from jaxfed.datasets import idx
from jaxfed.datasets.arrays import Arrays, check, check_rows


def load_prepared(name: str, data_dir: str | Path | None = None, download: bool = False) -> Arrays:
    """The splits "train" and "test" (None where there is no such split) of a TFDS data set, as NumPy arrays.

    `name` is TFDS's own: "mnist", "emnist/digits", "mnist:3.0.1". Images of uint8 stay as they are, other features
    become float32; scalar features of a table are joined in order of name. Features and label are `supervised_keys`,
    else the fields "image" or "features", and "label". `data_dir` is by default the environment variable
    JAXFED_DATA_DIR, else TFDS's own default.

    Raises FileNotFoundError at once where the set is not prepared, unless `download`; ValueError for a set in another
    file format, with text features, or with rows of different shapes.
    """
    import tensorflow_datasets as tfds
    from tensorflow_datasets.core import read_only_builder

    data_dir = data_dir or os.environ.get("JAXFED_DATA_DIR") or None
    try:  # the prepared files describe themselves: the builder's code, which may import TensorFlow, is not needed
        builder = read_only_builder.builder_from_files(name, data_dir=data_dir)
    except tfds.core.DatasetNotFoundError:
        if not download:
            raise FileNotFoundError(
                f"TFDS {name!r} is not prepared under {data_dir or 'the default TFDS directory'}: pass data_dir (or "
                "set JAXFED_DATA_DIR), pass download=True, or see jaxfed.datasets.tfds.prepare_arrays and prepare_idx"
            ) from None
        builder = _download(name, data_dir)
    if builder.info.file_format is not tfds.core.FileFormat.ARRAY_RECORD:
        raise ValueError(f"TFDS {name!r}: got {builder.info.file_format}, wanted array_record files")
    if "train" not in builder.info.splits:
        raise ValueError(f"TFDS {name!r}: got {sorted(builder.info.splits)}, wanted a split 'train'")
    features: Any = builder.info.features
    x_key, y_key = _keys(name, builder.info.supervised_keys, features)
    x, y = _read(name, builder, "train", x_key, y_key)
    x_test, y_test = _read(name, builder, "test", x_key, y_key) if "test" in builder.info.splits else (None, None)
    class_names = tuple(features[y_key].names) if isinstance(features[y_key], tfds.features.ClassLabel) else ()
    num_classes = len(class_names)
    if not class_names and y.dtype.kind == "i":
        num_classes = 1 + int(max(y.max(), y.max() if y_test is None else y_test.max()))
    return check(Arrays(x, y, x_test, y_test, f"tfds:{name}", num_classes, class_names))


def prepare_arrays(
    splits: dict[str, tuple[np.ndarray, np.ndarray]], num_classes: int, data_dir: str | Path, name: str
) -> None:
    """Write arrays {"train": (x [n, ...], y [n]), ...} as a real TFDS data set in array_record format, order kept.

    `name` is in snake case; num_classes=0 means real targets. Needs neither TensorFlow nor a network. Raises ValueError
    for rows that do not match, and where `name` is prepared there already.
    """
    import tensorflow_datasets as tfds

    if not splits:
        raise ValueError("splits: got none, wanted at least one split")
    for split, (x, y) in splits.items():
        check_rows(f"splits[{split!r}]: x", x, f"splits[{split!r}]: y", y, num_classes)
    first = next(iter(splits.values()))[0]
    image = first.ndim > 2
    x_key, dataset_name = "image" if image else "features", name

    class ArrayBuilder(tfds.core.GeneratorBasedBuilder, skip_registration=True):
        """The arrays as a TFDS builder."""

        name = dataset_name
        VERSION = tfds.core.Version("1.0.0")
        pkg_dir_path: Any = Path(__file__).parent  # TFDS would look it up in a package that need not be there

        def _info(self):
            features: Any = {
                x_key: tfds.features.Tensor(shape=first.shape[1:], dtype=first.dtype.type),
                "label": tfds.features.ClassLabel(num_classes=num_classes)
                if num_classes
                else tfds.features.Scalar(np.float32),
            }
            return tfds.core.DatasetInfo(
                builder=self,
                disable_shuffling=True,
                features=tfds.features.FeaturesDict(features),
                supervised_keys=(x_key, "label"),
            )

        def _split_generators(self, dl_manager):
            return {split: self._generate_examples(*rows) for split, rows in splits.items()}

        def _generate_examples(self, x, y):
            for i, (row, label) in enumerate(zip(x, y, strict=True)):
                yield i, {x_key: row, "label": int(label) if num_classes else np.float32(label)}

    _prepare(ArrayBuilder(data_dir=str(data_dir), file_format="array_record"))


def prepare_idx(name: str, folder: str | Path, data_dir: str | Path) -> None:
    """Prepare the official "mnist" or "fashion_mnist" from the four IDX files in `folder`: no TensorFlow, no network.

    The result has the official version and features, so that `load_prepared` and TFDS itself find it by name. Raises
    ValueError where it is prepared there already, FileNotFoundError for a missing file.
    """
    import tensorflow_datasets as tfds
    from PIL import Image

    files = {"train": idx.read_split(folder, "train"), "test": idx.read_split(folder, "t10k")}
    for split, (images, labels) in files.items():
        check_rows(f"{folder}: {split} images", images, f"{folder}: {split} labels", labels, num_classes=10)
    dataset_name = name
    official: Any = tfds.builder_cls(name)

    class Local(official, skip_registration=True):  # pyright: ignore[reportGeneralTypeIssues, reportCallIssue]
        """The official builder, fed from local files; given as images, they are encoded without TensorFlow."""

        name = dataset_name

        def _split_generators(self, dl_manager):
            return {split: self._generate_local(*rows) for split, rows in files.items()}

        def _generate_local(self, images, labels):
            for i, (image, label) in enumerate(zip(images, labels, strict=True)):
                yield i, {"image": Image.fromarray(image), "label": int(label)}

    _prepare(Local(data_dir=str(data_dir), file_format="array_record"))


def _prepare(builder) -> None:
    if builder.is_prepared():  # TFDS would keep the old rows and say nothing
        raise ValueError(f"name: {builder.name!r} is already prepared in {builder.data_dir}")
    builder.download_and_prepare()


def _download(name: str, data_dir: str | Path | None):
    """The prepared builder, after TFDS has downloaded and prepared the set; the one place that needs a network."""
    import tensorflow_datasets as tfds

    try:
        builder = tfds.builder(name, data_dir=data_dir, file_format="array_record")
        builder.download_and_prepare()
    except ModuleNotFoundError as error:
        if "'tensorflow'" not in str(error):  # TFDS raises it anew, without the attribute `name`
            raise
        raise ModuleNotFoundError(
            f"TFDS {name!r} needs TensorFlow to be prepared, though not to be read: pip install 'jaxfed[tf]'",
            name="tensorflow",
        ) from error
    return builder


def _keys(name: str, supervised_keys: Any, features: Any) -> tuple[str, str]:
    """Names of the fields that hold the features and the label."""
    keys = supervised_keys or (next((k for k in ("image", "features") if k in features), ""), "label")
    if len(keys) != 2 or not all(isinstance(k, str) and k in features for k in keys):
        raise ValueError(f"TFDS {name!r}: got {sorted(features)}, wanted one field of features and one label")
    return keys[0], keys[1]


def _read(name: str, builder, split: str, x_key: str, y_key: str) -> tuple[np.ndarray, np.ndarray]:
    """Features [n, ...] and labels [n] of one split, read in one call."""
    source = builder.as_data_source(split)
    records = source.__getitems__(list(range(len(source))))
    rows = [r[x_key] for r in records]
    if isinstance(rows[0], dict):
        rows = [[row[field] for field in sorted(row)] for row in rows]
    shapes = {np.shape(row) for row in rows}
    if len(shapes) > 1:
        raise ValueError(f"TFDS {name!r}: {x_key}: got {len(shapes)} shapes, {sorted(shapes)[:3]}, wanted one")
    x, y = np.asarray(rows), np.asarray([r[y_key] for r in records])
    if x.dtype.kind not in "iufb" or y.dtype.kind not in "iufb":
        raise ValueError(f"TFDS {name!r}: {x_key} and {y_key}: got {x.dtype} and {y.dtype}, wanted numbers")
    x = x.astype(np.uint8 if x.dtype == np.uint8 else np.float32)
    return x[:, None] if x.ndim == 1 else x, y.astype(np.float32 if y.dtype.kind == "f" else np.int32)
