"""Model completion: bounded by how well the attacker's own block ranks labels, for which there is a closed form."""

import numpy as np
import pytest

from jaxfed.privacy import label_metrics as metrics
from jaxfed.privacy.completion import complete
from tests.label_views import view
from tests.reference.privacy_labels import gaussian, simulate
from tests.reference.vertical_losses import optimum
from tests.reference.vertical_metrics import auc

D, N, NOISE = 24, 1500, 1.0


def law(share, noise=NOISE):
    """The AUC of o for labels sign(o + rest + noise), Gaussian with o's share of the variance of o + rest, which is 1.

    With r the correlation of o and what the sign is taken of, P(o > o' | y = 1, y' = -1) is four times the probability
    of an orthant of three normals with correlations r / sqrt 2 (twice) and 0: 1/2 + (2 / pi) arcsin(r / sqrt 2).
    """
    return 0.5 + 2 / np.pi * np.arcsin(np.sqrt(share / (1 + noise**2) / 2))


def play(own, **more):
    """(view of the attacker with the last `own` of 24 equally weighty features, labels, its test rows, test labels)."""
    blocks, y = gaussian(2 * N, (D - own, own), np.full(D, D**-0.5), noise=NOISE)
    train = [block[:N] for block in blocks]
    run = simulate(train, y[:N], 1000, b=16, stale=3, svrg=100, lr=0.15, **more)
    return view(train, run, (1,)), y[:N], blocks[1][N:], y[N:]


def few(y, count, seed=0):
    """Some known labels, as many of each class."""
    rng = np.random.default_rng(seed)
    rows = [rng.choice(np.flatnonzero(y == label), count // 2, replace=False) for label in (-1, 1)]
    return {int(row): int(y[row]) for row in np.concatenate(rows)}


@pytest.mark.parametrize("own", [3, 6, 12])
def test_completion_ranks_as_well_as_the_attackers_own_block(own):
    seen, y, test_x, test_y = play(own)
    known = few(y, 100)
    found = complete(seen, known, test_x=test_x)
    np.testing.assert_allclose(found.output, seen.x @ seen.w, rtol=0, atol=1e-12)
    assert metrics.auc(y, found.scores) == pytest.approx(auc(seen.x @ seen.w, y), abs=1e-12)
    assert metrics.auc(test_y, found.test_scores) == pytest.approx(auc(test_x @ seen.w, test_y), abs=1e-12)
    assert metrics.auc(y, found.scores, known) == pytest.approx(law(own / D), abs=0.035)
    assert metrics.auc(test_y, found.test_scores) == pytest.approx(law(own / D), abs=0.035)


def test_completion_beats_a_local_model_with_the_same_few_labels():
    seen, y, test_x, test_y = play(12)
    for self_training, seeds in [(False, 10), (True, 3)]:
        aucs = []
        for seed in range(seeds):
            known = few(y, 20, seed)
            found = complete(seen, known, test_x=test_x, self_training=self_training)
            aucs.append([metrics.auc(test_y, found.test_scores), metrics.auc(test_y, found.test_local)])
            aucs[-1] += [metrics.auc(y, found.scores, known), metrics.auc(y, found.local, known)]
        completed, local, train_completed, train_local = np.mean(aucs, 0)
        assert completed > local + 0.05 and train_completed > train_local + 0.05
    many = complete(seen, {i: int(label) for i, label in enumerate(y)}, test_x=test_x)
    assert metrics.auc(test_y, many.test_local) == pytest.approx(metrics.auc(test_y, many.test_scores), abs=0.02)


def test_a_block_that_says_nothing_completes_to_chance():
    """The controls: labels that have nothing to do with the features, and a random block."""
    seen, y, test_x, test_y = play(12)
    chance = np.random.default_rng(0)
    found = complete(seen, few(y, 40), test_x=test_x)
    assert abs(metrics.auc(chance.permutation(test_y), found.test_scores) - 0.5) < 0.05
    right = np.full(12, 12**-0.5)
    blind = chance.normal(size=12)
    blind -= right * (right @ blind)  # at a right angle to the weights that made the labels
    found = complete(seen._replace(w=blind), few(y, 40), test_x=test_x)
    assert abs(metrics.auc(test_y, found.test_scores) - 0.5) < 0.05
    with pytest.raises(ValueError, match=r"known: got labels \[1\], wanted at least one sample of each class"):
        complete(seen, {int(np.argmax(y)): 1})
    with pytest.raises(ValueError, match=r"known\[9999\]"):
        complete(seen, {9999: 1, 0: -1})
    with pytest.raises(ValueError, match="test_x: got shape"):
        complete(seen, few(y, 4), test_x=test_x[:, 1:])


def test_own_steps_multiplied_by_five_end_at_the_same_optimum():
    """Active completion gains nothing of a linear model that has converged; before, it costs the others."""
    blocks, y = gaussian(60, (4, 3), np.ones(7), noise=2.0)
    best = optimum(np.hstack(blocks), y, "logistic", "l2", 0.1)
    early = {}
    for factor in (1, 5):
        run = simulate(blocks, y, 4000, svrg=60, lr=0.02, l2=0.1, factors=(1, factor))
        np.testing.assert_allclose(np.hstack(run["weights"]), best, rtol=0, atol=1e-6)
        first = simulate(blocks, y, 60, lr=0.01, l2=0.1, factors=(1, factor))
        early[factor] = np.linalg.norm(first["weights"][1])
    assert early[5] > 2 * early[1]  # the attacker's block does run ahead
