"""Partitions and splits: exact covers, the stated distributions, bounded work, and messages that name the field."""

import numpy as np
import pytest

from jaxfed.horizontal.partition import ByKey, Classes, Dirichlet, Iid, Overlapping, Quantity, dirichlet
from jaxfed.horizontal.splitting import assign, label_counts

ROWS, CLASSES = 6_000, 10


@pytest.fixture(scope="module")
def y():
    return np.random.default_rng(0).integers(0, CLASSES, ROWS).astype(np.int32)


def rng(seed=0):
    return np.random.default_rng(seed)


def assert_exact_cover(indices, rows):
    joined = np.concatenate(indices)
    np.testing.assert_array_equal(np.sort(joined), np.arange(rows))
    for own in indices:
        assert own.dtype == np.int64
        assert (np.diff(own) > 0).all()


def mean_entropy(counts):
    p = counts / counts.sum(axis=1, keepdims=True)
    return -(p * np.log(np.where(p > 0, p, 1))).sum(axis=1).mean()


PARTITIONS = [Iid(), Classes(2), Classes(3), Dirichlet(0.1), Quantity(0.5), ByKey(np.arange(ROWS) * 7 % 50)]


@pytest.mark.parametrize("partition", PARTITIONS, ids=lambda p: type(p).__name__)
def test_exact_cover_without_empty_clients_and_reproducible(partition, y):
    indices = partition(y, 50, rng(3))
    assert len(indices) == 50
    assert min(map(len, indices)) >= 1
    assert_exact_cover(indices, ROWS)
    again, other = partition(y, 50, rng(3)), partition(y, 50, rng(4))
    assert all(np.array_equal(a, b) for a, b in zip(indices, again, strict=True))
    if not isinstance(partition, ByKey):
        assert any(not np.array_equal(a, b) for a, b in zip(indices, other, strict=True))


@pytest.mark.parametrize("concentration", [1e-300, 0.01, 0.1, 1, 100])
@pytest.mark.parametrize("num_clients", [10, 500, 5000])
@pytest.mark.parametrize("kind", [Dirichlet, Quantity])
def test_skewed_partitions_never_hang_and_never_leave_a_client_empty(kind, concentration, num_clients, y):
    indices = kind(concentration)(y, num_clients, rng(1))
    assert min(map(len, indices)) >= 1
    assert_exact_cover(indices, ROWS)


@pytest.mark.parametrize("concentration", [1e-300, 1e-4, 0.01, 0.5, 1, 1e12])
def test_dirichlet_draw_is_a_distribution(concentration):
    for seed in range(20):
        draw = dirichlet(concentration, 50, rng(seed))
        assert (draw >= 0).all()
        assert draw.sum() == pytest.approx(1)


@pytest.mark.parametrize("concentration", [0.3, 2.0])
def test_dirichlet_draw_has_the_moments_of_the_law(concentration):
    size, generator = 5, rng(0)
    draws = np.stack([dirichlet(concentration, size, generator) for _ in range(20_000)])
    np.testing.assert_allclose(draws.mean(axis=0), 1 / size, atol=0.01)
    variance = (1 / size) * (1 - 1 / size) / (size * concentration + 1)
    np.testing.assert_allclose(draws.var(axis=0), variance, rtol=0.05)


def test_min_rows_takes_from_the_largest_only(y):
    before = [len(rows) for rows in Dirichlet(0.05, min_rows=0)(y, 50, rng(2))]
    after = [len(rows) for rows in Dirichlet(0.05, min_rows=30)(y, 50, rng(2))]
    assert min(before) < 30
    assert min(after) == 30
    gave = [(b, a) for b, a in zip(before, after, strict=True) if a < b]
    kept = [b for b, a in zip(before, after, strict=True) if a == b]
    assert max(kept) <= min(a for _, a in gave) + 1  # nobody was cut below a client that gave nothing
    assert max(a for _, a in gave) - min(a for _, a in gave) <= 1


