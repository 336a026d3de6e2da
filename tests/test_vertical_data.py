"""Party data against plain NumPy on the joined matrix: splits, blocks, scaling, alignment, and what is refused."""

import time

import jax
import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from jaxfed.vertical.alignment import align
from jaxfed.vertical.blocks import Dense, Sparse
from jaxfed.vertical.data import PartyData
from jaxfed.vertical.splitting import overlap, split

N, D = 30, 11


@pytest.fixture
def rng():
    return np.random.default_rng(7)


@pytest.fixture
def x(rng):
    """Features with many zeros, an empty row and an empty column."""
    x = rng.normal(size=(N, D)) * (rng.random((N, D)) < 0.6)
    x[4], x[:, 6] = 0, 0
    return x


@pytest.fixture
def y(rng):
    return np.arange(N) % 2


def same(a, b):
    """Two pytrees with equal structure (static fields too) and equal leaves."""
    assert jax.tree.structure(a) == jax.tree.structure(b)
    jax.tree.map(np.testing.assert_array_equal, a, b)


def rows_of(party):
    """The features [n, width + intercept] in the user's order, rebuilt entry by entry from the blocks."""
    out = np.zeros((party.num_rows, party.width + party.intercept))
    columns = np.asarray(party.columns)
    start = 0
    for p, size in enumerate(party.sizes):
        if isinstance(party.blocks, Dense):
            out[:, columns[start : start + size]] = party.blocks.x[:, p, :size]
            assert not np.any(party.blocks.x[:, p, size:])
        else:
            for i in range(party.num_rows):
                for j, value in zip(party.blocks.indices[i, p], party.blocks.values[i, p], strict=True):
                    if value:
                        assert start <= j < start + size
                        out[i, columns[j]] += value
        start += size
    return out


PLANS = {
    "random": {"num_parties": 4, "num_active": 2},
    "one party": {"num_parties": 1},
    "a column each": {"num_parties": D, "num_active": D},
    "listed": {"columns": [[3], [], [0, 1, 2, 10, 4], [9, 8, 7, 6, 5]], "active": [1, 2]},
    "intercept": {"num_parties": 3, "active": [2, 0], "intercept": True},
    "labels only, intercept": {"columns": [[], range(D)], "intercept": True},
}


@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_scores_products_and_pull_are_those_of_the_joined_matrix(x64, rng, x, y, plan, form):
    party = split(x if form == "dense" else sparse.csr_array(x), y, **plan)
    assert isinstance(party.blocks, Dense if form == "dense" else Sparse)
    full = np.column_stack([x, np.ones(N)]) if party.intercept else x
    np.testing.assert_array_equal(rows_of(party), full)
    w, theta = rng.normal(size=full.shape[1]), rng.normal(size=N)
    own = party.split_params(w)
    assert own.shape == party.blocks.zeros().shape == party.blocks.mask().shape
    np.testing.assert_allclose(party.blocks.scores(own), full @ w, atol=1e-12)
    np.testing.assert_allclose(party.join(party.blocks.pull(theta)), full.T @ theta, atol=1e-12)
    products = np.asarray(party.blocks.products(own))
    ends = np.cumsum((0, *party.sizes))
    for p, (a, b) in enumerate(zip(ends[:-1], ends[1:], strict=True)):
        mine = np.asarray(party.columns)[a:b]
        np.testing.assert_allclose(products[p], full[:, mine] @ w[mine], atol=1e-12)
    some = np.arange(party.num_parties) % 2 == 0
    np.testing.assert_allclose(party.blocks.scores(own, some), products[some].sum(axis=0), atol=1e-12)
    assert party.num_rows == N and party.num_features == full.shape[1]


