"""The builder: limits, sources in every layout, malformed rows, unknown sets."""

import pytest

from tests.tasks.built_files import manifest_of, rows_of
from tests.tasks.search_qa.files import question, run, write_collection, write_jsonl
from verl_trgrpo.data.sources import load_hub
from verl_trgrpo.tasks.search_qa import rows
from verl_trgrpo.tasks.search_qa.rows import HUB_SPLITS, find_question_files

FOUR = [question("nq", "train", number) for number in range(4)]
TRAIN_ONLY = ("--train-sets", "nq", "--test-sets")


@pytest.fixture
def source(tmp_path):
    return write_collection(tmp_path / "source")


def test_limit_draws_from_each_set(tmp_path, source):
    assert run(tmp_path / "out", "--source", source, "--limit", "3") == 0
    train, test = (rows_of(tmp_path / "out" / f"{name}.parquet") for name in ("train", "test"))
    assert [row["data_source"] for row in train] == ["searchR1_nq"] * 3 + ["searchR1_hotpotqa"] * 3
    assert len(test) == 3 * 7
    counts = manifest_of(tmp_path / "out")["counts"]["nq/train for train"]
    dropped = {"not drawn for the limit": 3}
    assert counts == {"read": 6, "kept": 3, "dropped": dropped, "columns_not_read": ["metadata"]}


def test_a_row_without_id_is_known_by_its_number(tmp_path):
    data = [{"question": "a", "golden_answers": "x"}, {"question": "b", "golden_answers": ["y", "", "y"], "id": 7}]
    write_jsonl(tmp_path / "nq" / "train.jsonl", data)
    assert run(tmp_path / "out", "--source", tmp_path, *TRAIN_ONLY) == 0
    found = rows_of(tmp_path / "out" / "train.parquet")
    assert [row["extra_info"]["origin"] for row in found] == ["nq/train#1", "nq/train#7"]
    assert [row["reward_model"]["ground_truth"]["target"] for row in found] == [["x"], ["y"]]


def test_a_train_split_is_tested_on_only_where_it_is_not_trained_on(tmp_path, capsys):
    source = write_collection(tmp_path / "source", splits={"nq": ("train",), "musique": ("train",)})
    words = ["--source", source, "--train-sets", "nq", "--test-sets"]
    assert run(tmp_path / "out", *words, "musique") == 0
    train, test = (rows_of(tmp_path / "out" / f"{name}.parquet") for name in ("train", "test"))
    assert {row["data_source"] for row in train} == {"searchR1_nq"}
    assert {row["data_source"] for row in test} == {"searchR1_musique"}
    assert run(tmp_path / "other", *words, "nq", "popqa") == 2
    error = capsys.readouterr().err
    assert "2 problems" in error and "no test split of nq" in error and "no test split of popqa" in error
    assert not (tmp_path / "other").exists()


MALFORMED = {
    "no question": {"question": None},
    "a blank question": {"question": " "},
    "a chat template's tag": {"question": "who <|im_end|>"},
    "no answers": {"golden_answers": None},
    "an empty list": {"golden_answers": []},
    "blank answers": {"golden_answers": ["", " "]},
    "a number": {"golden_answers": [1912]},
}


@pytest.mark.parametrize("change", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_row_costs_itself_and_is_named_and_a_file_of_them_stops_the_build(tmp_path, capsys, caplog, change):
    source = write_jsonl(tmp_path / "nq" / "train.jsonl", [FOUR[0], FOUR[1] | change, FOUR[2]])
    assert run(tmp_path / "out", "--source", tmp_path, *TRAIN_ONLY) == 0
    assert "nq/train, row 2: " in caplog.text
    counts = manifest_of(tmp_path / "out")["counts"]["nq/train for train"]
    assert (counts["kept"], sum(counts["dropped"].values()), counts["rows_not_used"]) == (2, 1, ["nq/train#2"])
    write_jsonl(source, [FOUR[0] | change] * 2)
    assert run(tmp_path / "none", "--source", tmp_path, *TRAIN_ONLY) == 2
    assert "nq/train, row 1: " in capsys.readouterr().err and not (tmp_path / "none").exists()


def test_missing_columns_are_named_with_those_that_were_found(tmp_path, capsys):
    write_jsonl(tmp_path / "nq" / "train.jsonl", [{"query": "Who?", "golden_answers": ["x"], "id": 1}])
    assert run(tmp_path / "out", "--source", tmp_path, *TRAIN_ONLY) == 2
    assert "question=None: expected a string (found query, golden_answers, id)" in capsys.readouterr().err


HUB_CARD = "---\nconfigs:\n" + "".join(
    f"- config_name: {name}\n  data_files:\n"
    + "".join(f"  - split: {split}\n    path: {name}/{split}.jsonl\n" for split in splits)
    for name, splits in HUB_SPLITS.items()
)


def test_the_hubs_layout_gives_the_rows_of_its_files(tmp_path, monkeypatch, datasets_cache):
    hub = write_collection(tmp_path / "hub")
    (hub / "README.md").write_text(HUB_CARD + "---\n")
    # The library reads a directory as it reads the hub.
    monkeypatch.setattr(rows, "load_hub", lambda dataset, *rest: load_hub(str(hub), *rest))
    assert run(tmp_path / "out", "--source", "hf", "--val-per-set", "3") == 0
    assert run(tmp_path / "files", "--source", hub, "--val-per-set", "3") == 0
    for name in ("train", "test", "val"):
        assert rows_of(tmp_path / "out" / f"{name}.parquet") == rows_of(tmp_path / "files" / f"{name}.parquet")
    assert manifest_of(tmp_path / "out")["counts"] == manifest_of(tmp_path / "files")["counts"]


def test_a_set_with_one_split_is_known_by_its_own_name(tmp_path):
    for name in ("bamboogle.json", "Popqa.jsonl"):
        (tmp_path / name).write_text("[]")
    (tmp_path / "nq.jsonl").write_text("")  # of which split is not known
    assert find_question_files(tmp_path, tmp_path / "out").parts.keys() == {"bamboogle/test", "popqa/test"}
