"""Secure aggregation in a run: the masks that are drawn, the sums that come out, and what is too large for them."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxfed as jf
from jaxfed import privacy
from jaxfed.vertical import BilevelAsync, FixedDelay, Objective, SecureAggregation, Synchronous, engine, secure
from jaxfed.vertical.aggregation import FIGURE_5, balanced, chain, path, star
from tests.reference.secure import fixed_sum, float_sum
from tests.test_vertical_fixed_point import to_ints
from tests.vertical_support import federation

PARTY, BLOCKS, Y = federation()
TREES = ((chain([0, 2, 1, 3]), (0, (3, 2), 1)), (((2, 0), 1, 3), path([2, 3, 0, 1])))
SCHEDULERS = {
    "synchronous": Synchronous(PARTY),
    "fixed": FixedDelay(PARTY, read=2, message=3),
    "event queue": BilevelAsync(PARTY, link=0.3, jitter=0.3),
}
BITS = pytest.mark.parametrize("bits", [32, 64, None])


def sgd(bits=32, loss="logistic", lr=0.1, batch_size=2, **options):
    masks = SecureAggregation(bits=bits, trees=TREES, **options)
    return jf.VFB2SGD(Objective(loss, "l2", 0.05), lr=lr, batch_size=batch_size, secure=masks)


def recorded(algorithm, scheduler="event queue", num_rounds=60, seed=0, party=PARTY):
    scheduler = SCHEDULERS[scheduler] if isinstance(scheduler, str) else scheduler
    return privacy.record(seed, algorithm, party, scheduler=scheduler, num_rounds=num_rounds)


@pytest.fixture(scope="module")
def seen():
    """Transcripts by bits, of masked runs."""
    return {bits: recorded(sgd(bits)) for bits in (32, 64, None)}


def by_update(transcript):
    """{(dominator, own number): masks [b, q]}."""
    numbers = zip(transcript.dominator.tolist(), transcript.update.tolist(), strict=True)
    return dict(zip(numbers, transcript.masks, strict=True))


def test_masks_depend_on_the_update_and_the_seed_alone(seen, monkeypatch):
    """Not on the schedule, nor on how many ticks are looked up at once, nor on the run's length."""
    mine = by_update(seen[64])
    others = [recorded(sgd(64), "synchronous"), recorded(sgd(64), "fixed")]
    monkeypatch.setattr(engine, "MOST_TICKS", 7)
    others.append(recorded(sgd(64), num_rounds=25))
    for other in map(by_update, others):
        shared = mine.keys() & other.keys()
        assert len(shared) > 20
        for update in shared:
            np.testing.assert_array_equal(mine[update], other[update])
    monkeypatch.undo()
    again = by_update(recorded(sgd(64), seed=1))
    assert not np.isin(np.concatenate(list(again.values())), np.concatenate(list(mine.values()))).any()
    for update, masks in by_update(seen[32]).items():
        np.testing.assert_array_equal(masks, mine[update].astype(np.uint32))
        np.testing.assert_array_equal(by_update(seen[None])[update], masks.view(np.int32).astype(np.float32) * 2.0**-31)


def chi_square(values, cells):
    """Of counts of whole numbers below `cells`, in standard deviations above its mean."""
    counts = np.bincount(np.ravel(values), minlength=cells)
    expected = np.size(values) / cells
    return (np.sum((counts - expected) ** 2 / expected) - (cells - 1)) / np.sqrt(2 * (cells - 1))


@BITS
def test_masks_are_fresh_and_uniform(bits):
    """No two alike for any dominator, update, row and party; no bit, byte or pair of neighbours that is not uniform."""
    key, update = jnp.array([3, 7], jnp.uint32), jnp.broadcast_to(jnp.arange(400)[:, None, None], (400, 3, 8))
    drawn = secure.draw(SecureAggregation(bits=bits, scale=2.5), key, update, 4)
    if bits is None:
        masks = np.asarray(drawn)
        assert masks.min() >= -2.5 and masks.max() < 2.5 and abs(masks.mean()) < 0.03
        words = [np.floor((masks.astype(float) / 2.5 + 1) * 2**23).astype(np.uint32)]  # float32: 24 bits at most
        few = masks[:10]
    else:
        words = [np.asarray(x) for x in ([drawn] if bits == 32 else drawn)]
        few = words[0][:60]
    assert words[0].shape == (400, 3, 4, 8)
    assert len(np.unique(few)) == few.size  # 5760 of 32 bits would by chance be in 0.4 % of cases
    for word in words:
        shifts = (15, 7) if bits is None else (24, 16, 8, 0)
        for shift in shifts:
            octet = word >> shift & 255
            assert abs(chi_square(octet, 256)) < 5
            for axis in range(4):
                first, second = (np.moveaxis(octet, axis, 0)[part] >> 4 for part in (slice(None, -1), slice(1, None)))
                assert abs(chi_square(first * 16 + second, 256)) < 5, axis
    if bits == 64:
        low, high = (word >> 28 for word in words)
        assert abs(chi_square(low * 16 + high, 256)) < 5
        assert not np.isin(words[0][:60], words[1][:60]).any()


