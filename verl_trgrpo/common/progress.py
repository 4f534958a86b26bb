"""Progress bars of commands, signals as KeyboardInterrupt, and processes that end with this one."""

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from tqdm import tqdm

from verl_trgrpo.common.import_path import same_path

_Item = TypeVar("_Item")

INTERRUPTIONS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

# Called with the items to go through, their number (None: unknown) and a label.
Progress = Callable[[Iterable[Any], int | None, str], Iterable[Any]]


def no_progress(items: Iterable[_Item], total: int | None, label: str) -> Iterable[_Item]:
    """Return `items`: the progress display that shows nothing."""
    return items


@contextlib.contextmanager
def interruptible() -> Iterator[Progress]:
    """Raise KeyboardInterrupt on SIGINT, on SIGTERM, which batch systems send, and on SIGHUP; yield a progress bar for stderr.

    Python drops an exception that is raised in a destructor. If that happens to this one, the bar raises it again before its
    next item.
    """
    interrupted = False

    def interrupt(*_: Any) -> None:
        nonlocal interrupted
        interrupted = True
        raise KeyboardInterrupt

    def progress(items: Iterable[Any], total: int | None, label: str) -> Iterable[Any]:
        for item in tqdm(items, total=total, desc=label):
            yield item
            if interrupted:
                raise KeyboardInterrupt

    with handle_signals(interrupt, *INTERRUPTIONS):
        yield progress


@contextlib.contextmanager
def handle_signals(handler: Callable[..., Any], *numbers: signal.Signals) -> Iterator[bool]:
    """Handle the signals `numbers` within the block and yield True; outside the main thread do nothing and yield False.

    A signal that the process ignores stays ignored: ``nohup`` and background jobs of scripts rely on that.
    """
    if threading.current_thread() is not threading.main_thread():
        yield False
        return
    previous = {
        number: signal.signal(number, handler) for number in numbers if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield True
    finally:
        for number, old in previous.items():
            signal.signal(number, old)


@contextlib.contextmanager
def guarded_children() -> Iterator[None]:
    """See to it that the processes which this one starts within the block end if it is killed, even by SIGKILL."""
    with subprocess.Popen(
        same_path(f"from {__name__} import end_children; end_children({os.getpid()})"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # the signals that a terminal or a batch system sends to the others do not reach it
    ) as guard:
        try:
            yield
        finally:
            guard.kill()


def end_children(parent: int) -> None:
    """Wait until the process `parent`, which started this one, has ended; then kill all others that it had started."""
    import psutil

    children: set[psutil.Process] = set()
    with contextlib.suppress(psutil.NoSuchProcess):
        while os.getppid() == parent:
            children.update(psutil.Process(parent).children(recursive=True))
            time.sleep(0.5)
    for process in children - {psutil.Process()}:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
