"""What a rollout tells the reward comes from the rollout: no key of a row's extra_info pays a response without an answer.

The keys are those that any source of the package reads from any mapping, so a new one is tried as soon as it is read.
"""

import ast
import asyncio
import json
import math
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from transformers import AutoTokenizer
from verl.trainer.ppo.reward import load_reward_manager

import verl_trgrpo
from tests.checks.test_files import view_of
from tests.data.checked_files import clean, results, row, write
from tests.tasks.test_reward_manager import asked, config_of
from verl_trgrpo.checks.data_files import data_findings
from verl_trgrpo.common.findings import Level
from verl_trgrpo.data.rows import RESERVED_KEYS, Row
from verl_trgrpo.demos.puzzles import CHECKPOINT
from verl_trgrpo.evaluation.evaluate import load_evaluable_rows
from verl_trgrpo.evaluation.response_store import Response
from verl_trgrpo.tasks import Score, compute_score, known_data_sources
from verl_trgrpo.tasks.registry import find_reward

# Keys of a row that may change what its right answer is, as a builder marks rows; a ground truth and what each makes right.
OF_THE_ROW = {
    "rounded_gold": ("0.333", r"\boxed{\frac{1}{3}}"),
    "natural_log": (r"\log 2", r"\boxed{\ln 2}"),
}

SOURCES = [name.replace("*", "3" if name.startswith("kk") else "chain_sum") for name in known_data_sources()]
GYM = json.dumps({"task": "chain_sum", "config": {}, "entry": {"question": "1 + 1 =", "answer": "2", "metadata": {}}})
# By module of the reward: a ground truth, the right response, and wrong ones.
CASES = {
    "knights_and_knaves": ("(1) Zoey is a knight", "<answer>Zoey is a knight</answer>", "<answer>Zoey is a knave</answer>"),
    "math": ("0.333", r"\boxed{0.333}", r"\boxed{\frac{1}{3}}"),
    "search_qa": ({"target": ["Paris"]}, "<answer>Paris</answer>", "<answer>Rome</answer>"),
    "reasoning_gym": (GYM, "<answer>2</answer>", "<answer>3</answer>"),
}  # fmt: skip


@cache
def case_of(source):
    module = getattr(getattr(find_reward(source), "func", find_reward(source)), "__module__", "")
    return next(case for name, case in CASES.items() if name in module)


@cache
def sources():
    return {path: ast.parse(path.read_text()) for path in Path(verl_trgrpo.__file__).parent.rglob("*.py")}


@cache
def keys_read():
    """Return the strings by which some mapping is read, and where extra_info is read by what is no constant."""
    trees, constants, reads = sources(), {}, []
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    pairs = (
                        zip(target.elts, node.value.elts, strict=False)
                        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple)
                        else [(target, node.value)]
                    )
                    for name, value in pairs:
                        if isinstance(name, ast.Name) and isinstance(value, ast.Constant):
                            constants.setdefault(name.id, set()).add(value.value)
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
                if node.func.attr in ("get", "pop", "setdefault"):
                    reads.append((path, node.func.value, node.args[0]))
            elif isinstance(node, ast.Subscript):
                reads.append((path, node.value, node.slice))
            elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
                reads.append((path, node.comparators[0], node.left))
    keys, unknown = set(), []
    for path, mapping, key in reads:
        found = {key.value} if isinstance(key, ast.Constant) else constants.get(getattr(key, "id", None), set())
        keys |= {value for value in found if isinstance(value, str)}
        if not found and path.parts[-2] != "data" and "extra_info" in ast.unparse(mapping):
            unknown.append(f"{path}:{key.lineno}")
    return sorted(keys | Score(0.0, 0.0).as_dict().keys()), unknown


def hostile(source):
    """Return values that a data file can hold; among them are fields of a score and the right response."""
    right, fields = case_of(source)[1], Score(0.0, 0.0).as_dict()
    return [
        1e9, -1, 10**400, math.nan, math.inf, True, False, "abc", "", right, [1], [], [right], [None], {}, {"x": "abc"},
        dict.fromkeys(fields, 1e9), dict.fromkeys(fields, math.nan), dict.fromkeys(fields), {"other": 10**400},
        [{"role": "user", "content": r"Answer in \boxed{}."}], np.array([right], dtype=object),
    ]  # fmt: skip


def planted(value, keys=None):
    keys = [key for key in keys_read()[0] if key not in OF_THE_ROW] if keys is None else keys
    return {"index": 0} | dict.fromkeys(keys, value)


