"""Policy loss, forward and backward, against veRL's vanilla loss in the same run (aim: at most 1.10 times)."""

from __future__ import annotations

import argparse

import torch
from paired import against, paired_times, report
from verl.trainer.ppo.core_algos import get_policy_loss_fn
from verl.workers.config import FSDPActorConfig, PolicyLossConfig

from verl_trgrpo.shaping import available_shapings, make_shaping
from verl_trgrpo.verl_plugin.config import TRGRPOPolicyLossConfig


def candidates(batch: int, length: int, dtype: torch.dtype) -> dict:
    """Closures that compute one loss and its gradient: vanilla, vanilla times a naive weight, and this project's."""
    generator = torch.Generator().manual_seed(0)
    old_log_prob = -3 * torch.rand(batch, length, generator=generator)
    log_prob = (old_log_prob + 0.3 * torch.randn(batch, length, generator=generator)).clamp(max=0).to(dtype)
    old_log_prob = old_log_prob.to(dtype)
    advantages = torch.randn(batch, 1, generator=generator).expand(batch, length).contiguous().to(dtype)
    mask = torch.arange(length)[None] < torch.randint(length // 8, length, (batch, 1), generator=generator)

    def actor(policy_loss):
        return FSDPActorConfig(rollout_n=8, ppo_micro_batch_size_per_gpu=1, strategy="fsdp2", policy_loss=policy_loss)

    def closure(loss_mode, config, naive_weight=False):
        def call():
            x = log_prob.clone().requires_grad_()
            scaled = advantages
            if naive_weight:
                weight = (2.0 * (torch.sigmoid(9.0 * x.detach().exp()) - 0.25)).clamp(1.0, 1.4)
                scaled = advantages * weight
            loss, _ = get_policy_loss_fn(loss_mode)(old_log_prob, x, scaled, mask, "token-mean", config)
            loss.backward()

        return call

    found = {
        "verl vanilla": closure("vanilla", actor(PolicyLossConfig())),
        "vanilla, naive weight": closure("vanilla", actor(PolicyLossConfig()), naive_weight=True),
    }
    for name in available_shapings():
        found[f"tr_grpo {name}"] = closure("tr_grpo", actor(TRGRPOPolicyLossConfig(shaping=make_shaping(name))))
    for options in ({"normalize": "token_mean"}, {"placement": "inside"}):
        label = f"tr_grpo {next(iter(options.values()))}"
        found[label] = closure("tr_grpo", actor(TRGRPOPolicyLossConfig(**options)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", type=int, nargs=2, default=(64, 2048), metavar=("BATCH", "LENGTH"))
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    results = {
        f"{tuple(arguments.shape)} {dtype}": against(
            paired_times(candidates(*arguments.shape, getattr(torch, dtype)), arguments.repeats), "verl vanilla"
        )
        for dtype in arguments.dtypes
    }
    report("policy loss, forward + backward, metrics included", results, ("torch", "verl"), arguments.json)


if __name__ == "__main__":
    main()
