"""Check how a step is split into updates, micro-batches and GPUs."""

from __future__ import annotations

import math

from verl_trgrpo.checks.view import RunView, decoder_value
from verl_trgrpo.common.findings import Finding
from verl_trgrpo.runs.keys import ACTOR, ROLLOUT


def batch_findings(view: RunView) -> list[Finding]:
    """Check that a step has enough prompts, and that batches, GPUs and attention heads divide each other.

    Some of that veRL meets at step 1.
    """
    return [*_prompt_findings(view), *_split_findings(view), *_head_findings(view), *_warm_up_findings(view)]


def _prompt_findings(view: RunView) -> list[Finding]:
    """Check that the training files have enough prompts for a step, and for the steps that were asked for."""
    key, prompts, rows, trainer = (
        "data.train_batch_size",
        view.config.data.train_batch_size,
        view.rows,
        view.config.trainer,
    )
    if rows is None:
        return []
    if rows < prompts:
        message = f"{key}={prompts}: data.train_files has {rows} rows, less than one step; add rows, or lower it"
        return [Finding.error(key, message)]
    key, asked, possible = "trainer.total_training_steps", trainer.total_training_steps, view.steps_of_epochs
    if asked is None or possible is None or asked <= possible:
        return []
    needed = math.ceil(asked / (rows // prompts))
    message = (
        f"{key}={asked}: trainer.total_epochs={trainer.total_epochs} of {rows} rows has {possible} steps, after which veRL "
        f"stops, without the validation and checkpoint of a last step; set trainer.total_epochs={needed}, or {key}={possible}"
    )
    return [Finding.warning(key, message)]


def _split_findings(view: RunView) -> list[Finding]:
    """Check how updates and micro-batches are split over GPUs."""
    if view.config.actor_rollout_ref.actor.strategy == "megatron":
        message = f"{ACTOR}.strategy=megatron: how it splits a model over GPUs is not known here"
        return [Finding.not_checked(f"{ACTOR}.strategy", message)]
    findings = _tensor_parallel_findings(view)
    if view.gpus % view.sequence_parallel:
        key = f"{ACTOR}.ulysses_sequence_parallel_size"
        message = f"{key}={view.sequence_parallel}: does not divide the {view.gpus} GPUs; choose a divisor"
        return [*findings, Finding.error(key, message)]  # without a data-parallel size the rest cannot be computed
    return findings + _update_findings(view) + _micro_batch_findings(view)


def _warm_up_findings(view: RunView) -> list[Finding]:
    """Warn about a learning rate that is never reached, because its warm-up is longer than the run."""
    config, steps = view.config, view.steps
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


def _tensor_parallel_findings(view: RunView) -> list[Finding]:
    rollout, gpus = view.config.actor_rollout_ref.rollout, view.gpus
    key = f"{ROLLOUT}.tensor_model_parallel_size"
    size, replicas = rollout.tensor_model_parallel_size, rollout.data_parallel_size
    if gpus % (size * replicas) == 0:
        return []
    message = (
        f"{key}={size}: times {ROLLOUT}.data_parallel_size={replicas} does not divide the {gpus} GPUs "
        "(trainer.n_gpus_per_node x trainer.nnodes); choose a divisor"
    )
    return [Finding.error(key, message)]


def _update_findings(view: RunView) -> list[Finding]:
    config = view.config
    actor, n = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout.n
    prompts, mini, groups = config.data.train_batch_size, actor.ppo_mini_batch_size, _data_parallel(view)
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


def _micro_batch_findings(view: RunView) -> list[Finding]:
    config = view.config
    actor, rollout, ref = (config.actor_rollout_ref[name] for name in ("actor", "rollout", "ref"))
    groups, per_update = _data_parallel(view), actor.ppo_mini_batch_size * rollout.n
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


def _head_findings(view: RunView) -> list[Finding]:
    """Check that the attention heads of a local model can be split over the GPUs that share it or its sequences."""
    config = view.config
    heads, groups = (decoder_value(view.model, f"num_{kind}_heads") for kind in ("attention", "key_value"))
    if not isinstance(heads, int) or config.actor_rollout_ref.actor.strategy == "megatron":
        return []
    groups = groups if isinstance(groups, int) else heads
    sizes = (
        (f"{ROLLOUT}.tensor_model_parallel_size", config.actor_rollout_ref.rollout.tensor_model_parallel_size),
        (f"{ACTOR}.ulysses_sequence_parallel_size", view.sequence_parallel),
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


def _data_parallel(view: RunView) -> int:
    return max(1, view.gpus // view.sequence_parallel)
