"""APFL against the NumPy oracle in every variant, its fast form against the plain one, and its limits."""

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxfed as jf
from tests import support
from tests.reference import apfl

ALPHA = (0.0, 0.3, 0.7, 1.0)
FULL = {"batch_size": None, "local_steps": 3}
DRAWN = {"batch_size": 3, "local_steps": 4}
VARIANTS = [
    dict(zip(("mix", "order", "adaptive", "alpha_every", "alpha_gradient"), values, strict=True))
    for values in (
        *product(("params", "logits"), ("simultaneous", "sequential"), (False,), ("round",), ("exact",)),
        *product(("params", "logits"), ("simultaneous", "sequential"), (True,), ("round", "step"),
                 ("exact", "fedtorch")),
    )
]  # fmt: skip
SIMPLE = [v for v in VARIANTS if (v["order"], v["alpha_gradient"]) == ("simultaneous", "exact")]
SOME = [v for v in VARIANTS if sum(map(str(v.values()).count, ("logits", "sequential", "step", "fedtorch"))) % 2 == 0]
RATES = {"personal_lr": 0.35, "alpha_lr": 0.6, "alpha_l2": 0.05, "server_lr": 0.9}


def start(name, rows, algorithm, group=1, seed=1):
    """(data, jaxfed's state, the oracle's w, v, alpha): v differs from w from the start."""
    data = support.client_data(rows, group)
    state = algorithm.init(jax.random.key(0), data)
    w = support.parameters(name, seed)
    v = [support.parameters(name, seed + 1 + i) for i in range(len(rows))]
    clients = state.clients._replace(v=support.stack([support.to_jax(v_i) for v_i in v]))
    if algorithm.evaluate_with == "local":
        clients = clients._replace(w=support.stack([support.to_jax(w)] * len(rows)))
    state = state._replace(server=state.server._replace(params=support.to_jax(w)), clients=clients)
    return data, state, w, v, list(np.asarray(state.clients.alpha))


def agree(name, algorithm, group=1, weights="uniform", rates=RATES, lr=lambda t: 0.25, seed=0):
    """Play jaxfed and the oracle side by side: w, every v_i, alpha_i and last local w_i agree to 1e-10."""
    rows, (_, oracle) = support.clients(seed), support.models(name)
    data, first, w, v, alpha = start(name, rows, algorithm, group)
    local = [w] * len(rows)
    moved, variant = [], {k: getattr(algorithm, k) for k in VARIANTS[0]}
    for t, cohort, state, info in support.play(algorithm, data, state=first, seed=seed):
        drawn, rate = support.batches(algorithm, data, t, seed), lr(t)
        w, v, alpha, trained = apfl.apfl_round(
            oracle, w, v, alpha, rows, cohort, drawn, rate, weights=weights, **rates, **variant
        )
        local = [trained.get(i, local[i]) for i in range(len(rows))]
        support.assert_params(state.server.params, w)
        np.testing.assert_allclose(state.clients.alpha, alpha, rtol=0, atol=1e-10)
        for i in range(len(rows)):
            support.assert_params(support.row(state.clients.v, i), v[i])
            if algorithm.evaluate_with == "local":
                support.assert_params(support.row(state.clients.w, i), local[i])
        moved.append(alpha)
        assert ("alpha_gradient" in info) == algorithm.adaptive
    return np.array(moved), state, data, (w, v, alpha, local)


def spell(variant):
    return "-".join(map(str, variant.values()))


@pytest.mark.parametrize("variant", VARIANTS, ids=spell)
def test_every_variant_agrees_with_the_oracle(x64, variant, name="mlp"):
    model, _ = support.models(name)
    algorithm = jf.APFL(model, lr=0.25, alpha=jnp.array(ALPHA), form="plain", evaluate_with="local", **variant,
                        **RATES, **FULL)  # fmt: skip
    moved, *_ = agree(name, algorithm)
    assert (moved != np.array(ALPHA)).any() == variant["adaptive"]


@pytest.mark.parametrize("variant", SOME, ids=spell)
def test_plain_form_of_a_linear_model_agrees_with_the_oracle(x64, variant):
    """In half of the variants, which hold every combination of three settings."""
    test_every_variant_agrees_with_the_oracle(None, variant, "softmax")


@pytest.mark.parametrize("variant", SIMPLE, ids=spell)
def test_fast_form_agrees_with_the_oracle(x64, variant):
    algorithm = jf.APFL(support.models("softmax")[0], lr=0.25, alpha=jnp.array(ALPHA), **variant, **RATES, **FULL)
    assert algorithm.fast and not algorithm.replace(form="plain").fast
    agree("softmax", algorithm, group=3)


