"""Rows of the attack matrix: what a passive party learns of labels, scores and targets from thetas."""

import math
from collections.abc import Callable

import numpy as np

from jaxfed import steps
from jaxfed.privacy import completion, inversion, label_metrics, labels, residue
from jaxfed.privacy.defences import BatchGradients, Gaussian, MaxNorm, RandomisedResponse
from jaxfed.privacy.matrix import Row
from jaxfed.privacy.runs import Runs
from jaxfed.vertical import VFB2SAGA, Epochs, Objective

ALL = (1.0, 1.0)
INF = math.inf
NOISE_EPOCHS = 100
EPSILON = 1.0


def sign(runs: Runs) -> list[Row]:
    """Labels by the sign of theta, per message and by vote; AUC of -theta."""
    true, shuffled = (labels.by_sign(runs.view(t)) for t in (runs.plain, runs.shuffled))
    got, chance = (label_metrics.judge(runs.labels, guesses) for guesses in (true, shuffled))
    row = lambda metric, ours, theirs, region: Row(  # noqa: E731
        "sign", _who(runs), "one message a sample", metric, ours, theirs, "labels shuffled", ALL, region
    )
    return [
        row("accuracy on samples seen", got.accuracy, chance.accuracy, _coin(runs)),
        row("AUC of -theta, mean over the run", got.auc_mean, chance.auc_mean, _half(runs)),
    ]


def clusters(runs: Runs) -> list[Row]:
    """Labels from two clusters of thetas by an attacker that knows no loss, and of labels only the prior (where that is
    one half it names no cluster: one positive does)."""
    prior = float(np.mean(runs.labels > 0))
    known = runs.some_labels(positives_only=True) if prior == 0.5 else None
    found = [labels.by_clusters(runs.view(t), prior=prior, known=known) for t in (runs.plain, runs.shuffled)]
    got, chance = (label_metrics.judge(runs.labels, guesses, skip=known or ()).accuracy for guesses in found)
    needs = f"the share of positives, {prior:.2f}" if known is None else "one positive"
    return [
        Row("clusters", _who(runs), needs, "accuracy on samples seen", got, chance, "labels shuffled", ALL, _coin(runs))
    ]


def logits(runs: Runs) -> list[Row]:
    """Scores from theta and the loss; float32's rounding of theta is magnified where a sample is on the wrong side."""
    noisy = runs.record(runs.algorithm.replace(defence=Gaussian(1.0)))
    got, chance = (_score_error(runs, t) for t in (runs.plain, noisy))
    metric = "largest |error of z| / (1 + exp(-y z))"
    return [Row("logits", _who(runs), "the loss", metric, got, chance, "Gaussian(1)", (0, 1e-5), (0.1, INF))]


def _score_error(runs: Runs, transcript) -> float:
    found = inversion.logits(runs.view(transcript), passes=False)
    true, y = transcript.scores.ravel(), runs.labels[transcript.rows.ravel()]
    error = np.abs(found.z - true) / (1 + np.exp(np.minimum(-y * true, 80)))
    return float(np.nanmax(error)) if np.any(np.isfinite(error)) else math.nan


def norm(runs: Runs) -> list[Row]:
    """Labels by |theta|: works by imbalance, where a model with an intercept is surprised by the rare class."""
    y, rows = runs.labels, []
    for share, expected in ((float(np.mean(y > 0)), (0.3, 0.7)), (0.08, (0.7, 1.0))):
        kept = _thinned(y, share) if share == 0.08 else np.arange(len(y))
        train = runs.dealt_again(kept, intercept=True) if share == 0.08 else runs.train
        hidden = runs.algorithm.replace(defence=MaxNorm(bound=1.0))
        found = [labels.by_norm(runs.view(runs.record(algorithm, train))) for algorithm in (runs.algorithm, hidden)]
        got, chance = (_mean(label_metrics.auc_of_batches(y[kept][g.rows], g.each, 64)) for g in found)
        needs = f"{share:.0%} positives" + (", a model with an intercept" if share == 0.08 else "")
        rows.append(
            Row("norm", _who(runs), needs, "AUC of |theta|, mean over batches of 64", got, chance, "max-norm",
                expected, (0.35, 0.65))
        )  # fmt: skip
    return rows


