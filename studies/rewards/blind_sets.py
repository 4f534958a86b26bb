"""Print by kind what the judge and math_verify paid in sets of cases that were blind when they were read, from their record.

    python -m studies.rewards.blind_sets --out docs/results/rewards.md
    python -m studies.rewards.blind_sets --show

records/blind_sets.jsonl has a line for each set, with the commit at which it was read and since when it has been looked at, and
behind it the cases: kind, ground truth, question, response, the author's label, and the two verdicts of that reading. With --out
the text between the markers of a Markdown file is replaced by the tables; with --show the present verdicts that differ from the
labels are printed.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from studies.pages import fill
from verl_trgrpo.judge import judge_answer

RECORD = Path(__file__).parent / "records" / "blind_sets.jsonl"
READERS = {"paid": "this project", "math_verify": "math_verify"}


def read_sets(record: Path = RECORD) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Return the sets of a record, each with its cases."""
    sets: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
    for line in record.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if "set" in row:
            sets.append((row, []))
        else:
            sets[-1][1].append(row)
    return sets


def tables(record: Path = RECORD) -> str:
    """Return a Markdown table for each set: by kind the right and the wrong cases that were paid."""
    return "\n\n".join("\n".join(_table(about, cases)) for about, cases in read_sets(record))


def _table(about: dict[str, Any], cases: Sequence[dict[str, Any]]) -> Iterator[str]:
    looked_at = (
        f"Its cases were looked at in {about['looked_at']}, so it measures no later commit."
        if about["looked_at"]
        else ""
    )
    yield f"{about['set'].capitalize()}, read blind at `{about['commit']}` in {about['on']}. {looked_at}".strip()
    yield ""
    yield f"| kind | {' | '.join(f'right paid, {name} | wrong paid, {name}' for name in READERS.values())} |"
    yield "|---|" + "---|" * 2 * len(READERS)
    kinds = {kind: [case for case in cases if case["kind"] == kind] for kind in dict.fromkeys(c["kind"] for c in cases)}
    for kind, found in {**kinds, "all": cases}.items():
        cells = [_share(found, reader, right) for reader in READERS for right in (True, False)]
        yield f"| {kind} | {' | '.join(cells)} |"


def _share(cases: Sequence[dict[str, Any]], reader: str, right: bool) -> str:
    paid = [case[reader] for case in cases if case["right"] is right]
    return f"{sum(paid)} of {len(paid)}" if paid else ""


def mistaken(cases: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the cases about which the judge of today decides otherwise than their author."""
    for case in cases:
        if judge_answer(case["response"], case["gold"], case["question"]).right != case["right"]:
            yield case


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="Markdown file with the markers; without it the tables are printed")
    parser.add_argument("--show", action="store_true", help="print the present mistakes as JSON lines")
    arguments = parser.parse_args()
    if arguments.show:
        for _, cases in read_sets():
            for case in mistaken(cases):
                print(json.dumps(case))
        return
    if not arguments.out:
        print(tables())
        return
    try:
        fill(arguments.out, "blind sets", tables())
    except ValueError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
