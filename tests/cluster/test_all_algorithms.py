"""One training that changes its loss: every word of the group ``algorithm``, and every shaping on a loss of veRL's.

And the methods of docs/write_your_own.md: a shaping, an estimator and a loss of the user's own. Its prompts carry iGRPO's drafts,
and its reward raises in the end.
"""

import json
import math
import re
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

import pytest
from more_methods.multi_reward.advantages import dual_ascent

from tests.cluster.training import ROOT, Attempt, Ended, HeldSave, overrides
from verl_trgrpo.config import OWN_CONFIGS
from verl_trgrpo.runs.compose import algorithm_settings
from verl_trgrpo.runs.metrics import MetricsLog, Step
from verl_trgrpo.verl_plugin.loss_names import WEIGHTED

# Another package with words of its own, on the path.
PLUGIN = ROOT / "examples/more_methods"
LOSSES = [name for name in WEIGHTED if name != "vanilla"]


def words(group):
    places = (OWN_CONFIGS, PLUGIN / "more_methods/config")
    return sorted(file.stem for place in places for file in (place / group).glob("*.yaml"))


OWN = ("grpo", "algorithm.adv_estimator=median", "actor_rollout_ref.actor.policy_loss.loss_mode=quadratic")
REQUEST = "An earlier attempt:"
# What trains for a step: each word by itself, those of another plugin, too, and each shaping with the next of veRL's losses.
TRAINED = [
    *((word,) for word in words("algorithm")),
    *(
        (loss, f"shaping={name}")
        for loss, name in zip(cycle(LOSSES), words("shaping"), strict=False)
        if name != "custom"
    ),
]
# A second step for what the first one changes: the policy of one's own loss, the multiplier, the belief in the policy.
TWICE = {OWN, ("constrained_grpo",), ("ha_dw",)}


@dataclass(frozen=True)
class Trained:
    """The training.

    Args:
        planned: choice of each step.
        steps: what was logged, by choice.
    """

    run_dir: Path
    ended: Ended
    planned: list[tuple[str, ...]]
    steps: dict[tuple[str, ...], list[Step]]

    def dump(self, kind: str, step: int) -> list[dict]:
        return [json.loads(line) for line in (self.run_dir / kind / f"{step}.jsonl").read_text().splitlines()]


