"""How often this project's math reward and veRL's own scorers are right, on answers made from public test sets.

    python benchmarks/math_agreement.py --data DIR --out docs/math_reward.md

DIR holds veRL parquet files with a ground truth per row. From every distinct ground truth the script writes responses by
rule: the ground truth itself, the same value written otherwise (right by construction), and another value (wrong by
construction). It scores each with this project's reward and with veRL's scorers, and prints their mistakes as Markdown.
With --out the text between the markers of that file is replaced. No problem text is read, only answers.
"""

import argparse
import contextlib
import io
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from math_agreement_answers import other_values, same_values
from tqdm import tqdm

from verl_trgrpo.tasks import compute_score

BEGIN, END = "<!-- agreement: begin -->", "<!-- agreement: end -->"
OURS = "this project"

Golds = tuple[str, ...]


def scorers() -> dict[str, Callable[[str, Golds], bool]]:
    """This project's reward and veRL's scorers, as functions of (response, ground truths)."""
    from verl.utils.reward_score import math_dapo, math_reward, math_verify, prime_math

    verl: dict[str, Callable[[str, str], bool]] = {
        "math_reward": lambda response, gold: math_reward.compute_score(response, gold) > 0,
        "math_dapo": lambda response, gold: math_dapo.compute_score(response, gold)["score"] > 0,
        "math_verify": lambda response, gold: math_verify.compute_score(response, gold) > 0,
        "prime_math": lambda response, gold: bool(prime_math.compute_score(response, gold)[0]),
    }
    any_of = {
        name: lambda response, golds, score=score: any(score(response, gold) for gold in golds)
        for name, score in verl.items()
    }
    return {OURS: lambda response, golds: compute_score("math", response, golds)["acc"] > 0, **any_of}


def read_golds(directory: Path) -> dict[str, list[Golds]]:
    """Distinct ground truths by file."""
    sets = {}
    for path in sorted(directory.glob("*.parquet")):
        rows = pq.read_table(path, columns=["reward_model"])["reward_model"].to_pylist()
        golds = [row["ground_truth"] for row in rows]
        texts = [tuple(map(str, gold)) if isinstance(gold, list) else (str(gold),) for gold in golds]
        sets[path.stem.removesuffix("_test")] = list(dict.fromkeys(texts))
    return sets


def score_all(sets: dict[str, list[Golds]]) -> list[dict[str, Any]]:
    """Every response with its set, its rule, whether it is right, and which scorers are mistaken."""
    rows = []
    named = [(name, golds) for name in sets for golds in sets[name]]
    for name, golds in tqdm(named, unit="gold", file=sys.stderr):
        cases = [(True, *case) for case in same_values(golds[0])]
        cases += [(False, *case) for case in other_values(golds[0])]
        for right, rule, answer in dict.fromkeys(cases):
            if not right and answer in map(str.strip, golds):
                continue
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                response = rf"The answer is $\boxed{{{answer}}}$."
                mistaken = {scorer for scorer, score in scorers().items() if score(response, golds) != right}
            gold = golds[0].strip()
            rows.append({"set": name, "rule": (rule, right), "gold": gold, "answer": answer, "mistaken": mistaken})
    return rows


def by_set(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Per set: the share of verdicts of each scorer that are right by construction."""
    yield f"| set | responses | {' | '.join(scorers())} |"
    yield "|---|---|" + "---|" * len(scorers())
    for name in [*dict.fromkeys(row["set"] for row in rows), "all"]:
        for right, title in ((True, "same value"), (False, "other value")):
            part = [row["mistaken"] for row in rows if name in (row["set"], "all") and row["rule"][1] is right]
            shares = [1 - sum(scorer in mistaken for mistaken in part) / len(part) for scorer in scorers()]
            yield f"| {name}, {title} | {len(part)} | {' | '.join(f'{share:.1%}' for share in shares)} |"


def by_rule(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Per rule: how many verdicts of each scorer are mistaken, and the shortest answer."""
    yield f"| how the answer was made | responses | {' | '.join(scorers())} | gold, answer |"
    yield "|---|---|" + "---|" * len(scorers()) + "---|"
    for rule in dict.fromkeys(row["rule"] for row in sorted(rows, key=lambda row: not row["rule"][1])):
        members = [row for row in rows if row["rule"] == rule]
        mistakes = Counter(scorer for row in members for scorer in row["mistaken"])
        example = min(members, key=lambda row: len(row["answer"]))
        cells = " | ".join(str(mistakes[scorer]) for scorer in scorers())
        title = f"{rule[0]} ({'right' if rule[1] else 'wrong'})"
        yield f"| {title} | {len(members)} | {cells} | {code(example['gold'])}, {code(example['answer'])} |"


def code(text: str) -> str:
    """A short text as Markdown code in a table."""
    text = text.replace("\n", " ").replace("|", "\\|")
    return f"`{text if len(text) <= 40 else text[:40] + '…'}`"


def report(sets: dict[str, list[Golds]]) -> str:
    """The Markdown report."""
    golds = [golds for name in sets for golds in sets[name]]
    unparseable = [golds[0] for golds in golds if compute_score("math", "", golds)["gold_unparseable"]]
    rows = score_all(sets)
    lines = [f"{len(golds)} distinct ground truths, {len(rows)} responses. Verdicts that are right:", "", *by_set(rows)]
    lines += ["", "Verdicts that are mistaken, by the rule that made the answer:", "", *by_rule(rows), ""]
    ours = [f"{code(row['answer'])} for {code(row['gold'])}" for row in rows if OURS in row["mistaken"]]
    lines.append(f"Mistakes of this project: {', '.join(ours) or 'none'}.")
    lines.append(f"Ground truths not understood: {', '.join(map(code, unparseable)) or 'none'}.")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="directory of veRL parquet files")
    parser.add_argument("--out", type=Path, help="Markdown file with the markers; without it the report is printed")
    parser.add_argument("--limit", type=int, help="only the first LIMIT ground truths of each file")
    arguments = parser.parse_args()
    sets = {name: golds[: arguments.limit] for name, golds in read_golds(arguments.data).items()}
    if not sets:
        parser.error(f"no parquet file in {arguments.data}; give a directory of veRL data files")
    page = arguments.out.read_text(encoding="utf-8") if arguments.out else f"{BEGIN}{END}"
    if not (BEGIN in page and END in page):
        parser.error(f"{arguments.out} lacks the lines {BEGIN} and {END}; add them")
    text = report(sets)
    if arguments.out:
        page = f"{page.partition(BEGIN)[0]}{BEGIN}\n{text}\n{END}{page.partition(END)[2]}"
        arguments.out.write_text(page, encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
