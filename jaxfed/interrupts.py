"""Ctrl-C and pre-emption without loss: the first is noted and acted on between device calls, a second Ctrl-C raises."""

import contextlib
import signal
import threading
from collections.abc import Iterator

PREEMPTED = 75  # EX_TEMPFAIL: what schedulers take for "put me into the queue again"


class Preempted(SystemExit):
    """Raised by a run that SIGTERM ended, with its checkpoint written; a process that lets it pass exits with 75."""

    def __init__(self):
        super().__init__(PREEMPTED)


class Event(threading.Event):
    """Set by the first Ctrl-C or SIGTERM; `preempted` says whether a SIGTERM was among them."""

    preempted = False


_event: Event | None = None  # of the outermost block


@contextlib.contextmanager
def deferred(preemption: bool = False) -> Iterator[Event]:
    """Yield an event that the first Ctrl-C sets, in place of an exception; the second raises KeyboardInterrupt.

    With `preemption` a SIGTERM sets it too, however often it comes: `timeout` sends it twice. Without, SIGTERM does
    what it did before. Blocks may be nested: the inner ones share the outermost's event, so a comparison's Ctrl-C ends
    the run at hand and then the comparison. Outside the main thread, where Python delivers no signals, the event is
    never set.
    """
    global _event
    if threading.current_thread() is not threading.main_thread():
        yield Event()
        return
    outer, event = _event, _event or Event()

    def interrupt(signum, frame):
        if event.is_set():
            raise KeyboardInterrupt
        event.set()

    def preempt(signum, frame):
        event.preempted = True
        event.set()

    handlers = ({signal.SIGINT: interrupt} if outer is None else {}) | ({signal.SIGTERM: preempt} if preemption else {})
    _event = event
    old = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield event
    finally:
        _event = outer
        for number, handler in old.items():
            signal.signal(number, handler or signal.SIG_DFL)  # None: one that Python did not set
