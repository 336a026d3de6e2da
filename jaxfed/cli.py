"""The `jaxfed` command: what it was told, then what it does; errors as one line each.

Options are in `commands.catalogue`, their parsing in `commands.parse`, the work in the other files of `commands`, which
are imported when they are needed: help must not wait for jax.
"""

import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import Any

from jaxfed.commands.parse import parse
from jaxfed.interrupts import PREEMPTED, Preempted

BAD_INPUT, INTERRUPTED, UNEXPECTED = 2, 130, 1


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line (default: that of the process) and return its exit status.

    0: done. 2: bad input, said in one line on the error stream. 130: interrupted; finished rounds are saved. 143: the
    same, by SIGTERM. 75: by SIGTERM with `--checkpoint`; the same command goes on. 1: anything else. `--debug`
    anywhere prints the traceback of an error too.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in words
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _say_warning
            return _do(*parse([word for word in words if word != "--debug"]))
    except Preempted:
        return PREEMPTED
    except KeyboardInterrupt:
        _say("interrupted", "stopped before all results were written")
        return _failed(INTERRUPTED)
    except BrokenPipeError:  # the reader of a pipe has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if debug:
            traceback.print_exc()
        expected = isinstance(error, (ValueError, OSError, ModuleNotFoundError))
        _say("error", str(error) if expected else f"{type(error).__name__}: {error}")
        return _failed(BAD_INPUT if expected else UNEXPECTED)


def _failed(status: int) -> int:
    """Return the status, where this process is alone: one of several ends here (see `processes.leave`)."""
    if "jaxfed.processes" in sys.modules:
        sys.modules["jaxfed.processes"].leave(status)
    return status


def _do(command: str, options: Any) -> int:
    if command == "predict":
        from jaxfed.commands.predict import predict

        return predict(options)
    if command == "show":
        from jaxfed.commands.show import show

        return show(options)
    if command == "export":
        from jaxfed.commands.export import export

        return export(options)
    if command == "theory":
        from jaxfed.commands.theory import theory

        return theory(options)
    if command == "attack":
        from jaxfed.commands.attack import attack

        return attack(options)
    if command.startswith("sweep "):
        from jaxfed.commands.sweep import sweep

        return sweep(command, options)
    from jaxfed.commands.train import compare, train

    return compare(options) if command == "compare" else train(command, options)


def _say(kind: str, message: str) -> None:
    print(f"jaxfed: {kind}: {' '.join(message.split())}", file=sys.stderr)


def _say_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    from jaxfed import processes

    if processes.first():
        _say("warning", str(message))


if __name__ == "__main__":
    sys.exit(main())
