"""Ctrl-C without loss: the first one is noted and acted on between device calls, the second one raises."""

import contextlib
import signal
import threading
from collections.abc import Iterator

_event: threading.Event | None = None  # of the outermost block


@contextlib.contextmanager
def deferred() -> Iterator[threading.Event]:
    """Yield an event that the first Ctrl-C sets, in place of an exception; the second raises KeyboardInterrupt.

    Blocks may be nested: the inner ones share the outermost's event, so a comparison's Ctrl-C ends the run at hand and
    then the comparison. Outside the main thread, where Python delivers no signals, the event is never set.
    """
    global _event
    if threading.current_thread() is not threading.main_thread():
        yield threading.Event()
        return
    if _event is not None:
        yield _event
        return
    event = _event = threading.Event()

    def handler(signum, frame):
        if event.is_set():
            raise KeyboardInterrupt
        event.set()

    old = signal.signal(signal.SIGINT, handler)
    try:
        yield event
    finally:
        _event = None
        signal.signal(signal.SIGINT, old)
