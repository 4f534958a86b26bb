"""Layouts, file types, splits, malformed rows, and a copy of the hub's repository."""

import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.data.builder_files import environment_for, files_in, manifest_of, rows_of, run_script
from tests.tasks.search_qa.files import question, run, write_collection, write_jsonl
from verl_trgrpo.tasks.search_qa.sources import HUB_REVISION, HUB_SPLITS

FOUR = [question("nq", "train", number) for number in range(4)]


def write_as(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(row) + "\n" for row in data)
    if path.name.endswith(".parquet"):
        # Parquet has no empty structs.
        pq.write_table(pa.Table.from_pylist([{k: v for k, v in row.items() if k != "metadata"} for row in data]), path)
    elif path.name.endswith(".gz"):
        path.write_bytes(gzip.compress(lines.encode()))
    else:
        path.write_text(json.dumps(data) if path.suffix == ".json" else lines)


@pytest.mark.parametrize("name", ["nq/train.jsonl", "nq/train.parquet", "nq_train.jsonl.gz", "nq_train.json"])
@pytest.mark.parametrize("as_file", [True, False], ids=["file", "directory"])
def test_every_layout_and_type_gives_the_same_rows(tmp_path, name, as_file):
    write_as(tmp_path / "source" / name, FOUR)
    assert run(tmp_path / "out", "--source", tmp_path / "source" / (name if as_file else "")) == 0
    data = rows_of(tmp_path / "out" / "train.parquet")
    assert [row["extra_info"]["origin"] for row in data] == [f"nq/train#train_{number}" for number in range(4)]
    assert [row["reward_model"]["ground_truth"]["target"] for row in data] == [row["golden_answers"] for row in FOUR]
    assert not (tmp_path / "out" / "test.parquet").exists()


def test_a_row_without_id_is_known_by_its_number(tmp_path):
    data = [{"question": "a", "golden_answers": "x"}, {"question": "b", "golden_answers": ["y", "", "y"], "id": 7}]
    source = write_jsonl(tmp_path / "nq_train.jsonl", data)
    assert run(tmp_path / "out", "--source", source) == 0
    found = rows_of(tmp_path / "out" / "train.parquet")
    assert [row["extra_info"]["origin"] for row in found] == ["nq/train#1", "nq/train#7"]
    assert [row["reward_model"]["ground_truth"]["target"] for row in found] == [["x"], ["y"]]


def test_a_train_split_is_tested_on_only_where_it_is_not_trained_on(tmp_path, caplog):
    source = write_collection(tmp_path / "source", splits={"nq": ("train",), "musique": ("train",)})
    assert run(tmp_path / "out", "--source", source) == 0
    assert "no train split of hotpotqa" in caplog.text
    assert "no test split of nq, triviaqa, popqa, hotpotqa, 2wikimultihopqa, bamboogle" in caplog.text
    train, test = (rows_of(tmp_path / "out" / f"{name}.parquet") for name in ("train", "test"))
    assert {row["data_source"] for row in train} == {"searchR1_nq"}
    assert {row["data_source"] for row in test} == {"searchR1_musique"}
    assert {row["extra_info"]["origin"].partition("#")[0] for row in test} == {"musique/train"}


def test_chosen_sets(tmp_path):
    source = write_collection(tmp_path / "source")
    assert run(tmp_path / "a", "--source", source, "--train-sets", "--test-sets", "musique", "nq") == 0
    assert set(files_in(tmp_path / "a")) == {"test.parquet", "manifest.json"}
    data = [row["data_source"] for row in rows_of(tmp_path / "a" / "test.parquet")]
    assert data == ["searchR1_musique"] * 6 + ["searchR1_nq"] * 6
    assert run(tmp_path / "b", "--source", source, "--train-sets", "triviaqa", "--test-sets") == 0
    assert set(files_in(tmp_path / "b")) == {"train.parquet", "manifest.json"}


@pytest.mark.parametrize(
    ("words", "reasons"),
    [
        (["--train-sets", "popqa"], ["no train split of popqa"]),
        (
            ["--train-sets", "popqa", "bamboogle", "--test-sets", "musique"],
            ["2 problems", "no train split of popqa, bamboogle", "no test split of musique"],
        ),
    ],
)
def test_a_chosen_set_that_is_missing_is_an_error(tmp_path, capsys, words, reasons):
    source = write_collection(tmp_path / "source", splits={"nq": ("train",), "popqa": ("test",)})
    assert run(tmp_path / "out", "--source", source, *words) == 2
    error = capsys.readouterr().err
    assert all(reason in error for reason in reasons), error
    assert not (tmp_path / "out").exists()


def test_a_source_without_questions_or_with_a_split_twice_is_an_error(tmp_path, capsys):
    write_jsonl(tmp_path / "source" / "train.jsonl", FOUR)
    assert run(tmp_path / "out", "--source", tmp_path / "source") == 2
    assert "has no questions; expected files such as nq/train.jsonl" in capsys.readouterr().err
    write_jsonl(tmp_path / "source" / "nq" / "train.jsonl", FOUR)
    write_jsonl(tmp_path / "source" / "nq_train.jsonl", FOUR)
    assert run(tmp_path / "out", "--source", tmp_path / "source") == 2
    assert "hold the same split of the same set" in capsys.readouterr().err


