"""Signals that end a program: heard, and never lost."""

import contextlib
import signal
import threading

import pytest

from verl_trgrpo.common.signals import Interrupt, handle_signals


@pytest.fixture
def interrupt():
    interrupt = Interrupt()
    with handle_signals(interrupt, signal.SIGINT, signal.SIGTERM):
        yield interrupt


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_a_keyboard_interrupt_at_once(interrupt, number):
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(number)


def raise_and_swallow():
    with contextlib.suppress(BaseException):
        signal.raise_signal(signal.SIGINT)


class RaisesInItsDestructor:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("lose", [raise_and_swallow, RaisesInItsDestructor])
def test_a_signal_that_was_swallowed_ends_what_is_watched_at_the_next_item(interrupt, lose):
    done = []
    with pytest.raises(KeyboardInterrupt):
        for item in interrupt.watch(range(5)):
            done.append(item)
            if item == 2:
                lose()
    assert done == [0, 1, 2]


def test_a_signal_that_was_swallowed_while_an_item_was_made_or_at_the_end_is_not_lost(interrupt):
    def items(lost_before):
        for item in range(3):
            if item == lost_before:
                raise_and_swallow()
            yield item
        if lost_before == 3:
            raise_and_swallow()

    for lost_before in range(4):
        own, done = Interrupt(), []
        with handle_signals(own, signal.SIGINT), pytest.raises(KeyboardInterrupt):
            done += own.watch(items(lost_before))
        assert done == [*range(lost_before)]
    raise_and_swallow()
    with pytest.raises(KeyboardInterrupt):
        list(interrupt.watch([]))


def test_without_a_signal_nothing_changes(interrupt):
    assert list(interrupt.watch(iter("abc"))) == ["a", "b", "c"]


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


def test_outside_the_main_thread_nothing_is_handled():
    seen = []

    def run():
        before = signal.getsignal(signal.SIGTERM)
        with handle_signals(lambda *_: None, signal.SIGTERM):
            seen.append(signal.getsignal(signal.SIGTERM) == before)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [True]
