"""VFB2-SGD (VFB2, Algorithms 2 and 3)."""

from typing import Any, ClassVar

from jaxfed.nodes import PyTreeNode, field
from jaxfed.types import Array
from jaxfed.vertical import engine
from jaxfed.vertical.objective import Objective


class VFB2SGD(PyTreeNode):
    """Stochastic gradients: a party that applies a message moves by w_l <- w_l - lr (theta x_l + l2 g'(w_l)).

    Traced fields: `objective.l2`, `lr` (a number or a schedule of `jaxfed.steps`, by tick). Static: `objective`'s
    names; `batch_size`, rows per dominated update, drawn with replacement (theta x_l becomes their mean); `backward`:
    False leaves parties without labels where they are, as methods without backward updating do.

    secure: a `SecureAggregation`, which masks the products (None: they are added plainly). defence: what changes theta
    before it is sent (`release`, `privacy.defences`). factors [q], traced: a party multiplies its own step sizes by its
    factor, as one that deviates from the protocol might (None: nobody does).
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
    mean_moves: ClassVar[bool] = False

    def remember(self, data: Any, w: Array, thetas: Any, lanes: tuple[int, ...]) -> tuple:
        """Return no memory."""
        del data, w, thetas, lanes
        return ()

    def fetch(self, memory: tuple, tick: Any, rows: Any) -> tuple[tuple, tuple]:
        """Return nothing beside theta."""
        del tick, rows
        return memory, ()

    def message(self, memory: tuple, theta: Array, tick: Any, extra: Any) -> tuple[Array, tuple]:
        """Return theta."""
        del tick, extra
        return theta, memory

    def mean(self, memory: tuple) -> None:
        """Return no mean gradient."""
        del memory

    def learn(self, memory: tuple, moved: Array, data: Any) -> tuple:
        """Return no memory."""
        del moved, data
        return memory
