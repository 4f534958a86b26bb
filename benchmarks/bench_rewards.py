"""Responses that a reward scores per second, one after the other in one process, and how long one takes.

    python benchmarks/bench_rewards.py kk
    python benchmarks/bench_rewards.py math --words 400 --verl --out math.json
    python benchmarks/bench_rewards.py search

All responses have about the same number of words. Every eighth has another ground truth and answer (of mathematics every one),
because a reward keeps what it has read. Of mathematics the kinds from "root" on go to the judge process, whose start is not
counted. Times of mathematics are those of a clock, others processor time. --verl: also veRL's `math_verify` and `prime_math`.
"""

import argparse
import itertools
import json
import platform
import random
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from verl_trgrpo.common.text import text_table
from verl_trgrpo.tasks import compute_score

# Data source, response, ground truth and extra_info, as `compute_score` takes them.
Case = tuple[str, str, Any, dict[str, Any]]

SENTENCE = "Suppose that Zoey is a knight; then the river rises north of the town, so that the first unknown drops out."
WORDS = SENTENCE.split()
NAMES = ("Zoey", "Oliver", "Ava", "Ethan", "Sofia")
# Ground truth and answer by kind; K is another number each time.
MATH = {
    "integer": ("K", "K"),
    "wrong integer": ("K", "K5"),
    "fraction": (r"\frac{3}{K}", r"\dfrac{6}{2K}"),
    "list": ("1,3,K", r"K, 3 \text{ and } 1"),
    "interval": (r"(3,K]", r"3 < x \le K"),
    "list of candidates": ("K", "1,2,3,4,5,6,7,8,K"),
    "root": (r"K\sqrt{13}", r"\frac{13\cdot K}{\sqrt{13}}"),
    "wrong root": (r"K\sqrt{13}", r"K\sqrt{14}"),
    "polynomial": ("x^3+Kx-6", "(x^2+K)x-6"),
    "formula": (r"\frac{1}{K}(e^{at}+e^{-at})", r"\frac{e^{at}+e^{-at}}{K}"),
    "equation": ("y = -Kx", "Kx + y = 0"),
    "power": ("2^{K}-1", "2^{K}+1"),
}


def some_words(count: int) -> str:
    return " ".join(random.Random(0).choices(WORDS, k=count))


def kk_cases(words: int) -> dict[str, Iterator[Case]]:
    """Return answers for five people, written in several ways."""
    head = f"<think>{some_words(words)}</think>\n"

    def cases(write: Callable[[list[str]], str]) -> Iterator[Case]:
        for number in (count // 8 for count in itertools.count()):
            claims = [f"{name}{number} is a {'knight' if number >> k & 1 else 'knave'}" for k, name in enumerate(NAMES)]
            truth = "\n".join(f"({k}) {claim}" for k, claim in enumerate(claims, start=1))
            yield "kk_logic", f"{head}<answer>{write(claims)}</answer>", truth, {}

    return {
        "lines": cases("\n".join),
        "wrong lines": cases(lambda claims: "\n".join(claims).replace("knave", "knight")),
        "bold list": cases(lambda claims: "\n".join(f"- **{claim}**" for claim in claims)),
        "sentence": cases(lambda claims: ", ".join(claims[:-1]) + f", and {claims[-1]}."),
        "prose": cases(lambda claims: "The only consistent assignment is:\n" + "\n".join(claims)),
    }


def math_cases(words: int) -> dict[str, Iterator[Case]]:
    """Return answers of several kinds, right unless their name says otherwise."""
    compute_score("math", r"\boxed{(x+1)^2}", "x^2+2x+1")  # starts the judge process
    head = f"<think>{some_words(words)}</think> The answer is "

    def cases(truth: str, answer: str) -> Iterator[Case]:
        for number in itertools.count(1000):
            gold, stated = (text.replace("2K", f"{2 * number}").replace("K", f"{number}") for text in (truth, answer))
            yield "math", rf"{head}$\boxed{{{stated}}}$.", gold, {}

    return {kind: cases(*pair) for kind, pair in MATH.items()}


def search_cases(words: int) -> dict[str, Iterator[Case]]:
    """Return responses with two searches; half of their words stand in observations."""
    think, passage = f"<think>{some_words(words // 6)}</think>", some_words(words // 4)

    def cases(answer: str, with_turns: bool) -> Iterator[Case]:
        for number in itertools.count():
            turns = [f"{think}\n<search>where is it</search>"] * 2 + [f"{think}\n<answer>{answer} {number}</answer>"]
            response = f"\n\n<information>{passage}</information>\n\n".join(turns)
            golds = ["Grace Hopper", "a wide valley", "the old town", "in 1874", f"Ada Lovelace {number}"]
            yield "searchR1_nq", response, {"target": golds}, {"model_text": turns} if with_turns else {}

    return {
        "right": cases("Ada Lovelace", True),
        "wrong (with F1)": cases("Ada King", True),
        "tags only": cases("Ada Lovelace", False),
    }


TASKS = {"kk": kk_cases, "math": math_cases, "search": search_cases}


def ours(case: Case) -> float:
    return compute_score(*case)["score"]


def verl_scorers() -> dict[str, Callable[[Case], float]]:
    """Return two of veRL's scorers of mathematics."""
    from verl.utils.reward_score import math_verify, prime_math

    return {
        "verl math_verify": lambda case: float(math_verify.compute_score(case[1], case[2])),
        "verl prime_math": lambda case: float(prime_math.compute_score(case[1], case[2])[0]),
    }


def measure(
    score: Callable[[Case], float], cases: Iterator[Case], seconds: float, clock: Callable[[], float]
) -> dict[str, float]:
    """Score cases for some seconds; return the first score, scores per second by the median, and percentiles in milliseconds."""
    first, calls, end = score(next(cases)), [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(calls) < 2:
        case = next(cases)
        start = clock()
        score(case)
        calls.append(1e3 * (clock() - start))
    percentiles = statistics.quantiles(calls, n=100, method="inclusive")
    return {"score": first, "per_second": 1e3 / percentiles[49], "p50_ms": percentiles[49], "p99_ms": percentiles[98]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("--words", type=int, default=400, help="words of reasoning (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=1.5, help="per kind of answer (default: %(default)s)")
    parser.add_argument("--verl", action="store_true", help="compare with veRL's scorers of mathematics")
    parser.add_argument("--out", type=Path, help="also write JSON to this file")
    arguments = parser.parse_args()
    scorers = {"this project": ours} | (verl_scorers() if arguments.verl and arguments.task == "math" else {})
    clock = time.perf_counter if arguments.task == "math" else time.process_time
    results = {
        kind: {name: measure(score, cases, arguments.seconds, clock) for name, score in scorers.items()}
        for kind, cases in TASKS[arguments.task](arguments.words).items()
    }
    if arguments.out:
        facts = {"words": arguments.words, "python": platform.python_version(), "results": results}
        arguments.out.write_text(json.dumps(facts, indent=2) + "\n")
    rows = [
        [kind, name, f"{row['score']:g}", f"{row['per_second']:,.0f}", f"{row['p50_ms']:.3f}", f"{row['p99_ms']:.3f}"]
        for kind, by_scorer in results.items()
        for name, row in by_scorer.items()
    ]
    print(text_table(rows, ["answer", "scorer", "score", "per second", "p50 ms", "p99 ms"], "llrrrr"))


if __name__ == "__main__":
    main()
