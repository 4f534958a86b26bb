"""How commands show that they work, how Ctrl-C reaches them, and how they share work between processes."""

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from concurrent.futures import ProcessPoolExecutor
from typing import Any, TypeVar

from tqdm import tqdm

from verl_trgrpo.common.signals import handle_signals

Item = TypeVar("Item")
Result = TypeVar("Result")

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
        if total is None and isinstance(items, Sized):
            total = len(items)
        for item in show_progress(items, total, label):
            yield item
            if heard:
                raise KeyboardInterrupt

    with handle_signals(interrupt, signal.SIGINT, *more):
        yield progress


class WorkersKilledInterrupt(KeyboardInterrupt):
    """Ctrl-C while processes shared work. They were killed, and a thread may wait for ever for the rest of what one of
    them was writing, so the process should be left with `os._exit`.
    """


def exit_code(interrupt: KeyboardInterrupt) -> int:
    """Return 130, the exit code of an interrupted command; after `WorkersKilledInterrupt` leave with it at once."""
    if isinstance(interrupt, WorkersKilledInterrupt):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(130)
    return 130


def parallel_map(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    num_proc: int = 1,
    progress: Progress = no_progress,
    label: str = "rows",
) -> Iterator[Result]:
    """Yield `function` of each item, in order, from `num_proc` processes (1: this one).

    With several processes the function and the items must be picklable.

    Raises:
        WorkersKilledInterrupt: for a KeyboardInterrupt with several processes.
    """
    if num_proc <= 1 or len(items) < 2:
        yield from map(function, progress(items, len(items), label))
        return
    chunk = max(1, min(500, len(items) // (4 * num_proc)))
    others = {*multiprocessing.active_children()}
    # Spawned, not forked: libraries that were imported here may have threads.
    pool = ProcessPoolExecutor(num_proc, multiprocessing.get_context("spawn"), _end_with_parent, (os.getpid(),))
    try:
        yield from progress(pool.map(function, items, chunksize=chunk), len(items), label)
    except KeyboardInterrupt:
        # Somebody who presses Ctrl-C does not want to wait for the chunks under way.
        for process in {*multiprocessing.active_children()} - others:
            process.kill()
        pool.shutdown(wait=False, cancel_futures=True)
        raise WorkersKilledInterrupt from None
    except BaseException:
        pool.shutdown(cancel_futures=True)
        raise
    pool.shutdown()


def _end_with_parent(parent: int) -> None:
    """In a worker: end when the parent is gone, even if it was killed and could not say so."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
