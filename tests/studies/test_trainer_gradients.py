"""The trainer of studies has the loss and the gradients of the veRL path, and its scale controls their scale."""

import pytest
import torch

from studies import trainer
from tests.studies.trainer_runs import options, sampled_batch


class Recorder:
    """An optimizer that keeps the gradients instead of applying them."""

    def __init__(self, model):
        self.model, self.param_groups, self.gradients = model, [{"lr": 0.0}], []

    def zero_grad(self):
        self.model.zero_grad()

    def step(self):
        self.gradients = [p.grad.clone() for p in self.model.parameters()]


@pytest.fixture(scope="module")
def saved_batch(tiny_run, model, tokenizer):
    """Responses, and advantages; the old policy is moved away from the current one, so that some tokens are clipped."""
    rows, batch, _ = sampled_batch(model, tokenizer, options(tiny_run))
    noise = torch.randn(batch.log_probs.shape, generator=torch.Generator().manual_seed(0))
    batch = batch._replace(log_probs=batch.log_probs + 0.3 * noise)
    advantages = torch.randn(16, 1, generator=torch.Generator().manual_seed(1)) * batch.mask
    return rows, batch, advantages


def own_gradients(model, saved_batch, options, ref=None, decides=None):
    recorder = Recorder(model)
    _, batch, advantages = saved_batch
    decides = batch.mask if decides is None else decides
    found = trainer.update(model, recorder, batch, advantages, decides, ref, options)
    model.zero_grad()
    return found, recorder


@pytest.mark.parametrize("scaled", ["loss", "lr"])
def test_scale_controls_multiply_by_the_mean_published_weight(tiny_run, model, saved_batch, scaled):
    big = {"grad_clip": 1e9}
    plain, plain_recorder = own_gradients(model, saved_batch, options(tiny_run, arm="grpo", **big))
    regulated, _ = own_gradients(model, saved_batch, options(tiny_run, arm="tr_grpo", **big))
    control, recorder = own_gradients(model, saved_batch, options(tiny_run, arm=f"grpo_scaled_{scaled}", **big))
    mean_weight = float(regulated["actor/tr_weight_mean"])
    assert 1.0 < mean_weight < 1.4
    in_loss, in_lr = (mean_weight, 1.0) if scaled == "loss" else (1.0, mean_weight)
    assert control["actor/grad_norm"] == pytest.approx(in_loss * plain["actor/grad_norm"], rel=1e-4)
    assert recorder.param_groups[0]["lr"] == pytest.approx(in_lr * plain_recorder.param_groups[0]["lr"], rel=1e-6)


def verl_config(options):
    """veRL's actor configuration with the arm's meaning; the sigmoid's constants are written out, not taken over."""
    from verl.workers.config import FSDPActorConfig

    from verl_trgrpo.core import make_shaping
    from verl_trgrpo.verl_plugin.config import TRGRPOPolicyLossConfig

    sigmoid = {"name": "sigmoid", "alpha": 2.0, "tau": 9.0, "mu": 0.25, "lower": 1.0, "upper": 1.4}
    shaping = {
        "tr_grpo_reverse": {**sigmoid, "reverse": True},
        "advantage_reweighting": {"name": "linear", "alpha": 0.2},
        "grpo": {"name": "uniform"},
        "dapo_clip": {"name": "uniform"},
    }.get(options.arm, sigmoid)
    normalize = "token_mean" if options.arm == "tr_grpo_token_mean" else "none"
    published = {"placement": "inside", "kl": "literal"} if options.arm == "tr_grpo_published" else {}
    policy_loss = TRGRPOPolicyLossConfig(shaping=make_shaping(**shaping), normalize=normalize, **published)
    return FSDPActorConfig(
        rollout_n=4, ppo_micro_batch_size_per_gpu=16, strategy="fsdp2", policy_loss=policy_loss, clip_ratio_low=0.2,
        clip_ratio_high=0.28 if options.arm == "dapo_clip" else 0.2, loss_agg_mode="token-mean",
        use_kl_loss=options.kl_coef > 0, kl_loss_coef=options.kl_coef, kl_loss_type="low_var_kl",
    )  # fmt: skip


def verl_gradients(model, saved_batch, config, ref):
    """Loss and gradients through veRL's ppo_loss, each sequence in a pass of its own."""
    from tensordict import TensorDict
    from verl.utils import tensordict_utils as tu
    from verl.workers.utils import losses

    def nested(rows):
        return torch.nested.as_nested_tensor(list(rows), layout=torch.jagged)

    def whole(model, prompt, response):
        """veRL's engine gives the loss one value per position: the last has no token to predict and is ignored."""
        ids = torch.tensor([*prompt, *response])
        logits = model(ids[None]).logits[0]
        return torch.log_softmax(logits, -1)[torch.arange(len(ids)), ids.roll(-1)]

    rows, batch, advantages = saved_batch
    prompts = [rows[i // 4].prompt for i in range(16)]
    responses = [batch.responses[i, batch.mask[i]].tolist() for i in range(16)]
    sequences = list(zip(prompts, responses, strict=True))
    fields = {
        "prompts": nested(torch.tensor(prompt) for prompt in prompts),
        "responses": nested(torch.tensor(response) for response in responses),
        "response_mask": nested(torch.ones(len(response)) for response in responses),
        "old_log_probs": nested(x[keep] for x, keep in zip(batch.log_probs, batch.mask, strict=True)),
        "advantages": nested(x[keep] for x, keep in zip(advantages, batch.mask, strict=True)),
    }
    if ref is not None:
        with torch.no_grad():
            fields["ref_log_prob"] = nested(whole(ref, p, r)[len(p) - 1 : -1] for p, r in sequences)
    data = TensorDict(fields, batch_size=16)
    counts = {"dp_size": 1, "batch_num_tokens": int(batch.mask.sum()), "global_batch_size": 16}
    tu.assign_non_tensor(data, max_response_len=max(map(len, responses)), **counts)
    values = torch.cat([whole(model, *sequence) for sequence in sequences])
    loss, _ = losses.ppo_loss(config, {"log_probs": values}, data)
    return loss.item(), torch.autograd.grad(loss, list(model.parameters()))


# Rules that know the decisions (test_decisions.py) have no counterpart in veRL.
PLAIN_ARMS = [arm for arm in trainer.ARMS if "scaled" not in arm and arm not in trainer.RULES]


@pytest.mark.parametrize(
    ("arm", "kl"), [*((arm, False) for arm in PLAIN_ARMS), ("tr_grpo", True), ("tr_grpo_published", True)]
)
def test_loss_and_gradients_are_those_of_the_verl_path(tiny_run, model, saved_batch, arm, kl):
    chosen = options(tiny_run, arm=arm, grad_clip=1e9, kl_coef=0.1 if kl else 0.0)
    ref = trainer.load_model(tiny_run / "model", "cpu").requires_grad_(False) if kl else None
    found, recorder = own_gradients(model, saved_batch, chosen, ref)
    loss, gradients = verl_gradients(model, saved_batch, verl_config(chosen), ref)
    assert found["actor/loss"] == pytest.approx(loss, rel=1e-4, abs=1e-6)
    assert 0 < found["actor/pg_clipfrac"] < 0.9
    own, expected = (torch.cat([g.flatten() for g in grads]) for grads in (recorder.gradients, gradients))
    # Float32 sums in another order; an arm mistaken for another would differ by percents.
    assert (own - expected).norm() < 1e-4 * expected.norm()
    assert expected.norm() > 0
