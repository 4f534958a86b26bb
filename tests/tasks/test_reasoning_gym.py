"""Tasks of reasoning-gym: rows, and its verifiers as rewards."""

import json

import pytest

from tests.data.checked_files import results
from verl_trgrpo.tasks import compute_score
from verl_trgrpo.tasks.reasoning_gym import ReasoningGymOptions, build
from verl_trgrpo.tasks.registry import reference_response_of


@pytest.mark.parametrize("task", ["gsm_symbolic", "chain_sum", "countdown", "sudoku", "zebra_puzzles"])
def test_tasks_build_and_score_right_and_wrong_answers(tmp_path, task, load_in_verl):
    build(ReasoningGymOptions(out=tmp_path, task=task, train=12, test=4))
    data, batch = load_in_verl([tmp_path / "train.parquet", tmp_path / "test.parquet"])
    assert len(data) == 16
    for source, reward_model, messages in zip(
        batch["data_source"], batch["reward_model"], batch["raw_prompt"], strict=True
    ):
        truth = reward_model["ground_truth"]
        assert source == f"reasoning_gym/{task}"
        assert messages[0]["content"].startswith(json.loads(truth)["entry"]["question"])
        right = reference_response_of(source)(truth)
        scores = [compute_score(source, text, truth) for text in (f"Hm. <answer>no</answer> {right} .", right)]
        assert all(score["score"] == score["acc"] == score["format_ok"] == 1.0 for score in scores)
        wrong = compute_score(source, f"{right} <answer>no</answer>", truth)
        assert wrong["acc"] == 0.0 and wrong["score"] < 0.1 and wrong["format_ok"] == 1.0
        for text in ("", right.removeprefix("<answer>"), right.removesuffix("</answer>")):
            assert compute_score(source, text, truth)["score"] == compute_score(source, text, truth)["format_ok"] == 0.0


def test_a_task_that_is_not_there_is_no_wrong_answer():
    truth = json.dumps({"task": "nosuch", "config": {}, "entry": {}})
    with pytest.raises(ValueError, match="nosuch"):
        compute_score("reasoning_gym/nosuch", "<answer>1</answer>", truth)


def test_rows_without_a_stated_answer_are_not_checked_against_one(tmp_path):
    build(ReasoningGymOptions(out=tmp_path, task="graph_color", train=3, test=1))
    found = results(tmp_path / "train.parquet")["reward of gold"]
    assert found.status == "not checked"


@pytest.mark.parametrize("piece", ["<answer>", "</answer>", "<answer></answer>", "(", "9**"])
def test_long_responses_get_a_score(piece):
    truth = json.dumps(
        {"task": "chain_sum", "config": {}, "entry": {"question": "1 + 1 =", "answer": "2", "metadata": {}}}
    )
    assert compute_score("reasoning_gym/chain_sum", f"<answer>{piece * 50_000}</answer>", truth)["acc"] == 0.0
