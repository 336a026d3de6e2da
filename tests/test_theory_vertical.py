"""VFB2's claims: the verdict of each as measured, and a broken variant of what it is about that flips it."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

import jaxfed as jf
from jaxfed.theory.experiments import vertical
from jaxfed.theory.experiments.vertical_runs import CONVEX, L2, Size, common_party, first
from jaxfed.vertical import BilevelAsync, Epochs, FixedDelay, engine
from tests.reference.vertical_losses import objective as value_of
from tests.reference.vertical_losses import optimum

STEP = CONVEX.constants(common_party()).step


class Unreduced(jf.VFB2SVRG):
    """SVRG without its reference point: plain stochastic gradients."""

    def message(self, memory, theta, tick, extra):
        return theta, memory

    def mean(self, memory):
        return jnp.zeros_like(memory.gradient)


class Rooted(jf.VFB2SVRG):
    """SVRG whose true step is sqrt(lr) / 10."""

    def step(self, key, state, data, event):
        return engine.step(self.replace(lr=jnp.sqrt(self.lr) / 10), key, state, data, event)


class Prompt(FixedDelay):
    """A scheduler that claims delays and has none."""

    def _delays(self, xp):
        return tuple(xp.zeros_like(delay) for delay in super()._delays(xp))


def sized(seeds, epochs, steps):
    return Size(seeds, epochs, tuple(STEP * k for k in steps))


def verdicts(found, part):
    assert tuple(claim.id for claim in found.claims) == vertical.PARTS[part]
    return {claim.id.removeprefix("vertical-"): claim.verdict for claim in found.claims}


SIZES = {
    vertical.sgd: sized(5, 400, 2.0 ** np.arange(-2, 5)),
    vertical.svrg: sized(8, 80, (0.5, 1, 2, 10)),
    vertical.saga: sized(8, 80, (1, 2)),
    vertical.nonconvex: sized(8, 128, (2, 1)),
    vertical.lossless: sized(3, 60, (5,)),
}


@pytest.fixture(scope="module")
def true():
    """Return what a part finds at the size of these tests, measured once."""
    return functools.cache(lambda part: part(size=SIZES[part]))


def broken(part, **variant):
    return verdicts(part(size=SIZES[part], **variant), part)


def test_the_error_curves_are_those_of_runs(true):
    ds, party, ex = true(vertical.saga).data["saga"], common_party(), jf.datasets.load("breast_cancer")
    x, y = np.column_stack([ex.x, np.ones(len(ex.y))]).astype(float), np.where(ex.y == ex.y.max(), 1.0, -1.0)
    least = value_of(optimum(x, y, "logistic", "l2", L2), x, y, "logistic", "l2", L2)
    lr = float(ds["lr"][1])
    with jax.enable_x64(True):
        out = jf.run(2, jf.VFB2SAGA(CONVEX, lr=lr), party, scheduler=BilevelAsync(party, seed=0), num_rounds=Epochs(3),
                     every=Epochs(1), progress=False)  # fmt: skip
    wanted = out.dataset["objective"].values - least
    np.testing.assert_allclose(ds["gap"].sel(lr=lr, seed=2)[:3], wanted[:3], rtol=1e-7)
    assert ds["round"].values.tolist() == list(range(81))


def test_epochs_to_an_error():
    at = np.arange(5) / 2
    curves = xr.DataArray([10.0 ** -np.arange(5), np.ones(5), [1, 1, 0, 1, 0]], dims=("seed", "round"),
                          coords={"round": at})  # fmt: skip
    found = first(curves, 10**-2.5)
    assert found[0] == pytest.approx(1.25) and np.isnan(found[1]) and 0.5 < found[2] < 1
    assert first(curves, 1.0).values.tolist() == [0, 0, 0]


def test_sgd_and_what_is_not_sgd(true):
    assert verdicts(true(vertical.sgd), vertical.sgd)["sgd-floor"] == "conditional"
    reduced = broken(vertical.sgd, algorithm=jf.VFB2SVRG)
    assert reduced == {"sgd-floor": "fails", "sgd-epochs": "fails"}  # it has no floor, and is not sublinear


@pytest.mark.slow
def test_sgd_is_sublinear():
    assert verdicts(vertical.sgd(), vertical.sgd) == {"sgd-floor": "conditional", "sgd-epochs": "holds"}


def test_svrg_and_its_broken_variants(true):
    wanted = {"svrg-linear": "holds", "svrg-step": "holds", "staleness": "conditional"}
    assert verdicts(true(vertical.svrg), vertical.svrg) == wanted
    assert broken(vertical.svrg, algorithm=Unreduced)["svrg-linear"] == "fails"
    assert broken(vertical.svrg, algorithm=Rooted)["svrg-step"] == "fails"
    assert broken(vertical.svrg, scheduler=Prompt)["staleness"] == "holds"  # with the large step too


def test_saga_and_its_broken_variant(true):
    assert verdicts(true(vertical.saga), vertical.saga) == {"saga-linear": "holds"}
    assert broken(vertical.saga, algorithm=jf.VFB2SGD) == {"saga-linear": "fails"}


def test_the_nonconvex_problem_and_its_broken_variants(true):
    both = {"nonconvex-sgd": "holds", "nonconvex-svrg": "holds"}
    assert verdicts(true(vertical.nonconvex), vertical.nonconvex) == both
    # a step that does not shrink with T, and no variance reduction
    found = broken(vertical.nonconvex, svrg=Unreduced, exponent=0.0)
    assert found == dict.fromkeys(both, "fails")


def test_losslessness_and_its_broken_variants(true):
    found = true(vertical.lossless)
    got = verdicts(found, vertical.lossless)
    assert got["lossless"] == got["accuracy"] == got["passive"] == "holds"
    ds = found.data["lossless"]
    assert (ds["passive_gap"] > 100 * ds["ours_gap"]).all() and (ds["ours_gap"] > -1e-13).all()
    same = broken(vertical.lossless, passive=jf.VFB2SVRG)
    assert same["backward"] == same["passive"] == "fails"
    without = broken(vertical.lossless, method=jf.vertical.afsvrg_vp)
    assert without["lossless"] == "fails" and without["accuracy"] != "holds"


def test_figures_are_drawn_from_what_is_there(true, tmp_path):
    data = {name: ds for part in SIZES for name, ds in true(part).data.items()}
    figures = vertical.draw(data)
    assert set(figures) == set(data) and len(data) == 5
    for name, figure in figures.items():
        figure.savefig(tmp_path / f"{name}.png")
        assert figure.get_suptitle() and all(ax.get_ylabel() for ax in figure.axes)
    assert list(vertical.draw({"saga": data["saga"]})) == ["saga"] and vertical.draw({}) == {}
