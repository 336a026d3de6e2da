"""From the words of a command line to a command's options, or to one line that says what is wrong with them."""

import contextlib
import dataclasses
import difflib
import io
import re
import types
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, Literal, NoReturn, Union, get_args, get_origin, get_type_hints

import tyro

from jaxfed.commands import settings
from jaxfed.commands.catalogue import COMMANDS, Vfb2, class_of
from jaxfed.commands.options import Long, Output, Processes, Start, Track
from jaxfed.commands.sweep_options import SWEPT
from jaxfed.commands.sweep_words import sweep_words
from jaxfed.commands.vertical_options import Export, Length

SWEEP = "Sweep: many settings and seeds of one of the algorithms, in one program."
USAGE = """usage: jaxfed COMMAND [OPTIONS]

Simulate federated learning. `jaxfed COMMAND --help` lists the options of a command.

{commands}

Everywhere: --debug shows where an error comes from. `jaxfed --version` prints the version.
Exit status: 0 done (also where the run diverged: a warning says so), 2 bad input, 130 interrupted, 143 the same by
SIGTERM, 75 by SIGTERM with --checkpoint (the same command goes on), 1 anything else.
"""


def parse(argv: Sequence[str]) -> tuple[str, Any]:
    """Return (command, options). Prints help and exits with 0 where that is asked for; ValueError for bad input."""
    if not argv or argv[0] in ("-h", "--help"):
        said = {name: _first_line(cls) for name, cls in COMMANDS.items()} | {"sweep": SWEEP}
        lines = (f"  {name:{max(map(len, said))}}  {line}" for name, line in said.items())
        print(USAGE.format(commands="\n".join(lines)), end="")
        raise SystemExit(0)
    if argv[0] == "--version":
        print(version("jaxfed"))
        raise SystemExit(0)
    name, words = argv[0], list(argv[1:])
    if name == "sweep":
        name, words = sweep_words(words)
    elif name not in COMMANDS:
        names = [*COMMANDS, "sweep"]
        _fail("command", repr(name), f"one of {', '.join(names)}{_nearest(name, names)}")
    options = _options(name, words)
    if defaults := _other_defaults(name, options):
        options = _options(name, words, defaults)
    return name, options


def _other_defaults(name: str, options: Any) -> Any:
    """Return what holds where the command line is silent: the settings of an earlier run, a preset's, or None."""
    start = getattr(options, "start", Start())
    preset = getattr(options, "preset", "none")
    if start.continue_from is not None:
        command, earlier = settings.load(start.continue_from)
        if command != name:
            _fail("continue_from", f"a run of {command!r} in {start.continue_from}", f"a run of {name!r}")
        if preset != "none" and preset != earlier.preset:
            _fail("preset", preset, "none with continue_from: the earlier run's settings hold")
        return _without_ends(earlier, options)
    if preset != "none":
        from jaxfed.commands.build import fedtorch

        return fedtorch(options)
    return None


def _without_ends(earlier: Any, options: Any) -> Any:
    """Return an earlier run's settings without its files and processes, without its length where another is given."""
    fresh: dict[str, Any] = {"output": Output(), "start": Start(), "long": Long(), "track": Track()}
    if hasattr(earlier.running, "processes"):
        fresh["running"] = dataclasses.replace(earlier.running, processes=Processes())
    if isinstance(earlier, Vfb2):
        fresh["export"] = Export()
        if dataclasses.replace(options.length, every=None) != Length():
            fresh["length"] = Length()
    return dataclasses.replace(earlier, **fresh)


def _options(name: str, words: list[str], default: Any = None) -> Any:
    """Return the options of one command; every complaint of the parser becomes one line."""
    cls = class_of(name)
    default = tyro.MISSING_NONPROP if default is None else default
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            options, unknown = tyro.cli(
                cls,
                prog=f"jaxfed {name}",
                args=words,
                default=default,
                config=(tyro.conf.OmitArgPrefixes, tyro.conf.PositionalMetavarFromFieldName),
                return_unknown_args=True,
            )
    except SystemExit as end:
        if end.code in (0, None):
            raise
        _explain(cls, words, complaint.getvalue())
    for field, kind in _types(cls).items():  # to the parser these are all their choices, or the default
        if field in ("attacks", "only") and f"--{field}" in words and not _given(words, field):
            _fail(field, "nothing", f"{_wanted(kind)[0]}, or the option left out for all")
    if unknown:
        known = [f"--{field.replace('_', '-')}" for field in _types(cls)]
        if not unknown[0].startswith("-"):
            if name.startswith("sweep"):
                _refuse_axis(cls, words, unknown[0])
            _fail("arguments", repr(unknown[0]), "options, which start with --, and their values")
        hint = _nearest(unknown[0], known)
        _fail(unknown[0], "an unknown option", f"one of those that jaxfed {name} --help lists{hint}")
    return options


