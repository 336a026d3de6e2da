"""Unmasking: what a coalition finds from the values that it receives, against Python loops and the rank test."""

from collections import Counter
from itertools import combinations, product

import numpy as np
import pytest

from jaxfed.privacy.transcript import Sum, View
from jaxfed.privacy.unmask import differences, partial_sums, unmask
from jaxfed.vertical import aggregation, leakage
from jaxfed.vertical.aggregation import FIGURE_5
from jaxfed.vertical.secure_trees import secure_pair
from tests.reference import leakage as oracle

KINDS = [(None, 0), (32, 16), (64, 32)]
KIND = pytest.mark.parametrize("bits, fraction", KINDS, ids=["float", "mod32", "mod64"])
STARS = (aggregation.star(0, 4), aggregation.star(0, 4))


def simulate(pairs, coalition, bits, fraction, calls=6, batch=2, seed=0, fresh=True):
    """A coalition's view of calls that the dominators (roots of the pairs) take in turn, the true products
    [N, b, q] in float32, as parties hold them, and z [N, b]."""
    rng = np.random.default_rng(seed)
    q = len(aggregation.leaves(pairs[0][0]))
    products = rng.normal(size=(calls, batch, q)).astype(np.float32).astype(np.float64)
    shape = products.shape if fresh else (1, batch, q)
    if bits is None:
        masks = rng.uniform(-1, 1, shape)
    else:
        masks = rng.integers(2**bits, size=shape, dtype={32: np.uint32, 64: np.uint64}[bits])
    masks = np.broadcast_to(masks, products.shape)
    turns, sums, scores = np.arange(calls) % len(pairs), [], np.full((calls, batch), np.nan)
    for turn, pair in enumerate(pairs):
        updates = np.flatnonzero(turns == turn)
        found = oracle.view_sums(pair, coalition, products[updates], masks[updates], bits, fraction)
        sums += [Sum(*message[:4], updates, message[4]) for message in found]
        if aggregation.leaves(pair[0])[0] in coalition:
            scores[updates] = products[updates].sum(-1)
    own = list(coalition)
    nothing = np.zeros(calls)
    view = View(
        parties=tuple(own), x=np.zeros((1, len(own))), w=np.zeros(len(own)), labels=None, tick=nothing, time=nothing,
        dominator=np.array([aggregation.leaves(pairs[turn][0])[0] for turn in turns]), update=nothing,
        rows=np.zeros((calls, batch), int), theta=None, gradients=None, scores=scores, products=products[..., own],
        masks=masks[..., own], sums=tuple(sums), passes=(), loss="logistic", regularizer="l2", l2=0.0, lr=0.1,
        batch_size=batch, num_parties=q, fraction_bits=fraction if bits else None,
    )  # fmt: skip
    return view, products, products.sum(-1)


def check(found, products, parties, bits, fraction):
    """A sum that was found is the parties' sum: residues bit for bit, estimates to the rounding."""
    own = products[found.updates][..., list(parties)]
    if bits is None:
        np.testing.assert_allclose(found.estimates, own.sum(-1), atol=1e-14)
        assert found.residues is None
        return
    numbers = np.vectorize(lambda x: oracle.fixed(float(x), fraction, 2**bits), otypes=[object])(own)
    assert found.residues.dtype == {32: np.uint32, 64: np.uint64}[bits]
    assert found.residues.tolist() == (numbers.sum(-1) % 2**bits).tolist()
    np.testing.assert_allclose(found.estimates, own.sum(-1), rtol=0, atol=len(parties) * 2.0 ** -(fraction + 1))


@KIND
def test_figure_5_falls_to_the_papers_coalition_and_to_another(bits, fraction):
    for coalition, victims in (((1, 2), [3]), ((0, 3), [1, 2])):
        view, products, _ = simulate([FIGURE_5], coalition, bits, fraction)
        found = unmask(view)
        assert [some.parties for some in found] == [(p,) for p in victims]
        for some in found:
            assert some.updates.tolist() == list(range(6))
            check(some, products, some.parties, bits, fraction)


@KIND
def test_a_stars_root_unmasks_everybody_alone(bits, fraction):
    view, products, _ = simulate([STARS], (0,), bits, fraction)
    found = unmask(view)
    assert [some.parties for some in found] == [(1,), (2,), (3,)]
    for some in found:
        check(some, products, some.parties, bits, fraction)


@KIND
def test_what_is_found_is_what_the_rank_test_says(bits, fraction):
    rng = np.random.default_rng(1)
    for trial in range(25):
        q = int(rng.integers(3, 7))
        pair = aggregation.random_pair(q, 0, rng)
        if trial % 2:
            pair = pair[0], aggregation.path([0, *rng.permutation(np.arange(1, q)).tolist()])
        coalition = tuple(sorted(rng.choice(q, rng.integers(1, q), replace=False).tolist()))
        view, products, z = simulate([pair], coalition, bits, fraction, calls=2, seed=trial)
        for total in (None, z):
            found = partial_sums(view, total)
            wanted = leakage.leaks(pair, coalition, knows_total=total is not None)
            assert sorted(some.parties for some in found) == sorted(wanted.sums)
            for some in found:
                own = products[..., list(some.parties)].sum(-1)
                np.testing.assert_allclose(
                    some.estimates, own, rtol=0, atol=1e-13 if bits is None else 2.0**-fraction * q
                )
                if some.residues is not None:
                    check(some, products, some.parties, bits, fraction)


