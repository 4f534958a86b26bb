"""Compare this project's rewards with the recorded verdicts of other projects on answers of models.

    python -m studies.rewards.recorded_answers DIR

Disagreements are printed as JSON lines, then a table. The directory holds a checkout `<owner>+<name>` of each repository;
those and files that are missing are left out. ZeroEval records no verdict: its rule, the first number of answer and ground
truth agree, is applied here.
"""

import argparse
import io
import json
import re
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from verl_trgrpo.tasks import compute_score

Recorded = tuple[str, str, str, str, bool]
"""Project, data source, ground truth, answer, verdict of the project.

The data source is "responses" where the answer is a whole response, and "search" where the ground truth is a JSON list, too.
"""

_NUMBER = re.compile(r"-?\d+(\.\d+)?")
_JSON_ANSWER = re.compile(r'"answer"\s*:\s*("(?:[^"\\]|\\.)*"|[-\d.,]+)')


def read_recorded(directory: Path) -> Iterator[Recorded]:
    """Yield the recorded answers of all checkouts in `directory`."""
    for project, read in _READERS.items():
        checkout = directory / project.replace("/", "+")
        for source, gold, answer, verdict in read(checkout):
            yield project, source, str(gold).strip(), str(answer or "").strip(), bool(verdict)


def _lines(data: str) -> Iterator[dict]:
    return map(json.loads, data.splitlines())


def _math_evaluation(source: str, data: str) -> Iterator[tuple]:
    for row in _lines(data):
        for answer, verdict in zip(row["pred"], row["score"], strict=True):
            yield source, row["gt"], answer, verdict


def _qwen(checkout: Path) -> Iterator[tuple]:
    for path in checkout.glob("evaluation/data/eval_rm_maj_example/*.jsonl"):
        yield from _math_evaluation("math", path.read_text(encoding="utf-8"))


def _rho(checkout: Path) -> Iterator[tuple]:
    for path in checkout.glob("rho-1/outputs.zip"):
        archive = zipfile.ZipFile(io.BytesIO(path.read_bytes()))
        for name in archive.namelist():
            if name.endswith(".jsonl"):
                yield from _math_evaluation(name.split("/")[-2], archive.read(name).decode())


def _reasoning_gym(checkout: Path) -> Iterator[tuple]:
    root = checkout / "reasoninggym-paper-experiments" / "math-evals"
    for path in sorted(root.glob("*/*/math_eval/*/*.jsonl")):
        yield from _math_evaluation(path.parent.name, path.read_text(encoding="utf-8"))
    for path in sorted(root.glob("**/results.json")):
        for category in json.loads(path.read_text(encoding="utf-8"))["categories"]:
            for result in (result for dataset in category["datasets"] for result in dataset["results"]):
                for completion in result["completions"]:
                    yield "math", result["expected_answer"], completion["model_answer"], completion["score"] == 1


def _abel(checkout: Path) -> Iterator[tuple]:
    for path in sorted(checkout.glob("outputs/*/*.jsonl")):
        for row in _lines(path.read_text(encoding="utf-8")):
            if "pred" in row:
                yield "math", row["gold"], row["pred"], row["result"]


def _zero_eval(checkout: Path) -> Iterator[tuple]:
    for path in sorted([*checkout.glob("result_dirs/gsm/*.json"), *checkout.glob("result_dirs/math-l5/*.json")]):
        for row in json.loads(path.read_text(encoding="utf-8")):
            if found := _JSON_ANSWER.findall(row["output"][0]):
                gold = row["answer"].replace("#", "")
                # A backslash that the model did not double is one all the same.
                answer = (
                    re.sub(r'\\(["/])', r"\1", found[-1].removeprefix('"').removesuffix('"'))
                    .replace("\\\\", "\\")
                    .replace("\\n", "\n")
                )
                numbers = [_NUMBER.search(re.sub(r"[$,]", "", text)) for text in (gold, answer)]
                same = all(numbers) and float(numbers[0][0]) == float(numbers[1][0])  # type: ignore[index]
                yield "math", gold, answer, same


def _asearcher(checkout: Path) -> Iterator[tuple]:
    for path in checkout.glob("AReaL/tests/reward/math_answers_sample_cases.jsonl"):
        for row in _lines(path.read_text(encoding="utf-8")):
            gold = row["solutions"][0].removeprefix(r"\boxed{").removesuffix("}")
            for response, reward in zip(row["generateds"], row["rewards"], strict=True):
                yield "responses", gold, response, reward > 0


def _reason_over_search(checkout: Path) -> Iterator[tuple]:
    for path in sorted(checkout.glob("evaluation_search_r1/results/**/intermediate_data.json")):
        for row in json.loads(path.read_text(encoding="utf-8")):
            output = row["output"]
            yield (
                "search",
                json.dumps(row["golden_answers"]),
                output["final_response"],
                output["metric_score"]["em"] == 1,
            )


_READERS = {
    "GAIR-NLP/abel": _abel,
    "GaurisankarJ/reason_over_search": _reason_over_search,
    "QwenLM/Qwen2.5-Math": _qwen,
    "WildEval/ZeroEval": _zero_eval,
    "inclusionAI/ASearcher": _asearcher,
    "microsoft/rho": _rho,
    "open-thought/reasoning-gym-eval": _reasoning_gym,
}


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
        accepted, refused = counts[project, True, False], counts[project, False, True]
        print(f"| {project} | {total:,} | {1 - (accepted + refused) / total:.2%} | {accepted} | {refused} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="directory of checkouts")
    compare_recorded(parser.parse_args().directory)


if __name__ == "__main__":
    main()
