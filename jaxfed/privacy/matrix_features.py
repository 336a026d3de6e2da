"""Rows of the attack matrix: what active parties and coalitions learn of the others' features and products."""

import math
from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np

from jaxfed import steps
from jaxfed.privacy import features, gram, reconstruction, unmask
from jaxfed.privacy.matrix import Row
from jaxfed.privacy.runs import Runs
from jaxfed.privacy.transcript import Transcript, View
from jaxfed.vertical import VFB2SGD, VFB2SVRG, BilevelAsync, Epochs, SecureAggregation, Synchronous, leakage, split
from jaxfed.vertical.aggregation import star
from jaxfed.vertical.blocks import matrix

INF = math.inf
ALL, NONE = (1.0, 1.0), (0.0, 0.0)
FEW = 40  # rows on which a Gram matrix is solved row by row
FEW_EPOCHS = 600


def equality(runs: Runs) -> list[Row]:
    """Features of a passive party whose weights are known, from one score a sample (a model that was released)."""
    rows = []
    x = matrix(runs.some_rows(np.arange(runs.train.num_rows)).blocks)  # of dense blocks
    for width in (w for w in (1, 4) if w < x.shape[1]):
        hidden = np.arange(x.shape[1] - width, x.shape[1])
        train = _two_parties(runs, hidden)
        transcript = runs.record(_sgd(runs), train, Synchronous(train), Epochs(1))
        w = np.asarray(transcript.weights)[1, :width].astype(float)
        z = np.asarray(train.blocks.scores(transcript.weights), float)
        own = matrix(train.blocks)[:, :-width] @ np.asarray(transcript.weights)[0, : x.shape[1] - width].astype(float)
        every = np.arange(len(x))
        found = features.Outputs(every, z - own, np.broadcast_to(w, (len(x), width)))
        true = x[:, hidden]
        got = features.feature_error(features.solve(found, "least").features, true).mean()
        mean = features.feature_error(np.broadcast_to(true.mean(0), true.shape), true).mean()
        needs = f"passive weights, final scores; {width} passive feature{'s' * (width > 1)}"
        region = (0, 1e-6) if width == 1 else None
        rows.append(Row("equality", "active party 0", needs, "mean squared error of features", float(got), float(mean),
                        "column means", region, None))  # fmt: skip
    return rows


def inner_products(runs: Runs) -> list[Row]:
    """The sum over the other parties of their Gram matrices, from scores before and after updates: masks don't help."""
    few = runs.some_rows(np.arange(min(FEW, runs.train.num_rows)))
    who, rows = runs.train.active[0], []
    for name, scheduler in (("synchronous", Synchronous(few)), ("asynchronous", BilevelAsync(few))):
        transcript = runs.record(_sgd(runs, runs.algorithm.secure), few, scheduler, Epochs(FEW_EPOCHS))
        view, true = transcript.view(who), _others(few, (who,))
        known = {} if name == "synchronous" else {"applied": transcript.applied, "read": transcript.read}
        got = _gram_error(view, true, known)
        wrong = view._replace(theta=np.random.default_rng(runs.seed).permutation(view.theta))
        needs = f"{FEW} rows, {FEW_EPOCHS} epochs" + (", when parties applied" if known else "")
        rows.append(Row(f"Gram, {name}", f"dominator {who}", needs, "relative error of inner products", got,
                        _gram_error(wrong, true, known), "thetas shuffled", (0, 1e-3), (0.5, INF)))  # fmt: skip
    return rows


def reference_points(runs: Runs) -> list[Row]:
    """The same from SVRG's full passes, for all rows, and the features themselves from some that are known."""
    who = runs.train.active[0]
    others = runs.train.num_features - runs.train.sizes[who]
    algorithm = VFB2SVRG(runs.algorithm.objective, lr=steps.initial(runs.algorithm.lr), secure=runs.algorithm.secure)
    transcript = runs.record(algorithm, None, None, Epochs(2 * others))
    view, true = transcript.view(who), _others(runs.train, (who,))
    options: dict[str, Any] = dict(
        method="svrg", applied=transcript.applied, read=transcript.read, rank=others, at_zero=True
    )
    got = gram.from_passes(view, **options).gram
    wrong = view._replace(theta=np.random.default_rng(runs.seed).permutation(view.theta))
    bad = gram.from_passes(wrong, **options).gram
    x, known = _columns(runs.train, (who,)), range(others)
    back = reconstruction.from_anchors(got, {row: x[row] for row in known})
    lost = reconstruction.from_anchors(bad, {row: x[row] for row in known})
    rest, error = slice(others, None), _relative(got, true)
    # solving for features magnifies the error of their products; beyond a half nothing would be claimed
    amplified = min(error * float(np.linalg.cond(x[:others])), 0.5)
    return [
        Row("Gram, SVRG's passes", f"dominator {who}", f"{2 * others} epochs, when parties applied",
            "relative error of inner products", error, _relative(bad, true), "thetas shuffled",
            (0, 1e-2), (0.5, INF)),
        Row("anchors", f"dominator {who}", f"the above, and the features of {others} rows",
            "relative error of other rows' features", _relative(back[rest], x[rest]), _relative(lost[rest], x[rest]),
            "thetas shuffled", (0, amplified), (0.5, INF)),
    ]  # fmt: skip


