"""Check lengths: prompts, responses and the budget of searches against the model, the micro-batches and each other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from omegaconf import DictConfig

from verl_trgrpo.checks.tables import Rule, rule_findings
from verl_trgrpo.checks.view import DATA, TRAINING, RunView
from verl_trgrpo.common.findings import Finding, Level, findings_of
from verl_trgrpo.common.text import count_of
from verl_trgrpo.data.prompts import SINGLE_TURN, TOOL_AGENT, RolloutPrompts
from verl_trgrpo.data.rows import UnreadableError, is_chat
from verl_trgrpo.data.verl_files import DataFile
from verl_trgrpo.runs.compose import resolved
from verl_trgrpo.runs.keys import ROLLOUT
from verl_trgrpo.tasks.search_qa.search_options import SEARCH_AGENT, read_options

_LIMIT = "data.max_prompt_length"
# Prompts of a file that are tokenized, at most; a thousand take about a second.
_MOST = 4000
# Agent loops that begin with the rendered prompt of the row.
_AGENTS = (SINGLE_TURN, TOOL_AGENT, SEARCH_AGENT)


_CONTEXT, _VOCABULARY = "decoder['max_position_embeddings']", "decoder['vocab_size']"
# Bytes of logits and their gradients, both in bfloat16, for each token; they may take most of a GPU with 80 GB.
_BYTES, _MOST_BYTES = f"{_VOCABULARY} * 2 * 2", 60 * 2**30
_RULES = (
    Rule("rollout.max_model_len", "longest <= rollout.max_model_len",
         "less than {data.max_prompt_length} + {data.max_response_length}, so responses to long prompts would silently be cut; "
         "set it to {= longest}"),
    Rule("data.max_response_length", f"not {_CONTEXT} or longest <= {_CONTEXT}",
         "with {data.max_prompt_length} more than the model's max_position_embeddings={= " + _CONTEXT + "}; shorten one of them"),
    Rule("rollout.max_model_len", f"not {_CONTEXT} or rollout.max_model_len <= {_CONTEXT}",
         "more than the model's max_position_embeddings={= " + _CONTEXT + "}; set it to at most that, {= longest} is enough"),
    *(Rule(f"{key}_max_token_len_per_gpu", f"{key}_max_token_len_per_gpu * sequence_parallel >= longest",
           "times sequence parallel {= sequence_parallel} does not hold one sequence of {= longest} tokens (prompt plus "
           "response); set it to {= -(-longest // sequence_parallel)} or more", asked=used)
      for key, used in (
          ("actor.ppo", "actor.use_dynamic_bsz"), ("rollout.log_prob", "rollout.log_prob_use_dynamic_bsz"),
          ("ref.log_prob", "ref.log_prob_use_dynamic_bsz and (actor.use_kl_loss or algorithm.use_kl_in_reward)"))),
    *(Rule(key, f"not {_VOCABULARY} or {tokens} * {_BYTES} <= {_MOST_BYTES}",
           "the logits of up to {= " + tokens + "} tokens and their gradients take "
           "{= " + f"{tokens} * {_BYTES} // 2**30" + "} GiB with a vocabulary of {= " + _VOCABULARY + "}; lower it, or set "
           "actor_rollout_ref.model.use_fused_kernels=true",
           level=Level.WARNING, asked=f"{key} and {used} and actor.strategy != 'megatron' and not model.use_fused_kernels")
      for key, tokens, used in (
          ("actor.ppo_max_token_len_per_gpu", "actor.ppo_max_token_len_per_gpu", "actor.use_dynamic_bsz"),
          ("actor.ppo_micro_batch_size_per_gpu",
           "(actor.ppo_micro_batch_size_per_gpu * longest // sequence_parallel)", "not actor.use_dynamic_bsz"))),
)  # fmt: skip


def length_findings(view: RunView) -> list[Finding]:
    """Check lengths; the model's context and the prompts count where model and data are on this machine."""
    return [*rule_findings(view, _RULES), *_search_findings(view.config), *_prompt_findings(view)]


def _search_findings(config: DictConfig) -> list[Finding]:
    """Check the options of searches, and that a response holds what searches may put into it."""
    key = f"{ROLLOUT}.custom.search"
    settings = resolved(config, key)
    if settings is None:
        return []
    if invalid := findings_of(lambda: read_options(settings), key):
        return invalid
    loop = read_options(settings)
    response, searches = config.data.max_response_length, loop.max_searches
    budget = (searches + 1) * loop.max_turn_tokens + searches * loop.max_observation_tokens
    if budget <= response:
        return []
    message = (
        f"{key}: {searches + 1} turns of {loop.max_turn_tokens} tokens and {searches} observations of "
        f"{loop.max_observation_tokens} are {budget} tokens, more than data.max_response_length={response}; raise that, or "
        "lower max_searches, or responses may end without an answer"
    )
    return [Finding.warning(key, message)]


def _prompt_findings(view: RunView) -> list[Finding]:
    """Compare prompts with their limit, counted as veRL does.

    Of a file with more than 4,000 prompts, as many that are evenly spread are tokenized. Prompts with images or sounds are not,
    and neither are those of agent loops that are not known here.
    """
    if view.data_set:
        return []  # the check of files says so
    prompts = view.prompts
    if isinstance(prompts, str):
        return _not_compared(view, prompts)
    return [finding for key in DATA for finding in _split_findings(key, view.files(key).values(), prompts, view.config)]