@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_join_and_split_params_are_inverse(rng, x, y, plan, form):
    party = split(x if form == "dense" else sparse.coo_matrix(x), y, **plan)
    w = rng.normal(size=party.width + party.intercept)
    np.testing.assert_array_equal(party.join(party.split_params(w)), w)
    np.testing.assert_array_equal(party.join(w[np.asarray(party.columns)]), w)
    assert party.join(party.blocks.zeros()).dtype == np.float32
    joined = party.joined()
    np.testing.assert_array_equal(joined.columns, np.arange(len(w)))
    np.testing.assert_array_equal(rows_of(joined), rows_of(party))
    np.testing.assert_array_equal(joined.join(joined.split_params(w)), w)
    assert joined.active == (0,) and joined.sizes == (len(w),) and joined.classes == party.classes
    same(joined.like(x if form == "dense" else sparse.csr_matrix(x), y), joined)


def test_random_parts_are_nearly_equal_sorted_and_seeded(x, y):
    party = split(x, y, 4, seed=3)
    assert max(party.sizes) - min(party.sizes) == 1 and sum(party.sizes) == D
    parts = np.split(party.columns, np.cumsum(party.sizes)[:-1])
    assert all((np.diff(part) > 0).all() for part in parts)
    np.testing.assert_array_equal(np.sort(party.columns), np.arange(D))
    same(party, split(x, y, 4, seed=3))
    assert (party.columns != split(x, y, 4, seed=4).columns).any()
    assert party.columns.dtype == np.int32 and party.active == (0,)


def test_dtypes_are_kept_or_widened_and_nothing_is_written_to(y):
    for given, kept in (("f2", "f4"), ("f4", "f4"), ("f8", "f8"), ("i1", "f4"), ("i8", "f4"), ("?", "f4")):
        x = np.eye(N, 4).astype(given)
        assert split(x, y, 2).blocks.x.dtype == split(x, y, 2, scale="standard").blocks.x.dtype == kept
        if given != "f2":  # SciPy has no sparse half floats
            assert split(sparse.csr_matrix(x), y, 2).blocks.values.dtype == kept
    # 2 (0, 0), 3 (0, 1) in two entries out of order, and an explicit zero
    raw = sparse.csr_matrix((np.array([1.0, 2, 2, 0]), np.array([1, 0, 1, 1]), np.array([0, 3, 4])), shape=(2, 2))
    before = raw.data.copy(), raw.indices.copy()
    np.testing.assert_array_equal(rows_of(split(raw, [0, 1], 2, scale="maxabs")), [[1, 1], [0, 0]])
    np.testing.assert_array_equal((raw.data, raw.indices), before)


def test_labels(x):
    def read(y):
        party = split(x[: len(y)], y, 2)
        return party.y.tolist(), party.classes

    assert read([2, 1, 2]) == ([1, -1, 1], (1, 2))
    assert read([-1.0, 1.0, 1.0]) == ([-1, 1, 1], (-1.0, 1.0))
    assert read([True, False]) == ([1, -1], (False, True))
    assert read(["no", "yes", "no"]) == ([-1, 1, -1], ("no", "yes"))
    assert read(pd.Series(["no", "yes", "no"])) == ([-1, 1, -1], ("no", "yes"))
    assert read(np.array(["b", "a"], object)) == ([1, -1], ("a", "b"))
    assert read([0.5, 1.5, 7]) == ([0.5, 1.5, 7], ())
    assert read([1, 2, 3]) == ([1, 2, 3], ())
    assert read([0.25]) == ([0.25], ())  # one row


def test_new_labels_are_read_under_the_classes_of_the_split(x, y):
    party = split(x, np.where(y, "yes", "no"), 3)
    np.testing.assert_array_equal(party.like(x[:3], ["yes", "yes", "yes"]).y, [1, 1, 1])
    assert party.like(x[:3]).y is None
    for wrong, message in ((["yes", "maybe", "no"], r"y: got the label 'maybe' in row 1, wanted 'no' or 'yes'"),
                           ([0, 1, 1], r"y: got the label 0 in row 0, wanted 'no' or 'yes'"),
                           (["no"], r"y: got shape \(1,\), wanted \(3,\)")):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            party.like(x[:3], wrong)
    with pytest.raises(ValueError, match=r"y: got the label 'no', wanted real targets"):
        split(x, np.arange(N), 3).like(x[:3], ["no"] * 3)
    np.testing.assert_array_equal(split(x, np.arange(N), 3).like(x[:3], [5, 5, 6]).y, [5, 5, 6])


