"""Progress displays, and signals that are heard and never lost."""

import contextlib
import signal

import pytest

from verl_trgrpo.common.progress import handle_signals, interruptible


def test_a_signal_is_a_keyboard_interrupt_at_once():
    with interruptible(signal.SIGTERM), pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)


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
