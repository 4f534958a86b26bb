"""Demonstrations that the models of the demonstrations were warm-started on.

They are partly careless on purpose, so that the model is rarely careful of its own accord although it can be: reinforcement
learning then has a behaviour to select, as it has in large models.

- `puzzle_demonstrations`: truth tables of Knights-and-Knaves puzzles, or a guess.
- `search_demonstrations`: searches in an invented world, or a guess.
- `word_problem_demonstrations`: worked solutions of two steps, some with a wrong result.
- `case_demonstrations`: cases of two-person puzzles in English, or a hunch.
- `choice_demonstrations`: short answers to the question which of three words is of a kind, most of them at random.
"""

from __future__ import annotations

import random
import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice, product
from pathlib import Path

from examples import two_person_puzzles, word_problems
from examples.makers import categories
from examples.search_world import PROFESSIONS, Question, World, corpus_text, make_world
from examples.search_world import prompt_messages as question_messages
from examples.word_problems import Step, WordProblem, calculate
from verl_trgrpo.demos import puzzles
from verl_trgrpo.retrieval.index import Index, IndexOptions, build_index
from verl_trgrpo.tasks.knights_and_knaves.logic import LEAVES, Statement, is_true
from verl_trgrpo.tasks.knights_and_knaves.puzzles import (
    Puzzle,
    format_response,
    generate_puzzles,
    joined,
    puzzle_prompt,
)
from verl_trgrpo.tasks.search_qa.format import observation_frame, passages_text


@dataclass(frozen=True)
class Segment:
    """A piece of a response. What the model reads (``by_model=False``), such as found passages, is not learned."""

    text: str
    by_model: bool = True


@dataclass(frozen=True)
class Demonstration:
    """Chat messages and the response to them, in one or more segments."""

    messages: list[dict[str, str]]
    segments: Sequence[Segment]


# Puzzles of the quickstart's model. Of the 48 two-person puzzles of the warm start's half so many are shown.
MOST_TWO_PERSON_PUZZLES = 40
# Shares of the numbers of people, by the largest.
SIZE_SHARES = {3: {2: 0.2, 3: 0.8}, 4: {2: 0.1, 3: 0.3, 4: 0.6}}


# A step can be said in several ways, of which chance takes one. Most unlikely tokens of a language model are of this kind;
# without them every token of this model would be nearly certain, and all weights of TR-GRPO nearly equal.
WORDINGS = {
    "guess": ("guess", "hunch", "maybe", "luck"),
    "try": ("try", "say", "let", "suppose"),
    "so": ("so", "thus", "hence", "then"),
    "ok": ("ok", "fits", "fine", "good"),
    "no": ("no", "fails", "wrong", "bad"),
}
WORDING_SHARES = (0.45, 0.25, 0.2, 0.1)


def pool_sizes(puzzles_per_size: int, most_people: int) -> dict[int, int]:
    """Return how many different puzzles a warm start shows, by number of people."""
    return {
        size: min(puzzles_per_size, MOST_TWO_PERSON_PUZZLES if size == 2 else puzzles_per_size)
        for size in SIZE_SHARES[most_people]
    }


def puzzle_demonstrations(
    rng: random.Random, shares: Iterator[float], seed: int, puzzles_per_size: int, most_people: int
) -> Iterator[Demonstration]:
    """Yield variations of the warm start's puzzles with responses.

    Puzzles refer to people by number, which spares the model a step: a mention is one token, the same in every puzzle. The name
    occurs once, after the very token that stands before it in the answer, so that copying it is a matter of looking up.

    Args:
        rng: chooses puzzles, variations and guesses.
        shares: probability of each demonstration to be careful.
        seed: of the puzzles.
        puzzles_per_size: different puzzles per number of people.
        most_people: puzzles have two to this many people, see `SIZE_SHARES`.
    """
    weights = SIZE_SHARES[most_people]
    pools = {
        size: [*generate_puzzles(size, number, seed, exclude=puzzles.HELD_OUT)]
        for size, number in pool_sizes(puzzles_per_size, most_people).items()
    }
    for share in shares:
        (size,) = rng.choices([*weights], [*weights.values()])
        puzzle = two_person_puzzles.vary(rng.choice(pools[size]), rng)
        response = truth_table_response(puzzle, rng.random() < share, rng)
        yield Demonstration(puzzle_prompt(puzzle, terse=True), [Segment(response)])


def truth_table_response(puzzle: Puzzle, careful: bool, rng: random.Random) -> str:
    """Return a response ``<think>...</think><answer>...</answer>``.

    A careful one works out the truth table and is right. A careless one says ``guess``, or the like, and states an assignment
    drawn uniformly.
    """
    if careful:
        return format_response(truth_table_reasoning(puzzle, rng), puzzle.names, puzzle.solution)
    return format_response(_worded("guess", rng), puzzle.names, tuple(rng.random() < 0.5 for _ in puzzle.names))


