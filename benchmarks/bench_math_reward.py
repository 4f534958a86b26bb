"""How many mathematical responses the reward scores per second, and how long one takes.

    python benchmarks/bench_math_reward.py --words 400 --out math_reward.json

Answers of the first kinds are decided in the calling process; the others go to the judge process ("judge" yes). Rates are
medians over the repeats with the extremes beside them; latencies are percentiles over all calls.
"""

import argparse
import json
import platform
import random
import statistics
import time
from pathlib import Path

from verl_trgrpo.tasks import compute_score
from verl_trgrpo.tasks.math.reward.compare import compare
from verl_trgrpo.tasks.math.reward.extract import extract_answer

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


def write_response(answer: str, words: int, seed: int) -> str:
    """A response of `words` words of reasoning and a box."""
    reasoning = " ".join(random.Random(seed).choices(REASONING.split(), k=words))
    return rf"<think>{reasoning}</think> The answer is $\boxed{{{answer}}}$."


def measure(response: str, truth: str, seconds: float, repeats: int) -> tuple[list[float], list[float]]:
    """Scores per second of each repeat, and the seconds of every call."""
    rates, calls = [], []
    for _ in range(repeats):
        count, start = 0, time.perf_counter()
        while (now := time.perf_counter()) - start < seconds:
            compute_score("math", response, truth)
            calls.append(time.perf_counter() - now)
            count += 1
        rates.append(count / (time.perf_counter() - start))
    return rates, calls


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--words", type=int, default=400, help="words per response (default 400)")
    parser.add_argument("--seconds", type=float, default=0.3, help="seconds per repeat (default 0.3)")
    parser.add_argument("--repeats", type=int, default=5, help="repeats; the median is reported (default 5)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="also write the JSON to this file")
    arguments = parser.parse_args()

    start = time.perf_counter()
    compute_score("math", r"\boxed{1+x}", "x+1")
    report = {
        "words": arguments.words,
        "repeats": arguments.repeats,
        "python": platform.python_version(),
        "judge_start_seconds": round(time.perf_counter() - start, 2),
    }
    results = {}
    for kind, (truth, answer) in ANSWERS.items():
        response = write_response(answer, arguments.words, arguments.seed)
        rates, calls = measure(response, truth, arguments.seconds, arguments.repeats)
        percentiles = statistics.quantiles(calls, n=100, method="inclusive")
        results[kind] = {
            "score": compute_score("math", response, truth)["score"],
            "judge": compare([truth], extract_answer(response, "boxed") or "", rounded_gold=False) is None,
            "per_second": round(statistics.median(rates)),
            "slowest": round(min(rates)),
            "fastest": round(max(rates)),
            "milliseconds_p50": round(1e3 * percentiles[49], 3),
            "milliseconds_p99": round(1e3 * percentiles[98], 3),
        }
    text = json.dumps(report | {"scores_per_second": results}, indent=2)
    if arguments.out:
        arguments.out.write_text(text + "\n")
    print(
        f"\n{'answer':<20}{'score':>6}{'judge':>7}{'per second':>12}{'slowest':>9}{'fastest':>9}{'p50 ms':>9}{'p99 ms':>9}"
    )
    for kind, row in results.items():
        print(
            f"{kind:<20}{row['score']:>6}{'yes' if row['judge'] else 'no':>7}{row['per_second']:>12,}{row['slowest']:>9,}"
            f"{row['fastest']:>9,}{row['milliseconds_p50']:>9}{row['milliseconds_p99']:>9}"
        )


if __name__ == "__main__":
    main()
