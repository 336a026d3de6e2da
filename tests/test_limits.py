"""Where one algorithm must become another, who must not change, and late clients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxfed as jf
from tests import support
from tests.reference import fedavg
from tests.support import final

ROWS = support.clients()


@pytest.mark.parametrize("name, wide", [("softmax", True), ("mlp", False)])
def test_apfl_with_alpha_0_is_fedavg_and_with_alpha_1_local_training(name, wide):
    """To 1e-12 in float64 and 1e-6 in float32: the server's w at alpha 0, every personal model at alpha 1."""
    with jax.enable_x64(wide):
        atol, model, data = 1e-12 if wide else 1e-6, support.models(name)[0], support.client_data(ROWS)
        average = final(jf.FedAvg(model, lr=0.2, weights="uniform", **support.BATCH), data)
        alone = final(jf.LocalOnly(model, lr=0.2, **support.BATCH), data)
        for form in ("plain", "auto") if model.linear else ("plain",):
            apfl = jf.APFL(model, lr=0.2, alpha=jnp.zeros(()), form=form, **support.BATCH)
            zero, one = final(apfl, data), final(apfl.replace(alpha=jnp.ones(())), data)
            support.assert_trees(zero.server.params, average.server.params, atol)
            support.assert_trees(apfl.client_params(zero), support.stack([average.server.params] * 4), atol)
            support.assert_trees(apfl.client_params(one), alone.clients, atol)


@pytest.mark.parametrize("algorithm", support.ALGORITHMS.values(), ids=support.ALGORITHMS)
@pytest.mark.parametrize("group", [1, 3])
def test_clients_outside_the_cohort_keep_their_states(algorithm, group):
    """Bit for bit, whatever the group; those inside change, and each client's alpha and v are its own."""
    data, before = support.client_data(ROWS, group), None
    for _, cohort, state, info in support.play(algorithm(), data):
        assert info["cohort"] == len(cohort)
        for i in range(4) if before is not None else ():
            old, new = support.row(before.clients, i), support.row(state.clients, i)
            same = all((np.asarray(a) == np.asarray(b)).all() for a, b in
                       zip(jax.tree.leaves(old), jax.tree.leaves(new), strict=True))  # fmt: skip
            assert same == (i not in cohort) or not jax.tree.leaves(old)
        before = state


@pytest.mark.parametrize("algorithm", ["FedAvg", "Scaffold", "APFL"])
def test_delay_0_is_synchronous_bit_for_bit(algorithm):
    data = support.client_data(ROWS)
    late = support.ALGORITHMS[algorithm]().replace(max_staleness=2)
    cohort = jf.horizontal.UniformCohort(4, 2)
    on_time = final(late, data, scheduler=jf.horizontal.Stale(cohort, 0, 2))
    wanted = final(support.ALGORITHMS[algorithm](), data, scheduler=cohort)
    support.assert_trees(on_time.server.now, wanted.server, atol=0)
    support.assert_trees(on_time.clients, wanted.clients, atol=0)


@pytest.mark.parametrize("group", [1, 4])
def test_late_clients_read_the_model_of_their_delay(x64, group):
    """Client i trains from the server's model delay_i rounds ago (the first one before that), by the oracle."""
    delays = [(0, 1, 2, 0), (2, 0, 1, 2), (1, 2, 0, 2), (2, 1, 0, 0), (0, 2, 2, 1)]
    model, oracle = support.models("softmax")
    algorithm = jf.FedAvg(model, lr=0.2, batch_size=None, local_steps=2, max_staleness=2)
    data, w = support.client_data(ROWS, group), support.parameters("softmax")
    state = algorithm.init(jax.random.key(0), data)
    first = state.server.now._replace(params=support.to_jax(w))
    late = state._replace(server=jf.horizontal.federate.Versions(first, jf.history.start(first, 3)))
    past, sizes = [w] * 3, np.array(support.SIZES)
    cohorts = (*support.COHORTS, (0, 1, 2, 3))
    for t, cohort, state, _ in support.play(algorithm, data, cohorts, late, delays=delays):
        drawn, moves = support.batches(algorithm, data, t), []
        for i in cohort:
            read = past[-1 - delays[t][i]]
            new = fedavg.local_sgd(oracle, read, *ROWS[i], drawn[i], 0.2)
            moves.append({k: new[k] - read[k] for k in w})
        share = sizes[list(cohort)] / sizes[list(cohort)].sum()
        w = {k: past[-1][k] + sum(p * move[k] for p, move in zip(share, moves, strict=True)) for k in w}
        past.append(w)
        support.assert_params(state.server.now.params, w)


def test_late_clients_use_the_rate_of_the_round():
    """All clients of one round use the same rate, however old the model is that they read (`steps`)."""
    data = support.client_data(support.clients(sizes=(5, 5)))
    algorithm = jf.FedAvg(support.softmax(), lr=jf.steps.ExponentialDecay(0.4, 0.0), batch_size=None, local_steps=1,
                          max_staleness=1)  # fmt: skip
    states = [s for _, _, s, _ in support.play(algorithm, data, [(0, 1)] * 2, delays=[(0, 0), (1, 1)])]
    support.assert_trees(states[0].server.now.params, states[1].server.now.params, atol=0)


def test_apfl_at_its_optimum_stays():
    """Where w and every v_i minimise their losses, nothing moves, alpha included (v_i = w, so its slope is 0)."""
    rows = [(np.eye(2), np.array([1.0, 2.0]))] * 3
    model = jf.models.linear_regression()
    algorithm = jf.APFL(model, lr=0.1, alpha=0.5, adaptive=True, batch_size=None)
    data = support.client_data(rows)
    state = algorithm.init(jax.random.key(0), data)
    best = {"kernel": jnp.array([[1.0, 2.0]]), "bias": jnp.zeros(1)}
    state = state._replace(
        server=state.server._replace(params=best), clients=state.clients._replace(v=support.stack([best] * 3))
    )
    *_, (_, _, after, _) = support.play(algorithm, data, [(0, 1, 2)] * 2, state)
    support.assert_trees(after.clients, state.clients, atol=0)
    support.assert_trees(after.server.params, best, atol=0)


def test_the_order_of_a_cohort_does_not_matter():
    """Each client's random numbers are its own; only the order of sums differs."""
    data, algorithm = support.client_data(ROWS), support.ALGORITHMS["APFL"]()
    state, key = algorithm.init(jax.random.key(0), data), support.round_key(0, 0)
    forward = support.event((0, 2, 3), 4)
    order = np.array([3, 0, 2, 1])
    backward = forward._replace(ids=forward.ids[order], active=forward.active[order])
    one, two = (support.step(algorithm, key, state, data, e)[0] for e in (forward, backward))
    support.assert_trees(one.clients, two.clients, atol=0)
    support.assert_trees(one.server, two.server, atol=1e-6)
