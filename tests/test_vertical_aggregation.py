"""The trees of secure aggregation against messages passed between parties one by one (`tests.reference.secure`)."""

import math

import numpy as np
import pytest

from jaxfed.vertical import aggregation as trees
from tests.reference.secure import aggregation_time, tree_sum

SIZES = pytest.mark.parametrize("q", range(1, 10))


def shapes(q, seed=0):
    """A tree of each kind, with a random order of leaves where that is asked for, and ragged ones."""
    rng = np.random.default_rng((seed, q))
    order = rng.permutation(q).tolist()
    return {
        "balanced": trees.balanced(order),
        "star": trees.star(order[0], q),
        "chain": trees.chain(order),
        "path": trees.path(order),
        "first of a random pair": trees.random_pair(q, order[0], rng)[0],
        "ragged": ragged(rng, order),
    }


def ragged(rng, order):
    if len(order) == 1:
        return order[0]
    cuts = np.sort(rng.choice(np.arange(1, len(order)), rng.integers(1, len(order)), replace=False))
    return tuple(ragged(rng, part.tolist()) for part in np.split(np.array(order), cuts))


def height(tree):
    return 1 + max(map(height, tree)) if isinstance(tree, tuple) else 0


def messages(tree, q):
    """{(sender, receiver, leaves)} as the oracle passes them; a party's number is its own bit."""
    total, sent = tree_sum(tree, [1 << p for p in range(q)], lambda a, b: a + b)
    assert total == (1 << q) - 1
    assert all(m.value == sum(1 << p for p in m.leaves) for m in sent)
    return {m[:3] for m in sent}


@SIZES
def test_edges_are_the_messages_that_parties_send(q):
    for seed in range(3):
        for name, tree in shapes(q, seed).items():
            edges = trees.edges(tree)
            assert len(edges) == q - 1
            assert {tuple(edge) for edge in edges} == messages(tree, q), name


@SIZES
def test_edges_come_after_those_that_they_wait_for(q):
    """In their order, one number a party is enough: what a sender has by then is the sum over the edge's leaves."""
    for name, tree in shapes(q).items():
        held = [{p} for p in range(q)]
        for sender, receiver, leaves in trees.edges(tree):
            assert held[sender] == set(leaves), name
            held[receiver] |= held[sender]
            held[sender] = set()  # whoever has sent has nothing more to say
        assert held[trees.leaves(tree)[0]] == set(range(q))


@SIZES
def test_additions_in_the_order_of_the_edges_are_those_of_the_loops(q):
    """Bit by bit in float32."""
    numbers = (np.random.default_rng(q).normal(size=q) * 10.0 ** np.arange(q)).astype(np.float32)
    for name, tree in shapes(q).items():
        held = list(numbers)
        for sender, receiver, _ in trees.edges(tree):
            held[receiver] = held[receiver] + held[sender]
        assert held[trees.leaves(tree)[0]] == tree_sum(tree, list(numbers), lambda a, b: a + b)[0], name


@SIZES
def test_depth_is_the_time_of_links_that_take_one_second(q):
    for name, tree in shapes(q).items():
        assert trees.depth(tree) == aggregation_time((tree, tree), [0] * q, [1] * q, [1] * q), name
    order = list(range(q))
    assert height(trees.balanced(order)) == math.ceil(math.log2(q))
    assert trees.depth(trees.balanced(order)) == math.floor(math.log2(q))  # of ((0, 1), 2) 1: 0 gets both at once
    assert trees.depth(trees.path(order)) == q - 1
    assert trees.depth(trees.star(0, q)) == trees.depth(trees.chain(order)) == min(q - 1, 1)


@SIZES
def test_leaves_and_builders(q):
    rng = np.random.default_rng(q)
    order = rng.permutation(q).tolist()
    for build in (trees.balanced, trees.chain, trees.path):
        assert trees.leaves(build(order)) == tuple(order)
    rest = tuple(p for p in range(q) if p != order[0])
    assert trees.leaves(trees.star(order[0], q)) == (order[0], *rest)
    for tree in shapes(q).values():
        trees.check_tree("tree", tree, q)
        trees.check_tree("tree", tree, q, root=trees.leaves(tree)[0])