def test_repaired_clients_of_a_sharp_draw_keep_sharp_labels(y):
    counts = label_counts(y, Dirichlet(1e-3, min_rows=20)(y, 100, rng(0)), CLASSES)
    assert mean_entropy(counts) < 0.7  # iid clients of 60 rows have about 2.2


def test_entropy_of_labels_grows_with_concentration(y):
    entropies = [mean_entropy(label_counts(y, Dirichlet(c)(y, 50, rng(0)), CLASSES)) for c in (0.01, 0.1, 1, 10, 1000)]
    assert (np.diff(entropies) > 0).all()
    assert entropies[0] < 0.3
    assert entropies[-1] > 0.97 * np.log(CLASSES)


def test_quantity_skews_sizes_but_not_labels(y):
    sizes = {c: [len(rows) for rows in Quantity(c)(y, 20, rng(0))] for c in (0.1, 1, 1000)}
    assert np.std(sizes[0.1]) > np.std(sizes[1]) > np.std(sizes[1000])
    indices = [rows for rows in Quantity(0.5, min_rows=1)(y, 20, rng(0)) if len(rows) > 500]
    share = label_counts(y, indices, CLASSES) / [[len(rows)] for rows in indices]
    np.testing.assert_allclose(share, 1 / CLASSES, atol=0.05)


@pytest.mark.parametrize("k", [1, 2, 3, 7, 10])
@pytest.mark.parametrize("num_clients", [10, 37, 100])
def test_classes_gives_every_client_exactly_k(k, num_clients, y):
    counts = label_counts(y, Classes(k)(y, num_clients, rng(k)), CLASSES)
    assert ((counts > 0).sum(axis=1) == k).all()
    assert counts.sum() == ROWS


def test_classes_pairs_are_varied_and_sizes_close(y):
    counts = label_counts(y, Classes(2)(y, 100, rng(0)), CLASSES)
    pairs = {tuple(np.flatnonzero(row)) for row in counts}
    assert len(pairs) > 25  # of 45; dealing shards in order would give 5
    sizes = counts.sum(axis=1)
    assert sizes.max() < 1.3 * sizes.min()


def test_classes_of_unequal_size_and_few_rows():
    y = np.repeat([0, 1, 2, 5], [1000, 100, 10, 1])  # the class of one row has one shard
    counts = label_counts(y, Classes(2)(y, 30, rng(0)), 6)
    held = counts > 0
    assert (held.sum(axis=1) == 2).all()
    assert held.sum(axis=0).tolist()[5] == 1
    y = np.arange(12) % 6
    counts = label_counts(y, Classes(3)(y, 6, rng(0)), 6)  # 12 rows cannot fill 18 shards: 2 each
    assert ((counts > 0).sum(axis=1) == 2).all()
    counts = label_counts(np.arange(4), Classes(1)(np.arange(4), 4, rng(0)), 4)
    assert (counts.sum(axis=0) == 1).all()


def test_by_key_is_one_client_per_value():
    key = np.array(["b", "a", "c", "a", "b", "b"])
    indices = ByKey(key)(np.zeros(6, int), None, rng())
    assert [rows.tolist() for rows in indices] == [[1, 3], [0, 4, 5], [2]]
    with pytest.raises(ValueError, match="num_clients: got "):
        ByKey(key)(np.zeros(6, int), 4, rng())


@pytest.mark.parametrize("partition", PARTITIONS, ids=lambda p: type(p).__name__)
@pytest.mark.parametrize("with_test", [True, False])
def test_assign_covers_everything_once(partition, with_test, y):
    y_test = rng(9).integers(0, CLASSES, 1_500) if with_test else None
    got = assign(y, y_test, partition, 50, 0, validation=0.25)
    train = [*got.train, *got.validation, *([] if with_test else got.test)]
    np.testing.assert_array_equal(np.sort(np.concatenate(train)), np.arange(ROWS))
    if with_test:
        assert_exact_cover(got.test, 1_500)
    assert min(map(len, got.train)) >= 1
    plain = assign(y, y_test, partition, 50, 0)
    assert sum(map(len, plain.validation)) == 0
    for a, b, c, d in zip(got.train, got.validation, plain.train, plain.test, strict=True):
        np.testing.assert_array_equal(np.union1d(a, b), c)  # asking for validation moves no other row
        assert not set(a) & set(b)
        assert with_test or not set(a) & set(d)


