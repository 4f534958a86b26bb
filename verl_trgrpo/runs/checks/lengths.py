"""Check lengths: prompts, responses and the budget of searches against the model, the micro-batches and each other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from verl_trgrpo.common.findings import Finding, findings_of
from verl_trgrpo.common.text import count_of
from verl_trgrpo.data.rows import is_chat, load_tokenizer, prompt_length
from verl_trgrpo.runs.checks.batches import sequence_parallel
from verl_trgrpo.runs.checks.files import DATA, context_length, local_data_files
from verl_trgrpo.runs.compose import selected
from verl_trgrpo.tasks.search_qa.search_options import read_options

_ROLLOUT = "actor_rollout_ref.rollout"
_LIMIT = "data.max_prompt_length"
# Prompts of a file that are tokenized, at most; a thousand take about a second.
_MOST = 4000


def length_findings(config: DictConfig) -> list[Finding]:
    """Check lengths; the model's context and the prompts count where model and data are on this machine."""
    return [
        *_context_findings(config),
        *_dynamic_batch_findings(config),
        *_search_findings(config),
        *_draft_findings(config),
        *_prompt_findings(config),
    ]


def _longest(config: DictConfig) -> int:
    return config.data.max_prompt_length + config.data.max_response_length


def _context_findings(config: DictConfig) -> list[Finding]:
    data, key, response = config.data, f"{_ROLLOUT}.max_model_len", "data.max_response_length"
    longest, limit, context = _longest(config), config.actor_rollout_ref.rollout.max_model_len, context_length(config)
    findings = []
    if limit is not None and longest > limit:
        message = (
            f"{key}={limit}: less than data.max_prompt_length={data.max_prompt_length} + {response}="
            f"{data.max_response_length}, so responses to long prompts would silently be cut; set it to {longest}"
        )
        findings.append(Finding.error(key, message))
    if context is not None and longest > context:
        message = (
            f"{response}={data.max_response_length}: with data.max_prompt_length={data.max_prompt_length} more than the "
            f"model's max_position_embeddings={context}; shorten one of them"
        )
        findings.append(Finding.error(response, message))
    if context is not None and limit is not None and limit > context:
        message = (
            f"{key}={limit}: more than the model's max_position_embeddings={context}; set it to {min(longest, context)}"
        )
        findings.append(Finding.error(key, message))
    return findings


def _dynamic_batch_findings(config: DictConfig) -> list[Finding]:
    """Check that a micro-batch by tokens holds the longest sequence."""
    actor, rollout, ref = (config.actor_rollout_ref[name] for name in ("actor", "rollout", "ref"))
    limits = []
    if actor.use_dynamic_bsz:
        limits.append(("actor_rollout_ref.actor.ppo_max_token_len_per_gpu", actor.ppo_max_token_len_per_gpu))
    if rollout.log_prob_use_dynamic_bsz:
        limits.append((f"{_ROLLOUT}.log_prob_max_token_len_per_gpu", rollout.log_prob_max_token_len_per_gpu))
    if ref.log_prob_use_dynamic_bsz and (actor.use_kl_loss or config.algorithm.use_kl_in_reward):
        limits.append(("actor_rollout_ref.ref.log_prob_max_token_len_per_gpu", ref.log_prob_max_token_len_per_gpu))
    parallel, longest = sequence_parallel(config), _longest(config)
    return [
        Finding.error(
            key,
            f"{key}={limit}: times sequence parallel {parallel} does not hold one sequence of {longest} tokens (prompt plus "
            f"response); set it to {-(-longest // parallel)} or more",
        )
        for key, limit in limits
        if limit * parallel < longest
    ]


def _options(config: DictConfig, key: str) -> Any:
    settings = selected(config, key)
    return OmegaConf.to_container(settings, resolve=True) if OmegaConf.is_config(settings) else settings


def _search_findings(config: DictConfig) -> list[Finding]:
    """Check the options of searches, and that a response holds what searches may put into it."""
    key = f"{_ROLLOUT}.custom.search"
    settings = _options(config, key)
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


