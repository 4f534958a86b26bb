"""Where in a response the answer stands. Time linear in the length of the response."""

import re

MAX_ANSWER_CHARS = 1000
"""A longer box is not an answer; the longest ground truth of the usual test sets has under 300 characters."""

_BOX = re.compile(r"\\(?:boxed|fbox)\s{0,8}(?:\{|(?P<number>-?[0-9][0-9.,/]{0,40})(?=\s|[.$]|\\[)\]]|$))")
_BOX_NAMES = (r"\boxed", r"\fbox")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_TAIL_CHARS = 1000
_D = r"(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+"
_LAST_NUMBER = re.compile(
    rf"(?<![\w.])(?:[-−]\s?)?(?:\\[dt]?frac\{{-?[0-9]+\}}\{{-?[0-9]+\}}|(?:{_D})(?:/[0-9]+(?![\w.]*\.[0-9]))?)(?:\s?\\?%)?"
)


def final_text(response: str) -> str | None:
    """Return what follows the last `</think>`, or all where no tag occurs; None if the reasoning was not finished."""
    close = response.rfind("</think>")
    if response.rfind("<think>") > close:
        return None
    return response[close + len("</think>") :] if close >= 0 else response


def boxed_answer(text: str) -> str | None:
    r"""Return the content of the last `\boxed{...}` or `\fbox{...}`; None if there is none, or it is open or too long.

    `\boxed 5` is a box too. The word without a brace or a number behind it is none.
    """
    box = _last_box(text)
    if box is None:
        return None
    if box["number"]:
        return box["number"]
    start = box.end()
    depth = 1
    # One more character than allowed decides "too long"; what follows is not looked at.
    for match in _BRACE.finditer(text, start, start + MAX_ANSWER_CHARS + 1):
        if match[0] in "{}":
            depth += 1 if match[0] == "{" else -1
        if depth == 0:
            return text[start : match.start()]
    return None


def has_box(text: str) -> bool:
    """Return whether the text contains a box, finished or not."""
    return any(name in text for name in _BOX_NAMES)


def last_number(text: str) -> str | None:
    """Return the last number of the text, as written; only the last 1,000 characters are read."""
    found = None
    for found in _LAST_NUMBER.finditer(text[-_TAIL_CHARS:]):  # noqa: B007
        pass
    return found[0] if found else None


def extract_answer(response: str, answer_format: str) -> str | None:
    """Return the answer of a response, as written, or None if it is not in the wanted place.

    Args:
        response: the decoded response.
        answer_format: "boxed", or "boxed_or_last_number", which takes the last number of a response without any box.
    """
    text = final_text(response)
    if text is None:
        return None
    if answer_format == "boxed_or_last_number" and not has_box(text):
        return last_number(text)
    return boxed_answer(text)


def _last_box(text: str) -> re.Match[str] | None:
    """The beginning of the last box."""
    match = None
    for match in _BOX.finditer(text):  # noqa: B007
        pass
    return match
