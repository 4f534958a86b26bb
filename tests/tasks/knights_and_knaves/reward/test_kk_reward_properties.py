"""What holds for every response, every puzzle and every right answer."""

import itertools
import re
import unicodedata

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.tasks.knights_and_knaves.reward.kk_answer_cases import REST, RIGHT, TRUTH, WRONG
from tests.tasks.knights_and_knaves.reward.kk_attack_cases import UNPARSED
from tests.tasks.knights_and_knaves.reward.kk_responses import ROLES, respond, write_truth
from verl_trgrpo.tasks.knights_and_knaves.reward.scorer import score_knights_and_knaves

_ONE_WORD_NAMES = (
    "Zoey Oliver Ava Ann Anna Jo Jordan Li Will Grace Mark James José Zoë 李雷 Ольга अनिल O'Brien Anne-Marie A B"
)
NAMES = [*_ONE_WORD_NAMES.split(), "Li Wei", "Mary Jane", "Dr. Smith", "Person 1"]


def score(answer: str, truth: str = TRUTH) -> float:
    return score_knights_and_knaves(respond(answer), truth).score


def by_role(people: list[tuple[str, str]], layout: str) -> str:
    groups = {role: [name for name, has in people if has == role] for role in ("knight", "knave")}
    return layout.format(*(", ".join(group) or "none" for group in groups.values()))


RENDERINGS = {
    "lines": lambda people: "\n".join(f"{name} is a {role}" for name, role in people),
    "numbers": lambda people: "\n".join(f"{k}. {name} is a {role}." for k, (name, role) in enumerate(people, 1)),
    "bold": lambda people: "\n".join(f"- **{name}**: {role.title()}" for name, role in people),
    "sentence": lambda people: "So " + ", and ".join(f"{name} is the {role}" for name, role in people) + ".",
    "capitals": lambda people: "; ".join(f"{name} IS A {role.upper()}" for name, role in people),
    "table": lambda people: "| Name | Role |\n|---|---|\n" + "\n".join(f"| {name} | {role} |" for name, role in people),
    "by role": lambda people: by_role(people, "Knights: {}\nKnaves: {}"),
    "reasons": lambda people: "\n".join(
        f"{name} is a {role} because {name}'s statement is {'true' if role == 'knight' else 'false'}."
        for name, role in people
    ),
    "decomposed": lambda people: unicodedata.normalize("NFD", "\n".join(f"{name} = {role}" for name, role in people)),
    "prose": lambda people: (
        "After checking each statement, the only consistent assignment is:\n"
        + "\n".join(f"({k}) {name} is a {role}" for k, (name, role) in enumerate(people, 1))
        + "\nThis satisfies all the statements."
    ),
}


def with_roles(names: st.SearchStrategy[list[str]]) -> st.SearchStrategy[tuple[list[str], str]]:
    return names.flatmap(
        lambda names: st.tuples(st.just(names), st.text("kv", min_size=len(names), max_size=len(names)))
    )


PUZZLES = with_roles(st.lists(st.sampled_from(NAMES), min_size=1, max_size=8, unique=True))

# Letters and digits of any script, and words of the answers themselves; as in the data, no two names that look alike.
_WORDS = st.text(st.characters(categories=["Lu", "Ll", "Lt", "Lo", "Nd"]), min_size=1, max_size=10)
_WORD_NAMES = "Knight Knave Is A The And Not Nobody Everyone Who None So Both Other If 1 Island Answer Then"
ANY_NAME = st.one_of(
    st.lists(_WORDS, min_size=1, max_size=3).map(" ".join), st.sampled_from([*NAMES, *_WORD_NAMES.split()])
)
ANY_PUZZLES = with_roles(st.lists(ANY_NAME, min_size=1, max_size=8, unique_by=lambda name: spelling(name)))


def spelling(name: str) -> str:
    return unicodedata.normalize("NFKC", name).casefold()


@settings(max_examples=300)
@given(ANY_PUZZLES)
def test_gold_scores_full_marks_for_any_names_and_roles(puzzle):
    truth = write_truth(*puzzle)
    assert score(truth, truth) == 3


@settings(max_examples=300)
@given(ANY_PUZZLES, st.data())
def test_a_mutated_gold_does_not_score_full_marks(puzzle, data):
    names, roles = puzzle
    truth = write_truth(names, roles)
    lines = truth.split("\n")
    victim = data.draw(st.sampled_from(range(len(names))))
    other_role = "v" if roles[victim] == "k" else "k"
    flipped = write_truth(names, roles[:victim] + other_role + roles[victim + 1 :]).split("\n")
    position = data.draw(st.integers(0, len(lines)))
    doubled = [*lines[:position], flipped[victim], *lines[position:]]
    dropped = lines[:victim] + lines[victim + 1 :]
    assert score("\n".join(flipped), truth) < 3
    assert score("\n".join(doubled), truth) < 3
    assert score("\n".join(dropped), truth) < 3


@given(PUZZLES, st.sampled_from(sorted(RENDERINGS)), st.data())
def test_any_rendering_of_the_truth_scores_full_marks_and_of_a_mutation_does_not(puzzle, rendering, data):
    names, roles = puzzle
    truth = write_truth(names, roles)
    people = [(name, ROLES[role]) for name, role in zip(names, roles, strict=True)]
    if rendering != "by role":
        people = data.draw(st.permutations(people))
    assert score(RENDERINGS[rendering](people), truth) == 3
    victim = data.draw(st.sampled_from(range(len(people))))
    name, role = people[victim]
    mutated = [*people[:victim], (name, "knave" if role == "knight" else "knight"), *people[victim + 1 :]]
    assert score(RENDERINGS[rendering](mutated), truth) == -0.5
    assert score(RENDERINGS[rendering](people) + "\n" + RENDERINGS["lines"](mutated), truth) == -1
    if len(people) > 1:
        assert score(RENDERINGS["lines"](people[:victim] + people[victim + 1 :]), truth) == -1


ANSWERS = [
    answer.replace("...", REST)
    for table in (RIGHT, WRONG, UNPARSED)
    for answers in table.values()
    for answer in answers
]
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
    stretched = re.sub(" ", lambda _: next(widths), answer)
    assert score(stretched) == score(answer)


_FRAGMENTS = (
    "Zoey|Oliver|Ava|knight|knave|knights|knaves| is a | are |: |, | and |.|;|\n|(1) | not |if |because |so |says |he |"
    "-|(|)|every|all |the |other |only |two |'s |CLAIM0|@0|<|**|~~|…|١|⁇|\u0301|\u200d"
)
FRAGMENTS = st.sampled_from([*_FRAGMENTS.split("|"), "|"])


ANY_TEXT = st.text(st.characters(), max_size=200)  # lone surrogates and control characters among them
_PARTS = "<think>|</think>|<answer>|</answer>|<think>a</think><answer>|<|im_end|>|</s>| "
PARTS = st.one_of(st.sampled_from([*_PARTS.split("|"), "<|im_end|>", TRUTH]), FRAGMENTS, ANY_TEXT)


@example(") Zoey is a knight (")
@given(st.one_of(st.lists(FRAGMENTS, max_size=60).map("".join), ANY_TEXT))
def test_no_answer_raises(answer):
    assert score(answer) in (3, -0.5, -1, -3)


@given(st.lists(PARTS, max_size=12).map("".join))
def test_no_response_raises(response):
    assert score_knights_and_knaves(response, TRUTH).score in (3, -0.5, -1, -3)