def test_builders_by_hand():
    assert trees.balanced([3, 1, 2, 0]) == ((3, 1), (2, 0))
    assert trees.balanced([4, 3, 2, 1, 0]) == (((4, 3), 2), (1, 0))
    assert trees.star(2, 4) == (2, 0, 1, 3)
    assert trees.chain([2, 0, 1, 3]) == (((2, 0), 1), 3)
    assert trees.path([2, 0, 1, 3]) == (2, (0, (1, 3)))
    assert trees.balanced([5]) == trees.chain([5]) == trees.path([5]) == 5 and trees.star(0, 1) == 0
    assert trees.edges(0) == [] and trees.depth(0) == 0 and trees.leaves(7) == (7,)
    assert trees.edges(trees.FIGURE_5[0]) == [(1, 0, (1,)), (3, 2, (3,)), (2, 0, (2, 3))]
    assert set(trees.edges(trees.FIGURE_5[1])) == {(2, 0, (2,)), (3, 1, (3,)), (1, 0, (1, 3))}


def test_chain_and_star_send_every_number_by_itself_and_a_path_only_the_last():
    for q in range(2, 10):
        single = {(p, 0, (p,)) for p in range(1, q)}
        assert messages(trees.star(0, q), q) == messages(trees.chain(list(range(q))), q) == single
        tails = {(p, p - 1, tuple(range(p, q))) for p in range(1, q)}
        assert messages(trees.path(list(range(q))), q) == tails


@SIZES
def test_subtrees_are_what_their_holders_have_summed_up(q):
    """With more than one leaf: each party's number together with the branches added so far, level by level."""
    for name, tree in shapes(q).items():
        got = list(trees.subtrees(tree))
        assert all(len(leaves) > 1 and list(leaves) == sorted(leaves) for leaves in got), name
        sent = {edge.leaves for edge in trees.edges(tree) if len(edge.leaves) > 1}
        assert sent | ({tuple(range(q))} if q > 1 else set()) <= set(got), name
    assert list(trees.subtrees(((0, 3), (2, 1), 4))) == [(0, 1, 2, 3, 4), (0, 3), (1, 2)]
    assert list(trees.subtrees((((2, 0), 1), 3))) == [(0, 1, 2, 3), (0, 1, 2), (0, 2)]
    assert list(trees.subtrees(0)) == []


@SIZES
def test_random_pairs(q):
    for root in range(q):
        first, second = pair = trees.random_pair(q, root, np.random.default_rng((q, root)))
        assert pair == trees.random_pair(q, root, np.random.default_rng((q, root)))
        for tree in pair:
            trees.check_tree("tree", tree, q, root)
            assert height(tree) == math.ceil(math.log2(q))
            assert all(type(leaf) is int for leaf in trees.leaves(tree))
        if q > 7:
            assert first != second, "6! orders or more: equal ones are a fault"


def test_random_pairs_are_uniform_and_independent():
    """Of q = 4 with root 0: 6 orders each, 36 pairs; 3,600 draws, chi squared with 35 degrees of freedom below 80."""
    rng, counts = np.random.default_rng(0), {}
    for _ in range(3600):
        pair = trees.random_pair(4, 0, rng)
        counts[pair] = counts.get(pair, 0) + 1
    assert len(counts) == 36
    assert sum((count - 100) ** 2 / 100 for count in counts.values()) < 80  # exceeded by chance in 2 of 100,000 seeds


@pytest.mark.parametrize(
    "tree, message",
    [
        ((0, (1, ())), "an empty branch"),
        ((), "an empty branch"),
        ((0, 1, 2.0), "2.0"),
        ((0, [1, 2]), "nested tuples of party numbers"),
        ((0, True, 2), "True"),
        ((0, "1", 2), "nested tuples"),
        ((0, None), "None"),
        ((0, 1), r"leaves \(0, 1\), wanted each of the parties 0 to 2 once"),
        ((0, 1, 1, 2), "once"),
        ((0, 1, 3), "parties 0 to 2"),
        ((0, -1, 2), "parties 0 to 2"),
        (0, "parties 0 to 2"),
        (((1, 0), 2), "root 1, wanted party 0, the dominator"),
    ],
)
def test_trees_that_are_refused(tree, message):
    with pytest.raises(ValueError, match=rf"^trees\[0\]: got .*{message}"):
        trees.check_tree("trees[0]", tree, 3, root=0)


def test_trees_that_are_not_refused():
    for tree in ((0, 1, 2), ((0, 2), 1), (((0,), 1), (2,)), (np.int64(0), 1, np.int8(2))):
        trees.check_tree("tree", tree, 3, root=0)
    trees.check_tree("tree", ((1, 0), 2), 3)
    trees.check_tree("tree", 0, 1, root=0)


def test_random_pairs_that_are_refused():
    for q in (0, -1, 2.0, True):
        with pytest.raises(ValueError, match="^num_parties: got"):
            trees.random_pair(q, 0, np.random.default_rng(0))