def test_masks_share_no_number_with_what_a_defence_draws(monkeypatch):
    """The first words of the keys on the way to a defence's are no masks: both come from one secret."""
    key = jnp.array([3, 7], jnp.uint32)
    base = jax.random.wrap_key_data(key)
    words = {int(w) for a in range(6) for u in range(64)
             for w in jax.random.key_data(jax.random.fold_in(jax.random.fold_in(base, a), u))}  # fmt: skip
    update = jnp.broadcast_to(jnp.arange(8)[:, None, None], (8, 3, 8))
    drawn = secure.draw(SecureAggregation(bits=64), key, update, 8)
    assert len(words) > 700 and not words & {int(w) for leaf in drawn for w in np.ravel(leaf)}


@BITS
def test_the_sum_over_trees_is_the_oracle_message_for_message(seen, bits):
    """What is sent, and z: in integers modulo 2^bits exactly, for floats bit for bit in the order of the trees."""
    transcript = seen[bits]
    pairs = dict(zip(PARTY.active, TREES, strict=True))
    fraction = SecureAggregation(bits=bits).fraction
    assert transcript.hidden.dtype == {32: np.uint32, 64: np.uint64, None: np.float32}[bits]
    for i, dominator in enumerate(transcript.dominator):
        for j in range(2):
            pair, o, masks = pairs[dominator], transcript.products[i, j], transcript.masks[i, j]
            if bits is None:
                done = float_sum(pair, o, masks, np.float32)
                assert done.result == transcript.scores[i, j]
                continue
            done = fixed_sum(pair, o, masks, bits, fraction)
            encoded = [(int(h) - int(m)) % 2**bits for h, m in zip(transcript.hidden[i, j], masks, strict=True)]
            assert sum(encoded) % 2**bits == (done.masked_sum - done.mask_sum) % 2**bits
            assert abs(float(done.result) - transcript.scores[i, j]) <= 2.0**-23 * abs(done.result)


def test_z_is_that_of_a_plain_run_to_the_masks_tolerance(seen):
    """Half a unit a product in fixed point; in floats the masks' last digits."""
    for bits, transcript in seen.items():
        exact = transcript.products.astype(float).sum(2)
        unit = 0 if bits is None else 2.0 ** -SecureAggregation(bits=bits).fraction
        tolerance = 4 * 2.0**-22 if bits is None else 2 * unit + 2.0**-23 * np.abs(exact).max()
        error = np.abs(transcript.scores - exact).max()
        assert error <= tolerance, bits
        if bits != 64:
            assert error > tolerance / 100, "rounding must show"


