"""Numbers modulo 2^32 and 2^64 against Python's integers, sums over trees in their order, Threefry's known answers."""

import itertools
from fractions import Fraction

import jax.numpy as jnp
import numpy as np
import pytest

from jaxfed.vertical import fixed_point, samples, tree_sums
from jaxfed.vertical.aggregation import balanced, chain, path, star
from jaxfed.vertical.fixed_point import Limbs
from jaxfed.vertical.secure import SecureAggregation
from tests.reference.secure import decode, encode, float_sum

BITS = pytest.mark.parametrize("bits", [32, 64])
FRACTION = {32: 20, 64: 32}


def of_ints(numbers, bits):
    """Python ints as the arrays of jaxfed."""
    words = [np.array([n >> shift & 0xFFFFFFFF for n in numbers], np.uint32) for shift in (0, 32)]
    return jnp.asarray(words[0]) if bits == 32 else Limbs(*map(jnp.asarray, words))


def to_ints(numbers):
    """The arrays of jaxfed, 1-d, as Python ints."""
    if not isinstance(numbers, Limbs):
        return [int(n) for n in np.asarray(numbers)]
    return [int(low) + (int(high) << 32) for low, high in zip(*map(np.asarray, numbers), strict=True)]


def floats(bits, dtype, num_parties=3):
    """Numbers of that type within the range: special, of every size and sign, and next to the largest."""
    rng = np.random.default_rng(bits)
    unit, most = 2.0 ** -FRACTION[bits], dtype(SecureAggregation(bits=bits).limit(num_parties))
    special = [0.0, 0.5, 1.5, 2.5, 3.5, 1, 2, 127, 128, 129, 2**24 - 1, 2**24, 2**31 - 1, 2**31, 2**32 - 1, 2**32]
    sizes = np.exp(rng.uniform(np.log(unit / 4), np.log(most), 400))
    edge = [most]
    for _ in range(4):
        edge.append(np.nextafter(edge[-1], dtype(0)))
    found = np.array([*(s * unit for s in special), *sizes, 3e-39, *edge[1:]], dtype)
    found = found[np.abs(found) < most]
    return np.concatenate([found, -found])


@BITS
@pytest.mark.parametrize("form", ["float32", "x64"])
def test_encoded_numbers_are_those_of_exact_arithmetic(bits, form, request):
    if form == "x64":
        request.getfixturevalue("x64")
    x = floats(bits, np.float64 if form == "x64" else np.float32)
    assert len(x) > 800
    ours = fixed_point.encode(jnp.asarray(x), bits, FRACTION[bits])
    wanted = [encode(each, bits, FRACTION[bits], 3) for each in x]  # raises where one is out of range
    assert to_ints(ours) == wanted
    assert all(leaf.dtype == jnp.uint32 for leaf in (ours if bits == 64 else (ours,)))


@BITS
@pytest.mark.parametrize("form", ["float32", "x64"])
def test_decoded_numbers(bits, form, request):
    """To within one rounding of each limb and one of their sum; what has few digits exactly."""
    if form == "x64":
        request.getfixturevalue("x64")
    dtype = np.float64 if form == "x64" else np.float32
    digits = np.finfo(dtype).nmant + 1
    rng = np.random.default_rng(0)
    top = 2 ** (bits - 1)
    sizes = [*range(300), *(int(2 ** rng.uniform(0, bits - 1)) for _ in range(400)), top - 1, 2**32 - 1, 2**31]
    numbers = [sign * size % 2**bits for size in sizes for sign in (1, -1) if size < top] + [top]
    ours = np.asarray(fixed_point.decode(of_ints(numbers, bits), FRACTION[bits], dtype))
    assert ours.dtype == dtype
    for number, got in zip(numbers, ours, strict=True):
        wanted = decode(number, bits, FRACTION[bits])
        size = abs(wanted) * 2 ** FRACTION[bits]
        tolerance = 0 if size < 2**digits else abs(wanted) / 2 ** (digits - 1)
        assert abs(Fraction(float(got)) - wanted) <= tolerance, (number, got)


