"""Where in a response the answer stands. Time linear in the length of the response."""

import re

MAX_ANSWER_CHARS = 1000
"""A longer box is not an answer; the longest ground truth of the usual test sets has under 300 characters."""

_BOX = re.compile(r"\\(?:boxed|fbox)\s{0,8}(?:\{|(?P<number>-?[0-9][0-9.,/]{0,40})(?=\s|[.$]|\\[)\]]|$))")
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
    box = None
    for box in _BOX.finditer(text):  # noqa: B007
        pass
    if box is None or box["number"]:
        return box and box["number"]
    depth = 1
    # One more character than allowed decides "too long"; what follows is not looked at.
    for match in _BRACE.finditer(text, box.end(), box.end() + MAX_ANSWER_CHARS + 1):
        depth += {"{": 1, "}": -1}.get(match[0], 0)
        if depth == 0:
            return text[box.end() : match.start()]
    return None


def last_number(text: str) -> str | None:
    """Return the last number of the text, as written; only the last 1,000 characters are read."""
    numbers = _LAST_NUMBER.findall(text[-_TAIL_CHARS:])
    return numbers[-1] if numbers else None


def extract_answer(response: str, answer_format: str) -> str | None:
    """Return the answer of a response, as written, or None if it is not in the wanted place.

    Args:
        response: the decoded response.
        answer_format: "boxed", or "boxed_or_last_number", which takes the last number of a response without any box,
            finished or not.
    """
    text = final_text(response)
    if text is None:
        return None
    if answer_format == "boxed_or_last_number" and r"\boxed" not in text and r"\fbox" not in text:
        return last_number(text)
    return boxed_answer(text)
