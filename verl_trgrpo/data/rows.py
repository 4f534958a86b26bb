"""Rows of veRL data files: their columns, what they say, and when two ask the same.

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

import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from glob import has_magic
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verl_trgrpo.common.files import not_there
from verl_trgrpo.common.foreign import NotJSONError, open_foreign, parse_json, real_path
from verl_trgrpo.common.text import first_line

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
        raise UnreadableFileError(not_there(path)) from error
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


def path_problem(path: Path, remedy: str = "check the path") -> str:
    """Return why a path is not a data file, "" for a file; `remedy` is for one that does not exist."""
    if path.is_file():
        return ""
    if path.is_dir():
        return f"{path} is a directory; name the Parquet files in it, for example {path / '*.parquet'}"
    if path.exists():
        return f"{path} is not a file; check the path"
    return (
        f"{path}: no file matches this pattern; correct the pattern"
        if has_magic(str(path))
        else not_there(path, remedy)
    )


def file_problems(paths: Sequence[Path]) -> list[str]:
    """Return a message for each path that is not a file, and one for files that are given twice."""
    messages = [problem for path in dict.fromkeys(paths) if (problem := path_problem(path))]
    twice = [path for path, count in Counter(path.resolve() for path in paths).items() if count > 1]
    return [*messages, *(f"{path} is given twice; name each file once" for path in twice)]


# Prompts

# A chat template adds these tags, so a message must not contain them. "<s>" is not listed: in mathematics it is a
# generated group, and next to "</s>" the latter is found.
_CHAT_TAGS = (
    "<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<|eot_id|>", "<|start_header_id|>", "<|system|>", "<|user|>",
    "<|assistant|>", "<start_of_turn>", "<end_of_turn>", "[INST]", "</s>",
)  # fmt: skip


def chat_tags(text: str) -> list[str]:
    """Return the tags of chat templates that stand in a text."""
    return [tag for tag in _CHAT_TAGS if tag in text]


def is_chat(prompt: Any) -> bool:
    """Return whether a prompt is a list of messages whose contents are strings, or lists of parts, such as texts and images."""
    messages = prompt if isinstance(prompt, list) else []
    return bool(messages) and all(isinstance(m, Mapping) and _is_content(m.get("content")) for m in messages)


def _is_content(content: Any) -> bool:
    return isinstance(content, str) or (
        isinstance(content, list) and bool(content) and all(isinstance(part, Mapping) for part in content)
    )


def content_text(content: Any) -> str:
    """Return what a message says, with `<type>` for each part that is not a text; "" if that is not known."""
    if isinstance(content, list):
        return "".join(map(_part_text, content))
    return content if isinstance(content, str) else ""


def _part_text(part: Any) -> str:
    text = part.get("text") if isinstance(part, Mapping) else None
    return text if isinstance(text, str) else f"<{part.get('type')}>" if isinstance(part, Mapping) else ""


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
    return [(m.get("role"), content_text(m["content"])) for m in spoken if _is_content(m.get("content"))]


def row_keys(row: RawRow, task_key: str | None = None) -> tuple[str, ...]:
    """Return keys of which two rows share one exactly if they ask the same; none for an empty prompt.

    One begins with ``text:``; the `task_key`, which rows of a task share that mean the same, with a noun of the task.
    """
    text = normalize_text("\n".join(content for _, content in spoken_messages(row.get("prompt"))))
    return (*(("text:" + text,) if text else ()), *((task_key,) if task_key else ()))
