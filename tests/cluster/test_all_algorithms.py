"""One training that changes its loss: every word of the group ``algorithm``, and every shaping on a loss of veRL's.

And the methods of docs/write_your_own.md: a shaping, an estimator and a loss of the user's own.
"""

import json
import math
import re
from importlib import resources
from itertools import cycle

import pytest

from tests.cluster.training import ROOT, Attempt, overrides
from tests.verl_plugin.test_registration import REFUSED
from verl_trgrpo.core import dual_ascent
from verl_trgrpo.runs.compose import algorithm_settings
from verl_trgrpo.runs.metrics import MetricsLog
from verl_trgrpo.verl_plugin import WEIGHTED

CONFIG = resources.files("verl_trgrpo.config")
LOSSES = [name for name in WEIGHTED if name != "vanilla"]


def words(group):
    return sorted(file.name.removesuffix(".yaml") for file in (CONFIG / group).iterdir())


OWN = ("grpo", "algorithm.adv_estimator=median", "actor_rollout_ref.actor.policy_loss.loss_mode=quadratic")
# What trains for a step: each word of the directory by itself, and each shaping with the next of veRL's losses.
TRAINED = [
    *((word,) for word in words("algorithm") if word not in REFUSED),
    *(
        (loss, f"shaping={name}")
        for loss, name in zip(cycle(LOSSES), words("shaping"), strict=False)
        if name != "custom"
    ),
]
# A second step for what the first one changes: the policy of one's own loss, the multiplier, the belief in the policy.
TWICE = {OWN, ("constrained_grpo",), ("ha_dw",)}


@pytest.fixture(scope="module")
def trained(tiny_run, tmp_path_factory):
    """Steps of all of them, by choice."""
    directory = tmp_path_factory.mktemp("algorithms")
    run_dir, plan, modules = directory / "run", directory / "plan.json", directory / "modules"
    modules.mkdir()
    page = (ROOT / "docs/write_your_own.md").read_text()
    (modules / "my_methods.py").write_text("\n\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL)))
    choices = [OWN, *TRAINED]  # one's own first, while the model is random
    planned = [choice for choice in choices for _ in range(2 if choice in TWICE else 1)]
    plan.write_text(json.dumps(planned))
    sampler = "trainer.v1.sampler"
    arguments = [
        # Its options wrap a method of the worker when the worker builds them, for all that follow.
        "algorithm=lopti", *overrides(tiny_run, run_dir, len(planned))[1:],
        # Two updates per step, and the log-probabilities of a reference model for whatever asks for them.
        "actor_rollout_ref.actor.ppo_mini_batch_size=2", "actor_rollout_ref.actor.use_kl_loss=true",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4",
        "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=8", "actor_rollout_ref.actor.optim.lr=1e-4",
        f"{sampler}.custom_sampler.path={CONFIG.parent.parent / 'tests/cluster/algorithm_buffer.py'}",
        f"{sampler}.custom_sampler.name=AlgorithmBuffer", f"+{sampler}.sampler_kwargs.plan={plan}",
        # As veRL sets it for dynamic sampling, which some of them use.
        "++data.gen_batch_size=1", "trainer.save_freq=-1", "trainer.total_epochs=1000",
    ]  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VERL_USE_EXTERNAL_MODULES", "my_methods")
        patch.setenv("PYTHONPATH", str(modules))
        with Attempt(run_dir, arguments) as attempt:
            ended = attempt.end()
    steps = MetricsLog(run_dir).read()
    last = planned[min(len(steps), len(planned)) - 1] if steps else None
    assert ended.code == 0, f"after {len(steps)} steps, the last of {last}:\n{ended.output[-3000:]}"
    found = {choice: [] for choice in choices}
    for choice, step in zip(planned, steps, strict=True):
        found[choice].append(step)
    return found


@pytest.mark.parametrize("choice", TRAINED, ids=" ".join)
def test_a_step_moves_the_policy(trained, choice):
    shaped = "actor_rollout_ref.actor.policy_loss.shaping.name" in algorithm_settings(*choice)
    for step in trained[choice]:
        assert math.isfinite(step.metrics["actor/pg_loss"])
        assert 0 < step.metrics["actor/grad_norm"] < math.inf
        assert ("actor/tr_weight_mean" in step.metrics) is shaped


def test_ones_own_shaping_estimator_and_loss_train_and_their_metrics_are_logged(trained):
    for step in trained[OWN]:
        # A random model: the weights of p near 0 are near the floor.
        assert 0.3 <= step.metrics["actor/weight_mean"] < 0.35
        # Of two responses the median is the mean.
        assert step.metrics["critic/advantages/max"] == pytest.approx(-step.metrics["critic/advantages/min"])
        assert step.metrics["actor/grad_norm"] > 0


def test_the_multiplier_of_a_constraint_follows_its_cost(trained):
    first, second = (step.metrics for step in trained["constrained_grpo",])
    (name,) = {key.rpartition("/")[0] for key in first if key.endswith("/multiplier")}
    options = algorithm_settings("constrained_grpo")
    [cost] = options["algorithm.constrained_grpo.costs"]
    assert first[f"{name}/multiplier"] == 0 and first[f"{name}/mean"] > cost["limit"]
    risen = dual_ascent(0.0, first[f"{name}/mean"], cost["limit"], options["algorithm.constrained_grpo.lr"])
    assert second[f"{name}/multiplier"] == pytest.approx(risen) and risen > 0
    assert first["critic/advantages/max"] > 0, "the parts reached the rows that they belong to"
