"""How many Knights-and-Knaves responses the reward scores per second of CPU time, on one core.

    python benchmarks/bench_kk_reward.py --words 400 --people 5 --out kk_reward.json

Every response has the same number of words; its answer is written in one of several ways. The first ("lines") is what
the prompt asks for. Each figure is the median over the repeats, with the extremes beside it.
"""

import argparse
import json
import random
import statistics
import time
from pathlib import Path

from verl_trgrpo.tasks import compute_score

NAMES = ("Zoey", "Oliver", "Ava", "Ethan", "Sofia", "Liam", "Grace", "Noah")
REASONING = "Suppose that Zoey is a knight; then what she says is true, so Oliver lies and this is consistent."


def write_answers(people: int) -> tuple[str, dict[str, str]]:
    """A ground truth and answers to it by the way they are written."""
    claims = [f"{name} is a {'knight' if k % 2 else 'knave'}" for k, name in enumerate(NAMES[:people])]
    truth = "\n".join(f"({k}) {claim}" for k, claim in enumerate(claims, start=1))
    return truth, {
        "lines": truth,
        "wrong lines": truth.replace("knight", "knave"),
        "bold list": "\n".join(f"- **{claim}**" for claim in claims),
        "sentence": ", ".join(claims[:-1]) + f", and {claims[-1]}.",
        "prose": f"After checking each statement, the only consistent assignment is:\n{truth}",
    }


def write_response(answer: str, words: int) -> str:
    """A response of `words` words in all."""
    reasoning = " ".join(random.Random(0).choices(REASONING.split(), k=max(0, words - len(answer.split()) - 1)))
    return f"<think>{reasoning}</think>\n<answer>{answer}</answer>"


def measure(response: str, truth: str, scores: int, repeats: int) -> list[float]:
    """Scores per second of each repeat."""
    rates = []
    for _ in range(repeats):
        start = time.process_time()
        for _ in range(scores):
            compute_score("kk_logic", response, truth)
        rates.append(scores / (time.process_time() - start))
    return rates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--words", type=int, default=400, help="words per response (default 400)")
    parser.add_argument("--people", type=int, default=5, choices=range(1, len(NAMES) + 1), help="people per puzzle")
    parser.add_argument("--scores", type=int, default=5000, help="scores per repeat (default 5000)")
    parser.add_argument("--repeats", type=int, default=7, help="repeats; the median is reported (default 7)")
    parser.add_argument("--out", type=Path, help="also write JSON to this file")
    arguments = parser.parse_args()
    truth, answers = write_answers(arguments.people)
    results = {}
    print(f"{'answer':<14}{'score':>6}{'per second':>12}{'slowest':>10}{'fastest':>10}")
    for kind, answer in answers.items():
        response = write_response(answer, arguments.words)
        rates = measure(response, truth, arguments.scores, arguments.repeats)
        score = compute_score("kk_logic", response, truth)["score"]
        results[kind] = {"score": score, "per_second": round(statistics.median(rates))}
        print(f"{kind:<14}{score:>6}{statistics.median(rates):>12,.0f}{min(rates):>10,.0f}{max(rates):>10,.0f}")
    if arguments.out:
        arguments.out.write_text(json.dumps({"scores_per_second": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