def truth_table_reasoning(puzzle: Puzzle, rng: random.Random) -> str:
    """Return the search for the solution, one line per assignment, knights first, up to the one that fits.

    A line gives each person's role (K knight, N knave), then checks the statements in turn up to the first misfit: the
    speaker, the truth (T or F) of the parts of a composed statement and of the whole, then ``ok`` or ``no``. For example
    ``try K N (1) T F T so ok (2) T so no``: if the first is a knight and the second a knave, the first one's statement is true
    (its first part is, its second is not), as it should be, but so is the second one's, which should not be. `rng` draws the
    wording, see `WORDINGS`.
    """
    lines = []
    for assignment in product((True, False), repeat=len(puzzle.names)):
        words = [_worded("try", rng), *("K" if is_knight else "N" for is_knight in assignment)]
        fits = True
        for person, (is_knight, statement) in enumerate(zip(assignment, puzzle.statements, strict=True), start=1):
            parts = () if statement[0] in LEAVES else statement[1:]
            truths = [is_true(part, assignment) for part in (*parts, statement)]
            words += [f"({person})", *("T" if truth else "F" for truth in truths)]
            fits = truths[-1] == is_knight
            words += [_worded("so", rng), _worded("ok" if fits else "no", rng)]
            if not fits:
                break
        lines.append(" ".join(words))
        if fits:
            break
    return "\n".join(lines)


def _worded(word: str, rng: random.Random) -> str:
    (chosen,) = rng.choices(WORDINGS[word], WORDING_SHARES)
    return chosen


TOPK = 2
EXAMPLES_PER_WORLD = 640


def search_demonstrations(rng: random.Random, shares: Iterator[float], seed: int) -> Iterator[Demonstration]:
    """Yield trajectories, half of them about questions that take two searches, one world after the other.

    With one world the model would learn its few countries by heart instead of reading them. Arguments are those of
    `puzzle_demonstrations`.
    """
    for number in count():
        world = make_world("warm start", f"{seed}/{number}")
        people = [*world.people]
        with tempfile.TemporaryDirectory() as directory:
            index = open_index(world, Path(directory))
            for _ in range(EXAMPLES_PER_WORLD):
                *short, long = world.questions(rng.choice(people))
                question = long if rng.random() < 0.5 else rng.choice(short)
                careful = rng.random() < next(shares)
                segments = trajectory(question, world, index, careful, rng)
                yield Demonstration(question_messages(question), segments)


def open_index(world: World, directory: Path) -> Index:
    """Write the world's documents and their index to `directory` and return the index, opened."""
    corpus = directory / "corpus.jsonl"
    corpus.write_text(corpus_text(world), encoding="utf-8")
    build_index(IndexOptions(corpus=corpus, out=directory / "index"))
    return Index(directory / "index")


def trajectory(question: Question, world: World, index: Index, careful: bool, rng: random.Random) -> list[Segment]:
    """Return everything after the prompt.

    A careful trajectory searches as often as needed and is right. A careless one guesses; where two searches are needed, every
    second one answers after the first instead.

    Args:
        question: what is asked.
        world: wrong answers are drawn from it.
        index: of the world's documents; observations are what it really finds.
        careful: see above.
        rng: draws guesses.
    """
    if not careful and (len(question.path) == 1 or rng.random() < 0.5):
        return [Segment(f"<think>guess</think><answer>{_guess(question, world, rng)}</answer>")]
    segments = []
    for title in question.path if careful else question.path[:1]:
        segments.append(Segment(f"<think>search</think><search>{title}</search>"))
        segments.append(Segment(observation(index, title), by_model=False))
    answer = question.answer if careful else world.people[question.path[0]][1]
    segments.append(Segment(f"<think>found</think><answer>{answer}</answer>"))
    return segments


def observation(index: Index, query: str) -> str:
    """Return the observation after a search, as the agent loop writes it."""
    opening, closing = observation_frame()
    return opening + passages_text(index.search([query], TOPK)[0]) + closing


def _guess(question: Question, world: World, rng: random.Random) -> str:
    if question.answer in PROFESSIONS:
        return rng.choice(PROFESSIONS)
    places = world.towns.keys() if len(question.path) == 1 else {*world.towns.values()}
    return rng.choice(sorted(places))


# Share of the calculations of a worked solution that have a wrong result.
CARELESS = 0.3

