"""Lopti's passes: their gradients add up to that of one update, with veRL's nested columns and with its padded ones."""

from types import SimpleNamespace

import pytest
import torch
from tensordict import TensorDict
from verl.trainer.ppo import core_algos

from tests.verl_plugin.test_policy_loss import actor
from tests.verl_plugin.test_weighted_losses import OPTIONS, tensors
from verl_trgrpo.common.findings import InvalidInputError
from verl_trgrpo.core import LoptiOptions
from verl_trgrpo.core.losses import LOSS_AGG_MODES
from verl_trgrpo.verl_plugin import lopti
from verl_trgrpo.verl_plugin.config import TRGRPOPolicyLossConfig
from verl_trgrpo.verl_plugin.loss_names import LOSS_MODES

REFUSED = {"tr_gspo", "tr_sapo", "tr_clip_cov", "tr_kl_cov"}
THRESHOLD = 0.4


def whole_and_passes(loss_mode, loss_agg_mode, moved):
    """The gradient of one update, the sum of those of both passes, and the actor's options."""
    old, log_prob, advantages, mask = tensors()
    log_prob = (old + moved * (log_prob - old).clamp(-1, 1)).clamp(max=-1e-6).requires_grad_()
    counts = {
        "dp_size": 1,
        "batch_num_tokens": int(mask.sum()),
        "global_batch_size": len(mask),
        "loss_scale_factor": 50,
    }
    options = TRGRPOPolicyLossConfig(loss_mode=loss_mode, lopti=LoptiOptions(threshold=THRESHOLD), **OPTIONS)
    config = actor(options, clip_ratio_low=0.15, clip_ratio_high=0.3, loss_agg_mode=loss_agg_mode)
    config.global_batch_info.update(counts)

    def gradient(chosen):
        loss, _ = core_algos.get_policy_loss_fn(loss_mode)(
            old, log_prob, advantages, mask & chosen, loss_agg_mode, config
        )
        return torch.autograd.grad(loss, log_prob)[0]

    rare = old.exp() < THRESHOLD
    return gradient(torch.ones_like(mask)), gradient(rare) + gradient(~rare), config


@pytest.mark.parametrize("moved", [0.0, 0.3], ids=["on policy", "moved"])
@pytest.mark.parametrize("loss_agg_mode", [mode for mode in LOSS_AGG_MODES if mode != "seq-mean-token-mean"])
@pytest.mark.parametrize("loss_mode", [mode for mode in LOSS_MODES if mode not in REFUSED])
def test_the_passes_of_every_loss_add_up_to_one_update(loss_mode, loss_agg_mode, moved):
    whole, passes, config = whole_and_passes(loss_mode, loss_agg_mode, moved)
    lopti.check_lopti(config)
    torch.testing.assert_close(passes, whole, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize(
    ("loss_mode", "loss_agg_mode"),
    [*((mode, "token-mean") for mode in sorted(REFUSED)), ("tr_grpo", "seq-mean-token-mean")],
)
def test_a_loss_whose_passes_do_not_is_refused(loss_mode, loss_agg_mode):
    whole, passes, config = whole_and_passes(loss_mode, loss_agg_mode, 0.3)
    assert (passes - whole).abs().max() > 0.01 * whole.abs().max()
    with pytest.raises(ValueError, match=loss_mode.removeprefix("tr_") if loss_mode in REFUSED else loss_agg_mode):
        lopti.check_lopti(config)


def test_all_wrong_options_are_named():
    wrong = {"threshold": 1.0, "quantile": 0.0, "rare_first": "no"}
    with pytest.raises(InvalidInputError) as raised:
        LoptiOptions(**wrong)
    assert [message.partition("=")[0] for message in raised.value.messages] == list(wrong)
    with pytest.raises(InvalidInputError, match="threshold="):
        LoptiOptions(threshold=None)


@pytest.fixture
def worker():
    """What Lopti asks of veRL's worker, on one rank."""
    torch.distributed.init_process_group("gloo", rank=0, world_size=1, store=torch.distributed.HashStore())
    yield SimpleNamespace(engine=SimpleNamespace(get_data_parallel_group=lambda: None))
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("options", [LoptiOptions(), LoptiOptions(quantile=0.3, rare_first=False)], ids=str)
def test_padded_columns_have_the_passes_of_nested_ones(worker, options):
    """veRL's v1 trainer sends nested columns, its others padded ones."""
    old, _, _, mask = tensors()
    lengths = [int(row.sum()) for row in mask]
    nested = {
        name: torch.nested.as_nested_tensor([x[:n] for x, n in zip(column, lengths, strict=True)], layout=torch.jagged)
        for name, column in {"old_log_probs": old, "response_mask": mask.long()}.items()
    }
    padded = {"old_log_probs": old.masked_fill(~mask, 0.0), "response_mask": mask.long()}
    found = [lopti._passes(worker, TensorDict(columns, len(mask)), options) for columns in (nested, padded)]
    assert found[0][1] == found[1][1]
    for one, other in zip(found[0][0], found[1][0], strict=True):
        assert one["response_mask"].to_padded_tensor(0, mask.shape).equal(other["response_mask"])
    first, second = (part["response_mask"] for part in found[1][0])
    assert (first + second).equal(mask.long()) and 0 < int(first.sum()) < int(mask.sum())
    rarer, other = (old.exp()[part.bool()] for part in (first, second))
    assert bool(rarer.mean() < other.mean()) is options.rare_first
