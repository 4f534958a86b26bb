"""Signals that end a program, handled for a while."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

Item = TypeVar("Item")


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


class Interrupt:
    """Ctrl-C that cannot get lost: a signal handler that raises KeyboardInterrupt and remembers that it did.

    Python drops an exception that is raised inside a destructor or a callback of the garbage collector, and a library may
    swallow it, as NumPy's ``Generator.choice`` now and then does. Whoever goes through items with `watch` stops at the next
    item then.
    """

    def __init__(self) -> None:
        self._received = False

    def __call__(self, *_: Any) -> None:
        self._received = True
        raise KeyboardInterrupt

    def check(self) -> None:
        """Raise KeyboardInterrupt if a signal has come."""
        if self._received:
            raise KeyboardInterrupt

    def watch(self, items: Iterable[Item]) -> Iterator[Item]:
        """Yield `items`; after a signal raise KeyboardInterrupt instead of going on."""
        self.check()
        for item in items:
            self.check()
            yield item
            self.check()
        self.check()
