"""What holds for every response, every puzzle and every right answer."""

import itertools
import re
from unicodedata import normalize

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.tasks.knights_and_knaves.kk_answer_cases import (
    PROSE,
    REST,
    RIGHT,
    ROLES,
    TRUTH,
    WRONG,
    respond,
    write_truth,
)
from tests.tasks.knights_and_knaves.kk_attack_cases import UNPARSED
from verl_trgrpo.tasks.knights_and_knaves.reward import score_knights_and_knaves

_ONE_WORD_NAMES = (
    "Zoey Oliver Ava Ann Anna Jo Jordan Li Will Grace Mark James José Zoë 李雷 Ольга अनिल O'Brien Anne-Marie A B 1 "
    "Knight Knave Is The And Not Nobody Everyone Who None So Both Other If Island Answer Then"
)
NAMES = [*_ONE_WORD_NAMES.split(), "Li Wei", "Mary Jane", "Dr. Smith", "Person 1", "Tom and Jerry"]
# Letters and digits of any script; as in the data, no two names that look alike, and none that begins as a further claim does.
_WORDS = st.text(st.characters(categories=["Lu", "Ll", "Lt", "Lo", "Nd"]), min_size=1, max_size=10)
_MANY_WORDS = st.lists(_WORDS, min_size=1, max_size=3).map(" ".join)
_MANY_WORDS = _MANY_WORDS.filter(lambda name: not normalize("NFKC", name).casefold().startswith("and "))
ANY_NAME = st.one_of(_MANY_WORDS, st.sampled_from(NAMES))
PUZZLES = st.lists(ANY_NAME, min_size=1, max_size=8, unique_by=lambda name: normalize("NFKC", name).casefold()).flatmap(
    lambda names: st.tuples(st.just(names), st.text("kv", min_size=len(names), max_size=len(names)))
)


def score(answer: str, truth: str = TRUTH) -> float:
    return score_knights_and_knaves(respond(answer), truth).score


# The accepted language: how a claim may look, and what may stand between two claims.
CLAIMS = ("{} is a {}", "{} is a {}.", "({k}) {} is a {}", "{k}. {} is a {}.", "{k}) {} is a {}", "- {} is a {}",
          "- **{}** is a **{}**", "* {} is a {}.", "• ({k}) {} is a {}", "**{} is a {}**", "{k}: {} is a {}!",
          "（{k}）{} is a {}！", "– {} is a {} –", "`{}`: a {}", "{k} - {} is a {}", "+ __{}__ is a {}")  # fmt: skip
SEPARATORS = (
    "\n",
    "\n\n",
    "\u200b\n",
    "；",
    " & ",
    ".\n",
    ",\n",
    "\r\n",
    "; ",
    ";",
    ", ",
    " and ",
    ", and ",
    ";\nand ",
)
CASES = (str, str.lower, str.upper)


@st.composite
def answers(draw, names, roles):
    """One claim for each person, in any order, written in any mixture of the accepted forms."""
    text = draw(st.sampled_from(["", "\n"]))
    for k, person in enumerate(draw(st.permutations(range(len(names)))), start=1):
        claim = draw(st.sampled_from(CLAIMS)).format(names[person], ROLES[roles[person]], k=k)
        # Upper and lower case of rare letters are not always the same letter.
        case = draw(st.sampled_from(CASES if names[person].isascii() else CASES[:1]))
        separator = draw(st.sampled_from(SEPARATORS)) if text.strip() else ""
        text += separator.removeprefix("." if text.endswith((".", "!", "！", "–")) else "") + case(claim)
    return text


@pytest.mark.parametrize("form", ["{}: a {}", "`{}`: {}", "{} - a {}", "{} - {}"])
def test_a_person_named_by_a_number_is_not_a_list_mark(form):
    names, roles = ["B", "1", "A", "Knight"], "kvkv"
    answer = "\n".join(form.format(name, ROLES[role]) for name, role in zip(names, roles, strict=True))
    assert score(answer, write_truth(names, roles)) == 3
    numbered = "\n".join(
        f"{k}: {name}: {ROLES[role]}" for k, (name, role) in enumerate(zip(names, roles, strict=True), start=1)
    )
    assert score(numbered, write_truth(names, roles)) == 3


