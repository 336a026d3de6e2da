"""Label attacks on transcripts of jaxfed's own runs: what the engine does is what the attacks need."""

import numpy as np
import pytest

import jaxfed as jf
from jaxfed.privacy import label_metrics as metrics
from jaxfed.privacy.completion import complete
from jaxfed.privacy.inversion import at_start, logits
from jaxfed.privacy.labels import by_clusters, by_hint, by_sign
from jaxfed.privacy.messages import collect
from jaxfed.privacy.recording import record
from jaxfed.privacy.residue import residue
from jaxfed.vertical.objective import Objective
from tests.vertical_support import METHODS, federation

PASSIVE = (1, 3)


@pytest.mark.parametrize("method", ["sgd", "svrg", "saga"])
def test_a_passive_party_learns_labels_scores_and_the_others_products(method):
    party, _, y = federation(n=60)
    algorithm, scheduler = METHODS[method](Objective(l2=1e-3), lr=0.05), jf.vertical.BilevelAsync(party)
    run = record(0, algorithm, party, scheduler=scheduler, num_rounds=300)
    seen = run.view(1)
    assert seen.labels is None
    met = np.isin(np.arange(60), run.rows) | bool(run.passes)
    for guesses in (by_sign(seen), by_clusters(seen, prior=np.mean(y > 0))):
        assert metrics.judge(y, guesses) == (1, 1, 1, 1, 1, 1, np.mean(met))
    positive = int(run.rows[np.argmax(y[run.rows[:, 0]] > 0), 0])
    assert metrics.judge(y, by_hint(seen, {positive: 1}), [positive]).message_auc == 1
    found, told = logits(seen), collect(seen)
    sent = told.update >= 0
    others = run.products.sum(2) - run.products[:, :, 1]
    assert metrics.largest_error(run.scores.ravel(), found.z[sent]) < 1e-5
    assert metrics.largest_error(others.ravel(), found.others[sent]) < 1e-5
    for p, full in enumerate(run.passes):
        assert metrics.largest_error(full.scores, found.z[told.update == -1 - p]) < 1e-5
    coalition = run.view(PASSIVE)
    both = run.products[:, :, [0, 2]].sum(2)
    assert metrics.largest_error(both.ravel(), logits(coalition).others[sent]) < 1e-5


@pytest.mark.parametrize("loss, method", [("squared", "sgd"), ("half_squared", "svrg"), ("robust", "saga")])
def test_targets_at_the_start_of_a_run(loss, method):
    party, _, y = federation(n=60, targets=True)
    y = (y - y.min()) / (y.max() - y.min())
    run = record(0, METHODS[method](Objective(loss), lr=0.01), party.replace(y=y), num_rounds=30)
    found = at_start(run.view(1))
    assert metrics.mean_error(y, found.values) < 1e-6
    wanted = 1 if method != "sgd" else np.mean(np.isin(np.arange(60), run.rows[run.tick == 0]))
    assert metrics.coverage(found.values) == wanted > 0
    later = record(0, METHODS[method](Objective(loss), lr=0.01), party.replace(y=y), num_rounds=30, window=(10, 30))
    assert metrics.coverage(at_start(later.view(1)).values) == 0  # the control


def test_batches_give_labels_away_up_to_the_rank():
    party, blocks, y = federation(n=400)
    for b, exact in ((2, True), (8, False)):
        run = record(0, jf.VFB2SGD(Objective(), lr=0.05, batch_size=b), party, num_rounds=60)
        found = residue(run._replace(aggregated=True).view(2))  # four features
        labels = -np.sign(found.theta)
        if exact:
            sure = found.determined
            assert np.mean(sure) > 0.9 and metrics.accuracy(y[run.rows][sure], labels[sure]) == 1
            np.testing.assert_allclose(found.theta[sure], run.theta[sure], rtol=0, atol=1e-4)
        else:
            assert np.mean(found.determined) < 0.1


def test_completion_takes_the_block_that_training_gave():
    party, blocks, y = federation(n=400)
    run = record(0, jf.VFB2SGD(Objective(), lr=0.05), party, num_rounds=1500)
    known = {int(i): int(y[i]) for i in range(40)}
    found = complete(run.view(3), known)
    mask = party.blocks.mask()
    np.testing.assert_allclose(found.output, blocks[3] @ run.weights[3][mask[3]], rtol=0, atol=1e-5)
    own = metrics.auc(y, found.output)
    assert own > 0.55 and metrics.auc(y, found.scores) == pytest.approx(own, abs=1e-9)
