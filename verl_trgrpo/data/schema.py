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

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from verl_trgrpo.common.problems import Finding, Level, error, shorten, warning
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
    index: int,
    split: str,
    extra_info: Mapping[str, Any],
    columns: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return one row with a rule-based reward; `index` is its position in its file, `columns` are further columns."""
    return {
        "data_source": data_source,
        "prompt": prompt,
        "ability": ability,
        "reward_model": {"style": "rule", "ground_truth": ground_truth},
        "extra_info": {"index": index, "split": split, **extra_info},
        **(columns or {}),
    }


def check_rows(rows: Iterable[Mapping[str, Any]]) -> None:
    """Raise ValueError naming the first few of a builder's rows that veRL or a reward would stumble over."""
    problems = []
    for position, row in enumerate(rows):
        findings = [*prompt_findings(row, f"row {position}"), *truth_findings(row, f"row {position}")]
        problems += [f"{found.where}: {found.message}" for _, found in findings if found.level is Level.ERROR]
    if problems:
        rest = f"; and {len(problems) - MAX_REPORTED} more" if len(problems) > MAX_REPORTED else ""
        raise ValueError("; ".join(problems[:MAX_REPORTED]) + rest)


def prompt_findings(
    row: Mapping[str, Any], where: str, tags: Sequence[str] = CHAT_TAGS
) -> Iterator[tuple[str, Finding]]:
    """Yield what is wrong with a row's prompt, each with the name of the check of `verl-trgrpo data check`."""
    prompt = row.get("prompt")
    if not isinstance(prompt, list) or not prompt:
        yield "prompt", error(where, f"the prompt is {shorten(prompt)}; it must be a list of chat messages")
        return
    problems = [problem for number, message in enumerate(prompt) for problem in _message_problems(number, message)]
    if problems:
        yield from (("prompt", error(where, problem)) for problem in problems)
        return
    roles = [message["role"] for message in prompt]
    if roles[-1] != "user":
        yield "prompt", error(where, f"the last message is the {roles[-1]}'s; it must be the user's")
    turns = roles[1:] if roles[0] == "system" else roles
    if turns != [("user", "assistant")[turn % 2] for turn in range(len(turns))]:
        text = (
            f"the roles are {', '.join(roles)}; many chat templates want an optional system, then user, assistant, user"
        )
        yield "message order", warning(where, text)
    content = "\n".join(message["content"] for message in prompt)
    if found := [tag for tag in tags if tag in content]:
        text = f"the prompt contains {', '.join(found)}; remove it, the chat template adds such tags a second time"
        yield "chat tags", error(where, text)
    if content.rstrip().endswith("<think>"):
        text = "the prompt ends with an opened <think>, which belongs to the response; remove it"
        yield "chat tags", error(where, text)


def truth_findings(row: Mapping[str, Any], where: str) -> Iterator[tuple[str, Finding]]:
    """Yield what is wrong with a row's ground truth, each with the name of the check."""
    truth = ground_truth_of(row)
    leaves = list(_leaves(truth))
    if not leaves or all(leaf is None or (isinstance(leaf, str) and not leaf.strip()) for leaf in leaves):
        yield "ground truth", error(where, f"reward_model.ground_truth is {shorten(truth)}; it says nothing")
    elif any(isinstance(answer, str) and not answer.strip() for answer in _alternatives(truth)):
        yield "ground truth", error(where, f"reward_model.ground_truth {shorten(truth)} accepts an empty answer")
    elif others := [leaf for leaf in leaves if not isinstance(leaf, str)]:
        kind = "NaN" if isinstance(others[0], float) and math.isnan(others[0]) else type(others[0]).__name__
        text = f"reward_model.ground_truth holds a {kind}; most rewards take texts, write it as a string"
        yield "ground truth", warning(where, text)


def _message_problems(number: int, message: Any) -> Iterator[str]:
    if not isinstance(message, Mapping):
        yield f"message {number} is {shorten(message)}; it must have role and content"
        return
    role, content = message.get("role"), message.get("content")
    if role not in ROLES:
        yield f"message {number} has the role {shorten(role)}; known are {', '.join(ROLES)}"
    if not isinstance(content, str):
        yield f"message {number} has the content {shorten(content)}; it must be a text"
    elif not content.strip():
        yield f"message {number} ({role}) is empty"


def _alternatives(truth: Any) -> list[Any]:
    answers = truth.get("target") if isinstance(truth, Mapping) else truth
    return answers if isinstance(answers, list) else []


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    else:
        yield value