def test_assign_depends_on_the_seed_only(y):
    a, b, c = (assign(y, None, Dirichlet(0.5), 20, seed, 0.1) for seed in (5, 5, 6))
    for name in ("train", "validation", "test"):
        assert all(np.array_equal(p, q) for p, q in zip(getattr(a, name), getattr(b, name), strict=True))
        assert any(not np.array_equal(p, q) for p, q in zip(getattr(a, name), getattr(c, name), strict=True))


@pytest.mark.parametrize("partition", [Classes(2), Dirichlet(0.1)])
def test_test_rows_follow_the_train_distribution(partition, y):
    y_test = rng(9).integers(0, CLASSES, 3_000)
    got = assign(y, y_test, partition, 20, 0)
    train, test = label_counts(y, got.train, CLASSES), label_counts(y_test, got.test, CLASSES)
    expected = train * test.sum(axis=0) / train.sum(axis=0)
    assert np.abs(test - expected).max() < 1  # largest remainder: within one row of the exact share
    assert (test[train == 0] == 0).all()


def test_hold_out_is_stratified_and_keeps_a_row(y):
    got = assign(y, None, Dirichlet(0.1), 20, 0, validation=0.3)
    kept, held = label_counts(y, got.train, CLASSES), label_counts(y, got.validation, CLASSES)
    assert np.abs(held - 0.3 * (kept + held)).max() <= 1.5
    one_each = assign(np.zeros(5, int), None, Iid(), 5, 0, validation=0.9)
    assert [len(rows) for rows in one_each.train] == [1] * 5
    two_each = assign(np.zeros(10, int), np.zeros(5, int), Iid(), 5, 0, validation=0.01)
    assert [len(rows) for rows in two_each.validation] == [1] * 5


