"""Measure how often the mathematics reward is right: on answers made by rule, and against the verdicts of other projects.

    python benchmarks/math_agreement.py --data DIR --out docs/measurements/math_agreement.md
    python benchmarks/math_agreement.py --data DIR --respelled
    python benchmarks/math_agreement.py --recorded DIR

--data: DIR holds veRL Parquet files with a ground truth per row, or JSON files with a list of rows with an `answer`. From every
distinct ground truth the script writes responses by rule: the ground truth itself, the same value written otherwise (right by
construction), and another value (wrong by construction). It scores each with this project's reward and with veRL's scorers,
and prints their mistakes as Markdown. With --out the text between the markers of that file is replaced. With --respelled only
this project's reward scores, and only what is right. No problem text is read, only answers.

--recorded: DIR holds checkouts of public repositories with recorded answers of models (see `recorded_answers.py`). The
verdict of this project's reward is compared with the recorded one; disagreements are printed as JSON lines.
"""

import argparse
import contextlib
import io
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from math_agreement_answers import more_spellings, other_values, same_values
from recorded_answers import read_recorded
from tqdm import tqdm

from verl_trgrpo.tasks import compute_score

BEGIN, END = "<!-- agreement: begin -->", "<!-- agreement: end -->"
OURS = "this project"

Golds = tuple[str, ...]


@cache
def scorers(respelled: bool = False) -> dict[str, Callable[[str, Golds], bool]]:
    """Return this project's reward and, unless `respelled`, veRL's scorers, as functions of (response, ground truths)."""
    ours = {OURS: lambda response, golds: compute_score("math", response, golds)["acc"] > 0}
    if respelled:
        return ours
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
    return ours | any_of


def read_golds(directory: Path) -> dict[str, list[Golds]]:
    """Distinct ground truths by file."""
    sets = {}
    for path in sorted([*directory.glob("*.parquet"), *directory.glob("*.json")]):
        if path.suffix == ".json":
            golds = [row["answer"] for row in json.loads(path.read_text(encoding="utf-8")) if row["answer"]]
        else:
            rows = pq.read_table(path, columns=["reward_model"])["reward_model"].to_pylist()
            golds = [row["ground_truth"] for row in rows]
        texts = [tuple(map(str, gold)) if isinstance(gold, list) else (str(gold),) for gold in golds]
        sets[path.stem.removesuffix("_test")] = list(dict.fromkeys(texts))
    return sets


def score_all(sets: dict[str, list[Golds]], respelled: bool) -> list[dict[str, Any]]:
    """Return every response with its set, its rule, whether it is right, and which scorers are mistaken."""
    rows = []
    named = [(name, golds) for name in sets for golds in sets[name]]
    for name, golds in tqdm(named, unit="gold", file=sys.stderr, mininterval=10):
        cases = [(True, *case) for case in same_values(golds[0])]
        more = more_spellings(golds[0]) if respelled else other_values(golds[0])
        cases += [(respelled, *case) for case in more]
        for right, rule, answer in dict.fromkeys(cases):
            if not right and answer in map(str.strip, golds):
                continue
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                response = rf"The answer is $\boxed{{{answer}}}$."
                mistaken = {scorer for scorer, score in scorers(respelled).items() if score(response, golds) != right}
            gold = golds[0].strip()
            rows.append({"set": name, "rule": (rule, right), "gold": gold, "answer": answer, "mistaken": mistaken})
    return rows


def by_set(rows: list[dict[str, Any]], names: list[str]) -> Iterator[str]:
    """Per set: the share of verdicts of each scorer that are right by construction."""
    yield f"| set | responses | {' | '.join(names)} |"
    yield "|---|---|" + "---|" * len(names)
    for name in [*dict.fromkeys(row["set"] for row in rows), "all"]:
        for right, title in ((True, "same value"), (False, "other value")):
            part = [row["mistaken"] for row in rows if name in (row["set"], "all") and row["rule"][1] is right]
            if part:
                shares = [1 - sum(scorer in mistaken for mistaken in part) / len(part) for scorer in names]
                yield f"| {name}, {title} | {len(part)} | {' | '.join(f'{share:.1%}' for share in shares)} |"