@KIND
def test_secure_pairs_unmask_nothing(bits, fraction):
    for q, coalition in ((4, 1), (5, 2), (6, 1), (6, 2)):
        pair = secure_pair(q, 0, coalition)
        for some in combinations(range(q), coalition):
            view, products, z = simulate([pair], some, bits, fraction, calls=2)
            assert unmask(view) == () and unmask(view, z) == ()
            if 0 in some:  # the control's control: the total is found, less its own
                (rest,) = partial_sums(view)
                check(rest, products, rest.parties, bits, fraction)
            else:
                assert partial_sums(view) == ()


def test_uniform_masks_hide_perfectly_what_the_test_says_is_hidden():
    # modulo 4, all 256 masks of four parties: what one party receives is distributed alike for any other products that
    # agree in its own and, where it holds the root, in their total
    def received(coalition, products):
        views = []
        for masks in product(range(4), repeat=4):
            hidden = [(a + b) % 4 for a, b in zip(products, masks, strict=True)]
            sums = [oracle.received(tree, numbers, 4) for tree, numbers in zip(FIGURE_5, (hidden, masks), strict=True)]
            seen = [value for sent in sums for key, value in sorted(sent.items()) if key[1] in coalition]
            views.append((*seen, *(masks[p] for p in coalition)))
        return Counter(views)

    first, second = (1, 2, 3, 0), {0: (1, 3, 0, 2), 1: (0, 2, 2, 3), 2: (2, 0, 3, 3), 3: (3, 1, 1, 0)}
    for party in range(4):
        assert received((party,), first) == received((party,), second[party])
    assert received((1, 2), first) != received((1, 2), (1, 2, 3, 1))  # the control: this coalition learns o_3
    assert received((0,), first) != received((0,), (1, 2, 3, 1))  # and the root the total


@KIND
def test_estimates_of_several_dominators_are_joined(bits, fraction):
    pairs = [STARS, secure_pair(4, 1, 2), (aggregation.star(2, 4), aggregation.star(2, 4))]
    view, products, _ = simulate(pairs, (0, 2), bits, fraction, calls=7)
    found = unmask(view)
    assert [some.parties for some in found] == [(1,), (3,)]
    for some in found:
        assert some.updates.tolist() == [0, 2, 3, 5, 6]  # not those of the dominator whose trees are secure
        check(some, products, some.parties, bits, fraction)


def test_z_recovered_from_theta_unmasks_the_root_where_it_is_known():
    view, products, z = simulate([FIGURE_5], (1, 2), 32, 16)
    known = np.where(np.arange(6)[:, None] == 4, np.nan, z)
    found = {some.parties: some for some in unmask(view, known)}
    assert set(found) == {(0,), (3,)} and found[0,].updates.tolist() == [0, 1, 2, 3, 5]
    np.testing.assert_allclose(found[0,].estimates, products[found[0,].updates][..., 0], atol=4 * 2.0**-16)
    assert found[0,].residues is None and found[3,].updates.tolist() == list(range(6))


def test_without_masks_leaf_messages_are_products():
    view, products, _ = simulate([FIGURE_5], (2,), None, 0)
    found = oracle.view_sums(FIGURE_5, (2,), products, np.zeros_like(products))
    bare = view._replace(masks=None, sums=tuple(Sum(*m[:4], np.arange(6), m[4]) for m in found if m[0] == 1))
    (some,) = unmask(bare)
    check(some, products, (3,), None, 0)
    assert unmask(view) == ()


def test_updates_that_lack_a_message_are_left_out():
    view, products, _ = simulate([STARS], (0,), 32, 16)
    late = view.sums[-1]._replace(updates=np.array([1, 2, 5]), values=view.sums[-1].values[[1, 2, 5]])
    found = unmask(view._replace(sums=(*view.sums[:-1], late)))
    for some in found:
        assert some.updates.tolist() == [1, 2, 5]
        check(some, products, some.parties, 32, 16)


@KIND
def test_reused_masks_give_away_changes_and_fresh_ones_do_not(bits, fraction):
    for fresh in (False, True):
        view, products, _ = simulate([FIGURE_5], (2,), bits, fraction, seed=3, fresh=fresh)
        (leaf,) = [some for some in view.sums if some.tree == 1]  # o + delta of party 3
        assert leaf.leaves == (3,)
        found = differences(leaf.values[0], leaf.values[1], view.fraction_bits)
        error = np.abs(found - (products[1] - products[0])[:, 3]).max()
        assert error > 1e-2 if fresh else error <= (1e-14 if bits is None else 2.0**-fraction)


def test_errors_name_the_field():
    view, _, z = simulate([FIGURE_5], (0,), 32, 16)
    with pytest.raises(ValueError, match=r"total: got shape \(6,\)"):
        unmask(view, z[:, 0])
    with pytest.raises(ValueError, match="fraction_bits: got None"):
        differences(np.zeros(2, np.uint32), np.zeros(2, np.uint32))
