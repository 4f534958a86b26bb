"""Words that are GRPO to the last bit: what `validate` says of every word is what its gradient does.

The gradient is that of the real path: Hydra's composition, veRL's dataclass and estimator, the wrapped ppo_loss, on other tokens
than the check has.
"""

import math
from functools import cache

import numpy as np
import pytest
import torch
from verl import DataProto
from verl.trainer.ppo.ray_trainer import compute_advantage
from verl.utils.config import omega_conf_to_dataclass
from verl.workers.utils import losses

from tests.conftest import composed
from tests.verl_plugin.test_ppo_loss import LENGTHS, micro_batch, nested
from verl_trgrpo.checks.algorithm import loss_findings
from verl_trgrpo.checks.view import RunView
from verl_trgrpo.config import OWN_CONFIGS

ACTOR = "actor_rollout_ref.actor"
WORDS = sorted(file.stem for file in (OWN_CONFIGS / "algorithm").glob("*.yaml"))
ONE = ["data.train_batch_size=64", f"{ACTOR}.ppo_mini_batch_size=64"]
# Settings of one kind have one gradient: no loss reads the sizes and numbers of updates.
SETTINGS = {
    "one update": [ONE],
    "several updates": [[ONE[0], f"{ACTOR}.ppo_mini_batch_size=32"], [*ONE, f"{ACTOR}.ppo_epochs=2"]],
    "bypass": [
        [*ONE, "algorithm.rollout_correction.bypass_mode=true", "actor_rollout_ref.rollout.calculate_log_probs=true"]
    ],
}
# Their advantages need the replay buffer, or they change the update around the loss.
BEYOND_THE_LOSS = {"lopti", "ar_lopti"}


def spread(log_prob):
    """Likely tokens, and rare ones."""
    return torch.where(log_prob > -1, log_prob, 8 * log_prob)


def gradient(config, on_policy):
    """The gradient of two groups of two responses, by log pi_theta."""
    values, output, data, of_response = micro_batch(range(4))
    with torch.no_grad():
        values.copy_(spread(values))
    lengths = [n for _, n in LENGTHS]
    generator = torch.Generator().manual_seed(1)
    drift = torch.randn(len(of_response), generator=generator) * torch.tensor([0.3, 2.0]).repeat(9)[:17]
    drift[0] = -math.log(1.25)  # between the upper bounds of GRPO and of DAPO, for a right response
    old = spread(of_response.detach()) + (0 if on_policy else drift)
    data["old_log_probs"] = nested([*old.split(lengths)])
    mask = torch.zeros(4, max(lengths))
    rewards = torch.zeros_like(mask)
    for row, (n, reward) in enumerate(zip(lengths, (1.0, 0.0, 0.0, 1.0), strict=True)):
        mask[row, :n], rewards[row, n - 1] = 1, reward
    batch = DataProto.from_dict(
        {"token_level_rewards": rewards, "response_mask": mask, "responses": mask},
        non_tensors={"uid": np.array(list("aabb"), dtype=object)},
    )
    options = config.algorithm
    found = compute_advantage(
        batch,
        options.adv_estimator,
        gamma=options.gamma,
        lam=options.lam,
        norm_adv_by_std_in_grpo=options.norm_adv_by_std_in_grpo,
        config=options,
    ).batch["advantages"]
    data["advantages"] = nested([row[:n] for row, n in zip(found, lengths, strict=True)])
    output["entropy"] = 0.4 * torch.rand(len(values), generator=generator)
    loss, _ = losses.ppo_loss(omega_conf_to_dataclass(config.actor_rollout_ref.actor), output, data)
    return torch.autograd.grad(loss, values)[0]


