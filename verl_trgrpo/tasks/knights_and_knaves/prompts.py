"""Prompts and answers for Knights-and-Knaves puzzles.

A response has the form that `reward` asks for::

    <think>...</think><answer>(1) Zoey is a knight
    (2) Oliver is a knave</answer>

Prompts are plain chat messages: the chat template of the model adds its own tags, exactly once.
"""

from collections.abc import Sequence

from verl_trgrpo.tasks.knights_and_knaves.puzzles import Puzzle

INSTRUCTION = (
    "Solve the following logic puzzle. First reason step by step inside <think> and </think>. Then state the identity "
    "of each character inside <answer> and </answer>, one line per character in the order in which the puzzle "
    "introduces them, for example:\n"
    "<think>your reasoning</think>\n"
    "<answer>(1) [first character] is a knight\n"
    "(2) [second character] is a knave</answer>"
)


def format_solution(names: Sequence[str], solution: Sequence[bool]) -> str:
    """Return the answer text, a line ``(k) Name is a knight`` or ``(k) Name is a knave`` per person, k from 1."""
    return "\n".join(
        f"({number}) {name} is a {'knight' if is_knight else 'knave'}"
        for number, (name, is_knight) in enumerate(zip(names, solution, strict=True), start=1)
    )


def format_response(reasoning: str, names: Sequence[str], solution: Sequence[bool]) -> str:
    """Return a whole response, ``<think>...</think><answer>...</answer>``, with `format_solution` as the answer."""
    return f"<think>{reasoning}</think><answer>{format_solution(names, solution)}</answer>"


def puzzle_prompt(puzzle: Puzzle) -> list[dict[str, str]]:
    """Return the chat message ``{"role": ..., "content": ...}`` that asks for the solution of `puzzle`."""
    return [{"role": "user", "content": f"{INSTRUCTION}\n\n{puzzle.quiz}"}]
