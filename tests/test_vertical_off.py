"""Without masks, defence, factors and a transcript a run is the program of an engine that knows none of them.

The engine is written down here once more as it was before it knew them, and both are compiled.
Of the optimized programs only names and where they come from are taken out: what each instruction computes from which
others, in which order, and how they are fused, must be equal.
"""

import re
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxfed as jf
from jaxfed import core, runner
from jaxfed.vertical import BilevelAsync, Objective, SecureAggregation, backward, engine, lazy
from jaxfed.vertical.data import Depths
from tests.vertical_support import federation


class Event(NamedTuple):
    """One tick of a block."""

    tick: Any
    read: Any
    apply: Any
    extra: Any

    @property
    def time(self):
        """Its end."""
        return self.tick.time


def init(algorithm, key, data):
    """As it was."""
    w = data.train.blocks.zeros()
    memory = algorithm.remember(data.train, w, thetas(algorithm, data.train, w), ())
    w = lazy.start(w, data.train) if w.ndim == 1 else w
    return backward.start(w, memory, data.train, algorithm.batch_size, ())


def thetas(algorithm, data, w):
    """Those of all rows, when they are asked for."""
    return lambda: algorithm.objective.theta(data.blocks.scores(w), data.y)


def prepare(algorithm, key, state, data, ticks, most):
    """As it was."""
    data, size = data.train, ticks.complete.shape[0]

    def snapshot(state):
        w = engine.weights(algorithm, state)
        memory = algorithm.refresh(data, w, thetas(algorithm, data, w), state.memory)
        return state._replace(memory=memory, weights=lazy.start(w, data) if w.ndim == 1 else w)

    if hasattr(algorithm, "epoch_length"):
        state = jax.lax.cond(ticks.snapshot[0], snapshot, lambda s: s, state)
    tick, rows, completed = backward.look_up(key, state, data, algorithm.lr, ticks)
    memory, extra = algorithm.fetch(state.memory, tick, rows)
    if isinstance(state.weights, lazy.Lazy):
        state = state._replace(weights=lazy.renormalise(state.weights, algorithm.mean(memory), state.round, size))
    take = data.blocks.take if rows.read.ndim == 3 else data.blocks.take_each
    event = Event(tick, take(rows.read), data.blocks.take_each(rows.applied), extra)
    later = ticks.snapshot.at[0].set(False)
    length = jnp.minimum(jnp.where(jnp.any(later), jnp.argmax(later), size).astype(jnp.int32), most)
    return state._replace(memory=memory, completed=completed[length - 1], round=state.round + length), event, length


def step(algorithm, key, state, data, event):
    """As it was: products are added, theta is sent as it is."""
    data, tick, objective = data.train, event.tick, algorithm.objective
    sparse, w = isinstance(state.weights, lazy.Lazy), state.weights
    mean = algorithm.mean(state.memory)
    evaluated = lazy._forward(w, mean, event) if sparse else engine.forward(w, event.read)
    products = backward.answer(state.products, tick, evaluated)
    theta = objective.theta(backward.sums(products, tick), tick.y)
    values, memory = algorithm.message(state.memory, theta, tick, event.extra)
    messages = backward.send(state.messages, tick, values)
    rate = backward.rate(algorithm.lr, tick)
    if not sparse:
        moved = engine._pull(backward.due(messages, tick), event.apply)
        each = objective.penalty_gradient(w)
        mean = algorithm.mean(memory)
        each = each if mean is None else each + mean
        gradient = moved / algorithm.batch_size + tick.count.reshape(-1, 1) * each
        memory = algorithm.learn(memory, moved, data)
        w = w - (rate * gradient).astype(w.dtype)
        return state._replace(weights=w, memory=memory, products=products, messages=messages), {}
    indices, x = event.apply
    moved = backward.due(messages, tick)[..., None] * x
    count = tick.count
    shrink = rate * objective.l2 * count
    log_scale = w.log_scale + jnp.log1p(-shrink)
    share, factor = jnp.broadcast_to(rate / algorithm.batch_size, count.shape), w.factor
    if mean is not None:
        factor = factor - shrink * factor - rate * count
    if mean is not None and algorithm.mean_moves:
        share = share + factor / data.num_rows
        moved_mean = mean.at[indices].add((moved / data.num_rows).astype(mean.dtype), mode="promise_in_bounds")
        memory = memory._replace(mean=moved_mean)
    steps = -(share * jnp.exp(-log_scale))[:, None] * moved
    u = w.u.at[indices].add(steps.astype(w.u.dtype), mode="promise_in_bounds")
    w = w.replace(u=u, log_scale=log_scale.astype(u.dtype), factor=factor.astype(u.dtype))
    return state._replace(weights=w, memory=memory, products=products, messages=messages), {}