def scaled(x, kind, new):
    """New rows scaled by statistics of x, written out."""
    x = x.astype(float)
    shift = {"standard": x.mean(0), "minmax": x.min(0), "maxabs": 0 * x[0]}[kind]
    scale = {"standard": x.std(0), "minmax": np.ptp(x, axis=0), "maxabs": abs(x).max(0)}[kind]
    constant = np.ptp(x, axis=0) == 0 if kind != "maxabs" else scale == 0
    return (new - shift) / np.where(constant, 1, scale)


@pytest.mark.parametrize("kind", ["standard", "minmax", "maxabs"])
def test_scaling_takes_the_statistics_of_the_training_rows(rng, x, y, kind):
    x[:, 2] = 0.1  # the deviation of a constant rounds to something above 0
    new = rng.normal(size=(5, D))
    party = split(x, y, 3, scale=kind, intercept=True)
    np.testing.assert_allclose(rows_of(party), np.column_stack([scaled(x, kind, x), np.ones(N)]), atol=1e-12)
    np.testing.assert_allclose(rows_of(party.like(new)), np.column_stack([scaled(x, kind, new), np.ones(5)]))
    same(party.like(x, y), party)
    np.testing.assert_array_equal(rows_of(party.like(x[:1])), rows_of(party)[:1])
    if kind == "maxabs":
        wide = split(sparse.csc_matrix(x), y, 3, scale=kind, intercept=True)
        np.testing.assert_allclose(rows_of(wide), rows_of(party), atol=1e-15)
        same(wide.like(sparse.csr_matrix(x), y), wide)
        assert wide.like(new).blocks.sizes == wide.sizes


def test_large_integers_are_scaled_before_they_are_narrowed(y):
    x = 2**40 + np.arange(N)[:, None] * np.array([[1, 2]])
    np.testing.assert_allclose(rows_of(split(x, y, 2, scale="standard")), scaled(x, "standard", x), rtol=1e-6)


def test_parts_that_a_party_lacks_are_zero_after_scaling_and_out_of_its_statistics(x, y):
    present = overlap(N, 3, 0.5, seed=1, always=[1])
    assert present[:, 1].all() and 0 < present[:, 0].mean() < 1
    parts = [[0, 3, 5], [1, 2, 4], [6, 7, 8, 9, 10]]
    full = x.copy()
    for p, part in enumerate(parts):
        full[np.ix_(~present[:, p], part)] = np.nan
    party = split(full, y, columns=parts, active=[1, 0], scale="standard", present=present, intercept=True)
    want = np.column_stack([x, np.ones(N)])
    for p, part in enumerate(parts):
        have = np.flatnonzero(present[:, p])
        want[:, part] = scaled(x[np.ix_(have, part)], "standard", x[:, part])
        want[np.ix_(~present[:, p], part)] = 0
    np.testing.assert_allclose(rows_of(party), want, atol=1e-12)
    np.testing.assert_array_equal(party.present, present.T)
    same(party.like(full, y, present=present), party)
    assert party.like(x, y).present is None and party.joined().present is None
    np.testing.assert_allclose(rows_of(party.joined()), want, atol=1e-12)

    wide = split(sparse.csr_matrix(full), y, columns=parts, active=[0, 1], present=present, intercept=True)
    want = np.column_stack([np.nan_to_num(full), present[:, 0]])  # a party's own intercept goes with its features
    np.testing.assert_array_equal(rows_of(wide), want)
    np.testing.assert_array_equal(wide.present, party.present)
    assert split(x, y, 3, present=np.ones((N, 3), bool)).present is None
    nobody = split(x, y, 2, scale="standard", present=np.zeros((N, 2), bool))
    assert not rows_of(nobody).any()


