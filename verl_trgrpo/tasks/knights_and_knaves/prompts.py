"""Prompts and answers for Knights-and-Knaves puzzles.

Every prompt style shares one answer format, so that one reward serves all of them::

    <think>...</think><answer>(1) Zoey is a knight
    (2) Oliver is a knave</answer>

Prompts are plain chat messages: the chat template of the model adds its own tags, exactly once.
"""

from collections.abc import Sequence

from verl_trgrpo.tasks.knights_and_knaves.puzzles import Puzzle
from verl_trgrpo.tasks.knights_and_knaves.wording import short_quiz

PROMPT_STYLES = ("paper", "short")

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


def build_prompt(quiz: str, style: str, system: bool = False) -> list[dict[str, str]]:
    """Return the chat messages ``{"role": ..., "content": ...}`` that ask for the solution of `quiz`.

    Args:
        quiz: the text of the puzzle; `puzzle_prompt` chooses the one that belongs to the style.
        style: ``paper`` puts instructions before the quiz, ``short`` is the quiz alone.
        system: with ``paper``, give the instructions as a system message of their own.

    Raises:
        ValueError: for an unknown style, or a system message where there are no instructions.
    """
    if style not in PROMPT_STYLES:
        raise ValueError(f"prompt style is {style!r}; choose one of {', '.join(PROMPT_STYLES)}")
    if style == "short":
        if system:
            raise ValueError("prompt style 'short' has no instructions to put into a system message; leave system out")
        return [{"role": "user", "content": quiz}]
    if system:
        return [{"role": "system", "content": INSTRUCTION}, {"role": "user", "content": quiz}]
    return [{"role": "user", "content": f"{INSTRUCTION}\n\n{quiz}"}]


def puzzle_prompt(puzzle: Puzzle, style: str, system: bool = False) -> list[dict[str, str]]:
    """Return `build_prompt` of the text that belongs to `style`: the quiz, or for ``short`` its terse rendering."""
    quiz = short_quiz(puzzle.names, puzzle.statements) if style == "short" else puzzle.quiz
    return build_prompt(quiz, style, system)