OLD = {
    method: type(f"Old{method.__name__}", (method,), dict(init=init, prepare=prepare, step=step))
    for method in (jf.VFB2SGD, jf.VFB2SVRG, jf.VFB2SAGA)
}


def bare(text):
    """An optimized program without names: a number for each in the order in which they come."""
    text = text[: text.index("\nFileNames")] + text[text.index("\n\n%") :] if "\nFileNames" in text else text
    text = re.sub(r", metadata=\{[^}]*\}", "", text)
    text = re.sub(r"[\w.\-]+: (?=[a-z]+\d*\[|\()", "", text)  # names of a computation's parameters
    names = {}
    return re.sub(r"%[\w.\-]+", lambda found: f"%{names.setdefault(found[0], len(names))}", text)


def programs(algorithm, sparse, watched=False):
    """The programs that start a run and that go on with it, and what a tick shows."""
    party, _, _ = federation(sparse=sparse)
    plan = jf.vertical.plan(algorithm, party, BilevelAsync(party), 30)
    placed = party.place(Depths(plan.read_depth, plan.message_depth)).replace(watched=watched)
    args = (jax.random.key(0), runner.cast(algorithm, to_float=True), runner.cast(plan.scheduler), placed)
    start = jax.jit(core.init).lower(args[0], args[1], placed).compile()
    carry, info = jax.eval_shape(core.one_round, *args, jax.eval_shape(core.init, args[0], args[1], placed))
    go_on = jax.jit(core.advance, donate_argnums=4).lower(*args, carry, jnp.int32(30)).compile()
    return bare(start.as_text()), bare(go_on.as_text()), info


CASES = [(jf.VFB2SGD, False), (jf.VFB2SVRG, False), (jf.VFB2SAGA, True)]


@pytest.fixture(scope="module")
def now():
    """The engine's programs."""
    return {case: programs(case[0](Objective("logistic", "l2", 0.1), batch_size=2), case[1]) for case in CASES}


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0].__name__}, {'sparse' if case[1] else 'dense'}")
def test_the_program_is_that_of_the_engine_before(case, now):
    old = programs(OLD[case[0]](Objective("logistic", "l2", 0.1), batch_size=2), case[1])
    assert now[case][2] == old[2] == {}, "a tick shows nothing"
    for ours, before in zip(now[case][:2], old[:2], strict=True):
        assert ours.splitlines() == before.splitlines()
        assert len(ours) > 1000 and "metadata" not in ours


def test_the_comparison_sees_what_is_switched_on(now):
    """Factors of one, masks, a transcript, or one more addition."""
    start, go_on, _ = now[CASES[0]]
    algorithm = jf.VFB2SGD(Objective("logistic", "l2", 0.1), batch_size=2)
    masked = programs(algorithm.replace(secure=SecureAggregation(bits=None)), False)
    assert masked[0] != start and masked[1] != go_on and masked[2] == {}
    assert programs(algorithm.replace(factors=np.ones(4)), False)[1] != go_on
    watched = programs(algorithm, False, watched=True)
    assert watched[1] != go_on and set(watched[2]) == {"scores", "theta", "rows", "products"}

    def more(algorithm, key, state, data, event):
        state, seen = step(algorithm, key, state, data, event)
        return state._replace(weights=state.weights + 1e-9), seen

    later = type("Later", (OLD[jf.VFB2SGD],), dict(step=more))(Objective("logistic", "l2", 0.1), batch_size=2)
    assert programs(later, False)[1] != go_on
