"""LIBSVM files, the credit data, the generators for vertical runs. Real files are read from JAXFED_DATA_DIR, if set."""

import bz2
import gzip
import os
from pathlib import Path

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse

from jaxfed import horizontal
from jaxfed.datasets import Arrays, check, libsvm, load, synthetic

DATA = Path(os.environ.get("JAXFED_DATA_DIR") or ".")
L2 = 1e-4


def text(labels, columns=5, seed=0, first=1):
    """LIBSVM lines with these labels, and the matrix that they say; the last column occurs in the first row."""
    rng = np.random.default_rng(seed)
    x = np.round(rng.normal(size=(len(labels), columns)) * (rng.random((len(labels), columns)) < 0.5), 3) + 0.0  # no -0
    x[0, 0] = x[0, -1] = 1
    lines = (" ".join([f"{y:g}"] + [f"{j + first}:{v:g}" for j, v in enumerate(row) if v])
             for y, row in zip(labels, x, strict=True))  # fmt: skip
    return ("\n".join(lines) + "\n").encode(), x.astype(np.float32)


@pytest.mark.parametrize(
    ("labels", "names", "classes"),
    [
        ([-1, 1, 1, -1], ("-1", "1"), [0, 1, 1, 0]),
        ([0, 1, 1, 0], ("0", "1"), [0, 1, 1, 0]),
        ([2, 1, 1, 2], ("1", "2"), [1, 0, 0, 1]),
        ([2, 4, 4, 2], ("2", "4"), [0, 1, 1, 0]),
        ([3, 1, 2, 3], ("1", "2", "3"), [2, 0, 1, 2]),
        ([0.5, 1, 1, 0], (), [0.5, 1, 1, 0]),
        ([1922, 2011, 1980, 2000], (), [1922, 2011, 1980, 2000]),
    ],
)
@pytest.mark.parametrize("first", [0, 1])
def test_libsvm_labels_and_targets(labels, names, classes, first, tmp_path):
    content, x = text(labels, first=first)
    (tmp_path / "a").write_bytes(content)
    (tmp_path / "b.gz").write_bytes(gzip.compress(content))
    (tmp_path / "c.bz2").write_bytes(bz2.compress(content))
    for pair in (f"{tmp_path / 'a'},b.gz", "b.gz,c.bz2"):
        data = load(f"libsvm:{pair}", data_dir=tmp_path)
        assert data.class_names == names and data.num_classes == len(names)
        assert data.x.dtype == np.float32 and data.y.dtype == (np.int32 if names else np.float32)
        for rows, y in ((data.x, data.y), (data.x_test, data.y_test)):
            np.testing.assert_array_equal(rows, x)
            np.testing.assert_array_equal(y, classes)


def test_libsvm_test_file_may_have_fewer_columns_or_more(tmp_path, monkeypatch):
    monkeypatch.setenv("JAXFED_DATA_DIR", str(tmp_path))
    for name, columns in (("narrow", 3), ("wide", 6)):
        (tmp_path / name).write_bytes(text([0, 1, 0], columns)[0])
    for pair in ("narrow,wide", "wide,narrow"):
        data = load(f"libsvm:{pair}")
        assert data.x.shape == data.x_test.shape == (3, 6)


