"""mismatch=opsm: wrong responses that drifted from the rollout are left out, by every loss and in every trainer."""

import pytest
import torch
from hydra.errors import HydraException
from omegaconf import OmegaConf
from verl.utils.config import omega_conf_to_dataclass
from verl.workers.utils import losses

from tests.conftest import composed
from tests.verl_plugin.test_ppo_loss import LENGTHS, micro_batch, nested
from tests.verl_plugin.test_ways_to_train import TRAINERS, compose_way
from verl_trgrpo.checks.algorithm import loss_findings
from verl_trgrpo.checks.view import RunView
from verl_trgrpo.core import OffPolicyMask, Tokens
from verl_trgrpo.verl_plugin.loss_names import WEIGHTED

ACTOR = "actor_rollout_ref.actor"
# Mean of log p_rollout - log p of each response. A is 1, 0.3, -0.4 and -1.1: the third is wrong and drifted.
DRIFTS = (0.9, 0.0, 0.7, 0.4)
LEFT_OUT = 2


def gradient(config, rollout=DRIFTS):
    OmegaConf.update(config, f"{ACTOR}.ppo_micro_batch_size_per_gpu", 1)
    config.actor_rollout_ref.rollout.n = 8
    # No token is clipped, so that every response has a gradient to lose.
    config.actor_rollout_ref.actor.update(clip_ratio_low=1.0, clip_ratio_high=10.0, clip_ratio_c=20.0)
    values, output, data, of_response = micro_batch(range(4))
    rows = of_response.detach().split([n for _, n in LENGTHS])
    swing = [torch.linspace(-0.2, 0.2, len(row)) if len(row) > 1 else torch.zeros(1) for row in rows]
    data["rollout_log_probs"] = nested([row + d + s for row, d, s in zip(rows, rollout, swing, strict=True)])
    output["entropy"] = 0.4 * torch.rand(len(values), generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)  # clip_cov draws its tokens
    loss, metrics = losses.ppo_loss(omega_conf_to_dataclass(config.actor_rollout_ref.actor), output, data)
    (found,) = torch.autograd.grad(loss, values)
    return found.split([sum(length) for length in LENGTHS]), metrics


def config_of(way, monkeypatch, word, *more):
    if way is None:
        return composed([f"algorithm={word}", *more], "trgrpo_trainer").config
    return compose_way(way, monkeypatch, f"+algorithm={word}", *more)


WORDS = (
    "grpo",
    "tr_grpo",
    "gspo",
    "sapo",
    "cispo",
    "clip_cov",
    "kl_cov",
    "dppo_tv",
    "dppo_kl",
    "dro",
    "reinforce",
    "aspo",
)


def test_the_words_have_every_loss_with_weights():
    modes = {composed([f"algorithm={word}"], "trgrpo_trainer").config.actor_rollout_ref.actor.policy_loss.loss_mode
             for word in WORDS}  # fmt: skip
    assert {WEIGHTED.get(mode, mode) for mode in modes} >= {*WEIGHTED.values(), "aspo"}


@pytest.mark.parametrize(("way", "word"), [*((way, "tr_grpo") for way in TRAINERS), *((None, word) for word in WORDS)])
def test_a_wrong_response_that_drifted_has_no_gradient_and_the_others_keep_theirs(way, word, monkeypatch):
    whole, _ = gradient(config_of(way, monkeypatch, word))
    masked, metrics = gradient(config_of(way, monkeypatch, word, "mismatch=opsm"))
    assert whole[LEFT_OUT].any()
    for row, (found, expected) in enumerate(zip(masked, whole, strict=True)):
        torch.testing.assert_close(found, torch.zeros_like(expected) if row == LEFT_OUT else expected)
    tokens = [n for _, n in LENGTHS]
    assert float(metrics["actor/opsm_masked_frac"].aggregate()) == pytest.approx(tokens[LEFT_OUT] / sum(tokens))


def test_it_is_the_mask_of_the_paper():
    """M = 0 where A < 0 and the mean of log p_rollout / p over the tokens of the response is above delta; in plain Python."""
    generator = torch.Generator().manual_seed(0)
    shape, left_out = (400, 12), 0
    log_prob = -3 * torch.rand(shape, generator=generator, dtype=torch.float64)
    rollout = log_prob + 0.6 * torch.randn(shape, generator=generator, dtype=torch.float64)
    advantages = torch.randn(400, 1, generator=generator, dtype=torch.float64).expand(shape)
    mask = torch.rand(shape, generator=generator) < 0.7
    mask[0] = False
    tokens = Tokens.of_batch(log_prob, old_log_prob=log_prob, advantages=advantages, response_mask=mask,
                             rollout_log_prob=rollout.masked_fill(~mask, torch.nan))  # fmt: skip
    found = OffPolicyMask(delta=0.1).left_out(tokens)
    for row in range(400):
        own = [float(rollout[row, t] - log_prob[row, t]) for t in range(12) if mask[row, t]]
        expected = bool(own) and float(advantages[row, 0]) < 0 and sum(own) / len(own) > 0.1
        assert found[row][mask[row]].tolist() == [expected] * len(own)
        left_out += expected
    assert 40 < left_out < 200


def test_a_run_without_the_rollout_s_probabilities_is_refused():
    run = composed(["algorithm=tr_grpo", "mismatch=opsm", "actor_rollout_ref.rollout.calculate_log_probs=false",
                    f"{ACTOR}.ppo_micro_batch_size_per_gpu=1", "actor_rollout_ref.rollout.n=8"], "trgrpo_trainer")  # fmt: skip
    [finding] = loss_findings(RunView(run))
    assert finding.where.endswith("calculate_log_probs") and "opsm" in finding.message


def test_a_word_that_is_grpo_is_named_with_the_mask_too():
    sizes = [f"{ACTOR}.ppo_micro_batch_size_per_gpu=1", "actor_rollout_ref.rollout.n=8"]
    one = ["data.train_batch_size=64", f"{ACTOR}.ppo_mini_batch_size=64"]
    [finding] = loss_findings(RunView(composed(["algorithm=cispo", "mismatch=opsm", *sizes, *one], "trgrpo_trainer")))
    assert "algorithm=cispo" in finding.message and finding.where.endswith("ppo_mini_batch_size")


def test_a_loss_that_cannot_have_it_is_refused():
    """One number for a response's weights, and passes that see a part of a response's tokens."""
    with pytest.raises(HydraException, match="remove the shaping or mismatch=opsm"):
        gradient(composed(["algorithm=gmpo", "mismatch=opsm"], "trgrpo_trainer").config)
    sizes = [f"{ACTOR}.ppo_micro_batch_size_per_gpu=1", "actor_rollout_ref.rollout.n=8"]
    [finding] = loss_findings(RunView(composed(["algorithm=lopti", "mismatch=opsm", *sizes], "trgrpo_trainer")))
    assert "mean over the tokens of a pass" in finding.message


def test_delta_has_a_bound():
    assert OffPolicyMask(delta=0.0).delta == 0
    with pytest.raises(ValueError, match="delta=-1"):
        OffPolicyMask(delta=-1)
