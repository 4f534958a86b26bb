"""Policy loss, forward and backward, against veRL's vanilla loss and all others that veRL registers (aim: at most 1.00).

Peak memory is that of the tensors of one call, counted in float32 tensors of the batch's shape.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from paired import Calls, compared, parser, peak_of_tensors, report
from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY, get_policy_loss_fn
from verl.workers.config import FSDPActorConfig, PolicyLossConfig

from verl_trgrpo.core import available_shapings, make_shaping
from verl_trgrpo.verl_plugin.actor import TOKEN_INPUTS
from verl_trgrpo.verl_plugin.config import TRGRPOPolicyLossConfig
from verl_trgrpo.verl_plugin.loss_names import WEIGHTED

MEMORY_SHAPE = (64, 8192)
MEMORY_CANDIDATES = ("verl vanilla", "vanilla, naive weight", "tr_grpo sigmoid", "tr_grpo token_mean", "tr_grpo inside")
# Shapings that rank tokens or add up over a response.
OF_THE_BATCH = ("top_entropy", "stapo", "stare", "cppo", "fipo")
# Ours, and one that hands a batch on to another of the losses.
NOT_VERLS = {"vanilla", "aspo", "bypass_mode", *WEIGHTED.values()}


def candidates(batch: int, length: int, dtype: torch.dtype) -> Calls:
    """Calls that compute one loss and its gradient: vanilla, vanilla times a naive weight, ours, and veRL's others."""
    generator = torch.Generator().manual_seed(0)
    old_log_prob = -3 * torch.rand(batch, length, generator=generator)
    log_prob = (old_log_prob + 0.3 * torch.randn(batch, length, generator=generator)).clamp(max=0).to(dtype)
    old_log_prob = old_log_prob.to(dtype)
    advantages = torch.randn(batch, 1, generator=generator).expand(batch, length).contiguous().to(dtype)
    entropy = torch.rand(batch, length, generator=generator).to(dtype)
    mask = torch.arange(length)[None] < torch.randint(length // 8, length, (batch, 1), generator=generator)

    def call(options: PolicyLossConfig, naive_weight: bool = False) -> Callable[[], None]:
        config = FSDPActorConfig(rollout_n=8, ppo_micro_batch_size_per_gpu=1, strategy="fsdp2", policy_loss=options)
        object.__setattr__(config, TOKEN_INPUTS, {"entropy": entropy})
        loss = get_policy_loss_fn(options.loss_mode)

        def forward_backward() -> None:
            x, scaled = log_prob.clone().requires_grad_(), advantages
            if naive_weight:
                scaled = advantages * (2.0 * (torch.sigmoid(9.0 * x.detach().exp()) - 0.25)).clamp(1.0, 1.4)
            loss(old_log_prob, x, scaled, mask, "token-mean", config)[0].backward()

        return forward_backward

    ours = {name: {"shaping": make_shaping(name)} for name in available_shapings() if make_shaping(name).probs_only}
    ours |= {name: {"shaping": make_shaping(name)} for name in OF_THE_BATCH}
    ours |= {"token_mean": {"normalize": "token_mean"}, "inside": {"placement": "inside"}}
    others = {name: {"dro_beta": 1.0} if name == "dro" else {} for name in sorted({*POLICY_LOSS_REGISTRY} - NOT_VERLS)}
    return {
        "verl vanilla": call(PolicyLossConfig()),
        "vanilla, naive weight": call(PolicyLossConfig(), naive_weight=True),
        **{f"tr_grpo {name}": call(TRGRPOPolicyLossConfig(**more)) for name, more in ours.items()},
        **{f"verl {name}": call(PolicyLossConfig(loss_mode=name, **more)) for name, more in others.items()},
    }


def peaks(dtype: torch.dtype) -> dict[str, float]:
    """Return the peak memory of a call to some of the losses, in float32 tensors of the batch's shape."""
    calls = candidates(*MEMORY_SHAPE, dtype)
    return {name: peak_of_tensors(calls[name]) / (4 * math.prod(MEMORY_SHAPE)) for name in MEMORY_CANDIDATES}


def main() -> None:
    options = parser(__doc__, repeats=40)
    options.add_argument("--shape", type=int, nargs=2, default=(64, 2048), metavar=("BATCH", "LENGTH"))
    options.add_argument("--memory", action="store_true", help="also measure peak memory")
    arguments = options.parse_args()
    torch.set_num_threads(arguments.threads)
    results = {
        f"{tuple(arguments.shape)} {dtype}": compared(
            candidates(*arguments.shape, getattr(torch, dtype)), "verl vanilla", arguments.repeats
        )
        for dtype in ("float32", "bfloat16")
    }
    precisions = ("float32", "bfloat16") if arguments.memory else ()
    memory = {precision: peaks(getattr(torch, precision)) for precision in precisions}
    report("policy loss, forward + backward, metrics included", results, arguments.out, peak_tensors=memory)
    for precision, found in memory.items():
        print(f"\npeak memory of one call with {precision} inputs, in float32 tensors of {MEMORY_SHAPE}")
        print("\n".join(f"{name:24}{peak:11.2f}" for name, peak in found.items()))


if __name__ == "__main__":
    main()