def _refuse_axis(cls: type, words: list[str], value: str) -> None:
    """Raise one line for an option that got several values, of which this is one, and is no axis of a sweep."""
    types = _types(cls)
    for field in types:
        given = _given(words, field)
        if len(given) > 1 and value in given:
            axes = ", ".join(axis for axis in SWEPT if axis in types)
            _fail(field, " ".join(map(repr, given)), f"one value: each needs a sweep of its own (axes are {axes})")


def _explain(cls: type, words: list[str], complaint: str) -> NoReturn:
    """Raise one line for the parser's box of text: the option that it names, what was given, what its type wants."""
    text = " ".join(re.sub(r"\x1b\[[0-9;]*m|[\u2500-\u257f]", " ", complaint).split())
    text = re.split(r" Argument helptext:| For full helptext", text)[0]
    if text.startswith("Required options"):
        required = [f.name for f in dataclasses.fields(cls) if f.default is f.default_factory]
        missing = [name for name in required if f" {name.upper()} " in text or f"--{name} " in text]
        _fail(" and ".join(missing), "nothing", "a value")
    types, named = _types(cls), re.search(r"--([a-z][a-z0-9-]*)", text)
    field = named[1].replace("-", "_") if named else ""
    if field not in types:
        raise ValueError(f"arguments: {text}")
    given = _given(words, field)
    wanted, choices = _wanted(types[field])
    wrong = [value for value in given if value not in choices]
    hint = _nearest(wrong[0], choices) if wrong else ""
    _fail(field, " ".join(map(repr, given)) or "nothing", wanted + hint)


def _types(cls: Any) -> dict[str, Any]:
    """Return the type of every option of a command, groups opened, by field name."""
    out: dict[str, Any] = {}
    for name, kind in get_type_hints(cls).items():
        out |= _types(kind) if dataclasses.is_dataclass(kind) else {name: kind}
    return out


def _wanted(kind: Any) -> tuple[str, list[str]]:
    """Return what a type wants in words, and its choices by name."""
    if get_origin(kind) in (Union, types.UnionType):
        parts = [_wanted(k) for k in get_args(kind) if k is not type(None)]
        return " or ".join(words for words, _ in parts), [c for _, choices in parts for c in choices]
    if get_origin(kind) is tuple:
        words, choices = _wanted(get_args(kind)[0])
        return words.replace("a whole number", "whole numbers").replace("a number", "numbers"), choices
    if get_origin(kind) is Literal:
        choices = [str(c) for c in get_args(kind)]
        return ("one of " if len(choices) > 1 else "") + ", ".join(map(repr, choices)), choices
    return {int: "a whole number", float: "a number", bool: "no value"}.get(kind, "a value"), []


def _given(words: list[str], field: str) -> list[str]:
    """Return the values that the command line gives to an option, where it names it last."""
    given: list[str] = []
    for i, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name.startswith("--") and name[2:].replace("-", "_") == field:
            rest = words[i + 1 :]
            end = next((j for j, w in enumerate(rest) if w.startswith("--")), len(rest))
            given = [value] if equals else rest[:end]
    return given


def _nearest(got: str, choices: list[str]) -> str:
    near = difflib.get_close_matches(got, choices, n=1, cutoff=0.5)
    return f" (did you mean {near[0]}?)" if near else ""


def _first_line(cls: type) -> str:
    return (cls.__doc__ or "").split("\n")[0]


def _fail(field: str, got: str, wanted: str) -> NoReturn:
    raise ValueError(f"{field}: got {got}, wanted {wanted}")
