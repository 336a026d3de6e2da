"""The problem that vertical methods solve: f(w) = mean_i L(sum_p w_p . x_ip, y_i) + l2 sum_p g(w_p) (VFB2, section 2).

The paper's problems, all with an explicit l2 = lambda: (13) loss "logistic", regularizer "l2"; (14) "logistic" and
"nonconvex"; (17) ridge, "squared" (the paper's r^2) or "half_squared" (r^2 / 2); (18) "robust" and "none".
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxfed.losses import LOSSES, REGULARIZERS
from jaxfed.nodes import PyTreeNode, field
from jaxfed.types import Array

TWO_CLASSES = ("logistic", "squared_hinge")
CURVATURE = {"logistic": 0.25, "squared": 2.0, "half_squared": 1.0, "robust": 1.0, "squared_hinge": 2.0}


class Constants(NamedTuple):
    """L (every f_i's gradient is L-Lipschitz), mu (f is mu-strongly convex; 0: not known to be), and 1 / L, the step
    size that plain SGD theory allows."""

    smoothness: float
    convexity: float
    step: float


class Objective(PyTreeNode):
    """A loss and a regularizer by name (see `jaxfed.losses`), and the weight `l2` of the latter (traced).

    `loss`: "logistic", "squared", "half_squared", "robust", "squared_hinge". `regularizer`: "l2" (g = |w|^2 / 2),
    "nonconvex" (g = sum w^2 / (2 (1 + w^2))), "none". An intercept is regularised like every other coordinate.
    """

    loss: str = field(pytree_node=False, default="logistic")
    regularizer: str = field(pytree_node=False, default="l2")
    l2: Any = 0.0

    @property
    def classifies(self) -> bool:
        """Whether labels are -1 and +1."""
        return self.loss in TWO_CLASSES

    def losses(self, z: Array, y: Array) -> Array:
        """Return L(z, y), elementwise."""
        return LOSSES[self.loss][0](z, y)

    def theta(self, z: Array, y: Array) -> Array:
        """Return dL/dz, what a dominator sends back (the paper's vartheta)."""
        return LOSSES[self.loss][1](z, y)

    def penalty(self, w: Array) -> Array:
        """Return l2 times the sum of g over coordinates, the first two axes of dense or the first of flat weights."""
        return self.l2 * jnp.sum(REGULARIZERS[self.regularizer][0](w)) if self.regularizer != "none" else jnp.zeros(())

    def penalty_gradient(self, w: Array) -> Array:
        """Return l2 g'(w), elementwise."""
        return self.l2 * REGULARIZERS[self.regularizer][1](w) if self.regularizer != "none" else jnp.zeros_like(w)

    def value(self, w: Array, data: Any) -> Array:
        """Return f(w), a scalar; w as the blocks of `data` (PartyData) hold it."""
        return jnp.mean(self.losses(data.blocks.scores(w), data.y)) + self.penalty(w)

    def gradient(self, w: Array, data: Any) -> Array:
        """Return the gradient of f, in the shape of w."""
        theta = self.theta(data.blocks.scores(w), data.y)
        return data.blocks.pull(theta) / data.num_rows + self.penalty_gradient(w)

    def constants(self, data: Any) -> Constants:
        """Return bounds from the data: L = L''_max max_i |x_i|^2 + l2 and mu = l2 (0 where g or L is not convex)."""
        rows = float(np.max(data.blocks.squared_norms()))
        l2 = float(self.l2) if self.regularizer != "none" else 0.0
        smoothness = CURVATURE[self.loss] * rows + l2
        convex = self.loss != "robust" and self.regularizer == "l2"
        return Constants(smoothness, l2 if convex else 0.0, 1 / smoothness if smoothness > 0 else np.inf)
