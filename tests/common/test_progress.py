"""Progress displays, signals that are heard and never lost, and work that processes share."""

import contextlib
import os
import signal
import subprocess
import sys

import psutil
import pytest

from verl_trgrpo.common.progress import interruptible, no_progress, parallel_map
from verl_trgrpo.common.signals import handle_signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_a_keyboard_interrupt_at_once(number):
    with interruptible(signal.SIGTERM), pytest.raises(KeyboardInterrupt):
        signal.raise_signal(number)


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


def process_and_square(number):
    return os.getpid(), number * number


@pytest.mark.parametrize("num_proc", [1, 2])
def test_shared_work_keeps_its_order(num_proc):
    seen = []

    def progress(items, total, label):
        seen.append((total, label))
        return no_progress(items, total, label)

    results = list(parallel_map(process_and_square, range(100), num_proc, progress, "squares"))
    assert [square for _, square in results] == [number * number for number in range(100)]
    assert ({process for process, _ in results} == {os.getpid()}) == (num_proc == 1)
    assert seen == [(100, "squares")]


SLOW_WORK = """
import signal
import sys
import time
from verl_trgrpo.common.progress import exit_code, interruptible, parallel_map

def work(number):
    time.sleep(0.05)
    return "x" * 1_000_000

def show(items, total, label):
    for item in items:
        print("working", flush=True)
        yield item

if __name__ == "__main__":
    try:
        with interruptible(signal.SIGTERM):
            list(parallel_map(work, range(400), 2, show))
    except KeyboardInterrupt as interrupt:
        print("interrupted", file=sys.stderr)
        raise SystemExit(exit_code(interrupt))
"""


def start_slow_work(tmp_path):
    script = tmp_path / "slow_work.py"
    script.write_text(SLOW_WORK)
    process = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout.readline() == "working\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("everybody", [True, False], ids=["to all", "to the parent alone"])
def test_shared_work_stops_at_once(tmp_path, everybody, number):
    process = start_slow_work(tmp_path)
    (os.killpg if everybody else os.kill)(process.pid, number)
    process.stdout.close()
    _, error = process.communicate(timeout=600)
    assert process.returncode == 130
    assert "interrupted" in error


def test_workers_end_with_a_parent_that_was_killed(tmp_path):
    process = start_slow_work(tmp_path)
    workers = psutil.Process(process.pid).children(recursive=True)
    assert len(workers) >= 2
    process.kill()
    process.communicate(timeout=600)  # the workers hold its output, too
    assert psutil.wait_procs(workers, timeout=600)[1] == []
