"""How a step is cut into updates and micro-batches, and whether the pieces fit."""

from __future__ import annotations

import math
from typing import Any

from omegaconf import DictConfig

from verl_trgrpo.common.findings import Finding
from verl_trgrpo.common.text import as_yaml

ACTOR = "actor_rollout_ref.actor"
ROLLOUT = "actor_rollout_ref.rollout"


def total_steps(config: DictConfig, rows: int | None) -> int | None:
    """Steps of the run, at most; ``rows`` is the number of training prompts. None where that would have to be known."""
    total = config.trainer.total_training_steps
    if total is None and rows is not None:
        total = rows // config.data.train_batch_size * config.trainer.total_epochs
    return total


def batch_findings(config: DictConfig) -> list[Finding]:
    """Complaints about sizes that do not divide, some of which veRL meets at step 1; every size has to be a whole number."""
    if config.actor_rollout_ref.actor.strategy == "megatron":
        return [
            Finding.not_checked(
                ACTOR, "how Megatron splits a model over GPUs is not known here; veRL checks its batches"
            )
        ]
    findings = _parallel_findings(config)
    if any(finding.where != ROLLOUT for finding in findings):
        return findings  # without a data-parallel size the rest cannot be computed
    return findings + _update_findings(config) + _micro_batch_findings(config)


def _parallel_findings(config: DictConfig) -> list[Finding]:
    """GPUs against the sizes of what splits a model or a sequence over them."""
    rollout, gpus = config.actor_rollout_ref.rollout, _gpus(config)
    findings = []
    if gpus % (rollout.tensor_model_parallel_size * rollout.data_parallel_size):
        message = (
            f"{ROLLOUT}.tensor_model_parallel_size={rollout.tensor_model_parallel_size} x data_parallel_size="
            f"{rollout.data_parallel_size} does not divide the {gpus} GPUs (trainer.n_gpus_per_node x trainer.nnodes); "
            "choose a tensor parallel size that does"
        )
        findings.append(Finding.error(ROLLOUT, message))
    split = sequence_parallel(config)
    if gpus % split:
        message = (
            f"{ACTOR}: ulysses_sequence_parallel_size = {split} does not divide the {gpus} GPUs; choose one that does"
        )
        findings.append(Finding.error(ACTOR, message))
    attention = config.actor_rollout_ref.model.get("override_config", {}).get("attn_implementation")
    if split > 1 and attention not in (None, "flash_attention_2"):
        message = (
            f"ulysses_sequence_parallel_size={split} with attn_implementation={attention}: veRL "
            "splits the sequence for flash attention only, the loss would be wrong without a word; use "
            "flash_attention_2 or a size of 1"
        )
        findings.append(Finding.error(f"{ACTOR}.ulysses_sequence_parallel_size", message))
    return findings


def _update_findings(config: DictConfig) -> list[Finding]:
    actor, n = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout.n
    prompts, mini, dp = config.data.train_batch_size, actor.ppo_mini_batch_size, _data_parallel(config)
    key = f"{ACTOR}.ppo_mini_batch_size"
    findings = []
    if prompts < mini:
        message = (
            f"{key}={mini} prompts is more than data.train_batch_size={prompts}; both count prompts, not responses: make it "
            "a divisor"
        )
        findings.append(Finding.error(key, message))
    elif prompts % mini:
        message = (
            f"{key}={mini} does not divide data.train_batch_size={prompts}; veRL fills the last update up with empty "
            "responses, so it is a smaller one. Choose a divisor"
        )
        findings.append(Finding.warning(key, message))
    if mini * n % dp:
        message = (
            f"{key}={mini} x {ROLLOUT}.n={n} = {mini * n} responses of an update cannot be dealt out to {dp} data-parallel "
            "groups; change the mini-batch or the number of GPUs"
        )
        findings.append(Finding.error(key, message))
    if n == 1 and config.algorithm.adv_estimator in ("grpo", "tr_grpo", "reinforce_rej", "ha_dw"):
        message = f"{ROLLOUT}.n=1: a group of one has nothing to be compared with; use 5 or more"
        findings.append(Finding.error(f"{ROLLOUT}.n", message))
    return findings


def _micro_batch_findings(config: DictConfig) -> list[Finding]:
    actor, rollout, ref = (config.actor_rollout_ref[name] for name in ("actor", "rollout", "ref"))
    dp, per_update = _data_parallel(config), actor.ppo_mini_batch_size * rollout.n
    findings = []
    if actor.use_dynamic_bsz != rollout.log_prob_use_dynamic_bsz:
        key = f"{ROLLOUT}.log_prob_use_dynamic_bsz"
        scoring, training = as_yaml(rollout.log_prob_use_dynamic_bsz), as_yaml(actor.use_dynamic_bsz)
        message = f"{key}={scoring} but {ACTOR}.use_dynamic_bsz={training}"
        findings.append(Finding.error(key, f"{message}; veRL wants them equal"))
    if per_update % dp:
        return findings
    # veRL fills a step up to a multiple of an update, so this is what one group gets to compute log-probabilities for.
    step = math.ceil(config.data.train_batch_size * rollout.n / per_update) * per_update // dp
    sizes = []
    if not rollout.log_prob_use_dynamic_bsz:
        sizes.append((f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu", rollout.log_prob_micro_batch_size_per_gpu, step))
    if not actor.use_dynamic_bsz:
        sizes.append((f"{ACTOR}.ppo_micro_batch_size_per_gpu", actor.ppo_micro_batch_size_per_gpu, per_update // dp))
    if (actor.use_kl_loss or config.algorithm.use_kl_in_reward) and not ref.log_prob_use_dynamic_bsz:
        key = "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu"
        sizes.append((key, ref.log_prob_micro_batch_size_per_gpu, step))
    return findings + [
        Finding.error(
            key, f"{key}={size} does not divide the {whole} responses of one data-parallel group; choose a divisor"
        )
        for key, size, whole in sizes
        if size and whole % size
    ]


def _gpus(config: DictConfig) -> int:
    return config.trainer.n_gpus_per_node * config.trainer.nnodes


def sequence_parallel(config: DictConfig) -> int:
    """GPUs that work on the same responses together."""
    actor: Any = config.actor_rollout_ref.actor
    engine = actor.get("fsdp_config") or {}
    return max(actor.get("ulysses_sequence_parallel_size", 1), engine.get("ulysses_sequence_parallel_size", 1))


def _data_parallel(config: DictConfig) -> int:
    return max(1, _gpus(config) // sequence_parallel(config))
