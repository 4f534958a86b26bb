"""Signals that end a program, handled for a while."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def handle_signals(handler: Callable[..., Any], *numbers: signal.Signals) -> Iterator[None]:
    """Handle `numbers` with ``handler``; outside the main thread, where that cannot be, do nothing.

    A signal that the process ignores stays ignored: that is how ``nohup`` and background jobs of scripts are kept alive.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    previous = {number: signal.signal(number, handler) for number in heard}
    try:
        yield
    finally:
        for number, old in previous.items():
            signal.signal(number, old)
