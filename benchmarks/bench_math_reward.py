"""How many mathematical responses the reward scores per second, and how long one takes.

    python benchmarks/bench_math_reward.py --words 400 --out math_reward.json

The first six kinds of answers are decided in the calling process; the others go to the judge process.
"""

import argparse
import json
import platform
import random
import statistics
import time
from pathlib import Path

from verl_trgrpo.common.text import text_table
from verl_trgrpo.tasks import compute_score

REASONING = "Let us add the two equations, so that the first unknown drops out and the second can be read off."
ANSWERS = {
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


def measure(response: str, truth: str, seconds: float) -> list[float]:
    """Milliseconds of each call."""
    calls, end = [], time.perf_counter() + seconds
    while (start := time.perf_counter()) < end or len(calls) < 2:
        compute_score("math", response, truth)
        calls.append(1e3 * (time.perf_counter() - start))
    return calls


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--words", type=int, default=400, help="words of reasoning per response (default 400)")
    parser.add_argument("--seconds", type=float, default=1.5, help="seconds per kind of answer (default 1.5)")
    parser.add_argument("--out", type=Path, help="also write the figures to this JSON file")
    arguments = parser.parse_args()

    start = time.perf_counter()
    compute_score("math", r"\boxed{1+x}", "x+1")
    report = {"words": arguments.words, "python": platform.python_version()}
    report["judge_start_seconds"] = round(time.perf_counter() - start, 2)
    reasoning = " ".join(random.Random(0).choices(REASONING.split(), k=arguments.words))
    results = {}
    for kind, (truth, answer) in ANSWERS.items():
        response = rf"<think>{reasoning}</think> The answer is $\boxed{{{answer}}}$."
        percentiles = statistics.quantiles(measure(response, truth, arguments.seconds), n=100, method="inclusive")
        results[kind] = {
            "score": compute_score("math", response, truth)["score"],
            "per_second": round(1e3 / percentiles[49]),
            "milliseconds_p50": round(percentiles[49], 3),
            "milliseconds_p99": round(percentiles[98], 3),
        }
    if arguments.out:
        arguments.out.write_text(json.dumps(report | {"scores_per_second": results}, indent=2) + "\n")
    rows = [
        [kind, f"{row['score']}", f"{row['per_second']:,}",
         f"{row['milliseconds_p50']}", f"{row['milliseconds_p99']}"]
        for kind, row in results.items()
    ]  # fmt: skip
    print(text_table(rows, ["answer", "score", "per second", "p50 ms", "p99 ms"], "lrrrr"))


if __name__ == "__main__":
    main()
