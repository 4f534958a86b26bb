"""Prompts against ``data.max_prompt_length``, tokenised where the tokenizer is on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from verl_trgrpo.common.problems import Finding, error, not_checked, warning
from verl_trgrpo.data.schema import is_chat
from verl_trgrpo.data.tokens import load_tokenizer, prompt_length
from verl_trgrpo.runs.checks.files import DATA, local_data_files

_LIMIT = "data.max_prompt_length"

# A thousand prompts take about a second.
_MOST = 1000


def prompt_length_findings(config: DictConfig) -> list[Finding]:
    """Complaints about files whose prompts are longer than a run takes, by veRL's own way of counting.

    Of a file with more than a thousand prompts, a thousand that are evenly spread are looked at. Prompts with pictures,
    sounds, tools or a template of the run's own are not.
    """
    model, data = config.actor_rollout_ref.model, config.data
    directory = Path(str(model.get("tokenizer_path") or model.path)).expanduser()
    files = [(key, path) for key in DATA for path in local_data_files(config, key) if path.suffix == ".parquet"]
    files = [(key, path) for key, path in files if path.is_file()]
    special = model.get("custom_chat_template") or data.get("tool_config_path") or data.get("function_tool_path")
    if not files:
        return _unchecked(config)
    if special:
        return [not_checked(_LIMIT, f"prompts were not compared with {_LIMIT}: a template or tools of the run's own")]
    try:
        tokenizer = load_tokenizer(directory)
    except ValueError:
        return _unchecked(config)
    return [finding for key, path in files for finding in _file_findings(key, path, tokenizer, config)]


def _unchecked(config: DictConfig) -> list[Finding]:
    """Without a tokenizer or data."""
    note = (
        f"prompts were not compared with {_LIMIT}={config.data.max_prompt_length}: that needs data and a tokenizer here"
    )
    findings = [not_checked(_LIMIT, note)]
    if not config.data.filter_overlong_prompts and config.data.truncation == "error":
        message = (
            "data.filter_overlong_prompts=false with data.truncation=error: the first prompt of more than "
            f"{config.data.max_prompt_length} tokens stops the run; set it to true, or check the data with "
            "verl-trgrpo data check --tokenizer ... --max-prompt-length ..."
        )
        findings.append(warning("data.filter_overlong_prompts", message))
    return findings


def _file_findings(key: str, path: Path, tokenizer: Any, config: DictConfig) -> list[Finding]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    limit, filtered = config.data.max_prompt_length, config.data.filter_overlong_prompts
    try:
        prompts = pq.read_table(path, columns=[config.data.prompt_key]).column(0)
    except (pa.ArrowException, OSError):
        return []  # reported where files are looked at
    total = len(prompts)
    if not total:
        return []  # reported where files are looked at
    rows = sorted({round(i * (total - 1) / max(1, min(total, _MOST) - 1)) for i in range(min(total, _MOST))})
    chats = [prompt for prompt in prompts.take(rows).to_pylist() if is_chat(prompt)]
    if not chats:
        return [
            error(key, f"{key}={path} has no prompt that is a list of chat messages; build it again (docs/data.md)")
        ]
    try:
        lengths = [prompt_length(tokenizer, chat) for chat in chats]
    except ValueError as problem:
        return [error(key, f"{key}={path}: {problem}")]
    longer = sum(length > limit for length in lengths)
    if not longer:
        return []
    looked_at = (
        f"{longer} of the {len(rows)} prompts looked at" if len(rows) < total else f"{longer} of {total} prompts"
    )
    message = f"{key}={path}: {looked_at} have more than {_LIMIT}={limit} tokens, the longest {max(lengths)}"
    if longer == len(lengths):
        lost = "veRL's filter leaves nothing to train on" if filtered else "none fits"
        return [error(_LIMIT, f"{message}; {lost}. Raise the limit")]
    if not filtered and config.data.truncation == "error":
        message += "; the first one stops the run. Set data.filter_overlong_prompts=true, or raise the limit"
        return [error(_LIMIT, message)]
    effect = "veRL leaves them out" if filtered else "veRL cuts them"
    return [warning(_LIMIT, f"{message}; {effect}")]
