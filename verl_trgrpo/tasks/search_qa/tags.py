"""The text of a searching trajectory in Search-R1's format.

The model thinks in ``<think>``, asks with ``<search>query</search>``, reads ``<information>passages</information>`` and
ends with ``<answer>text</answer>``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

from verl_trgrpo.retrieval.protocol import Hit

STOP_STRINGS = ("</search>", "</answer>")

_ACTION = re.compile(r"<(search|answer)>(.*?)</\1>", re.DOTALL)
_TAG = re.compile(r"<(?=/?(?:think|search|information|answer|tool_call|tool_response)\b)", re.IGNORECASE)

CORRECTION = (
    "That turn had neither a search nor an answer. To search, write the query between <search> and </search>; to finish, "
    "write the answer between <answer> and </answer>."
)
LAST_TURN = "No searches are left. Write the answer between <answer> and </answer>."


@dataclass(frozen=True)
class Action:
    """What a turn asks for: a search for `content`, an answer, or neither (``malformed``)."""

    kind: Literal["search", "answer", "malformed"]
    content: str = ""


def read_action(turn: str) -> Action:
    """Return the first complete action of a turn; one with nothing in it is malformed.

    Generation stops at the first closing tag, so there is one at most, unless the tags are nested.
    """
    match = _ACTION.search(turn)
    # The innermost opening tag counts: "<search>a<search>b</search>" asks for b.
    content = re.split(f"<{match[1]}>", match[2])[-1].strip() if match else ""
    if match is None or not content:
        return Action("malformed")
    return Action("search", content) if match[1] == "search" else Action("answer", content)


def observation_frame(note: str = "") -> tuple[str, str]:
    """Return what stands before and after the text of an observation; `note` closes it."""
    return "\n\n<information>", f"{note}</information>\n\n"


def passages_text(hits: Sequence[Hit]) -> str:
    """Return passages as Search-R1 shows them: ``Doc 1(Title: "Rome") text``, a line each.

    Tags of the format inside a passage lose their opening bracket: a passage must not end the block or give the answer.
    """
    lines = []
    for number, hit in enumerate(hits, start=1):
        title, _, text = hit.contents.partition("\n")
        lines.append(f"Doc {number}(Title: {title}) {text}\n")
    return _TAG.sub("(", "".join(lines)) or "No passage was found.\n"


def model_text(token_ids: Sequence[int], response_mask: Sequence[int], tokenizer: Any) -> list[str]:
    """Return the texts that the model itself wrote, in order.

    Args:
        token_ids: (response_length,) tokens of the response.
        response_mask: (response_length,) 1 for tokens of the model, 0 for observations.
        tokenizer: decodes lists of token ids.
    """
    runs = groupby(zip(token_ids, response_mask, strict=True), key=lambda pair: pair[1])
    own = [[token for token, _ in run] for mask, run in runs if mask]
    return [tokenizer.decode(tokens, skip_special_tokens=True) for tokens in own]
