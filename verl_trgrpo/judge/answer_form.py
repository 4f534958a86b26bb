r"""Find the form in which a prompt asks for the answer, and read a response in it.

The one rule from prompt to answer: rewards, ``data check``, ``preview``, ``eval`` and training use it. docs/math_reward.md says
which wordings are recognised.

>>> asked_form("What is 2 + 2? Please reason step by step, and put your final answer within \\boxed{}.")
'box'
>>> asked_form('The last line of your response should be of the form Answer: $Answer (without quotes).\n\nWhat is 2 + 2?')
'line'
>>> read_answer("So it is 4.\n\nAnswer: 4", "line")
'4'
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, get_args

AnswerForm = Literal["box", "line", "tags", "hashes"]
r"""``\boxed{...}``, a line ``Answer: ...``, ``<answer>...</answer>``, or a line ``#### ...``."""
ANSWER_FORMS: tuple[AnswerForm, ...] = get_args(AnswerForm)
_STATEMENTS = {"box": r"\boxed{{{}}}", "line": "Answer: {}", "tags": "<answer>{}</answer>", "hashes": "#### {}"}

MAX_ANSWER_CHARS = 1000
"""A longer answer is not read; the longest ground truth of the usual test sets has under 300 characters."""

# --- What the prompt asks for ----------------------------------------------------------------------------------------

_CONTEXT_CHARS = 300
# "\x08oxed" is "\boxed" written without a raw string, as in some public files.
_BOXED = r"(?:(?<!\\)\\+b|\x08)oxed(?![a-zA-Z])"
_BOX_MENTION = re.compile(_BOXED)
_TAGS_MENTION = re.compile(r"<answer>.{0,400}?</answer>|<answer>[`'\"]?\s+tags?\b", re.DOTALL)
# "Answer" in the languages of MGSM
_FOREIGN_WORDS = "答案|答え|Antwort|Respuesta|Réponse|Ответ|Jibu|উত্তর|సమాధానం|คำตอบ"
_HASHES_MENTION = re.compile(r"(?<!#)####(?!#)")
_LINE_MENTION = re.compile(
    r"(?P<quote>[\"'“‘`*]{0,8})(?<![a-zA-Z])(?P<word>(?:(?:Final|FINAL|final) )?(?:Answer|ANSWER|answer)|"
    rf"(?P<foreign>{_FOREIGN_WORDS}))\*{{0,2}}\s?[:：]"
    rf"(?P<behind>[^\n]{{0,40}}?{_BOXED}|[^\n]{{0,40}})"
)
_SENTENCE_END = re.compile(r"(?<!\be\.g)(?<!\bi\.e)[.!?](?=[\s\"'”)]|$)|[。！？]|(?<![:\s])[ \t]*\n\s*\n")
_GOES_ON = re.compile(
    r"(?:[:,]|\b(?:form|format|line|with|as|by|of|in|is|be|like|the|a|your|exactly|write|output))\s*$"
)

_NOUN = re.compile(
    r"\b(?:answers?|solutions?|results?|responses?|outputs?|conclusion|choice|option)\b|答案|结果|回答", re.IGNORECASE
)
_NEGATION = re.compile(
    r"(?:\bnot|n't|\bno need|\bnever|\bwithout|\binstead of|\brather than)\b(?:(?!\b(?:but|and|then)\b)[^.,;:!?\n]){0,60}$"
    r"|(?:不要|无需|不需|不必|请勿)[^，。；：！？\n]{0,30}$",
    re.IGNORECASE,
)
_BOX_CUE = re.compile(
    r"(?:\b(?:in|inside|within|into|with|using|use|by|via|as|is|the|an?|form|format|write|output|return|give|print|put|e\.g\.|i\.e\.)"
    r"|[:,]|[在用为以入到于])[\s$`'\"“*\\\[({]*$",
    re.IGNORECASE,
)
_LINE_CUE = re.compile(
    r"\b(?:last|final|own|separate|new) line\b|\b(?:form|format|template)\b"
    r"|\b(?:end|conclude|finish)(?:s|es|ing)?\b.*\b(?:with|by|in)\b|最后一行|格式|形式",
    re.IGNORECASE | re.DOTALL,
)
_WEAK_LINE_CUE = re.compile(
    r"\b(?:after|with|as|like|using|use|write|output|print|give|provide|state|return|respond|report|put|begin|start|prefix)\b|[用以按写]",
    re.IGNORECASE,
)
_LINE_CUE_BEHIND = re.compile(r"[\"'”’`*]*\s*(?:followed by|\(without (?:the )?quotes\)|on (?:its|a|the) |at the end)")
_PLACEHOLDER = re.compile(
    rf"[\"'”’`*]*\s*(?:\$?{_BOXED}|\$\\?\{{?[A-Za-z]|\[|<|\{{|_{{2,}}|\.{{3}}|…|X\b|[A-Z]{{4,}}|your\b)"
)


