"""Where this project's math reward and veRL's own scorers disagree, on the answers of public test sets.

    python benchmarks/math_agreement.py --data DIR --out docs/math_reward.md

DIR holds veRL parquet files with a ground truth per row. From every distinct ground truth the script writes responses by
rule: the ground truth itself, the same value written otherwise (right by construction), and another value (wrong by
construction). It scores each with this project's reward and with veRL's scorers, and prints the differences as Markdown.
With --out the text between the markers of that file is replaced. No problem text is read, only answers.
"""

import argparse
import contextlib
import io
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from math_agreement_answers import kind_of, other_values, same_values
from math_agreement_reasons import REASONS
from tqdm import tqdm

from verl_trgrpo.tasks import compute_score

BEGIN, END = "<!-- agreement: begin -->", "<!-- agreement: end -->"
OURS = "this project"
MAX_EXAMPLE = 40


def verl_scorers() -> dict[str, Callable[[str, str], bool]]:
    """veRL's scorers that can be imported here, as functions of (response, ground truth)."""
    from verl.utils.reward_score import math_dapo, math_reward, math_verify

    scorers: dict[str, Callable[[str, str], bool]] = {
        "math_reward": lambda response, gold: math_reward.compute_score(response, gold) > 0,
        "math_dapo": lambda response, gold: math_dapo.compute_score(response, gold)["score"] > 0,
        "math_verify": lambda response, gold: math_verify.compute_score(response, gold) > 0,
    }
    try:
        from verl.utils.reward_score import prime_math
    except ImportError as error:
        print(f"prime_math is left out: {error}", file=sys.stderr)
        return scorers
    scorers["prime_math"] = lambda response, gold: bool(prime_math.compute_score(response, gold)[0])
    return scorers


def read_golds(directory: Path) -> dict[str, list[tuple[str, ...]]]:
    """Distinct ground truths by file."""
    sets = {}
    for path in sorted(directory.glob("*.parquet")):
        golds = [
            row["ground_truth"] for row in pq.read_table(path, columns=["reward_model"])["reward_model"].to_pylist()
        ]
        texts = [tuple(map(str, gold)) if isinstance(gold, list) else (str(gold),) for gold in golds]
        sets[path.stem.removesuffix("_test")] = list(dict.fromkeys(texts))
    return sets


def compare(sets: dict[str, list[tuple[str, ...]]]) -> tuple[list[dict[str, Any]], Counter[str], list[str]]:
    """Score every response with every scorer; also count and list the ground truths that ours does not understand."""
    scorers = verl_scorers()
    rows, unparseable, listed = [], Counter[str](), []
    total = [(name, golds) for name, all_golds in sets.items() for golds in all_golds]
    for name, golds in tqdm(total, unit="gold", file=sys.stderr):
        if compute_score("math", "", list(golds))["gold_unparseable"]:
            unparseable[name] += 1
            listed.append(golds[0].strip())
        cases = [("right", *case) for case in same_values(golds[0])] + [
            ("wrong", *case) for case in other_values(golds[0])
        ]
        for expected, rule, answer in dict.fromkeys(cases):
            if expected == "wrong" and answer in map(str.strip, golds):
                continue
            response = rf"The answer is $\boxed{{{answer}}}$."
            verdicts = {OURS: compute_score("math", response, list(golds))["acc"] > 0}
            for scorer, score in scorers.items():
                with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                    verdicts[scorer] = any(score(response, gold) for gold in golds)
            rows.append(
                {"set": name, "expected": expected == "right", "rule": rule, "kind": kind_of(golds[0]),
                 "gold": golds[0].strip(), "answer": answer, "verdicts": verdicts}
            )  # fmt: skip
    return rows, unparseable, listed


def code(text: str) -> str:
    """A short text as Markdown code in a table."""
    text = text.replace("\n", " ").replace("|", "\\|")
    return f"`{text if len(text) <= MAX_EXAMPLE else text[:MAX_EXAMPLE] + '…'}`"


