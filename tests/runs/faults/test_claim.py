"""One training at a time in a run directory, however its processes end."""

import contextlib
import io
import os
import subprocess
import sys

import pytest

from tests.runs.launch.test_configuration import recipe  # noqa: F401  (a fixture)
from verl_trgrpo.runs.launch.child import TrainingProcess
from verl_trgrpo.runs.launch.claim import InUseError, claimed, name_holder
from verl_trgrpo.runs.launch.run import run_training

HOLDER = """
import sys, time
from pathlib import Path
from verl_trgrpo.runs.launch.claim import claimed
with claimed(Path(sys.argv[1])):
    print("claimed", flush=True)
    time.sleep(300)
"""


def test_a_second_run_is_refused_until_the_first_is_gone(recipe, tmp_path):  # noqa: F811
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, run_dir], stdout=subprocess.PIPE)
    try:
        holder.stdout.readline()
        with pytest.raises(InUseError, match=rf"process {holder.pid}; wait for it, end it \(kill {holder.pid}\)"):
            run_training(recipe, stream=io.StringIO())
        assert not (run_dir / "config.yaml").exists(), "the refused run left its configuration in the other's directory"
    finally:
        holder.kill()
        holder.communicate()
    with claimed(run_dir):
        pass  # the kernel dropped the claim of the killed process


def test_a_training_that_outlives_its_launcher_keeps_the_claim(tmp_path, fake_driver):
    fake_driver("exec sleep 300")
    with contextlib.ExitStack() as launcher:
        claim = launcher.enter_context(claimed(tmp_path))
        process = TrainingProcess([], dict(os.environ), tmp_path / "log", inherit=[claim])
        with process:
            name_holder(claim, process.pid)
            launcher.close()
            with pytest.raises(InUseError, match=f"process {process.pid}"), claimed(tmp_path):
                pass
    with claimed(tmp_path):
        pass


def test_the_name_of_a_former_holder_is_gone(tmp_path):
    (tmp_path / "run.lock").write_text("1234567")
    with claimed(tmp_path):
        assert (tmp_path / "run.lock").read_text() == str(os.getpid())