def _draft_findings(config: DictConfig) -> list[Finding]:
    """Check the options of drafts, and that a prompt has room for one."""
    key, data = f"{_ROLLOUT}.custom.igrpo", config.data
    settings = _options(config, key)
    if settings is None:
        return []
    from verl_trgrpo.verl_plugin.igrpo import DraftOptions  # imports veRL's agent loops

    if invalid := findings_of(lambda: DraftOptions.of(settings), key):
        return invalid
    if data.max_prompt_length >= data.max_response_length:
        return []
    message = (
        f"{_LIMIT}={data.max_prompt_length}: does not hold a prompt and a draft of data.max_response_length="
        f"{data.max_response_length} tokens, so such drafts are left out; raise it"
    )
    return [Finding.warning(_LIMIT, message)]


def _prompt_findings(config: DictConfig) -> list[Finding]:
    """Compare prompts with their limit, counted as veRL does.

    Of a file with more than 4,000 prompts, as many that are evenly spread are tokenized. Prompts with images, sounds, tools or
    a template of the run's own are not.
    """
    model, data = config.actor_rollout_ref.model, config.data
    files = {
        key: [path for path in local_data_files(config, key) if path.suffix == ".parquet" and path.is_file()]
        for key in DATA
    }
    if not any(files.values()):
        return _not_compared(config)
    if model.get("custom_chat_template") or data.get("tool_config_path") or data.get("function_tool_path"):
        message = f"{_LIMIT}={data.max_prompt_length}: prompts not compared, the run has a template or tools of its own"
        return [Finding.not_checked(_LIMIT, message)]
    try:
        tokenizer = load_tokenizer(Path(str(model.get("tokenizer_path") or model.path)).expanduser())
    except ValueError:
        return _not_compared(config)
    return [finding for key, paths in files.items() for finding in _split_findings(key, paths, tokenizer, config)]


def _not_compared(config: DictConfig) -> list[Finding]:
    limit, key = config.data.max_prompt_length, "data.filter_overlong_prompts"
    message = f"{_LIMIT}={limit}: prompts not compared; that needs data and a tokenizer on this machine"
    findings = [Finding.not_checked(_LIMIT, message)]
    if not config.data.filter_overlong_prompts and config.data.truncation == "error":
        message = f"{key}=false: with data.truncation=error the first prompt over {limit} tokens stops the run; set it to true"
        findings.append(Finding.warning(key, message))
    return findings


def _split_findings(key: str, paths: Sequence[Path], tokenizer: Any, config: DictConfig) -> list[Finding]:
    """Check the prompts of all files under one key together, as veRL reads them."""
    total, lengths, findings = 0, [], []
    for path in paths:
        try:
            rows, chats, others = _sample_of_chats(path, config.data.prompt_key)
            lengths += [prompt_length(tokenizer, chat) for chat in chats]
        except ValueError as error:
            return [Finding.error(key, f"{key}={path}: {error}")]
        total += rows
        if others:
            message = (
                f"{key}={path}: {count_of(others, 'prompt')} not a list of chat messages; build it again (docs/data.md)"
            )
            findings.append(Finding.error(key, message))
    return findings + (_length_findings(key, total, lengths, config) if lengths else [])


def _sample_of_chats(path: Path, column: str) -> tuple[int, list[Any], int]:
    """Return the rows of a file without those seen not to be chats, at most `_MOST` prompts, and the number of those rows."""
    import pyarrow.parquet as pq

    prompts = pq.read_table(path, columns=[column]).column(0)
    total = len(prompts)
    count = min(total, _MOST)
    taken = prompts.take(sorted({round(i * (total - 1) / max(1, count - 1)) for i in range(count)})).to_pylist()
    chats = [prompt for prompt in taken if is_chat(prompt)]
    return total - len(taken) + len(chats), chats, len(taken) - len(chats)


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
    if not filtered and data.truncation == "error":
        fix = "set data.filter_overlong_prompts=true, or raise it"
        return [Finding.error(_LIMIT, f"{message}, and the first one stops the run; {fix}")]
    return [Finding.warning(_LIMIT, f"{message}; veRL {'leaves them out' if filtered else 'cuts them'}")]
