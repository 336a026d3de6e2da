"""Tree pairs judged: components of the graph of messages against elimination in fractions; secure pairs."""

from itertools import combinations, permutations
from types import SimpleNamespace

import numpy as np
import pytest

from jaxfed.vertical import aggregation, leakage, secure_trees
from jaxfed.vertical.aggregation import FIGURE_5
from tests.reference import leakage as oracle


def coalitions(num_parties, largest):
    return [c for size in range(1, largest + 1) for c in combinations(range(num_parties), size)]


def agree(pair, coalition, knows_total):
    """What `leaks` names is what elimination finds, and as much of it as there is."""
    found = leakage.leaks(pair, coalition, knows_total)
    seen = oracle.rows(pair, coalition, knows_total)
    assert list(found.parties) == oracle.unmasked(pair, coalition, knows_total)
    assert len(found.sums) == oracle.dimension(pair, coalition, knows_total)
    q = len(seen[0]) // 2
    for some in found.sums:
        assert oracle.determines(seen, [int(p in some) for p in range(q)] + [0] * q)


def random_tree(num_parties, rng):
    """Any rooted tree: each party hangs on one before it, and branches come in any order."""
    names = [0, *(1 + rng.permutation(num_parties - 1)).tolist()]
    arms = {p: [] for p in names}
    for place in range(1, num_parties):
        arms[names[rng.integers(place)]].append(names[place])

    def build(p):
        return (p, *(build(a) for a in arms[p])) if arms[p] else p

    return build(0)


def test_every_pair_of_three_parties_is_judged_as_elimination_does():
    every = oracle.trees([0, 1, 2])
    assert len(every) == 3  # Cayley: q^(q - 2)
    for pair in ((a, b) for a in every for b in every):
        assert leakage.differ(pair) == oracle.significantly_different(pair)
        for coalition in coalitions(3, 3):
            for knows_total in (False, True):
                agree(pair, coalition, knows_total)


def test_random_pairs_of_any_shape_are_judged_as_elimination_does():
    rng = np.random.default_rng(0)
    for trial in range(150):
        q = int(rng.integers(4, 8))
        pair = random_tree(q, rng), random_tree(q, rng)
        coalition = tuple(sorted(rng.choice(q, rng.integers(1, q), replace=False).tolist()))
        agree(pair, coalition, bool(trial % 2))
        assert leakage.differ(pair) == oracle.significantly_different(pair)


def test_figure_5_as_the_paper_says_and_beyond():
    # the paper's parties 1 to 4 are 0 to 3: its {2, 3} learns o_4 (its example), and {1, 4} learns o_2 and o_3
    assert leakage.differ(FIGURE_5)
    found = {row.coalition: row.parties for row in leakage.table(FIGURE_5, 2).rows if row.parties}
    assert found == {(1, 2): (3,), (0, 3): (1, 2)}
    assert leakage.resists(FIGURE_5) and not leakage.resists(FIGURE_5, 2)
    assert leakage.leaks(FIGURE_5, (1, 2), knows_total=True).parties == (0, 3)  # z, recovered from theta, adds o_1


def test_the_table_counts_and_prints():
    table = leakage.table(FIGURE_5)
    shares = table.shares()
    assert shares["size"] == [1, 2, 3] and shares["coalitions"] == [4, 6, 4]
    assert shares["unmasking"] == [0, 2, 0] and shares["trivial"] == [0, 0, 3]  # three of four hold the root
    assert shares["share_unmasking"] == [0, 2 / 6, 0]
    text = str(table)
    assert "{1, 2} unmasks 3\n" in text and "{0, 3} unmasks 1, 2\n" in text and "Definition 4: met" in text
    assert "{0, 1, 3} unmasks 2 (trivial: it lacks only that party)" in text
    columns = table.columns()
    assert {len(column) for column in columns.values()} == {14}
    assert columns["parties"][columns["coalition"].index((0, 3))] == (1, 2)


