"""Prompts against ``data.max_prompt_length``, tokenised where the tokenizer is on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from verl_trgrpo.common.findings import Finding
from verl_trgrpo.common.text import count_of
from verl_trgrpo.data.rows import is_chat, load_tokenizer, prompt_length
from verl_trgrpo.runs.checks.files import DATA, local_data_files

_LIMIT = "data.max_prompt_length"

# A thousand prompts take about a second.
_MOST = 4000


def prompt_length_findings(config: DictConfig) -> list[Finding]:
    """Complaints about files whose prompts are longer than a run takes, by veRL's own way of counting.

    Of a file with more than 4,000 prompts, as many that are evenly spread are looked at. Prompts with pictures,
    sounds, tools or a template of the run's own are not.
    """
    model, data = config.actor_rollout_ref.model, config.data
    directory = Path(str(model.get("tokenizer_path") or model.path)).expanduser()
    files = {
        key: [path for path in local_data_files(config, key) if path.suffix == ".parquet" and path.is_file()]
        for key in DATA
    }
    special = model.get("custom_chat_template") or data.get("tool_config_path") or data.get("function_tool_path")
    if not any(files.values()):
        return _unchecked(config)
    if special:
        return [
            Finding.not_checked(
                _LIMIT, f"prompts were not compared with {_LIMIT}: a template or tools of the run's own"
            )
        ]
    try:
        tokenizer = load_tokenizer(directory)
    except ValueError:
        return _unchecked(config)
    return [finding for key, paths in files.items() for finding in _key_findings(key, paths, tokenizer, config)]


def _unchecked(config: DictConfig) -> list[Finding]:
    """Without a tokenizer or data."""
    note = (
        f"prompts were not compared with {_LIMIT}={config.data.max_prompt_length}: that needs data and a tokenizer here"
    )
    findings = [Finding.not_checked(_LIMIT, note)]
    if not config.data.filter_overlong_prompts and config.data.truncation == "error":
        message = (
            "data.filter_overlong_prompts=false with data.truncation=error: the first prompt of more than "
            f"{config.data.max_prompt_length} tokens stops the run; set it to true, or check the data with "
            "verl-trgrpo data check --tokenizer ... --max-prompt-length ..."
        )
        findings.append(Finding.warning("data.filter_overlong_prompts", message))
    return findings


def _key_findings(key: str, paths: Sequence[Path], tokenizer: Any, config: DictConfig) -> list[Finding]:
    """Complaints about the prompts of all files under one key together, as veRL reads them."""
    total, lengths, findings = 0, [], []
    for path in paths:
        try:
            rows, chats, strange = _some_chats(path, config.data.prompt_key)
            lengths += [prompt_length(tokenizer, chat) for chat in chats]
        except ValueError as problem:
            return [Finding.error(key, f"{key}={path}: {problem}")]
        total += rows
        if strange:
            message = (
                f"{key}={path} has {count_of(strange, 'prompt')} that are no list of chat messages; build it again"
            )
            findings.append(Finding.error(key, f"{message} (docs/data.md)"))
    return findings + (_length_findings(key, total, lengths, config) if lengths else [])


def _some_chats(path: Path, column: str) -> tuple[int, list[Any], int]:
    """Rows of a file but for prompts seen to be no chats; the prompts, `_MOST` evenly spread ones at most; those others."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        prompts = pq.read_table(path, columns=[column]).column(0)
    except (pa.ArrowException, OSError):
        return 0, [], 0  # reported where files are looked at
    total = len(prompts)
    if not total:
        return 0, [], 0  # reported where files are looked at
    rows = sorted({round(i * (total - 1) / max(1, min(total, _MOST) - 1)) for i in range(min(total, _MOST))})
    taken = prompts.take(rows).to_pylist()
    chats = [prompt for prompt in taken if is_chat(prompt)]
    strange = len(taken) - len(chats)
    return total - strange, chats, strange


def _length_findings(key: str, total: int, lengths: list[int], config: DictConfig) -> list[Finding]:
    data, use = config.data, "train on" if key == "data.train_files" else "validate on"
    limit, filtered, batch = data.max_prompt_length, data.filter_overlong_prompts, data.train_batch_size
    longer = sum(length > limit for length in lengths)
    all_seen = len(lengths) == total
    if not longer:
        message = f"{key}: {len(lengths)} of {total} prompts were compared with {_LIMIT}={limit}; none is longer"
        return [] if all_seen else [Finding.not_checked(_LIMIT, message)]
    looked_at = f"{longer} of {total} prompts" if all_seen else f"{longer} of the {len(lengths)} prompts looked at"
    message = f"{key}: {looked_at} have more than {_LIMIT}={limit} tokens, the longest {max(lengths)}"
    if longer == len(lengths):
        lost = f"veRL's filter leaves nothing to {use}" if filtered else "none fits"
        return [Finding.error(_LIMIT, f"{message}; {lost}. Raise the limit")]
    if filtered and all_seen and key == "data.train_files" and isinstance(batch, int) and total - longer < batch:
        few = f"veRL's filter leaves {total - longer}, fewer than the data.train_batch_size={batch} of one step"
        return [Finding.error(_LIMIT, f"{message}; {few}. Raise the limit, or lower the batch size")]
    if not filtered and data.truncation == "error":
        message += "; the first one stops the run. Set data.filter_overlong_prompts=true, or raise the limit"
        return [Finding.error(_LIMIT, message)]
    effect = "veRL leaves them out" if filtered else "veRL cuts them"
    return [Finding.warning(_LIMIT, f"{message}; {effect}")]
