"""When does personalisation help: every claim holds or fails as it should, and a broken experiment flips it."""

import numpy as np
import pytest

import jaxfed as jf
from jaxfed.datasets import synthetic
from jaxfed.theory.claims import FAILS, HOLDS, UNDECIDED
from jaxfed.theory.experiments import phase
from tests.reference import theory_discrepancy as reference

SIZE = phase.Size(replicates=5, skews=(0.0, 0.4, 0.8, 0.95), rows=(20, 160), clients=4, features=8, num_rounds=30)


def mirrored(label_probs, *rest, **options):
    """A federation whose skew falls where it should grow."""
    n = len(label_probs)
    skew = label_probs[0, 0] - label_probs[0, 1]
    return synthetic.label_skewed_gaussians(synthetic.skewed_labels(n, n, 0.95 - skew), *rest, **options)


@pytest.fixture(scope="module")
def true_gains():
    return phase.gains(size=SIZE)


@pytest.fixture(scope="module")
def true_drift():
    return phase.drift(size=SIZE)


@pytest.fixture(scope="module")
def broken():
    """Claims by the way the experiment is broken, made when asked for."""
    ways = {
        "training rows": lambda: phase.gains(size=SIZE, part="train"),
        "mirrored": lambda: phase.gains(size=SIZE, federation=mirrored),
        "mirrored drift": lambda: phase.drift(size=SIZE, federation=mirrored),
        "SCAFFOLD is FedAvg": lambda: phase.drift(size=SIZE, scaffold=jf.FedAvg),
    }
    made = {}

    def get(way):
        if way not in made:
            made[way] = verdicts(ways[way]())
        return made[way]

    return get


def verdicts(found):
    return {claim.id: claim.verdict for claim in found.claims}


def test_the_parts_measure_the_claims_they_name(true_gains, true_drift):
    for part, found in ((phase.gains, true_gains), (phase.drift, true_drift)):
        assert tuple(claim.id for claim in found.claims) == phase.PARTS[part]
        assert all(claim.experiment == "phase" and claim.id.startswith("phase-") for claim in found.claims)


def test_federations_are_what_they_say():
    data, divergence = phase.federations(SIZE, 3, synthetic.label_skewed_gaussians)
    assert len(data) == 5 * 4 * 2
    np.testing.assert_allclose(divergence, [2 * s * (1 - 1 / 4) for s in SIZE.skews], atol=1e-6)
    some, all_rows = data[6], data[7]  # the first replicate at skew 0.95
    for i in range(4):
        x, y = all_rows.train.client(i)
        assert len(some.train.client(i)[0]) == 20 and len(x) == 160 and len(some.test.client(i)[0]) == 200
        np.testing.assert_array_equal(some.train.client(i)[0], x[:20])
        assert 0.9 < np.mean(y == i) < 1  # 0.9625
    assert not np.isin(some.test.client(0)[0][:, 0], all_rows.train.client(0)[0][:, 0]).any()


def test_weight_0_is_fedavg(true_gains, true_drift):
    want = true_drift.data["drift"].loss.sel(algorithm="FedAvg, 10 local steps")
    got = true_gains.data["gains"].loss.sel(weight="0.0", rows=160)
    np.testing.assert_allclose(got, want, rtol=1e-3)


def test_no_model_beats_the_true_posterior(true_gains):
    loss = true_gains.data["gains"].loss.min(["rows", "weight"])
    for r, number in enumerate(np.random.SeedSequence(0).generate_state(2)):
        for s, skew in enumerate(SIZE.skews):
            one = synthetic.label_skewed_gaussians(synthetic.skewed_labels(4, 4, skew), 8, separation=2.0, sizes=360,
                                                   test_fraction=200 / 360, seed=int(number))  # fmt: skip
            rows = zip(one.test, one.label_probs, strict=True)
            best = np.mean([reference.bayes_loss(x, y, probs, one.means, one.noise) for (x, y), probs in rows])
            assert best - 0.005 < loss[r, s] < best + 0.25


TRUE = {"phase-iid": HOLDS}


@pytest.mark.parametrize(
    "id, way",
    [
        ("phase-iid", "training rows"),
        ("phase-iid-best", "training rows"),
        ("phase-noniid", "mirrored"),
        ("phase-little-data", "training rows"),
        ("phase-gain-grows", "mirrored"),
        ("phase-local-catches-up", "training rows"),
        ("phase-personal-improves", "mirrored"),
        ("phase-global-worsens", "mirrored drift"),
        ("phase-scaffold-worsens", "SCAFFOLD is FedAvg"),
    ],
)
def test_a_broken_experiment_flips_each_claim(true_gains, true_drift, broken, id, way):
    true, false = (verdicts(true_gains) | verdicts(true_drift))[id], broken(way)[id]
    print(id, true, false)
    assert true == TRUE[id]
    assert false != true


def test_figures_are_drawn_from_the_data(true_gains, true_drift):
    figures = phase.draw(true_gains.data | true_drift.data)
    assert set(figures) == {"phase", "mixing", "diversity"}
    maps = figures["phase"].axes[0].images[0].get_array()
    loss = true_gains.data["gains"].loss.mean("replicate")
    want = (loss.sel(weight="0.0") - loss.sel(weight="learned")).transpose("rows", "skew")
    np.testing.assert_allclose(maps, want)
    lines = figures["diversity"].axes[0].lines
    assert [line.get_label() for line in lines][:1] == ["FedAvg, 10 local steps"] and len(lines) == 5
    assert set(phase.draw(true_drift.data)) == {"diversity"}


def test_smoke_measures_every_claim():
    found = [*phase.gains(smoke=True).claims, *phase.drift(smoke=True).claims]
    assert [claim.id for claim in found] == [id for ids in phase.PARTS.values() for id in ids]
    assert {claim.verdict for claim in found} <= {HOLDS, FAILS, UNDECIDED, "conditional"}
    assert all(np.isfinite(claim.found).all() for claim in found)
