"""Check sizes and lengths that have to fit each other, which veRL meets at step 1 or never mentions."""

from __future__ import annotations

from functools import partial

from verl_trgrpo.checks.tables import HAS_LORA, Rule
from verl_trgrpo.checks.view import RunView
from verl_trgrpo.common.findings import Finding, Level
from verl_trgrpo.runs.keys import ACTOR, REF, ROLLOUT

_Warning = partial(Rule, level=Level.WARNING)
_KNOWN = "split is not None"
# Without a data-parallel size the rest cannot be computed.
_SPLIT = f"{_KNOWN} and gpus % model_parallel == 0"


def _divides(key: str, asked: str, *others: str) -> Rule:
    """Return the rule that the GPUs which share a response, by `key` and `others`, divide all GPUs."""
    times = f"times {' and '.join(f'{{{each}}}' for each in others)}: " if others else ""
    keys, product = " and ".join(f"<{each}>" for each in (key, *others)), "with a product that is " if others else "to "
    return Rule(
        key, "gpus % model_parallel == 0",
        f"{times}the {{= gpus}} GPUs cannot be split into groups of {{= model_parallel}}, which share a response; set {keys} "
        f"{product}a divisor of {{= gpus}}", asked=asked)  # fmt: skip


def _of_reference(name: str) -> Rule:
    """Return the rule that Megatron's groups are those of the actor for the reference model, which shares its processes."""
    key, actor = f"ref.megatron.{name}", f"actor.megatron.{name}"
    return Rule(
        key, f"{key} == {actor}",
        f"with {{{actor}}} the two models differ, which share Megatron's groups of GPUs, and veRL makes the groups once, for the "
        f"reference model; set <{key}>={{= {actor}}}",
        asked=f"actor.strategy == 'megatron' and has_reference and not {HAS_LORA}")  # fmt: skip


# What veRL's Megatron engine hands to `initialize_model_parallel`, unless another engine of the process did before.
_GROUPS = (
    "tensor_model_parallel_size", "pipeline_model_parallel_size", "virtual_pipeline_model_parallel_size",
    "context_parallel_size", "expert_model_parallel_size", "expert_tensor_parallel_size", "dynamic_context_parallel",
)  # fmt: skip

# How a step is split into updates and GPUs.
SIZES = {
    "rows_of_a_step": Rule(
        "data.train_batch_size", "rows is None or rows >= data.train_batch_size",
        "data.train_files has {= rows} rows, less than one step; set <data.train_batch_size>={= rows} or less, or add rows"),
    "steps_of_all_epochs": _Warning(
        "trainer.total_training_steps", "not steps_of_epochs or trainer.total_training_steps <= steps_of_epochs",
        "{trainer.total_epochs} of {= rows} rows has {= steps_of_epochs} steps, after which veRL stops, without the validation "
        "and checkpoint of a last step; set <trainer.total_epochs>="
        "{= -(-trainer.total_training_steps // (rows // data.train_batch_size))}, or "
        "<trainer.total_training_steps>={= steps_of_epochs}"),
    "unknown_split": Rule(
        "actor.strategy", _KNOWN, "how it splits a model over GPUs is not known here", level=Level.NOT_CHECKED),
    "tensor_parallel": Rule(
        "rollout.tensor_model_parallel_size",
        "gpus % (rollout.tensor_model_parallel_size * rollout.data_parallel_size) == 0",
        "times {rollout.data_parallel_size} does not divide the {= gpus} GPUs (trainer.n_gpus_per_node x trainer.nnodes); set "
        "<rollout.tensor_model_parallel_size> to a divisor of {= gpus}", asked="trainer_name in ('v1', 'older')"),
    "sequence_parallel": _divides("actor.ulysses_sequence_parallel_size", "actor.strategy in ('fsdp', 'fsdp2', 'fsdp_turbo')"),
    "veomni_parallel": _divides("actor.veomni.ulysses_parallel_size", "actor.strategy == 'veomni'"),
    "megatron_parallel": _divides(
        "actor.megatron.tensor_model_parallel_size", "actor.strategy == 'megatron'",
        "actor.megatron.pipeline_model_parallel_size", "actor.megatron.context_parallel_size"),
    **{f"reference_{name}": _of_reference(name) for name in _GROUPS},
    "torchtitan_parallel": _divides(
        "actor.torchtitan.tensor_parallel_size", "actor.strategy == 'torchtitan'",
        "actor.torchtitan.pipeline_parallel_size", "actor.torchtitan.context_parallel_size"),
    # It is told the number of groups, too.
    "torchtitan_groups": Rule(
        "actor.torchtitan.data_parallel_shard_size",
        "actor.torchtitan.data_parallel_shard_size * actor.torchtitan.data_parallel_replicate_size * model_parallel == gpus",
        "times {actor.torchtitan.data_parallel_replicate_size} and the {= model_parallel} GPUs that share a response are not the "
        "{= gpus} GPUs (trainer.n_gpus_per_node x trainer.nnodes), and torchtitan fails; set "
        "<actor.torchtitan.data_parallel_shard_size>={= gpus // model_parallel}",
        asked="actor.strategy == 'torchtitan' and gpus % model_parallel == 0"),
    "update_above_step": Rule(
        "actor.ppo_mini_batch_size", "actor.ppo_mini_batch_size <= data.train_batch_size",
        "more than {data.train_batch_size} (both count prompts); set <actor.ppo_mini_batch_size>={= data.train_batch_size}, or "
        "a divisor", asked="True"),
    "updates_of_a_step": _Warning(
        "actor.ppo_mini_batch_size", "data.train_batch_size % actor.ppo_mini_batch_size == 0",
        "does not divide {data.train_batch_size}, so veRL fills the last update with empty responses; set "
        "<actor.ppo_mini_batch_size> to a divisor of {= data.train_batch_size}",
        asked="actor.ppo_mini_batch_size < data.train_batch_size"),
    "responses_of_a_group": Rule(
        "actor.ppo_mini_batch_size", "actor.ppo_mini_batch_size * rollout.n % data_parallel == 0",
        "times {rollout.n} = {= actor.ppo_mini_batch_size * rollout.n} responses of an update cannot be split over "
        "{= data_parallel} data-parallel groups; set <actor.ppo_mini_batch_size> to a multiple of {= data_parallel}",
        asked=_SPLIT),
    "warmup_of_a_run": _Warning(
        "optim.lr_warmup_steps", "updates is None or optim.lr_warmup_steps < updates",
        "the run has {= updates} steps, so {optim.lr} is never reached; set <optim.lr_warmup_steps> to less than {= updates}"),
}  # fmt: skip