def own_methods(directory: Path) -> None:
    """Write the code blocks of the page as a module."""
    page = (ROOT / "docs/write_your_own.md").read_text()
    (directory / "my_methods.py").write_text("\n\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL)))


@pytest.fixture(scope="module")
def trained(tiny_run, tmp_path_factory) -> Trained:
    """A step of each, or two, and then a reward that raises."""
    directory = tmp_path_factory.mktemp("algorithms")
    run_dir, plan, broken = directory / "run", directory / "plan.json", directory / "broken"
    own_methods(directory)
    choices = [OWN, *TRAINED]  # one's own first, while the model is random
    planned = [choice for choice in choices for _ in range(2 if choice in TWICE else 1)]
    # Some more, because responses may have been sampled before the reward fails.
    more = [("grpo",)] * 5
    plan.write_text(json.dumps([*planned, *more]))
    sampler = "trainer.v1.sampler"
    arguments = [
        # Its options wrap a method of the worker when the worker builds them, for all that follow.
        "algorithm=lopti", "agent=igrpo", *overrides(tiny_run, run_dir, len(planned + more))[1:],
        # This vocabulary has the system message in 300 tokens.
        "+actor_rollout_ref.rollout.custom.igrpo.system=''", "data.max_prompt_length=400",
        # Two updates per step, and the log-probabilities of a reference model for whatever asks for them.
        "actor_rollout_ref.actor.ppo_mini_batch_size=2", "actor_rollout_ref.actor.use_kl_loss=true",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4",
        "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=8", "actor_rollout_ref.actor.optim.lr=1e-4",
        f"{sampler}.custom_sampler.path={ROOT / 'tests/cluster/algorithm_buffer.py'}",
        f"{sampler}.custom_sampler.name=AlgorithmBuffer", f"+{sampler}.sampler_kwargs.plan={plan}",
        # As veRL sets it for dynamic sampling, which some of them use.
        "++data.gen_batch_size=1", "trainer.total_epochs=1000", "trainer.val_before_train=true",
        f"trainer.save_freq={len(planned)}", f"trainer.validation_data_dir={run_dir}/validation",
        f"trainer.rollout_data_dir={run_dir}/rollouts", f"+reward.custom_reward_function.reward_kwargs.broken_by={broken}",
    ]  # fmt: skip
    save = HeldSave(run_dir, len(planned))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VERL_USE_EXTERNAL_MODULES", "my_methods")
        patch.setenv("PYTHONPATH", f"{directory}:{PLUGIN}")
        with Attempt(run_dir, arguments) as attempt:
            save.wait(attempt)
            broken.touch()
            save.release()
            ended = attempt.end()
    logged = {step.number: step for step in MetricsLog(run_dir).read().line}
    last = planned[min(max(logged, default=1), len(planned)) - 1]
    assert len(logged) > len(planned), f"{len(logged)} lines, the last of {last}:\n{ended.output[-3000:]}"
    found = {choice: [] for choice in choices}
    for number, choice in enumerate(planned, start=1):
        found[choice].append(logged[number])
    return Trained(run_dir, ended, planned, found)


@pytest.mark.parametrize("choice", TRAINED, ids=" ".join)
def test_a_step_moves_the_policy(trained, choice):
    shaped = "actor_rollout_ref.actor.policy_loss.shaping.name" in algorithm_settings(*choice)
    for step in trained.steps[choice]:
        assert math.isfinite(step.metrics["actor/pg_loss"])
        assert 0 < step.metrics["actor/grad_norm"] < math.inf
        assert ("actor/tr_weight_mean" in step.metrics) is shaped


def test_ones_own_shaping_estimator_and_loss_train_and_their_metrics_are_logged(trained):
    for step in trained.steps[OWN]:
        # A random model: the weights of p near 0 are near the floor.
        assert 0.3 <= step.metrics["actor/weight_mean"] < 0.35
        # Of two responses the median is the mean.
        assert step.metrics["critic/advantages/max"] == pytest.approx(-step.metrics["critic/advantages/min"])
        assert step.metrics["actor/grad_norm"] > 0


def test_the_multiplier_of_a_constraint_follows_its_cost(trained):
    first, second = (step.metrics for step in trained.steps["constrained_grpo",])
    (name,) = {key.rpartition("/")[0] for key in first if key.endswith("/multiplier")}
    options = algorithm_settings("constrained_grpo")
    [cost] = options["algorithm.constrained_grpo.costs"]
    assert first[f"{name}/multiplier"] == 0 and first[f"{name}/mean"] > cost["limit"]
    risen = dual_ascent(0.0, first[f"{name}/mean"], cost["limit"], options["algorithm.constrained_grpo.lr"])
    assert second[f"{name}/multiplier"] == pytest.approx(risen) and risen > 0
    assert first["critic/advantages/max"] > 0, "the parts reached the rows that they belong to"


def test_prompts_carry_drafts_and_those_of_the_validation_do_not(trained):
    assert all((REQUEST in row["input"]) for row in trained.dump("rollouts", 1))
    rows = trained.dump("validation", 0)
    assert rows and not any(REQUEST in row["input"] for row in rows)
    # The model that is trained on them computes the probabilities that vLLM sampled with.
    for step in trained.steps[OWN]:
        assert step.metrics["training/rollout_probs_diff_max"] < 2e-4


def test_a_run_whose_reward_fails_says_why_and_leaves_nothing_running(trained):
    ended = trained.ended
    assert ended.code == 1 and ended.tracked == len(trained.planned) and ended.left == ()
    _, error = ended.output.split("\nerror: ")
    assert "RuntimeError: the reward is broken" in error and str(trained.run_dir / "train-1.log") in error
