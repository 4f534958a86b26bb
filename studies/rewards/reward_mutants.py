"""Change ground truths by rules that are wrong or right by construction, and print what the rewards pay and refuse by rule.

    python -m studies.rewards.reward_mutants --data DIR --show
    python -m studies.rewards.reward_mutants --data DIR --verl --out docs/measurements/math_agreement.md
    python -m studies.rewards.reward_mutants --generated kk search gym --count 500
    python -m studies.rewards.reward_mutants --golds "x+1" "2^{1009}" "(C)"

--data: ground truths of mathematics, in a directory of veRL Parquet files or of JSON files with a list of rows with an `answer`.
No problem text is read. With --verl veRL's scorers judge, too; with --out the text between the markers of a Markdown file is
replaced by the table. `mutants.py` has the rules.
"""

import argparse
import contextlib
import io
import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, cast

import pyarrow.parquet as pq
from tqdm import tqdm

from studies.pages import fill
from studies.rewards.mutants import REWARDS, generated, mutants, scored_as
from verl_trgrpo.tasks import compute_score

OURS = "this project"


def read_golds(directory: Path) -> Iterator[str]:
    """Yield the first ground truth of each row, without dollar signs around it."""
    for path in sorted([*directory.glob("*.parquet"), *directory.glob("*.json")]):
        if path.suffix == ".json":
            golds = [row["answer"] for row in json.loads(path.read_text(encoding="utf-8"))]
        else:
            rows = pq.read_table(path, columns=["reward_model"])["reward_model"].to_pylist()
            golds = [row["ground_truth"] for row in rows]
        for gold in filter(None, golds):
            text = str(gold[0] if isinstance(gold, list) else gold).strip()
            yield text if r"\$" in text else text.replace("$", "").strip()


@cache
def verl_scorers() -> dict[str, Callable[[str, str], bool]]:
    """Return veRL's scorers of mathematics as functions of (response, ground truth)."""
    from verl.utils.reward_score import math_dapo, math_reward, math_verify, prime_math

    # veRL's annotations of these two are wrong: they return a dictionary and a tuple.
    dapo, prime = cast(Any, math_dapo), cast(Any, prime_math)
    return {
        "math_reward": lambda response, gold: math_reward.compute_score(response, gold) > 0,
        "math_dapo": lambda response, gold: dapo.compute_score(response, gold)["score"] > 0,
        "math_verify": lambda response, gold: math_verify.compute_score(response, gold) > 0,
        "prime_math": lambda response, gold: bool(prime.compute_score(response, gold)[0]),
    }


def verdicts(reward: str, gold: Any, response: str, verl: bool) -> dict[str, bool]:
    """Return by scorer whether it pays."""
    source, truth = scored_as(reward, gold)
    paid = {OURS: compute_score(source, response, truth)["acc"] == 1.0}
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return paid | {name: score(response, gold) for name, score in (verl_scorers() if verl else {}).items()}


def table(made: Counter[tuple[bool, str]], mistaken: dict[str, Counter[tuple[bool, str]]]) -> Iterator[str]:
    """Yield a Markdown table: by rule the number of mutants and of mistaken verdicts of each scorer."""
    yield f"| rule | by construction | mutants | {' | '.join(f'mistakes of {name}' for name in mistaken)} |"
    yield "|---|---|---|" + "---|" * len(mistaken)
    for right, word in ((False, "wrong"), (True, "right")):
        rules = [key for key in made if key[0] is right]
        for title, keys in [*((rule, [key]) for key in rules for rule in key[1:]), (f"all {word}", rules)]:
            counts = [sum(found[key] for key in keys) for found in (made, *mistaken.values())]
            yield f"| {title} | {word} | {' | '.join(map(str, counts))} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="directory of veRL Parquet files or JSON files")
    parser.add_argument("--golds", nargs="*", default=[], help="ground truths of mathematics by themselves")
    parser.add_argument(
        "--generated", nargs="*", choices=REWARDS, default=[], help="ground truths drawn for these rewards"
    )
    parser.add_argument("--count", type=int, default=200, help="of each of those (default: %(default)s)")
    parser.add_argument("--limit", type=int, help="only so many ground truths of --data, evenly spread")
    parser.add_argument("--verl", action="store_true", help="compare with veRL's scorers of mathematics")
    parser.add_argument("--show", action="store_true", help="print each mistaken verdict as a JSON line")
    parser.add_argument("--out", type=Path, help="Markdown file with the markers; without it the table is printed")
    arguments = parser.parse_args()
    golds: list[tuple[str, Any]] = [("math", gold) for gold in arguments.golds]
    if arguments.data:
        read = [*dict.fromkeys(read_golds(arguments.data))]
        golds += [("math", gold) for gold in read[:: max(1, len(read) // (arguments.limit or len(read)))]]
    draw = random.Random(0)
    golds += [(reward, generated(reward, draw)) for reward in arguments.generated for _ in range(arguments.count)]
    made: Counter[tuple[bool, str]] = Counter()
    mistaken: dict[str, Counter[tuple[bool, str]]] = {
        name: Counter() for name in (OURS, *(verl_scorers() if arguments.verl else ()))
    }
    for reward, gold in tqdm(golds, unit="gold", file=sys.stderr, mininterval=10):
        for right, rule, response in mutants(reward, gold):
            title = rule if reward == "math" else f"{reward}: {rule}"
            made[right, title] += 1
            for scorer, paid in verdicts(reward, gold, response, arguments.verl).items():
                mistaken[scorer][right, title] += paid != right
                if paid != right and scorer == OURS and arguments.show:
                    print(json.dumps({"rule": title, "right": right, "gold": gold, "response": response}))
    text = "\n".join([f"{len(golds):,} ground truths, {made.total():,} responses.", "", *table(made, mistaken)])
    if not arguments.out:
        print(text)
        return
    try:
        fill(arguments.out, "agreement", text)
    except ValueError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
