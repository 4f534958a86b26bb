"""Prompts, answers and worked responses for Knights-and-Knaves puzzles.

A response has the form that `reward` asks for::

    <think>...</think><answer>(1) Zoey is a knight
    (2) Oliver is a knave</answer>

Prompts are plain chat messages: the chat template of the model adds its own tags, exactly once.
"""

from collections.abc import Iterator, Sequence

from verl_trgrpo.tasks.knights_and_knaves.logic import assignments, misfits
from verl_trgrpo.tasks.knights_and_knaves.puzzles import Puzzle, english

INSTRUCTION = (
    "Solve the following logic puzzle. First reason step by step inside <think> and </think>. Then state the identity "
    "of each character inside <answer> and </answer>, one line per character in the order in which the puzzle "
    "introduces them, for example:\n"
    "<think>your reasoning</think>\n"
    "<answer>(1) [first character] is a knight\n"
    "(2) [second character] is a knave</answer>"
)

BEGIN = (
    "I settle one person after the other and go back as soon as a claim cannot fit the role of the one who makes it."
)
END = "Everybody has a role and every claim fits, so this is the solution."

_TRY = {True: "Suppose {name} is a knight.", False: "Then let {name} be a knave."}
_FITS = "No claim is ruled out so far."
_MISFIT = {
    True: "This cannot be: {speaker}, a knight, claims that {claim}, which is now false.",
    False: "This cannot be: {speaker}, a knave, claims that {claim}, which is now true.",
}
_BACK = "Neither role works for {name} here, so back to {earlier}."


def format_solution(names: Sequence[str], solution: Sequence[bool]) -> str:
    """Return the answer text, a line ``(k) Name is a knight`` or ``(k) Name is a knave`` per person, k from 1."""
    return "\n".join(
        f"({number}) {name} is a {'knight' if is_knight else 'knave'}"
        for number, (name, is_knight) in enumerate(zip(names, solution, strict=True), start=1)
    )


def format_response(reasoning: str, names: Sequence[str], solution: Sequence[bool]) -> str:
    """Return a whole response, ``<think>...</think><answer>...</answer>``, with `format_solution` as the answer."""
    return f"<think>{reasoning}</think><answer>{format_solution(names, solution)}</answer>"


def puzzle_prompt(puzzle: Puzzle, system: bool = False) -> list[dict[str, str]]:
    """Return the chat messages ``{"role": ..., "content": ...}`` that ask for the solution of `puzzle`.

    The instructions stand before the quiz or, with `system`, in a system message of their own.
    """
    if system:
        return [{"role": "system", "content": INSTRUCTION}, {"role": "user", "content": puzzle.quiz}]
    return [{"role": "user", "content": f"{INSTRUCTION}\n\n{puzzle.quiz}"}]


def search_text(puzzle: Puzzle) -> str:
    """Return a search for the solution of `puzzle` in words, one step per line, to warm a model up for the prompt.

    The search gives the people roles in the order in which the puzzle introduces them, a knight first, and goes back as
    soon as a claim cannot be what its speaker's role asks for any more. A step gives one person a role, in addition to
    the roles given before. It names the first person with a role whose claim then has the wrong truth whatever the roles
    of the others are, if there is one. For example::

        Suppose Zoey is a knight. This cannot be: Zoey, a knight, claims that Zoey is a knave, which is now false.
    """
    return "\n".join([BEGIN, *_steps(puzzle), END])


def _steps(puzzle: Puzzle) -> Iterator[str]:
    names = puzzle.names
    cases, unfit = assignments(len(names)), misfits(puzzle.statements)
    roles = [True]
    while True:
        is_open = (cases[:, : len(roles)] == roles).all(axis=1)
        words = _TRY[roles[-1]].format(name=names[len(roles) - 1])
        misfit = next((person for person in range(len(roles)) if unfit[person, is_open].all()), None)
        if misfit is None:
            yield f"{words} {_FITS}"
            if len(roles) == len(names):
                return
            roles.append(True)
            continue
        claim = english(puzzle.statements[misfit], names)
        yield f"{words} {_MISFIT[roles[misfit]].format(speaker=names[misfit], claim=claim)}"
        # A puzzle with a solution always has roles that are yet to be tried.
        while not roles[-1]:
            roles.pop()
            yield _BACK.format(name=names[len(roles)], earlier=names[len(roles) - 1])
        roles[-1] = False
