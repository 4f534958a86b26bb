"""Progress displays, and signals that are heard and never lost."""

import contextlib
import signal
import subprocess
import sys

import psutil
import pytest

from tests.waiting import wait_for
from verl_trgrpo.common.progress import handle_signals, interruptible


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_a_keyboard_interrupt_at_once_unless_it_is_ignored(number):
    before = signal.signal(number, signal.SIG_DFL)  # `nohup` and background jobs of scripts leave some ignored
    try:
        with interruptible(), pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
        signal.signal(number, signal.SIG_IGN)
        with interruptible():
            signal.raise_signal(number)
    finally:
        signal.signal(number, before)


def raise_and_swallow():
    with contextlib.suppress(BaseException):
        signal.raise_signal(signal.SIGINT)


def test_a_signal_that_was_swallowed_ends_the_work_at_the_next_item():
    done = []
    with interruptible() as progress, pytest.raises(KeyboardInterrupt):
        for item in progress(range(5), None, "items"):
            done.append(item)
            if item == 2:
                raise_and_swallow()
    assert done == [0, 1, 2]


def test_what_a_process_started_ends_when_it_is_killed():
    code = (
        "import signal, subprocess; from verl_trgrpo.common.progress import guarded_children\n"
        "with guarded_children():\n"
        "    child = subprocess.Popen(['sleep', '3600'], stdout=subprocess.DEVNULL, start_new_session=True)\n"
        "    print(child.pid, flush=True)\n"
        "    signal.pause()\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        child = psutil.Process(int(parent.stdout.readline()))
        [guard] = [each for each in psutil.Process(parent.pid).children() if each != child]
        wait_for(lambda: guard.status() == psutil.STATUS_SLEEPING)  # between two looks at the children
        slept = guard.num_ctx_switches().voluntary
        wait_for(lambda: guard.num_ctx_switches().voluntary > slept + 2)  # a look that began after the child was there
        assert child.is_running()
        parent.kill()
    assert psutil.wait_procs([child], timeout=600)[1] == []


def test_the_old_handlers_come_back_and_ignored_signals_stay_ignored():
    heard = []
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN), signal.getsignal(signal.SIGTERM)
    try:
        with handle_signals(lambda number, _: heard.append(number), signal.SIGHUP, signal.SIGTERM):
            signal.raise_signal(signal.SIGHUP)
            signal.raise_signal(signal.SIGTERM)
        assert heard == [signal.SIGTERM]
        assert (signal.getsignal(signal.SIGHUP), signal.getsignal(signal.SIGTERM)) == (signal.SIG_IGN, before[1])
    finally:
        signal.signal(signal.SIGHUP, before[0])
