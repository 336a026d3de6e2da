"""What defences cost and what they hide, against a closed form; and what `jaxfed.privacy` offers by name."""

import math
from types import ModuleType

import numpy as np
import pytest

import jaxfed as jf
from jaxfed import privacy
from jaxfed.vertical import Epochs, Objective, Synchronous


@pytest.fixture(scope="module")
def runs():
    rng = np.random.default_rng(0)
    y = np.where(rng.random(600) < 0.5, 1.0, -1.0)
    x = (y[:, None] + 0.5 * rng.normal(size=(600, 4))).astype("float32")  # a model tells the classes apart
    party = jf.vertical.split(x, y, num_parties=4, num_active=2, seed=0)
    sgd = jf.VFB2SGD(Objective("logistic", "l2", l2=1e-4), lr=0.02)
    return privacy.Runs(0, sgd, party, None, Synchronous(party), Epochs(6), attacker=3)


def test_a_flipped_label_is_measured_at_what_its_sign_tells(runs):
    """Of flips with probability p the sign has AUC 1 - p, in one message and over the run; -theta itself has less:
    given the flipped label it falls with the score, so the model's opinion ranks the samples the wrong way."""
    epsilons = (0.5, 2.0)
    found = privacy.tradeoff.measure(runs, {"response": (privacy.RandomisedResponse(), "epsilon", epsilons, None)})
    assert float(found.auc_message[0, 0]) == float(found.auc_run[0, 0]) == 1  # no defence
    for level, epsilon in enumerate(epsilons, 1):
        kept = math.exp(epsilon) / (1 + math.exp(epsilon))
        slack = 4 * math.sqrt(kept * (1 - kept) / 600)
        for name in ("auc_message", "auc_run"):
            assert abs(float(found[name][0, level]) - kept) < slack


def test_a_clipped_theta_has_its_sign_still(runs):
    found = privacy.tradeoff.measure(runs, {"clipping": (privacy.Clip(), "bound", (1e-3,), None)})
    assert found.auc_message.values.min() == found.auc_run.values.min() == 1


def test_names_are_where_they_are_looked_for():
    assert isinstance(jf.privacy, ModuleType) and isinstance(jf.theory, ModuleType)
    for package in (jf.privacy, jf.theory):
        assert list(package.__all__) == sorted(package.__all__)
        assert all(getattr(package, name).__doc__ for name in package.__all__)
