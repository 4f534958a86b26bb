"""The training process: signals leave nothing behind, and it keeps its run directory when the launcher is gone."""

import contextlib
import functools
import os
import signal
import subprocess
import sys

import psutil
import pytest

from tests.waiting import wait_for
from verl_trgrpo.common.files import BusyError, lock, name_holder
from verl_trgrpo.launch.process import TrainingProcess

STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGINT, lambda *_: print("asked to end", flush=True))
for number in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
daemon = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(900)"])
print(daemon.pid, flush=True)
time.sleep(900)
"""

WAITER = """
import os, sys
from pathlib import Path
from verl_trgrpo.launch.process import TrainingProcess
sys.executable = sys.argv[1]
with TrainingProcess([], dict(os.environ), Path(sys.argv[2])) as child:
    child.wait(lambda: print("watching", flush=True), seconds=0.1)
"""


@pytest.mark.parametrize(
    "numbers", [(signal.SIGTERM, signal.SIGINT), (signal.SIGHUP, signal.SIGTERM), (signal.SIGINT,) * 2]
)
def test_no_signal_leaves_anything_running(tmp_path, numbers):
    """Even a driver that signals do not end, and a daemon it started, are gone after the second, impatient signal."""
    driver = tmp_path / "driver"
    driver.write_text(f"#!{sys.executable}\n{STUBBORN}")
    driver.chmod(0o755)
    log = tmp_path / "log"
    waiter = subprocess.Popen(
        [sys.executable, "-c", WAITER, driver, log], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # under nohup it is ignored
    )  # fmt: skip

    while not (log.exists() and log.read_text().endswith("\n")):
        assert waiter.stdout.readline() == b"watching\n", waiter.stderr.read()
    started = psutil.Process(waiter.pid).children(recursive=True)
    assert int(log.read_text()) in {process.pid for process in started} and len(started) >= 2
    # The second look from here on began after the daemon was there.
    assert [waiter.stdout.readline() for _ in range(2)] == [b"watching\n"] * 2
    waiter.send_signal(numbers[0])
    wait_for(lambda: "asked to end" in log.read_text(), lambda: waiter.poll() is not None and waiter.stderr.read())
    waiter.send_signal(numbers[1])
    _, error = waiter.communicate(timeout=600)
    assert b"KeyboardInterrupt" in error
    _, alive = psutil.wait_procs(started, timeout=600)
    assert not alive


def test_what_a_killed_driver_started_is_ended_with_it(tmp_path, fake_driver):
    go, log, seen = tmp_path / "go", tmp_path / "log", []
    fake_driver(f"sleep 3600 & echo $!; until [ -e {go} ]; do sleep 0.1; done; kill -9 $$")

    def tick():
        """Let the driver die at the second look at its children that began after the child was there."""
        if log.read_text().endswith("\n"):
            seen.append(1)
        if len(seen) == 2:
            go.touch()

    with TrainingProcess([], dict(os.environ), log) as process:
        assert process.wait(tick, seconds=0.1) == -signal.SIGKILL
        child = psutil.Process(int(log.read_text()))
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


def test_a_signal_before_anybody_waits_is_not_lost(tmp_path, fake_driver):
    fake_driver("exec sleep 3600")
    with pytest.raises(KeyboardInterrupt), TrainingProcess([], dict(os.environ), tmp_path / "log") as process:
        signal.raise_signal(signal.SIGTERM)
        process.wait(lambda: None)
    assert not psutil.pid_exists(process.pid)


def test_a_training_that_outlives_its_launcher_keeps_the_lock(tmp_path, fake_driver):
    fake_driver("exec sleep 3600")
    with contextlib.ExitStack() as launcher:
        claim = launcher.enter_context(lock(tmp_path / "lock", ""))
        with TrainingProcess([], dict(os.environ), tmp_path / "log", inherit=[claim]) as process:
            name_holder(claim, process.pid)
            launcher.close()
            with pytest.raises(BusyError, match=f"held by {process.pid}"), lock(tmp_path / "lock", "held by {holder}"):
                pass
    with lock(tmp_path / "lock", ""):
        pass


def named(title, *children):
    """A command of bash that is a process of this name, with children."""
    return " ".join(f"({child}) &" for child in children) + f" exec -a {title} sleep 900"


def test_whether_a_process_was_lost_is_seen_from_outside(tmp_path):
    """An ended process counts if it was a Ray worker at work: not its helper, nor one that Ray ends for idleness."""
    helpers = ["/bin/helper", "ray::Helper"]  # a fork has the title of its parent
    server = named("ray::vLLMHttpServer.generate", named("VLLM::EngineCore_DP0"), *map(named, helpers))
    others = ["ray::IDLE", "/bin/agent"]
    driver = tmp_path / "driver"
    driver.write_text(
        f"#!/bin/bash\n{named('driver', named('/bin/raylet', server, named('ray::RewardLoopWorker'), *map(named, others)))}\n"
    )
    driver.chmod(0o755)
    lost, seen = {}, []

    def started():
        return psutil.Process(process.pid).children(recursive=True)

    def tick():
        running = {next(iter(each.cmdline()), ""): each for each in started()}
        names = ["ray::vLLMHttpServer.generate", "VLLM::EngineCore_DP0", "ray::RewardLoopWorker"]
        seen.append({"/bin/raylet", *names, *helpers, *others} <= running.keys())
        if seen.count(True) == 2:  # those of the look before are recorded
            server, engine, reward = (running[name] for name in names)
            ask = functools.partial(process.has_lost, actor="vLLMHttpServer", child="EngineCor")
            lost["running"] = [process.has_lost(reward.pid), process.has_lost(server.pid), ask(server.pid)]
            lost["another"] = [ask(reward.pid), process.has_lost(1), ask(1)]
            unimportant = [running[name] for name in (*helpers, *others)]
            for each in (engine, reward, *unimportant):
                each.kill()
                while each.is_running() and each.status() != psutil.STATUS_ZOMBIE:
                    pass
            lost["ended"] = [ask(server.pid), process.has_lost(reward.pid)]
            lost["unimportant"] = [process.has_lost(each.pid) for each in unimportant] + [ask(reward.pid)]
            for each in [*started(), psutil.Process(process.pid)]:
                each.kill()

    start = functools.partial(begin, driver)
    with TrainingProcess([], dict(os.environ), tmp_path / "log", start=start) as process:
        process.wait(tick, seconds=0.05)
    assert lost == {"running": [False] * 3, "another": [False] * 3, "ended": [True] * 2, "unimportant": [False] * 5}


def begin(program, arguments, environment, log, inherit):
    return subprocess.Popen([program], env=environment, stdout=log, stderr=log, start_new_session=True)
