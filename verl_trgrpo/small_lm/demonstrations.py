"""Demonstrations for the warm start: worded in many ways, and partly careless, so that the policy is uncertain."""

from __future__ import annotations

import random
import re

from verl_trgrpo.small_lm.word_problems import Step, WordProblem, calculate

CARELESS = 0.3
"""Share of the calculations of a demonstration that have a wrong result: what reinforcement learning is to find out."""

_OPENINGS = (
    "",
    "",
    "",
    "Let's see. ",
    "Let's work it out. ",
    "Step by step: ",
    "We need two steps. ",
    "Let me think. ",
    "OK. ",
)
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


def demonstration(problem: WordProblem, rng: random.Random, careless: float = CARELESS) -> str:
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
