"""The claims on Local Descent APFL: against NumPy loops, and each with a broken variant that flips its verdict."""

import numpy as np
import pytest

import jaxfed as jf
from jaxfed import steps, trees
from jaxfed.averaging import Weighted
from jaxfed.horizontal.apfl import ApflClient
from jaxfed.horizontal.local import run_steps
from jaxfed.theory.claims import CONDITIONAL, FAILS, HOLDS
from jaxfed.theory.experiments import descent
from jaxfed.theory.experiments import local_descent as ld
from tests.reference import averages
from tests.reference import theory_descent as reference

SIZE = descent.Size(6, 400, 500, 200, (0.5, 0.6, 0.75))
MANY = SIZE._replace(seeds=24)  # the slope in Delta_i scatters


class OwnLoss(jf.APFL):
    """v descends its own loss, not the mixture's (PFLlib)."""

    def client_update(self, key, server, client, view):
        return personal_steps(self, key, server, client, view, lambda gradient, w, v, alpha: gradient(v))


class OwnLossTraced(ld.LocalDescent):
    """The same with tau traced."""

    client_update = OwnLoss.client_update


class MixedUp(ld.LocalDescent):
    """The mixture is alpha v + alpha w (FedRep's APFL)."""

    def client_update(self, key, server, client, view):
        def direction(gradient, w, v, alpha):
            return trees.scale(alpha, gradient(trees.scale(alpha, trees.add(v, w))))

        return personal_steps(self, key, server, client, view, direction)


