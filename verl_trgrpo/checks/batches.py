"""List how a step is split into updates, micro-batches and GPUs; some of that veRL meets at step 1."""

from __future__ import annotations

from functools import partial

from verl_trgrpo.checks.tables import Rule, rule_findings
from verl_trgrpo.checks.view import RunView
from verl_trgrpo.common.findings import Finding, Level

_Warning = partial(Rule, level=Level.WARNING)
_KNOWN = "actor.strategy != 'megatron'"
# Without a data-parallel size the rest cannot be computed.
_SPLIT = f"{_KNOWN} and gpus % sequence_parallel == 0"
_WHOLE = f"{_SPLIT} and actor.ppo_mini_batch_size * rollout.n % data_parallel == 0"
# Responses of one data-parallel group: of an update, and of a step, which veRL fills up to a multiple of an update.
_UPDATE = "actor.ppo_mini_batch_size * rollout.n // data_parallel"
_STEP = (
    "-(-data.train_batch_size // actor.ppo_mini_batch_size) * actor.ppo_mini_batch_size * rollout.n // data_parallel"
)
_REFERENCE = "(actor.use_kl_loss or algorithm.use_kl_in_reward) and not ref.log_prob_use_dynamic_bsz"
_HEADS, _GROUPS = "decoder['num_attention_heads']", "decoder['num_key_value_heads']"

_RULES = (
    Rule("data.train_batch_size", "rows is None or rows >= data.train_batch_size",
         "data.train_files has {= rows} rows, less than one step; add rows, or lower it"),
    _Warning("trainer.total_training_steps", "not steps_of_epochs or trainer.total_training_steps <= steps_of_epochs",
             "{trainer.total_epochs} of {= rows} rows has {= steps_of_epochs} steps, after which veRL stops, without the "
             "validation and checkpoint of a last step; set trainer.total_epochs="
             "{= -(-trainer.total_training_steps // (rows // data.train_batch_size))}, or it to {= steps_of_epochs}"),
    Rule("actor.strategy", _KNOWN, "how it splits a model over GPUs is not known here", level=Level.NOT_CHECKED),
    Rule("rollout.tensor_model_parallel_size",
         "gpus % (rollout.tensor_model_parallel_size * rollout.data_parallel_size) == 0",
         "times {rollout.data_parallel_size} does not divide the {= gpus} GPUs (trainer.n_gpus_per_node x trainer.nnodes); "
         "choose a divisor", asked=_KNOWN),
    Rule("actor.ulysses_sequence_parallel_size", "gpus % sequence_parallel == 0",
         "{= sequence_parallel}, which share a sequence, do not divide the {= gpus} GPUs; choose a divisor", asked=_KNOWN),
    Rule("actor.ppo_mini_batch_size", "actor.ppo_mini_batch_size <= data.train_batch_size",
         "more than {data.train_batch_size} (both count prompts); choose a divisor", asked=_SPLIT),
    _Warning("actor.ppo_mini_batch_size", "data.train_batch_size % actor.ppo_mini_batch_size == 0",
             "does not divide {data.train_batch_size}, so veRL fills the last update with empty responses; choose a divisor",
             asked=f"{_SPLIT} and actor.ppo_mini_batch_size < data.train_batch_size"),
    Rule("actor.ppo_mini_batch_size", "actor.ppo_mini_batch_size * rollout.n % data_parallel == 0",
         "times {rollout.n} = {= actor.ppo_mini_batch_size * rollout.n} responses of an update cannot be split over "
         "{= data_parallel} data-parallel groups; change it, or the number of GPUs", asked=_SPLIT),
    *(Rule(key, f"not {key} or ({whole}) % {key} == 0",
           "does not divide the {= " + whole + "} responses of one data-parallel group; choose a divisor",
           asked=f"{_WHOLE} and {used}")
      for key, whole, used in (
          ("rollout.log_prob_micro_batch_size_per_gpu", _STEP, "not rollout.log_prob_use_dynamic_bsz"),
          ("actor.ppo_micro_batch_size_per_gpu", _UPDATE, "not actor.use_dynamic_bsz"),
          ("ref.log_prob_micro_batch_size_per_gpu", _STEP, _REFERENCE))),
    *(Rule(key, f"{_HEADS} % {size} == 0 and (not {_GROUPS} or {_GROUPS} % {size} == 0 or {size} % {_GROUPS} == 0)",
           "{= " + size + "} GPUs cannot share {= " + _HEADS + "} attention heads with {= " + _GROUPS + " or 'as many'} "
           "key-value heads: it has to divide both, or to be a multiple of the latter; choose a divisor",
           asked=f"{_HEADS} and {_KNOWN}")
      for key, size in (("rollout.tensor_model_parallel_size", "rollout.tensor_model_parallel_size"),
                        ("actor.ulysses_sequence_parallel_size", "sequence_parallel"))),
    _Warning("optim.lr_warmup_steps", "updates is None or optim.lr_warmup_steps < updates",
             "the run has {= updates} steps, so {optim.lr} is never reached; lower it"),
)  # fmt: skip


def batch_findings(view: RunView) -> list[Finding]:
    """Check that a step has enough prompts, and that batches, GPUs and attention heads divide each other."""
    return rule_findings(view, _RULES)
