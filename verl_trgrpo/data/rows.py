"""Rows of veRL data files: their columns, what can be wrong with one, and when two ask the same.

| column | type | use in veRL |
|---|---|---|
| data_source | string | chooses the reward and groups the validation metrics |
| prompt | list of {role, content} | chat messages for the model's own chat template |
| ability | string | a label |
| reward_model | {style, ground_truth} | `ground_truth` is passed to the reward function |
| extra_info | struct with at least index and split | passed to the reward function; `index` names the row in logs |
| agent_name | string, optional | the agent loop that makes the responses |

A ground truth is a string, a list of strings, or {target: list of strings}, depending on the task's reward. If prompts contain
instructions, `extra_info.question` is the question alone, which decontamination compares.
"""

from __future__ import annotations

import math
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verl_trgrpo.common.findings import Finding, Level
from verl_trgrpo.common.foreign import NotJSONError, open_foreign, parse_json, real_path
from verl_trgrpo.common.text import first_line, shorten

if TYPE_CHECKING:  # pyarrow takes half a second, so functions import it
    import pyarrow as pa

RawRow = Mapping[str, Any]
"""A row as it stands in a file: any column may be missing or malformed."""

SCHEMA_VERSION = 2

SINGLE_TURN, TOOL_AGENT = "single_turn_agent", "tool_agent"
"""veRL's agent loops: the default of rows without an agent_name, and the one whose prompts list the run's tools."""

# The columns that veRL and the rewards read; others, such as images, are not loaded.
COLUMNS = ("data_source", "prompt", "reward_model", "extra_info")
REQUIRED_COLUMNS = ("data_source", "prompt", "reward_model")

PROMPT, THINKING_OPENED, CUT_OFF = "raw_prompt", "thinking_opened", "cut_off"
MODEL_TEXT, COUNTS = "model_text", "rollout_metrics"
RESERVED_KEYS = frozenset({PROMPT, THINKING_OPENED, CUT_OFF, MODEL_TEXT, COUNTS})
"""Keys of a reward's `extra_info` that the rollout alone writes: a row that has one would speak for it."""

# Columns with what a prompt shows besides text.
MEDIA = ("images", "videos", "audios")

ROLES = ("system", "user", "assistant")

# A chat template adds these tags, so a message must not contain them. "<s>" is not listed: in mathematics it is a
# generated group, and next to "</s>" the latter is found.
CHAT_TAGS = (
    "<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<|eot_id|>", "<|start_header_id|>", "<|system|>", "<|user|>",
    "<|assistant|>", "<start_of_turn>", "<end_of_turn>", "[INST]", "</s>",
)  # fmt: skip

_MAX_REPORTED = 5


# Columns


def arrow_schema(
    extra_info: Sequence[pa.Field] = (), ground_truth: pa.DataType | None = None, columns: Sequence[pa.Field] = ()
) -> pa.Schema:
    """Return the Arrow schema of a data file, with a task's own fields of `extra_info` and further columns.

    veRL concatenates the files of a run, which requires equal types, so all files of a task should share one schema.
    """
    import pyarrow as pa

    message = pa.struct([("role", pa.string()), ("content", pa.string())])
    return pa.schema(
        [
            ("data_source", pa.string()),
            ("prompt", pa.list_(message)),
            ("ability", pa.string()),
            ("reward_model", pa.struct([("style", pa.string()), ("ground_truth", ground_truth or pa.string())])),
            ("extra_info", pa.struct([("index", pa.int64()), ("split", pa.string()), *extra_info])),
            *columns,
        ]
    )