@pytest.mark.parametrize("name", ["softmax", "mlp"])
def test_defaults_on_drawn_rows(x64, name):
    """The rates of alpha and v are lr where none is given, by round; examples may weigh the mean."""
    lr = jf.steps.ExponentialDecay(0.4, 0.5)
    algorithm = jf.APFL(support.models(name)[0], lr=lr, alpha=0.5, adaptive=True, form="plain", weights="examples",
                        batches="epochs", batch_size=4, local_epochs=2)  # fmt: skip
    agree(name, algorithm, weights="examples", rates={}, lr=lambda t: 0.4 * 0.5**t)


def test_fedtorch_preset(x64):
    """Outputs mixed, w first, 0.02 alpha of decay, v's rate fixed while w's and alpha's fall by 1.01 a round."""
    algorithm = jf.APFL.fedtorch(support.models("mlp")[0], lr=0.3, local_steps=3)
    assert algorithm.batch_size == 50 and algorithm.batches == "epochs" and algorithm.evaluate_with == "local"
    rates = {"personal_lr": 0.3, "alpha_l2": 0.01}
    _, state, data, (w, v, alpha, local) = agree("mlp", algorithm, rates=rates, lr=lambda t: 0.3 / 1.01**t)
    # what is evaluated: outputs of v_i mixed with those of the client's own last w_i
    x, oracle = support.clients(9)[0][0], support.models("mlp")[1]
    for i in range(4):
        outputs = algorithm.predict(state, x, client=i)
        wanted = apfl.personal_logits(oracle, local[i], v[i], alpha[i], x, "logits")
        np.testing.assert_allclose(outputs, wanted, rtol=0, atol=1e-10)


def test_alpha_is_kept_within_0_and_1(x64):
    algorithm = jf.APFL(support.models("softmax")[0], lr=0.25, alpha=jnp.array(ALPHA), adaptive=True,
                        **(RATES | {"alpha_lr": 20.0}), **FULL)  # fmt: skip
    moved, *_ = agree("softmax", algorithm, rates=RATES | {"alpha_lr": 20.0})
    assert (moved == 0).any() and (moved == 1).any()


@pytest.mark.parametrize("loss", ["half_squared", "logistic", "softmax_cross_entropy"])
def test_fast_form_equals_the_plain_form(loss):
    """To 1e-10 in float64, also for one output and other losses; to rounding in float32, where many are."""
    many = loss == "softmax_cross_entropy"
    model = support.models("softmax")[0] if many else jf.models.linear_regression(0.1, loss)
    rows = support.clients()
    rows = rows if many else [(x, np.where(y > 0, 1, -1)) for x, y in rows]
    for wide, tolerance in ((False, 2e-5),) if many else ((True, 1e-10),):
        with jax.enable_x64(wide):
            algorithm = jf.APFL(model, alpha=jnp.array(ALPHA), adaptive=True, alpha_every="step", **RATES, **DRAWN)
            data = support.client_data(rows)
            fast, plain = (list(support.play(a, data))[-1] for a in (algorithm, algorithm.replace(form="plain")))
            support.assert_trees(fast[2], plain[2], atol=tolerance)
            support.assert_trees(fast[3], plain[3], atol=10 * tolerance)


@pytest.mark.parametrize("alpha_every", ["round", "step"])
def test_no_penalty_is_a_penalty_of_zero(x64, alpha_every):
    model = jf.models.logistic_regression(support.CLASSES)
    assert model.l2 is None
    made = dict(lr=0.3, alpha=jnp.array(ALPHA), adaptive=True, alpha_every=alpha_every, **DRAWN)
    data = support.client_data(support.clients())
    for form in ("auto", "plain"):
        without, zero = (
            list(support.play(jf.APFL(m, form=form, **made), data))[-1][2] for m in (model, model.replace(l2=0.0))
        )
        support.assert_trees(without, zero, atol=1e-12)


def test_mixture_is_evaluated_with_the_servers_or_the_clients_own_w(x64):
    rows, (model, oracle) = support.clients(), support.models("softmax")
    x = support.clients(9)[1][0]
    for evaluate_with, mix in product(("server", "local"), ("params", "logits")):
        algorithm = jf.APFL(model, lr=0.25, alpha=jnp.array(ALPHA), evaluate_with=evaluate_with, mix=mix, **FULL)
        data, state, *_ = start("softmax", rows, algorithm)
        state = list(support.play(algorithm, data, state=state))[-1][2]
        for i in range(4):
            w = support.row(state.clients.w, i) if evaluate_with == "local" else state.server.params
            v = support.row(state.clients.v, i)
            wanted = apfl.personal_logits(oracle, support.to_numpy(w), support.to_numpy(v), ALPHA[i], x, mix)
            np.testing.assert_allclose(algorithm.predict(state, x, client=i), wanted, rtol=0, atol=1e-10)