def test_partial_sums_are_told_from_products():
    pair = (0, (1, 2), (3, 4)), (0, (2, 1), (4, 3))  # the root learns two sums of two, no product
    found = leakage.leaks(pair, 0)
    assert found.sums == ((1, 2), (3, 4)) and found.parties == () and found.surplus == 1 and not found.trivial
    assert not leakage.differ(pair) and "sums over 1+2, 3+4" in str(leakage.table(pair, 1))
    assert leakage.table(pair, 1).shares()["learning"] == [1] and leakage.table(pair, 1).shares()["unmasking"] == [0]


@pytest.mark.parametrize("q", [3, 4, 5, 6])
def test_stars_and_chains_pass_definition_4_and_the_root_unmasks_everybody(q):
    everybody = tuple(range(1, q))
    star = aggregation.star(0, q)
    chains = [(aggregation.chain([0, *order]), aggregation.chain([0, *order[::-1]]))
              for order in permutations(range(1, q))]  # fmt: skip
    assert len(chains) == {3: 2, 4: 6, 5: 24, 6: 120}[q]
    for pair in [(star, star), *chains]:
        assert leakage.differ(pair)
        assert leakage.leaks(pair, 0).parties == everybody and oracle.dimension(pair, (0,)) == q - 1
        assert not any(leakage.leaks(pair, party).parties for party in everybody)  # to the root alone


def test_definition_4_is_neither_sufficient_nor_necessary():
    balanced = ((0, 1), 2), ((0, 2), 1)
    assert leakage.differ(balanced) and leakage.leaks(balanced, 0).parties == (1, 2)
    paths = (0, (1, 2)), (0, (2, 1))
    assert not leakage.differ(paths) and leakage.resists(paths)
    assert not any(oracle.unmasked(paths, (party,)) for party in range(3))


def test_definition_4_protects_from_single_parties_only_some_balanced_pairs():
    # with five parties the third leaf hands its number to the root by itself; with four or eight none does unless the
    # two of them are a subtree, which Definition 4 forbids in both trees
    pair = aggregation.balanced([0, 1, 2, 3, 4]), aggregation.balanced([0, 3, 2, 1, 4])
    assert pair == ((((0, 1), 2), (3, 4)), (((0, 3), 2), (1, 4)))
    assert leakage.differ(pair) and oracle.unmasked(pair, (0,)) == [2] and leakage.leaks(pair, 0).parties == (2,)
    equal = aggregation.balanced([0, 1, 2, 3]), aggregation.balanced([0, 1, 3, 2])
    assert not leakage.differ(equal) and leakage.leaks(equal, 0).parties == (1,)


def test_two_parties_cannot_be_protected():
    assert leakage.leaks(((0, 1), (0, 1)), 0) == leakage.Leaks((0,), True, ((1,),))
    assert oracle.trees([0, 1]) == [(0, 1)] and oracle.unmasked(((0, 1), (0, 1)), (0,)) == [1]


def test_random_balanced_pairs_of_four_by_hand():
    # T1 = ((0, a), (b, c)). Definition 4 leaves four T2 (the first leaf is b or c, then either order): one makes a ring
    # of messages, in which two pairs of parties unmask others, three a ring with a chord, in which one pair does
    shares = []
    for first in permutations((1, 2, 3)):
        for second in permutations((1, 2, 3)):
            pair = aggregation.balanced([0, *first]), aggregation.balanced([0, *second])
            if leakage.differ(pair):
                found = leakage.table(pair, 2).shares()
                assert found["unmasking"][0] == 0
                shares.append(found["share_unmasking"][1])
    assert len(shares) == 24 and np.isclose(np.mean(shares), (2 + 1 + 1 + 1) / 24)


@pytest.mark.parametrize("q, expected", [(4, 0.23), (8, 0.10), (16, 0.04)])
def test_random_balanced_pairs_leak_to_pairs_of_parties(q, expected):
    # of 20 random pairs that meet Definition 4: coalitions of two that unmask a third party, of all such coalitions
    rng, shares = np.random.default_rng(q), []
    while len(shares) < 20:
        pair = aggregation.random_pair(q, 0, rng)
        if leakage.differ(pair):
            found = leakage.table(pair, 2).shares()
            assert found["unmasking"][0] == 0, "a single party unmasks another"
            shares.append(found["share_unmasking"][1])
    assert abs(np.mean(shares) - expected) < 3 * np.std(shares) / np.sqrt(20) + 0.005