def _not_compared(view: RunView, reason: str) -> list[Finding]:
    config = view.config
    key = "data.filter_overlong_prompts"
    findings = [view.finding(_LIMIT, f"prompts not compared; {reason}", Level.NOT_CHECKED)]
    if not config.data.filter_overlong_prompts and config.data.truncation != "left":
        reason = (
            f"veRL cuts prompts over {config.data.max_prompt_length} tokens from the left, whatever data.truncation="
        )
        findings.append(view.finding(key, f"{reason}{config.data.truncation} says; set it to true", Level.WARNING))
    return findings


def _split_findings(key: str, files: Iterable[DataFile], prompts: RolloutPrompts, config: DictConfig) -> list[Finding]:
    """Check the prompts of all files under one key together, as veRL reads them."""
    total, lengths, findings = 0, [], []
    for file in files:
        place = f"{key}={file.path}"
        try:
            rows, unknown = _sample(file, config)
        except UnreadableError as error:
            return [Finding.error(key, f"{key}={error}")]
        if unknown:
            findings.append(Finding.not_checked(_LIMIT, f"{_LIMIT}: prompts of {place} not compared; {unknown}"))
        others = [number for number, row in rows.items() if not _is_rendered(row.get(config.data.prompt_key))]
        if others:
            count = count_of(len(others), "prompt")
            message = f"{place} row {others[0]}: {count} not a list of chat messages; build it again (docs/data.md)"
            findings.append(Finding.error(key, message))
        total += file.rows - len(others)
        for number in sorted(rows.keys() - set(others)):
            try:
                lengths.append(_length(rows[number], prompts, config))
            except ValueError as error:
                return [*findings, Finding.error(key, f"{place} row {number}: {error}; correct it")]
    return findings + (_length_findings(key, total, lengths, config) if lengths else [])


def _is_rendered(prompt: Any) -> bool:
    """Return whether a chat template gets a prompt: messages whose content is a string, or a list of parts."""
    parts = isinstance(prompt, list) and all(isinstance(message.get("content"), list) for message in prompt)
    return is_chat(prompt) or bool(prompt and parts)


def _sample(file: DataFile, config: DictConfig) -> tuple[dict[int, dict[str, Any]], str]:
    """Return rows of a file by number, at most `_MOST`, evenly spread, and why others or all of them are left out."""
    data, agent = config.data, config.actor_rollout_ref.rollout.agent.default_agent_loop
    if found := _media_columns(file, config):
        return {}, f"they have {', '.join(found)}"
    columns = [data.prompt_key, "agent_name", *(["extra_info"] if data.get("tool_config_path") else [])]
    rows = file.sample(columns, _MOST)
    if data.filter_overlong_prompts:  # which counts the same tokens for all agents
        return rows, ""
    others = {str(name) for row in rows.values() if (name := row.get("agent_name", agent)) not in _AGENTS}
    known = {number: row for number, row in rows.items() if str(row.get("agent_name", agent)) not in others}
    return known, f"agent loops of the run's own render them ({', '.join(sorted(others))})" if others else ""


def _media_columns(file: DataFile, config: DictConfig) -> list[str]:
    """Return the columns of a file with images, videos or sounds, of which a prompt has more tokens than its messages say."""
    media = [str(config.data.get(f"{kind}_key") or f"{kind}s") for kind in ("image", "video", "audio")]
    return [name for name in media if name in file.schema.names]


def _length(row: dict[str, Any], prompts: RolloutPrompts, config: DictConfig) -> int:
    """Return the tokens of a prompt: of what veRL's filter compares where it is on, else of what the agent loop begins with."""
    return prompts.filter_length(row) if config.data.filter_overlong_prompts else len(prompts.of(row).token_ids)


def first_prompt(view: RunView) -> dict[str, Any] | None:
    """Return the first training prompt as the model will see it, for the record of a run; None where that is not known."""
    file, prompts = next(iter(view.files(TRAINING).values()), None), view.prompts
    if file is None or isinstance(prompts, str) or _media_columns(file, view.config):
        return None
    try:
        part = next(file.tables([view.config.data.prompt_key, "agent_name", "extra_info"]))
        token_ids, agent = prompts.of(part.slice(0, 1).to_pylist()[0])
    except ValueError:
        return None
    text = prompts.tokenizer.decode(token_ids)
    return {"file": str(file.path), "row": 0, "agent": agent, "tokens": len(token_ids), "text": text}


def _length_findings(key: str, total: int, lengths: list[int], config: DictConfig) -> list[Finding]:
    data = config.data
    limit, filtered, batch = data.max_prompt_length, data.filter_overlong_prompts, data.train_batch_size
    longer, all_seen = sum(length > limit for length in lengths), len(lengths) == total
    if not longer:
        message = f"{_LIMIT}={limit}: {len(lengths)} of the {total} prompts of {key} were compared; none is longer"
        return [] if all_seen else [Finding.not_checked(_LIMIT, message)]
    part = f"{longer} of {total} prompts" if all_seen else f"{longer} of {len(lengths)} tokenized prompts"
    message = f"{_LIMIT}={limit}: {part} of {key} are longer, up to {max(lengths)} tokens"
    if longer == len(lengths):
        return [Finding.error(_LIMIT, f"{message}, so none fits; raise it")]
    if filtered and all_seen and key == "data.train_files" and total - longer < batch:
        few = f"veRL's filter leaves {total - longer}, less than data.train_batch_size={batch}"
        return [Finding.error(_LIMIT, f"{message}: {few}; raise it, or lower the batch size")]
    if not filtered and data.truncation != "left":
        fix = f"whatever data.truncation={data.truncation} says; set data.filter_overlong_prompts=true, or raise it"
        return [Finding.error(_LIMIT, f"{message}, and veRL cuts them from the left, {fix}")]
    return [Finding.warning(_LIMIT, f"{message}; veRL {'leaves them out' if filtered else 'cuts them from the left'}")]
