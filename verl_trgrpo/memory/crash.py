"""Explain a card without memory: the part of a step, what the refused block was, and the setting that acts there."""

from __future__ import annotations

import re

# Parts of a step by the functions of veRL, torch and vLLM that a traceback names; the innermost that is known decides.
PHASES = {
    "optimizer step": re.compile(r"optimizer_step|_multi_tensor_adam|_foreach_sqrt"),
    "update": re.compile(r"update_actor|update_policy|train_mini_batch|train_batch|update_critic|backward"),
    "reference": re.compile(r"compute_ref_log_prob"),
    "log-probabilities": re.compile(r"compute_log_prob|compute_old_log_prob|compute_values"),
    "save": re.compile(r"save_checkpoint"),
    "weight sync": re.compile(
        r"update_weights|get_per_tensor_param|collect_lora_params|summon_full_params|sync_rollout_weights|rollout_mode"
    ),
    "wake-up": re.compile(r"wake_up|resume_memory"),
    "cache": re.compile(r"determine_available_memory|initialize_kv_caches|No available memory for the cache blocks"),
    "engine start": re.compile(r"EngineCore|_init_executor|init_device|launch_server|less than desired"),
}
_ACTOR, _ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
_FUSED = "or set actor_rollout_ref.model.use_fused_kernels=true"
_REMEDIES = {
    # Offloaded weights and states come back to the card for the whole of an update.
    "optimizer step": "more cards (trainer.nnodes), or LoRA (actor_rollout_ref.model.lora_rank); offloading does not help here",
    "update": f"lower {_ACTOR}.ppo_max_token_len_per_gpu (or ppo_micro_batch_size_per_gpu), {_FUSED}; "
    "offloading does not help here",
    "reference": f"lower actor_rollout_ref.ref.log_prob_max_token_len_per_gpu (or log_prob_micro_batch_size_per_gpu), {_FUSED}",
    "log-probabilities": f"lower {_ROLLOUT}.log_prob_max_token_len_per_gpu (or log_prob_micro_batch_size_per_gpu), {_FUSED}",
    "save": f"set {_ACTOR}.fsdp_config.optimizer_offload=true",
    "weight sync": f"set {_ACTOR}.fsdp_config.optimizer_offload=true, raise {_ROLLOUT}.tensor_model_parallel_size, or with LoRA "
    f"set {_ROLLOUT}.layered_summon=true; the engine's share and fewer sequences do not help here",
    "wake-up": f"lower {_ROLLOUT}.gpu_memory_utilization, or set {_ACTOR}.fsdp_config.param_offload=true and "
    f"{_ACTOR}.fsdp_config.optimizer_offload=true",
    "cache": f"raise {_ROLLOUT}.gpu_memory_utilization or tensor_model_parallel_size, or lower {_ROLLOUT}.max_model_len",
    "engine start": f"look in nvidia-smi for other programs on the card, then lower {_ROLLOUT}.gpu_memory_utilization, or set "
    f"{_ACTOR}.fsdp_config.param_offload=true",
}
_UNKNOWN = "the traceback in the log says in which part of a step: lower what that part holds at once"
_BLOCK = re.compile(r"Tried to allocate (?P<size>\d{1,6}(?:\.\d{1,3})?) (?P<unit>MiB|GiB)")


def remedy_of(phase: str) -> str:
    """Return what to set where a card has too little memory in a part of a step of `PHASES`; "" for one that is not known."""
    return _REMEDIES.get(phase, _UNKNOWN)


def refused_bytes(text: str) -> int | None:
    """Return the bytes of the block that torch could not get, by its message; None where it does not say."""
    if not (found := _BLOCK.search(text)):
        return None
    return int(float(found["size"]) * (2**30 if found["unit"] == "GiB" else 2**20))


def block_meaning(size: int, vocabulary: int, hidden: int, weight_bytes: int = 4) -> str:
    """Return what a refused block was, in tokens where it is one tensor of tokens times words; "" where it is too small for that.

    Args:
        size: bytes of the block, which torch's message rounds to a hundredth of a GiB.
        vocabulary: words of the model.
        hidden: its width.
        weight_bytes: bytes of a weight in the trainer.
    """
    for each in (2, weight_bytes):
        if abs(size - each * vocabulary * hidden) <= 0.01 * size + 2**23:
            return f"the embedding or the output layer, {vocabulary} x {hidden} in {8 * each} bits"
    halves, whole = round(size / vocabulary / 2), round(size / vocabulary / 4)
    if whole < 256:
        return ""
    return f"logits of {halves} tokens in 16 bits, or of {whole} in 32"
