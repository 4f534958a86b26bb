"""Worked solutions of Knights-and-Knaves puzzles in words, to warm a model up for the paper's prompt.

The search gives the people roles in the order in which the puzzle introduces them, a knight first, and goes back as
soon as a claim cannot be what its speaker's role asks for any more.
"""

from collections.abc import Iterator, Sequence

from verl_trgrpo.tasks.knights_and_knaves.logic import knight_masks, misfit_masks
from verl_trgrpo.tasks.knights_and_knaves.puzzles import Puzzle
from verl_trgrpo.tasks.knights_and_knaves.wording import english

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


def search_text(puzzle: Puzzle) -> str:
    """Return the search for the solution of `puzzle`, one step per line.

    A step gives one person a role, in addition to the roles given before. It names the first person with a role whose
    claim then has the wrong truth whatever the roles of the others are, if there is one. For example::

        Suppose Zoey is a knight. This cannot be: Zoey, a knight, claims that Zoey is a knave, which is now false.
    """
    return "\n".join([BEGIN, *_steps(puzzle), END])


def _steps(puzzle: Puzzle) -> Iterator[str]:
    names = puzzle.names
    knights, misfits = knight_masks(len(names)), misfit_masks(puzzle.statements)
    everything = (1 << (1 << len(names))) - 1
    roles = [True]
    while True:
        # The assignments that agree with the roles given so far, as a bit set.
        open_cases = everything
        for is_knight, knight in zip(roles, knights, strict=False):
            open_cases &= knight if is_knight else everything ^ knight
        words = _TRY[roles[-1]].format(name=names[len(roles) - 1])
        misfit = next((person for person in range(len(roles)) if not open_cases & ~misfits[person]), None)
        if misfit is None:
            yield f"{words} {_FITS}"
            if len(roles) == len(names):
                return
            roles.append(True)
            continue
        claim = english(puzzle.statements[misfit], names)
        yield f"{words} {_MISFIT[roles[misfit]].format(speaker=names[misfit], claim=claim)}"
        yield from _go_back(roles, names)


def _go_back(roles: list[bool], names: Sequence[str]) -> Iterator[str]:
    """Change `roles` to the next ones to try; a puzzle with a solution always has some."""
    while not roles[-1]:
        roles.pop()
        yield _BACK.format(name=names[len(roles)], earlier=names[len(roles) - 1])
    roles[-1] = False