@pytest.mark.parametrize(
    "q, coalition", [(3, 1), (4, 1), (5, 1), (7, 1), (8, 1), (16, 1), (4, 2), (5, 2), (6, 2), (7, 2), (8, 2), (11, 2)]
)
def test_secure_pairs_hide_all_but_the_total(q, coalition):
    for seed in range(3):
        root = (seed * 5) % q
        pair = secure_trees.secure_pair(q, root, coalition, seed)
        assert leakage.leaks(pair, root).knows_total and leakage.differ(pair)
        assert pair == secure_trees.secure_pair(q, root, coalition, seed)
        assert max(map(aggregation.depth, pair)) <= (3 if coalition == 2 else max(3, np.ceil(np.log2(q))))
        for some in coalitions(q, coalition)[:: max(1, q // 5)]:
            assert oracle.dimension(pair, some) == (root in some) and not oracle.unmasked(pair, some)
            assert oracle.dimension(pair, some, knows_total=True) == 1


def test_a_pair_per_dominator():
    party = SimpleNamespace(num_parties=6, active=(0, 4))
    found = secure_trees.pairs(party, coalition=2, seed=3)
    assert found == secure_trees.pairs((6, (0, 4)), coalition=2, seed=3)
    assert [aggregation.leaves(pair[0])[0] for pair in found] == [0, 4]
    assert found[0] != secure_trees.pairs(party, coalition=2, seed=4)[0]
    assert all(leakage.resists(pair, 2) for pair in found)


@pytest.mark.parametrize("q, coalition, why", [(2, 1, "subtract"), (3, 2, "subtract"), (5, 4, "subtract"),
                                               (5, 3, "three neighbours"), (9, 3, "three neighbours")])  # fmt: skip
def test_where_no_pair_exists_it_is_said_why(q, coalition, why):
    with pytest.raises(ValueError, match=f"coalition: got {coalition}, .*{why}.*no pair exists"):
        secure_trees.secure_pair(q, 0, coalition)


def test_no_pair_of_trees_resists_three_parties():
    # exhaustion up to five parties: a pair of trees, and three parties that unmask one of the other two by elimination
    every = oracle.trees([0, 1, 2, 3, 4])
    assert len(every) == 125
    graphs = []
    for tree in every:
        around = np.zeros((5, 5), bool)
        for sender, receiver, _ in oracle.messages(tree)[0]:
            around[sender, receiver] = around[receiver, sender] = True
        graphs.append(around)
    degrees = [(a | b)[1:].sum(1).min() for a in graphs for b in graphs]
    assert max(degrees) == 3  # so some other party than the root always has at most three neighbours ...
    rng = np.random.default_rng(0)
    for a, b in rng.integers(125, size=(60, 2)):  # ... which are a coalition that unmasks it
        party = 1 + int((graphs[a] | graphs[b])[1:].sum(1).argmin())
        own = tuple(np.flatnonzero((graphs[a] | graphs[b])[party]).tolist())
        assert party in oracle.unmasked((every[a], every[b]), own)


@pytest.mark.parametrize("call, message", [
    (lambda: leakage.leaks(FIGURE_5, ()), r"coalition: got \[\]"),
    (lambda: leakage.leaks(FIGURE_5, (1, 4)), r"coalition: got \[1, 4\], wanted at least one of the parties 0 to 3"),
    (lambda: leakage.leaks(FIGURE_5, (-1,)), "coalition: got -1"),
    (lambda: leakage.leaks(((0, 1), (1, 0)), 0), "T2: got root 1, wanted party 0"),
    (lambda: leakage.leaks(((0, 1), (0, 1, 2)), 0), "T2: got leaves"),
    (lambda: leakage.leaks(FIGURE_5, 0, 1), "knows_total: got 1"),
    (lambda: leakage.table(FIGURE_5, 0), "largest: got 0"),
    (lambda: secure_trees.secure_pair(4, 4), "root: got 4, wanted 0 to 3"),
    (lambda: secure_trees.secure_pair(1, 0), "num_parties: got 1"),
    (lambda: secure_trees.secure_pair(4, 0, 0), "coalition: got 0"),
])  # fmt: skip
def test_errors_name_the_field(call, message):
    with pytest.raises(ValueError, match=message):
        call()
