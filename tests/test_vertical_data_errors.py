"""What party data refuse, and the words they do it with."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from jaxfed.vertical import blocks
from jaxfed.vertical.alignment import align
from jaxfed.vertical.data import PartyData
from jaxfed.vertical.splitting import overlap, split

X, Y = np.arange(12.0).reshape(4, 3), [0, 1, 0, 1]
NAN = np.where(X == 7, np.nan, X)
MASK = np.ones((4, 2), bool)


def frame(x):
    return pd.DataFrame(x, columns=[f"c{j}" for j in range(x.shape[1])])


def test_blocks_beyond_the_limit_of_memory_are_refused():
    with pytest.raises(ValueError, match=r"x: got blocks of 4.02e-06 GiB \(2 parties, 30 rows, 9 columns"):
        blocks.dense(np.zeros((30, 11)), (2, 9), max_bytes=1000)
    ones = sparse.csr_matrix(np.ones((4, 6)))
    with pytest.raises(ValueError, match=r"padded to the 5 non-zeros of row 0 at party 1\), wanted at most .*cut the"):
        blocks.sparse(ones, (1, 5), max_bytes=4 * 2 * 5 * 12 - 1)
    assert blocks.sparse(ones, (1, 5), max_bytes=4 * 2 * 5 * 12).values.shape == (4, 2, 5)


SPLITS = {
    "shape": ((X[0], Y, 1), r"x: got shape \(3,\) of float64, wanted numbers of shape .* \(x\[:, None\]"),
    "ragged": (([[1, 2], [3]], [0, 1], 1), "x: got rows of unequal lengths"),
    "object": ((X.astype(object), Y, 1), r"x: got shape \(4, 3\) of object"),
    "complex": ((sparse.csr_matrix(X + 1j), Y, 1), "x: got a sparse array of complex128"),
    "no rows": ((X[:0], [], 1), "x: got no rows"),
    "no columns": ((X[:, :0], Y, 1), "x: got no columns"),
    "nan": ((NAN, Y, 2), "x: got nan in row 2, column 1, wanted finite"),
    "nan, sparse": ((sparse.csr_matrix(NAN), Y, 2), "x: got nan in row 2, column 1, wanted finite"),
    "nan, frame": ((frame(NAN), Y, 2), "x: got nan in row 2, column 'c1', wanted finite"),
    "text in a frame": ((frame(X).assign(c1=["1", "2", "3", "4"]), Y, 2), r"x: got '1' in row 0, column 'c1'"),
    "names twice": ((frame(X).rename(columns={"c0": "c2"}), Y, 2), "x: got the column 'c2' twice"),
    "labels": ((X, Y[:3], 1), r"y: got shape \(3,\), wanted \(4,\), one label for each row"),
    "label nan": ((X, [0, 1, np.nan, 1], 1), "y: got nan in row 2, wanted finite"),
    "label missing": ((X, np.array(["a", None, "b", "a"], object), 1), "y: got None in row 1, wanted numbers, or"),
    "label type": ((X, np.array([1j] * 4), 1), "y: got labels of complex128, wanted numbers or strings"),
    "one class": ((X, [1, 1, 1, 1], 1), r"y: got one class \(1\), wanted two classes or real targets"),
    "three classes": ((X, list("abcd"), 1), r"y: got 4 classes \('a', 'b', 'c', ...\), wanted two classes or real"),
    "parties": ((X, Y), r"num_parties: got None, wanted a number of parties, or columns"),
    "too many parties": ((X, Y, 4), "num_parties: got 4, wanted at most 3, the columns of x"),
    "no parties": ((X, Y, 0), "num_parties: got 0, wanted a whole number of at least 1"),
    "active": ((X, Y, 2, 3), "num_active: got 3, wanted at most 2"),
    "none active": ((X, Y, 2, 0), "num_active: got 0"),
    "seed": ((X, Y, 2, 1, -1), "seed: got -1"),
}
OPTIONS = {
    "active far": ({"active": [0, 2]}, "active: got the party 2, wanted 0 to 1"),
    "active twice": ({"active": [1, 1]}, r"active: got \[1, 1\], wanted each party once"),
    "active none": ({"active": []}, r"active: got \[\], wanted a list"),
    "active number": ({"active": 1}, "active: got 1, wanted a list"),
    "active and number": ({"active": [0], "num_active": 2}, "num_active: got 2, wanted 1, as active has"),
    "scale": ({"scale": "standart"}, r"scale: got 'standart', .*did you mean 'standard'"),
    "present": ({"present": MASK.T}, r"present: got bool of shape \(2, 4\), wanted bool of shape \(4, 2\)"),
    "present type": ({"present": MASK.astype(int)}, "present: got int64 of shape"),
    "twice": ({"columns": [[0, 1], [1, 2]]}, r"columns\[1\]: got the column 1, which party 0 has, wanted each column"),
    "unknown": ({"columns": [[0, 1], [3]]}, r"columns\[1\]: got the column 3, wanted 0 to 2"),
    "negative": ({"columns": [[0, 1], [-1]]}, r"columns\[1\]: got the column -1, wanted 0 to 2"),
    "name": ({"columns": [[0, 1], ["c2"]]}, r"columns\[1\]: got the column 'c2', wanted 0 to 2"),
    "unused": ({"columns": [[0], [2]]}, r"columns: got no party for column 1 \(1 such columns\), .*allow_unused"),
    "idle": ({"columns": [[0, 1, 2], []]}, r"columns\[1\]: got no columns, .*would do nothing"),
    "all unused": ({"columns": [[], []], "allow_unused": True, "active": [0, 1]}, "columns: got no columns"),
    "flat": ({"columns": [0, 1, 2]}, r"columns\[0\]: got 0, wanted a list of columns"),
    "empty": ({"columns": []}, r"columns: got \[\], wanted a list of columns for each party"),
    "count": ({"columns": [[0], [1], [2]]}, "num_parties: got 2, wanted 3, as columns has"),
}
CALLS = {
    "none": (([], Y), {}, "blocks: got an empty list, wanted one entry for each party"),
    "array": ((X, Y), {}, "blocks: got ndarray, wanted a list"),
    "rows": (([X, X[:3]], Y), {}, r"blocks: got 3, 4 rows, wanted equal numbers of rows, or ids=.*align by"),
    "nothing": (([None, None], Y), {"active": [0, 1]}, "blocks: got no rows"),
    "idle": (([X, None], Y), {}, r"blocks\[1\]: got no columns, .*would do nothing"),
    "no columns": (([X[:, :0]], Y), {}, "blocks: got no columns"),
    "vector": (([X, X[0]], Y), {}, r"blocks\[1\]: got shape \(3,\) of float64, wanted"),
    "nan": (([X, NAN], Y), {}, r"blocks\[1\]: got nan in row 2, column 1, wanted finite"),
    "nan by name": (([frame(X), frame(NAN)], Y), {}, r"blocks\[1\]: got nan in row 2, column 'c1', wanted finite"),
    "nan by id": (([X, NAN], Y), {"ids": [[1, 2, 3, 4], [4, 3, 2, 1]]}, r"blocks\[1\]: got nan in row 2, column 1"),
    "labels": (([X[:2], X], Y), {"ids": [[1, 2], [4, 3, 2, 1]]}, r"y: got shape \(4,\), wanted \(2,\)"),
    "ids": (([X, X], Y), {"ids": [[1, 2, 3, 4]]}, "ids: got 1 entries, wanted 2, one for each party"),
    "few ids": (([X, X], Y), {"ids": [[1, 2, 3, 4], [1, 2]]}, r"ids\[1\]: got 2 ids, wanted 4, one for each row"),
    "how": (([X, X], Y), {"how": "outer"}, "how: got 'outer', wanted one of 'inner', 'left'"),
    "scale": (([sparse.csr_matrix(X)], Y), {"scale": "minmax"}, "scale: got 'minmax' for a sparse x, wanted 'maxabs'"),
}


@pytest.mark.parametrize(("args", "message"), SPLITS.values(), ids=SPLITS)
def test_refused_tables(args, message):
    with pytest.raises(ValueError, match=message):
        split(*args)


@pytest.mark.parametrize(("options", "message"), OPTIONS.values(), ids=OPTIONS)
def test_refused_options(options, message):
    with pytest.raises(ValueError, match=message):
        split(X, Y, **({"num_parties": None if "columns" in options and len(options["columns"]) < 3 else 2} | options))


@pytest.mark.parametrize(("args", "options", "message"), CALLS.values(), ids=CALLS)
def test_refused_blocks(args, options, message):
    with pytest.raises(ValueError, match=message):
        PartyData.from_blocks(*args, **options)


def test_refused_ids():
    for ids, message in (([[1, 2], [2, 2]], r"ids\[1\]: got the id 2 more than once, wanted each id once"),
                         ([["a", "a"], ["a"]], r"ids\[0\]: got the id 'a' more than once"),
                         ([[1, 2], ["1", "2"]], "ids: got strings from party 1 and numbers from party 0"),
                         ([[1, 2], [3]], r"ids: got no sample that all parties have, wanted at least one, or how"),
                         ([[1.5], [2.5]], r"ids\[0\]: got shape \(1,\) of float64, wanted one whole number or string"),
                         ([[2**63], [1]], r"ids\[0\]: got the id 9223372036854775808, wanted at most")):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            align(ids)


def test_refused_new_rows_and_parameters():
    x, y = np.arange(330.0).reshape(30, 11), np.arange(30) % 2
    party = split(x, y, 3)
    for call, message in (
        (lambda: party.like(x[:, :4]), "x: got 4 columns, wanted 11, as the split has"),
        (lambda: party.like(sparse.csr_matrix(x[:0])), "x: got no rows"),
        (lambda: party.like([x]), "blocks: got 1 entries, wanted 3"),
        (lambda: party.like([x, x, x]), r"blocks: got \(11, 11, 11\) columns, wanted \(4, 4, 3\), as the split has"),
        (lambda: party.like(x, ids=[[1]]), "ids: got ids for one table, wanted ids with a list of blocks"),
        (lambda: party.like(np.where(x == x[2, 3], np.inf, x)), "x: got inf in row 2, column 3"),
        (lambda: party.join(np.zeros(4)), r"w: got shape \(4,\), wanted \(3, 4\) or \(11,\)"),
        (lambda: party.split_params(np.zeros(4)), r"w: got shape \(4,\), wanted \(11,\), one number for each column"),
        (lambda: overlap(4, 2, 1.5), "fraction: got 1.5, wanted 0 to 1"),
        (lambda: overlap(4, 2, 0.5, always=[2]), "always: got the party 2, wanted 0 to 1"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
