"""The sinks that the options of a run ask for."""

import contextlib
from collections.abc import Iterator
from typing import Any

from jaxfed import sinks
from jaxfed.commands.options import Track


@contextlib.contextmanager
def tracking(options: Track) -> Iterator[tuple[Any, ...]]:
    """Open the sinks, and close them at the end. Raises ModuleNotFoundError, with advice, for a missing package."""
    with contextlib.ExitStack() as stack:
        opened: list[Any] = []
        if options.tensorboard is not None:
            opened.append(stack.enter_context(sinks.TensorBoard(options.tensorboard)))
        if options.wandb is not None:
            opened.append(stack.enter_context(sinks.Wandb(project=options.wandb)))
        yield tuple(opened)