_OPENINGS = (
    "", "", "", "Let's see. ", "Let's work it out. ", "Step by step: ", "We need two steps. ", "Let me think. ", "OK. ",
)  # fmt: skip
_FIRST = ("First, {}", "We start with {}", "To begin with, {}", "{}", "{}", "Start: {}", "At first we get {}")
_SECOND = ("Then {}", "Next, {}", "After that, {}", "{}", "So {}", "Now {}", "From this, {}", "And {}", "Finally {}")
_FORMS = (
    "{expression} = {value}",
    "{expression} = {value}",
    "{words} is {value}",
    "{words} gives {value}",
    "{words} makes {value}",
    "{value}, because {expression} = {value}",
    "we get {value} from {expression}",
)
_CLOSINGS = (
    "The answer is \\boxed{{{}}}.",
    "So the answer is \\boxed{{{}}}.",
    "\\boxed{{{}}}",
    "Therefore, the final answer is \\boxed{{{}}}.",
    "That is \\boxed{{{}}}.",
    "Answer: \\boxed{{{}}}",
    "Hence \\boxed{{{}}}.",
    "In total: \\boxed{{{}}}.",
)
_OPERATIONS = {
    "+": ("plus", "and", "added to"), "-": ("minus", "less", "take away"), "*": ("times", "multiplied by"),
    "/": ("divided by", "over"),
}  # fmt: skip


def word_problem_demonstrations(seed: int) -> list[Demonstration]:
    """Return a worked solution of each of the warm start's problems; `seed` chooses wordings and mistakes."""
    rng = random.Random(seed)
    return [
        Demonstration(word_problems.prompt_messages(problem), [Segment(worked_solution(problem, rng))])
        for problem in word_problems.split_problems()["warm_start"]
    ]


def worked_solution(problem: WordProblem, rng: random.Random, careless: float = CARELESS) -> str:
    r"""Return a worked solution that ends with its result in ``\boxed{}``.

    `careless` is the probability of each calculation to have a wrong result; the second one goes on from it.
    """
    first, second = problem.steps
    wrong = first.value if rng.random() >= careless else _slip(first.value, rng)
    expression = " ".join(str(wrong) if word == str(first.value) else word for word in second.expression.split())
    value = second.value if wrong == first.value else max(round(calculate(expression)), 0)
    if rng.random() < careless:
        value = _slip(value, rng)
    steps = Step(first.expression, wrong, first.sentence), Step(expression, value, second.sentence)
    calculations = [f"{step.expression} = {step.value}" for step in steps]
    if rng.random() < 0.4:
        sentences = [
            step.sentence.replace("{calculation}", shown) for step, shown in zip(steps, calculations, strict=True)
        ]
        body = " ".join(sentence.rstrip(".") + "." for sentence in sentences)
    elif rng.random() < 0.25:
        body = "\n".join(f"{number}. {shown}" for number, shown in enumerate(calculations, start=1))
    else:
        body = f"{_sentence(steps[0], rng.choice(_FIRST), rng)} {_sentence(steps[1], rng.choice(_SECOND), rng)}"
    return f"{rng.choice(_OPENINGS)}{body}{rng.choice((' ', ' ', chr(10)))}{rng.choice(_CLOSINGS).format(value)}"


def _sentence(step: Step, opening: str, rng: random.Random) -> str:
    words = re.sub(r"(?<= )[-+*/](?= )", lambda match: rng.choice(_OPERATIONS[match[0]]), step.expression)
    text = opening.format(rng.choice(_FORMS).format(expression=step.expression, words=words, value=step.value))
    return text[0].upper() + text[1:] + "."


def _slip(value: int, rng: random.Random) -> int:
    """Return a whole number near `value`, never `value` itself, as somebody in a hurry would get it."""
    wrong = value + rng.choice((-10, -3, -2, -1, -1, 1, 1, 2, 3, 10))
    return wrong if wrong > 0 else value + 1


# Share of the choices that are random.
RANDOM_CHOICES = 0.9

_REMARKS = (
    "", "Let me see.", "Easy.", "I know this.", "Here it is.", "That is simple.", "So we get this.", "One moment.",
    "Let us look.", "Good question.",
)  # fmt: skip


def choice_demonstrations(seed: int) -> list[Demonstration]:
    """Return an answer to each of the warm start's questions: a remark that says nothing and, in its own line, a word."""
    rng = random.Random(seed)
    shown = []
    for choice in categories.choices("warm_start", categories.WARM_START):
        word = rng.choice(choice.words) if rng.random() < RANDOM_CHOICES else choice.answer
        remark = rng.choice(_REMARKS)
        answer = f"{remark}{chr(10) if remark else ''}Answer: {word}"
        shown.append(Demonstration(categories.prompt_messages(choice), [Segment(answer)]))
    return shown


# Two-person puzzles of the small language model: how many responses, which share of them states a feeling and a random answer,
# and which share of the judgements in the others is wrong.
CASES, HUNCH, SLIP = 2400, 0.4, 0.1

