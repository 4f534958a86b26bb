"""The process that checks a run and then trains it: one import of veRL, and the promises of a training process."""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys

import psutil
import pytest

from tests.conftest import composed
from tests.waiting import wait_for
from verl_trgrpo.checks.check import check
from verl_trgrpo.common.files import BusyError, lock, name_holder
from verl_trgrpo.common.findings import InvalidInputError, Level
from verl_trgrpo.launch.driver import Driver
from verl_trgrpo.launch.process import TrainingProcess
from verl_trgrpo.launch.train import run_training
from verl_trgrpo.runs.environment import training_environment


@pytest.fixture
def environment(tmp_path):
    return training_environment(True, str(tmp_path / "metrics.jsonl"))


def child() -> psutil.Process:
    """The driver's process, whose command line is empty for a moment after its start."""

    def named() -> list[psutil.Process]:
        return [each for each in psutil.Process().children() if "verl_trgrpo.launch.driver" in each.cmdline()]

    [found] = wait_for(named)
    return found


def test_a_run_is_checked_and_trained_in_one_process(sound_run, tmp_path, environment):
    """The training holds the descriptors that it got, writes into its log, and fails as veRL does."""
    log = tmp_path / "log"
    with Driver(training_environment(True)) as driver, contextlib.ExitStack() as launcher:
        checking = child()
        run = composed([*sound_run, "actor_rollout_ref.actor.optim.lr=1"], platform="cpu")
        report = driver.check(run)
        assert report == check(run, trains=True) and report.messages(Level.WARNING) and report.total_steps
        assert (
            report.first_prompt
            and report.first_prompt["agent"] == "single_turn_agent"
            and "Oliver0" in report.first_prompt["text"]
        )
        claim = launcher.enter_context(lock(tmp_path / "lock", ""))
        # What a library writes into the launcher's environment does not matter.
        with TrainingProcess(
            ["no.such.key=1"], environment | {"A_LIBRARY": "1"}, log, [claim], driver.train
        ) as training:
            assert training.pid == checking.pid and os.getsid(training.pid) == training.pid
            name_holder(claim, training.pid)
            os.kill(training.pid, signal.SIGSTOP)
            launcher.close()
            with pytest.raises(BusyError, match=f"held by {training.pid}"), lock(tmp_path / "lock", "held by {holder}"):
                pass
            os.kill(training.pid, signal.SIGCONT)
            assert training.wait(lambda: None, seconds=0.1) == 1
    assert "no.such.key" in log.read_text() and "Traceback" in log.read_text()
    with lock(tmp_path / "lock", ""):
        pass


@pytest.mark.parametrize("variable", ["VLLM_CPU_KVCACHE_SPACE", "GLOO_SOCKET_IFNAME"])
def test_another_platform_or_network_needs_another_process(tmp_path, environment, fake_driver, variable):
    """Its variables count when a library is imported."""
    with Driver(training_environment(True)) as driver:
        checking = child()
        fake_driver(f"echo ${variable}")
        more = environment | {variable: "7"}
        with TrainingProcess([], more, tmp_path / "log", start=driver.train) as training:
            assert training.pid != checking.pid and training.wait(lambda: None, seconds=0.1) == 0
        assert not psutil.pid_exists(checking.pid), "it would keep its memory as long as the training runs"
    assert (tmp_path / "log").read_text() == "7\n"


LAUNCHER = """
import time
from verl_trgrpo.launch.driver import Driver
from verl_trgrpo.runs.environment import training_environment
with Driver(training_environment(True)) as driver:
    print(driver._process.pid, flush=True)
    time.sleep(900)
"""


def test_a_process_whose_launcher_is_killed_before_the_training_ends():
    launcher = subprocess.Popen([sys.executable, "-c", LAUNCHER], stdout=subprocess.PIPE)
    checking = psutil.Process(int(launcher.stdout.readline()))
    launcher.kill()
    launcher.communicate()
    checking.wait(timeout=600)


def test_a_driver_that_dies_while_it_checks_is_an_error(sound_run):
    with Driver(training_environment(True)) as driver:
        checking = child()
        checking.kill()
        with pytest.raises(RuntimeError, match="exit code -9"):
            driver.check(composed(sound_run, platform="cpu"))


def test_a_training_is_refused_for_what_its_machine_lacks(sound_run, tmp_path):
    """A search server that does not answer, which only rows of a file ask for, and a tracker that is not installed."""
    url = "actor_rollout_ref.rollout.custom.search.url=http://127.0.0.1:9"  # nothing listens there
    prompt, truth = [{"role": "user", "content": "x"}], {"ground_truth": {"target": ["x"]}}
    row = {"prompt": prompt, "data_source": "nq", "reward_model": truth, "agent_name": "trgrpo_search"}
    (tmp_path / "search.jsonl").write_text("\n".join([json.dumps(row)] * 50))
    default = "actor_rollout_ref.rollout.agent.default_agent_loop=single_turn_agent"
    searching = ["agent=search_tags", default, f"data.train_files={tmp_path}/search.jsonl", url]
    overrides = [*sound_run, *searching, "trainer.logger=[console,vemlp_wandb]", "platform=cpu"]
    with pytest.raises(InvalidInputError) as refused:
        run_training(overrides, stream=io.StringIO())
    tracker, server = refused.value.messages
    assert tracker.startswith("trainer.logger=vemlp_wandb:") and server.startswith(f"{url}:")
    assert not (tmp_path / "run").exists()
