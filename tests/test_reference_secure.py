"""The oracle of secure aggregation: numbers worked out by hand, closed forms, invariants."""

from fractions import Fraction

import numpy as np
import pytest

from tests.reference.secure import aggregation_time, decode, encode, first, fixed_sum, float_sum, tree_sum

FIGURE_5 = ((0, 1), (2, 3)), ((0, 2), (1, 3))
EIGHT = (((0, 1), (2, 3)), ((4, 5), (6, 7))), (((0, 2), (4, 6)), ((1, 3), (5, 7)))


def random_tree(rng, parties):
    """Branches of any number and size, nested at will; the first party is the root."""
    if len(parties) == 1:
        return parties[0]
    cuts = np.sort(rng.choice(np.arange(1, len(parties)), rng.integers(1, len(parties)), replace=False))
    return tuple(random_tree(rng, part.tolist()) for part in np.split(np.array(parties), cuts))


def random_pair(rng, q):
    root = int(rng.integers(q))
    others = [p for p in range(q) if p != root]
    return tuple(random_tree(rng, [root, *rng.permutation(others).tolist()]) for _ in range(2))


def heard(messages):
    return {(sender, receiver, leaves): value for sender, receiver, leaves, value in messages}


@pytest.mark.parametrize("kind", ["float32", "float64", "fixed"])
def test_figure_5_by_hand(kind):
    o, delta = [1.0, 2.0, 3.0, 4.0], [10, 20, 30, 40]
    if kind == "fixed":  # one bit after the point: o counts double
        done, unit = fixed_sum(FIGURE_5, o, delta, 32, 1), 2
    else:
        done, unit = float_sum(FIGURE_5, o, delta, getattr(np, kind)), 1
        assert done.result.dtype == kind and done.masked[0].value.dtype == kind
    assert heard(done.masked) == {
        (1, 0, (1,)): 20 + 2 * unit,
        (3, 2, (3,)): 40 + 4 * unit,
        (2, 0, (2, 3)): 70 + 7 * unit,
    }
    assert heard(done.masks) == {(2, 0, (2,)): 30, (3, 1, (3,)): 40, (1, 0, (1, 3)): 60}
    assert (done.masked_sum, done.mask_sum, done.result) == (100 + 10 * unit, 100, 10)
    # the paper's collusion: its party 3 (2 here) has o_4 + delta_4, its party 2 (1 here) has delta_4
    assert heard(done.masked)[3, 2, (3,)] - heard(done.masks)[3, 1, (3,)] == 4 * unit