@BITS
def test_additions_wrap_as_integers_do(bits):
    rng = np.random.default_rng(1)
    special = [0, 1, 2**16 - 1, 2**16, 2**31, 2**32 - 1, *([2**32, 2**33 - 1, 2**63, 2**64 - 1] if bits == 64 else [])]
    drawn = [int.from_bytes(rng.bytes(bits // 8), "little") for _ in range(30)]
    pairs = list(itertools.product(special + drawn, repeat=2))
    a, b = (of_ints(numbers, bits) for numbers in zip(*pairs, strict=True))
    assert to_ints(fixed_point.add(a, b)) == [(x + y) % 2**bits for x, y in pairs]
    assert to_ints(fixed_point.subtract(a, b)) == [(x - y) % 2**bits for x, y in pairs]


@BITS
@pytest.mark.parametrize("count", [1, 2, 8, 1000])
def test_totals(bits, count):
    rng = np.random.default_rng(count)
    rows = [[int.from_bytes(rng.bytes(bits // 8), "little") for _ in range(5)] for _ in range(count)]
    rows[0][:2] = [2**bits - 1, 0]
    if count > 1:
        for row in rows:
            row[4] = 2**bits - 1  # every carry there can be
    columns = of_ints([n for row in rows for n in row], bits)
    shaped = Limbs(*(x.reshape(count, 5) for x in columns)) if bits == 64 else columns.reshape(count, 5)
    assert to_ints(fixed_point.total(shaped, 0)) == [sum(column) % 2**bits for column in zip(*rows, strict=True)]


@BITS
def test_the_limit_leaves_no_sum_of_products_out_of_range(bits):
    """The largest numbers below it fit (the oracle refuses others), and those a little above it don't."""
    for q, fraction in itertools.product((1, 2, 3, 7, 8, 64), (0, FRACTION[bits] // 2, FRACTION[bits])):
        limit = SecureAggregation(bits=bits, fraction_bits=fraction).limit(q)
        for dtype in (np.float32, np.float64):
            largest = np.nextafter(dtype(limit), dtype(0)) if dtype(limit) >= limit else dtype(limit)
            for product in (largest, -largest):
                encode(product, bits, fraction, q)
        with pytest.raises(OverflowError):
            encode(limit * (1 + 2.0**-20) + 2.0**-fraction, bits, fraction, q)


def random_tree(rng, parties):
    """A ragged tree with those leaves in order, the first of them the root."""
    if len(parties) == 1:
        return parties[0]
    cuts = sorted(rng.choice(np.arange(1, len(parties)), rng.integers(1, min(4, len(parties))), replace=False).tolist())
    parts = [parties[a:b] for a, b in zip([0, *cuts], [*cuts, len(parties)], strict=True)]
    return tuple(random_tree(rng, part) for part in parts)


@pytest.mark.parametrize("q", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("lanes", [(), (3,)])
def test_floats_are_added_in_the_order_of_the_trees(q, lanes):
    """Bit for bit, each dominator's over its own tree: sizes from 1e-6 to 1e6 make the order show."""
    rng = np.random.default_rng(q)
    orders = [[p, *rng.permutation([x for x in range(q) if x != p]).tolist()] for p in (0, q - 1, q // 2, 0, q // 2)]
    shapes = (balanced, chain, path, lambda order: star(order[0], q), lambda order: random_tree(rng, order))
    trees = tuple(shape(order) for shape, order in zip(shapes, orders, strict=True))
    numbers = rng.normal(size=(5, 3, q, *lanes)) * 10 ** rng.uniform(-6, 6, (5, 3, q, *lanes))
    numbers = numbers.astype(np.float32)
    ours = np.asarray(tree_sums.in_order(jnp.asarray(numbers), trees))
    assert ours.shape == (5, 3, *lanes) and ours.dtype == np.float32
    for place in np.ndindex(*ours.shape):
        row = numbers[place[0], place[1], :, *place[2:]]
        tree = trees[place[0]]
        assert float_sum((tree, tree), row, np.zeros(q), np.float32).masked_sum == ours[place]
    if q == 8:
        assert (ours != numbers.sum(2, dtype=np.float32)).any(), "a test that the order makes no difference to"


def test_threefry_has_the_known_answers():
    """The vectors of Random123's kat_vectors for threefry2x32 with 20 rounds: counter, key, the first output word."""
    known = [
        ((0, 0), (0, 0), 0x6B200159),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), 0x1CB996FC),
        ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), 0xC4923A9C),
    ]
    for counter, key, wanted in known:
        words = (jnp.array([word], jnp.uint32) for word in (*key, *counter))
        assert to_ints(samples.threefry(*words)) == [wanted]


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_numbers_that_pass_the_check_have_a_sum_in_range_and_others_are_told(bits, count):
    """Against Python integers, at the edges; what `encode` makes of floats far out of range is told too."""
    limit, unit = 2 ** (bits - 1), 2 ** (bits - 32)
    edge = fixed_point.room(count) * unit
    for number in (0, 1, -1, edge - 1, edge, -edge, -edge - 1, limit - 1, -limit):
        two = number % 2**bits
        low, high = (jnp.uint32(part) for part in (two % 2**32, two >> 32))
        told = bool(fixed_point.beyond(fixed_point.Limbs(low, high) if bits == 64 else low, count))
        assert told == (number >= edge or number < -edge)
        assert told or -limit <= count * number < limit
    far = jnp.array([1e30, -1e30, jnp.inf, -jnp.inf, 2.0 ** (bits - 1)])
    assert fixed_point.beyond(fixed_point.encode(far, bits, 0), count).all()