def test_labels_still_belong_to_their_images(y):
    x = y[:, None] * 1000 + np.arange(ROWS)[:, None] % 1000  # the label can be read off the image
    for rows in assign(y, None, Dirichlet(0.1), 30, 0, 0.2).train:
        np.testing.assert_array_equal(x[rows, 0] // 1000, y[rows])


def test_real_targets_are_dealt_by_size():
    y, y_test = rng(0).normal(size=400), rng(1).normal(size=100)
    got = assign(y, y_test, Quantity(1.0), 8, 0)
    share = np.array([len(rows) for rows in got.train]) / 4
    assert np.abs([len(rows) for rows in got.test] - share).max() < 1


def test_test_rows_of_a_class_without_owner_are_left_out_with_a_warning():
    with pytest.warns(UserWarning, match="no client has train rows of class 2: 3 test rows"):
        got = assign(np.array([0, 1] * 10), np.array([0, 1, 2, 2, 2]), Iid(), 4, 0)
    np.testing.assert_array_equal(np.sort(np.concatenate(got.test)), [0, 1])


def test_empty_clients_only_on_request(y):
    with pytest.raises(ValueError, match=r"of 500 clients have no rows .* allow_empty=True"):
        assign(y, None, Dirichlet(0.01, min_rows=0), 500, 0)
    got = assign(y, None, Dirichlet(0.01, min_rows=0), 500, 0, allow_empty=True)
    assert min(map(len, got.train)) == 0


def test_label_counts_by_hand():
    counts = label_counts(np.array([0, 2, 2, 1]), [np.array([0, 1]), np.array([], int), np.array([2, 3])], 3)
    np.testing.assert_array_equal(counts, [[1, 0, 1], [0, 0, 0], [0, 1, 1]])
    with pytest.raises(ValueError, match=r"y: got 0\.\.2"):
        label_counts(np.array([0, 2]), [np.array([0, 1])], 2)


LABELS = np.arange(20) % 4


@pytest.mark.parametrize(
    ("y", "partition", "num_clients", "message"),
    [
        (LABELS, Iid(), 21, r"num_clients: got 21"),
        (LABELS, Iid(), 0, r"num_clients: got 0"),
        (LABELS, Iid(), None, r"num_clients: got None"),
        (LABELS, Dirichlet(1.0, min_rows=3), 7, r"num_clients: got 7"),
        (LABELS, Dirichlet(0.0), 2, r"concentration: got 0.0"),
        (LABELS, Dirichlet(np.nan), 2, r"concentration: got nan"),
        (LABELS, Quantity(-1), 2, r"concentration: got -1"),
        (LABELS, Quantity(1, min_rows=-1), 2, r"min_rows: got -1"),
        (LABELS, Classes(0), 4, r"k: got "),
        (LABELS, Classes(5), 4, r"k: got "),
        (LABELS, Classes(1), 3, r"num_clients \* k: got "),
        (LABELS - 1, Iid(), 2, r"y: got -1"),
        (LABELS / np.nan, Iid(), 2, r"y: got NaN"),
        (LABELS / 3, Dirichlet(1.0), 2, r"Dirichlet: y: got float64"),
        (LABELS[None], Iid(), 2, r"y: got "),
        (LABELS, ByKey(np.arange(19)), None, r"key: got \(19,\)"),
        (LABELS, ByKey(np.full(20, np.nan)), None, r"key: got "),
    ],
)
def test_messages_name_the_field(y, partition, num_clients, message):
    with pytest.raises(ValueError, match=message):
        assign(y, None, partition, num_clients, 0)


@pytest.mark.parametrize("validation", [-0.1, 1.0, np.nan])
def test_validation_must_be_a_fraction(validation):
    with pytest.raises(ValueError, match=r"validation: got "):
        assign(LABELS, None, Iid(), 2, 0, validation)


def test_overlapping_clients_draw_from_the_whole_pool(y):
    """Distinct rows within a client, all rows of the pool alike, clients apart from each other: hypergeometric."""
    indices = Overlapping(3)(y[:12], 20_000, rng())
    table = np.stack(indices)
    assert table.dtype == np.int64 and (np.diff(table, axis=1) > 0).all() and table.min() == 0 and table.max() == 11
    np.testing.assert_allclose(np.bincount(table.ravel()) / 20_000, 3 / 12, atol=0.02)
    sets, times = np.unique(table, axis=0, return_counts=True)
    assert len(sets) == 220 and abs(times / 20_000 * 220 - 1).max() < 0.5  # all 12 choose 3 sets, about equally often
    again = Overlapping(3)(y[:12], 20_000, rng())
    np.testing.assert_array_equal(table, np.stack(again))
    assert (Overlapping(12)(y[:12], 2, rng())[1] == np.arange(12)).all()


def test_overlapping_clients_set_no_rows_aside(y):
    """Test rows are the data set's own, dealt as always; a client's held-out rows would be others' training rows."""
    found = assign(y, y[:500], Overlapping(20), 1000, seed=1)
    assert all(len(rows) == 20 for rows in found.train) and not any(map(len, found.validation))
    assert_exact_cover([rows for rows in found.test if len(rows)], 500)
    for options, wanted in (
        (dict(y_test=None), "test rows of the data set's own"),
        (dict(validation=0.1), "validation=0"),
    ):
        with pytest.raises(ValueError, match=f"partition: got Overlapping.*, wanted {wanted}"):
            assign(y, **{"y_test": y[:500], "partition": Overlapping(2), "num_clients": 9, "seed": 0, **options})
    for rows in (0, ROWS + 1, 2.5):
        with pytest.raises(ValueError, match="Overlapping: rows: got"):
            Overlapping(rows)(y, 3, rng())
