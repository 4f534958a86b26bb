"""The row that veRL's RLHF data set and reward managers read, and what can be wrong with one.

| column | type | read by veRL as |
|---|---|---|
| data_source | string | chooses the reward and groups the validation metrics |
| prompt | list of {role, content} | chat messages for the model's own chat template |
| ability | string | a label |
| reward_model | {style, ground_truth} | `ground_truth` goes to the reward function |
| extra_info | struct with at least index and split | goes to the reward function; `index` names the row in logs |

A ground truth is a text, a list of texts, or {target: list of texts}, as the family's reward wants it. Where prompts hold
instructions, `extra_info.question` is the question alone, which decontamination compares.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from verl_trgrpo.common.findings import Finding, Level
from verl_trgrpo.common.text import shorten
from verl_trgrpo.data.parquet import ground_truth_of

SCHEMA_VERSION = 2

ROLES = ("system", "user", "assistant")

# A chat template adds these; inside a message they would come out twice. "<s>" is left out: in mathematics it is a
# generated group, and with "</s>" next to it the latter is noticed.
CHAT_TAGS = (
    "<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<|eot_id|>", "<|start_header_id|>", "<|system|>", "<|user|>",
    "<|assistant|>", "<start_of_turn>", "<end_of_turn>", "[INST]", "</s>",
)  # fmt: skip

MAX_REPORTED = 5


def arrow_schema(
    extra_info: Sequence[pa.Field], ground_truth: pa.DataType | None = None, columns: Sequence[pa.Field] = ()
) -> pa.Schema:
    """Return the schema of a data file.

    veRL concatenates the files of a run, which needs equal types: all files of a family should share one schema.

    Args:
        extra_info: the family's own fields beside index and split.
        ground_truth: type of the ground truth; None for text.
        columns: further columns, such as agent_name.
    """
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
    extra_info: Mapping[str, Any],
    columns: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return one row with a rule-based reward, and further `columns`; `build_data_set` adds its index and split."""
    return {
        "data_source": data_source,
        "prompt": prompt,
        "ability": ability,
        "reward_model": {"style": "rule", "ground_truth": ground_truth},
        "extra_info": extra_info,
        **(columns or {}),
    }


def check_rows(rows: Iterable[Mapping[str, Any]]) -> None:
    """Raise ValueError naming the first few of a builder's rows that veRL or a reward would stumble over."""
    problems = [
        f"row {position}: {finding.message}"
        for position, row in enumerate(rows)
        for finding in (*prompt_findings(row, ""), *tag_findings(row, ""), *truth_findings(row, ""))
        if finding.level is Level.ERROR
    ]
    if problems:
        rest = f"; and {len(problems) - MAX_REPORTED} more" if len(problems) > MAX_REPORTED else ""
        raise ValueError("; ".join(problems[:MAX_REPORTED]) + rest)


def is_chat(prompt: Any) -> bool:
    """Return whether a prompt is a list of messages with a text each."""
    messages = prompt if isinstance(prompt, list) else []
    return bool(messages) and all(isinstance(m, Mapping) and isinstance(m.get("content"), str) for m in messages)


def prompt_findings(row: Mapping[str, Any], where: str) -> Iterator[Finding]:
    """Yield what makes a row's prompt no chat that ends with the user."""
    prompt = row.get("prompt")
    if not is_chat(prompt):
        yield Finding.error(where, f"the prompt is {shorten(prompt)}; it must be a list of chat messages")
        return
    roles = [message.get("role") for message in row["prompt"]]
    for number, (role, message) in enumerate(zip(roles, row["prompt"], strict=True)):
        if role not in ROLES:
            yield Finding.error(where, f"message {number} has the role {shorten(role)}; known are {', '.join(ROLES)}")
        if not message["content"].strip():
            yield Finding.error(where, f"message {number} ({role}) is empty")
    if roles[-1] != "user":
        yield Finding.error(where, f"the last message is the {roles[-1]}'s; it must be the user's")


def tag_findings(row: Mapping[str, Any], where: str) -> Iterator[Finding]:
    """Yield what a chat template or the response brings, and the prompt has already."""
    if not is_chat(row.get("prompt")):
        return
    content = "\n".join(message["content"] for message in row["prompt"])
    if found := [tag for tag in CHAT_TAGS if tag in content]:
        text = f"the prompt contains {', '.join(found)}; remove it, the chat template adds such tags a second time"
        yield Finding.error(where, text)
    if content.rstrip().endswith("<think>"):
        yield Finding.error(where, "the prompt ends with an opened <think>, which belongs to the response; remove it")


def truth_findings(row: Mapping[str, Any], where: str) -> Iterator[Finding]:
    """Yield what is wrong with a row's ground truth."""
    truth = ground_truth_of(row)
    leaves = list(_leaves(truth))
    alternatives = truth.get("target") if isinstance(truth, Mapping) else truth
    if all(leaf is None or _is_blank(leaf) for leaf in leaves):
        yield Finding.error(where, f"reward_model.ground_truth is {shorten(truth)}; it says nothing")
    elif isinstance(alternatives, list) and any(map(_is_blank, alternatives)):
        yield Finding.error(where, f"reward_model.ground_truth {shorten(truth)} accepts an empty answer")
    elif others := [leaf for leaf in leaves if not isinstance(leaf, str)]:
        text = f"reward_model.ground_truth holds a {type(others[0]).__name__}; most rewards take texts, write a string"
        yield Finding.warning(where, text)


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
