"""A command with `--checkpoint`: its arguments for `run`, and which results in the output's folder are its own."""

from pathlib import Path
from typing import Any

from jaxfed import checks
from jaxfed.commands import settings


def arguments(command: str, options: Any) -> dict[str, Any]:
    """Return what `run` gets. The folder keeps the command's settings, those of its first call.

    Raises ValueError for a folder that can't be made or written to.
    """
    folder = options.long.checkpoint
    if folder is not None:
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
            if not (Path(folder) / settings.NAME).exists():
                settings.save(command, options, folder)
        except OSError as error:
            checks.fail("checkpoint", folder, f"a folder that can be made and written to ({error.strerror})")
    return {"checkpoint": folder, "checkpoint_seconds": options.long.checkpoint_seconds}


def goes_on(options: Any) -> bool:
    """Return whether the output's folder is that of the command whose checkpoints are kept: it may be replaced."""
    folder = None if not hasattr(options, "long") else options.long.checkpoint
    if folder is None or not (Path(folder) / settings.NAME).is_file():
        return False
    return settings.load(folder)[1].output.out == options.output.out