def test_float_masks_lose_digits_as_they_grow():
    """notes/vertical.md, 3.7, at q = 8 in float32: 2e-6, 1e-4, 1e-2 and 1.1 for masks of 1, 1e2, 1e4 and 1e6."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, 8))
    party = jf.vertical.split(x, np.sign(x.sum(1)), num_parties=8, num_active=1, seed=0)
    for scale, wanted in ((1.0, 2e-6), (1e2, 1e-4), (1e4, 1e-2), (1e6, 1.1)):
        algorithm = jf.VFB2SGD(Objective("logistic", "l2", 0.01), secure=SecureAggregation(bits=None, scale=scale))
        transcript = recorded(algorithm, Synchronous(party), 400, party=party)
        error = np.abs(transcript.scores - transcript.products.astype(float).sum(2)).max()
        assert wanted / 4 < error < wanted * 4, (scale, error)


def test_too_large_a_product_ends_in_nan_and_says_so():
    algorithm = sgd(32, "half_squared", lr=3.0)
    plain = algorithm.replace(secure=None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # this far a plain run has no trouble
        before = jf.run(0, plain, PARTY, scheduler=SCHEDULERS["synchronous"], num_rounds=12, progress=False)
    assert np.isfinite(before.dataset.objective.values).all()
    with pytest.warns(UserWarning, match=r"diverged: the state is not finite from round \d+ on.*secure holds products "
                      r"below 512 \(fewer fraction_bits: larger ones\)"):  # fmt: skip
        out = jf.run(0, algorithm, PARTY, scheduler=SCHEDULERS["synchronous"], num_rounds=12, progress=False)
    finite = out.dataset.finite.values
    assert finite[0] and not finite[-1] and (np.diff(finite.astype(int)) <= 0).all()
    assert np.isnan(np.asarray(out.state.weights)[PARTY.blocks.mask()]).all() and np.any(out.state.secret.too_large)
    first = int(np.argmin(finite)) - 1  # records: before the first tick, then after each
    transcript = recorded(algorithm, "synchronous", 12)
    sizes = np.abs(transcript.products).max((1, 2))
    assert transcript.tick[np.argmax(~(sizes < 512))] == first, "at the first product beyond the limit, not before"
    fewer = algorithm.replace(secure=SecureAggregation(bits=32, fraction_bits=6, trees=TREES))
    out = jf.run(0, fewer, PARTY, scheduler=SCHEDULERS["synchronous"], num_rounds=first + 2, progress=False)
    assert out.dataset.finite.values.all(), "numbers that hold more"


def test_other_lanes_of_a_sweep_are_left_alone():
    algorithm, rates = sgd(32, "half_squared"), [0.01, 3.0, 0.03]
    given = dict(scheduler=SCHEDULERS["event queue"], num_rounds=40, every=8, progress=False)
    with pytest.warns(UserWarning, match="diverged"):
        ds = jf.sweep(0, algorithm, PARTY, axes={"lr": rates}, **given)
    assert not ds.finite.isel(lr=1).values.ravel()[-1]
    for i in (0, 2):
        one = jf.run(0, algorithm.replace(lr=rates[i]), PARTY, **given).dataset
        assert one.finite.values.all() and ds.finite.isel(lr=i).values.all()
        np.testing.assert_allclose(ds.objective.isel(lr=i).values.ravel(), one.objective, rtol=1e-5)


@pytest.mark.parametrize("bits", [32, 64])
def test_a_product_that_is_no_number_is_not_made_one(bits):
    """One weight that is NaN: all weights are from then on."""
    given = dict(scheduler=SCHEDULERS["synchronous"], num_rounds=8, progress=False)
    first = jf.run(0, sgd(bits), PARTY, **given)
    weights = np.array(first.state.weights)
    weights[0, 0] = np.nan
    with pytest.warns(UserWarning, match="diverged"):
        out = jf.run(0, sgd(bits), PARTY, state=first.state._replace(weights=jnp.asarray(weights)), **given)
    assert np.isnan(np.asarray(out.state.weights)[PARTY.blocks.mask()]).all()


def test_default_trees_and_limits():
    """Trees rooted at each dominator, the same for the same seed; figure 5 for four parties can be given."""
    masks = SecureAggregation()
    pairs = masks.pairs(PARTY)
    assert [pair[0] for pair in pairs] != [pair[1] for pair in pairs] and pairs == SecureAggregation().pairs(PARTY)
    for root, pair in zip(PARTY.active, pairs, strict=True):
        for tree in pair:
            jf.vertical.aggregation.check_tree("tree", tree, 4, root)
    two = jf.PartyData.from_blocks(BLOCKS[:2], Y, active=[1])
    assert SecureAggregation().pairs(two) == ((star(1, 2), star(1, 2)),)
    one = jf.PartyData.from_blocks(BLOCKS[:1], Y)
    transcript = recorded(sgd(batch_size=1).replace(secure=masks), Synchronous(one), 9, party=one)
    np.testing.assert_allclose(transcript.scores, transcript.products[..., 0], rtol=0, atol=2.0**-20)
    assert (transcript.scores[1:] != 0).all()
    four = jf.PartyData.from_blocks(BLOCKS, Y, active=[0])
    figure = SecureAggregation(trees=(FIGURE_5,))
    assert figure.pairs(four) == (FIGURE_5,) and FIGURE_5[0] == balanced(range(4))
    assert masks.limit(4) == 512 - 1.5 * 2.0**-20 and SecureAggregation(bits=64).limit(2) == 2.0**30 - 1 - 2.0**-33
    assert SecureAggregation(bits=None).limit(4) == np.inf
    assert to_ints(secure.draw(masks, jnp.zeros(2, jnp.uint32), jnp.zeros((1, 1), jnp.int32), 1).ravel())