def asked_form(prompt: Any) -> AnswerForm | None:
    r"""Return the form in which a prompt asks for the answer, or None if it asks for none of them.

    A mention counts if it is an instruction, not a word of the problem; of several, the last. A box within tags or behind
    ``Answer:`` belongs to those.

    Args:
        prompt: a string, or chat messages, of which those of system and user are read.
    """
    return _asked_form(prompt_text(prompt))


def prompt_text(prompt: Any) -> str:
    """Return a prompt as a string: itself, or what system and user say in chat messages."""
    if isinstance(prompt, str):
        return prompt
    contents = [
        message.get("content")
        for message in ([] if prompt is None else prompt)
        if isinstance(message, Mapping) and message.get("role") != "assistant"
    ]
    parts = [part for content in contents for part in (content if isinstance(content, list) else [content])]
    texts = [part.get("text") if isinstance(part, Mapping) else part for part in parts]
    return "\n\n".join(text for text in texts if isinstance(text, str))


@lru_cache(maxsize=1024)
def _asked_form(text: str) -> AnswerForm | None:
    """Cached because every response of a group has the same prompt."""
    mentions = [*_mentions(text)]
    around = [(start, end) for start, end, form in mentions if form in ("tags", "line")]
    outer = [(start, form) for start, _, form in mentions if not any(begin < start < end for begin, end in around)]
    return max(outer)[1] if outer else None


def _mentions(text: str) -> Iterator[tuple[int, int, AnswerForm]]:
    """Yield begin, end and form of each instruction."""
    for match in _TAGS_MENTION.finditer(text):
        before, behind = _sentence(text, match)
        if _NOUN.search(re.sub("</?answer>", " ", before + match[0] + behind)) and not _NEGATION.search(before):
            yield *match.span(), "tags"
    for match in _LINE_MENTION.finditer(text):
        if _is_line_instruction(match, _sentence(text, match)[0]):
            yield *match.span(), "line"
    for match in _HASHES_MENTION.finditer(text):
        before, _ = _sentence(text, match)
        if _NOUN.search(before) and not _NEGATION.search(before):
            yield *match.span(), "hashes"
    for match in _BOX_MENTION.finditer(text):
        before, behind = _sentence(text, match)
        if _NOUN.search(before + behind) and _BOX_CUE.search(before or ":") and not _NEGATION.search(before):
            yield *match.span(), "box"


def _is_line_instruction(match: re.Match[str], before: str) -> bool:
    quoted, behind = bool(match["quote"].strip("*")), match["behind"]
    if _NEGATION.search(before) or (match["word"].islower() and not quoted):
        return False
    if match["foreign"]:
        return quoted
    placeholder = bool(_PLACEHOLDER.match(behind))
    if not behind.strip() and not quoted:
        return before.rstrip().endswith(" after")  # "Question: ... Answer:" begins the answer
    if _LINE_CUE.search(before) or _LINE_CUE_BEHIND.match(behind):
        return True
    return (quoted or placeholder) and bool(_WEAK_LINE_CUE.search(before))


