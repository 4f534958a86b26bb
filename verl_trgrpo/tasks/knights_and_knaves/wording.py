"""The words of Knights-and-Knaves puzzles: names, the quiz in English and a terse rendering of the statements."""

import random
from collections.abc import Sequence

from verl_trgrpo.tasks.knights_and_knaves.logic import Statement

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
