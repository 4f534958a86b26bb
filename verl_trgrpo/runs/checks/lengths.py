"""Lengths: prompt and response against the model, the micro-batches and the budget of searches."""

from __future__ import annotations

from typing import Any

from omegaconf import DictConfig, OmegaConf

from verl_trgrpo.common.findings import Finding, findings_of, messages_of
from verl_trgrpo.runs.checks.batches import sequence_parallel
from verl_trgrpo.runs.checks.model_files import context_length
from verl_trgrpo.tasks.search_qa.search_options import read_options

_ROLLOUT = "actor_rollout_ref.rollout"


def length_findings(config: DictConfig) -> list[Finding]:
    """Complaints about lengths; the model's context counts where the model is on this machine."""
    return (
        _context_findings(config) + _dynamic_batch_findings(config) + _search_findings(config) + _draft_findings(config)
    )


def _longest(config: DictConfig) -> int:
    return config.data.max_prompt_length + config.data.max_response_length


def _context_findings(config: DictConfig) -> list[Finding]:
    longest, limit = _longest(config), config.actor_rollout_ref.rollout.max_model_len
    lengths = (
        f"data.max_prompt_length={config.data.max_prompt_length} + "
        f"data.max_response_length={config.data.max_response_length} = {longest} tokens"
    )
    key = f"{_ROLLOUT}.max_model_len"
    findings = []
    if limit is not None and longest > limit:
        message = (
            f"{lengths} is more than {key}={limit}: responses to long prompts would be cut short without a word; set it to "
            f"{longest} or shorten one of them"
        )
        findings.append(Finding.error(key, message))
    context = context_length(config)
    if context is None:
        return findings
    if longest > context:
        message = f"{lengths} is more than the model's max_position_embeddings={context}; shorten one of them"
        findings.append(Finding.error("data.max_response_length", message))
    if limit is not None and limit > context:
        message = (
            f"{key}={limit} is more than the model's max_position_embeddings={context}, which veRL refuses; set it to "
            f"{min(longest, context)}"
        )
        findings.append(Finding.error(key, message))
    return findings


def _dynamic_batch_findings(config: DictConfig) -> list[Finding]:
    """A micro-batch by tokens has to hold the longest sequence."""
    actor, rollout, ref = (config.actor_rollout_ref[name] for name in ("actor", "rollout", "ref"))
    limits = []
    if actor.use_dynamic_bsz:
        limits.append(("actor_rollout_ref.actor.ppo_max_token_len_per_gpu", actor.ppo_max_token_len_per_gpu))
    if rollout.log_prob_use_dynamic_bsz:
        limits.append((f"{_ROLLOUT}.log_prob_max_token_len_per_gpu", rollout.log_prob_max_token_len_per_gpu))
    if ref.log_prob_use_dynamic_bsz and (actor.use_kl_loss or config.algorithm.use_kl_in_reward):
        limits.append(("actor_rollout_ref.ref.log_prob_max_token_len_per_gpu", ref.log_prob_max_token_len_per_gpu))
    parallel = sequence_parallel(config)
    return [
        Finding.error(
            key,
            f"{key}={limit} x sequence parallel {parallel} does not hold one sequence of {_longest(config)} tokens "
            "(prompt plus response); veRL stops there. Raise it",
        )
        for key, limit in limits
        if limit * parallel < _longest(config)
    ]


def _search_findings(config: DictConfig) -> list[Finding]:
    """The response has to hold what the searches may put into it."""
    key = f"{_ROLLOUT}.custom.search"
    settings = OmegaConf.select(config, key)
    if settings is None:
        return []
    try:
        plain: Any = OmegaConf.to_container(settings, resolve=True) if OmegaConf.is_config(settings) else settings
        loop = read_options(plain)
    except ValueError as raised:
        return [Finding.error(key, problem) for problem in messages_of(raised)]
    response, searches = config.data.max_response_length, loop.max_searches
    budget = (searches + 1) * loop.max_turn_tokens + searches * loop.max_observation_tokens
    if budget > response:
        message = (
            f"{key}: {searches + 1} turns of {loop.max_turn_tokens} tokens and {searches} observations of "
            f"{loop.max_observation_tokens} are {budget} tokens, more than data.max_response_length={response}: a response "
            "that uses its whole budget ends without an answer. Raise the length or lower the budget"
        )
        return [Finding.warning(key, message)]
    return []


def _draft_findings(config: DictConfig) -> list[Finding]:
    """Options of drafts, and room for one in the prompt."""
    key, data = f"{_ROLLOUT}.custom.igrpo", config.data
    settings = OmegaConf.select(config, key)
    if settings is None:
        return []
    from verl_trgrpo.verl_plugin.igrpo import DraftOptions  # imports veRL's agent loops

    plain: Any = OmegaConf.to_container(settings, resolve=True)
    if problems := findings_of(lambda: DraftOptions.of(plain), key):
        return problems
    if data.max_prompt_length < data.max_response_length:
        message = (
            f"data.max_prompt_length={data.max_prompt_length} does not hold a prompt and a draft of "
            f"data.max_response_length={data.max_response_length} tokens; drafts that do not fit are left out. Raise it"
        )
        return [Finding.warning("data.max_prompt_length", message)]
    return []