def test_libsvm_alone_is_split_and_wide_stays_sparse(tmp_path):
    labels = [-1, 1] * 50
    content, x = text(labels, columns=1200)
    (tmp_path / "dense").write_bytes(content)
    rng = np.random.default_rng(0)
    lines = [f"{y} {rng.integers(1, 600)}:1 {rng.integers(600, 5000)}:0.5" for y in labels]
    (tmp_path / "wide").write_text("\n".join(lines) + "\n# the end\n")
    data = load("libsvm:dense", data_dir=tmp_path)
    assert isinstance(data.x, np.ndarray) and data.x.shape == (80, 1200) and data.x_test.shape == (20, 1200)
    assert data.y.mean() == data.y_test.mean() == 0.5
    where = {hash(row.tobytes()): y for row, y in zip(x, labels, strict=True)}
    both = zip(np.concatenate([data.x, data.x_test]), np.concatenate([data.y, data.y_test]), strict=True)
    assert sum(where.pop(hash(row.tobytes())) == 2 * y - 1 for row, y in both) == 100
    data = load("libsvm:wide", data_dir=tmp_path)
    assert isinstance(data.x, scipy.sparse.csr_array) and data.x.shape[0] == 80 and data.x_test.shape[0] == 20
    assert data.x.dtype == np.float32 and data.x.nnz + data.x_test.nnz == 200
    same = libsvm.load_files("wide", tmp_path, dense=True)
    np.testing.assert_array_equal(same.x, data.x.toarray())
    assert isinstance(libsvm.load_files("dense", tmp_path, dense=False).x, scipy.sparse.csr_array)
    with pytest.raises(ValueError, match="x: got a sparse matrix, wanted an array"):
        horizontal.split(data, horizontal.Iid(), 2)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1 2:x", "line 3: got '1 2:x', wanted 'label index:value"),
        ("one 2:1", "line 3: got 'one 2:1'"),
        ("1 2:1 2:1", "line 3: got '1 2:1 2:1'.*unique"),
        ("1,2 2:1", "line 3: got '1,2 2:1'"),
        ("1 -2:1", "line 3: got '1 -2:1'"),
        ("1 2", "line 3: got '1 2'"),
        ("1 2:nan", "x: got NaN or infinity in 1 rows"),
    ],
)
def test_libsvm_refuses_malformed_lines(line, message, tmp_path):
    (tmp_path / "bad").write_text(f"1 1:1\n0 2:1 # fine\n{line}\n1 5:1\n0 5:1\n")
    with pytest.raises(ValueError, match=message) as caught:
        load("libsvm:bad,bad", data_dir=tmp_path)
    assert "\n" not in str(caught.value)


def test_libsvm_refuses_files_that_are_not_there_or_not_packed(tmp_path):
    with pytest.raises(FileNotFoundError, match="libsvm: no file 'nowhere', here or in .*data_dir"):
        load("libsvm:nowhere", data_dir=tmp_path)
    (tmp_path / "plain.gz").write_bytes(text([0, 1])[0])
    with pytest.raises(ValueError, match=r"plain\.gz: Not a gzipped file"):
        load("libsvm:plain.gz", data_dir=tmp_path)
    with pytest.raises(ValueError, match="libsvm: got 3 files"):
        load("libsvm:plain.gz,plain.gz,plain.gz", data_dir=tmp_path)
    (tmp_path / "empty").write_text("")
    with pytest.raises(ValueError, match="libsvm:empty.*: got"):
        load("libsvm:empty,empty", data_dir=tmp_path)


def test_check_looks_into_sparse_rows():
    x = scipy.sparse.csr_array(np.array([[0, 1], [np.nan, 0], [0, 0]], np.float32))
    with pytest.raises(ValueError, match="x: got NaN or infinity in 1 rows, the first is row 1"):
        check(Arrays(x, np.zeros(3, np.int32), num_classes=2))


@pytest.mark.skipif(not (DATA / "a9a.gz").exists(), reason="needs a9a.gz in JAXFED_DATA_DIR")
def test_a9a():
    data = load("libsvm:a9a.gz,a9a.t.gz")
    assert len(data.x) == 32560 and len(data.x_test) == 16281 and data.class_names == ("0", "1")
    assert set(np.unique(data.x)) == {0, 1} and data.y.mean() == pytest.approx(0.241, abs=5e-4)


NEEDS_CREDIT = pytest.mark.skipif(
    not (DATA / "uci_credit_card.csv.gz").exists(), reason="needs uci_credit_card.csv.gz in JAXFED_DATA_DIR"
)


@pytest.fixture(scope="module")
def credit():
    return load("credit")


