"""One training that is killed in many ways; each time the same command goes on from the last whole checkpoint.

A killed rank is in ``tests/verl_plugin/cpu/test_training.py``.

All attempts share a run directory, so that each has the remains of the one before to live with.
"""

import contextlib
import math
import os
import shutil
from pathlib import Path

import pytest

from tests.runs.faults.training import Attempt, Ended, overrides, resumed_from, steps_of, tracked_step
from verl_trgrpo.runs.checkpoints import damage
from verl_trgrpo.runs.metrics import MetricsLog

pytestmark = [pytest.mark.slow, pytest.mark.cluster]

STEPS = 12
OPTIMIZER = Path("actor") / "optim_world_size_1_rank_0.pt"


class Story:
    """The attempts, in their order; see :func:`story`."""

    def __init__(self, run_dir: Path, arguments: list[str]) -> None:
        self.run_dir, self._arguments = run_dir, arguments
        self.ended: dict[str, Ended] = {}
        self.attempts = contextlib.ExitStack()

    def start(self) -> Attempt:
        return self.attempts.enter_context(Attempt(self.run_dir, self._arguments))

    def kill_server(self) -> None:
        attempt = self.start()
        attempt.wait_for_step(2)  # so that the metrics of one step are there
        attempt.kill("ray::vLLMHttpServer")
        self.ended["server"] = attempt.end()

    def kill_engine(self) -> None:
        attempt = self.start()
        attempt.wait_for_step(self.ended["server"].tracked + 2)  # as above
        attempt.kill("VLLM::EngineCore")
        self.ended["engine"] = attempt.end()

    def kill_driver_in_save(self) -> None:
        """A pipe that nobody reads holds the save up between the weights and the state of the optimizer."""
        checkpoint = self.run_dir / f"global_step_{self.ended['engine'].tracked + 1}"
        shutil.rmtree(checkpoint, ignore_errors=True)  # what a killed save may have left
        (checkpoint / "actor").mkdir(parents=True)
        os.mkfifo(checkpoint / OPTIMIZER)
        attempt = self.start()
        weights = checkpoint / "actor" / "model_world_size_1_rank_0.pt"
        attempt.wait_for(lambda: weights.exists() and weights.stat().st_size, "weights of the checkpoint being written")
        attempt.kill("verl.trainer.main_ppo")
        self.ended["driver"] = attempt.end()
        # What a kill leaves of a file that was being written.
        (checkpoint / OPTIMIZER).unlink()
        whole = self.run_dir / f"global_step_{tracked_step(self.run_dir)}" / OPTIMIZER
        (checkpoint / OPTIMIZER).write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
        self.half_written = checkpoint, damage(checkpoint)

    def fill_disk_in_save(self) -> None:
        """The second checkpoint of this attempt meets a device that is always full; the first replaces the half-written."""
        checkpoint = self.run_dir / f"global_step_{self.ended['driver'].tracked + 2}"
        checkpoint.mkdir()
        (checkpoint / "data.pt").symlink_to("/dev/full")
        self.ended["disk"] = self.start().end()
        (checkpoint / "data.pt").unlink()  # there is room again

    def kill_launcher(self) -> None:
        attempt = self.start()
        driver = attempt.wait_for(lambda: attempt.oldest("verl.trainer.main_ppo"), "training process")
        attempt.process.kill()
        attempt.process.wait()
        self.ended["second"] = self.start().end()
        self.orphan_lived = driver.is_running()
        attempt.follow(driver)
        self.orphan_ended = not driver.is_running()
        self.ended["launcher"] = attempt.end()
        self.ended["last"] = self.start().end()


@pytest.fixture(scope="module")
def story(tiny_run, tmp_path_factory) -> Story:
    run_dir = tmp_path_factory.mktemp("killed") / "run"
    story = Story(run_dir, overrides(tiny_run, run_dir, STEPS))
    with story.attempts:
        story.kill_server()
        story.kill_engine()
        story.kill_driver_in_save()
        story.fill_disk_in_save()
        story.kill_launcher()
    return story


def test_a_killed_server_of_vllm_ends_the_run_with_its_name(story):
    ended = story.ended["server"]
    assert ended.code == 1 and 2 <= ended.tracked < STEPS
    assert "a worker process (vLLMHttpServer) died" in ended.output
    assert "the same command goes on from the latest checkpoint" in ended.output


def test_a_killed_engine_ends_the_run_instead_of_hanging_it(story):
    ended = story.ended["engine"]
    assert resumed_from(story.run_dir, 2) == story.ended["server"].tracked < ended.tracked < STEPS
    assert ended.code == 1
    assert "vLLM's engine process died" in ended.output
    assert "the same command goes on from the latest checkpoint" in ended.output


def test_a_driver_killed_in_a_save_leaves_the_checkpoint_before_in_charge(story):
    ended = story.ended["driver"]
    assert ended.code == 1 and "training ended with exit code -9" in ended.output
    assert resumed_from(story.run_dir, 3) == story.ended["engine"].tracked == ended.tracked
    checkpoint, problems = story.half_written
    assert checkpoint.name == f"global_step_{ended.tracked + 1}"
    assert f"{OPTIMIZER} is cut short" in problems


def test_the_half_written_checkpoint_is_written_over_and_a_full_disk_is_named(story):
    ended = story.ended["disk"]
    assert resumed_from(story.run_dir, 4) == story.ended["driver"].tracked
    assert ended.tracked == story.ended["driver"].tracked + 1
    assert damage(story.half_written[0]) == []
    assert ended.code == 1 and "a file could not be written" in ended.output and "make room" in ended.output


def test_a_training_without_its_launcher_keeps_the_directory_and_finishes(story):
    assert story.orphan_lived and story.orphan_ended
    second = story.ended["second"]
    assert second.code == 2 and "is being trained in by process" in second.output
    assert resumed_from(story.run_dir, 5) == story.ended["disk"].tracked
    assert story.ended["launcher"].tracked == STEPS
    assert not (story.run_dir / "train-6.log").exists(), "a second training ran in the directory"
    last = story.ended["last"]
    assert last.code == 0 and "this run had already finished" in last.output


def test_nothing_outlives_an_attempt_and_no_step_is_missing(story):
    assert {name: ended.left for name, ended in story.ended.items() if ended.left} == {}
    steps = MetricsLog(story.run_dir).read()
    # veRL writes a step's metrics after its checkpoint: a kill in between leaves the step out of the curves.
    saved_last = {story.ended[name].tracked for name in ("server", "engine")}
    assert set(range(1, STEPS + 1)) - saved_last <= {step.number for step in steps} <= set(range(1, STEPS + 1))
    assert all(math.isfinite(step.metrics["actor/grad_norm"]) for step in steps)
    # Every attempt began right after the checkpoint that it resumed from.
    assert [steps_of(story.run_dir, attempt)[0] for attempt in (2, 4, 5)] == [
        resumed_from(story.run_dir, attempt) + 1 for attempt in (2, 4, 5)
    ]


def test_responses_at_the_length_limit_are_counted(story):
    """The random model never ends an answer of 8 tokens by itself, or hardly ever."""
    assert all(step.metrics["response_length/clip_ratio"] > 0.5 for step in MetricsLog(story.run_dir).read())