@pytest.mark.parametrize("name", ["Knight 0", "Knave 7", "Knight Li", "A Knight 12"])
@pytest.mark.parametrize("form", [form for form in CLAIMS if "{k" in form])
def test_a_list_mark_stands_before_a_name_that_begins_with_a_role(name, form):
    for role, score_of_it in (("k", 3), ("v", -0.5)):
        assert score(form.format(name, ROLES[role], k=1), write_truth([name], "k")) == score_of_it


@given(PUZZLES, st.data())
def test_every_way_to_write_the_truth_is_right_and_every_flip_is_wrong(puzzle, data):
    names, roles = puzzle
    truth = write_truth(names, roles)
    assert score(truth, truth) == 3
    assert score(data.draw(answers(names, roles)), truth) == 3
    for person, role in enumerate(roles):
        flipped = roles[:person] + ("v" if role == "k" else "k") + roles[person + 1 :]
        assert score(data.draw(answers(names, flipped)), truth) == -0.5


@settings(max_examples=300)
@given(PUZZLES, st.data())
def test_a_contradiction_or_a_missing_person_settles_nothing(puzzle, data):
    names, roles = puzzle
    truth = write_truth(names, roles)
    lines = truth.split("\n")
    victim = data.draw(st.sampled_from(range(len(names))))
    flipped = write_truth(names, roles.translate({ord("k"): "v", ord("v"): "k"})).split("\n")[victim]
    position = data.draw(st.integers(0, len(lines)))
    assert score("\n".join([*lines[:position], flipped, *lines[position:]]), truth) == -1
    assert score("\n".join(lines[:victim] + lines[victim + 1 :]), truth) == -1


ANSWERS = [
    answer.replace("...", REST)
    for answers in (RIGHT, WRONG, PROSE, *UNPARSED.values())
    for answer in answers
]  # fmt: skip
SPACES = st.text(st.sampled_from(" \t\n\r\u00a0\u3000"), max_size=5)
GAPS = st.lists(st.sampled_from([" ", "  ", "\t", "\u00a0 ", " \u3000"]), min_size=1)


@given(st.sampled_from(ANSWERS), SPACES, SPACES)
def test_white_space_around_the_parts_changes_nothing(answer, before, after):
    plain = score_knights_and_knaves(respond(answer), TRUTH)
    spaced = f"{before}<think>a</think>{after}<answer>{before}{answer}{after}</answer>{before}"
    assert score_knights_and_knaves(spaced, TRUTH) == plain


@given(st.sampled_from(ANSWERS), GAPS)
def test_the_width_of_gaps_between_words_changes_nothing(answer, gaps):
    widths = itertools.cycle(gaps)
    assert score(re.sub(" ", lambda _: next(widths), answer)) == score(answer)


_FRAGMENTS = "Zoey|Oliver|Ava|knight|knave| is a | is not a |, | and |.|;|\n|(1) |1. |- |if |so |-|(|)|<|**|~~|…|١|⁇"
FRAGMENTS = st.sampled_from([*_FRAGMENTS.split("|"), "\u0301", "\u200d"])
ANY_TEXT = st.text(st.characters(), max_size=200)  # lone surrogates and control characters among them
_PARTS = "<think> </think> <answer> </answer> <think>a</think><answer> <|im_end|> </s>"
PARTS = st.one_of(st.sampled_from([*_PARTS.split(), " ", TRUTH]), FRAGMENTS, ANY_TEXT)


@example(") Zoey is a knight (")
@given(st.one_of(st.lists(FRAGMENTS, max_size=60).map("".join), ANY_TEXT))
def test_no_answer_raises(answer):
    assert score(answer) in (3, -0.5, -1, -3)


@given(st.lists(PARTS, max_size=12).map("".join))
def test_no_response_raises(response):
    assert score_knights_and_knaves(response, TRUTH).score in (3, -0.5, -1, -3)