def responses(source):
    return "no answer at all", "", case_of(source)[2]


def test_the_keys_are_found():
    keys, unknown = keys_read()
    assert RESERVED_KEYS | {"rounded_gold", "natural_log", "split", "tool_selection", "question"} <= {*keys}
    assert unknown == [], "a key of extra_info that no test can plant; read it by a constant"


@pytest.mark.parametrize("source", SOURCES)
def test_no_key_of_a_row_pays_a_response(source):
    truth = case_of(source)[0]
    for number, response in enumerate(responses(source)):
        plain = compute_score(source, response, truth, {"index": 0})
        for value in hostile(source)[number::3]:
            extra_info = planted(value)
            assert compute_score(source, response, truth, extra_info) == plain, value
            in_eval = Response(0, 0, response, 1, False).reward_input(Row(0, source, [], truth, extra_info))
            assert compute_score(source, response, truth, in_eval) == plain, value
    for row_itself in ("abc", 5, [1], ["score"], math.nan):
        assert compute_score(source, "", truth, row_itself) == compute_score(source, "", truth)


@pytest.mark.parametrize("source", ["kk", "math", "searchR1_nq"])
def test_no_single_key_of_a_row_pays_a_response(source):
    truth = case_of(source)[0]
    plain = compute_score(source, "no answer at all", truth)
    for number, key in enumerate(keys_read()[0]):
        for value in hostile(source)[number % 6 :: 6]:
            assert compute_score(source, "no answer at all", truth, {key: value}) == plain, (key, value)


def test_what_a_row_may_say_is_needed():
    for key, (truth, response) in OF_THE_ROW.items():
        assert compute_score("math", response, truth)["acc"] == 0.0
        assert compute_score("math", response, truth, {key: True})["acc"] == 1.0


@pytest.mark.parametrize("manager", ["naive", "dapo", "rate_limited", "naive of veRL"])
def test_no_key_of_a_row_pays_a_response_through_verls_managers(manager):
    name, _, verls = manager.partition(" of ")
    tokenizer = AutoTokenizer.from_pretrained(CHECKPOINT)
    overrides = [f"reward.reward_manager.name={name}", *(["reward.reward_manager.source=register"] if verls else [])]

    async def scores():
        one = load_reward_manager(config_of(*overrides), tokenizer)
        for source in ("kk", "math", "math_dapo", "minerva", "searchR1_nq", "reasoning_gym/chain_sum"):
            given = {"source": source, "truth": case_of(source)[0]}
            for number, response in enumerate(responses(source)):
                plain = await one.run_single(asked(tokenizer, response, **given))
                for value in hostile(source)[number::6]:
                    found = await one.run_single(asked(tokenizer, response, **given, extra_info=planted(value)))
                    assert found == plain, (source, response, value)

    asyncio.run(scores())


def test_only_one_function_speaks_for_the_rollout():
    made = [
        f"{path}:{node.lineno}"
        for path, tree in sources().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("RewardInput")
    ]
    assert len(made) == 1 and "reward_input.py" in made[0]


@pytest.mark.parametrize("key", sorted(RESERVED_KEYS))
@pytest.mark.parametrize("ending", ["parquet", "jsonl"])
def test_files_with_reserved_keys_are_refused(sound_run, tmp_path, key, ending):
    rows = clean()
    rows[2:] = [row(i, extra_info={"index": i, "split": "train", key: {"score": 1e9}}) for i in range(2, 6)]
    path = write(tmp_path / f"poison.{ending}", rows)
    [finding] = [each for each in data_findings(view_of(sound_run, f"data.train_files={path}")) if key in each.message]
    assert (
        finding.level is Level.ERROR and "row 2 and 3 more" in finding.message and "drop the field" in finding.message
    )
    columns = results(path)["columns"]
    assert (columns.status, columns.count) == ("error", 4)
    assert f"row 2 and 3 more: extra_info.{key}" in columns.examples[0]
    with pytest.raises(ValueError, match=f"row 2 and 3 more: extra_info.{key}"):
        load_evaluable_rows([path], None, 0)


def test_a_reserved_key_that_is_null_is_accepted(sound_run, tmp_path):
    rows = [row(i, extra_info={"index": i, "split": "train"} | dict.fromkeys(RESERVED_KEYS)) for i in range(6)]
    path = write(tmp_path / "null.parquet", rows)
    assert results(path)["columns"].status == "ok"
    assert data_findings(view_of(sound_run, f"data.train_files={path}")) == []
