"""Signal handlers of the process while servers run."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def signals_restored() -> Iterator[tuple[signal.Signals, ...]]:
    """Restore the handlers of SIGINT and SIGTERM afterwards; yields these signals, none outside the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield ()
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield tuple(before)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
