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
LOOSE = 0.1  # the penalty of a model that cannot fit its rows


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
    """The sum over the other parties of their Gram matrices, from scores before and after updates: masks don't help.

    And their features, from those of some rows: solving for them magnifies the error by the condition of these. A model
    that fits its rows stops moving, and tells no more: so the penalty is such that it keeps moving, and how much the
    run's own tells is beside it.
    """
    few = runs.some_rows(np.arange(min(FEW, runs.train.num_rows)))
    who, rows, x = runs.train.active[0], [], _columns(few, runs.train.active[:1])
    told = f"{len(x)} rows, {FEW_EPOCHS} epochs, l2 {LOOSE:g}"
    loose = _sgd(runs, runs.algorithm.secure, LOOSE)
    for scheduler, name in ((Synchronous(few), "synchronous"), (BilevelAsync(few), "asynchronous")):
        transcript = runs.record(loose, few, scheduler, Epochs(FEW_EPOCHS))
        view = transcript.view(who)
        both = view, view._replace(theta=np.random.default_rng(runs.seed).permutation(view.theta))
        times = {} if name == "synchronous" else {"applied": transcript.applied, "read": transcript.read}
        row = lambda attack, needs, metric, pair, expected, chance: Row(  # noqa: E731
            attack, f"dominator {who}", needs, metric, pair[0], pair[1], "thetas shuffled", expected, chance
        )
        found = [_solved(each, **times) for each in both]
        errors = [_relative(each, x @ x.T) for each in found]
        needs = told + (", when parties applied" if times else "")
        rows.append(row(f"Gram, {name}", needs, "relative error of inner products", errors, (0, 1e-3), (0.5, INF)))
        if times:  # without them: taken to be the completion's, and only what stands out of that error is used
            alike = [float(np.corrcoef(_solved(each, rcond=0.01).ravel(), (x @ x.T).ravel())[0, 1]) for each in both]
            rows.append(row(f"Gram, {name}", told, "correlation of inner products", alike, (0.3, 1.0), (-0.2, 0.2)))
        else:
            known = {i: x[i] for i in range(min(x.shape[1] + 4, len(x) - 1))}
            back = [reconstruction.from_anchors(each, known)[len(known) :] for each in found]
            # beyond a half nothing would be claimed: features without any inner products are as near
            amplified = min(errors[0] * float(np.linalg.cond(x[: len(known)])), 0.5)
            rows.append(row("anchors", f"the above, and the features of {len(known)} rows",
                            "relative error of other rows' features", [_relative(b, x[len(known) :]) for b in back],
                            (0, amplified), (0.5, INF)))  # fmt: skip
            own = runs.record(_sgd(runs, runs.algorithm.secure), few, scheduler, Epochs(FEW_EPOCHS)).view(who)
            shares = [float(gram.both_ways(gram.attack(each, at_zero=True))[2].mean()) for each in (own, view)]
            needs, metric = f"{len(x)} rows, {FEW_EPOCHS} epochs, the run's l2", "share of inner products determined"
            rows.append(Row(f"Gram, {name}", f"dominator {who}", needs, metric, shares[0], shares[1],
                            f"l2 {LOOSE:g}", None, ALL))  # fmt: skip
    return rows


def reference_points(runs: Runs) -> list[Row]:
    """The same for all rows, from the scores of SVRG's full passes."""
    who = runs.train.active[0]
    x = _columns(runs.train, (who,))
    algorithm = VFB2SVRG(runs.algorithm.objective, lr=steps.initial(runs.algorithm.lr), secure=runs.algorithm.secure)
    transcript = runs.record(algorithm, num_rounds=Epochs(2 * x.shape[1]))
    view = transcript.view(who)
    both = view, view._replace(theta=np.random.default_rng(runs.seed).permutation(view.theta))
    known: dict[str, Any] = dict(applied=transcript.applied, read=transcript.read, rank=x.shape[1])
    got, bad = (_relative(gram.from_passes(v, method="svrg", at_zero=True, **known).gram, x @ x.T) for v in both)
    return [
        Row("Gram, SVRG's passes", f"dominator {who}", f"{2 * x.shape[1]} epochs, when parties applied",
            "relative error of inner products", got, bad, "thetas shuffled", (0, 1e-2), (0.5, INF))
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
    # without masks a dominator receives every product as it is: then the default trees are judged
    trees = "the default trees" if runs.algorithm.secure is None else "the run's trees"
    metric, rows = "share of others' products found", []
    rows.append(
        Row("unmasking", f"dominator {root}", "its messages over two stars", metric, _unmasked(starred, (root,), root),
            _unmasked(masked, (root,), root), trees, ALL, ALL if q == 2 else NONE)
    )  # fmt: skip
    for size in range(1, min(q, 4)):  # of two parties neither hides from the other: no trees do
        found = [_unmasked(masked, coalition) for coalition in combinations(range(q), size)]
        needs = f"messages over {trees}"
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


def _solved(view: View, **options: Any) -> np.ndarray:
    """Return the inner products of all rows, of least norm where they are not determined."""
    return gram.both_ways(gram.attack(view, at_zero=True, **options))[1]


def _relative(estimate: np.ndarray, true: np.ndarray) -> float:
    return float(np.linalg.norm(estimate - true) / np.linalg.norm(true))


def _columns(party, own: tuple[int, ...]) -> np.ndarray:
    """Return the features [n, d] of all other parties than some."""
    first = np.cumsum((0, *party.sizes))
    index = [np.arange(first[p], first[p + 1]) for p in range(party.num_parties) if p not in own]
    x = matrix(party.blocks)[:, np.concatenate(index)]
    return np.asarray(x.toarray() if hasattr(x, "toarray") else x, float)


def _two_parties(runs: Runs, hidden: np.ndarray):
    """Return the training rows between an active party and one with some columns, of all in concatenated order."""
    x = matrix(runs.train.blocks)
    shown = np.setdiff1d(np.arange(x.shape[1]), hidden)
    return split(x, runs.labels, columns=[shown.tolist(), hidden.tolist()])


def _sgd(runs: Runs, secure: SecureAggregation | None = None, l2: float | None = None) -> VFB2SGD:
    """Return plain SGD for the run's problem (with another penalty)."""
    objective = runs.algorithm.objective if l2 is None else runs.algorithm.objective.replace(l2=l2)
    return VFB2SGD(objective, lr=steps.initial(runs.algorithm.lr), secure=secure)


ATTACKS: dict[str, Callable[[Runs], list[Row]]] = {
    "equality": equality, "gram": inner_products, "passes": reference_points, "unmasking": unmasking,
}  # fmt: skip