def test_blocks_side_by_side_equal_the_split(x, y):
    parts = [x[:, :3], x[:, 3:3], x[:, 3:]]
    plan = {"active": [1, 0], "scale": "maxabs", "intercept": True}
    party = split(x, y, columns=[[0, 1, 2], [], range(3, D)], **plan)
    same(PartyData.from_blocks(parts, y, **plan), party)
    same(PartyData.from_blocks([parts[0], None, parts[2]], y, **plan), party)
    same(party.like(parts, y), party)
    wide = PartyData.from_blocks([parts[0], None, sparse.csr_array(parts[2])], y, **plan)
    assert isinstance(wide.blocks, Sparse)
    np.testing.assert_array_equal(rows_of(wide), rows_of(party))
    same(wide.like([parts[0], None, sparse.csr_array(parts[2])], y), wide)
    one = PartyData.from_blocks([np.ones((1, 1))], [0.5])
    assert (one.num_rows, one.num_parties, one.num_features) == (1, 1, 1)


def frame(x):
    return pd.DataFrame(x, columns=[f"c{j}" for j in range(x.shape[1])])


def test_frames_are_read_by_name(x, y):
    df = frame(x)
    names = [["c3", "c0"], [f"c{j}" for j in range(D) if j not in (0, 3)]]
    party = split(df, y, columns=names, scale="standard")
    numbers = [[0, 3], [j for j in range(D) if j not in (0, 3)]]
    same(party, split(df, y, columns=numbers, scale="standard"))
    same(party.replace(names=None), split(x, y, columns=numbers, scale="standard"))
    shuffled = df[df.columns[::-1]]
    same(party.like(shuffled, y), party)
    same(party.like(x, y), party)
    same(party.like([shuffled[names[0]], shuffled[names[1]]], y), party)
    for wrong, message in ((df.drop(columns="c4"), "no column 'c4'"),
                           (df.assign(extra=1), "the unknown column 'extra'"),
                           (pd.concat([df, df[["c2"]]], axis=1), "twice the column 'c2'")):  # fmt: skip
        with pytest.raises(ValueError, match=rf"x: got {message}, wanted each of the 11 columns of the split, once"):
            party.like(wrong)
    with pytest.raises(ValueError, match=r"blocks\[1\]: got no column"):
        party.like([df[names[0]], df[names[0]]])

    blocks = PartyData.from_blocks([df[["c0", "c1"]], df[["c1", "c2"]]], y)
    assert blocks.names == ("c0", "c1", "c1", "c2")
    same(blocks.like([df[["c1", "c0"]], df[["c2", "c1"]]], y), blocks)
    assert PartyData.from_blocks([df[["c0"]], x[:, 1:2]], y).names is None
    mixed = pd.DataFrame({7: [1.5, 2.5], 3: [True, False], 5: [1, 2]})
    party = split(mixed, [0, 1], columns=[[3], [5, 7]])
    assert party.names == (7, 3, 5)
    np.testing.assert_array_equal(rows_of(party), [[1.5, 1, 1], [2.5, 0, 2]])


def test_unused_columns_are_left_out_on_demand_and_get_zero(x, y, rng):
    df = frame(x).assign(c5=np.nan)
    party = split(df, y, columns=[["c1"], ["c8", "c2"]], allow_unused=True, intercept=True)
    np.testing.assert_array_equal(party.columns, [1, D, 2, 8])
    w = party.join(np.array([1.0, 2, 3, 4]))
    np.testing.assert_array_equal(np.flatnonzero(w), [1, 2, 8, D])
    np.testing.assert_array_equal(w[[1, 2, 8, D]], [1, 3, 4, 2])
    same(party.like(df, y), party)
    np.testing.assert_array_equal(party.joined().columns, [1, 2, 8, D])
    np.testing.assert_array_equal(rows_of(party.joined()), rows_of(party))


