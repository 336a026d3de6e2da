"""A view holds what its parties have and received, and nothing else: every field, for all coalitions and runs."""

import numpy as np
import pytest

import jaxfed as jf
from jaxfed import privacy
from jaxfed.nodes import PyTreeNode
from jaxfed.privacy import View
from jaxfed.vertical import BilevelAsync, Objective, SecureAggregation
from tests.vertical_support import federation

SIZES, ACTIVE = (3, 1, 4, 2), (0, 2)
FORMS = {form: federation(sparse=form == "sparse") for form in ("dense", "sparse")}
KNOWN = dict(loss="logistic", regularizer="l2", l2=0.05, lr=0.1, batch_size=2, num_parties=4)


class OnlyMeans(PyTreeNode):
    """Theta as it is; parties receive only what they need of it."""

    aggregates = True

    def draw(self, key, row_key, y):
        """Nothing."""
        return ()

    def release(self, theta, y, drawn):
        """Theta."""
        return theta


def recorded(form="dense", **options):
    party = FORMS[form][0]
    algorithm = jf.VFB2SVRG(Objective("logistic", "l2", 0.05), batch_size=2, epoch_length=15, **options)
    scheduler = BilevelAsync(party, link=0.3, jitter=0.3)
    return privacy.record(0, algorithm, party, scheduler=scheduler, num_rounds=60, window=(20, 60))


@pytest.fixture(scope="module")
def seen():
    """Runs by what protects them."""
    return {
        "plain": recorded(),
        "sparse": recorded("sparse"),
        "masks": recorded(secure=SecureAggregation(bits=32)),
        "float masks": recorded(secure=SecureAggregation(bits=None, scale=8.0)),
        "means": recorded(defence=OnlyMeans(), secure=SecureAggregation(bits=64)),
        "means, no backward": recorded(defence=OnlyMeans(), backward=False),
        "no backward": recorded(backward=False),
    }


COALITIONS = [(0,), (1,), (2,), (1, 3), (0, 3), (0, 2), (0, 1, 2, 3)]


@pytest.mark.parametrize(
    "run", ["plain", "sparse", "masks", "float masks", "means", "means, no backward", "no backward"]
)
@pytest.mark.parametrize("own", COALITIONS)
def test_every_field(seen, run, own):
    truth = seen[run]
    view = truth.view(own[0] if len(own) == 1 else own[::-1])
    _, blocks, y = FORMS["sparse" if run == "sparse" else "dense"]
    expected = {}
    active = [p for p in own if p in ACTIVE]
    told = bool(active) or "no backward" not in run
    mine = np.isin(truth.dominator, active)
    masked = run in ("masks", "float masks", "means")

    # its own
    expected["parties"], expected["x"] = own, np.hstack([blocks[p] for p in own])
    weights = np.asarray(truth.weights)
    by_party = (
        np.split(weights, np.cumsum(SIZES)[:-1]) if run == "sparse" else [weights[p, : SIZES[p]] for p in range(4)]
    )
    expected["w"] = np.concatenate([by_party[p] for p in own])
    expected["labels"] = y if active else None
    expected["products"] = truth.products[:, :, own]
    expected["masks"] = truth.masks[:, :, own] if masked else None

    # what all know of each update: that it is asked for, and what the protocol fixes
    for name in ("tick", "time", "dominator", "update", "rows"):
        expected[name] = getattr(truth, name)
    expected |= KNOWN | {"fraction_bits": {"masks": 20, "means": 32}.get(run)}

    # what it is sent
    expected["scores"] = np.where(mine[:, None], truth.scores, np.nan)
    only_means = run.startswith("means")
    expected["theta"] = truth.theta if told else None
    if only_means:
        expected["theta"] = np.where(mine[:, None], truth.theta, np.nan) if active else None
    expected["gradients"] = None
    if only_means and told:
        means = [sum(t * expected["x"][i] for t, i in zip(*both, strict=True)) / 2
                 for both in zip(truth.theta, truth.rows, strict=True)]  # fmt: skip
        expected["gradients"] = np.array(means)
    passes = truth.passes if told and not only_means else ()
    assert len(truth.passes) >= 2
    for name in View._fields:
        if name in ("sums", "passes"):
            continue
        got, wanted = getattr(view, name), expected.pop(name)
        assert (got is None) == (wanted is None), name
        if got is not None and isinstance(got, np.ndarray):
            np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-6, err_msg=name)
        else:
            assert got == (pytest.approx(wanted, rel=1e-7) if name == "lr" else wanted), name  # float32's 0.1
    assert not expected, "a field that views lack"
    assert [each.tick for each in view.passes] == [each.tick for each in passes]
    for got, wanted in zip(view.passes, passes, strict=True):
        np.testing.assert_array_equal(got.theta, wanted.theta)
        np.testing.assert_array_equal(got.scores, wanted.scores if active else np.full_like(wanted.scores, np.nan))

    # what comes over edges: to a member, of the dominators' own updates
    edges = set()
    for each in view.sums:
        assert each.receiver in own
        dominators = set(truth.dominator[each.updates].tolist())
        assert len(dominators) == 1
        edges.add((dominators.pop(), each.tree, each.sender, each.receiver, each.leaves))
        np.testing.assert_array_equal(each.updates, np.flatnonzero(truth.dominator == truth.dominator[each.updates[0]]))
    assert len(edges) == len(view.sums)
    if not masked:
        assert edges == {(a, 1, p, a, (p,)) for a in active for p in range(4) if p != a}
        for each in view.sums:
            np.testing.assert_array_equal(each.values, truth.products[each.updates][:, :, each.sender])
        return
    found = {(a, tree, *edge) for a, pair in zip(ACTIVE, truth.trees, strict=True) for tree, t in enumerate(pair, 1)
             for edge in jf.vertical.aggregation.edges(t)}  # fmt: skip
    assert edges == {edge for edge in found if edge[3] in own}


def test_nothing_of_the_others_is_in_a_passive_view(seen):
    """No product, weight or mask of another party, and no z, is in any array of party 1."""
    truth = seen["masks"]
    view = truth.view(1)
    secret = [*np.ravel(truth.products[:, :, [0, 2, 3]]), *np.ravel(truth.scores), *np.ravel(truth.weights[[0, 2, 3]])]
    secret = np.array([x for x in secret if x != 0])
    shown = [
        np.ravel(np.asarray(x, float))
        for x in (view.theta, view.products, view.x, view.w, *(p.theta for p in view.passes))
    ]
    assert not np.isin(secret, np.concatenate(shown)).any()
    for dominator in ACTIVE:
        sums = [some for some in view.sums if some.tree == 2 and truth.dominator[some.updates[0]] == dominator]
        received = np.concatenate([np.ravel(some.values) for some in sums] + [np.zeros(0, np.uint32)])
        singles = {some.leaves[0] for some in sums if len(some.leaves) == 1}
        others = [p for p in (0, 2, 3) if p not in singles]
        assert others and not np.isin(truth.masks[truth.dominator == dominator][:, :, others], received).any()
