"""Check how a step is split into updates, micro-batches and GPUs."""

from __future__ import annotations

import math
from typing import Any

from omegaconf import DictConfig

from verl_trgrpo.checks.files import decoder_value, model_content
from verl_trgrpo.common.findings import Finding
from verl_trgrpo.runs.keys import ACTOR, ROLLOUT


def total_steps(config: DictConfig, rows: int | None) -> int | None:
    """Return the steps of the run, at most.

    Args:
        config: of the run.
        rows: training prompts; None where they are not known.

    Returns:
        ``trainer.total_training_steps`` or the steps of all epochs, whichever is smaller; None where neither is known.
    """
    asked, epochs = config.trainer.total_training_steps, _steps_of_epochs(config, rows)
    known = [steps for steps in (asked, epochs) if steps is not None]
    return min(known) if known else None


def _steps_of_epochs(config: DictConfig, rows: int | None) -> int | None:
    return None if rows is None else rows // config.data.train_batch_size * config.trainer.total_epochs


def batch_findings(config: DictConfig, rows: int | None = None) -> list[Finding]:
    """Check that a step has enough prompts and that batches and GPUs divide each other; some of that veRL meets at step 1."""
    findings = []
    prompts = config.data.train_batch_size
    if rows is not None and rows < prompts:
        key = "data.train_batch_size"
        message = f"{key}={prompts}: data.train_files has {rows} rows, less than one step; add rows, or lower it"
        findings.append(Finding.error(key, message))
    else:
        findings += _length_findings(config, rows)
    if config.actor_rollout_ref.actor.strategy == "megatron":
        message = f"{ACTOR}.strategy=megatron: how it splits a model over GPUs is not known here"
        return [*findings, Finding.not_checked(f"{ACTOR}.strategy", message)]
    findings += _tensor_parallel_findings(config)
    if _gpus(config) % sequence_parallel(config):
        key = f"{ACTOR}.ulysses_sequence_parallel_size"
        message = f"{key}={sequence_parallel(config)}: does not divide the {_gpus(config)} GPUs; choose a divisor"
        return [*findings, Finding.error(key, message)]  # without a data-parallel size the rest cannot be computed
    return findings + _update_findings(config) + _micro_batch_findings(config)


def _length_findings(config: DictConfig, rows: int | None) -> list[Finding]:
    asked, possible = config.trainer.total_training_steps, _steps_of_epochs(config, rows)
    if rows is None or asked is None or possible is None or asked <= possible:
        return []
    key, epochs = "trainer.total_training_steps", config.trainer.total_epochs
    needed = math.ceil(asked / (rows // config.data.train_batch_size))
    message = (
        f"{key}={asked}: trainer.total_epochs={epochs} of {rows} rows has {possible} steps, after which veRL stops, without the "
        f"validation and checkpoint of a last step; set trainer.total_epochs={needed}, or {key}={possible}"
    )
    return [Finding.warning(key, message)]


def warm_up_findings(config: DictConfig, steps: int | None) -> list[Finding]:
    """Warn about a learning rate that is never reached, because its warm-up is longer than the run.

    Args:
        config: of the run.
        steps: of the run, at most; None if they are not known.
    """
    if steps is None:
        return []
    # The schedule counts updates of the weights between two synchronizations of a separate rollout engine.
    mode = config.trainer.v1.trainer_mode
    updates = steps * ((config.trainer.v1.get(mode) or {}).get("parameter_sync_step") or 1)
    key = f"{ACTOR}.optim.lr_warmup_steps"
    warm_up = config.actor_rollout_ref.actor.optim.lr_warmup_steps
    if warm_up is None or warm_up < updates:
        return []
    message = (
        f"{key}={warm_up}: the run has {updates} steps, so {ACTOR}.optim.lr={config.actor_rollout_ref.actor.optim.lr} is never "
        "reached; lower it"
    )
    return [Finding.warning(key, message)]


def _tensor_parallel_findings(config: DictConfig) -> list[Finding]:
    rollout, gpus = config.actor_rollout_ref.rollout, _gpus(config)
    key = f"{ROLLOUT}.tensor_model_parallel_size"
    size, replicas = rollout.tensor_model_parallel_size, rollout.data_parallel_size
    if gpus % (size * replicas) == 0:
        return []
    message = (
        f"{key}={size}: times {ROLLOUT}.data_parallel_size={replicas} does not divide the {gpus} GPUs "
        "(trainer.n_gpus_per_node x trainer.nnodes); choose a divisor"
    )
    return [Finding.error(key, message)]


def _update_findings(config: DictConfig) -> list[Finding]:
    actor, n = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout.n
    prompts, mini, groups = config.data.train_batch_size, actor.ppo_mini_batch_size, _data_parallel(config)
    key = f"{ACTOR}.ppo_mini_batch_size"
    findings = []
    if prompts < mini:
        message = f"{key}={mini}: more than data.train_batch_size={prompts} (both count prompts); choose a divisor"
        findings.append(Finding.error(key, message))
    elif prompts % mini:
        message = (
            f"{key}={mini}: does not divide data.train_batch_size={prompts}, so veRL fills the last update with empty "
            "responses; choose a divisor"
        )
        findings.append(Finding.warning(key, message))
    if mini * n % groups:
        message = (
            f"{key}={mini}: times {ROLLOUT}.n={n} = {mini * n} responses of an update cannot be split over {groups} "
            "data-parallel groups; change it, or the number of GPUs"
        )
        findings.append(Finding.error(key, message))
    return findings


def _micro_batch_findings(config: DictConfig) -> list[Finding]:
    actor, rollout, ref = (config.actor_rollout_ref[name] for name in ("actor", "rollout", "ref"))
    groups, per_update = _data_parallel(config), actor.ppo_mini_batch_size * rollout.n
    if per_update % groups:
        return []  # reported above
    # veRL fills a step up to a multiple of an update, so this is what one group gets to compute log-probabilities for.
    step = math.ceil(config.data.train_batch_size * rollout.n / per_update) * per_update // groups
    sizes = []
    if not rollout.log_prob_use_dynamic_bsz:
        sizes.append((f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu", rollout.log_prob_micro_batch_size_per_gpu, step))
    if not actor.use_dynamic_bsz:
        key = f"{ACTOR}.ppo_micro_batch_size_per_gpu"
        sizes.append((key, actor.ppo_micro_batch_size_per_gpu, per_update // groups))
    if (actor.use_kl_loss or config.algorithm.use_kl_in_reward) and not ref.log_prob_use_dynamic_bsz:
        key = "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu"
        sizes.append((key, ref.log_prob_micro_batch_size_per_gpu, step))
    return [
        Finding.error(
            key, f"{key}={size}: does not divide the {whole} responses of one data-parallel group; choose a divisor"
        )
        for key, size, whole in sizes
        if size and whole % size
    ]


def _gpus(config: DictConfig) -> int:
    return config.trainer.n_gpus_per_node * config.trainer.nnodes


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


def sequence_parallel(config: DictConfig) -> int:
    """Return the number of GPUs that share the tokens of a response."""
    actor: Any = config.actor_rollout_ref.actor
    engine = actor.get("fsdp_config") or {}
    return max(actor.get("ulysses_sequence_parallel_size", 1), engine.get("ulysses_sequence_parallel_size", 1))


def _data_parallel(config: DictConfig) -> int:
    return max(1, _gpus(config) // sequence_parallel(config))
