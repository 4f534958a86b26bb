"""Training that searches, through the launcher, while the retrieval server dies and comes back."""

import contextlib
import io
import json
import math
import threading
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest

from verl_trgrpo.runs.metrics import MetricsLog
from verl_trgrpo.runs.train import run_training
from verl_trgrpo.tiny.search import CHECKPOINT, prepare
from verl_trgrpo.tiny.search_server import retrieval_server

STEPS = 7
QUESTIONS, PROMPTS, RESPONSES = 16, 8, 4
COUNTED = ("searches", "failed_searches")
FAILURE = "<information>The search failed: "


def overrides(directory: Path, url: str) -> list[str]:
    run_dir = directory / "run"
    return [
        # An estimator that remembers, and a shaping that asks for the entropy: both through a whole training, here only.
        "algorithm=tr_ha_dw",
        "shaping=top_entropy",
        f"data.train_files={directory / 'data' / 'train.parquet'}",
        f"data.val_files={directory / 'few.parquet'}",
        f"data.train_batch_size={PROMPTS}",
        f"actor_rollout_ref.model.path={CHECKPOINT}",
        "actor_rollout_ref.actor.ppo_mini_batch_size=4",
        f"actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu={4 * RESPONSES}",
        f"actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu={PROMPTS * RESPONSES}",
        f"actor_rollout_ref.rollout.n={RESPONSES}",
        f"actor_rollout_ref.rollout.custom.search.url={url}",
        "actor_rollout_ref.rollout.custom.search.retries=1",
        f"trainer.total_training_steps={STEPS}",
        "trainer.test_freq=1",
        "trainer.save_freq=-1",
        f"trainer.default_local_dir={run_dir}",
        f"trainer.validation_data_dir={run_dir / 'validation'}",
        f"trainer.rollout_data_dir={run_dir / 'rollouts'}",
    ]


def dump(directory: Path, step: int) -> list[dict]:
    """Lines of one of veRL's dumps; none while it is not there."""
    path = directory / f"{step}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def failures(run_dir: Path) -> float:
    with contextlib.suppress(ValueError):  # half a line, for it is being written
        return sum(row["failed_searches"] for step in range(2, STEPS) for row in dump(run_dir / "validation", step))
    return 0.0


def server_of(directory: Path) -> psutil.Process:
    """The server among this process's children."""
    words = {"verl_trgrpo.tiny.search_server", str(directory / "index")}
    (found,) = (child for child in psutil.Process().children() if words <= set(child.cmdline()))
    return found


class Outage(threading.Thread):
    """Kills the server after the first step; starts it again on the same port once searches have failed."""

    def __init__(self, directory: Path, port: int) -> None:
        super().__init__(daemon=True)
        self.directory, self.port = directory, port
        self.over = threading.Event()  # set at the end of the test
        self.killed_after = self.restarted_after = -1  # steps that were logged by then
        self.restarts = contextlib.ExitStack()
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            self._kill_and_restart()
        except BaseException as failure:
            self.failure = failure  # for the fixture to raise

    def _kill_and_restart(self) -> None:
        run_dir = self.directory / "run"
        if not self._wait(lambda: self._steps() >= 1):
            return
        server_of(self.directory).kill()
        self.killed_after = self._steps()
        if not self._wait(lambda: failures(run_dir) > 0):
            return
        self.restarts.enter_context(retrieval_server(self.directory / "index", self.directory / "log", self.port))
        self.restarted_after = self._steps()

    def _steps(self) -> int:
        run_dir = self.directory / "run"
        return max((step.number for step in MetricsLog(run_dir).read()), default=-1) if run_dir.is_dir() else -1

    def _wait(self, condition) -> bool:
        while not condition():
            if self.over.wait(0.05):
                return False
        return True


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory):
    """A finished run whose server was killed and started again, and what happened when."""
    directory = tmp_path_factory.mktemp("search_training")
    prepare(directory, seed=0)
    table = pq.read_table(directory / "data" / "test.parquet")
    pq.write_table(table.slice(0, QUESTIONS), directory / "few.parquet")
    with retrieval_server(directory / "index", directory / "log") as url:
        outage = Outage(directory, int(url.split("/retrieve")[0].rsplit(":", 1)[1]))
        outage.start()
        try:
            run_training(overrides(directory, url), "search_demo", stream=io.StringIO())
        finally:
            outage.over.set()
            outage.join(90)
            outage.restarts.close()
    if outage.failure:
        raise outage.failure
    return directory / "run", outage


def test_training_goes_on_while_the_server_is_dead_and_searches_again_after(interrupted):
    run_dir, outage = interrupted
    # The server may be back before the step whose validation failed is logged.
    assert 1 <= outage.killed_after <= outage.restarted_after < STEPS
    steps = [*range(STEPS + 1)]
    assert [step.number for step in MetricsLog(run_dir).read()] == steps
    validation = [dump(run_dir / "validation", step) for step in steps]
    rollouts = [dump(run_dir / "rollouts", step) for step in steps[1:]]
    # No question and no response was lost.
    assert {len(rows) for rows in validation} == {QUESTIONS}
    assert {len(rows) for rows in rollouts} == {PROMPTS * RESPONSES}
    searches, failed = ([sum(row[name] for row in rows) for rows in validation] for name in COUNTED)
    # Before: whatever was asked was answered.
    assert searches[0] > 0 == failed[0]
    # Meanwhile: every search failed, which the model could read, and the answers came all the same.
    dead = outage.killed_after + 1
    assert searches[dead] == failed[dead] > 0
    assert sum(row["answered"] for row in validation[dead]) > QUESTIONS / 2
    assert any(FAILURE in row["output"] for rows in rollouts for row in rows)
    # After: searches work again.
    assert searches[STEPS] > 0 == failed[STEPS]
    last = "".join(row["output"] for row in rollouts[-1])
    assert "<information>Doc 1(Title: " in last
    assert FAILURE not in last


def test_every_step_of_that_run_trains_on_what_was_sampled(interrupted):
    run_dir, _ = interrupted
    for step in MetricsLog(run_dir).read()[1:]:
        metrics = step.metrics
        assert 0 <= metrics["critic/score/mean"] <= 1
        assert math.isfinite(metrics["actor/loss"]) and math.isfinite(metrics["actor/grad_norm"])
        # Positions, masks and tokens are the same where vLLM sampled and where the model is trained, observations
        # between them or not.
        assert metrics["training/rollout_probs_diff_max"] < 2e-5
        # The fifth of the tokens with the highest entropy, rounded up in each micro-batch.
        assert metrics["actor/tr_weight_mean"] == pytest.approx(0.215, abs=0.02)
        assert metrics["training/num_turns/max"] >= 4