def composition(word, *more):
    sizes = [f"{ACTOR}.ppo_micro_batch_size_per_gpu=1", "actor_rollout_ref.rollout.n=8", f"{ACTOR}.use_kl_loss=false"]
    return composed([f"algorithm={word}", *sizes, *more])


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_word_is_named_exactly_where_its_gradient_is_that_of_grpo(setting):
    (overrides, *others), on_policy = SETTINGS[setting], setting == "one update"
    idle, named = set(), [set() for _ in SETTINGS[setting]]

    @cache
    def of_grpo(mode):
        return gradient(composition("grpo", *overrides, f"{ACTOR}.loss_agg_mode={mode}").config, on_policy)

    for word in WORDS:
        run, *more = (composition(word, *each) for each in (overrides, *others))
        for found, each in zip(named, (run, *more), strict=True):
            if any(finding.where.endswith("ppo_mini_batch_size") for finding in loss_findings(RunView(each))):
                found.add(word)
        if word in BEYOND_THE_LOSS or run.config.algorithm.norm_adv_by_std_in_grpo is False or word == "grpo":
            continue
        mode = run.config.actor_rollout_ref.actor.loss_agg_mode
        if torch.allclose(gradient(run.config, on_policy), of_grpo(mode), 1e-6, 1e-9):
            idle.add(word)
    assert named == [idle] * len(named)
    assert on_policy is bool(idle)
    assert not on_policy or idle >= {"fipo", "cppo", "ipo_mask", "aspo", "tepo", "cispo", "dppo_tv", "kl_cov"}


def test_the_finding_says_which_word_and_what_to_set():
    [finding] = loss_findings(RunView(composition("fipo", *ONE)))
    assert "algorithm=fipo" in finding.message and "ppo_mini_batch_size=32" in finding.message


SHAPING = f"{ACTOR}.policy_loss.shaping"
# Words with settings, and the last part of the key that is named with one update a batch, and with two.
WEIGHTS = {
    # Its clip range alone is left, without which one update is GRPO.
    "algorithm=stare ...positive=1": ("ppo_mini_batch_size", "name"),
    "algorithm=stare ...positive=1 ...negative=0.9": (None, None),
    "algorithm=stare ...target_entropy=0.01": (None, None),
    "algorithm=rsi ...lower=0 ...upper=1e9": ("name", "name"),
    "algorithm=ha_dw shaping=fipo": ("name", None),
    "algorithm=dapo_clip shaping=stapo ...max_prob=1e-5": (None, None),
    "algorithm=gspo shaping=taco ...alpha=1e-5": (None, None),
    "algorithm=ha_dw shaping=uniform": (None, None),
    "algorithm=advantage_reweighting_old": (None, None),
}


@pytest.mark.parametrize("words", WEIGHTS)
def test_weights_of_1_are_named(words):
    word, *more = words.replace("...", f"{SHAPING}.").removeprefix("algorithm=").split()
    for size, named in zip((64, 32), WEIGHTS[words], strict=True):
        run = composition(word, *more, ONE[0], f"{ACTOR}.ppo_mini_batch_size={size}")
        found = [each.where.rpartition(".")[2] for each in loss_findings(RunView(run))]
        assert found == ([named] if named else [])


CORRECTION = "algorithm.rollout_correction"
OWN = [
    "shaping=custom",
    f"{SHAPING}.name=tests.verl_plugin.input_shapings.old_over_rollout",
    "actor_rollout_ref.rollout.calculate_log_probs=true",
]
TWICE = [*OWN, f"{CORRECTION}.rollout_is=token"]
COINCIDE = {
    "three policies": (OWN, None),
    "bypass": ([*OWN, f"{CORRECTION}.bypass_mode=true"], "bypass_mode=false"),
    "the same weights twice": ([*TWICE, f"{CORRECTION}.rollout_is_threshold=0.5_5.0"], "squared"),
    "the same ratio twice, with other bounds": ([*TWICE, f"{CORRECTION}.rollout_is_threshold=2.0"], "squared"),
    "a ratio of responses beside": ([*OWN, f"{CORRECTION}.rollout_is=sequence"], None),
    "another shaping beside": (["shaping=sigmoid", *OWN[2:], f"{CORRECTION}.rollout_is=token"], None),
}


@pytest.mark.parametrize("updates", [1, 2])
@pytest.mark.parametrize("case", COINCIDE)
def test_inputs_that_are_equal_in_the_run_are_equal_in_the_probe(case, updates):
    overrides, words = COINCIDE[case]
    sizes = [ONE[0], f"{ACTOR}.ppo_mini_batch_size={64 // updates}"]
    found = loss_findings(RunView(composition("grpo", *overrides, *sizes)))
    assert [words in each.message for each in found] == ([True] if words else [])
