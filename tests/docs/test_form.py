"""Pages can be read where they are written: lines fit a screen, a cell holds a sentence, and no sentence becomes a list."""

import itertools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("", ".github", "docs", "examples", "recipes", "studies")
PAGES = sorted(
    path
    for folder in FOLDERS
    for path in (ROOT / folder).glob("**/*.md" if folder else "*.md")
    if "node_modules" not in path.parts
)
LONGEST_LINE = 130
LONGEST_CELL = 300
# What a page was before is in the history of the repository. "is used to", "is renamed to" say what is.
_CHANGED = "(?:added|changed|extended|moved|reworked|rewritten|removed|renamed|replaced|fixed)"
HISTORY = re.compile(
    r"\b(?:no longer|not any ?more|any ?more|previously|formerly|hitherto|until now|up to now|in the past|since the last|"
    r"(?<!is )(?<!are )(?<!be )(?<!was )(?<!were )(?<!been )used to (?!a |an |the )|"
    r"now (?:also|uses?|takes?|has|have|reads?|is|are)|"
    rf"ha(?:s|ve) (?:been |since ){_CHANGED}|has changed since|(?:was|were) (?:re(?:worked|written|named)|moved to\b)|"
    r"(?:earlier|old(?:er)?|previous|former) (?:versions? of this|name|behaviou?r|releases? of this)|as before\b)",
    re.IGNORECASE,
)
GENERATED = re.compile(r"<!-- (.+): begin -->.*?<!-- \1: end -->", re.DOTALL)


def long_parts(text):
    """Lines outside tables and what a program writes, and cells of tables, that are too long."""
    text, found = GENERATED.sub(lambda match: "\n" * match[0].count("\n"), text), []
    for number, line in enumerate(text.splitlines(), 1):
        row = line.lstrip().startswith("|")
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)] if row else []
        if (not row and len(line) > LONGEST_LINE) or any(len(cell) > LONGEST_CELL for cell in cells):
            found.append(f"{number}: {line[:60]}")
    return found


def torn_sentences(text):
    """Lines within a paragraph that a renderer takes for an item of a list, as a number at the end of a sentence makes one."""
    text, found, behind = re.sub(r"^```.*?^```", "", GENERATED.sub("", text), flags=re.DOTALL | re.MULTILINE), [], {}
    for before, line in itertools.pairwise(["", *text.splitlines()]):
        if item := re.match(r"( *)(\d+)\. ", line):
            number = int(item[2])
            if before.strip() and number not in (1, behind.get(item[1], 0) + 1):
                found.append(line)
            behind[item[1]] = number
    return found


def test_pages_are_found():
    names = {path.relative_to(ROOT).as_posix() for path in PAGES}
    assert {"README.md", "docs/data.md", "docs/results/chains.md", "studies/README.md"} <= names


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_lines_and_cells_are_short(page):
    assert long_parts(page.read_text()) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_sentence_becomes_an_item_of_a_list(page):
    assert torn_sentences(page.read_text()) == []


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("- it is level at\n  320. Then", 1),
        ("it ends at\n2. Then", 1),
        ("1. a\n   b\n2. c\n   1. d", 0),
        ("```\na\n7. b\n```", 0),
    ],
)
def test_a_torn_sentence_is_seen(text, count):
    assert len(torn_sentences(text)) == count


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("a " * 66, 1),
        ("a " * 65, 0),
        ("| " + "a " * 160 + "|", 1),
        ("| " + "a " * 140 + " | " + "b " * 140 + "|", 0),
        ("<!-- t: begin -->\n" + "a " * 80 + "\n<!-- t: end -->", 0),
    ],
)
def test_a_long_line_or_cell_is_seen(text, count):
    assert len(long_parts(text)) == count


def history_in(text):
    """Phrases of a page that tell what was there before; code is left out."""
    prose = re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.DOTALL)
    return [" ".join(prose[max(0, found.start() - 40) : found.end() + 40].split()) for found in HISTORY.finditer(prose)]


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=lambda path: str(path.relative_to(ROOT))
)
def test_a_page_says_what_is_and_not_what_was(page):
    assert history_in(page.read_text()) == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("The option used to be a list.", True),
        ("The loss no longer\nreads it.", True),
        ("`eval` now also takes a directory.", True),
        ("The key was renamed to `reward`.", True),
        ("The trainer has changed since.", True),
        ("Formerly it was `search`.", True),
        ("An adapter is used to teach the form; the mask used to the left.", False),
        ("A damaged file is renamed to `data.pt.damaged`.", False),
        ("From now on the seed decides, since both lists agree.", False),
        ("```\nno longer\n```", False),
    ],
)
def test_history_is_told_apart_from_what_happens(text, told):
    assert bool(history_in(text)) == told


# A noun is denied by "not a": "is no file" reads as an idiom. A hundred "nobody" hide who is meant.
PRIVATE = re.compile(
    r"(?<![Tt]here )\b(?:is|are|was|were) no (?!longer|more|less|later|fewer|higher|lower)[a-z]|\bnobody\b|\bfor nothing\b|"
    r"\bwithout a word\b|\bmends?\b"
)
SOURCES = sorted(
    path for folder in ("verl_trgrpo", "recipes", "examples") for path in (ROOT / folder).glob("**/*.[psy][yha]*")
)


def test_texts_are_plain_english():
    """Pages, docstrings, messages and comments have no phrase of the project's own."""
    found = {
        f"{path.relative_to(ROOT)}: {phrase[0]}"
        for path in (*PAGES, *SOURCES)
        if path.is_file()
        for phrase in PRIVATE.finditer(" ".join(path.read_text(errors="ignore").split()))
    }
    assert found == set()
