"""What the rows hold: prompts, golds, and what veRL's agent loops read."""

import json

import pyarrow.parquet as pq
import pytest

from tests.tasks.built_files import manifest_of, rows_of
from tests.tasks.search_qa.files import question, run, write_collection, write_jsonl
from verl_trgrpo.tasks.search_qa import QUESTION_SETS
from verl_trgrpo.tasks.search_qa.rows import search_prompt

TEST_SPLITS = {
    "nq": "test",
    "triviaqa": "test",
    "popqa": "test",
    "hotpotqa": "dev",
    "2wikimultihopqa": "dev",
    "musique": "dev",
    "bamboogle": "test",
}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    directory = tmp_path_factory.mktemp("search_qa")
    source = write_collection(directory / "collection")
    assert run(directory / "out", "--source", source, "--val-per-set", "2") == 0
    return directory / "out"


def test_train_and_test_hold_every_row_of_search_r1s_splits_in_order(built):
    train, test = (rows_of(built / f"{name}.parquet") for name in ("train", "test"))
    assert [row["extra_info"]["origin"] for row in train] == [
        f"{name}/train#train_{number}" for name in ("nq", "hotpotqa") for number in range(6)
    ]
    assert [row["extra_info"]["origin"] for row in test] == [
        f"{name}/{split}#{split}_{number}" for name, split in TEST_SPLITS.items() for number in range(6)
    ]
    assert {row["data_source"] for row in test} == {f"searchR1_{name}" for name in QUESTION_SETS}
    for data, split in ((train, "train"), (test, "test")):
        assert [row["extra_info"]["index"] for row in data] == list(range(len(data)))
        assert {row["extra_info"]["split"] for row in data} == {split}


def test_a_row_asks_its_question_and_accepts_its_answers(built):
    for name in ("train", "test", "val"):
        for row in rows_of(built / f"{name}.parquet"):
            info = row["extra_info"]
            number = info["origin"].rpartition("_")[2]
            assert info["question"].endswith(f" number is {number}?")
            assert row["prompt"] == search_prompt(info["question"])
            assert row["prompt"][0]["content"].endswith(f"\n\nQuestion: {info['question']}")
            assert row["reward_model"] == {"style": "rule", "ground_truth": {"target": [number, f"number {number}"]}}
            assert row["ability"] == "fact-reasoning"
            assert row["agent_name"] == "trgrpo_search"
            assert set(info) == {"index", "split", "question", "origin"}


def test_val_is_a_balanced_sample_of_test(built):
    test, val = (rows_of(built / f"{name}.parquet") for name in ("test", "val"))
    known = {row["extra_info"]["origin"]: row["prompt"] for row in test}
    drawn = [row["extra_info"]["origin"] for row in val]
    assert len(set(drawn)) == len(drawn) == 2 * len(QUESTION_SETS)
    assert all(known[row["extra_info"]["origin"]] == row["prompt"] for row in val)
    assert [row["data_source"] for row in val] == [f"searchR1_{name}" for name in TEST_SPLITS for _ in range(2)]
    assert [row["extra_info"]["index"] for row in val] == list(range(len(val)))


def test_questions_get_one_question_mark(tmp_path):
    texts = ["who", " who are you? ", "name it.", "really??", "état"]
    write_jsonl(tmp_path / "nq/test.jsonl", [question("nq", "test", n, question=t) for n, t in enumerate(texts)])
    assert run(tmp_path / "out", "--source", tmp_path, "--train-sets", "--test-sets", "nq") == 0
    found = [row["extra_info"]["question"] for row in rows_of(tmp_path / "out" / "test.parquet")]
    assert found == ["who?", "who are you?", "name it.?", "really??", "état?"]


def test_repeated_train_questions_become_one_row_with_all_answers_and_tests_keep_theirs(tmp_path):
    texts = [("Who?", ["a"]), ("Why?", ["b"]), ("who", ["A", "a", "c"]), ("Who?", ["d"])]
    for split in ("train", "test"):
        data = [question("nq", split, n, question=t, golden_answers=a) for n, (t, a) in enumerate(texts)]
        write_jsonl(tmp_path / "nq" / f"{split}.jsonl", data)
    assert run(tmp_path / "out", "--source", tmp_path, "--train-sets", "nq", "--test-sets", "nq") == 0
    train, test = (rows_of(tmp_path / "out" / f"{name}.parquet") for name in ("train", "test"))
    golds = [(row["extra_info"]["question"], row["reward_model"]["ground_truth"]["target"]) for row in train]
    assert golds == [("Who?", ["a", "A", "c", "d"]), ("Why?", ["b"])]
    assert [row["extra_info"]["origin"] for row in train] == ["nq/train#train_0", "nq/train#train_1"]
    assert [row["reward_model"]["ground_truth"]["target"] for row in test] == [["a"], ["b"], ["A", "a", "c"], ["d"]]
    counts = manifest_of(tmp_path / "out")["counts"]
    assert sum(counts["nq/train for train"]["dropped"].values()) == 2 and counts["nq/test for test"]["dropped"] == {}


NATIVE = {
    "nq/NQ-open.train.jsonl": [{"question": "who wrote it", "answer": ["Ann", "A. Lee"]}],
    "hotpotqa/hotpot_train_v1.1.json": [
        {"_id": "5a7", "question": "Which?", "answer": "yes", "context": [], "level": "hard"}
    ],
    "2wikimultihopqa/train.json": [{"_id": "13f", "question": "When?", "answer": "1901", "type": "compositional"}],
    "musique/musique_ans_v1.0_train.jsonl": [
        {"id": "2hop__1", "question": "Where?", "answer": "Rome", "answer_aliases": ["Roma"], "answerable": True},
        {"id": "2hop__2", "question": "How?", "answer": "x", "answer_aliases": [], "answerable": False},
    ],
}


def test_the_files_of_the_sets_own_projects_are_read(tmp_path):
    for name, rows in NATIVE.items():
        path = tmp_path / "raw" / name
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(rows) if name.endswith(".json") else "".join(json.dumps(row) + "\n" for row in rows))
    sets = [name.partition("/")[0] for name in NATIVE]
    assert run(tmp_path / "out", "--source", tmp_path / "raw", "--train-sets", *sets, "--test-sets", "--seed", 0) == 0
    rows = pq.read_table(tmp_path / "out" / "train.parquet").to_pylist()
    found = {row["extra_info"]["origin"]: row["reward_model"]["ground_truth"]["target"] for row in rows}
    assert found == {
        "nq/train#1": ["Ann", "A. Lee"], "hotpotqa/train#5a7": ["yes"], "2wikimultihopqa/train#13f": ["1901"],
        "musique/train#2hop__1": ["Rome", "Roma"],
    }  # fmt: skip
