"""Public cases are read, and no run that ran is refused."""

import json
from pathlib import Path

import pytest

from studies.memory import scoring
from verl_trgrpo.memory.plan import Plan
from verl_trgrpo.memory.verdict import DOES_NOT, memory_verdict

FILE = Path(scoring.__file__).with_name("cases.jsonl")
CASES = [json.loads(line) for line in FILE.read_text().splitlines()]


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_what_ran_is_not_refused(case):
    assert scoring.scorable(case) and "/" in case["source"]
    setup = scoring.setup_of_case(case)
    plan = Plan(scoring.shape_of(scoring.model_of(case), setup.lora_rank), setup, case["gpu_gb"], scoring.ADAMW)
    kind = memory_verdict(plan).kind
    assert case["outcome"] == "gpu_oom" or kind != DOES_NOT
    smaller = Plan(plan.shape, setup, case["gpu_gb"] / 20, scoring.ADAMW)
    assert memory_verdict(smaller).kind == DOES_NOT


def test_the_score_counts_every_case(capsys):
    scoring.score(FILE, None)
    printed = capsys.readouterr().out
    assert all(case["id"] in printed for case in CASES) and f"of {len(CASES)}\n" in printed