def test_additions_are_in_the_order_of_the_tree():
    """1e8 swallows a 1 in float32: the sum tells who was added first. Branches are added from left to right."""
    o, none = [1e8, 1.0, -1e8, 1.0], [0.0] * 4
    trees = {((0, 1), (2, 3)): 0, (((0, 1), 2), 3): 1, (0, 1, 2, 3): 1, (0, 2, 1, 3): 2, ((0, 2), (1, 3)): 2}
    for tree, total in trees.items():
        assert float_sum((tree, tree), o, none, np.float32).result == total
        assert float_sum((tree, tree), o, none).result == 2
    done = float_sum(((0, 2, 1), (0, (2, 1))), [0.0] * 3, [1e8, 1.0, -1e8], np.float32)
    assert (done.masked_sum, done.mask_sum, done.result) == (1, 0, 1)  # masks that do not cancel


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("seed", range(20))
def test_fixed_point_sums_over_any_trees_are_the_plain_sum(seed, bits):
    """Bitwise: every message is the plain sum over its leaves modulo 2^bits, the result the sum of rounded products."""
    rng = np.random.default_rng(seed)
    q, fraction_bits = int(rng.integers(1, 10)), int(rng.integers(0, 20))
    o = rng.normal(size=q) * 2.0 ** (bits - 9 - fraction_bits)  # large, and far enough from the end of the range
    pair = random_pair(rng, q)
    delta = [int.from_bytes(rng.bytes(bits // 8), "little") for _ in range(q)]
    done = fixed_sum(pair, o, delta, bits, fraction_bits)
    rounded = [round(Fraction(x) * 2**fraction_bits) for x in o]
    assert done.result == Fraction(sum(rounded), 2**fraction_bits)
    assert abs(done.result - sum(map(Fraction, o))) <= Fraction(q, 2 ** (fraction_bits + 1))
    masked = [r + d for r, d in zip(rounded, delta, strict=True)]
    for numbers, total, messages in ((masked, done.masked_sum, done.masked), (delta, done.mask_sum, done.masks)):
        assert total == sum(numbers) % 2**bits and len(messages) == q - 1
        for message in messages:
            assert message.value == sum(numbers[p] for p in message.leaves) % 2**bits
        assert sorted(message.sender for message in messages) == sorted(set(range(q)) - {first(pair[0])})


def test_any_products_could_be_behind_the_messages_of_one_tree():
    """Perfect hiding: for other products there are masks that give the same messages over T1."""
    rng = np.random.default_rng(0)
    o, other = rng.normal(size=8), rng.normal(size=8)
    delta = [int(x) for x in rng.integers(0, 2**32, 8)]
    instead = [
        (d + encode(a, 32, 16, 8) - encode(b, 32, 16, 8)) % 2**32 for d, a, b in zip(delta, o, other, strict=True)
    ]
    ours, theirs = fixed_sum(EIGHT, o, delta, 32, 16), fixed_sum(EIGHT, other, instead, 32, 16)
    assert ours.masked == theirs.masked and ours.masks != theirs.masks


def test_encoding():
    """Halves to even; two's complement; exact for any exponent."""
    got = [encode(o, 32, 1, 1) for o in (0.25, 0.75, 1.25, -0.25, -0.75, -1.25, 0.5, 0.26)]
    assert got == [0, 2, 2, 0, 2**32 - 2, 2**32 - 2, 1, 1]
    for bits in (32, 64):
        for number in (0, 1, -1, 2 ** (bits - 1) - 1, -(2 ** (bits - 1))):
            assert decode(number % 2**bits, bits, 0) == number
            assert decode(number % 2**bits, bits, 16) == Fraction(number, 2**16)
    assert encode(np.float32(0.1), 64, 40, 1) == round(Fraction(13421773, 2**27) * 2**40)
    assert encode(2.0**40, 64, -20, 1) == 2**20


def test_products_out_of_range():
    """|o| 2^f q must stay below 2^(k - 1): for f = 16 and q = 4, below 2^13 with k = 32 and below 2^45 with k = 64."""
    for bits, limit in ((32, 2.0**13), (64, 2.0**45)):
        below = np.nextafter(limit, 0)
        for sign in (1, -1):
            with pytest.raises(OverflowError, match=r"wanted \|o\|"):
                encode(sign * limit, bits, 16, 4)
            if bits == 64:  # a whole number of 2^-16, so nothing is rounded
                assert decode(encode(sign * below, bits, 16, 4), bits, 16) == sign * Fraction(below)
            else:  # is rounded up to the limit
                with pytest.raises(OverflowError):
                    encode(sign * below, bits, 16, 4)
            assert decode(encode(sign * (limit - 1), bits, 16, 4), bits, 16) == sign * (limit - 1)
    for o in (np.nan, np.inf, -np.inf):
        with pytest.raises(OverflowError, match="finite"):
            encode(o, 64, 0, 1)
    most = [2.0**13 - 1] * 4
    assert fixed_sum(FIGURE_5, most, [2**32 - 1] * 4, 32, 16).result == sum(most)


def test_refusals():
    for tree in ((0, 1, 1), ((0, 1), (2, 0)), (0, 2), (0, 1, 2, 3), 0):
        with pytest.raises(ValueError, match="tree"):
            tree_sum(tree, [1, 2, 3], lambda a, b: a + b)
    with pytest.raises(ValueError, match="roots 0 and 1"):
        float_sum(((0, 1), (1, 0)), [1, 2], [3, 4])
    with pytest.raises(ValueError, match="masks"):
        fixed_sum(((0, 1), (0, 1)), [1, 2], [0, 2**32], 32, 0)


def test_messages_and_depth_of_eight_parties():
    done = float_sum(EIGHT, np.arange(8.0), np.ones(8))
    assert len(done.masked) + len(done.masks) == 14 and done.result == 28
    assert aggregation_time(EIGHT, [0] * 8, [1] * 8, [1] * 8) == 3


def test_times_by_hand():
    """Figure 5. T1: 3 -> 2 arrives at 2 + 4, 2 -> 0 at 6 + 3, 1 -> 0 at 1 + 2. T2: 3 -> 1 at 7 + 1, 1 -> 0 at 8 + 5."""
    start, begin, link1, link2 = [0, 1, 0, 2], [0, 0, 0, 7], [9, 2, 3, 4], [9, 5, 6, 1]
    assert aggregation_time(FIGURE_5, start, link1, link2, begin) == 13
    assert aggregation_time(FIGURE_5, start, link1, link2) == 9  # masks with the products: 3 -> 1 at 3, 1 -> 0 at 8
    assert aggregation_time(FIGURE_5, [20, 1, 0, 2], link1, link2, begin) == 20  # the root's own product comes last
    assert aggregation_time((0, 0), [3], [1], [1], [4]) == 4


@pytest.mark.parametrize("seed", range(10))
def test_times_are_those_of_the_slowest_way_to_the_root(seed):
    """A number needs its party's time and the links of all that pass it on: the sum is there when the last one is."""
    rng = np.random.default_rng(seed)
    q = int(rng.integers(1, 10))
    pair = random_pair(rng, q)
    times = rng.integers(0, 20, (4, q)).tolist()
    slowest = 0
    for tree, ready, link in ((pair[0], times[0], times[2]), (pair[1], times[1], times[3])):
        to = {m.sender: m.receiver for m in tree_sum(tree, [0] * q, lambda a, b: 0)[1]}
        for party in range(q):
            way, at = ready[party], party
            while at in to:
                way, at = way + link[at], to[at]
            slowest = max(slowest, way)
    assert aggregation_time(pair, times[0], times[2], times[3], times[1]) == slowest
