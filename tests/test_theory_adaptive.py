"""The claims on the adaptive alpha: the derived behaviour against NumPy, and broken variants that flip verdicts."""

import numpy as np
import pytest

import jaxfed as jf
from jaxfed import steps
from jaxfed.theory.claims import CONDITIONAL, FAILS, HOLDS
from jaxfed.theory.experiments import adaptive
from jaxfed.theory.experiments.skewed_clients import TEST_ROWS, Kind, federation, pool
from tests.reference import apfl as reference
from tests.reference.models import Softmax

SIZE = adaptive.Size(5, 20)


class Uphill(jf.APFL):
    """Where alpha moves once a round, it moves against its gradient's sign."""

    def client_update(self, key, server, client, view):
        sign = 1 if self.alpha_every == "step" else -1
        rate = sign * steps.at(self.alpha_lr, server.round)
        return jf.APFL.client_update(self.replace(alpha_lr=rate), key, server, client, view)


def verdicts(found):
    return {claim.id.removeprefix("adaptive-"): claim.verdict for claim in found.claims}


@pytest.fixture(scope="module")
def found():
    return adaptive.measure(size=SIZE)


@pytest.fixture(scope="module")
def broken():
    """alpha's step has the wrong sign, and v's rate is not rescaled."""
    return verdicts(adaptive.measure(size=SIZE, algorithm=Uphill, rescale=1.0))


def test_verdicts(found):
    """What the paper says of divergence holds; what it says of m_i and of i.i.d. data does not, nor is alpha near the
    best: it follows the training loss, which favours the client's own model."""
    got = verdicts(found)
    assert got["divergence"] == HOLDS and got["decay"] == HOLDS
    assert got["rows"] == got["regret"] == got["iid-samples"] == FAILS
    assert got["iid-same-rows"] == CONDITIONAL


def test_the_wrong_sign_flips_what_alpha_follows(broken):
    """It flips the order, the decay's effect, and the comparison with an update whose sign is right."""
    assert broken["divergence"] == broken["decay"] == broken["place"] == FAILS and broken["rows"] == HOLDS


def test_without_rescaling_alpha_does_not_rest(broken):
    assert broken["iid-same-rows"] == FAILS


def test_the_best_alphas_in_hindsight_flip_regret_and_resting_flips_iid(found):
    """The claims that fail are not lost from the start."""
    ds = found.data["learned"]
    best = adaptive.of_learned(ds.assign(risk=ds["risk_of_fixed"].min("fixed")), SIZE)
    assert best[2].id == "adaptive-regret" and best[2].verdict == HOLDS
    same = adaptive.of_learned(ds.assign(risk_by_step=ds["risk"]), SIZE)[3]
    assert same.id == "adaptive-place" and same.found == (0, 0) and same.verdict == HOLDS
    rests = found.data["iid"].assign(alpha=0 * found.data["iid"]["alpha"] + adaptive.START)
    assert [c.verdict for c in adaptive.of_iid(rests, SIZE)] == [HOLDS, HOLDS]


def test_alpha_on_the_same_rows_is_that_of_numpy(found):
    """Clients with the same rows are one client: its alpha falls by equation 7, and rests where v takes w's steps."""
    x, y = adaptive.federations(SIZE.seeds, 0)["same"][0].train.client(0)
    paths = found.data["iid"]["alpha"].sel(kind="same").isel(seed=0)
    model = Softmax(0.0)
    for name, personal_lr in (("equation 7", adaptive.LR), ("w's", adaptive.LR / adaptive.START)):
        w = {"kernel": np.zeros((adaptive.CLASSES, adaptive.FEATURES)), "bias": np.zeros(adaptive.CLASSES)}
        v, alpha = [{k: a.copy() for k, a in w.items()}], [adaptive.START]
        batches = {0: [np.arange(len(y))] * adaptive.TAU}
        path = [adaptive.START]
        for _ in range(SIZE.rounds):
            w, v, alpha, _ = reference.apfl_round(
                model,
                w,
                v,
                alpha,
                [(x.astype(float), y)],
                [0],
                batches,
                adaptive.LR,
                personal_lr=personal_lr,
                adaptive=True,
            )
            path.append(alpha[0])
        expected = np.array(path)[paths["round"].values]
        measured = paths.sel(steps=name).transpose("client", "round").values
        np.testing.assert_allclose(measured, np.broadcast_to(expected, measured.shape), atol=2e-3)
        assert (np.diff(expected) < 0).all() if name == "equation 7" else (expected == adaptive.START).all()


def test_federations_are_tested_on_their_laws():
    """Test rows have exactly the law's proportions and none is a training row; sizes and divergences are as told."""
    data = adaptive.federations(2, 0)
    assert {name: len(draws) for name, draws in data.items()} == dict.fromkeys(("skews", "sizes", "samples", "same"), 2)
    for name, kind in (adaptive.KINDS | {"samples": adaptive.IID}).items():
        seen = []
        for draw in data[name]:
            for i, law in enumerate(kind.laws):
                x, y = draw.train.client(i)
                x_test, y_test = draw.test.client(i)
                np.testing.assert_array_equal(np.bincount(y_test, minlength=4), np.rint(law * TEST_ROWS))
                assert len(y) == kind.rows[i] and len(np.unique(np.concatenate([x, x_test]), axis=0)) == len(y) + len(
                    y_test
                )
                seen.append(x)
        assert len(np.unique(np.concatenate(seen), axis=0)) == 2 * kind.rows.sum()  # no row is drawn twice
    np.testing.assert_allclose(adaptive.KINDS["skews"].divergences, np.repeat([0, 0.5, 1, 1.5], 4), atol=1e-12)
    np.testing.assert_allclose(adaptive.KINDS["sizes"].divergences, 0.75)
    assert adaptive.KINDS["skews"].rows.sum() == adaptive.KINDS["sizes"].rows.sum()


def test_a_law_that_no_number_of_rows_has_is_refused():
    kind = Kind(np.array([[0.3337, 0.6663]]), np.array([5]))
    drawn = pool({"a": kind}, 1, 3, 2.0, 0)
    with pytest.raises(ValueError, match="^laws: got .* wanted multiples of 1/480"):
        federation(drawn, drawn.rows["a"][0], kind.laws)


def test_parts_name_their_claims_and_figures_are_drawn(found):
    assert tuple(claim.id for claim in found.claims) == adaptive.PARTS[adaptive.measure]
    figures = adaptive.draw(found.data)
    assert set(figures) == {"learned", "iid"}
    assert all(ax.get_xlabel() and ax.get_ylabel() for figure in figures.values() for ax in figure.axes)
