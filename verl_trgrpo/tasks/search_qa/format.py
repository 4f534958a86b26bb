"""Search-R1's format: read what the model does in a turn, write observations, and find what the model wrote.

The model thinks in ``<think>``, asks with ``<search>query</search>``, reads ``<information>passages</information>`` and
ends with ``<answer>text</answer>``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal

from verl_trgrpo.common.text import shorten

if TYPE_CHECKING:
    from verl_trgrpo.retrieval.index import Hit

STOP_STRINGS = ("</search>", "</answer>")

REMINDER = (
    "That turn had neither a search nor an answer. To search, write the query between <search> and </search>; to finish, "
    "write the answer between <answer> and </answer>."
)
LAST_TURN = "No searches are left. Write the answer between <answer> and </answer>."

_TAG = re.compile(r"<(?=/?(?:think|search|information|answer|tool_call|tool_response)\b)", re.IGNORECASE)

# Tags around observations: ours, those of veRL's tool agent with Hermes-style chat templates, and the turn markers of ChatML.
_OPENING = ("<information>", "<tool_response>", "<|im_start|>user", "<|im_start|>tool", "<|im_start|>system")
_CLOSING = ("</information>", "</tool_response>", "<|im_start|>assistant")
_BORDER = re.compile("|".join(re.escape(tag) for tag in (*_OPENING, *_CLOSING)))


@dataclass(frozen=True)
class Action:
    """The request of a turn: a search for `content`, an answer, or neither (``malformed``)."""

    kind: Literal["search", "answer", "malformed"]
    content: str = ""


def read_action(turn: str) -> Action:
    """Return the first complete action of a turn; one without content is malformed. The time is linear in the length.

    Generation stops at the first closing tag, so there is at most one action unless tags are nested. Of nested opening tags
    the innermost counts: ``<search>a<search>b</search>`` asks for b.
    """
    blocks = [block for kind in ("search", "answer") if (block := _first_block(turn, kind))]
    if not blocks:
        return Action("malformed")
    _, kind, text = min(blocks)
    content = text.rpartition(f"<{kind}>")[2].strip()
    if not content:
        return Action("malformed")
    return Action("search", content) if kind == "search" else Action("answer", content)


def _first_block(turn: str, kind: str) -> tuple[int, str, str] | None:
    """Return position, kind and text of the block from the first opening tag to the first closing tag after it."""
    before, opening, rest = turn.partition(f"<{kind}>")
    text, closing, _ = rest.partition(f"</{kind}>")
    return (len(before), kind, text) if opening and closing else None


def observation_frame(note: str = "") -> tuple[str, str]:
    """Return the strings before and after the text of an observation; `note` stands at its end."""
    return "\n\n<information>", f"{note}</information>\n\n"


def passages_text(hits: Sequence[Hit]) -> str:
    """Return passages as Search-R1 shows them: ``Doc 1(Title: "Rome") text``, one line each, `defused`."""
    lines = []
    for number, hit in enumerate(hits, start=1):
        title, _, text = hit.contents.partition("\n")
        lines.append(f"Doc {number}(Title: {title}) {text}\n")
    return defused("".join(lines)) or "No passage was found.\n"


def defused(text: str) -> str:
    """Return foreign text without the opening brackets of the format's tags: it must not end the block or give the answer."""
    return _TAG.sub("(", text)


def model_text(token_ids: Sequence[int], response_mask: Sequence[int], tokenizer: Any) -> list[str]:
    """Return the strings that the model itself wrote, in order.

    Args:
        token_ids: (response_length,) tokens of the response.
        response_mask: (response_length,) 1 for tokens of the model, 0 for observations.
        tokenizer: decodes lists of token ids.
    """
    runs = groupby(zip(token_ids, response_mask, strict=True), key=lambda pair: pair[1])
    own = [[token for token, _ in run] for mask, run in runs if mask]
    return [tokenizer.decode(tokens, skip_special_tokens=True) for tokens in own]


def model_turns(response: str, extra_info: Mapping[str, Any]) -> list[str]:
    """Return the strings that the model wrote, one per turn; the last one may be empty. Never an empty list.

    The agent loop knows what the model wrote and passes it in ``extra_info["model_text"]``; the response is then not read.
    Without it observations are found by their tags in the decoded response. A retrieved passage may contain the same tags,
    so text between two tags counts as the model's only if no opening tag stands right before it and no closing tag right
    after it: nested, repeated and stray tags make a text less the model's, never more. After the last closing tag the text
    is the model's; if the response ends inside an observation, the last turn is empty.

    A passage can still speak for the model if the loop cuts an observation off before its closing tag and the passage
    contains a closing tag. Other chat templates mark tool answers differently. Both need `model_text`.

    Raises:
        ValueError: `model_text` is neither a string nor a list of strings.
    """
    given = extra_info.get("model_text")
    if given is None:
        return _split(response)
    turns = given.tolist() if hasattr(given, "tolist") else [given] if isinstance(given, str) else given
    if not isinstance(turns, list | tuple) or not all(isinstance(turn, str) for turn in turns):
        raise ValueError(
            f"extra_info['model_text'] is {shorten(given)}; the agent loop must give a string, or a list with a string for "
            "each of the model's turns"
        )
    return [*turns] or [""]


def _split(response: str) -> list[str]:
    turns = []
    own, start = True, 0
    for tag in _BORDER.finditer(response):
        opening = tag.group() in _OPENING
        if own and opening:
            turns.append(response[start : tag.start()])
        own, start = not opening, tag.end()
    return [*turns, response[start:] if own else ""]
