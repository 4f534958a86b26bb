"""What is asked of a row by itself."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from verl_trgrpo.common.findings import Level
from verl_trgrpo.common.text import shorten
from verl_trgrpo.data.questions.context import Context, DataQuestion, Remark
from verl_trgrpo.data.rows import (
    RESERVED_KEYS,
    RawRow,
    chat_tags,
    content_text,
    extra_info_of,
    ground_truth_of,
    is_chat,
)

ROLES = ("system", "user", "assistant", "tool", "developer")
_LAST_ROLES = ("user", "tool")


def ask_row(row: RawRow, context: Context, scored: bool = True) -> Iterator[Remark]:
    """Yield what is wrong with a row, where it is `scored` also by its reward, which gets what can be read."""
    yield from _source_remarks(row)
    yield from _agent_remarks(row, context)
    yield from _reserved_remarks(row)
    yield from _prompt_remarks(row)
    truth = [*_truth_remarks(row, context)]
    yield from truth
    yield from context.tasks.source_remarks(row)
    if scored and is_chat(row.get("prompt")) and not any(level is Level.ERROR for _, level, _ in truth):
        yield from context.tasks.truth_remarks(row)


def has_source(row: RawRow) -> bool:
    """Return whether a row's data_source is a name; it may be empty, as in files of DeepScaleR's script."""
    source = row.get("data_source")
    return isinstance(source, str) and (not source or bool(source.strip()))


def _source_remarks(row: RawRow) -> Iterator[Remark]:
    if not has_source(row):
        yield DataQuestion.COLUMNS, Level.ERROR, f"data_source is {shorten(row.get('data_source'))}; it must be a name"


def _agent_remarks(row: RawRow, context: Context) -> Iterator[Remark]:
    if context.agents is None or "agent_name" not in row:
        return
    agent = row["agent_name"]
    if agent is None:
        yield DataQuestion.COLUMNS, Level.ERROR, "agent_name is null; veRL fails for these rows, name one"
    elif agent not in context.agents:
        message = f"agent_name is {shorten(agent)}; the agent loops here are {', '.join(sorted(context.agents))}"
        yield DataQuestion.COLUMNS, context.other_agents, message


def _reserved_remarks(row: RawRow) -> Iterator[Remark]:
    extra_info = extra_info_of(row)
    for key in sorted(RESERVED_KEYS & extra_info.keys()):
        if extra_info[key] is not None:
            reason = "is what a rollout tells the reward, which ignores a row's; rename or drop the field"
            yield DataQuestion.COLUMNS, Level.ERROR, f"extra_info.{key} {reason} ({shorten(extra_info[key], 60)})"


def _prompt_remarks(row: RawRow) -> Iterator[Remark]:
    """Ask whether a prompt is a chat that the user ends, without what the template adds or the response begins with."""
    prompt: Any = row.get("prompt")
    if not is_chat(prompt):
        yield DataQuestion.PROMPT, Level.ERROR, f"the prompt is {shorten(prompt)}; it must be a list of chat messages"
        return
    texts = [content_text(message["content"]) for message in prompt]
    roles = [message.get("role") for message in prompt]
    for number, (role, text) in enumerate(zip(roles, texts, strict=True)):
        if role not in ROLES:
            yield (
                DataQuestion.PROMPT,
                Level.ERROR,
                f"message {number} has the role {shorten(role)}; use {', '.join(ROLES)}",
            )
        if not text.strip():
            yield DataQuestion.PROMPT, Level.ERROR, f"message {number} ({role}) is empty"
    if roles[-1] not in _LAST_ROLES:
        yield (
            DataQuestion.PROMPT,
            Level.ERROR,
            f"the role of the last message is {shorten(roles[-1])}; it must be the user",
        )
    content = "\n".join(texts)
    if found := chat_tags(content):
        reason = "remove the tag, the chat template adds such tags a second time"
        yield DataQuestion.TAGS, Level.ERROR, f"the prompt contains {', '.join(found)}; {reason}"
    if content.rstrip().endswith("<think>"):
        reason = "which belongs to the response; remove the tag"
        yield DataQuestion.TAGS, Level.ERROR, f"the prompt ends with an opened <think>, {reason}"


def _truth_remarks(row: RawRow, context: Context) -> Iterator[Remark]:
    """Ask whether a ground truth is there, finite, refuses an empty answer, and, where no reward can be asked, is a string."""
    level = context.missing_truth
    if level is None:
        return
    if not isinstance(row.get("reward_model"), Mapping):
        reason = "it must be a struct with ground_truth"
        yield DataQuestion.TRUTH, Level.ERROR, f"reward_model is {shorten(row.get('reward_model'))}; {reason}"
        return
    truth = alternatives = ground_truth_of(row)
    if isinstance(truth, Mapping):  # other keys may hold what no reward reads
        alternatives = next((truth[key] for key in ("target", "solution_text_format") if key in truth), truth)
    leaves = list(_leaves(alternatives))
    if all(leaf is None or _is_blank(leaf) for leaf in leaves):
        yield DataQuestion.TRUTH, level, f"reward_model.ground_truth is {shorten(truth)}; it must not be empty"
    elif any(isinstance(leaf, float) and not math.isfinite(leaf) for leaf in leaves):
        yield (
            DataQuestion.TRUTH,
            level,
            f"reward_model.ground_truth is {shorten(truth)}; it must be finite, or a string",
        )
    elif isinstance(alternatives, list) and any(map(_is_blank, alternatives)):
        yield DataQuestion.TRUTH, level, f"reward_model.ground_truth {shorten(truth)} accepts an empty answer"
    elif isinstance(truth, Mapping) and "solution_text_format" in truth:
        return  # of Knights and Knaves; the reward reads this field alone
    elif level is Level.ERROR and not context.tasks.scores(row):
        for other in [leaf for leaf in leaves if not isinstance(leaf, str)][:1]:
            reason = "most rewards need a string"
            yield (
                DataQuestion.TRUTH,
                Level.WARNING,
                f"reward_model.ground_truth holds a {type(other).__name__}; {reason}",
            )


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
