"""A training that searches: its retrieval server is killed and comes back, and at last vLLM's engine is killed.

Each happens while a save is held, between the training of one step and the validation after it; see :class:`HeldSave`.
"""

import json
import math
import statistics
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow.parquet as pq
import pytest

from examples.search_demo import RECIPE
from examples.search_world import CHECKPOINT, prepare, server_process
from tests.cluster.training import Attempt, Ended, HeldSave
from verl_trgrpo.runs.metrics import MetricsLog

# Steps whose saves are held. There is one more, since the engine's death shows where the next one would get its weights.
SERVER_DIES, SERVER_RETURNS, ENGINE_DIES = 1, 2, 4
LOGGED = [*range(ENGINE_DIES)]
QUESTIONS, PROMPTS, RESPONSES = 16, 8, 4
FAILURE = "<information>The search failed: "


def overrides(directory: Path, url: str) -> list[str]:
    run_dir, search = directory / "run", "actor_rollout_ref.rollout.custom.search"
    return [
        str(RECIPE),
        # A shaping of the inputs that a run computes only if asked to: the reference policy and the success rate of the group.
        "algorithm=tr_grpo",
        "shaping=custom",
        "actor_rollout_ref.actor.policy_loss.shaping.name=tests.verl_plugin.input_shapings.both",
        "actor_rollout_ref.actor.use_kl_loss=true",
        "actor_rollout_ref.actor.kl_loss_coef=0",
        f"data.train_files={directory / 'data' / 'train.parquet'}",
        f"data.val_files={directory / 'few.parquet'}",
        f"data.train_batch_size={PROMPTS}",
        f"actor_rollout_ref.model.path={CHECKPOINT}",
        f"actor_rollout_ref.actor.ppo_mini_batch_size={PROMPTS}",
        f"actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu={4 * RESPONSES}",
        f"actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu={PROMPTS * RESPONSES}",
        f"actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu={PROMPTS * RESPONSES}",
        f"actor_rollout_ref.rollout.n={RESPONSES}",
        f"{search}.url={url}",
        f"{search}.retries=1",
        f"{search}.deadline=600",  # no search fails because the machine is busy
        f"trainer.total_training_steps={ENGINE_DIES + 1}",
        "trainer.test_freq=1",
        "trainer.save_freq=1",
        f"trainer.default_local_dir={run_dir}",
        f"trainer.validation_data_dir={run_dir / 'validation'}",
        f"trainer.rollout_data_dir={run_dir / 'rollouts'}",
    ]


@dataclass(frozen=True)
class Interrupted:
    """The training, and what veRL dumped of its validations and rollouts by step."""

    run_dir: Path
    ended: Ended

    def dump(self, kind: str, step: int) -> list[dict]:
        return [json.loads(line) for line in (self.run_dir / kind / f"{step}.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory) -> Interrupted:
    directory = tmp_path_factory.mktemp("search_training")
    prepare(directory, seed=0)
    table = pq.read_table(directory / "data" / "test.parquet")
    pq.write_table(table.slice(0, QUESTIONS), directory / "few.parquet")
    run_dir, index, log = directory / "run", directory / "index", directory / "log"
    dies, returns, engine = (HeldSave(run_dir, step) for step in (SERVER_DIES, SERVER_RETURNS, ENGINE_DIES))
    with server_process(index, log) as (process, url), Attempt(run_dir, overrides(directory, url)) as attempt:
        dies.wait(attempt)
        process.kill()
        process.wait()
        dies.release()
        returns.wait(attempt)
        with server_process(index, log, port=urlsplit(url).port):
            returns.release()
            engine.wait(attempt)
            attempt.kill("VLLM::EngineCore")
            engine.release()
            ended = attempt.end()
    return Interrupted(run_dir, ended)


def test_training_goes_on_while_the_server_is_dead_and_searches_again_after(interrupted):
    validation = [interrupted.dump("validation", step) for step in LOGGED]
    rollouts = [interrupted.dump("rollouts", step) for step in LOGGED[1:]]
    # No question and no response was lost.
    assert {len(rows) for rows in validation} == {QUESTIONS}
    assert {len(rows) for rows in rollouts} == {PROMPTS * RESPONSES}
    searches, failed = (
        [sum(row[name] for row in rows) for rows in validation] for name in ("searches", "failed_searches")
    )
    # Validations 0, 2 and 3 had a server, 1 had none: every search failed, and the answers came all the same.
    assert min(searches) > 0
    assert failed == [0, searches[1], 0, 0]
    assert sum(row["answered"] for row in validation[SERVER_DIES]) > QUESTIONS / 2
    # The model could read of it, in the one step that was sampled meanwhile.
    texts = ["".join(row["output"] for row in rows) for rows in rollouts]
    assert [FAILURE in text for text in texts] == ["<information>Doc 1(Title: " not in text for text in texts]
    assert [FAILURE in text for text in texts] == [False, True, False]


def test_every_step_of_that_run_trains_on_what_was_sampled(interrupted):
    steps = MetricsLog(interrupted.run_dir).read().line
    assert [step.number for step in steps] == LOGGED
    for step in steps[1:]:
        metrics = step.metrics
        assert 0 <= metrics["critic/score/mean"] <= 1
        assert math.isfinite(metrics["actor/loss"]) and math.isfinite(metrics["actor/grad_norm"])
        # Positions, masks and tokens are the same where vLLM sampled and where the model is trained, observations
        # between them or not.
        assert metrics["training/rollout_probs_diff_max"] < 2e-5
        assert metrics["training/num_turns/max"] >= 4


def test_weights_are_those_of_the_reference_policy_and_of_each_group(interrupted):
    """In the first update the policy is the reference, and a weight is 3 + the success rate of the group."""
    first, second, *_ = (step.metrics for step in MetricsLog(interrupted.run_dir).read().line[1:])
    rewards = defaultdict(list)
    for row in interrupted.dump("rollouts", 1):
        rewards[row["input"]].append(row["score"])
    rates = [sum(score >= 1 for score in group) / len(group) for group in rewards.values()]
    assert len(rates) == PROMPTS and len(set(rates)) > 1
    # A mean over tokens, where longer responses count for more.
    assert first["actor/tr_weight_mean"] == pytest.approx(3 + sum(rates) / PROMPTS, abs=0.1)
    assert first["actor/tr_weight_std"] == pytest.approx(statistics.pstdev(rates), abs=0.1)
    assert second["actor/tr_weight_mean"] < 4 and second["actor/tr_weight_std"] > 0 and second["actor/kl_loss"] > 0


def test_an_engine_that_died_between_two_steps_ends_the_run_instead_of_hanging_it(interrupted):
    ended = interrupted.ended
    assert ended.code == 1 and ended.tracked == ENGINE_DIES and ended.left == ()
    assert "waiting for a process that had died" in ended.output and "vLLM's engine process died" in ended.output
    assert f"the same command goes on from the latest checkpoint, global_step_{ENGINE_DIES}" in ended.output
