"""The Gram attack against true inner products of simulated runs, with and without the knowledge that it needs."""

import numpy as np
import pytest

from jaxfed.privacy import gram
from jaxfed.privacy.dual import messages, play
from jaxfed.privacy.equations import equations, logistic_scores
from jaxfed.privacy.reconstruction import from_anchors, one_hot, up_to_rotation
from jaxfed.vertical.ticks import Table
from tests.privacy_views import others_gram, view_of
from tests.reference.privacy_features import simulate
from tests.reference.vertical import replay


def play_run(*, n=24, sizes=(2, 2, 3), epochs=(1200,), active=(0,), seed=0, **settings):
    """A run on labels that no model separates, so that theta does not vanish."""
    rng = np.random.default_rng(seed)
    x = [rng.normal(size=(n, d)) for d in sizes]
    z = sum(block @ rng.normal(size=block.shape[1]) for block in x)
    y = np.where(rng.random(n) < 1 / (1 + np.exp(-0.3 * z)), 1.0, -1.0)
    return simulate(x, y, active, epochs, rng, **({"lr": 0.2, "l2": 1e-3} | settings))


def told(run):
    return {"applied": run.applied, "read": run.read}


def error(found, run, parties=(0,), only=None):
    """The greatest error of the entries `only` (default: determined), as a share of the greatest inner product."""
    truth = others_gram(run, parties)
    only = found.determined if only is None else only
    assert only.any()
    return np.abs(found.gram - truth[np.ix_(found.rows, found.columns)])[only].max() / np.abs(truth).max()


# The simulation


@pytest.mark.parametrize(("method", "active", "delay"), [("sgd", (0, 2), 3), ("svrg", (0, 1), 2), ("saga", (1, 2), 3),
                                                         ("saga", (0,), 0)])  # fmt: skip
def test_runs_are_those_of_the_event_by_event_reference(method, active, delay):
    """The oracle that the engine is tested against, fed the same schedule as a table of ticks."""
    epochs = (13, 11) if method == "svrg" else (24,)
    run = play_run(method=method, active=active, delay=delay, epochs=epochs, batch_size=2, n=9)
    num_ticks, m, q = int(run.applied.max()) + 1, len(active), 3
    complete = np.zeros((num_ticks, m), bool)
    read, apply = np.full((2, num_ticks, m, q), -1)
    place, rows = [active.index(a) for a in run.dominator], {}
    for u, a in enumerate(place):
        complete[run.tick[u], a] = True
        rows[a, run.update[u]] = run.rows[u]
    after = complete.cumsum(0)
    for u, a in enumerate(place):
        for p in range(q):
            t, s = run.read[u, p], run.applied[u, p]
            read[t, a, p] = run.update[u] - (after[t, a] - complete[t, a])
            apply[s, a, p] = after[s, a] - 1 - run.update[u]
    snapshot = np.isin(np.arange(num_ticks), [tick for tick, *_ in run.passes])
    table = Table(read, complete, apply, snapshot, np.zeros(num_ticks))
    w = replay(table, run.x, run.y, lambda a, u: rows[a, u], method, "logistic", "l2", run.lr, run.l2, 2)[-1]
    for ours, theirs in zip(run.w, w, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-13)


# One update


@pytest.mark.parametrize(("dtype", "lr", "most"), [(np.float64, 0.5, 1e-13), (np.float64, 0.01, 1e-12),
                                                   (np.float32, 0.5, 1e-5), (np.float32, 0.01, 2e-4)])  # fmt: skip
def test_two_scores_around_one_update(dtype, lr, most):
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(50, 8)).astype(dtype), rng.normal(size=8).astype(dtype) / 4
    lr, l2, theta = dtype(lr), dtype(1e-2), dtype(-0.4)
    after = w - lr * (theta * x[7] + l2 * w)
    found = gram.around(x @ w, x @ after, theta, lr, l2)
    truth = x.astype(float) @ x[7].astype(float)
    assert np.abs(found - truth).max() <= most * np.abs(truth).max()
    wrong = gram.around(x @ w, x @ after, -theta, lr, l2)
    assert np.abs(wrong - truth).max() > np.abs(truth).max()


