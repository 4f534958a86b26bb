"""Responses that a reward scores per second, one after the other in one process, and how long one takes.

    python benchmarks/bench_rewards.py kk
    python benchmarks/bench_rewards.py math --words 400 --out math.json
    python benchmarks/bench_rewards.py search

All responses have about the same number of words; they differ in the answer. Of mathematics the kinds from "root" on go to the
judge process, whose start is not counted; the others are decided in the calling process. The verdict on the same pair is kept, so
the kinds that begin with "new" have another pair each time.
"""

import argparse
import itertools
import json
import platform
import random
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from verl_trgrpo.common.text import text_table
from verl_trgrpo.tasks import compute_score

Cases = dict[str, Callable[[], dict[str, float]]]

SENTENCE = "Suppose that Zoey is a knight; then the river rises north of the town, so that the first unknown drops out."
WORDS = SENTENCE.split()
NAMES = ("Zoey", "Oliver", "Ava", "Ethan", "Sofia")
MATH = {
    "integer": ("204", "204"),
    "wrong integer": ("204", "205"),
    "fraction": (r"\frac{3}{56}", r"\dfrac{6}{112}"),
    "list": ("1,3,5", r"5, 3 \text{ and } 1"),
    "interval": (r"(3,4]", r"3 < x \le 4"),
    "list of candidates": ("5", "1,2,3,4,5,6,7,8,9"),
    "root": (r"3\sqrt{13}", r"\sqrt{117}"),
    "wrong root": (r"3\sqrt{13}", r"\sqrt{118}"),
    "polynomial": ("x^3+3x-6", "3x-6+x^3"),
    "formula": (r"\frac{1}{2}(e^{at}+e^{-at})", r"\frac{e^{at}+e^{-at}}{2}"),
    "equation": ("y = -2x", "2x + y = 0"),
}
# Formulas that have not been compared before: K is another number each time.
NEW_MATH = {
    "new root": (r"K\sqrt{13}", r"\frac{13\cdot K}{\sqrt{13}}"),
    "new wrong root": (r"K\sqrt{13}", r"K\sqrt{14}"),
    "new polynomial": ("x^3+Kx-6", "(x^2+K)x-6"),
    "new formula": (r"\frac{1}{K}(e^{at}+e^{-at})", r"\frac{e^{at}+e^{-at}}{K}"),
    "new power": ("2^{K}-1", "2^{K}+1"),
}


def some_words(count: int) -> str:
    return " ".join(random.Random(0).choices(WORDS, k=count))


def kk_cases(words: int) -> Cases:
    """Return answers for five people, written in several ways."""
    claims = [f"{name} is a {'knight' if k % 2 else 'knave'}" for k, name in enumerate(NAMES)]
    truth = "\n".join(f"({k}) {claim}" for k, claim in enumerate(claims, start=1))
    answers = {
        "lines": truth,
        "wrong lines": truth.replace("knight", "knave"),
        "bold list": "\n".join(f"- **{claim}**" for claim in claims),
        "sentence": ", ".join(claims[:-1]) + f", and {claims[-1]}.",
        "prose": f"After checking each statement, the only consistent assignment is:\n{truth}",
    }
    head = f"<think>{some_words(words)}</think>\n"
    return {
        kind: partial(compute_score, "kk_logic", f"{head}<answer>{answer}</answer>", truth)
        for kind, answer in answers.items()
    }


def math_cases(words: int) -> Cases:
    """Return answers of several kinds, right unless their name says otherwise."""
    compute_score("math", r"\boxed{(x+1)^2}", "x^2+2x+1")  # starts the judge process
    head = f"<think>{some_words(words)}</think> The answer is "
    numbers = itertools.count(1000)

    def new(truth: str, answer: str) -> dict[str, float]:
        number = str(next(numbers))
        return compute_score("math", rf"{head}$\boxed{{{answer.replace('K', number)}}}$.", truth.replace("K", number))

    return {
        kind: partial(compute_score, "math", rf"{head}$\boxed{{{answer}}}$.", truth)
        for kind, (truth, answer) in MATH.items()
    } | {kind: partial(new, *pair) for kind, pair in NEW_MATH.items()}


def search_cases(words: int) -> Cases:
    """Return responses with two searches; half of their words stand in observations."""
    think, passage = f"<think>{some_words(words // 6)}</think>", some_words(words // 4)
    turns = [f"{think}\n<search>where is it</search>"] * 2 + [f"{think}\n<answer>Ada Lovelace</answer>"]
    response = f"\n\n<information>{passage}</information>\n\n".join(turns)
    others = ["Grace Hopper", "a wide valley", "the old town", "in 1874"]
    right, wrong = {"target": [*others, "Ada Lovelace"]}, {"target": [*others, "Ada King"]}
    score = partial(compute_score, "searchR1_nq", response)
    return {
        "right": partial(score, right, {"model_text": turns}),
        "wrong (with F1)": partial(score, wrong, {"model_text": turns}),
        "tags only": partial(score, right, {}),
    }


TASKS = {"kk": kk_cases, "math": math_cases, "search": search_cases}


def measure(score: Callable[[], object], seconds: float) -> dict[str, float]:
    """Call `score` for some seconds; return calls per second, by the median, and percentiles in milliseconds."""
    calls, end = [], time.perf_counter() + seconds
    while (start := time.perf_counter()) < end or len(calls) < 2:
        score()
        calls.append(1e3 * (time.perf_counter() - start))
    percentiles = statistics.quantiles(calls, n=100, method="inclusive")
    return {"per_second": 1e3 / percentiles[49], "p50_ms": percentiles[49], "p99_ms": percentiles[98]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("--words", type=int, default=400, help="words of reasoning (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=1.5, help="per kind of answer (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="also write JSON to this file")
    arguments = parser.parse_args()
    cases = TASKS[arguments.task](arguments.words)
    results = {kind: {"score": score()["score"], **measure(score, arguments.seconds)} for kind, score in cases.items()}
    if arguments.out:
        facts = {"words": arguments.words, "python": platform.python_version(), "results": results}
        arguments.out.write_text(json.dumps(facts, indent=2) + "\n")
    rows = [
        [kind, f"{row['score']:g}", f"{row['per_second']:,.0f}", f"{row['p50_ms']:.3f}", f"{row['p99_ms']:.3f}"]
        for kind, row in results.items()
    ]
    print(text_table(rows, ["answer", "score", "per second", "p50 ms", "p99 ms"], "lrrrr"))


if __name__ == "__main__":
    main()