def summary_table(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Per set: how many verdicts of each scorer are right by construction, and agree with ours."""
    scorers = list(rows[0]["verdicts"])
    yield "| set | responses | " + " | ".join(f"{scorer}: right" for scorer in scorers) + " | agree with ours |"
    yield "|---|---|" + "---|" * (len(scorers) + 1)
    for name in [*dict.fromkeys(row["set"] for row in rows), "all"]:
        for expected, title in ((True, "same value"), (False, "other value")):
            part = [row for row in rows if name in (row["set"], "all") and row["expected"] is expected]
            right = [sum(row["verdicts"][scorer] == expected for row in part) for scorer in scorers]
            agree = [sum(row["verdicts"][s] == row["verdicts"][OURS] for row in part) for s in scorers[1:]]
            shares = " | ".join(f"{count / len(part):.1%}" for count in right)
            agreement = ", ".join(
                f"{scorer} {count / len(part):.1%}" for scorer, count in zip(scorers[1:], agree, strict=True)
            )
            yield f"| {name}, {title} | {len(part)} | {shares} | {agreement} |"


def difference_table(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Every class of difference with count, an example, the right side and the reason."""
    classes: dict[tuple[str, str, bool], list[dict[str, Any]]] = defaultdict(list)
    totals: Counter[tuple[str, bool]] = Counter()
    for row in rows:
        totals[row["rule"], row["expected"]] += 1
        for scorer, verdict in row["verdicts"].items():
            if verdict != row["verdicts"][OURS]:
                classes[row["rule"], scorer, row["expected"]].append(row)
    yield "| how the answer was made | scorer | differ / all | example: gold, answer | right side | why |"
    yield "|---|---|---|---|---|---|"
    for (rule, scorer, expected), members in sorted(
        classes.items(), key=lambda item: (not item[0][2], item[0][0], item[0][1])
    ):
        ours_right = sum(row["verdicts"][OURS] == expected for row in members)
        side = "ours" if ours_right == len(members) else f"theirs ({len(members) - ours_right}), ours ({ours_right})"
        side = side.replace(", ours (0)", "")
        kinds = Counter(row["kind"] for row in members)
        example = min(members, key=lambda row: (row["verdicts"][OURS] == expected, len(row["answer"])))
        reason = REASONS.get((rule, scorer)) or REASONS.get(("*" if expected else "", scorer), "not explained")
        where = ", ".join(f"{kind} {count}" for kind, count in kinds.most_common())
        yield (
            f"| {rule} ({'right' if expected else 'wrong'}) | {scorer} | {len(members)} / {totals[rule, expected]} ({where}) "
            f"| {code(example['gold'])}, {code(example['answer'])} | {side} | {reason} |"
        )


def own_errors(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Verdicts of ours that are not right by construction."""
    errors = [row for row in rows if row["verdicts"][OURS] != row["expected"]]
    yield f"Verdicts of this project that are not right by construction: {len(errors)} of {len(rows)}."
    if errors:
        yield ""
        yield "| set | gold | answer | how it was made | verdict | why |"
        yield "|---|---|---|---|---|---|"
    for row in errors:
        reason = REASONS.get((row["rule"], OURS), "not explained")
        verdict = "right" if row["verdicts"][OURS] else "wrong"
        yield f"| {row['set']} | {code(row['gold'])} | {code(row['answer'])} | {row['rule']} | {verdict} | {reason} |"


def report(sets: dict[str, list[tuple[str, ...]]]) -> str:
    """The Markdown report."""
    rows, unparseable, listed = compare(sets)
    golds = sum(map(len, sets.values()))
    lines = [
        f"{golds} distinct ground truths, {len(rows)} responses.",
        "",
        *summary_table(rows),
        "",
        *own_errors(rows),
        "",
        f"Ground truths not understood: {sum(unparseable.values())} of {golds}"
        + (f" ({', '.join(f'{name} {count}' for name, count in unparseable.items())}): " if unparseable else ".")
        + ", ".join(map(code, listed)),
        "",
        *difference_table(rows),
    ]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="directory of veRL parquet files")
    parser.add_argument("--out", type=Path, help="Markdown file with the markers; without it the report is printed")
    parser.add_argument("--limit", type=int, help="only the first LIMIT ground truths of each file")
    arguments = parser.parse_args()
    sets = {name: golds[: arguments.limit] for name, golds in read_golds(arguments.data).items()}
    if not sets:
        print(f"error: no parquet file in {arguments.data}; give a directory of veRL data files", file=sys.stderr)
        return 2
    page = arguments.out.read_text(encoding="utf-8") if arguments.out else ""
    if arguments.out and not (BEGIN in page and END in page):
        print(f"error: {arguments.out} lacks the lines {BEGIN} and {END}; add them", file=sys.stderr)
        return 2
    text = report(sets)
    if arguments.out:
        head, tail = page.partition(BEGIN)[0], page.partition(END)[2]
        arguments.out.write_text(f"{head}{BEGIN}\n{text}\n{END}{tail}", encoding="utf-8")
    else:
        print(text)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
