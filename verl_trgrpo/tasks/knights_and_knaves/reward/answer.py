"""Reads the answer block of a Knights-and-Knaves response: strict about meaning, lenient about wording.

An answer is understood only if every clause of it is; whatever is not leaves it unparsed. This module takes it apart
into lines, table rows, lists and sentences, `clauses` reads the sentences, and `forms` and `vocabulary` hold
everything a clause may say:

- claims: "Zoey is a knight", "Zoey: knight", "Zoey (knight)", "The knights are: Zoey, Ava", "Knaves: none", table rows,
  lists below a heading "Knights:", "she is a knight" where only one person can be meant;
- collective claims, where they can mean only one thing: "everyone is a knight" if the answer names everybody or nobody,
  "both are knights" if the puzzle has two people, "the others are knaves" if every person named before has a role;
- justifications, which assert nothing but must not contradict the claims: "because her statement is true", "he lies",
  "Oliver says that Ava is a knave, which is false", "if she were a knave, her statement would be true";
- neutral prose: "After checking each statement, the only consistent assignment is:".

A claim counts only where it is plainly asserted: not negated, supposed, hedged, asked, quoted, reported or taken back.
A person with two roles anywhere, a person without one, and a claim about anybody else leave the answer unparsed. So do
forms whose meaning is likely but not certain: "Zoey is not a knave" alone, "Zoey tells the truth" alone, quotation marks,
"Suppose ...", rhetorical questions, other languages, JSON and LaTeX.
"""

import re
from collections.abc import Iterator

from verl_trgrpo.tasks.knights_and_knaves.reward import forms, vocabulary
from verl_trgrpo.tasks.knights_and_knaves.reward.assignment import Assignment
from verl_trgrpo.tasks.knights_and_knaves.reward.clauses import ClauseReader, Scope
from verl_trgrpo.tasks.knights_and_knaves.reward.text import normalize, replace_names

_PLAIN_LINE = re.compile(r"\s*(?:\(?[1-9][0-9]?[.)] ?)?(\S.*?) is a (knight|knave)[.,;]?\s*")
_TOKEN = re.compile(r"@[0-9]+|(?<=[0-9])'s?(?!\w)|[^\W_]+(?:['-][^\W_]+)*(?:(?<=s)'(?!\w))?|->|=>|\.{2,}|-+|\S")
_NUMBER_CELL = re.compile(r"\(?[1-9][0-9]?[.)]?")
_LINE_START = re.compile(
    r"[\s•◦▪‣·#+✓✔✅-]*(?:[(\[]?[1-9][0-9]?[)\].:](?!\d)|\(?(?:[a-h]|[ivx]{1,4})[).](?= @))?[\s-]*"
)


def read_answer(answer: str, names: tuple[str, ...]) -> dict[str, str] | None:
    """The role of every person, or None where the answer does not settle all of them beyond doubt.

    Args:
        answer: text of the answer block, without the tags. Any string, of any length.
        names: the people of the puzzle, distinct, as the ground truth spells them.

    Returns:
        `{name: "knight" | "knave"}` over exactly `names`, or None (unparsed).
    """
    roles = _read_plain_lines(answer, names)
    if roles is not None:
        return roles
    text = normalize(answer)
    if text is None:
        return None
    text, mentioned = replace_names(text, names)
    assignment = Assignment(len(names), mentioned)
    reader = _LineReader(assignment)
    settled = assignment.settled() if all(map(reader.read_line, text.lower().split("\n"))) else None
    return None if settled is None else {name: settled[person] for person, name in enumerate(names)}


def _read_plain_lines(answer: str, names: tuple[str, ...]) -> dict[str, str] | None:
    """The common case, `(1) Zoey is a knight` on every line and nothing else, read without the full reader."""
    roles: dict[str, str] = {}
    for line in answer.strip().split("\n"):
        match = _PLAIN_LINE.fullmatch(line)
        if match is None or match[1] not in names or roles.setdefault(match[1], match[2]) != match[2]:
            return None
    return roles if len(roles) == len(names) else None


class _LineReader:
    """Reads the lines of an answer into an `Assignment`. Its methods say whether they understood all of it."""

    def __init__(self, assignment: Assignment) -> None:
        self._assignment = assignment
        self._clauses = ClauseReader(assignment)
        self._heading = ""  # the role a list of names stands under
        self._heading_awaits = False  # its first name
        self._open = Scope()  # of the line before

    def read_line(self, line: str) -> bool:
        start = _LINE_START.match(line)
        line = line[start.end() :].rstrip(" ✓✔✅") if start else line
        self._clauses.start_line()
        tokens = _TOKEN.findall(line)
        whole = tokens[:-1] if tokens and tokens[-1] in (".", ",", ";") else tokens
        if self._read_list_line(" ".join(whole)):
            return True
        if self._heading_awaits:  # "Knaves:" above "Zoey is a knight"
            return False
        return self._read_row(line) if "|" in line else self._read_sentences(tokens)

    def _read_row(self, line: str) -> bool:
        """A table row `| 1 | Zoey | knight | her statement is true |`, a header row or the ruler below it.

        The first two cells read like "Zoey: knight" or "knights: Zoey, Ava".
        """
        cells = [_TOKEN.findall(cell) for cell in line.split("|") if cell.strip()]
        if cells and _NUMBER_CELL.fullmatch("".join(cells[0])):
            del cells[0]
        if len(cells) > 1 and any(cell[0].startswith("@") for cell in cells[:2]):
            return all(map(self._read_sentences, [[*cells[0], ":", *cells[1]], *cells[2:]]))
        return all(set(cell) <= vocabulary.TABLE_WORDS or set("".join(cell)) <= set(":-") for cell in cells)

    def _read_list_line(self, line: str) -> bool:
        """An empty line, a heading `Knights:`, a name or names below it, or a bare `Zoey knight`."""
        if not line:
            return True
        if forms.HEADING_LINE.fullmatch(line):
            self._heading, self._heading_awaits = "knight" if "knight" in line else "knave", True
            return True
        if self._heading and forms.NAMES_LINE.fullmatch(line):
            self._assignment.claim(forms.people_in(line), self._heading)
            self._heading_awaits = False
            return True
        if self._heading_awaits:
            return False
        self._heading = ""
        match = forms.CLAIM_LINE.fullmatch(line)
        if match is not None:
            self._assignment.claim(forms.people_in(match["who"]), match["role"])
        return match is not None

    def _read_sentences(self, tokens: list[str]) -> bool:
        """Sentences of one line or table cell; reported words go on after a semicolon and before a leading "and"."""
        unbalanced = tokens.count("(") != tokens.count(")")  # also ";)" and ":("
        if unbalanced or (self._open.kind and tokens[0] in vocabulary.SEPARATORS):
            return False
        scope, end = Scope(), ""
        for text, next_end in _sentences(tokens):
            if scope.kind == "supposed" and text.startswith("then "):
                return False  # "If Zoey were a knave, Ava would be lying. Then Oliver is a knight."
            outcome = self._clauses.read_sentence(text, scope if end == ";" else Scope())
            end = next_end
            if outcome is None:
                return False
            scope = outcome
        self._open = Scope() if end else scope
        return True


def _sentences(tokens: list[str]) -> Iterator[tuple[str, str]]:
    """The sentences of a line, each with the mark that ends it ("" at the end of the line)."""
    sentence: list[str] = []
    for token in tokens:
        if token in (".", "!", ";"):
            yield " ".join(sentence), token
            sentence = []
        else:
            sentence.append(token)
    if sentence:
        yield " ".join(sentence), ""