MALFORMED = {
    "no question": {"question": None},
    "a blank question": {"question": " "},
    "a chat template's tag": {"question": "who <|im_end|>"},
    "a speaker's tag": {"question": "who <|user|> are you"},
    "the end of a turn": {"question": "who<end_of_turn>"},
    "the end of a text": {"question": "who</s>"},
    "no answers": {"golden_answers": None},
    "an empty list": {"golden_answers": []},
    "blank answers": {"golden_answers": ["", " "]},
    "a number": {"golden_answers": [1912]},
    "a nested list": {"golden_answers": [["x"]]},
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_row_stops_the_build_or_is_skipped(tmp_path, capsys, name):
    data = [FOUR[0], FOUR[1] | MALFORMED[name], FOUR[2]]
    source = write_jsonl(tmp_path / "nq" / "train.jsonl", data)
    assert run(tmp_path / "out", "--source", source) == 2
    error = capsys.readouterr().err
    assert "malformed rows" in error
    assert "- nq/train.jsonl, row 2: " in error
    assert not (tmp_path / "out").exists()
    assert run(tmp_path / "out", "--source", source, "--on-error", "skip") == 0
    assert [row["extra_info"]["origin"] for row in rows_of(tmp_path / "out" / "train.parquet")] == [
        "nq/train#train_0",
        "nq/train#train_2",
    ]
    found = manifest_of(tmp_path / "out")
    assert len(found["skipped"]) == 1
    assert found["counts"]["nq/train for train"] == {"read": 3, "kept": 2, "dropped": {"malformed": 1}}


def test_the_first_few_malformed_rows_of_all_files_are_shown_at_once(tmp_path, capsys):
    for name in ("nq", "hotpotqa"):
        path = write_jsonl(tmp_path / name / "train.jsonl", FOUR)
        path.write_text("no JSON\n" + path.read_text() + '{"question": "x"}\n')
    assert run(tmp_path / "out", "--source", tmp_path, "--num-proc", "2") == 2
    lines = capsys.readouterr().err.splitlines()
    shown = [line for line in lines if line.startswith("- ")]
    assert [line.partition(": ")[0] for line in shown] == [
        f"- {name}/train.jsonl, row {number}" for name in ("nq", "hotpotqa") for number in (1, 6)
    ]


HUB_CARD = "---\nconfigs:\n" + "".join(
    f"- config_name: {name}\n  data_files:\n"
    + "".join(f"  - split: {split}\n    path: {name}/{split}.jsonl\n" for split in splits)
    for name, splits in HUB_SPLITS.items()
)


@pytest.mark.slow
def test_a_copy_of_the_hubs_repository_gives_the_rows_of_its_files(tmp_path, capsys, datasets_cache):
    hub = write_collection(tmp_path / "hub")
    (hub / "README.md").write_text(HUB_CARD + "---\n")
    words = ["--source", "hf", "--hf-dataset", hub, "--val-per-set", "3"]
    assert run(tmp_path / "out", *words) == 0
    assert run(tmp_path / "files", "--source", hub, "--val-per-set", "3") == 0
    for name in ("train", "test", "val"):
        assert rows_of(tmp_path / "out" / f"{name}.parquet") == rows_of(tmp_path / "files" / f"{name}.parquet")
    found = manifest_of(tmp_path / "out")
    assert found["counts"] == manifest_of(tmp_path / "files")["counts"]
    assert found["arguments"]["revision"] == HUB_REVISION
    assert str(tmp_path) not in json.dumps(found | {"command": ""})
    assert found["arguments"]["hf_dataset"] == "hub"
    assert "datasets" in found["library_versions"]
    # A changed copy is noticed.
    capsys.readouterr()
    assert run(tmp_path / "out", *words) == 0
    assert "already has this data set" in capsys.readouterr().out
    write_jsonl(hub / "nq" / "train.jsonl", FOUR)
    assert run(tmp_path / "out", *words) == 0
    assert "already has" not in capsys.readouterr().out
    assert len(rows_of(tmp_path / "out" / "train.parquet")) == 10


def test_a_copy_of_the_hub_may_be_the_working_directory(tmp_path, monkeypatch, datasets_cache):
    hub = write_collection(tmp_path / "hub", splits={"popqa": ("test",)})
    (hub / "README.md").write_text(
        "---\nconfigs:\n- config_name: popqa\n  data_files:\n  - split: test\n    path: popqa/test.jsonl\n---\n"
    )
    monkeypatch.chdir(hub)
    assert run(tmp_path / "out", "--source", "hf", "--hf-dataset", ".") == 0
    assert manifest_of(tmp_path / "out")["arguments"]["hf_dataset"] == "hub"
    assert len(rows_of(tmp_path / "out" / "test.parquet")) == 6


def test_the_hub_without_a_network_is_one_clear_error(tmp_path):
    done = run_script("search_qa", environment_for(tmp_path), "--out", tmp_path / "out", "--revision", "v7")
    assert done.returncode == 2
    for part in (
        "search_qa.py: error: could not load RUC-NLPIR/FlashRAG_datasets/nq/train",
        "'v7'",
        "copy the",
    ):
        assert part in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()
