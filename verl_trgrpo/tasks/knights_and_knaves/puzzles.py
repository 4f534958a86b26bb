"""Knights-and-Knaves puzzles with exactly one solution, generated without repetition; their prompts, answers and rows.

The statements come from the sampler of `reasoning-gym`, a port of the generator of the public data set
`K-and-K/knights-and-knaves` (github.com/AlphaPav/mem-kk-logic, arXiv 2410.23123). Solving, the check for repetition
and the wording are this package's own.
"""

import logging
import random
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from verl_trgrpo.data.rows import arrow_schema, build_row
from verl_trgrpo.tasks.knights_and_knaves.logic import LEAVES, Statement, canonical_key, unique_solution

if TYPE_CHECKING:
    import pyarrow as pa

EXTRA_INFO = ("n_people", "names", "statements", "origin")
CAPACITY = {2: 95, 3: 15_088, 4: 3_392_962}
"""Number of different puzzles that the sampler can make, by number of people; with more people there are over 10^8."""

# Draws in a row without a new puzzle after which the search ends, and after which it warns for the first time.
MAX_BARREN_DRAWS = 200_000
FIRST_WARNING = 10_000

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Puzzle:
    """A puzzle with exactly one solution; person ``i`` is called ``names[i]`` and speaks ``statements[i]``.

    Args:
        quiz: the puzzle in English.
        names: one per person.
        statements: see `logic`.
        solution: True for a knight, one entry per person.
        origin: its source, such as ``kk.jsonl#12``.
    """

    quiz: str
    names: tuple[str, ...]
    statements: tuple[Statement, ...]
    solution: tuple[bool, ...]
    origin: str = ""


def capacity_errors(n_people: int, count: int) -> list[str]:
    """Return a message if fewer than `count` different puzzles with `n_people` people exist."""
    capacity = CAPACITY.get(n_people)
    if capacity is None or count <= capacity:
        return []
    return [
        f"people={n_people}: {count} puzzles (train and test) were requested, but only {capacity} different ones exist; "
        "request fewer puzzles, or more people in each"
    ]


def generate_puzzles(n_people: int, count: int, seed: int, exclude: Container[str] = ()) -> Iterator[Puzzle]:
    """Yield `count` puzzles, no two with the same `canonical_key`.

    The stream depends on `n_people`, `seed` and `exclude` only: a larger `count` continues it.

    Args:
        n_people: 2 to 8.
        count: number of puzzles.
        seed: any integer.
        exclude: canonical keys of puzzles that must not appear, such as those of a test set.

    Raises:
        ValueError: `count` exceeds the `CAPACITY`, all other puzzles are excluded, or `MAX_BARREN_DRAWS` draws in a row
            found nothing new, which is announced by warnings.
    """
    from reasoning_gym.logic.knights_knaves import KKProblemSampler  # slow import, needed for sampling only

    if errors := capacity_errors(n_people, count):
        raise ValueError(errors[0])
    # Both generators get a seed that also depends on the size: one stream of random numbers for all sizes would
    # make the puzzles of different sizes resemble each other.
    sampler = KKProblemSampler(random.Random(f"statements/{n_people}/{seed}").getrandbits(64), n_people)
    seen: set[str] = set()
    excluded: set[str] = set()
    barren, warn_at = 0, FIRST_WARNING
    while len(seen) < count:
        found = f"{len(seen)} of {count} different puzzles with {n_people} people were found"
        if len(seen) + len(excluded) == CAPACITY.get(n_people) or barren == MAX_BARREN_DRAWS:
            raise ValueError(
                f"only {found}, and none in the last {barren} draws; request fewer puzzles, or more people in each"
            )
        if barren == warn_at:
            logger.warning("%s; none in the last %d draws, the search stops at %d", found, barren, MAX_BARREN_DRAWS)
            warn_at *= 2
        statements = sampler.sample()
        solution = unique_solution(statements)
        key = canonical_key(statements) if solution else ""
        if not solution or key in seen or key in exclude:
            barren += 1
            if key and key not in seen:
                excluded.add(key)
            continue
        barren, warn_at = 0, FIRST_WARNING
        rng = random.Random(f"wording/{n_people}/{seed}/{len(seen)}")
        seen.add(key)
        names = choose_names(n_people, rng)
        origin = f"generated/{n_people}ppl/seed{seed}#{len(seen)}"
        yield Puzzle(quiz_text(names, statements, rng), names, statements, solution, origin)


