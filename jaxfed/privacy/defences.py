"""Defences: what a dominator does to theta before it sends it, so that labels are harder to read off.

A defence is a PyTreeNode with two pure methods and a check, and `aggregates`:

  draw(key, row_key, y) -> drawn      the randomness of ONE released theta, scalars. `key` is fresh for each release,
                                      `row_key` the same for a sample during the whole run; y is the sample's label.
  release(theta, y, drawn) -> theta   what is sent. theta [m, b, *L] of m dominators and minibatches of b rows (a full
                                      pass: m = 1, b = n); y and the leaves of drawn [m, b, 1...] broadcast against it.
  check(objective, batch_size)        raises ValueError where the defence does not suit the problem.

Strengths are traced, numbers or [L], so they are swept like any hyperparameter. Whoever averages many releases of one
sample is rid of noise that is drawn anew each time (`Gaussian`, `MaxNorm`, `marvell.Marvell`), but not of a flip that
is drawn once per sample (`RandomisedResponse`): judge them over a whole run. Li et al. 2022 is "Label Leakage and
Protection in Two-party Split Learning" (arXiv 2102.08504).
"""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from jaxfed.checks import fail, flag, numbers, one_of
from jaxfed.nodes import PyTreeNode, field
from jaxfed.types import Array, Key

SLOPE = {"logistic": 0.5, "squared": 2.0, "half_squared": 1.0}  # theta = something of z alone - SLOPE y
LARGEST = {"logistic": 1.0, "robust": 2**-0.5}  # the least upper bound of |theta|, where there is one


class Gaussian(PyTreeNode):
    """theta + std eta, eta standard normal and fresh for each release (Li et al. 2022's "iso").

    It is unbiased, and so the mean of R releases has noise std / sqrt(R) only. Departure: std is a number, not a
    multiple of the minibatch's largest |theta|.
    """

    std: Any = 1.0
    aggregates: ClassVar[bool] = False

    def draw(self, key: Key, row_key: Key, y: Array) -> Array:
        """Return eta."""
        del row_key, y
        return jax.random.normal(key)

    def release(self, theta: Array, y: Array, drawn: Array) -> Array:
        """Return theta with noise."""
        del y
        return theta + self.std * drawn

    def check(self, objective: Any, batch_size: int) -> None:
        """Require a standard deviation."""
        del objective, batch_size
        numbers("defence.std", self.std, 0)


class MaxNorm(PyTreeNode):
    """Max-norm alignment (Li et al. 2022): noise along the gradient, of equal second moment for all rows.

    In one dimension theta (1 + strength sqrt(M^2 / theta^2 - 1) eta), M the largest |theta| of the minibatch. With
    strength 1 the mean is theta and the second moment is M^2, whatever the sample, so |theta| tells nothing on
    average; its sign still does. theta = 0 has the limit +- M eta.

    bound: M (traced), instead of the minibatch's largest: what a minibatch of one row needs. None there means 1, the
    logistic loss's (departure: the paper has minibatches). Where all |theta| of a minibatch are equal, as before the
    first update, the formula adds nothing at all and theta is sent as it is; a bound of the loss prevents that.
    """

    strength: Any = 1.0
    bound: Any = None
    aggregates: ClassVar[bool] = False

    def draw(self, key: Key, row_key: Key, y: Array) -> Array:
        """Return eta."""
        del row_key, y
        return jax.random.normal(key)

    def release(self, theta: Array, y: Array, drawn: Array) -> Array:
        """Return theta with noise; rows beyond `bound` get none."""
        del y
        bound, size = self.bound, jnp.abs(theta)
        if bound is None:
            bound = jnp.max(size, axis=1, keepdims=True) if theta.shape[1] > 1 else LARGEST["logistic"]
        missing = jnp.sqrt(jnp.maximum(bound - size, 0) * (bound + size))  # |theta| sqrt(M^2 / theta^2 - 1)
        return theta + jnp.where(theta < 0, -1, 1) * missing * self.strength * drawn

    def check(self, objective: Any, batch_size: int) -> None:
        """Require a bound where there is no minibatch to take a largest of, but for the logistic loss."""
        numbers("defence.strength", self.strength, 0)
        numbers("defence.bound", self.bound, 0)
        if self.bound is None and batch_size == 1 and objective.loss != "logistic":
            known = LARGEST.get(objective.loss)
            which = f"{known:.4f} bounds theta" if known else "none bounds theta for all z"
            fail("defence.bound", "None with batch_size 1", f"a number for the loss {objective.loss!r}: {which}")