def test_float32_costs_more_at_smaller_steps():
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(200, 8)).astype(np.float32), rng.normal(size=8).astype(np.float32)
    errors = []
    for lr in (np.float32(1), np.float32(0.1), np.float32(0.01)):
        found = gram.around(x @ w, x @ (w - lr * np.float32(0.5) * x[3]), 0.5, lr)
        errors.append(np.abs(found - x.astype(float) @ x[3].astype(float)).mean())
    assert 3 < errors[1] / errors[0] < 30
    assert 3 < errors[2] / errors[1] < 30
    at_zero = gram.around(np.zeros(200), x @ (np.float32(-0.005) * x[3]), 0.5, 0.01)  # w = 0: nothing cancels
    assert np.abs(at_zero - x.astype(float) @ x[3].astype(float)).max() < 1e-5


# What blocks are made of


@pytest.mark.parametrize("method", ["sgd", "svrg", "saga"])
@pytest.mark.parametrize("delay", [0, 3])
def test_a_party_with_the_identity_for_rows_shows_beta(method, delay):
    n = 9
    rng = np.random.default_rng(1)
    x = [rng.normal(size=(n, 2)), np.eye(n), np.eye(n)]
    y, start = rng.choice([-1.0, 1.0], n), [np.zeros(2), np.zeros(n), rng.normal(size=n)]
    run = simulate(x, y, (0, 1), (20, 23), rng, method=method, delay=delay, batch_size=3, l2=0.05, start=start)
    sent = messages(view_of(run, (0,)), method)
    for party in (1, 2):
        (beta,), (decay,) = play(sent, run.applied[:, party], np.array([10**6]))
        whole = np.zeros(n)
        whole[sent.columns] = beta
        np.testing.assert_allclose(run.w[party], decay * start[party] + whole, atol=1e-13)


def test_a_step_size_for_each_tick():
    run = play_run(epochs=(40,), n=6)
    view = view_of(run, (0,))
    steps = np.full(40, run.lr)
    steps[20:] = 0
    sent = messages(view._replace(lr=steps, tick=view.tick + 5), first_tick=5)
    beta, _ = play(sent, run.applied[:, 1] + 5, np.array([25, 10**6]))
    plain, _ = play(messages(view), run.applied[:, 1], np.array([20]))
    np.testing.assert_array_equal(beta, plain[[0, 0]])


# Runs


@pytest.mark.parametrize("settings", [
    {},
    {"l2": 0.0, "loss": "half_squared"},
    {"batch_size": 3, "active": (0, 1, 2)},
    {"method": "saga", "lr": 0.05},
    {"method": "svrg", "epochs": (24,) * 30},
    {"delay": 3, "epochs": (2400,)},
    {"delay": 2, "epochs": (2400,), "method": "saga", "lr": 0.05},
    {"delay": 3, "batch_size": 2, "active": (0, 2), "epochs": (2400,)},
])  # fmt: skip
@pytest.mark.parametrize("at_zero", [True, False])
def test_every_inner_product_in_float64(settings, at_zero):
    run = play_run(**settings)
    knowledge = told(run) if settings.get("delay") else {}
    method = settings.get("method", "sgd")
    found = gram.attack(view_of(run, (0,)), at_zero=at_zero, method=method, **knowledge)
    assert found.determined.all()
    assert found.unknowns == len(found.groups) * (24 + (not at_zero))
    assert np.all(found.residual < 1e-7)
    assert error(found, run) < (1e-7 if method != "sgd" else 1e-9)


def test_float32_and_what_rounding_is_said_to_make_of_it():
    run = play_run(dtype=np.float32, epochs=(2400,))
    found = gram.attack(view_of(run, (0,)), at_zero=True)
    assert found.determined.all()
    assert error(found, run) < 2e-5
    wrong = np.abs(found.gram - others_gram(run, (0,))[np.ix_(found.rows, found.columns)])
    assert 0.2 < np.median(wrong / found.error) < 5
    delayed = play_run(dtype=np.float32, epochs=(2400,), delay=3)
    assert error(gram.attack(view_of(delayed, (0,)), at_zero=True, **told(delayed)), delayed) < 1e-3