def _sentence(text: str, mention: re.Match[str]) -> tuple[str, str]:
    """Return the parts of the sentence before and behind a mention."""
    before = text[max(0, mention.start() - _CONTEXT_CHARS) : mention.start()]
    for end in _SENTENCE_END.finditer(before):
        before = " " * end.end() + before[end.end() :]
    lines = before.rstrip(" \t").rpartition("\n")
    if lines[1] and not lines[2] and not _GOES_ON.search(lines[0]):  # at the start of a line
        before = ""
    behind = text[mention.end() : mention.end() + _CONTEXT_CHARS]
    stop = re.search(r"[.!?。！？](?=\s|$)|\n", behind)
    return before.lstrip(), behind[: stop.start()] if stop else behind


# --- What the response answers ---------------------------------------------------------------------------------------

_BOX = re.compile(r"\\(?:boxed|fbox)\s{0,8}(?:\{|(?P<number>-?[0-9][0-9.,/]{0,40})(?=\s|[.$]|\\[)\]]|$))")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_TAGGED = re.compile(r"<answer>((?:(?!</?answer>).)*)</answer>", re.DOTALL)
_LINES = {
    "line": re.compile(
        rf"^[ \t*#>-]{{0,8}}(?:(?:final )?answer|{_FOREIGN_WORDS})[ \t*]{{0,4}}"
        r"[:：][ \t*]*(?:\n\s{0,8}(?=\S))?(.*)$"
        r"|^[ \t*#>-]{0,8}final answer[ \t*]{0,4}\n\s{0,8}(?=\S)(.*)$",  # a heading
        re.IGNORECASE | re.MULTILINE,
    ),
    "hashes": re.compile(r"(?<!#)####(?!#)[ \t*]*(.*)$", re.MULTILINE),
}
_OPENS_FORMULA = re.compile(r"(?:\$\$|\\\[|\\\()\s*(.*)")  # alone on its line, the answer stands on the next
END_TOKEN = r"(?:<\|[a-z_]{1,20}\|>|</s>|<end_of_turn>|<eos>)"
"""A token with which a response ends, such as <|im_end|>, where it was decoded with its special tokens."""
_ENDS = re.compile(rf"{END_TOKEN}\s{{0,8}}$")

REASONING_MARKS: dict[str, str] = {
    "<think>": "</think>", "<thinking>": "</thinking>", "<thought>": "</thought>", "<reasoning>": "</reasoning>",
    "<scratchpad>": "</scratchpad>", "[think]": "[/think]", "◁think▷": "◁/think▷", "<seed:think>": "</seed:think>",
    "<|channel|>analysis": "<|channel|>final<|message|>",
}  # fmt: skip
"""What begins and ends reasoning, in small letters: of DeepSeek-R1 and Qwen, Magistral, Kimi, Seed, gpt-oss and
others. A run adds
pairs in a module that VERL_USE_EXTERNAL_MODULES names."""


def state_answer(answer: str, form: AnswerForm) -> str:
    """Return a response that states an answer in a form."""
    return _STATEMENTS[form].format(answer)


