"""alpha* against the best alpha: the problem against NumPy loops, and every claim against a broken variant of it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxfed.theory import generalization, mixtures, two_laws
from jaxfed.theory.claims import CONDITIONAL, FAILS, HOLDS, UNDECIDED
from jaxfed.theory.experiments import alpha_star
from jaxfed.theory.experiments.alpha_star_data import FULL, SMOKE, correlation, measure, risk_at
from tests.reference import theory_generalization as reference

SIZE = FULL._replace(seeds=100, alphas=51, resamples=300)
ALPHAS = np.array([0.0, 0.1, 0.4, 0.8, 1.0])


def verdicts(found):
    return {claim.id: claim.verdict for claim in found.claims}


def density_distance(distance, noise, d, n=400_000):
    """||Dbar - D_+||_1 by importance sampling from Dbar: E |1 - p_+ / pbar|."""
    rng = np.random.default_rng(0)
    w, v = (np.asarray(a, float) for a in two_laws.truths(distance, d))
    x = rng.normal(size=(n, d))
    x *= np.sqrt(d) / np.linalg.norm(x, axis=1, keepdims=True)
    half = np.sqrt(3) * noise
    pick = rng.random(n) < 0.5
    y = np.where(pick, x @ w, x @ v) + rng.uniform(-half, half, n)
    plus, minus = (np.abs(y - x @ a) <= half for a in (w, v))
    return np.mean(np.abs(1 - plus / (0.5 * plus + 0.5 * minus)))


@pytest.mark.parametrize("distance,noise,d", [(0.5, 1.0, 10), (1.5, 0.4, 3), (2.0, 0.1, 2), (1.0, 4.0, 10)])
def test_the_distance_of_the_laws_is_the_integral(distance, noise, d):
    got = float(two_laws.distribution_distance(distance, noise, d))
    assert got == pytest.approx(density_distance(distance, noise, d), abs=5e-3)


def test_the_distance_has_its_limits():
    assert float(two_laws.distribution_distance(0.0, 1.0, 5)) == 0
    assert float(two_laws.distribution_distance(2.0, 1e-6, 5)) == pytest.approx(1, abs=1e-4)
    assert float(two_laws.distribution_distance(1e-3, 1.0, 3)) == pytest.approx(
        1e-3 / 4, rel=1e-6
    )  # E |u . x| = sqrt(3) / 2


@pytest.fixture(scope="module")
def small():
    """Two draws of four settings in three dimensions, and their rows, in float64."""
    with jax.enable_x64(True):
        settings = two_laws.Settings(
            np.array([6, 4, 12, 6]), np.array([12, 40, 40, 40]), np.array([0.8, 1.5, 0.0, 0.8]),
            np.array([0.5, 1.0, 2.0, 0.5]), np.array([1.0, 1.3, 1.0, np.inf]),
        )  # fmt: skip
        draw = two_laws.draws(5, 2, settings, jnp.asarray(ALPHAS), 3)
    return settings, draw, list(zip(*two_laws.sample(5, 2, 20, 3), strict=True))


def test_draws_match_plain_loops(small):
    settings, draw, rows = small
    for j, (x, e) in enumerate(rows):
        np.testing.assert_allclose(np.sum(x**2, axis=2), 3, rtol=1e-12)
        for s, (m_i, m, distance, noise, radius) in enumerate(zip(*settings, strict=True)):
            truths = [np.asarray(a, float) for a in two_laws.truths(distance, 3)]
            y = [x[k] @ truths[k] + noise * e[k] for k in (0, 1)]
            pooled = np.concatenate([x[0, : m // 2], x[1, : m // 2]]), np.concatenate([t[: m // 2] for t in y])
            shared = reference.fit_in_ball(*pooled, radius)
            own = x[0, :m_i], y[0][:m_i]
            models = [reference.mixed_model(a, *own, shared, radius) for a in ALPHAS]
            risk = [np.sum((h - truths[0]) ** 2) + noise**2 for h in models]
            np.testing.assert_allclose(draw.risk[j, s], risk, rtol=1e-5)
            train = np.mean((pooled[0] @ shared - pooled[1]) ** 2)
            both = np.mean([np.sum((shared - w) ** 2) for w in truths]) + noise**2
            np.testing.assert_allclose(draw.global_risk[j, s], train, rtol=1e-6)
            np.testing.assert_allclose(draw.global_excess[j, s], both - train, rtol=1e-5, atol=1e-7)
            spread = two_laws.greatest_mean(
                np.random.default_rng(5).normal(size=(two_laws.STARTS, 3)), own[0], np.ones(m_i, bool)
            )
            np.testing.assert_allclose(draw.disagreement[j, s], 2 * radius * spread, rtol=1e-5)
            excess = risk[-1] - np.mean((own[0] @ models[-1] - own[1]) ** 2)
            np.testing.assert_allclose(draw.local_excess[j, s], excess, rtol=1e-5, atol=1e-7)


def test_the_true_risk_is_that_of_new_rows():
    x, e = (a[0] for a in two_laws.sample(1, 1, 200_000, 4))
    w, v = (np.asarray(a, float) for a in two_laws.truths(1.2, 4))
    assert np.linalg.norm(w) == pytest.approx(1) and np.linalg.norm(v) == pytest.approx(1)
    assert np.linalg.norm(w - v) == pytest.approx(1.2)
    h = np.array([0.3, -0.5, 0.2, 1.0])
    risk = np.mean((x[0] @ h - (x[0] @ w + 0.7 * e[0])) ** 2)
    assert risk == pytest.approx(np.sum((h - w) ** 2) + 0.7**2, rel=0.01)


def test_without_a_ball_every_alpha_reaches_the_clients_own_fit(small):
    _, draw, _ = small
    free = draw.risk[:, 3, 1:]
    np.testing.assert_allclose(free, free[:, -1:] * np.ones(4), rtol=1e-9)
    assert (np.abs(draw.risk[:, 0, 1] / draw.risk[:, 0, -1] - 1) > 1e-3).any()


def test_the_worst_disagreement_is_found():
    x = np.random.default_rng(2).normal(size=(9, 2))
    mask = np.arange(9) < 7
    angle = np.linspace(0, np.pi, 100_000)
    most = np.abs(np.stack([np.cos(angle), np.sin(angle)], axis=1) @ x[mask].T).mean(axis=1).max()
    starts = np.random.default_rng(0).normal(size=(two_laws.STARTS, 2))
    found = [float(two_laws.greatest_mean(starts[:n], jnp.asarray(x), jnp.asarray(mask))) for n in (1, len(starts))]
    assert found[0] <= found[1] == pytest.approx(most, rel=1e-5)


def test_directions_without_rows_stay_empty():
    h = mixtures.least_in_ball(jnp.array([0.0, 1.0, 2.0]), jnp.array([0.0, 0.5, 0.4]), jnp.inf)
    np.testing.assert_allclose(h, [0, 0.5, 0.2], rtol=1e-6)
    short = mixtures.least_in_ball(jnp.array([0.0, 1.0, 2.0]), jnp.array([0.0, 0.5, 0.4]), 0.1)
    assert float(jnp.linalg.norm(short)) == pytest.approx(0.1, rel=1e-5)
    assert float(short[0]) == 0


def test_half_of_the_rows_is_the_most_a_client_can_have():
    settings = two_laws.Settings(*(np.array([v]) for v in (6, 10, 1.0, 1.0, 1.0)))
    with pytest.raises(ValueError, match="local_rows: got .6., wanted at most half of rows"):
        two_laws.draws(0, 1, settings, jnp.asarray(ALPHAS), 3)


def test_rank_correlations_by_hand():
    up, down, flat = np.array([[0.0, 1, 2, 3]]), np.array([[5.0, 3, 2, 1]]), np.ones((1, 4))
    assert correlation(up, down)[0] == pytest.approx(-1)
    assert correlation(up, up**3)[1] == pytest.approx(1)
    from scipy import stats

    ties = np.array([[0.0, 0, 2, 1]])
    assert correlation(ties, up)[0] == pytest.approx(stats.spearmanr(ties[0], up[0]).statistic)
    assert np.isnan(correlation(up, flat)[0])


def test_risk_between_grid_points_is_on_the_chord():
    got = measure(size=SIZE)
    j, s = 3, 2
    want = np.interp(got.star[1][j, s], got.alphas, got.draw.risk[j, s])
    assert risk_at(got, 1)[j, s] == pytest.approx(want, rel=1e-5)


def without(*names):
    """alpha* of a theorem that lacks some of its terms."""
    return lambda terms: generalization.best_alpha(terms._replace(**{name: 0.0 for name in names}))


def turned(terms):
    return 1 - generalization.best_alpha(terms)


def turned_mixture(alphas, *rest):
    return mixtures.mixed_models(1 - alphas, *rest)


def test_every_part_measures_the_claims_that_it_lists():
    found = [part(size=SIZE) for part in alpha_star.PARTS]
    assert [tuple(c.id for c in f.claims) for f in found] == list(alpha_star.PARTS.values())
    data = {name: ds for f in found for name, ds in f.data.items()}
    figures = alpha_star.draw(data)
    assert set(figures) == {"moves", "classes", "regret", "bound"}
    assert all(ax.get_xlabel() and ax.lines for f in figures.values() for ax in f.axes if ax.axison)
    assert set(alpha_star.draw({"bound": data["bound"]})) == {"bound"}


def test_a_smoke_run_decides_less():
    found = alpha_star.covers(smoke=True, seed=3)
    assert verdicts(found) == {"alpha-star-bound": UNDECIDED, "alpha-star-tight": CONDITIONAL}
    assert measure(smoke=True, seed=3).draw.risk.shape[0] == SMOKE.seeds


def test_alpha_star_is_inside_unless_a_side_is_missing():
    assert verdicts(alpha_star.inside(size=SIZE)) == {"alpha-star-inside": HOLDS}
    no_local = without("local_risk", "local_complexity", "disagreement")
    assert verdicts(alpha_star.inside(size=SIZE, best_alpha=no_local)) == {"alpha-star-inside": FAILS}


def test_alpha_star_stays_away_from_one_unless_disagreement_is_dropped():
    assert set(verdicts(alpha_star.nears_one(size=SIZE)).values()) == {FAILS}
    dropped = alpha_star.nears_one(size=SIZE, best_alpha=without("disagreement"))
    assert set(verdicts(dropped).values()) <= {HOLDS, CONDITIONAL}  # on C, whose term vanishes with m_i


def test_the_bound_holds_and_what_is_less_than_it_does_not():
    assert verdicts(alpha_star.covers(size=SIZE)) == {"alpha-star-bound": HOLDS, "alpha-star-tight": CONDITIONAL}

    def halved(alpha, terms):
        return generalization.bound(alpha, terms._replace(disagreement=0.0)) / 2

    def plain_sum(alpha, terms):
        return sum(generalization.sides(terms)) + 0 * alpha

    assert verdicts(alpha_star.covers(size=SIZE, bound=halved))["alpha-star-bound"] == FAILS
    assert verdicts(alpha_star.covers(size=SIZE, bound=plain_sum))["alpha-star-tight"] == FAILS


def test_alpha_matters_in_the_ball_only():
    want = {"alpha-star-ball": CONDITIONAL, "alpha-star-unconstrained": HOLDS}
    assert verdicts(alpha_star.classes(size=SIZE)) == want
    free = alpha_star.classes(
        size=SIZE, fit=lambda values, vector, radius: mixtures.least_in_ball(values, vector, jnp.inf)
    )
    assert verdicts(free)["alpha-star-ball"] == FAILS
    tied = alpha_star.classes(size=SIZE, fit=lambda values, vector, radius: mixtures.least_in_ball(values, vector, 1.0))
    assert verdicts(tied)["alpha-star-unconstrained"] == FAILS


def test_alpha_star_and_the_best_alpha_move_together():
    best = ("alpha-star-best-divergence", "alpha-star-best-local-rows")
    both = ("alpha-star-divergence", "alpha-star-local-rows", "alpha-star-noise")
    want = {**dict.fromkeys(best + both, HOLDS), "alpha-star-rows": CONDITIONAL}
    assert verdicts(alpha_star.moves(size=SIZE)) == want
    against = verdicts(alpha_star.moves(size=SIZE, best_alpha=turned))
    assert {against[name] for name in both} == {FAILS}
    assert verdicts(alpha_star.moves(size=SIZE, best_alpha=without("global_complexity")))["alpha-star-rows"] == FAILS
    against = verdicts(alpha_star.moves(size=SIZE, mixed=turned_mixture))
    assert {against[name] for name in best} == {FAILS}


def test_regret_is_that_of_alpha_star():
    assert verdicts(alpha_star.regret(size=SIZE)) == {"alpha-star-regret": FAILS, "alpha-star-ends": CONDITIONAL}
    got = measure(size=SIZE)
    oracle = got.alphas[got.draw.risk.mean(axis=0).argmin(axis=1)]
    known = alpha_star.regret(size=SIZE, best_alpha=lambda terms: jnp.asarray(oracle))
    assert verdicts(known) == {"alpha-star-regret": HOLDS, "alpha-star-ends": HOLDS}
    assert verdicts(alpha_star.regret(size=SIZE, best_alpha=turned))["alpha-star-ends"] == FAILS
