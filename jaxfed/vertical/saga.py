"""VFB2-SAGA (VFB2, Algorithms 6 and 7), with one number a row for memory."""

from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp

from jaxfed.nodes import PyTreeNode, field
from jaxfed.types import Array
from jaxfed.vertical import engine
from jaxfed.vertical.objective import Objective


class Table(NamedTuple):
    """theta [n + 1, *L]: each row's last (and a place for what is not to be kept); old [m, b, *L]: those of the rows
    that each dominator completes next; mean: (1/n) sum_j theta_j x_j, in the shape of w, as each party knows it."""

    theta: Array
    old: Array
    mean: Array


class Places(NamedTuple):
    """Where the rows of a tick's updates are, [m b]: `write` in the table, `twin`: the place among themselves of an
    earlier equal row, or -1. `next` [m, b]: the rows that each dominator completes after this tick."""

    write: Array
    twin: Array
    next: Array


class VFB2SAGA(PyTreeNode):
    """Variance reduced by a table: w_l <- w_l - lr ((theta - theta_i) x_l + A_l + l2 g'(w_l)), then A_l moves along.

    For a linear model the printed table of gradients, n d numbers, needs one theta a row. Departures from the printed
    form, with the same fixed point: the table holds no regulariser; it is one for all, written when an update is
    completed, and messages carry theta minus the old value. `vertical.LiteralSAGA` is the printed form. Equal rows
    completed in one tick or minibatch see each other in the order of dominators.

    Fields as in `VFB2SGD`.
    """

    objective: Objective
    lr: Any = 0.1
    batch_size: int = field(pytree_node=False, default=1)
    backward: bool = field(pytree_node=False, default=True)
    secure: Any = None
    defence: Any = None
    factors: Any = None

    init, prepare, step, block_size = engine.init, engine.prepare, engine.step, engine.block_size
    params, predict = engine.params, engine.predict
    mean_moves: ClassVar[bool] = True

    def remember(self, data: Any, w: Array, thetas: Any, lanes: tuple[int, ...]) -> Table:
        """Return the table of w: one full pass."""
        del w
        theta = thetas()
        old = jnp.zeros((data.num_active, self.batch_size, *lanes), theta.dtype)
        spare = jnp.zeros((1, *lanes), theta.dtype)
        return Table(jnp.concatenate([theta, spare]), old, data.blocks.pull(theta) / data.num_rows)

    def fetch(self, memory: Table, tick: Any, rows: Any) -> tuple[Table, Places]:
        """Return the places of each update's rows, and the table with what the first tick will compare with."""
        batch = rows.completed.reshape(rows.completed.shape[0], -1)
        completes = jnp.repeat(tick.completes, rows.completed.shape[2], axis=1)
        number = jnp.arange(batch.shape[1])
        equal = (batch[:, :, None] == batch[:, None]) & completes[:, None]  # [B, row, its equals that are completed]
        twin = jnp.max(jnp.where(equal & (number < number[:, None]), number, -1), -1)
        last = ~jnp.any(equal & (number > number[:, None]), -1)
        write = jnp.where(completes & last, batch, memory.theta.shape[0] - 1)
        return memory._replace(old=memory.theta[rows.completed[0]]), Places(write, twin, rows.next)

    def message(self, memory: Table, theta: Array, tick: Any, extra: Places) -> tuple[Array, Table]:
        """Return theta - theta_i, and the table with theta_i <- theta.

        The table is written first and then read for the next tick: read first, XLA would copy it whole.
        """
        flat = theta.reshape(-1, *theta.shape[2:])
        twin = extra.twin.reshape(-1, *[1] * (flat.ndim - 1))
        old = jnp.where(twin >= 0, flat[extra.twin], memory.old.reshape(flat.shape)).reshape(theta.shape)
        table = memory.theta.at[extra.write].set(flat, mode="promise_in_bounds")
        return theta - old, memory._replace(theta=table, old=table[extra.next])

    def mean(self, memory: Table) -> Array:
        """Return the running mean gradient of the loss."""
        return memory.mean

    def learn(self, memory: Table, moved: Array, data: Any) -> Table:
        """Return the table with the means moved by what was applied."""
        return memory._replace(mean=memory.mean + moved / data.num_rows)