def read_answer(response: str, form: AnswerForm, thinking_opened: bool = False) -> str | None:
    r"""Return the answer that a response states in a form, as written, or None if there is none.

    Only what :func:`after_reasoning` returns counts. The time is linear in the length of the response.

    Args:
        response: the decoded response.
        form: where the answer is read. ``box``: the last ``\boxed{...}``, ``\fbox{...}`` or ``\boxed 5``, unless it is left
            open. ``line``: the rest of the last line that begins with ``Answer:``, or the next line if that is empty, unless
            a box stands in it or behind; without such a line, the last box. ``hashes``: likewise with ``####``. ``tags``: the
            content of the last complete ``<answer>``, or a box in it. A sign, a factor or the like beside a box belongs to the
            answer: ``x=-\boxed{5}`` states that; "not ``\boxed{5}``" and "``\boxed{5}`` or 7" state nothing. Boxes joined
            by a comma, "and", ";" or spaces are one list; joined by other words of a sentence they state nothing.
        thinking_opened: the prompt ends in ``<think>``, so a response without ``</think>`` was cut off in its reasoning.
    """
    text = after_reasoning(response, thinking_opened)
    if text is None:
        return None
    if form == "tags":
        if (inside := last_tagged(text)) is None:
            return None
        boxes = [*_BOX.finditer(inside)]
        return _box_answer(inside, boxes) if boxes else _short(inside.strip())
    boxes = [*_BOX.finditer(text)]
    line = _last_match(_LINES[form], text) if form != "box" else None
    if line and (not boxes or boxes[-1].start() < line.start()):
        found = next(filter(None, line.groups()), "").strip().strip("*").strip()
        if (opened := _OPENS_FORMULA.fullmatch(found)) and not opened[1]:
            found = text[line.end() :].lstrip().partition("\n")[0].strip()
        if _HEDGED.match(text[line.end() : line.end() + _AROUND]):
            return None
        return _short(_ENDS.sub("", found).strip())
    return _box_answer(text, boxes) if boxes else None


def read_boxes(response: str, thinking_opened: bool = False) -> list[str]:
    """Return what all boxes of a response state, each once, in order: parts of an answer in several sentences.

    None of them if one is left open, is empty or is denied.

    Args:
        response, thinking_opened: as for :func:`read_answer`.
    """
    text = after_reasoning(response, thinking_opened) or ""
    found: dict[str, None] = {}
    for match in _BOX.finditer(text):
        box = _box(text, match)
        if box is None or not box.content.strip():
            return []
        if _DENIED.search(text[max(0, box.start - _DENIAL_CHARS) : box.start]) or _HEDGED.match(
            text[box.end : box.end + _AROUND]
        ):
            return []
        found[box.content.strip()] = None
    return [*found]


def last_tagged(text: str) -> str | None:
    """Return the content of the last complete ``<answer>...</answer>``, or None if there is none.

    The two tags of a pair have no other tag between them, so tags that are only mentioned do not become part of the answer.
    """
    pair = _last_match(_TAGGED, text)
    return pair[1] if pair else None


def after_reasoning(response: str, thinking_opened: bool = False) -> str | None:
    """Return what follows the last mark that ends reasoning (see `REASONING_MARKS`), or None if the reasoning was not finished.

    Args:
        response: the decoded response.
        thinking_opened: as in :func:`read_answer`.
    """
    lower = response.lower()
    if len(lower) != len(response):  # a letter whose small form is two
        lower = response
    ends = [(lower.rfind(mark), len(mark)) for mark in REASONING_MARKS.values()]
    start = max((place + length for place, length in ends if place >= 0), default=0)
    if (thinking_opened and not start) or any(lower.find(mark, start) >= 0 for mark in REASONING_MARKS):
        return None
    return response[start:]


