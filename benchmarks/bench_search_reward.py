"""How many search QA responses the reward scores per second, on one core.

    python benchmarks/bench_search_reward.py --words 400 --aliases 5 --out search_reward.json

Every response has the same number of words, half of them in observations; it differs in how the model's own text is
known. Each figure is the median over the repeats, with the extremes beside it.
"""

import argparse
import json
import platform
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from verl_trgrpo.tasks import compute_score

SENTENCE = "the river rises in a wide valley north of the old town, where its first bridge was built in 1874."
WORDS = tuple(SENTENCE.split(" "))


def write_turns(words: int, searches: int, seed: int) -> tuple[list[str], list[str]]:
    """The texts that the model wrote and those that it was shown, together of `words` words."""
    rng = random.Random(seed)

    def text(count: int) -> str:
        return " ".join(rng.choices(WORDS, k=max(1, count)))

    each = words // 2 // (searches + 1)
    turns = [f"<think>{text(each - 5)}</think>\n<search>{text(5)}</search>" for _ in range(searches)]
    turns.append(f"<think>{text(each - 2)}</think>\n<answer>Ada Lovelace</answer>")
    return turns, [text(words // 2 // searches) for _ in range(searches)]


def write_cases(words: int, aliases: int, searches: int, seed: int) -> dict[str, Callable[[], dict[str, float]]]:
    """One scoring call per case."""
    turns, passages = write_turns(words, searches, seed)
    response = turns[0]
    for passage, turn in zip(passages, turns[1:], strict=True):
        response += f"\n\n<information>{passage}</information>\n\n{turn}"
    rng = random.Random(seed)
    golds = [" ".join(rng.choices(WORDS, k=3)) for _ in range(aliases - 1)]
    right, wrong = {"target": [*golds, "Ada Lovelace"]}, {"target": [*golds, "Ada King"]}

    def case(gold: dict[str, list[str]], extra_info: dict[str, Any]) -> Callable[[], dict[str, float]]:
        return lambda: compute_score("searchR1_nq", response, gold, extra_info)

    return {
        "right": case(right, {"model_text": turns}),
        "wrong (with F1)": case(wrong, {"model_text": turns}),
        "tags only": case(right, {}),
    }


def measure(score: Callable[[], dict[str, float]], scores: int, repeats: int) -> list[float]:
    """Scores per second of each repeat."""
    rates = []
    for _ in range(repeats):
        start = time.perf_counter()
        for _ in range(scores):
            score()
        rates.append(scores / (time.perf_counter() - start))
    return rates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--words", type=int, default=400, help="words per response (default 400)")
    parser.add_argument("--aliases", type=int, default=5, help="gold answers (default 5)")
    parser.add_argument("--searches", type=int, default=2, help="searches per response (default 2)")
    parser.add_argument("--scores", type=int, default=5000, help="scores per repeat (default 5000)")
    parser.add_argument("--repeats", type=int, default=7, help="repeats; the median is reported (default 7)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="also write the JSON to this file")
    arguments = parser.parse_args()

    results = {}
    cases = write_cases(arguments.words, arguments.aliases, arguments.searches, arguments.seed)
    for name, score in cases.items():
        rates = measure(score, arguments.scores, arguments.repeats)
        results[name] = {
            "score": score()["score"],
            "per_second": round(statistics.median(rates)),
            "slowest": round(min(rates)),
            "fastest": round(max(rates)),
        }
    settings = {name: getattr(arguments, name) for name in ("words", "aliases", "searches", "repeats")}
    text = json.dumps(settings | {"python": platform.python_version(), "scores_per_second": results}, indent=2)
    if arguments.out:
        arguments.out.write_text(text + "\n")
    print(f"\n{'response':<20}{'score':>6}{'per second':>12}{'slowest':>10}{'fastest':>10}")
    for name, row in results.items():
        print(f"{name:<20}{row['score']:>6}{row['per_second']:>12,}{row['slowest']:>10,}{row['fastest']:>10,}")


if __name__ == "__main__":
    main()
