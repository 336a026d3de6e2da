"""A run's settings on disk: `settings.json`, from which its data and its algorithm are built again."""

import dataclasses
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from jaxfed.commands.catalogue import class_of

NAME = "settings.json"


def save(command: str, options: Any, folder: str | os.PathLike) -> None:
    """Write the command's name and its groups of options; a kill leaves the old file or the new one."""
    content = {"command": command} | dataclasses.asdict(options)
    handle, temporary = tempfile.mkstemp(dir=folder, suffix=".partial")
    try:
        with os.fdopen(handle, "w") as file:
            json.dump(content, file, indent=2)
        os.replace(temporary, Path(folder) / NAME)
    finally:
        Path(temporary).unlink(missing_ok=True)


def load(folder: str | os.PathLike) -> tuple[str, Any]:
    """Return (command, options) of a saved run.

    Raises FileNotFoundError where there is none, ValueError for a file that this version does not understand.
    """
    path = Path(folder) / NAME
    if not path.is_file():
        raise FileNotFoundError(f"folder: got {folder}, wanted a folder that jaxfed wrote (it has no {NAME})")
    try:
        content = json.loads(path.read_text())
        command = content.pop("command")
        return command, _build(class_of(command), content)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{path}: got {error!r}, wanted the settings of a run by this version of jaxfed") from error


def _build(cls: Any, content: dict) -> Any:
    """Return the dataclass from what JSON made of it: its groups are dicts, its tuples lists.

    A group that is not there, as in files of before it was, has its defaults.
    """
    groups = {f.name: f.type for f in dataclasses.fields(cls) if dataclasses.is_dataclass(f.type)}
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in content.items()}
    return cls(**values | {name: _build(group, content.get(name, {})) for name, group in groups.items()})
