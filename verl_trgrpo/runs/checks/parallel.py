"""Check what parallel sizes need of the model."""

from __future__ import annotations

from omegaconf import DictConfig

from verl_trgrpo.common.findings import Finding
from verl_trgrpo.runs.checks.batches import ACTOR, ROLLOUT, sequence_parallel
from verl_trgrpo.runs.checks.files import decoder_value, model_content


def parallel_findings(config: DictConfig) -> list[Finding]:
    """Check that the attention heads of a local model can be split over the GPUs that share it or its sequences."""
    model = model_content(config)
    heads, groups = (decoder_value(model, f"num_{kind}_heads") for kind in ("attention", "key_value"))
    if not isinstance(heads, int) or config.actor_rollout_ref.actor.strategy == "megatron":
        return []
    groups = groups if isinstance(groups, int) else heads
    sizes = (
        (f"{ROLLOUT}.tensor_model_parallel_size", config.actor_rollout_ref.rollout.tensor_model_parallel_size),
        (f"{ACTOR}.ulysses_sequence_parallel_size", sequence_parallel(config)),
    )
    findings = []
    for key, size in sizes:
        if heads % size:
            message = f"{key}={size}: does not divide the model's {heads} attention heads; choose a divisor"
            findings.append(Finding.error(key, message))
        elif groups % size and size % groups:
            message = f"{key}={size}: neither divides the model's {groups} key-value heads nor is a multiple; change it"
            findings.append(Finding.error(key, message))
    return findings