def test_scores_in_fixed_point_are_known_to_its_last_place_only():
    run = play_run(epochs=(2400,))
    exact = view_of(run, (0,))
    view = exact._replace(scores=np.rint(exact.scores * 2.0**20) * 2.0**-20, fraction_bits=20)
    truth = others_gram(run, (0,))
    found, trusting = (gram.attack(each, at_zero=True) for each in (view, view._replace(fraction_bits=None)))
    assert found.determined.all()
    wrong = np.abs(found.gram - truth[np.ix_(found.rows, found.columns)])
    assert 0.1 < np.median(wrong / found.error) < 10
    assert np.median(np.abs(trusting.gram - truth[np.ix_(found.rows, found.columns)]) / trusting.error) > 1e6
    passes = play_run(method="svrg", epochs=(24,) * 16)  # these are not masked
    low = [gram.from_passes(view_of(passes, (0,))._replace(fraction_bits=bits), method="svrg") for bits in (None, 20)]
    np.testing.assert_array_equal(low[0].gram, low[1].gram)


def test_parties_that_apply_at_different_ticks_are_told_apart():
    run = play_run(delay=3, epochs=(2400,), l2=0.05)
    found = gram.attack(view_of(run, (0,)), at_zero=True, **told(run))
    assert found.groups == ((1,), (2,))
    for group, part, sure in zip(found.groups, found.parts, found.parts_determined, strict=True):
        truth = run.x[group[0]] @ run.x[group[0]].T
        assert sure.all()
        np.testing.assert_allclose(part, truth[np.ix_(found.rows, found.columns)], atol=1e-7)


def test_without_the_schedule_it_is_near_the_truth_and_says_that_it_is_wrong():
    run = play_run(delay=2, epochs=(4800,), lr=0.05)
    truth = others_gram(run, (0,))
    blind = gram.attack(view_of(run, (0,)), at_zero=True, rcond=0.01)
    same = np.corrcoef(blind.gram.ravel(), truth[np.ix_(blind.rows, blind.columns)].ravel())[0, 1]
    assert np.all(blind.residual > 0.05)
    assert error(blind, run, only=np.ones_like(blind.determined)) > 0.05
    assert same > 0.6
    shuffled = view_of(run, (0,))
    shuffled = shuffled._replace(scores=np.random.default_rng(0).permutation(shuffled.scores))
    control = gram.attack(shuffled, at_zero=True, rcond=0.01)
    assert abs(np.corrcoef(control.gram.ravel(), truth[np.ix_(control.rows, control.columns)].ravel())[0, 1]) < 0.3


def test_the_completion_is_the_whole_schedule_of_synchronous_runs():
    run = play_run(epochs=(600,), active=(0, 1))
    view = view_of(run, (0,))
    given, assumed = gram.attack(view, **told(run)), gram.attack(view)
    np.testing.assert_array_equal(given.gram, assumed.gram)


def test_which_entries_are_determined_is_a_matter_of_rank():
    run = play_run(epochs=(90,), batch_size=2, n=12)
    view = view_of(run, (0,))
    found, system = gram.attack(view, at_zero=True), equations(view)
    assert 0 < found.determined.mean() < 1
    assert error(found, run) < 1e-9
    for k, row in enumerate(found.rows):
        matrix = system.beta[system.moment[system.row == row], 0]
        rank = np.linalg.matrix_rank(matrix)
        assert rank == found.rank[k]
        more = [np.linalg.matrix_rank(np.vstack([matrix, unit])) for unit in 0.1 * np.eye(matrix.shape[1])]
        np.testing.assert_array_equal(found.determined[k], np.array(more) == rank)
    samples, both, sure = gram.both_ways(found)
    assert sure.sum() > found.determined.sum()
    truth = others_gram(run, (0,))[np.ix_(samples, samples)]
    np.testing.assert_allclose(both[sure], truth[sure], atol=1e-8)


# Who can do it


def test_one_of_several_dominators_and_a_coalition_of_two():
    run = play_run(active=(0, 1), epochs=(2400,), sizes=(2, 2, 3, 1))
    for parties in ((0,), (1,), (0, 1), (0, 3)):
        assert error(gram.attack(view_of(run, parties), at_zero=True), run, parties) < 1e-9


def test_a_passive_party_does_the_same_with_scores_from_theta():
    run = play_run()
    view = view_of(run, (1,))
    assert not len(gram.attack(view, at_zero=True).rows)
    found = gram.attack(view, at_zero=True, scores=logistic_scores(view.theta))
    assert found.determined.all()
    assert error(found, run, (1,)) < 1e-8


