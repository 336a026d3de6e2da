"""Who takes part, and when: cohorts are exact, distinct and uniform; clocks and replays say what was asked."""

from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxfed as jf
from jaxfed.horizontal.schedulers import floyd
from tests import support

S = jf.horizontal


def events(scheduler, count, seed=0):
    """Ids [count, slots] of `count` rounds."""
    keys = jax.random.split(jax.random.key(seed), count)
    return np.asarray(jax.jit(jax.vmap(lambda k: scheduler(k, jnp.int32(0)).ids))(keys))


def chi_square(counts, expected):
    """The statistic, in standard deviations from its mean under the hypothesis."""
    df = len(counts) - 1
    return (np.sum((counts - expected) ** 2 / expected) - df) / np.sqrt(2 * df)


@pytest.mark.parametrize("num_clients, cohort_size", [(20, 5), (7, 7), (1000, 3), (1, 1)])
def test_cohorts_are_exact_distinct_and_uniform(num_clients, cohort_size):
    ids = events(S.UniformCohort(num_clients, cohort_size), 2000)
    assert ids.shape == (2000, cohort_size) and ids.dtype == np.int32
    assert (np.diff(ids, axis=1) > 0).all() and ids.min() >= 0 and ids.max() < num_clients
    counts = np.bincount(ids.ravel(), minlength=num_clients)
    if cohort_size < num_clients:
        share = cohort_size / num_clients  # draws without replacement vary less than the chi-square's: scale back
        spread = (counts - 2000 * share) / np.sqrt(1 - share)
        assert abs(chi_square(spread + 2000 * share, 2000 * share)) < 5
    else:
        assert (counts == 2000).all()


def test_every_set_is_equally_likely():
    ids = np.asarray(jax.jit(jax.vmap(lambda k: floyd(k, 6, 3)))(jax.random.split(jax.random.key(1), 8000)))
    sets, counts = np.unique(ids, axis=0, return_counts=True)
    assert [tuple(s) for s in sets] == list(combinations(range(6), 3))
    assert abs(chi_square(counts, 8000 / 20)) < 5


def test_strata_give_equal_numbers():
    ids = events(S.UniformCohort(12, 6, strata=3), 500)
    assert (np.diff(ids, axis=1) > 0).all()
    for s in range(3):
        assert (((ids >= 4 * s) & (ids < 4 * s + 4)).sum(axis=1) == 2).all()
    counts = np.bincount(ids.ravel(), minlength=12)
    assert np.abs(counts - 250).max() < 5 * np.sqrt(250 * 0.5)


def test_cohorts_change_by_round_and_not_by_algorithm():
    """Two algorithms under one seed see the same cohorts, a new one each round."""
    data = support.client_data([(np.ones((2, 1)) * (i + 1), np.full(2, 3.0)) for i in range(8)])
    model, cohort = jf.models.linear_regression(), S.UniformCohort(8, 3)
    moved = []
    settings = {"lr": 0.01, "batch_size": None, "local_steps": 1}
    for algorithm in (jf.LocalOnly(model, **settings), jf.APFL(model, alpha=1.0, **settings)):
        models = [algorithm.client_params(support.final(algorithm, data, t, cohort))["bias"] for t in range(5)]
        changed = [np.asarray(b != a) for a, b in zip(models[:-1], models[1:], strict=True)]
        moved.append([np.flatnonzero(c).tolist() for c in changed])
    assert moved[0] == moved[1]
    assert all(len(w) == 3 for w in moved[0]) and len(set(map(tuple, moved[0]))) > 1


def test_stale_takes_the_delay_of_each_client():
    late = S.Stale(S.UniformCohort(6, 3), np.array([0, 1, 2, 0, 1, 2]), 2)
    event = late(jax.random.key(0), jnp.int32(5))
    np.testing.assert_array_equal(event.delay, np.asarray(event.ids) % 3)
    assert late.num_clients == 6 and late.cohort_size == 3
    assert (S.Stale(S.FullParticipation(3), 2, 2)(jax.random.key(0), 0).delay == 2).all()


def test_speeds_make_a_clock():
    """Three seconds at one a round: every third round, with the model of the round it began in."""
    clock = S.FromSpeeds(np.array([0.5, 1.0, 2.0, 2.5, 3.0]), 2)
    table = [clock(jax.random.key(0), jnp.int32(t)) for t in range(6)]
    active = np.array([e.active for e in table])
    assert active[:, :2].all()
    np.testing.assert_array_equal(np.flatnonzero(active[:, 2]), [1, 3, 5])
    for i in (3, 4):
        np.testing.assert_array_equal(np.flatnonzero(active[:, i]), [2, 5])
    np.testing.assert_array_equal(table[0].delay, [0, 0, 1, 2, 2])
    assert [float(e.time) for e in table] == [1, 2, 3, 4, 5, 6]
    for t, i in zip(*np.nonzero(active), strict=True):  # a client's next model is the one after its last update
        before = np.flatnonzero(active[:t, i])
        began = before[-1] + 1 if len(before) else 0
        assert t - int(table[t].delay[i]) == began


def test_speeds_at_the_bound_are_not_later_than_it():
    """Exact multiples of an interval that is no binary fraction, in float32 as `run` casts them."""
    for bound in range(1, 60):
        for interval in (0.1, 0.3, 0.7):
            seconds = np.float32((bound + 1) * interval)
            event = S.FromSpeeds(jnp.array([seconds]), bound, jnp.float32(interval))(None, jnp.int32(0))
            assert int(event.delay[0]) <= bound, (bound, interval)


def test_replay_plays_the_table():
    data = jf.ClientData.from_list([(np.ones((2, 1)), np.full(2, i + 1.0)) for i in range(4)])
    ids = np.array([[0, 1], [2, 3], [1, 2]], np.int32)
    active = np.array([[True, False], [True, True], [False, False]])
    replay = S.Replay(S.Event(np.array([0.5, 2.0, 7.0]), ids, active), 4)
    algorithm = jf.LocalOnly(jf.models.linear_regression(), batch_size=None, local_steps=1)
    out = jf.run(0, algorithm, data, scheduler=replay, num_rounds=3)
    np.testing.assert_allclose(out.dataset.time, [0, 0.5, 2, 7])
    np.testing.assert_array_equal(out.dataset.cohort, [np.nan, 1, 2, 0])
    np.testing.assert_array_equal(out.dataset.visits, [0, 1, 3, 3])
    assert (np.asarray(out.state.clients["bias"])[:, 0] != 0).tolist() == [True, False, True, True]
    resumed = jf.run(0, algorithm, data, scheduler=replay, num_rounds=1,
                     state=jf.run(0, algorithm, data, scheduler=replay, num_rounds=2).state)  # fmt: skip
    np.testing.assert_allclose(resumed.dataset.time, [2, 7])


def test_participation_is_what_the_run_does():
    """The counts add up to the run's visits, and clients that are never sampled keep their first alpha."""
    data = support.client_data([(np.full((2, 4), i, float), np.array([i % 3, 1])) for i in range(9)])
    scheduler = jf.horizontal.UniformCohort(9, 2)
    apfl = jf.APFL(support.softmax(), alpha=0.3, adaptive=True, alpha_every="step", local_steps=2, batch_size=2)
    out = jf.run(4, apfl, data, scheduler=scheduler, num_rounds=3, progress=False)
    counts = jf.horizontal.participation(4, scheduler, 3)
    assert counts.sum() == out.dataset.visits[-1] == 6 and (counts == 0).any()
    np.testing.assert_array_equal(counts > 0, np.asarray(out.dataset.mixing_weight[-1]) != np.float32(0.3))
