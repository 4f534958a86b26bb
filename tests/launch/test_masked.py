"""Values of the environment never reach the log, however the output is cut, and whatever happens to the launcher."""

import os
import signal
import subprocess
import sys
import textwrap

import psutil
import pytest

from tests.waiting import wait_for
from verl_trgrpo.launch.masked import Mask


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_values_are_masked_wherever_blocks_are_cut(size):
    text, mask = (
        b"a=hunter2 hunter, hunter22 hunt|BEGIN KEY|hunter2hu",
        Mask(["hunter2", "BEGIN KEY\nq\n", "abc", "", "hunter22"]),
    )
    written = b"".join(mask(text[at : at + size]) for at in range(0, len(text), size)) + mask(b"")
    assert (
        b"hunter2" not in written
        and b"BEGIN KEY" not in written
        and b" hunter, " in written
        and written.endswith(b"hu")
    )


def test_what_cannot_begin_a_value_is_written_at_once():
    assert Mask(["hunter2"])(b"A worker died\n") == b"A worker died\n"
    assert Mask([])(b"hunter2") == b"hunter2"


LAUNCHER = """
    import os, subprocess, sys
    from pathlib import Path
    from verl_trgrpo.launch.process import TrainingProcess
    def start(arguments, environment, log, inherit):
        waits = {
            "waits": "",
            "killed": f"while kill -0 {os.getpid()}; do :; done;",
            "interrupted": "while :; do sleep 0.1; done;",
        }
        said = f"trap 'echo second $API_KEY; exit' INT; echo first $API_KEY; {waits[sys.argv[2]]} echo second $API_KEY"
        return subprocess.Popen(["sh", "-c", said], stdout=log, stderr=subprocess.DEVNULL, start_new_session=True)
    with TrainingProcess([], dict(os.environ), Path(sys.argv[1]), start=start, secrets=[os.environ["API_KEY"]]) as process:
        sys.argv[2] == "killed" and os._exit(9)
        process.wait(lambda: None, 0.1)
"""


@pytest.mark.parametrize("end", ["waits", "killed"])
def test_the_log_is_masked_while_it_is_written_and_without_the_launcher(tmp_path, end):
    log, environment = tmp_path / "train-1.log", {"API_KEY": "hunter2hunter2", "PATH": "/usr/bin:/bin"}
    subprocess.run([sys.executable, "-c", textwrap.dedent(LAUNCHER), str(log), end], env=environment)
    wait_for(lambda: log.read_bytes().count(b"\n") == 2)
    assert log.read_text() == "first ***\nsecond ***\n"


def test_what_an_interrupted_training_says_is_masked_to_its_end(tmp_path):
    log, environment = tmp_path / "train-1.log", {"API_KEY": "hunter2hunter2", "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-c", textwrap.dedent(LAUNCHER), str(log), "interrupted"]
    launcher = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, start_new_session=True)
    wait_for(lambda: log.is_file() and log.read_text() == "first ***\n", lambda: launcher.poll() is not None)
    writing = psutil.Process(launcher.pid).children()
    os.killpg(launcher.pid, signal.SIGINT)  # as Ctrl-C in a terminal does
    assert b"KeyboardInterrupt" in launcher.communicate(timeout=600)[1]
    _, alive = psutil.wait_procs(writing, timeout=600)
    assert not alive
    assert log.read_text() == "first ***\nsecond ***\n"