def test_noise_on_theta_stops_the_passive_party_and_not_the_dominator():
    run = play_run(release=lambda theta, rng: theta + rng.normal(size=theta.shape), epochs=(2400,), lr=0.02)
    assert error(gram.attack(view_of(run, (0,)), at_zero=True), run) < 1e-9
    view = view_of(run, (1,))
    found = gram.attack(view, at_zero=True, scores=logistic_scores(view.theta), rcond=0.01)
    truth = others_gram(run, (1,))[np.ix_(found.rows, found.columns)]
    assert np.all(found.residual > 0.3)
    assert np.linalg.norm(found.gram - truth) > 0.7 * np.linalg.norm(truth)


@pytest.mark.parametrize("control", ["thetas", "scores", "schedule"])
def test_controls(control):
    run, other = play_run(epochs=(2400,)), play_run(epochs=(2400,), seed=5)
    view, knowledge = view_of(run, (0,)), {}
    if control == "thetas":
        view = view._replace(theta=np.random.default_rng(0).normal(size=view.theta.shape))
    elif control == "scores":
        view = view._replace(scores=other.scores)
    else:
        late = run.applied + np.random.default_rng(0).integers(0, 20, run.applied.shape)
        knowledge = {"applied": late}
    found = gram.attack(view, at_zero=True, **knowledge)
    truth = others_gram(run, (0,))[np.ix_(found.rows, found.columns)]
    assert np.all(found.residual > 0.05)
    assert np.linalg.norm(found.gram - truth) > 0.9 * np.linalg.norm(truth)  # no better than guessing 0


# Full passes


@pytest.mark.parametrize("at_zero", [True, False])
def test_as_many_passes_as_features_give_the_whole_matrix(at_zero):
    run = play_run(method="svrg", epochs=(24,) * 6)  # 6 passes; the others have 5 features
    truth = others_gram(run, (0,))
    low = gram.from_passes(view_of(run, (0,)), rank=5, at_zero=at_zero, method="svrg")
    assert low.rank == 5
    assert low.asymmetry < 1e-6
    np.testing.assert_allclose(low.gram, truth, atol=1e-5 * np.abs(truth).max())
    fewer = play_run(method="svrg", epochs=(24,) * 4)
    low = gram.from_passes(view_of(fewer, (0,)), at_zero=at_zero, method="svrg")
    assert low.rank == 3
    assert np.abs(low.gram - truth).max() > 0.05 * np.abs(truth).max()


@pytest.mark.parametrize(("l2", "most"), [(0.0, 1e-5), (1e-4, 1e-2)])
def test_reference_points_make_the_schedule_unimportant(l2, most):
    run = play_run(method="svrg", epochs=(24,) * 12, delay=4, l2=l2)
    truth = others_gram(run, (0,))
    low = gram.from_passes(view_of(run, (0,)), rank=5, at_zero=True, method="svrg")
    assert np.abs(low.gram - truth).max() < most * np.abs(truth).max()
    view = view_of(run, (0,))
    view = view._replace(theta=np.random.default_rng(0).permutation(view.theta))
    low = gram.from_passes(view, rank=5, at_zero=True, method="svrg")
    assert low.asymmetry > 0.1
    assert np.abs(low.gram - truth).max() > 0.1 * np.abs(truth).max()


# From inner products to features


def test_a_run_and_some_known_rows_give_all_features_of_the_others():
    run = play_run(epochs=(2400,))
    samples, both, sure = gram.both_ways(gram.attack(view_of(run, (0,)), at_zero=True))
    truth = np.concatenate(run.x[1:], 1)[samples]
    found = from_anchors(both, {row: truth[row] for row in range(5)}, sure)
    np.testing.assert_allclose(found, truth, atol=1e-8)
    fewer = from_anchors(both, {row: truth[row] for row in range(4)})
    assert np.abs(fewer - truth).max() > 0.1
    wrong = from_anchors(both, {row: truth[row + 1] for row in range(5)})
    assert np.abs(wrong - truth).max() > 0.1


def test_exact_anchors_and_rotations():
    x = np.random.default_rng(0).normal(size=(40, 6))
    np.testing.assert_allclose(from_anchors(x @ x.T, {row: x[row] for row in range(8)}), x, atol=1e-12)
    found = up_to_rotation(x @ x.T, 6)
    turn = np.linalg.lstsq(found, x)[0]
    np.testing.assert_allclose(turn @ turn.T, np.eye(6), atol=1e-12)
    np.testing.assert_allclose(found @ turn, x, atol=1e-12)
    hidden = np.ones((40, 40), bool)
    hidden[30] = False
    assert np.isnan(from_anchors(x @ x.T, {row: x[row] for row in range(8)}, hidden)[30]).all()