def _mean(values: np.ndarray) -> float:
    return float(np.nanmean(values)) if np.any(np.isfinite(values)) else math.nan


def hint(runs: Runs) -> list[Row]:
    """Labels by the direction of one known positive's theta."""
    known = runs.some_labels(positives_only=True)
    found = [labels.by_hint(runs.view(t), known) for t in (runs.plain, runs.shuffled)]
    got, chance = (label_metrics.judge(runs.labels, guesses, skip=known).message_auc for guesses in found)
    return [
        Row("hint", _who(runs), "one positive", "AUC per message", got, chance, "labels shuffled", ALL, _half(runs))
    ]


def noise(runs: Runs) -> list[Row]:
    """Gaussian noise that looks safe in one message, and the mean of many: under a model that fits, and a loose one."""
    rows = []
    for l2 in (runs.algorithm.objective.l2, 1.0):
        objective = runs.algorithm.objective.replace(l2=l2)
        algorithm = runs.algorithm.replace(defence=Gaussian(1.0), objective=objective)
        both = [runs.record(algorithm, t, num_rounds=Epochs(NOISE_EPOCHS)) for t in (runs.train, runs.relabelled)]
        got, chance = (label_metrics.judge(runs.labels, labels.by_sign(runs.view(t))) for t in both)
        one, many = _foreseen(runs, both[0])
        row = lambda metric, ours, theirs, theory, l2=l2: Row(  # noqa: E731
            "noise", _who(runs), f"theta + N(0, 1), l2 {l2:g}", metric, ours, theirs, "labels shuffled",
            (theory - _slack(runs), min(theory + _slack(runs), 1.0)), _half(runs))  # fmt: skip
        name = f"AUC of the mean over {NOISE_EPOCHS} epochs"
        rows += [row("AUC per message", got.message_auc, chance.message_auc, one),
                 row(name, got.auc_mean, chance.auc_mean, many)]  # fmt: skip
    return rows


def _foreseen(runs: Runs, transcript) -> tuple[float, float]:
    """Return the AUC of theta + N(0, 1), per message and of each sample's mean, from the true thetas of a run."""
    from scipy.stats import norm as normal

    rows = transcript.rows.ravel()
    y = runs.labels[rows]
    theta = -y / (1 + np.exp(np.clip(y * transcript.scores.ravel(), -80, 80)))
    some = np.random.default_rng(0).permutation(len(rows))[:4000]  # of pairs of messages these are enough
    negative, positive = (theta[some][y[some] == sign] for sign in (-1, 1))
    one = normal.cdf((negative[:, None] - positive) / math.sqrt(2)).mean()
    count = np.bincount(rows, minlength=len(runs.labels))
    mean = np.bincount(rows, theta, len(runs.labels)) / np.maximum(count, 1)
    negative, positive = ((runs.labels == sign) & (count > 0) for sign in (-1, 1))
    spread = np.sqrt(1 / count[negative][:, None] + 1 / count[positive])
    return float(one), float(normal.cdf((mean[negative][:, None] - mean[positive]) / spread).mean())


def response(runs: Runs) -> list[Row]:
    """Randomised response: the sign tells the flipped label, however long the run is."""
    transcript = runs.record(runs.algorithm.replace(defence=RandomisedResponse(EPSILON)))
    got = label_metrics.judge(runs.labels, labels.by_sign(runs.view(transcript)))
    kept = math.exp(EPSILON) / (1 + math.exp(EPSILON))
    bare = runs.plain if runs.algorithm.defence is None else runs.record(runs.algorithm.replace(defence=None))
    plain = label_metrics.judge(runs.labels, labels.by_sign(runs.view(bare)))
    slack = 4 * math.sqrt(kept * (1 - kept) / len(runs.labels))
    return [
        Row("response", _who(runs), f"flips at epsilon {EPSILON:g}", "accuracy of the sign, by vote", got.accuracy,
            plain.accuracy, "no defence", (kept - slack, kept + slack), ALL)
    ]  # fmt: skip


