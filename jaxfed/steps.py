"""Step sizes as functions of the global round, themselves pytrees, so that their numbers can be swept.

A step size is a number, or one of the schedules below. They are indexed by the global round, never by a client's own
count, so all clients of one round use the same rate.
"""

from typing import Any

import jax.numpy as jnp

from jaxfed.nodes import PyTreeNode


class Constant(PyTreeNode):
    """Always `value`."""

    value: Any

    def __call__(self, t):
        """Return the step size of round t."""
        return self.value


class ExponentialDecay(PyTreeNode):
    """`value * rate ** t`: `rate` 0.99 is one percent less each round."""

    value: Any
    rate: Any

    def __call__(self, t):
        """Return the step size of round t."""
        return self.value * jnp.power(self.rate, t)


class InverseTime(PyTreeNode):
    """`value / (t + offset)`: the form of the step sizes in the theorems on strongly convex functions."""

    value: Any
    offset: Any = 1.0

    def __call__(self, t):
        """Return the step size of round t."""
        return self.value / (t + self.offset)


def at(step_size: Any, t: Any) -> Any:
    """Return the step size of round t: a number is itself."""
    return step_size(t) if callable(step_size) else step_size


def initial(step_size: Any) -> Any:
    """Return the step size of round 0."""
    return at(step_size, 0)