@NEEDS_CREDIT
def test_credit_is_prepared_as_published(credit):
    assert credit.x.shape == (24000, 90) and credit.x_test.shape == (6000, 90)
    assert credit.x.dtype == np.float32 and credit.y.dtype == np.int32 and credit.class_names == ("paid", "default")
    assert int(credit.y.sum() + credit.y_test.sum()) == 6636
    standard = [j for j in range(90) if len(np.unique(credit.x[:, j])) > 2]
    assert len(standard) == 14
    np.testing.assert_allclose(credit.x[:, standard].mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(credit.x[:, standard].std(axis=0), 1, atol=1e-5)
    others = np.delete(credit.x, standard, axis=1)
    assert set(np.unique(others)) == {0, 1}
    assert (others.sum(axis=1) - others[:, 0] == 8).all()  # sex, then eight categories with one value each


@pytest.mark.parametrize(("regularizer", "minimum"), [("l2", 0.43909565), ("nonconvex", 0.43886685)])
@NEEDS_CREDIT
def test_credit_has_the_known_minimum(credit, regularizer, minimum):
    x, y = credit.x.astype(np.float64), 2.0 * credit.y - 1

    def objective(w):
        z, square = y * (x @ w), w**2
        penalty, slope = (square, w) if regularizer == "l2" else (square / (1 + square), w / (1 + square) ** 2)
        value = np.logaddexp(0, -z).mean() + L2 / 2 * penalty.sum()
        return value, -(x.T @ (y / (1 + np.exp(z)))) / len(y) + L2 * slope

    def hessian(w):
        s, square = 1 / (1 + np.exp(-(x @ w))), w**2
        bend = np.ones(90) if regularizer == "l2" else (1 - 3 * square) / (1 + square) ** 3
        return (x.T * (s * (1 - s) / len(y))) @ x + L2 * np.diag(bend)

    newton = {"method": "trust-exact", "hess": hessian, "options": {"gtol": 1e-8}}
    found = scipy.optimize.minimize(objective, np.zeros(90), jac=True, **newton)
    assert found.success and found.fun == pytest.approx(minimum, abs=1e-7)


def test_credit_that_is_not_there_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.delenv("JAXFED_DATA_DIR", raising=False)
    for folder in (None, tmp_path):
        with pytest.raises(FileNotFoundError, match="credit: no file uci_credit_card.csv.gz in .*pass data_dir"):
            load("credit", data_dir=folder)
    (tmp_path / "uci_credit_card.csv.gz").write_bytes(gzip.compress(b"ID,X1,Y\n1,2,0\n2,3,1\n"))
    with pytest.raises(ValueError, match=r"got 2 rows under .*wanted 30000 under ID,X1"):
        load("credit", data_dir=tmp_path)


def test_credit_like():
    data, again, other = (synthetic.credit_like(n=20000, d=40, seed=seed) for seed in (1, 1, 2))
    assert data.x.shape == (20000, 40) and data.x.dtype == np.float32 and data.y.dtype == np.int32
    np.testing.assert_array_equal(data.x, again.x)
    np.testing.assert_array_equal(data.y, again.y)
    assert (data.x != other.x).any()
    assert data.y.mean() == pytest.approx(0.22, abs=0.01)
    np.testing.assert_allclose(data.x[:, :6].std(axis=0), 1, atol=0.03)
    assert set(np.unique(data.x[:, 6:])) == {0, 1} and (data.x[:, 6:15].sum(axis=1) == 1).all()
    for d in (1, 7, 13):
        assert synthetic.credit_like(n=50, d=d, seed=0).x.shape == (50, d)


def test_news20_like():
    data, again = (synthetic.news20_like(n=1500, d=40000, nnz=60, seed=3) for _ in range(2))
    assert isinstance(data.x, scipy.sparse.csr_array) and data.x.dtype == np.float32
    assert data.x.shape == (1500, 40000) and data.x.has_canonical_format and data.x.indices.dtype == np.int32
    assert (data.x != again.x).nnz == 0 and (data.y == again.y).all()
    length, popularity = np.diff(data.x.indptr), np.sort(np.bincount(data.x.indices, minlength=40000))
    assert length.mean() == pytest.approx(60, rel=0.02) and length.min() > 30
    assert popularity[-400:].sum() > 0.3 * data.x.nnz  # a hundredth of the columns
    assert data.x.data.min() > 0
    np.testing.assert_allclose(np.sqrt((data.x**2).sum(axis=1)), 1, atol=1e-5)
    assert data.y.mean() == pytest.approx(0.5, abs=0.05)
    length = np.diff(synthetic.news20_like(n=1500, d=40000, nnz=60, spread=0.8, seed=3).x.indptr)
    assert length.mean() == pytest.approx(60, rel=0.1) and length.max() > 300


@pytest.mark.parametrize(
    ("generator", "options", "message"),
    [
        (synthetic.credit_like, {"n": 1}, "n: got 1"),
        (synthetic.credit_like, {"d": 0}, "d: got 0"),
        (synthetic.news20_like, {"d": 100, "nnz": 60}, "nnz: got 60, wanted at most half of the 100 columns"),
        (synthetic.news20_like, {"spread": -1}, "spread: got -1"),
        (synthetic.news20_like, {"noise": 0.7}, "noise: got 0.7, wanted 0 to 0.5"),
    ],
)
def test_generators_refuse(generator, options, message):
    with pytest.raises(ValueError, match=message):
        generator(**options, seed=0)