def test_one_feature_is_found_up_to_the_sign():
    run = play_run(sizes=(3, 1))
    _, both, sure = gram.both_ways(gram.attack(view_of(run, (0,)), at_zero=True))
    assert sure.all()
    found = up_to_rotation(both, 1)
    found *= np.sign(found[0] * run.x[1][0])
    np.testing.assert_allclose(found, run.x[1], atol=1e-9)


@pytest.mark.parametrize("sizes", [(3,), (2, 3), (4, 3, 2)])
def test_categories_are_read_off(sizes):
    rng = np.random.default_rng(0)
    codes = np.stack([rng.integers(0, size, 30) for size in sizes], 1)
    agree = (codes[:, None] == codes).sum(2)
    found = one_hot(agree + rng.normal(size=agree.shape) * 0.02, sizes)
    assert found.codes is not None
    for k in range(len(sizes)):  # the same rows together: sizes differ, so columns can't be swapped
        np.testing.assert_array_equal(found.codes[:, None, k] == found.codes[:, k], codes[:, None, k] == codes[:, k])
    broken = agree.copy()
    broken[20, :20] = len(sizes)  # equal to rows that differ
    assert one_hot(broken, sizes).codes is None
    assert one_hot(agree, sizes, most=3) == (None, 3)


def test_categories_from_a_run():
    rng = np.random.default_rng(3)
    codes = np.stack([rng.integers(0, size, 20) for size in (2, 3)], 1)
    x = [rng.normal(size=(20, 2)), np.concatenate([np.eye(2)[codes[:, 0]], np.eye(3)[codes[:, 1]]], 1)]
    run = simulate(x, rng.choice([-1.0, 1.0], 20), (0,), (1500,), rng, lr=0.2, dtype=np.float32)
    _, both, _ = gram.both_ways(gram.attack(view_of(run, (0,)), at_zero=True))
    found = one_hot(both, (2, 3)).codes
    assert found is not None
    for k in range(2):
        np.testing.assert_array_equal(found[:, None, k] == found[:, k], codes[:, None, k] == codes[:, k])


# Errors


@pytest.mark.parametrize(("change", "field"), [
    ({"method": "sag"}, "method"), ({"use": "pass"}, "use"), ({"applied": np.zeros(3)}, "applied"),
    ({"read": np.zeros((3, 3))}, "read"), ({"scores": np.zeros(3)}, "scores"), ({"pass_scores": [1]}, "pass_scores"),
    ({"method": "svrg"}, "view.passes"), ({"at_zero": 1}, "at_zero"), ({"rcond": -1.0}, "rcond"),
])  # fmt: skip
def test_errors_name_the_field(change, field):
    view = view_of(play_run(epochs=(20,)), (0,))
    with pytest.raises(ValueError, match=f"^{field}: got .*, wanted"):
        gram.attack(view, **change)


def test_errors_of_views_and_matrices():
    run = play_run(epochs=(20,), method="svrg", delay=2)
    with pytest.raises(ValueError, match="^view: got gradients"):
        gram.attack(view_of(run, (0,))._replace(theta=None))
    partial = view_of(run, (0,))
    with pytest.raises(ValueError, match="^view.theta: got theta of the coalition's own"):
        gram.attack(partial._replace(theta=np.full_like(run.theta, np.nan)), method="svrg")
    with pytest.raises(ValueError, match="^view.parties: got"):
        gram.attack(view_of(run, (0, 1, 2)), method="svrg")
    with pytest.raises(ValueError, match="^pass_products: got"):
        gram.attack(view_of(run, (0, 1)), method="svrg", **told(run))
    with pytest.raises(ValueError, match="^view: got 3 scores"):
        gram.from_passes(view_of(run, (0,)), method="svrg", rows=[0, 1, 2])
    with pytest.raises(ValueError, match="^rank: got 0"):
        gram.from_passes(view_of(run, (0,)), method="svrg", rank=0)
    for call in (lambda: up_to_rotation(np.zeros(3), 1), lambda: one_hot(np.zeros((2, 3)), (2,))):
        with pytest.raises(ValueError, match="^gram: got"):
            call()
    for known in ({}, {9: [1.0]}):
        with pytest.raises(ValueError, match="^known: got"):
            from_anchors(np.eye(3), known)
    with pytest.raises(ValueError, match=r"^sizes\[1\]: got 0"):
        one_hot(np.eye(3), (2, 0))
