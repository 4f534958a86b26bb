"""Tasks of reasoning-gym: rows, and its verifiers as rewards."""

import json
from functools import partial

import pytest

from tests.data.builder_files import files_in, rows_of
from tests.data.checked_files import results
from verl_trgrpo.data.build import run_builder
from verl_trgrpo.tasks import compute_score
from verl_trgrpo.tasks.reasoning_gym import ReasoningGymOptions, build
from verl_trgrpo.tasks.registry import find_right_response

main = partial(run_builder, ReasoningGymOptions, build, "data_prep/reasoning_gym_task.py", "")


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
        right = find_right_response(source)(truth)
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


def test_train_and_test_share_no_question_even_where_few_exist_and_bytes_depend_on_the_seed_alone(tmp_path):
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        words = ["--task", "chain_sum", "--config", "min_terms=2", "max_terms=2", "max_digits=1", "--train", "80"]
        assert main([*words, "--test", "40", "--seed", str(seed), "--out", str(tmp_path / name)]) == 0
    rows = [*rows_of(tmp_path / "a/train.parquet"), *rows_of(tmp_path / "a/test.parquet")]
    assert len({row["prompt"][0]["content"] for row in rows}) == 120
    train = [files_in(tmp_path / name)["train.parquet"] for name in "abc"]
    assert train[0] == train[1] != train[2]
    with pytest.raises(ValueError, match="different questions for train"):
        build(
            ReasoningGymOptions(out=tmp_path / "d", task="chain_sum", train=999, config=("max_terms=2", "max_digits=1"))
        )


@pytest.mark.parametrize(
    ("options", "reasons"),
    [
        ({"task": "gsm_symbolc", "train": 0}, ["train is 0", "no task 'gsm_symbolc'; did you mean gsm_symbolic"]),
        ({"task": "chain_sum", "config": ("min_terms",)}, ["--config min_terms is not NAME=VALUE"]),
        ({"task": "chain_sum", "config": ("terms=3",)}, ["refuses task 'chain_sum'", "terms"]),
        ({"task": "chain_sum", "config": ("min_terms=x",)}, ["refuses task 'chain_sum'"]),
    ],
)
def test_wrong_options_are_refused(tmp_path, options, reasons):
    with pytest.raises(ValueError) as caught:
        ReasoningGymOptions(out=tmp_path, **options)
    assert all(reason in str(caught.value) for reason in reasons), caught.value


def test_a_task_whose_verifier_needs_what_json_cannot_hold_is_refused(tmp_path):
    with pytest.raises(ValueError, match="verifier of rearc refuses its own answer"):
        build(ReasoningGymOptions(out=tmp_path / "out", task="rearc", train=1, test=1))


@pytest.mark.parametrize("piece", ["<answer>", "</answer>", "<answer></answer>", "(", "9**"])
def test_long_responses_get_a_score(piece):
    truth = json.dumps(
        {"task": "chain_sum", "config": {}, "entry": {"question": "1 + 1 =", "answer": "2", "metadata": {}}}
    )
    assert compute_score("reasoning_gym/chain_sum", f"<answer>{piece * 50_000}</answer>", truth)["acc"] == 0.0