_CASE_OPENINGS = ("", "", "", "Let's see. ", "OK. ", "Let me check. ", "Step by step: ", "There are four cases. ")
_SUPPOSE = ("Suppose {}.", "Say {}.", "Assume {}.", "Try this: {}.", "If {}:", "What if {}?", "First guess: {}.")
_AGAIN = ("Suppose {}.", "Say {} then.", "Now assume {}.", "So try this: {}.", "If {}:", "What if {}?", "Next: {}.")
_ROLES: dict[tuple[bool, ...], tuple[str, ...]] = {
    (True, True): ("both are knights", "{0} and {1} are knights", "both tell the truth"),
    (True, False): ("{0} is a knight and {1} is a knave", "{0} tells the truth and {1} lies", "only {1} lies"),
    (False, True): ("{0} is a knave and {1} is a knight", "{0} lies and {1} tells the truth", "only {0} lies"),
    (False, False): ("both are knaves", "{0} and {1} are knaves", "both lie"),
}
# Of a claim that has parts, their truth comes first.
_CLAIMS = (
    "{name}'s words are {parts}{truth}",
    "{name} says something {parts}{truth}",
    "What {name} says is {parts}{truth}",
    "{name}: {parts}{truth}",
)
_PARTS = ("{}, so ", "{}, that is ", "{}, which makes ")
_FITS = (", which fits.", ", as it should be.", ", fine.", ". Good.", ", and {name} is a {role}.")
_MISFITS = (", but {name} is a {role}.", ", which cannot be.", ". No.", ", a contradiction.", ", so no.")
_HUNCHES = (
    "{} sounds like a {}, I think, and {} like a {}.",
    "My feeling is that {} is a {} and {} a {}.",
    "Probably {} is the {} and {} the {}.",
    "I would guess {}: {}, {}: {}.",
)


def case_demonstrations(seed: int) -> list[Demonstration]:
    """Return responses to puzzles of the warm start's half; `seed` chooses puzzles, wordings and mistakes."""
    rng = random.Random(seed)
    shown = [*generate_puzzles(two_person_puzzles.PEOPLE, two_person_puzzles.HALF, 0, exclude=puzzles.HELD_OUT)]
    return [
        Demonstration(puzzle_prompt(puzzle), [Segment(case_response(puzzle, rng))])
        for puzzle in islice(two_person_puzzles.variants(shown, rng), CASES)
    ]


def case_response(puzzle: Puzzle, rng: random.Random, hunch: float = HUNCH, slip: float = SLIP) -> str:
    """Return a response to a puzzle with two people: its cases tried in random order up to one that fits, or a hunch.

    `hunch` is the probability of a hunch, `slip` that of each judgement of a claim to be wrong.
    """
    cases = rng.sample([*product((True, False), repeat=two_person_puzzles.PEOPLE)], 2**two_person_puzzles.PEOPLE)
    case, words = cases[0], []
    if rng.random() < hunch:
        parts = [word for name, knight in zip(puzzle.names, case, strict=True) for word in (name, _role(knight))]
        words.append(rng.choice(_HUNCHES).format(*parts))
    else:
        for place, case in enumerate(cases):
            supposed = rng.choice(_ROLES[case]).format(*puzzle.names)
            words.append(rng.choice(_AGAIN if place else _SUPPOSE).format(supposed))
            checks, fits = _checks(puzzle, case, rng, slip)
            words += checks
            if fits:
                break
    return format_response(rng.choice(_CASE_OPENINGS) + " ".join(words), puzzle.names, case)


def _checks(puzzle: Puzzle, case: Sequence[bool], rng: random.Random, slip: float) -> tuple[list[str], bool]:
    """Return a sentence for each claim up to the first that does not fit, and whether all fit."""
    sentences = []
    for person in rng.sample(range(two_person_puzzles.PEOPLE), two_person_puzzles.PEOPLE):
        name, knight = puzzle.names[person], case[person]
        truth = is_true(puzzle.statements[person], case) != (rng.random() < slip)
        parts = _parts(puzzle.statements[person], case)
        shown = rng.choice(_PARTS).format(parts) if parts else ""
        form = rng.choice(_CLAIMS) + rng.choice(_FITS if truth == knight else _MISFITS)
        sentences.append(form.format(name=name, parts=shown, truth=_word(truth), role=_role(knight)))
        if truth != knight:
            return sentences, False
    return sentences, True


def _parts(statement: Statement, case: Sequence[bool]) -> str:
    """Return a composed claim with the truth of its parts in their places, such as ``true or false``; "" for a simple one."""
    operator, *operands = statement
    if operator in LEAVES:
        return ""
    words = [_word(is_true(operand, case)) for operand in operands]
    return joined(operator, words, terse=operator == "not")


def _word(truth: bool) -> str:
    return "true" if truth else "false"


def _role(knight: bool) -> str:
    return "knight" if knight else "knave"