def start(runs: Runs) -> list[Row]:
    """Targets from SAGA's first pass, at w = 0, under losses of regression (here on the labels as targets)."""
    rows, given = [], runs.algorithm
    for loss in ("squared", "robust"):
        objective = Objective(loss, "l2", runs.algorithm.objective.l2)
        algorithm = VFB2SAGA(objective, lr=steps.initial(given.lr), secure=given.secure)
        true, other = (runs.record(algorithm, train, num_rounds=1) for train in (runs.train, runs.relabelled))
        got, chance = (
            label_metrics.mean_error(runs.labels, inversion.at_start(runs.view(t)).values) for t in (true, other)
        )
        rows.append(Row("start", _who(runs), f"the loss, {loss}; the pass at w = 0", "mean |error| of targets", got,
                        chance, "targets shuffled", (0, 1e-5), (0.2, INF)))  # fmt: skip
    return rows


def complete(runs: Runs) -> list[Row]:
    """A model of the labels on the own block's output, from a few labels; alone, and with larger steps of one's own."""
    known, rows = runs.some_labels(), []
    for factor in (1.0, 5.0):
        factors = np.ones(runs.train.num_parties)
        factors[runs.attacker] = factor
        transcript = runs.plain if factor == 1 else runs.record(runs.algorithm.replace(factors=factors))
        found = completion.complete(runs.view(transcript), known)
        own, got, local = (label_metrics.auc(runs.labels, s, known) for s in (found.output, found.scores, found.local))
        name = "completion" if factor == 1 else f"completion, own step x {factor:g}"
        needs = f"{len(known)} labels (model's accuracy {runs.accuracy(transcript):.3f})"
        rows.append(Row(name, _who(runs), needs, "AUC on other samples", got, local, "a local model",
                        None if math.isnan(own) else (own - 0.02, own + 0.02), None))  # fmt: skip
    return rows


def batches(runs: Runs) -> list[Row]:
    """Labels from batch-aggregated gradients, of minibatches of as many rows as there are own features, and of more."""
    width, rows = runs.train.sizes[runs.attacker], []
    for size in (width, 8 * width)[width < 2 :]:  # a minibatch of one row hides nothing: it is no such defence
        algorithm = runs.algorithm.replace(batch_size=size, defence=BatchGradients())
        found = [residue.residue(runs.view(runs.record(algorithm, t))) for t in (runs.train, runs.relabelled)]
        got, chance = (label_metrics.judge(runs.labels, each.guesses).message_accuracy for each in found)
        needs = f"own gradients, b = {size}, own features {width}"
        rows.append(Row("residue", _who(runs), needs, "accuracy per value", got, chance, "labels shuffled",
                        (0.995, 1.0) if size == width else None, _coin(runs)))  # fmt: skip
    return rows


def _who(runs: Runs) -> str:
    return f"passive party {runs.attacker}"


def _thinned(y: np.ndarray, share: float) -> np.ndarray:
    """Return rows with that share of positives: all negatives, and the first positives."""
    negative, positive = np.flatnonzero(y < 0), np.flatnonzero(y > 0)
    return np.sort(np.concatenate([negative, positive[: round(share / (1 - share) * len(negative))]]))


def _half(runs: Runs) -> tuple[float, float]:
    """Return where an AUC at chance lies: half, give or take four standard errors."""
    return 0.5 - _slack(runs), 0.5 + _slack(runs)


def _slack(runs: Runs) -> float:
    """Return four standard errors of an AUC at chance over the samples: no AUC has larger ones."""
    negative, positive = np.sum(runs.labels < 0), np.sum(runs.labels > 0)
    return 4 * math.sqrt((negative + positive + 1) / (12 * negative * positive))


def _coin(runs: Runs) -> tuple[float, float]:
    """Return where the accuracy of labels in a random order lies, give or take four standard errors."""
    p = float(np.mean(runs.labels > 0))
    slack = 4 * math.sqrt(2) * p * (1 - p) / math.sqrt(len(runs.labels)) + 1e-9
    return p**2 + (1 - p) ** 2 - slack, p**2 + (1 - p) ** 2 + slack


ATTACKS: dict[str, Callable[[Runs], list[Row]]] = {
    "sign": sign, "clusters": clusters, "logits": logits, "norm": norm, "hint": hint, "noise": noise,
    "response": response, "start": start, "completion": complete, "residue": batches,
}  # fmt: skip