def by_rule(rows: list[dict[str, Any]], names: list[str]) -> Iterator[str]:
    """Per rule: how many verdicts of each scorer are mistaken, and the shortest answer."""
    yield f"| how the answer was made | responses | {' | '.join(names)} | gold, answer |"
    yield "|---|---|" + "---|" * len(names) + "---|"
    for rule in dict.fromkeys(row["rule"] for row in sorted(rows, key=lambda row: not row["rule"][1])):
        members = [row for row in rows if row["rule"] == rule]
        mistakes = Counter(scorer for row in members for scorer in row["mistaken"])
        example = min(members, key=lambda row: len(row["answer"]))
        cells = " | ".join(str(mistakes[scorer]) for scorer in names)
        title = f"{rule[0]} ({'right' if rule[1] else 'wrong'})"
        yield f"| {title} | {len(members)} | {cells} | {code(example['gold'])}, {code(example['answer'])} |"


def code(text: str) -> str:
    """Return a short text as Markdown code in a table."""
    text = text.replace("\n", " ").replace("|", "\\|")
    return f"`{text if len(text) <= 40 else text[:40] + '…'}`"


def report(sets: dict[str, list[Golds]], respelled: bool) -> str:
    """Return the Markdown report."""
    golds = [golds for name in sets for golds in sets[name]]
    unparseable = [golds[0] for golds in golds if compute_score("math", "", golds)["gold_unparseable"]]
    rows, names = score_all(sets, respelled), [*scorers(respelled)]
    lines = [f"{len(golds)} distinct ground truths, {len(rows)} responses. Verdicts that are right:", ""]
    lines += [*by_set(rows, names), "", "Verdicts that are mistaken, by the rule that made the answer:", ""]
    lines += [*by_rule(rows, names), ""]
    ours = [f"{code(row['answer'])} for {code(row['gold'])}" for row in rows if OURS in row["mistaken"]]
    lines.append(f"Mistakes of this project: {', '.join(ours) or 'none'}.")
    lines.append(f"Ground truths not understood: {', '.join(map(code, unparseable)) or 'none'}.")
    return "\n".join(lines)


def compare_recorded(directory: Path) -> None:
    """Print each disagreement with a recorded verdict, and the counts of a project and verdict pair."""
    answers = Counter(read_recorded(directory))
    counts: Counter[tuple[str, bool, bool]] = Counter()
    for (project, source, gold, answer, theirs), times in answers.items():
        ours = False
        if source == "search":
            ours = compute_score("searchR1_nq", answer, {"target": json.loads(gold)})["acc"] > 0
        elif gold:
            response = answer if source == "responses" else rf"\boxed{{{answer}}}"
            data_source = "minerva" if source == "minerva_math" else "math"
            ours = compute_score(data_source, response, gold)["acc"] > 0
        counts[project, ours, theirs] += times
        if ours != theirs:
            print(json.dumps({"project": project, "gold": gold, "answer": answer[-200:], "ours": ours, "times": times}))
    print(
        "| project | answers | same verdict | only this project accepts | only the project accepts |\n|---|---|---|---|---|"
    )
    for project in sorted({key[0] for key in counts}):
        total = sum(times for key, times in counts.items() if key[0] == project)
        ours, theirs = counts[project, True, False], counts[project, False, True]
        print(f"| {project} | {total:,} | {1 - (ours + theirs) / total:.2%} | {ours} | {theirs} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="directory of veRL Parquet files or JSON files")
    parser.add_argument("--respelled", action="store_true", help="only right answers, only this project's reward")
    parser.add_argument("--recorded", type=Path, help="directory of checkouts with recorded answers")
    parser.add_argument("--out", type=Path, help="Markdown file with the markers; without it the report is printed")
    parser.add_argument("--limit", type=int, help="only the first LIMIT ground truths of each file")
    arguments = parser.parse_args()
    if arguments.recorded:
        compare_recorded(arguments.recorded)
    if not arguments.data:
        return
    sets = {name: golds[: arguments.limit] for name, golds in read_golds(arguments.data).items()}
    if not sets:
        parser.error(f"no Parquet or JSON file in {arguments.data}; give a directory of data files")
    page = arguments.out.read_text(encoding="utf-8") if arguments.out else f"{BEGIN}{END}"
    if not (BEGIN in page and END in page):
        parser.error(f"{arguments.out} lacks the lines {BEGIN} and {END}; add them")
    text = report(sets, arguments.respelled)
    if arguments.out:
        page = f"{page.partition(BEGIN)[0]}{BEGIN}\n{text}\n{END}{page.partition(END)[2]}"
        arguments.out.write_text(page, encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