def _last_match(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    match = None
    for match in pattern.finditer(text):  # noqa: B007
        pass
    return match


def _short(answer: str) -> str | None:
    return answer if 0 < len(answer) <= MAX_ANSWER_CHARS else None


_DELIMITER = re.compile(r"\\\$|\$\$?|\\[()\[\]]|\n\s*\n")  # \( begins a formula
# What makes a box a part of its formula: in front of it, and behind.
_PART_BEHIND_SIGN = re.compile(
    r"(?:(?:[-+/0-9√±]|[\^_]\{?|\\(?:cdot|times|pm|mp|div|sqrt(?:\[[^\]]{0,9}\])?|[dt]?frac|binom|log|ln|sin|cos|tan|ne|neq|not|neg|lnot)"
    r"(?:\s{0,3}\{)?)|\\[dt]?frac\s{0,3}\{[^{}]{0,60}\}\s{0,3}\{)\s{0,8}$"
)  # x=-
_PART_BEFORE = re.compile(
    r"\s{0,8}(?:[-+/_]|\^(?!\{?\s?\\circ|\\prime)|[0-9]|[a-zA-Z](?![a-zA-Z.])|\\(?:sqrt|pi|cdot|times|[dt]?frac|pm|mp|div|over|binom|ln|log"
    r"|sin|cos|tan|ne|neq)(?![a-zA-Z]))"
)  # \sqrt{2}
# What may not stand beside a final answer in its sentence: a denial in front, with only small words between; behind, a doubt, a
# denial or another answer; another box.
_OPENING = r"[\s$\\(\[*:={\"'“‘]{0,8}(?:\\[a-z]{1,10}\{[\s$\\(*]{0,8})?"
_DENIED = re.compile(
    r"(?:\b(?:not|cannot|never|n?either|nor|(?:anything|nothing|all|everything) but|except|refuse to|wrong|incorrect|false"
    r"|unlikely|instead of|rather than|other than)|n['’]t|不是)"
    r"(?: (?:the|an?|to|be|is|are|was|it|that|say|state|give|equals?|possibly|actually|really|just|simply|correct|right"
    rf"|final|true|answer|value|result|solution|number|x)){{0,5}}{_OPENING}$",
    re.IGNORECASE,
)
_CLOSING = r"[\s$\\)\]}*.,;:…—–({\"'”’-]{0,12}(?:\\text\{\s{0,3})?"
_BAD = (
    r"(?:not (?:right|correct|true|sure|certain|the (?:right |correct |final )?answer)|wrong|incorrect|false|unsure)\b"
)
_HEDGED = re.compile(
    rf"{_CLOSING}(?:\bor\b(?! (?:simply|equivalently|approximately|about|in|just|as))|或|\b(?:vs|versus|otherwise"
    rf"|alternatively(?=[\s,:]{{0,3}}[-0-9$\\(])|perhaps|maybe"
    rf"|possibly|unless|else|either|i guess)\b|(?:but )?(?:i['’]?\s?a?m )?{_BAD}|(?:that|this|it|which)(?: is|['’]s| was) {_BAD}"
    r"|(?:is|was|does|can|could)(?:n['’]t|not)\b|(?:and|&|/)[\s$\\(]{0,4}-?[0-9.]{1,20}[\s$\\).]{0,4}$)"
    r"|[\s$\\)\]*.]{0,8}(?:\\text\{\s{0,3})?(?:(?:hundred|thousand|million|billion|trillion|dozen|lakh|crore)s?\b|[万亿億萬千百]"
    r"|\bis (?:not|wrong|incorrect|false)\b)"
    r"|[\s$\\)\]}*]{0,8}\?",
    re.IGNORECASE,
)  # or 7
# What joins boxes to one list. Each piece begins with another character, so the time is linear.
_JOINT = re.compile(
    r"(?:[\s$,;.&*}•-]|\\[\])(\[,;:! ]|\\q?quad(?![a-zA-Z])|\\text\{|(?<![a-zA-Z\\])(?:and|or)(?![a-zA-Z])|[和或、]"
    r"|(?<=\n)\(?[a-z0-9]{1,3}[.):])*"
    r"(?P<name>[a-zA-Z](?:_\w|_\{\w+\})?\s{0,3}=[\s$\\(]{0,4})?",
    re.IGNORECASE,
)  # \text{ and } y =; 2.
_NAME_IN_FRONT = re.compile(r"(?<![a-zA-Z\\])([a-zA-Z](?:_\w|_\{\w+\})?\s{0,3}=)[\s$\\(]{0,4}$")  # x =
_PARAGRAPH = re.compile(r"\n[ \t]*\n")
_BREAK = re.compile(r"[.!?。！？](?=[\s$\\*)]|$)|\n")
_AROUND, _DENIAL_CHARS = 300, 160  # of the longest formula beside a box, and of a denial with all words between


@dataclass(frozen=True)
class _Box:
    start: int
    end: int
    content: str


def _box_answer(text: str, matches: list[re.Match[str]]) -> str | None:
    """Return what the last box states: its content, its formula where the box is only a part of it, or the list of boxes that
    ends in it; None where the box is open or denied, or where other words join it to another box of its sentence."""
    if (boxes := _joined_boxes(text, matches)) is None:
        return None
    if not boxes[-1].content.strip():
        return boxes[-1].content
    boxes = [box for box in boxes if box.content.strip()]
    start, end = boxes[0].start, boxes[-1].end
    before, behind = text[max(0, start - _AROUND) : start], text[end : end + _AROUND]
    if _DENIED.search(before[-_DENIAL_CHARS:]) or _HEDGED.match(behind):
        return None
    front, back, delimited = _formula_around(before, behind)
    if not delimited and back[:1] in ("!", "("):
        back = ""
    part = (
        _PART_BEHIND_SIGN.search(front) or (delimited and back.lstrip()[:1] in ("!", "(")) or _PART_BEFORE.match(back)
    )
    if len({box.content for box in boxes}) == 1:
        return _short(front + text[start:end] + back.rstrip(" .,;:*")) if part else boxes[0].content
    name = _NAME_IN_FRONT.search(front)
    return None if part else _short((name[1] if name else "") + ", ".join(box.content for box in boxes))


def _joined_boxes(text: str, matches: list[re.Match[str]]) -> list[_Box] | None:
    """Return the last box and those in front that are joined to it, with the names between; None where it is open or its
    sentence has another box in front that is not."""
    boxes: list[_Box] = []  # from the last to the first
    for match in reversed(matches):
        box = _box(text, match)
        if box is None:
            break
        if not boxes:
            boxes.append(box)
        elif box.end <= boxes[-1].start:  # not around the next
            between = text[box.end : boxes[-1].start]
            joint = None if _PARAGRAPH.search(between) else _JOINT.fullmatch(between)
            if joint:
                name = (joint["name"] or "").rstrip(" \n\t$\\(")
                boxes[-1] = replace(boxes[-1], content=name + boxes[-1].content)
                boxes.append(box)
            elif _BREAK.search(between):
                break
            else:
                return None
    return boxes[::-1] or None


def _box(text: str, match: re.Match[str]) -> _Box | None:
    """Return a box with its content; None if it is open, or longer than an answer."""
    if match["number"] is not None:
        return _Box(match.start(), match.end(), match["number"])
    # One more character than allowed decides "too long"; what follows is not read.
    depths = brace_depths(text, match.end(), match.end() + MAX_ANSWER_CHARS + 1)
    closing = next((place for place, depth in depths if depth < 0), None)
    return None if closing is None else _Box(match.start(), closing + 1, text[match.end() : closing])


def _formula_around(before: str, behind: str) -> tuple[str, str, bool]:
    """Return what stands in front and behind in the same formula, or without a space between, and whether a formula
    has delimiters."""
    opened = None
    for mark in _DELIMITER.finditer(before):
        if mark[0] in ("$", "$$"):
            opened = None if opened else mark
        elif mark[0] != r"\$":
            opened = mark if mark[0] in (r"\(", r"\[") else None
    if opened:
        closing = next((mark for mark in _DELIMITER.finditer(behind) if mark[0] != r"\$"), None)
        return before[opened.end() :], behind[: closing.start()] if closing else behind.partition("\n")[0], True
    return re.split(r"[\s$]", before)[-1], re.split(r"[\s$]", behind, maxsplit=1)[0], False


def brace_depths(text: str, start: int = 0, end: int = sys.maxsize) -> Iterator[tuple[int, int]]:
    """Yield the position of each brace of ``text[start:end]`` that is not escaped, and how many are open behind it."""
    depth = 0
    for match in _BRACE.finditer(text, start, end):
        if match[0] in "{}":
            depth += 1 if match[0] == "{" else -1
            yield match.start(), depth