def build_row(
    *,
    data_source: str,
    prompt: list[dict[str, str]],
    ability: str,
    ground_truth: str | list[str] | dict[str, list[str]],
    extra_info: Mapping[str, Any] | None = None,
    columns: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return one row with a rule-based reward and further `columns`; `DataSet.write` adds its index and split."""
    return {
        "data_source": data_source,
        "prompt": prompt,
        "ability": ability,
        "reward_model": {"style": "rule", "ground_truth": ground_truth},
        "extra_info": extra_info or {},
        **(columns or {}),
    }


# Reading


class UnreadableFileError(ValueError):
    """The file is not a Parquet file, or it is damaged."""


@dataclass(frozen=True)
class Row:
    """One checked row of a data file, with its `position` in it, from 0; `messages` are the prompt."""

    position: int
    data_source: str
    messages: list[dict[str, str]]
    ground_truth: Any
    extra_info: dict[str, Any]
    agent_name: str = SINGLE_TURN


def read_schema(path: Path) -> tuple[pa.Schema, int]:
    """Return the Arrow schema of a Parquet file and its number of rows, or raise an UnreadableFileError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with open_foreign(real_path(path)) as opened, pq.ParquetFile(opened) as file:
            return file.schema_arrow, file.metadata.num_rows
    except FileNotFoundError as error:
        raise UnreadableFileError(f"{path} does not exist; check the path") from error
    except (pa.ArrowException, OSError) as error:
        check_fetched(path)
        raise UnreadableFileError(
            f"{path} is not a readable Parquet file ({first_line(error)}); check the path"
        ) from error


def check_fetched(path: Path) -> None:
    """Raise an UnreadableFileError if a file is the pointer that Git leaves in place of a large file."""
    with open_foreign(real_path(path)) as file:
        if file.read(32).startswith(b"version https://git-lfs"):
            raise UnreadableFileError(f"{path} is a pointer of Git LFS, not the file; get the file with `git lfs pull`")


@contextmanager
def naming_damage(path: Path) -> Iterator[None]:
    """Raise an UnreadableFileError with the name of the file for what reading or converting its rows raises."""
    import pyarrow as pa

    try:
        yield
    except UnreadableFileError:
        raise
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raise UnreadableFileError(f"{path} is damaged ({first_line(error)}); get the file again") from error


def ground_truth_of(row: RawRow) -> Any:
    """Return a row's ground truth, or None."""
    reward_model = row.get("reward_model")
    return reward_model.get("ground_truth") if isinstance(reward_model, Mapping) else None


def extra_info_of(row: RawRow) -> Mapping[str, Any]:
    """Return a row's extra_info, or an empty mapping; JSON where `datasets` keeps rows of different fields as such."""
    extra_info = row.get("extra_info")
    if isinstance(extra_info, str):
        with suppress(NotJSONError):
            extra_info = parse_json(extra_info)
    return extra_info if isinstance(extra_info, Mapping) else {}


def display_names(paths: Sequence[Path]) -> dict[Path, str]:
    """Return the shortest names that distinguish the files: file names, or the paths as given."""
    names = [path.name for path in paths]
    return {path: path.name if names.count(path.name) == 1 else str(path) for path in paths}


def file_problems(paths: Sequence[Path]) -> list[str]:
    """Return a message for each path that is not a file, and one for files that are given twice."""
    messages = [f"{path} is not a file; check the path" for path in dict.fromkeys(paths) if not path.is_file()]
    twice = [path for path, count in Counter(path.resolve() for path in paths).items() if count > 1]
    return [*messages, *(f"{path} is given twice; name each file once" for path in twice)]


# Checks


def check_rows(rows: Iterable[RawRow]) -> None:
    """Raise a ValueError that names the first few rows that veRL or a reward cannot use."""
    problems = [
        f"row {position}: {finding.message}"
        for position, row in enumerate(rows)
        for check in (source_findings, prompt_findings, tag_findings, truth_findings, reserved_findings)
        for finding in check(row, "")
        if finding.level is Level.ERROR
    ]
    if problems:
        more = f"; and {len(problems) - _MAX_REPORTED} more" if len(problems) > _MAX_REPORTED else ""
        raise ValueError("; ".join(problems[:_MAX_REPORTED]) + more)


def source_findings(row: RawRow, where: str) -> Iterator[Finding]:
    """Check that a row's data_source is a name; it may be empty, as in files of DeepScaleR's script."""
    source = row.get("data_source")
    if not isinstance(source, str) or (source and not source.strip()):
        yield Finding.error(where, f"data_source is {shorten(source)}; it must be a name")


def is_chat(prompt: Any) -> bool:
    """Return whether a prompt is a list of messages that each have a string as content."""
    messages = prompt if isinstance(prompt, list) else []
    return bool(messages) and all(isinstance(m, Mapping) and isinstance(m.get("content"), str) for m in messages)


def prompt_findings(row: RawRow, where: str) -> Iterator[Finding]:
    """Check that a row's prompt is a chat that ends with a message of the user."""
    prompt = row.get("prompt")
    if not is_chat(prompt):
        yield Finding.error(where, f"the prompt is {shorten(prompt)}; it must be a list of chat messages")
        return
    roles = [message.get("role") for message in row["prompt"]]
    for number, (role, message) in enumerate(zip(roles, row["prompt"], strict=True)):
        if role not in ROLES:
            yield Finding.error(where, f"message {number} has the role {shorten(role)}; use {', '.join(ROLES)}")
        if not message["content"].strip():
            yield Finding.error(where, f"message {number} ({role}) is empty")
    if roles[-1] != "user":
        yield Finding.error(where, f"the role of the last message is {shorten(roles[-1])}; it must be the user")


def tag_findings(row: RawRow, where: str) -> Iterator[Finding]:
    """Check that a prompt does not contain what the chat template adds or the response begins with."""
    if not is_chat(row.get("prompt")):
        return
    content = "\n".join(message["content"] for message in row["prompt"])
    if found := [tag for tag in CHAT_TAGS if tag in content]:
        message = (
            f"the prompt contains {', '.join(found)}; remove the tag, the chat template adds such tags a second time"
        )
        yield Finding.error(where, message)
    if content.rstrip().endswith("<think>"):
        yield Finding.error(
            where, "the prompt ends with an opened <think>, which belongs to the response; remove the tag"
        )


def truth_findings(row: RawRow, where: str) -> Iterator[Finding]:
    """Check that a row's ground truth is neither empty nor NaN, does not accept an empty answer, and consists of strings."""
    truth = ground_truth_of(row)
    alternatives = truth
    if isinstance(truth, Mapping):  # other keys may hold what no reward reads
        alternatives = next((truth[key] for key in ("target", "solution_text_format") if key in truth), truth)
    leaves = list(_leaves(alternatives))
    if all(leaf is None or _is_blank(leaf) for leaf in leaves):
        yield Finding.error(where, f"reward_model.ground_truth is {shorten(truth)}; it must not be empty")
    elif any(isinstance(leaf, float) and not math.isfinite(leaf) for leaf in leaves):
        yield Finding.error(where, f"reward_model.ground_truth is {shorten(truth)}; it must be finite, or a string")
    elif isinstance(alternatives, list) and any(map(_is_blank, alternatives)):
        yield Finding.error(where, f"reward_model.ground_truth {shorten(truth)} accepts an empty answer")
    elif isinstance(truth, Mapping) and "solution_text_format" in truth:
        return  # of Knights and Knaves; the reward reads this field alone
    elif others := [leaf for leaf in leaves if not isinstance(leaf, str)]:
        kind = type(others[0]).__name__
        yield Finding.warning(where, f"reward_model.ground_truth holds a {kind}; most rewards need a string")


def reserved_findings(row: RawRow, where: str) -> Iterator[Finding]:
    """Check that a row's extra_info has no value under the `RESERVED_KEYS`."""
    extra_info = extra_info_of(row)
    for key in sorted(RESERVED_KEYS & extra_info.keys()):
        if extra_info[key] is not None:
            yield Finding.error(where, f"{reserved_problem(key)} ({shorten(extra_info[key], 60)})")


def reserved_problem(key: str) -> str:
    """Return the message about a reserved key of a row's extra_info."""
    return f"extra_info.{key} is what a rollout tells the reward, which ignores a row's; rename or drop the field"


def _is_blank(value: Any) -> bool:
    return isinstance(value, str) and not value.strip()


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    else:
        yield value


# Equality of prompts


@lru_cache(maxsize=16)  # several checks of a row read its prompt
def normalize_text(text: str) -> str:
    """Return `text` in NFKC, case-folded, with every run of white space as one space and none at the ends.

    Two prompts count as equal if their normalized texts are. Punctuation stays, because "x+1" and "x-1" are different
    problems.
    """
    if text.isascii():
        folded = text.lower()
    else:
        # Folding can undo NFKC and the other way round; Unicode defines caseless matching with both applied twice.
        folded = unicodedata.normalize("NFD", text).casefold()
        folded = unicodedata.normalize("NFKD", folded).casefold()
        folded = unicodedata.normalize("NFKC", folded)
    return " ".join(folded.split())


def contains(text: str, part: str) -> bool:
    """Return whether `part` stands in `text`, both as `normalize_text` writes them."""
    return part in text or normalize_text(part) in normalize_text(text)


def spoken_messages(prompt: Any) -> list[tuple[Any, str]]:
    """Return role and content of a prompt's messages, those of the system only if there are no others; [] for no chat."""
    messages = [message for message in prompt if isinstance(message, Mapping)] if isinstance(prompt, list) else []
    spoken = [message for message in messages if message.get("role") != "system"] or messages
    return [(m.get("role"), m["content"]) for m in spoken if isinstance(m.get("content"), str)]


def row_keys(row: RawRow, task_key: str | None = None) -> tuple[str, ...]:
    """Return keys of which two rows share one exactly if they ask the same; none for an empty prompt.

    One begins with ``text:``; the `task_key`, which rows of a task share that mean the same, with a noun of the task.
    """
    text = normalize_text("\n".join(content for _, content in spoken_messages(row.get("prompt"))))
    return (*(("text:" + text,) if text else ()), *((task_key,) if task_key else ()))