# No name is part of another one or a word of the quiz.
PERSON_NAMES = (
    "Abigail", "Adrian", "Alice", "Amelia", "Anton", "Arthur", "Beatrice", "Benjamin", "Bruno", "Camille", "Carlos",
    "Chloe", "Clara", "Daniel", "Diana", "Dmitri", "Edith", "Elena", "Emily", "Ethan", "Felix", "Fiona", "Florence",
    "Gabriel", "George", "Greta", "Hannah", "Harper", "Hector", "Helen", "Henry", "Hugo", "Ingrid", "Isaac", "Isabel",
    "Ivan", "Jacob", "Jasmine", "Jonas", "Julian", "Karim", "Laura", "Leon", "Lucas", "Lydia", "Marcus", "Martha",
    "Matilda", "Miriam", "Nadia", "Nathan", "Noah", "Nora", "Oliver", "Oscar", "Pablo", "Patrick", "Penelope", "Quentin",
    "Rachel", "Robert", "Rosa", "Samuel", "Scarlett", "Simon", "Sofia", "Stella", "Tara", "Theodore", "Ulrich", "Victor",
    "Violet", "Walter", "William", "Xavier", "Yusuf", "Zoey",
)  # fmt: skip

_ROLES = {"telling-truth": "a knight", "lying": "a knave"}

OPENING = "A very special island is inhabited only by knights and knaves. Knights always tell the truth, and knaves always lie."
CLOSING = "So who is a knight and who is a knave?"

SPEECH_TEMPLATES = (
    "{name} says that {claim}.",
    "{name} claims that {claim}.",
    "{name} tells you that {claim}.",
    "{name} insists that {claim}.",
    "{name} swears that {claim}.",
    "When asked, {name} answers that {claim}.",
    '{name} says: "{Claim}."',
    '{name} whispers, "{Claim}."',
    '{name} replies, "{Claim}."',
    '{name} shouts: "{Claim}!"',
    '"{Claim}," says {name}.',
    '"{Claim}," announces {name}.',
    '"{Claim}," {name} assures you.',
    'You hear {name} say: "{Claim}."',
    '{name} turns to you and says, "{Claim}."',
    'From {name} you learn: "{Claim}."',
)


INSTRUCTION = (
    "Solve the following logic puzzle. First reason step by step inside <think> and </think>. Then state the identity "
    "of each character inside <answer> and </answer>, one line per character in the order in which the puzzle "
    "introduces them, for example:\n"
    "<think>your reasoning</think>\n"
    "<answer>(1) [first character] is a knight\n"
    "(2) [second character] is a knave</answer>"
)


def choose_names(n_people: int, rng: random.Random) -> tuple[str, ...]:
    """Return `n_people` distinct names of `PERSON_NAMES` in random order."""
    return tuple(rng.sample(PERSON_NAMES, n_people))


def quiz_text(names: Sequence[str], statements: Sequence[Statement], rng: random.Random) -> str:
    """Return the puzzle in English, in the layout of the public data set, with a random wording for each speech."""
    people = " and ".join(names) if len(names) < 3 else f"{', '.join(names[:-1])}, and {names[-1]}"
    speeches = []
    for name, statement in zip(names, statements, strict=True):
        claim = english(statement, names)
        speech = rng.choice(SPEECH_TEMPLATES)
        speeches.append(speech.format(name=name, claim=claim, Claim=claim[0].upper() + claim[1:]))
    return " ".join([OPENING, f"You meet {len(names)} inhabitants: {people}.", *speeches, CLOSING])


