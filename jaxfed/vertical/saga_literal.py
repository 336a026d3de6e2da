"""VFB2-SAGA as printed (VFB2, Algorithms 6 and 7): a table of whole gradients at every party. For small data."""

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from jaxfed.checks import fail
from jaxfed.nodes import PyTreeNode, field
from jaxfed.types import Array, Key
from jaxfed.vertical import backward, engine, exchange
from jaxfed.vertical.backward import VerticalState
from jaxfed.vertical.blocks import Dense
from jaxfed.vertical.objective import Objective

MOST_BYTES = 2**31


class Gradients(NamedTuple):
    """The printed alpha_i^l [n, q, d]: each party's last gradient of each row with the regulariser; mean [q, d]."""

    table: Array
    mean: Array


class LiteralSAGA(PyTreeNode):
    """w_l <- w_l - lr (theta x_l + l2 g'(w_l) - table_il + mean_l), then table_il <- theta x_l + l2 g'(w_l).

    Each party writes its table when it applies a message, so the tables differ between parties. Messages that a party
    applies in one tick take turns at its table in the order of dominators, and equal rows of a minibatch in theirs;
    all read the weights as they were when the tick began. `VFB2SAGA` has the same optimum, one number a row for
    memory, and is many times faster. Fields as there. Dense blocks only; ValueError for sparse blocks and for tables
    beyond 2 GiB.
    """

    objective: Objective
    lr: Any = 0.1
    batch_size: int = field(pytree_node=False, default=1)
    backward: bool = field(pytree_node=False, default=True)
    secure: Any = None
    defence: Any = None
    factors: Any = None

    init, prepare, block_size = engine.init, engine.prepare, engine.block_size
    params, predict = engine.params, engine.predict
    mean_moves: ClassVar[bool] = True

    def remember(self, data: Any, w: Array, thetas: Any, lanes: tuple[int, ...]) -> Gradients:
        """Return the table of w: one full pass."""
        blocks = data.blocks
        if not isinstance(blocks, Dense) or lanes:
            fail("data", "sparse blocks", "dense ones for LiteralSAGA (VFB2SAGA takes both)")
        if (need := blocks.x.size * jnp.dtype(w.dtype).itemsize) > MOST_BYTES:
            fail("data", f"a table of {need / 2**30:.3g} GiB", f"at most {MOST_BYTES / 2**30:g} GiB, or VFB2SAGA")
        theta = thetas()
        table = theta[:, None, None] * blocks.x + self.objective.penalty_gradient(w)
        return Gradients(table, jnp.mean(table, 0))

    def fetch(self, memory: Gradients, tick: Any, rows: Any) -> tuple[Gradients, Array]:
        """Return the rows that each party applies, [B, m, b, q]."""
        del tick
        return memory, rows.applied

    def mean(self, memory: Gradients) -> Array:
        """Return the running mean of the table."""
        return memory.mean

    def step(self, key: Key, state: VerticalState, data: Any, event: Any) -> tuple[VerticalState, dict]:
        """Return the state after one tick: reads, completions, applies."""
        del key
        w, tick, n = state.weights, event.tick, data.train.num_rows
        sent = exchange.exchange(self, state, data.train, event, engine.forward(w, event.read))
        messages = backward.send(state.messages, tick, sent.theta)
        penalty = self.objective.penalty_gradient(w)
        fresh = backward.due(messages, tick)[..., None] * event.apply + penalty  # [m, b, q, d]
        party = jnp.arange(w.shape[0])

        def row(carry, inputs):
            table, moved = carry
            new, rows, applies = inputs
            old = table[rows, party]
            new = jnp.where(applies[:, None], new, old)
            return (table.at[rows, party].set(new), moved + new - old), None

        def dominator(carry, inputs):
            table, mean, total = carry
            new, rows, applies = inputs
            each = jnp.broadcast_to(applies, (self.batch_size, *applies.shape))
            (table, moved), _ = jax.lax.scan(row, (table, jnp.zeros_like(mean)), (new, rows, each))
            estimate = moved / self.batch_size + mean
            return (table, mean + moved / n, total + jnp.where(applies[:, None], estimate, 0)), None

        by_dominator = fresh, event.extra, tick.applies
        start = (*state.memory, jnp.zeros_like(w))
        (table, mean, total), _ = jax.lax.scan(dominator, start, by_dominator)
        w = w - (exchange.own_rate(self, tick, w.ndim) * total).astype(w.dtype)
        memory = Gradients(table, mean)
        state = state._replace(weights=w, memory=memory, messages=messages, products=sent.products, secret=sent.secret)
        return state, sent.seen
