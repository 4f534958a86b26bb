"""Lengths: prompt and response against the model, the micro-batches and the budget of searches."""

from __future__ import annotations

from omegaconf import DictConfig, OmegaConf

from verl_trgrpo.common.problems import Finding, error, warning
from verl_trgrpo.runs.validation.model_facts import ModelFacts
from verl_trgrpo.tasks.search_qa.options import read_options

_ROLLOUT = "actor_rollout_ref.rollout"


def length_findings(config: DictConfig, facts: ModelFacts | None) -> list[Finding]:
    """Complaints about lengths; ``facts`` is None where the model's context is not known."""
    return (
        _context_findings(config, facts)
        + _dynamic_batch_findings(config)
        + _overlong_findings(config)
        + _search_findings(config)
    )


def _longest(config: DictConfig) -> int:
    return config.data.max_prompt_length + config.data.max_response_length


def _context_findings(config: DictConfig, facts: ModelFacts | None) -> list[Finding]:
    rollout, longest = config.actor_rollout_ref.rollout, _longest(config)
    lengths = f"data.max_prompt_length={config.data.max_prompt_length} + data.max_response_length="
    lengths += f"{config.data.max_response_length} = {longest} tokens"
    findings = []
    if rollout.max_model_len is not None and longest > rollout.max_model_len:
        findings.append(
            error(
                f"{_ROLLOUT}.max_model_len",
                f"{lengths} is more than {_ROLLOUT}.max_model_len={rollout.max_model_len}: responses to long prompts would "
                f"be cut short without a word; set it to {longest} or shorten one of them",
            )
        )
    if facts is None:
        return findings
    context = facts.max_position_embeddings
    if longest > context:
        findings.append(
            error(
                "data.max_response_length",
                f"{lengths} is more than the model's max_position_embeddings={context}; shorten one of them",
            )
        )
    if rollout.max_model_len is not None and rollout.max_model_len > context:
        findings.append(
            error(
                f"{_ROLLOUT}.max_model_len",
                f"{_ROLLOUT}.max_model_len={rollout.max_model_len} is more than the model's max_position_embeddings="
                f"{context}, which veRL refuses; set it to {min(longest, context)}",
            )
        )
    return findings


def _dynamic_batch_findings(config: DictConfig) -> list[Finding]:
    """A micro-batch by tokens has to hold the longest sequence."""
    actor, rollout, ref = (config.actor_rollout_ref[name] for name in ("actor", "rollout", "ref"))
    limits = []
    if actor.use_dynamic_bsz:
        limits.append(("actor_rollout_ref.actor.ppo_max_token_len_per_gpu", actor.ppo_max_token_len_per_gpu))
    if rollout.log_prob_use_dynamic_bsz:
        limits.append((f"{_ROLLOUT}.log_prob_max_token_len_per_gpu", rollout.log_prob_max_token_len_per_gpu))
    if ref.log_prob_use_dynamic_bsz and actor.use_kl_loss:
        limits.append(("actor_rollout_ref.ref.log_prob_max_token_len_per_gpu", ref.log_prob_max_token_len_per_gpu))
    parallel = actor.get("ulysses_sequence_parallel_size", 1)
    return [
        error(
            key,
            f"{key}={limit} x sequence parallel {parallel} does not hold one sequence of {_longest(config)} tokens "
            "(prompt plus response); veRL stops there. Raise it",
        )
        for key, limit in limits
        if limit * parallel < _longest(config)
    ]


def _overlong_findings(config: DictConfig) -> list[Finding]:
    if config.data.filter_overlong_prompts or config.data.truncation != "error":
        return []
    return [
        warning(
            "data.filter_overlong_prompts",
            f"data.filter_overlong_prompts=false with data.truncation=error: the first prompt of more than "
            f"{config.data.max_prompt_length} tokens stops the run; set it to true, or check the data with "
            "verl-trgrpo data check --tokenizer ... --max-prompt-length ...",
        )
    ]


def _search_findings(config: DictConfig) -> list[Finding]:
    """The response has to hold what the searches may put into it."""
    multi_turn, key = config.actor_rollout_ref.rollout.multi_turn, f"{_ROLLOUT}.custom.search"
    settings = OmegaConf.select(config, key)
    findings = []
    if multi_turn.enable and multi_turn.tool_config_path and multi_turn.max_tool_response_length == 256:
        findings.append(
            warning(
                f"{_ROLLOUT}.multi_turn.max_tool_response_length",
                f"{_ROLLOUT}.multi_turn.max_tool_response_length=256 characters, veRL's default, cuts the first passage; "
                "use 2000",
            )
        )
    if settings is None:
        return findings
    try:
        loop = read_options(OmegaConf.to_container(settings, resolve=True))  # type: ignore[arg-type]
    except ValueError as problem:
        return [*findings, error(key, str(problem))]
    response, searches = config.data.max_response_length, loop.max_searches
    one = loop.max_turn_tokens * 2 + loop.max_observation_tokens
    budget = (searches + 1) * loop.max_turn_tokens + searches * loop.max_observation_tokens
    arithmetic = (
        f"{key}: {searches + 1} turns of {loop.max_turn_tokens} tokens and {searches} observations of "
        f"{loop.max_observation_tokens} are {budget} tokens"
    )
    if one > response:
        found = (
            f"{key}: one search and an answer take up to {one} tokens, more than data.max_response_length={response}: "
        )
        findings.append(
            error(key, found + f"no response could use what it found. Raise it, to {budget} for all searches")
        )
    elif budget > response:
        findings.append(
            warning(
                key,
                f"{arithmetic}, more than data.max_response_length={response}: a response that uses its whole budget ends "
                "without an answer. Raise the length or lower the budget",
            )
        )
    return findings
