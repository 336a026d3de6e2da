"""A schedule that begins at a later round: what a run that goes on from a state follows."""

from typing import Any

from jaxfed.nodes import PyTreeNode, field
from jaxfed.types import Array, Key
from jaxfed.vertical.data import Depths
from jaxfed.vertical.ticks import Tick


class Shifted(PyTreeNode):
    """Tick t is tick t - first of `inner`, `offset` seconds later. `depths`: the room that the delays need, static."""

    inner: Any
    first: Any
    offset: Any
    depths: Depths = field(pytree_node=False)

    def __call__(self, key: Key, t: Array) -> Tick:
        """Return tick t."""
        tick = self.inner(key, t - self.first)
        return tick._replace(time=tick.time + self.offset)
