r"""Prompts: a problem with the instruction to reason and to put the answer into a box."""

from collections.abc import Iterable

INSTRUCTION = r"Let's think step by step and output the final answer within \boxed{}."
"""What DeepScaleR's models were trained and tested with: appended to each problem after one space
(github.com/agentica-project/rllm, commit 874daa4acb7f, scripts/data/deepscaler_dataset.py)."""

NO_INSTRUCTION = "none"


def build_prompt(problem: str, instruction: str = INSTRUCTION, role: str = "user") -> list[dict[str, str]]:
    """Return the chat messages ``{"role": ..., "content": ...}`` that ask for the answer of `problem`.

    Args:
        problem: its text.
        instruction: appended to the problem after one space; "none" for none.
        role: "user", or "system" to give the instruction as a system message of its own.
    """
    if instruction == NO_INSTRUCTION:
        return [{"role": "user", "content": problem}]
    if role == "system":
        return [{"role": "system", "content": instruction}, {"role": "user", "content": problem}]
    return [{"role": "user", "content": f"{problem} {instruction}"}]


def strip_instruction(text: str, instructions: Iterable[str]) -> str:
    """Return `text` without white space at its ends and without one of `instructions` at its end, if one stands there."""
    text = text.strip()
    for instruction in instructions:
        rest = text.removesuffix(instruction.strip())
        if rest != text and rest.endswith((" ", "\n")):
            return rest.rstrip()
    return text
