"""The words of `jaxfed sweep`: which algorithm, and the options that a TOML file holds, as if they had been typed."""

import difflib
import tomllib
from pathlib import Path
from typing import Any, NoReturn

from jaxfed.commands.sweep_catalogue import SWEEPS

USAGE = """usage: jaxfed sweep ALGORITHM [OPTIONS]

Run one algorithm with many settings and seeds, in one program: options that take several values are axes, and every
point of their grid is run with every seed. `jaxfed sweep ALGORITHM --help` lists the options.

  jaxfed sweep apfl --alpha 0 0.25 0.5 0.75 1 --lr 0.01 0.03 0.1 --seeds 20 --validation 0.2 --out runs/alpha
  jaxfed sweep --config alpha.toml    (algorithm = "apfl", alpha = [0, 0.25, 0.5], seeds = 20, ...)
  jaxfed show runs/alpha              (the best settings again)
  jaxfed export runs/alpha --csv alpha.csv

ALGORITHM: {names}
"""


def sweep_words(words: list[str]) -> tuple[str, list[str]]:
    """Return ("sweep ALGORITHM", the words of its options), those of --config first: what is typed overrides them.

    Prints help and exits with 0 where that is asked for; ValueError for bad input, FileNotFoundError for no such file.
    """
    if not words or words[0] in ("-h", "--help"):
        print(USAGE.format(names=", ".join(SWEEPS)), end="")
        raise SystemExit(0)
    file = _config(words)
    table = {} if file is None else _read(file)
    held = table.pop("algorithm", None)
    typed = [] if words[0].startswith("-") else [words[0]]
    algorithm = typed[0] if typed else held
    if algorithm not in SWEEPS:
        near = difflib.get_close_matches(str(algorithm), SWEEPS, n=1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        _fail("algorithm", "nothing" if algorithm is None else repr(algorithm), f"one of {', '.join(SWEEPS)}{hint}")
    held_words = [word for key, value in table.items() for word in _words(f"{file}: {key}", key, value)]
    return f"sweep {algorithm}", [*held_words, *words[len(typed) :]]


def _config(words: list[str]) -> str | None:
    """Return the file that the words name last."""
    file = None
    for word, after in zip(words, [*words[1:], None], strict=True):
        if word.startswith("--config="):
            file = word.partition("=")[2]
        elif word == "--config":
            file = after
    return file


def _read(file: str) -> dict[str, Any]:
    if not Path(file).is_file():
        raise FileNotFoundError(f"config: got {file}, wanted a TOML file")
    try:
        return tomllib.loads(Path(file).read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"config: got {file}, wanted a TOML file ({error})") from error


def _words(field: str, key: str, value: Any) -> list[str]:
    """Return an option as it would be typed."""
    name = key.replace("_", "-")
    if name == "config":
        _fail(field, repr(value), "no file inside the file")
    if isinstance(value, bool):
        return [f"--{name}" if value else f"--no-{name}"]
    values = value if isinstance(value, list) else [value]
    if not all(isinstance(v, (int, float, str)) and not isinstance(v, bool) for v in values):
        _fail(field, repr(value), "a number, a text, true or false, or a list of numbers or texts")
    return [f"--{name}", *map(str, values)]


def _fail(field: str, got: str, wanted: str) -> NoReturn:
    raise ValueError(f"{field}: got {got}, wanted {wanted}")
