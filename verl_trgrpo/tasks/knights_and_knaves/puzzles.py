"""Knights-and-Knaves puzzles with exactly one solution, generated without repetition and worded in English.

The statements come from the sampler of `reasoning-gym`, a port of the generator behind the public data set
`K-and-K/knights-and-knaves` (github.com/AlphaPav/mem-kk-logic, arXiv 2410.23123). Solving, the check for repetition
and the wording are this package's own.
"""

import random
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass

from verl_trgrpo.tasks.knights_and_knaves.logic import LEAVES, Statement, canonical_key, unique_solution

# Draws in a row without a new puzzle after which the search ends.
MAX_BARREN_DRAWS = 200_000


@dataclass(frozen=True)
class Puzzle:
    """A puzzle with exactly one solution; person ``i`` is called ``names[i]`` and speaks ``statements[i]``.

    quiz: the puzzle in English.
    statements: see `logic`.
    solution: True for a knight, one entry per person.
    origin: where it comes from, such as ``kk.jsonl#12``.
    """

    quiz: str
    names: tuple[str, ...]
    statements: tuple[Statement, ...]
    solution: tuple[bool, ...]
    origin: str = ""


def generate_puzzles(n_people: int, count: int, seed: int, exclude: Container[str] = ()) -> Iterator[Puzzle]:
    """Yield `count` puzzles, no two with the same `canonical_key`.

    The stream depends on `n_people`, `seed` and `exclude` only: a larger `count` continues it.

    Args:
        n_people: 2 to 8.
        count: how many.
        seed: any integer.
        exclude: canonical keys of puzzles that must not appear, such as those of a test set.

    Raises:
        ValueError: many draws in a row bring nothing new, because there are hardly `count` puzzles: of two people there
            are 95, of three 15,088, of four millions.
    """
    from reasoning_gym.logic.knights_knaves import KKProblemSampler  # slow import, needed for sampling only

    # Both generators get a seed that also depends on the size: one stream of random numbers for all sizes would
    # make the puzzles of different sizes resemble each other.
    sampler = KKProblemSampler(random.Random(f"statements/{n_people}/{seed}").getrandbits(64), n_people)
    seen: set[str] = set()
    barren = 0
    while len(seen) < count:
        statements = sampler.sample()
        solution = unique_solution(statements)
        key = canonical_key(statements) if solution else ""
        if not solution or key in seen or key in exclude:
            barren += 1
            if barren == MAX_BARREN_DRAWS:
                raise ValueError(
                    f"only {len(seen)} of {count} different puzzles with {n_people} people were found in {barren} more "
                    "draws; ask for fewer puzzles, or more people in each"
                )
            continue
        barren = 0
        rng = random.Random(f"wording/{n_people}/{seed}/{len(seen)}")
        seen.add(key)
        names = choose_names(n_people, rng)
        origin = f"generated/{n_people}ppl/seed{seed}#{len(seen)}"
        yield Puzzle(quiz_text(names, statements, rng), names, statements, solution, origin)


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
    speeches = []
    for name, statement in zip(names, statements, strict=True):
        claim = english(statement, names)
        speech = rng.choice(SPEECH_TEMPLATES)
        speeches.append(speech.format(name=name, claim=claim, Claim=claim[0].upper() + claim[1:]))
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