def unmasking(runs: Runs) -> list[Row]:
    """Others' products from what a coalition received over the trees: of the run's, and of stars, at the root."""
    q, root = runs.train.num_parties, runs.train.active[0]
    secure = runs.algorithm.secure or SecureAggregation()
    stars = tuple((star(a, q), star(a, q)) for a in runs.train.active)
    starred, masked = (
        runs.record(runs.algorithm.replace(secure=each), num_rounds=Epochs(1))
        for each in (secure.replace(trees=stars), secure)
    )
    metric, rows = "share of others' products found", []
    rows.append(
        Row("unmasking", f"dominator {root}", "its messages over two stars", metric, _unmasked(starred, (root,), root),
            _unmasked(masked, (root,), root), "the run's trees", ALL, ALL if q == 2 else NONE)
    )  # fmt: skip
    for size in range(1, min(q, 4)):  # of two parties neither hides from the other: no trees do
        found = [_unmasked(masked, coalition) for coalition in combinations(range(q), size)]
        needs = "messages over the run's trees"
        rows.append(Row("unmasking", f"{size} of {q} parties", needs, f"{metric}, mean over coalitions",
                        float(np.mean(found)), _judged(runs, secure, size), "the rank test",
                        NONE if size == 1 and q > 2 and secure.trees is None else None, None))  # fmt: skip
    return rows


def _judged(runs: Runs, secure: SecureAggregation, size: int) -> float:
    """Return the same share as the rank test foretells, all dominators being equally busy."""
    q, shares = runs.train.num_parties, []
    for pair in secure.pairs(runs.train):
        for coalition in combinations(range(q), size):
            shares.append(len(leakage.leaks(pair, coalition).parties) / (q - size))
    return float(np.mean(shares))


def _unmasked(transcript: Transcript, coalition: tuple[int, ...], dominator: int | None = None) -> float:
    """Return the share of other parties' products that a coalition finds to a thousandth (of one's updates)."""
    others = [p for p in range(transcript.products.shape[2]) if p not in coalition]
    found = np.zeros(transcript.products.shape, bool)
    for each in unmask.unmask(transcript.view(coalition)):
        true = transcript.products[each.updates][:, :, each.parties[0]]
        close = np.abs(each.estimates - true) <= 1e-3 * max(float(np.abs(true).max(initial=0)), 1.0)
        found[np.asarray(each.updates)[:, None], np.arange(true.shape[1]), each.parties[0]] |= close
    mine = slice(None) if dominator is None else transcript.dominator == dominator
    return float(found[mine][:, :, others].mean())


def _gram_error(view: View, true: np.ndarray, known: dict) -> float:
    found = gram.attack(view, at_zero=True, **known)
    samples, estimate, determined = gram.both_ways(found)
    if not determined.any():
        return math.inf
    return _relative(estimate[determined], true[np.ix_(samples, samples)][determined])


def _relative(estimate: np.ndarray, true: np.ndarray) -> float:
    return float(np.linalg.norm(estimate - true) / np.linalg.norm(true))


def _columns(party, own: tuple[int, ...]) -> np.ndarray:
    """Return the features [n, d] of all other parties than some."""
    first = np.cumsum((0, *party.sizes))
    index = [np.arange(first[p], first[p + 1]) for p in range(party.num_parties) if p not in own]
    x = matrix(party.blocks)[:, np.concatenate(index)]
    return np.asarray(x.toarray() if hasattr(x, "toarray") else x, float)


def _others(party, own: tuple[int, ...]) -> np.ndarray:
    x = _columns(party, own)
    return x @ x.T


def _two_parties(runs: Runs, hidden: np.ndarray):
    """Return the training rows between an active party and one with some columns, of all in concatenated order."""
    x = matrix(runs.train.blocks)
    shown = np.setdiff1d(np.arange(x.shape[1]), hidden)
    return split(x, runs.labels, columns=[shown.tolist(), hidden.tolist()])


def _sgd(runs: Runs, secure: SecureAggregation | None = None) -> VFB2SGD:
    """Return plain SGD for the run's problem."""
    return VFB2SGD(runs.algorithm.objective, lr=steps.initial(runs.algorithm.lr), secure=secure)


ATTACKS: dict[str, Callable[[Runs], list[Row]]] = {
    "equality": equality, "gram": inner_products, "passes": reference_points, "unmasking": unmasking,
}  # fmt: skip