class RandomisedResponse(PyTreeNode):
    """theta of a label that is flipped with probability p = 1 / (1 + e^epsilon), once per sample for the whole run.

    What is sent depends on the label only through the flipped one, so a run of any length is epsilon-differentially
    private in each label (Warner 1965), as long as the dominator never uses the true one. As theta is linear in y, with
    slope -1/2 (logistic), -2 (squared) or -1 (half_squared), the flip needs neither z nor a second pass. `corrected`:
    the flipped label y' counts as y' / (1 - 2 p), for the logistic loss ((1 + y') / 2 - p) / (1 - 2 p) in place of
    (1 + y) / 2, so that the mean over flips is theta; its noise grows without limit as epsilon goes to 0. `loss`
    (static): the objective's, by name. Labels are -1 and +1, also under the squared losses.
    """

    epsilon: Any = 1.0
    corrected: bool = field(pytree_node=False, default=True)
    loss: str = field(pytree_node=False, default="logistic")
    aggregates: ClassVar[bool] = False

    def draw(self, key: Key, row_key: Key, y: Array) -> Array:
        """Return a number uniform in [0, 1), the sample's own."""
        del key, y
        return jax.random.uniform(row_key)

    def release(self, theta: Array, y: Array, drawn: Array) -> Array:
        """Return theta of the flipped labels."""
        p = jax.nn.sigmoid(-jnp.asarray(self.epsilon, theta.dtype))
        shown = jnp.where(drawn < p, -y, y)
        if self.corrected:
            shown = shown / jnp.tanh(jnp.asarray(self.epsilon, theta.dtype) / 2)  # 1 - 2 p, without cancellation
        return theta + SLOPE[self.loss] * (y - shown)

    def check(self, objective: Any, batch_size: int) -> None:
        """Require a loss whose theta is linear in the label, and an epsilon."""
        del batch_size
        flag("defence.corrected", self.corrected)
        one_of("defence.loss", self.loss, tuple(SLOPE))
        if objective.loss != self.loss:
            fail("defence.loss", repr(self.loss), f"{objective.loss!r}, the objective's, one of {sorted(SLOPE)}")
        numbers("defence.epsilon", self.epsilon, 1e-6 if self.corrected else 0)


class Clip(PyTreeNode):
    """theta kept within [-bound, bound]: it hides how far a sample is from its label, never on which side."""

    bound: Any = 0.5
    aggregates: ClassVar[bool] = False

    def draw(self, key: Key, row_key: Key, y: Array) -> tuple:
        """Return nothing: clipping is not random."""
        del key, row_key, y
        return ()

    def release(self, theta: Array, y: Array, drawn: Any) -> Array:
        """Return theta, clipped."""
        del y, drawn
        return jnp.clip(theta, -self.bound, self.bound)

    def check(self, objective: Any, batch_size: int) -> None:
        """Require a bound."""
        del objective, batch_size
        numbers("defence.bound", self.bound, 0)


class BatchGradients(PyTreeNode):
    """theta is sent to nobody: party l gets (1/b) sum_i theta_i x_il, its gradient (what encrypted protocols reveal).

    The weights are the same. A party with at least as many independent features as rows solves for theta.
    """

    aggregates: ClassVar[bool] = True

    def draw(self, key: Key, row_key: Key, y: Array) -> tuple:
        """Return nothing."""
        del key, row_key, y
        return ()

    def release(self, theta: Array, y: Array, drawn: Any) -> Array:
        """Return theta as it is: the sum is taken with it."""
        del y, drawn
        return theta

    def check(self, objective: Any, batch_size: int) -> None:
        """Require minibatches: the gradient of one row is theta times what the party knows."""
        del objective
        if batch_size < 2:
            fail("batch_size", batch_size, "at least 2 with BatchGradients: one row's gradient is theta x")
