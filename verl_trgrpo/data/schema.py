"""The row that veRL's RLHF data set and reward managers read, and its checks.

| column | type | read by veRL as |
|---|---|---|
| data_source | string | chooses the reward and groups the validation metrics |
| prompt | list of {role, content} | chat messages for the model's own chat template |
| ability | string | a label |
| reward_model | {style, ground_truth} | `ground_truth` goes to the reward function |
| extra_info | struct with at least index and split | goes to the reward function; `index` names the row in logs |

A ground truth is a text, a list of texts, or {target: list of texts}, as the family's reward wants it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

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
    """Raise ValueError naming the first few rows that veRL would stumble over, or whose index is not their position."""
    problems = [
        f"row {position}: {problem}" for position, row in enumerate(rows) for problem in _row_problems(row, position)
    ]
    if problems:
        rest = f"; and {len(problems) - MAX_REPORTED} more" if len(problems) > MAX_REPORTED else ""
        raise ValueError("; ".join(problems[:MAX_REPORTED]) + rest)


def _row_problems(row: Mapping[str, Any], position: int) -> list[str]:
    problems = [
        f"{name} is {row.get(name)!r}; it must be a text"
        for name in ("data_source", "ability")
        if not isinstance(row.get(name), str) or not row[name]
    ]
    problems += _prompt_problems(row.get("prompt"))
    reward_model = row.get("reward_model") or {}
    ground_truth = reward_model.get("ground_truth")
    if reward_model.get("style") != "rule" or not _is_ground_truth(ground_truth):
        problems.append(
            f"reward_model is {reward_model!r}; it needs style 'rule' and a ground_truth: a text, a list of texts, or a "
            "list of texts under 'target'"
        )
    extra_info = row.get("extra_info") or {}
    if extra_info.get("index") != position:
        problems.append(f"extra_info.index is {extra_info.get('index')!r}; it must be the row's position {position}")
    if extra_info.get("split") not in ("train", "test"):
        problems.append(f"extra_info.split is {extra_info.get('split')!r}; it must be 'train' or 'test'")
    return problems


def _is_ground_truth(value: Any) -> bool:
    if isinstance(value, Mapping):
        return [*value] == ["target"] and isinstance(value["target"], list) and _is_ground_truth(value["target"])
    if isinstance(value, list):
        return bool(value) and all(isinstance(item, str) and item.strip() for item in value)
    return isinstance(value, str) and bool(value.strip())


def _prompt_problems(prompt: Any) -> list[str]:
    if not isinstance(prompt, list) or not prompt:
        return [f"prompt is {prompt!r}; it must be a list of chat messages"]
    problems = []
    for message in prompt:
        role, content = message.get("role"), message.get("content")
        if role not in ROLES or not isinstance(content, str) or not content.strip():
            problems.append(f"message {message!r} needs a role ({', '.join(ROLES)}) and a content")
            continue
        tags = [tag for tag in CHAT_TAGS if tag in content]
        if tags:
            problems.append(f"a message contains {', '.join(tags)}; remove it, the chat template adds its own tags")
    if not problems and prompt[-1]["role"] != "user":
        problems.append(f"the last message is the {prompt[-1]['role']}'s; the prompt must end with the user's")
    if not problems and prompt[-1]["content"].rstrip().endswith("<think>"):
        problems.append("the prompt ends with an opened <think>; remove it, it is part of the response")
    return problems