def test_shuffled_parties_with_ids_give_the_identical_data(rng, x, y):
    ids = [f"user{i}" for i in range(N)]
    parts, plan = [x[:, :3], x[:, 3:3], x[:, 3:]], {"active": [1, 0], "scale": "standard"}
    party = PartyData.from_blocks(parts, y, **plan)
    orders = [rng.permutation(N), np.arange(N), rng.permutation(N)]
    own = [np.array(ids, object)[order] for order in orders]
    given = [part[order] for part, order in zip(parts, orders, strict=True)]
    same(PartyData.from_blocks(given, y, ids=own, **plan), party)
    same(PartyData.from_blocks([given[0], None, given[2]], y, ids=own, **plan), party)
    same(party.like(given, y, ids=own), party)
    wide = [sparse.csr_matrix(part) for part in given]
    np.testing.assert_array_equal(
        rows_of(PartyData.from_blocks(wide, y, ids=own, active=[1, 0])),
        rows_of(PartyData.from_blocks(parts, y, active=[1, 0])),
    )


def test_alignment(x):
    ids = [[5, 3, 9, 7], [7, 5, 1], np.array([9, 7, 5], np.uint64)]
    rows = align(ids)
    assert [own.tolist() for own in rows] == [[0, 3], [1, 0], [2, 1]]
    assert [own.tolist() for own in align(ids, first=1)] == [[3, 0], [0, 1], [1, 2]]
    left = align(ids, how="left")
    assert [own.tolist() for own in left] == [[0, 1, 2, 3], [1, -1, -1, 0], [2, -1, 0, 1]]
    assert [own.tolist() for own in align([["a", "b"], []], how="left")] == [[0, 1], [-1, -1]]

    y = [10, 20, 30, 40]
    parts = [x[:4, :2], x[4:7, 2:5], x[7:10, 5:]]
    party = PartyData.from_blocks(parts, y, ids=ids)
    np.testing.assert_array_equal(party.y, [10, 40])
    np.testing.assert_array_equal(rows_of(party), np.hstack([x[[0, 3], :2], x[[5, 4], 2:5], x[[9, 8], 5:]]))
    for kind in (np.asarray, sparse.csr_matrix):
        party = PartyData.from_blocks([kind(part) for part in parts], y, ids=ids, how="left")
        want = np.zeros((4, D))
        want[:, :2], want[[0, 3], 2:5], want[[0, 2, 3], 5:] = x[:4, :2], x[[5, 4], 2:5], x[[9, 7, 8], 5:]
        np.testing.assert_array_equal(rows_of(party), want)
        np.testing.assert_array_equal(party.present, [[1, 1, 1, 1], [1, 0, 0, 1], [1, 0, 1, 1]])
        more = np.ones((4, 3), bool)
        more[0, 2] = False
        want[0, 5:] = 0
        party = PartyData.from_blocks([kind(part) for part in parts], y, ids=ids, how="left", present=more)
        np.testing.assert_array_equal(rows_of(party), want)
    none = PartyData.from_blocks([x[:2], np.zeros((0, 3))], [1, 0], ids=[[1, 2], []], how="left", scale="standard")
    np.testing.assert_array_equal(none.present, [[1, 1], [0, 0]])


def test_a_large_sparse_table_is_built_fast(rng):
    n, d, k = 18_000, 1_350_000, 450
    columns = (d * rng.random((n, k), np.float32) ** 3).astype(np.int32)
    x = sparse.csr_matrix((rng.random(n * k, np.float32), columns.ravel(), np.arange(n + 1) * k), shape=(n, d))
    start = time.perf_counter()
    party = split(x, np.arange(n) % 2, 8, 3)
    assert time.perf_counter() - start < 20  # 2 seconds alone; other tests may share the machine
    assert party.blocks.values.shape[:2] == (n, 8) and party.blocks.values.nbytes < 2**27
    w = rng.random(d, np.float32)
    np.testing.assert_allclose(party.blocks.scores(party.split_params(w)), x @ w, rtol=1e-4)


def test_party_data_is_a_pytree_that_traces(x, y):
    party = split(x, y, 3, 2, scale="standard")
    scores = jax.jit(lambda party, w: party.blocks.scores(w) * party.y)(party, party.blocks.zeros())
    assert scores.shape == (N,)
    assert party.train is party and party.num_active == 2
    same(jax.tree.map(lambda a: a, party), party)
    assert hash(jax.tree.structure(party)) == hash(jax.tree.structure(split(x + 1, y, 3, 2, scale="standard")))