# Lengths against the model and each other.
_CONTEXT = "decoder['max_position_embeddings']"
LENGTHS = {
    "engine_too_short": Rule(
        "rollout.max_model_len", "longest <= rollout.max_model_len",
        "less than {data.max_prompt_length} + {data.max_response_length}, so responses to long prompts would silently be cut; "
        "set <rollout.max_model_len>={= longest}"),
    "beyond_the_context": Rule(
        "data.max_response_length", f"not {_CONTEXT} or longest <= {_CONTEXT}",
        f"with {{data.max_prompt_length}} more than the model's max_position_embeddings={{= {_CONTEXT}}}; set "
        f"<data.max_prompt_length> and <data.max_response_length> to at most {{= {_CONTEXT}}} together"),
    "engine_beyond_the_context": Rule(
        "rollout.max_model_len", f"not {_CONTEXT} or rollout.max_model_len <= {_CONTEXT}",
        f"more than the model's max_position_embeddings={{= {_CONTEXT}}}; set <rollout.max_model_len>={{= longest}}, or up to "
        f"{{= {_CONTEXT}}}"),
}  # fmt: skip


def micro_batch_findings(view: RunView) -> list[Finding]:
    """Check that micro-batches of a fixed size divide the responses of one data-parallel group."""
    prompts, groups = view[f"{ACTOR}.ppo_mini_batch_size"], view.data_parallel
    responses = prompts * view[f"{ROLLOUT}.n"]
    if view.split is None or view.gpus % view.model_parallel or responses % groups:
        return []
    update = responses // groups
    step = -(-view["data.train_batch_size"] // prompts) * update  # veRL fills it up to whole updates
    sizes = (
        (f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu", step, not view[f"{ROLLOUT}.log_prob_use_dynamic_bsz"]),
        (f"{ACTOR}.ppo_micro_batch_size_per_gpu", update, not view[f"{ACTOR}.use_dynamic_bsz"]),
        (
            f"{REF}.log_prob_micro_batch_size_per_gpu",
            step,
            view.has_reference and not view[f"{REF}.log_prob_use_dynamic_bsz"],
        ),
    )
    reason = "does not divide the {0} responses of one data-parallel group; set {1} to a divisor of {0}"
    return [
        view.finding(key, reason.format(whole, key))
        for key, whole, used in sizes
        if used and view[key] and whole % view[key]
    ]


def head_findings(view: RunView) -> list[Finding]:
    """Check that the GPUs that share a layer, or a sequence, can share its attention heads."""
    heads, shared = view.decoder["num_attention_heads"], view.decoder["num_key_value_heads"]
    if not heads:
        return []
    fits = [n for n in range(1, heads + 1) if not heads % n and (not shared or not shared % n or not n % shared)]
    split, rollout = view.split, f"{ROLLOUT}.tensor_model_parallel_size"
    sizes = {rollout: view[rollout]}
    if split:
        sizes[split.heads] = view.sequence_parallel if split.heads in split.tokens else view[split.heads]
    return [
        view.finding(
            key,
            f"{size} GPUs cannot share {heads} attention heads with {shared or 'as many'} key-value heads; set {key} to one of "
            f"{', '.join(map(str, fits))}",
        )
        for key, size in sizes.items()
        if size not in fits
    ]


def token_findings(view: RunView) -> list[Finding]:
    """Check that a micro-batch holds the longest sequence."""
    parallel, longest = view.sequence_parallel, view.longest
    limits = {
        f"{ACTOR}.ppo_max_token_len_per_gpu": view[f"{ACTOR}.use_dynamic_bsz"],
        f"{ROLLOUT}.log_prob_max_token_len_per_gpu": view[f"{ROLLOUT}.log_prob_use_dynamic_bsz"],
        f"{REF}.log_prob_max_token_len_per_gpu": view.has_reference and view[f"{REF}.log_prob_use_dynamic_bsz"],
    }
    short = [key for key, used in limits.items() if used and view[key] * parallel < longest]
    return [
        view.finding(
            key,
            f"times sequence parallel {parallel} does not hold one sequence of {longest} tokens (prompt plus response); set "
            f"{key}={-(-longest // parallel)} or more",
        )
        for key in short
    ]
