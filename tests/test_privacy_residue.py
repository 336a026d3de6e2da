"""The residue attack on batch-aggregated gradients: exact up to the rank, and beyond it by a closed form."""

import numpy as np
import pytest
from scipy import integrate, stats

from jaxfed.privacy import label_metrics as metrics
from jaxfed.privacy.residue import residue
from tests.label_views import view
from tests.reference.privacy_labels import gaussian, simulate

D = 6
WEIGHTS = np.random.default_rng(0).normal(size=24)


def play(b, updates=400, n=4000, shuffled=False, **more):
    """(labels, run, the residue attack of a party with 6 of 24 features)."""
    blocks, y = gaussian(n, (D, 18), WEIGHTS, noise=2.0)
    y = np.random.default_rng(4).permutation(y) if shuffled else y
    run = simulate(blocks, y, updates, b=b, **more)
    return y, run, residue(view(blocks, run, (0,), aggregated=True))


def right(y, run, found):
    return np.mean(-np.sign(found.theta) == y[run["rows"]])


def law(d, b):
    """The share of right signs of P t for t = +-1 in R^b and P on d of its dimensions, taken uniformly at random.

    P t = c^2 t + c s |t| u with c^2 ~ Beta(d / 2, (b - d) / 2) and u uniform on the sphere in the complement of t: the
    sign of entry i is right where v > -c / (s sqrt(b - 1)), v an entry of a uniform unit vector of R^(b - 1).
    """

    def share(c2):
        v = np.sqrt(c2 / (1 - c2) / (b - 1))
        return 1.0 if v >= 1 else stats.t.cdf(v / np.sqrt(1 - v * v) * np.sqrt(b - 2), b - 2)

    return integrate.quad(lambda c2: stats.beta.pdf(c2, d / 2, (b - d) / 2) * share(c2), 0, 1, limit=200)[0]


@pytest.mark.parametrize("b", [1, 3, 6])
@pytest.mark.parametrize("dtype, tolerance", [(np.float64, 1e-7), (np.float32, 0.5)])
def test_batches_up_to_the_rank_give_all_thetas_away(b, dtype, tolerance):
    y, run, found = play(b, stale=8, dtype=dtype)
    assert np.all(found.determined) and np.all(found.rank == found.unknowns)
    error = np.abs(found.theta - run["theta"])
    assert np.max(error) < tolerance and np.median(error) < (1e-14 if dtype == np.float64 else 2e-6)
    assert right(y, run, found) >= (1 if dtype == np.float64 else 0.999)
    if dtype == np.float64:
        assert metrics.judge(y, found.guesses)[:6] == (1,) * 6


@pytest.mark.parametrize("b", [7, 12, 24, 60])
def test_beyond_the_rank_labels_are_right_as_often_as_a_projection_leaves_them(b):
    """At w = 0 all |theta| are one half; most batches of 4,000 rows have no row twice."""
    y, run, found = play(b, updates=1500, lr=1e-9)
    assert np.all(found.rank == D) and not np.any(found.determined[found.unknowns > D])
    single = found.unknowns == b
    share = np.mean((-np.sign(found.theta) == y[run["rows"]])[single])
    # labels go with own features here, so the residue is nearer to the features' span than one of uniform direction
    assert share == pytest.approx(law(D, b), abs=0.025)
    y, run, found = play(b, updates=1500, lr=1e-9, shuffled=True)
    assert np.mean((-np.sign(found.theta) == y[run["rows"]])[single]) == pytest.approx(law(D, b), abs=0.01)


def test_the_step_is_at_the_rank():
    """Which thetas the attacker is sure of: all up to a batch of d_own, none beyond."""
    sure = [np.mean(play(b, n=100_000, updates=50)[2].determined) for b in (2, 6, 7, 12)]
    assert sure == [1, 1, 0, 0]


def test_votes_over_a_run_tell_labels_that_no_batch_does():
    y, run, found = play(24, updates=1200, n=300, lr=0.01)
    once, judged = right(y, run, found), metrics.judge(y, found.guesses)
    assert once < 0.75 and judged.accuracy > once + 0.15 and judged.auc_mean > 0.95
    # the controls: gradients of other batches
    blocks, y = gaussian(300, (D, 18), WEIGHTS, noise=2.0, seed=2)
    run = simulate(blocks, np.random.default_rng(1).permutation(y), 1200, b=24, lr=1e-9)
    seen = view(blocks, run, (0,), aggregated=True)
    others = metrics.judge(y, residue(seen).guesses)
    assert abs(others.accuracy - 0.5) < 0.12 and abs(others.auc_mean - 0.5) < 0.12
    blind = residue(seen._replace(gradients=np.random.default_rng(0).normal(size=seen.gradients.shape)))
    assert abs(right(y, run, blind) - 0.5) < 0.02


def test_a_row_drawn_twice_is_one_unknown():
    y, run, found = play(9, n=7, updates=300, lr=0.01)  # 9 draws from 7 rows: never 9 different ones
    rows = run["rows"]
    unknowns = np.array([len(set(batch)) for batch in rows])
    np.testing.assert_array_equal(found.unknowns, unknowns)
    exact = unknowns <= D
    assert 0.5 < np.mean(exact) < 1
    np.testing.assert_array_equal(np.all(found.determined, 1), exact)
    np.testing.assert_allclose(found.theta[exact], run["theta"][exact], rtol=0, atol=1e-9)
    for batch, theta in zip(rows, found.theta, strict=True):
        for row in set(batch):
            assert len(set(theta[batch == row])) == 1


def test_solutions_are_those_of_lstsq_and_rows_without_features_say_nothing():
    blocks, y = gaussian(500, (D, 18), WEIGHTS, noise=2.0)
    blocks[0][::3] = 0
    blocks[0][:, 2] = blocks[0][:, 1]  # the rank is 5
    run = simulate(blocks, y, 60, b=8)
    found = residue(view(blocks, run, (0,), aggregated=True))
    for k, batch in enumerate(run["rows"]):
        if len(set(batch)) < 8:
            continue
        system = blocks[0][batch].T
        wanted, _, rank, _ = np.linalg.lstsq(system, 8 * run["gradients"][0][k], rcond=1e-12)
        filled = np.any(system != 0, 0)
        np.testing.assert_allclose(found.theta[k][filled], wanted[filled], rtol=0, atol=1e-9)
        assert found.rank[k] == rank <= 5 and np.all(np.isnan(found.theta[k][~filled]))
        assert not np.any(found.determined[k][~filled])
        sure = found.determined[k]
        np.testing.assert_allclose(found.theta[k][sure], run["theta"][k][sure], rtol=0, atol=1e-9)
    assert not np.any(np.isin(np.flatnonzero(~np.isnan(found.guesses.mean)), np.arange(0, 500, 3)))


def test_views_with_theta_are_refused():
    blocks, y = gaussian(20, (D, 18), WEIGHTS)
    with pytest.raises(ValueError, match="view: got no gradients, wanted batch-aggregated gradients"):
        residue(view(blocks, simulate(blocks, y, 3), (0,)))
