"""Knights-and-Knaves puzzles with exactly one solution, generated without repetition and worded in English.

The statements come from the sampler of `reasoning-gym`, a port of the generator behind the public data set
`K-and-K/knights-and-knaves` (github.com/AlphaPav/mem-kk-logic, arXiv 2410.23123). Solving, the check for repetition
and the wording are this package's own.
"""

import random
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass

from verl_trgrpo.common.problems import raise_problems
from verl_trgrpo.tasks.knights_and_knaves.logic import MAX_PEOPLE, Statement, canonical_key, unique_solution

__all__ = ["MAX_PEOPLE", "MIN_PEOPLE", "Puzzle", "canonical_key", "generate_puzzles"]

MIN_PEOPLE = 2

# How many puzzles with exactly one solution the sampler's statements allow, up to `canonical_key`. From four people on
# there are millions.
DISTINCT_PUZZLES = {2: 95, 3: 15_088}

# Draws in a row without a new puzzle after which the search ends. With two people the rarest puzzle turns up once in
# 1,300 draws.
MAX_BARREN_DRAWS = {2: 20_000}
DEFAULT_MAX_BARREN_DRAWS = 200_000


@dataclass(frozen=True)
class Puzzle:
    """A puzzle with exactly one solution; person ``i`` is called ``names[i]`` and speaks ``statements[i]``.

    quiz: the puzzle in English.
    statements: see `logic`.
    solution: True for a knight, one entry per person.
    index: position in the stream or file that the puzzle comes from, from 0.
    """

    quiz: str
    names: tuple[str, ...]
    statements: tuple[Statement, ...]
    solution: tuple[bool, ...]
    index: int


def generate_puzzles(n_people: int, count: int, seed: int, exclude: Container[str] | None = None) -> Iterator[Puzzle]:
    """Return an iterator of exactly `count` puzzles, no two with the same `canonical_key`.

    The stream depends on `n_people`, `seed` and `exclude` only: a larger `count` continues it.

    Args:
        n_people: 2 to 8.
        count: how many, 0 or more; at most 95 for two people and 15,088 for three, where no more exist.
        seed: any integer.
        exclude: canonical keys of puzzles that must not appear, such as those of a test set.

    Raises:
        ValueError: at once for arguments out of range or a `count` that cannot exist; while iterating when
            many draws in a row bring nothing new, which happens close to the number of puzzles that exist.
    """
    problems = []
    if not MIN_PEOPLE <= n_people <= MAX_PEOPLE:
        problems.append(f"n_people is {n_people}; puzzles have {MIN_PEOPLE} to {MAX_PEOPLE} people")
    if count < 0:
        problems.append(f"count is {count}; ask for 0 or more puzzles")
    if count > DISTINCT_PUZZLES.get(n_people, count):
        problems.append(
            f"count is {count}, but only {DISTINCT_PUZZLES[n_people]} different puzzles with {n_people} people exist; "
            "ask for fewer, or for more people"
        )
    raise_problems(problems)
    return _generate(n_people, count, seed, exclude if exclude is not None else ())


def _generate(n_people: int, count: int, seed: int, exclude: Container[str]) -> Iterator[Puzzle]:
    from reasoning_gym.logic.knights_knaves import KKProblemSampler  # slow import, needed for sampling only

    # Both generators get a seed that also depends on the size: one stream of random numbers for all sizes would
    # make the puzzles of different sizes resemble each other.
    sampler = KKProblemSampler(random.Random(f"statements/{n_people}/{seed}").getrandbits(64), n_people)
    seen: set[str] = set()
    barren = 0
    while len(seen) < count:
        statements = sampler.sample()
        solution = unique_solution(statements)
        key = canonical_key(statements) if solution is not None else ""
        if solution is None or key in seen or key in exclude:
            barren += 1
            if barren == MAX_BARREN_DRAWS.get(n_people, DEFAULT_MAX_BARREN_DRAWS):
                raise ValueError(
                    f"only {len(seen)} of {count} different puzzles with {n_people} people were found: {barren} draws "
                    "in a row brought none that is new, has one solution and is not excluded; ask for fewer puzzles, "
                    "or more people in each"
                )
            continue
        barren = 0
        index = len(seen)
        seen.add(key)
        rng = random.Random(f"wording/{n_people}/{seed}/{index}")
        names = choose_names(n_people, rng)
        yield Puzzle(quiz_text(names, statements, rng), names, statements, solution, index)


# No name is part of another one or a word of the quiz.
NAMES = (
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


def choose_names(n_people: int, rng: random.Random) -> tuple[str, ...]:
    """Return `n_people` distinct names of `NAMES` in random order."""
    return tuple(rng.sample(NAMES, n_people))


def quiz_text(names: Sequence[str], statements: Sequence[Statement], rng: random.Random) -> str:
    """Return the puzzle in English, in the layout of the public data set, with a random wording for each speech."""
    people = " and ".join(names) if len(names) < 3 else f"{', '.join(names[:-1])}, and {names[-1]}"
    speeches = [
        _speech(rng.choice(SPEECH_TEMPLATES), name, english(statement, names))
        for name, statement in zip(names, statements, strict=True)
    ]
    return " ".join([OPENING, f"You meet {len(names)} inhabitants: {people}.", *speeches, CLOSING])


def english(statement: Statement, names: Sequence[str], terse: bool = False) -> str:
    """Return `statement` as a clause without a full stop; every composed operand stands in parentheses.

    With `terse`, "if and only if" becomes "iff" and "it is not the case that" becomes "not".
    """
    operator, operands = statement[0], statement[1:]
    if operator in _ROLES:
        return f"{names[operands[0]]} is {_ROLES[operator]}"
    if operator == "not" and operands[0][0] in _ROLES:
        return f"{names[operands[0][1]]} is not {_ROLES[operands[0][0]]}"
    clauses = [english(operand, names, terse) for operand in operands]
    clauses = [
        clause if _is_simple(operand) else f"({clause})" for operand, clause in zip(operands, clauses, strict=True)
    ]
    if operator == "not":
        return f"not {clauses[0]}" if terse else f"it is not the case that {clauses[0]}"
    if operator == "->":
        return f"if {clauses[0]} then {clauses[1]}"
    if operator == "<=>":
        return f" {'iff' if terse else 'if and only if'} ".join(clauses)
    return f" {operator} ".join(clauses)


def short_quiz(names: Sequence[str], statements: Sequence[Statement]) -> str:
    """Return a puzzle as one line per person, such as ``Zoey: Oliver is a knave or Zoey is a knight``."""
    return "\n".join(
        f"{name}: {english(statement, names, terse=True)}" for name, statement in zip(names, statements, strict=True)
    )


def _speech(template: str, name: str, claim: str) -> str:
    return template.format(name=name, claim=claim, Claim=claim[0].upper() + claim[1:])


def _is_simple(statement: Statement) -> bool:
    return statement[0] in _ROLES or (statement[0] == "not" and statement[1][0] in _ROLES)
