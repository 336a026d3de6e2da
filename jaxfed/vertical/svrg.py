"""VFB2-SVRG (VFB2, Algorithms 4 and 5)."""

from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp

from jaxfed.nodes import PyTreeNode, field
from jaxfed.types import Array
from jaxfed.vertical import engine
from jaxfed.vertical.objective import Objective


class Reference(NamedTuple):
    """At the reference point w^s: theta [n, *L] of all rows, and the loss's full gradient, in the shape of w.

    products [q, n]: of every row with that gradient, for sparse blocks (else None).
    """

    theta: Array
    gradient: Array
    products: Any


class Fetched(NamedTuple):
    """theta_ref of each update's rows [m, b, *L], and products [m, b, q] of the rows read with G (sparse blocks)."""

    theta: Array
    products: Any


class VFB2SVRG(PyTreeNode):
    """Variance reduced by a reference point: w_l <- w_l - lr ((theta - theta_ref) x_l + G_l + l2 g'(w_l)).

    G = (1/n) sum_j theta_ref_j x_j is the *loss's* gradient at the reference point, so l2 g' counts once (the copied
    text of the paper loses a sign here; see CHANGELOG). At the start of each epoch everything that was sent has been
    applied by all parties, then all evaluate the reference: nothing is discarded.

    Fields as in `VFB2SGD`, and the static `epoch_length`: dominated updates of all dominators between two reference
    points; None: one pass, n / batch_size.
    """

    objective: Objective
    lr: Any = 0.1
    batch_size: int = field(pytree_node=False, default=1)
    epoch_length: int | None = field(pytree_node=False, default=None)
    backward: bool = field(pytree_node=False, default=True)
    secure: Any = None
    defence: Any = None
    factors: Any = None

    init, prepare, step, block_size = engine.init, engine.prepare, engine.step, engine.block_size
    params, predict = engine.params, engine.predict
    mean_moves: ClassVar[bool] = False

    def remember(self, data: Any, w: Array, thetas: Any, lanes: tuple[int, ...]) -> Reference:
        """Return the reference point w."""
        del lanes
        return self.refresh(data, w, thetas, None)

    def refresh(self, data: Any, w: Array, thetas: Any, memory: Any) -> Reference:
        """Return the reference point w, of which `thetas()` are sent."""
        del w, memory
        theta = thetas()
        gradient = data.blocks.pull(theta) / data.num_rows
        sparse = gradient.ndim == 1
        return Reference(theta, gradient, data.blocks.products(gradient) if sparse else None)

    def fetch(self, memory: Reference, tick: Any, rows: Any) -> tuple[Reference, Fetched]:
        """Return theta_ref of the rows of each update, and for sparse blocks the products of the rows to be read."""
        del tick
        products = memory.products
        if products is not None:
            read = rows.read if rows.read.ndim == 4 else rows.read[..., None]
            products = products[jnp.arange(products.shape[0]), read]
        return memory, Fetched(memory.theta[rows.completed], products)

    def message(self, memory: Reference, theta: Array, tick: Any, extra: Fetched) -> tuple[Array, Reference]:
        """Return theta - theta_ref: parties know theta_ref of all rows since the reference point."""
        del tick
        return theta - extra.theta, memory

    def mean(self, memory: Reference) -> Array:
        """Return the loss's gradient at the reference point."""
        return memory.gradient

    def learn(self, memory: Reference, moved: Array, data: Any) -> Reference:
        """Return the same reference point."""
        del moved, data
        return memory
