"""Rewards that are no numbers, rewards that teach nothing, responses of no tokens: refused, or counted, never spread."""

import math

import numpy as np
import pytest
import torch
from verl.trainer.ppo import core_algos
from verl.workers.config import FSDPActorConfig

from verl_trgrpo.core import group_relative_advantages
from verl_trgrpo.tasks import Score, compute_score, register_reward
from verl_trgrpo.verl_plugin.config import TRGRPOPolicyLossConfig

ROWS, LENGTH, GROUP = 8, 12, 4
BROKEN = [math.nan, math.inf, -math.inf]


def losses(advantages, mask, policy_loss=None, loss_agg_mode="token-mean"):
    """Loss, gradient and metrics of random log-probabilities, as veRL asks for them."""
    policy_loss = policy_loss or TRGRPOPolicyLossConfig()
    config = FSDPActorConfig(rollout_n=GROUP, ppo_micro_batch_size_per_gpu=1, strategy="fsdp2", policy_loss=policy_loss)
    generator = torch.Generator().manual_seed(0)
    old_log_prob = -3 * torch.rand(mask.shape, generator=generator)
    log_prob = (old_log_prob + 0.1 * torch.randn(mask.shape, generator=generator)).clamp(max=0).requires_grad_()
    loss, metrics = core_algos.get_policy_loss_fn(policy_loss.loss_mode)(
        old_log_prob=old_log_prob, log_prob=log_prob, advantages=advantages, response_mask=mask,
        loss_agg_mode=loss_agg_mode, config=config,
    )  # fmt: skip
    loss.backward()
    return loss.detach(), log_prob.grad, metrics


@pytest.fixture
def mask():
    return torch.ones(ROWS, LENGTH)


@pytest.mark.parametrize("value", BROKEN)
@pytest.mark.parametrize("field", ["score", "acc", "f1"])
def test_a_reward_that_is_no_number_is_refused_where_it_arises(registry, value, field):
    register_reward("broken")(lambda *_: Score(**{"score": 1.0, "acc": 1.0, field: value}))
    with pytest.raises(ValueError, match=rf"data source 'broken' returned .*'{field}': {value}.*finite"):
        compute_score("broken", "response", "gold")


@pytest.mark.parametrize("value", BROKEN)
def test_the_loss_refuses_advantages_that_are_no_numbers(value, mask):
    advantages = torch.ones(ROWS, LENGTH)
    advantages[2] = value
    with pytest.raises(ValueError, match=r"12 of 96 advantages .* not finite: a reward was NaN or infinite"):
        losses(advantages, mask)


def test_the_advantages_of_equal_rewards_change_nothing(mask):
    loss, gradient, metrics = losses(torch.zeros(ROWS, LENGTH), mask, TRGRPOPolicyLossConfig())
    assert loss == 0 and torch.equal(gradient, torch.zeros(ROWS, LENGTH))
    assert all(math.isfinite(value) for value in metrics.values())


@pytest.mark.parametrize("loss_agg_mode", ["token-mean", "seq-mean-token-mean", "seq-mean-token-sum"])
def test_an_empty_response_counts_for_its_group_and_for_nothing_else(mask, loss_agg_mode):
    scores = [1.0, 0.0, 0.5, 1.0, 1.0, 0.0, 0.0, 0.0]
    rewards = torch.zeros(ROWS, LENGTH)
    rewards[:, -1] = torch.tensor(scores)
    mask[1] = 0
    advantages = group_relative_advantages(rewards, mask, np.repeat(["a", "b"], GROUP))
    expected = (np.array(scores[:4]) - np.mean(scores[:4])) / (np.std(scores[:4], ddof=1) + 1e-6)
    np.testing.assert_allclose(advantages[[0, 2, 3], 0].numpy(), expected[[0, 2, 3]], rtol=1e-5)
    assert torch.equal(advantages[1], torch.zeros(LENGTH))
    loss, gradient, metrics = losses(advantages, mask, loss_agg_mode=loss_agg_mode)
    assert torch.isfinite(loss) and gradient[1].abs().max() == 0 and gradient[0].abs().min() > 0
    assert all(math.isfinite(value) for value in metrics.values())


RIGHT = {
    "kk_3ppl": ("(1) Zoey is a knight\n(2) Oliver is a knave", "<think>a</think><answer>{}</answer>"),
    "deepscaler": ("\\frac{3}{7}", "<think>a</think>\\boxed{{{}}}"),
    "searchR1_nq": ({"target": ["Ada Lovelace"]}, "<think>a</think><answer>Ada Lovelace</answer>"),
}


@pytest.mark.parametrize("data_source", RIGHT)
def test_empty_and_cut_responses_are_wrong_answers_and_no_errors(data_source):
    """A response at the length limit is scored as it stands; only one that lost its answer's end loses the answer."""
    gold, form = RIGHT[data_source]
    response = form.format(gold)
    assert compute_score(data_source, response, gold)["acc"] == 1.0
    for cut in range(len(response) - 1):
        score = compute_score(data_source, response[:cut], gold)
        assert all(math.isfinite(value) for value in score.values())
        if cut <= len("<think>a</think>"):
            assert score["acc"] == 0.0 and score["format_ok"] == 0.0
