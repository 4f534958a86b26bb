"""How many Knights-and-Knaves responses the reward scores per second, on one core.

    python benchmarks/bench_kk_reward.py --words 400 --people 5 --out kk_reward.json

Every response has the same number of words; its answer is written in one of several ways. The first ("lines") is what
the prompt asks for. Each figure is the median over the repeats, with the extremes beside it.
"""

import argparse
import json
import platform
import random
import statistics
import time
from pathlib import Path

from verl_trgrpo.tasks import compute_score

NAMES = ("Zoey", "Oliver", "Ava", "Ethan", "Sofia", "Liam", "Grace", "Noah")
REASONING = "Suppose that Zoey is a knight; then what she says is true, so Oliver lies and this is consistent."


def write_answers(people: int, seed: int) -> tuple[str, dict[str, str]]:
    """A ground truth and answers to it by the way they are written."""
    rng = random.Random(seed)
    roles = {name: rng.choice(("knight", "knave")) for name in NAMES[:people]}
    truth = "\n".join(f"({k}) {name} is a {role}" for k, (name, role) in enumerate(roles.items(), start=1))
    first, _, others = truth.partition("\n")
    flipped = first.replace("knight", "x").replace("knave", "knight").replace("x", "knave")
    return truth, {
        "lines": truth,
        "wrong lines": f"{flipped}\n{others}",
        "bold list": "\n".join(f"- **{name}**: {role.title()}" for name, role in roles.items()),
        "sentence": ", ".join(f"{name} is a {role}" for name, role in roles.items()) + ".",
        "reasons": "\n".join(
            f"{name} is a {role} because {name}'s statement is {'true' if role == 'knight' else 'false'}."
            for name, role in roles.items()
        ),
        "introduction": f"After checking each statement, the only consistent assignment is:\n{truth}",
        "hedged": f"Maybe this: {truth}",
    }


def write_response(answer: str, words: int, seed: int) -> str:
    """A response of `words` words in all."""
    rng = random.Random(seed)
    reasoning = " ".join(rng.choices(REASONING.split(), k=max(0, words - len(answer.split()) - 1)))
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
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="also write the JSON to this file")
    arguments = parser.parse_args()

    truth, answers = write_answers(arguments.people, arguments.seed)
    results = {}
    for kind, answer in answers.items():
        response = write_response(answer, arguments.words, arguments.seed)
        rates = measure(response, truth, arguments.scores, arguments.repeats)
        results[kind] = {
            "score": compute_score("kk_logic", response, truth)["score"],
            "characters": len(response),
            "per_second": round(statistics.median(rates)),
            "slowest": round(min(rates)),
            "fastest": round(max(rates)),
        }
    report = {
        "words": arguments.words,
        "people": arguments.people,
        "repeats": arguments.repeats,
        "python": platform.python_version(),
        "scores_per_second": results,
    }
    text = json.dumps(report, indent=2)
    if arguments.out:
        arguments.out.write_text(text + "\n")
    print(f"\n{'answer':<14}{'score':>6}{'per second':>12}{'slowest':>10}{'fastest':>10}")
    for kind, row in results.items():
        print(f"{kind:<14}{row['score']:>6}{row['per_second']:>12,}{row['slowest']:>10,}{row['fastest']:>10,}")


if __name__ == "__main__":
    main()
