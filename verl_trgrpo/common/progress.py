"""How commands show that they work, and how Ctrl-C reaches them."""

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from tqdm import tqdm

Item = TypeVar("Item")

# Called with things to go through, how many they are (None: not known) and a label; a command line draws a bar.
Progress = Callable[[Iterable[Any], int | None, str], Iterable[Any]]


def no_progress(items: Iterable[Item], total: int | None, label: str) -> Iterable[Item]:
    """Return `items`: the progress display that shows nothing."""
    return items


def show_progress(items: Iterable[Any], total: int | None, label: str) -> Iterable[Any]:
    """Draw a progress bar on stderr."""
    return tqdm(items, total=total, desc=label, file=sys.stderr)


@contextlib.contextmanager
def interruptible(*more: signal.Signals) -> Iterator[Progress]:
    """Give `show_progress` with a Ctrl-C that cannot get lost.

    SIGINT, and each of `more`, raises KeyboardInterrupt at once. Where that is lost, as Python drops what is raised in a
    destructor, the progress display raises it again before its next item.
    """
    heard = False

    def interrupt(*_: Any) -> None:
        nonlocal heard
        heard = True
        raise KeyboardInterrupt

    def progress(items: Iterable[Any], total: int | None, label: str) -> Iterable[Any]:
        for item in show_progress(items, total, label):
            yield item
            if heard:
                raise KeyboardInterrupt

    with handle_signals(interrupt, signal.SIGINT, *more):
        yield progress


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