def terse_quiz(names: Sequence[str], statements: Sequence[Statement]) -> str:
    """Return the puzzle as one line per person, such as ``(1) Zoey: (2) is a knave or (1) is a knight``."""
    numbers = [f"({number})" for number in range(1, len(names) + 1)]
    return "\n".join(
        f"{number} {name}: {english(statement, numbers, terse=True)}"
        for number, name, statement in zip(numbers, names, statements, strict=True)
    )


def english(statement: Statement, names: Sequence[str], terse: bool = False) -> str:
    """Return `statement` as a clause without a full stop; every composed operand is in parentheses.

    With `terse`, "if and only if" becomes "iff" and "it is not the case that" becomes "not".
    """
    operator, operands = statement[0], statement[1:]
    if operator in _ROLES:
        return f"{names[operands[0]]} is {_ROLES[operator]}"
    if operator == "not" and operands[0][0] in _ROLES:
        return f"{names[operands[0][1]]} is not {_ROLES[operands[0][0]]}"
    clauses = []
    for operand in operands:
        clause = english(operand, names, terse)
        is_simple = operand[0] in LEAVES or (operand[0] == "not" and operand[1][0] in LEAVES)
        clauses.append(clause if is_simple else f"({clause})")
    return joined(operator, clauses, terse)


def joined(operator: str, clauses: Sequence[str], terse: bool = False) -> str:
    """Return a composed statement in English from its operands; `terse` as for `english`."""
    if operator == "not":
        return f"not {clauses[0]}" if terse else f"it is not the case that {clauses[0]}"
    if operator == "->":
        return f"if {clauses[0]} then {clauses[1]}"
    if operator == "<=>":
        return f" {'iff' if terse else 'if and only if'} ".join(clauses)
    return f" {operator} ".join(clauses)


def puzzle_prompt(puzzle: Puzzle, terse: bool = False) -> list[dict[str, str]]:
    """Return the chat message ``{"role": ..., "content": ...}`` that asks for the solution of `puzzle`.

    The content is `INSTRUCTION` and the quiz; with `terse` only the `terse_quiz`, for tiny models. The chat template of the
    model adds its own tags.
    """
    quiz = terse_quiz(puzzle.names, puzzle.statements) if terse else f"{INSTRUCTION}\n\n{puzzle.quiz}"
    return [{"role": "user", "content": quiz}]


def format_solution(names: Sequence[str], solution: Sequence[bool]) -> str:
    """Return the answer, a line ``(k) Name is a knight`` or ``(k) Name is a knave`` per person, k from 1."""
    return "\n".join(
        f"({number}) {name} is a {'knight' if is_knight else 'knave'}"
        for number, (name, is_knight) in enumerate(zip(names, solution, strict=True), start=1)
    )


def format_response(reasoning: str, names: Sequence[str], solution: Sequence[bool]) -> str:
    """Return a whole response, ``<think>...</think><answer>...</answer>``, with `format_solution` as the answer."""
    return f"<think>{reasoning}</think><answer>{format_solution(names, solution)}</answer>"


def puzzle_row(puzzle: Puzzle, terse: bool = False, extra_info: Iterable[str] = EXTRA_INFO) -> dict[str, Any]:
    """Return the row of a puzzle.

    Args:
        puzzle: any.
        terse: as for `puzzle_prompt`.
        extra_info: those of `EXTRA_INFO` to add; `kk_schema` takes the same.
    """
    info = {
        "n_people": len(puzzle.names),
        "names": list(puzzle.names),
        "statements": repr(puzzle.statements),
        "origin": puzzle.origin,
    }
    return build_row(
        data_source=f"kk_{len(puzzle.names)}ppl",
        prompt=puzzle_prompt(puzzle, terse),
        ability="logic",
        ground_truth=format_solution(puzzle.names, puzzle.solution),
        extra_info={name: info[name] for name in extra_info},
    )


def kk_schema(extra_info: Iterable[str] = EXTRA_INFO) -> "pa.Schema":
    """Return the Arrow schema of rows with these `extra_info` fields."""
    import pyarrow as pa

    types = {"n_people": pa.int64(), "names": pa.list_(pa.string())}
    return arrow_schema([pa.field(name, types.get(name, pa.string())) for name in extra_info])