class OthersRows(ld.LocalDescent):
    """Client i trains on the rows of client i + n/2."""

    def client_update(self, key, server, client, view):
        pool = view.x.shape[0]
        return super().client_update(key, server, client, view._replace(rows=(view.rows + pool // 2) % pool))


def personal_steps(algorithm, key, server, client, view, direction):
    """APFL's local steps with another direction for v."""
    lr, alpha = steps.at(algorithm.lr, server.round), client.alpha

    def step(carry, x, y, weight, s):
        w, v = carry
        gradient = lambda p: jf_gradient(algorithm.model, p, x, y, weight)  # noqa: E731
        return trees.axpy(-lr, gradient(w), w), trees.axpy(-lr, direction(gradient, w, v, alpha), v)

    w, v = run_steps(algorithm, step, (server.params, client.v), key, view)
    own = ApflClient(v, alpha, w if algorithm.evaluate_with == "local" else ())
    return trees.sub(w, server.params), own, {}


def jf_gradient(model, params, x, y, weight):
    import jax

    return jax.grad(model.objective)(params, x, y, weight)


def one_step_always(model, **fields):
    """tau is ignored."""
    return ld.LocalDescent(model, **(fields | {"local_steps": 1}))


def verdicts(found):
    return {claim.id: claim.verdict for claim in found.claims}


@pytest.fixture(scope="module")
def rates():
    return descent.rates(size=SIZE)


@pytest.fixture(scope="module")
def residual():
    return descent.residual(size=MANY)


@pytest.fixture(scope="module")
def participation():
    return descent.participation(size=SIZE)


@pytest.mark.parametrize(("tau", "decay"), [(1, 0.0), (10, 0.0), (3, 0.2)])
def test_models_and_gaps_agree_with_loops(x64, tau, decay):
    """Equations 6-8 in NumPy, on the server's and on the clients' own w, whatever tau and step size."""
    problems = [ld.problem(3), ld.problem(4)]
    run = ld.LocalDescent(ld.MODEL, lr=ld.StepSize(0.1, decay), alpha=0.6, local_steps=tau, batch_size=None,
                          evaluate_with="local")  # fmt: skip
    played = ld.play(run, problems, [2, 0, 3])
    for p, *models in zip(problems, *played, strict=True):
        for record, rounds in enumerate((2, 2, 5)):
            w, v, own = reference.local_descent(p.clients, 0.6, lambda r: 0.1 / (1 + decay * r), tau, rounds)
            server, personal, local = (m[record] for m in models)
            np.testing.assert_allclose(server, w, rtol=0, atol=1e-12)
            np.testing.assert_allclose(personal, [0.6 * v_i + 0.4 * w for v_i in v], rtol=0, atol=1e-12)
            np.testing.assert_allclose(local, [0.6 * v_i + 0.4 * o for v_i, o in zip(v, own, strict=True)], atol=1e-12)
        for mixture, w_i in ((personal, w), (local, own)):
            gaps = ld.gaps(p.hessians, mixture - p.local_optima)
            np.testing.assert_allclose(gaps, reference.personal_gaps(p.clients, 0.6, v, w_i), rtol=1e-9)


def test_problems_have_the_optima_of_their_rows():
    p = ld.problem(5)
    np.testing.assert_allclose(p.optimum, reference.minimiser(p.clients), rtol=1e-9)
    for i, client in enumerate(p.clients):
        np.testing.assert_allclose(p.local_optima[i], reference.minimiser([client]), rtol=1e-9)
        np.testing.assert_allclose(p.gradients[i], reference.gradient(client, p.optimum), rtol=1e-9, atol=1e-12)
        gap = reference.value(client, p.optimum) - reference.value(client, p.local_optima[i])
        np.testing.assert_allclose(p.global_gaps[i], gap, rtol=1e-9)
    np.testing.assert_allclose(p.gradients.sum(0), 0, atol=1e-12)
    np.testing.assert_allclose(p.diversities, np.sum(p.gradients**2, 1))
    assert p.distances.max() / p.distances.min() > 10  # the clients differ enough for slopes over them


def test_a_traced_number_of_steps_is_apfl_itself(x64):
    """`LocalDescent` is `APFL`, and `Cohort` of all clients is everyone."""
    problems = [ld.problem(0)]
    fields = dict(lr=ld.StepSize(0.1), alpha=0.4, local_steps=3, batch_size=None, evaluate_with="local")
    for a, b in zip(*(ld.play(c(ld.MODEL, **fields), problems, [4]) for c in (ld.LocalDescent, jf.APFL)), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-14)


def test_a_cohort_is_uniform_and_of_its_size():
    import jax

    events = jax.vmap(lambda k: ld.Cohort(3, 12)(k, 0))(jax.random.split(jax.random.key(0), 2000))
    active = np.asarray(events.active)
    assert (active.sum(1) == 3).all()
    np.testing.assert_allclose(active.mean(0), 0.25, atol=0.04)  # 4 standard errors


def test_averages_have_the_weights_of_the_theorem(x64):
    """(t + a)^2 with t at the ends of rounds."""
    problems, a = [ld.problem(1)], 30.0
    inner = ld.LocalDescent(ld.MODEL, lr=ld.StepSize(0.05, 0.1), alpha=0.6, local_steps=10, batch_size=None)
    each = ld.play(inner, problems, [1] * 4)
    average = ld.play(Weighted(inner, a / 10), problems, [1] * 4)
    for plain, mean in zip(each[:2], average[:2], strict=True):
        models = [{"w": w} for w in plain[0]]
        np.testing.assert_allclose(mean[0, -1], averages.polynomial_average(models, a / 10)["w"], atol=1e-12)


def test_step_sizes_are_those_of_the_theorems():
    """eta_t = c / (mu (t + a)) at the first step of each round, and no more than 1 / (tau L)."""
    schedule, a = descent.decreasing(0.5, 2.0)
    for r in (0, 1, 50):
        np.testing.assert_allclose(schedule(r), 4.0 / (0.5 * (10 * r + a)))
    np.testing.assert_allclose(schedule(0), 1 / 20)


def test_rates_hold_with_decreasing_steps_only(rates):
    assert verdicts(rates) == dict.fromkeys(descent.PARTS[descent.rates], CONDITIONAL)


def test_constant_steps_flip_the_global_rate():
    found = verdicts(descent.rates(size=SIZE, step_size=descent.constant))
    assert found["descent-global-rate"] == FAILS and found["descent-personal-rate"] == FAILS


def test_a_wrong_personal_gradient_flips_the_personal_rate():
    found = verdicts(descent.rates(size=SIZE, algorithm=OwnLoss))
    assert found == {"descent-global-rate": CONDITIONAL, "descent-personal-rate": FAILS}


def test_residual_verdicts(residual):
    assert verdicts(residual) == dict.fromkeys(descent.PARTS[descent.residual], HOLDS) | {
        "descent-one-step": CONDITIONAL
    }


def test_the_residual_is_the_derived_one(residual):
    """To first order in eta tau L = 1/4."""
    ds = residual.data["residual"]
    np.testing.assert_allclose(ds["gap_of_steps"].mean("seed"), ds["derived"].mean("seed"), rtol=0.25)


@pytest.mark.parametrize(
    ("claim", "broken"),
    [
        ("descent-one-step", OwnLossTraced),
        ("descent-residual-alpha", MixedUp),
        ("descent-residual-steps", one_step_always),
        ("descent-residual-diversity", OthersRows),
        ("descent-residual-distance", OthersRows),
    ],
)
def test_broken_variants_flip_the_residual(claim, broken):
    if broken not in BROKEN:
        BROKEN[broken] = verdicts(descent.residual(size=SIZE, algorithm=broken))
    assert BROKEN[broken][claim] == FAILS


BROKEN = {}  # verdicts of each variant, which several claims share


def test_participation(participation):
    assert verdicts(participation) == {"descent-participation": HOLDS}


def test_ignored_cohorts_flip_participation():
    found = verdicts(descent.participation(size=SIZE, cohorts=(12, 12, 12)))
    assert found == {"descent-participation": FAILS}


def test_parts_name_their_claims_and_figures_are_drawn(rates, residual, participation):
    parts = {descent.rates: rates, descent.residual: residual, descent.participation: participation}
    for part, found in parts.items():
        assert tuple(claim.id for claim in found.claims) == descent.PARTS[part]
        figures = descent.draw(found.data)
        assert set(figures) == set(found.data)
        for figure in figures.values():
            assert all(ax.get_xlabel() and ax.get_ylabel() for ax in figure.axes)
