"""Data sets from files and from a copy of the public data set's repository."""

import json

from kk_files import arguments, rows, script, write_jsonl

from verl_trgrpo.data.kk_prompts import INSTRUCTION
from verl_trgrpo.data.kk_puzzles import generate_puzzles


def test_files_as_source(kk, tmp_path, capsys):
    source = write_jsonl(tmp_path / "kk.jsonl", [*generate_puzzles(3, 12, 1), *generate_puzzles(4, 5, 1)])
    assert kk.main(arguments(tmp_path / "out", "--source", source)) == 0
    assert "3 dropped: not asked for" in capsys.readouterr().out
    quizzes = {puzzle.quiz for puzzle in generate_puzzles(3, 12, 1)}
    for row in rows(tmp_path / "out" / "train.parquet"):
        assert row["prompt"][0]["content"].removeprefix(INSTRUCTION).strip() in quizzes
        assert row["extra_info"]["origin"].startswith("kk.jsonl#")
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["counts"]["4ppl"]["dropped"] == {"this number of people not asked for": 5}
    assert "--source ../kk.jsonl" in manifest["command"]
    assert str(tmp_path) not in json.dumps(manifest)
    # A changed source is noticed although its name is the same.
    write_jsonl(source, generate_puzzles(3, 12, 2))
    assert kk.main(arguments(tmp_path / "out", "--source", source)) == 0
    assert "already has" not in capsys.readouterr().out


def test_train_and_test_files(kk, tmp_path):
    puzzles = list(generate_puzzles(3, 12, 1))
    train, test = (write_jsonl(tmp_path / f"{i}.jsonl", part) for i, part in enumerate((puzzles[:8], puzzles[6:])))
    assert kk.main(arguments(tmp_path / "out", "--source", train, "--test-source", test)) == 0
    assert {row["extra_info"]["origin"] for row in rows(tmp_path / "out" / "train.parquet")} == {
        f"0.jsonl#{index}" for index in range(6)
    }
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert "--source ../0.jsonl --test-source ../1.jsonl" in manifest["command"]
    assert [file["name"] for file in manifest["arguments"]["test_files"]] == ["1.jsonl"]


HUB_CARD = """---
configs:
  - config_name: train
    data_files:
      - split: 2ppl
        path: [train/people2_num200.jsonl]
      - split: 3ppl
        path: [train/people3_num1000.jsonl]
  - config_name: test
    data_files:
      - split: 2ppl
        path: [test/people2_num100.jsonl]
      - split: 3ppl
        path: [test/people3_num100.jsonl]
---
"""


def test_a_local_copy_of_the_public_data_set(tmp_path, environment):
    hub = tmp_path / "hub"
    for n_people, train_name, test_name in (
        (2, "people2_num200", "people2_num100"),
        (3, "people3_num1000", "people3_num100"),
    ):
        puzzles = list(generate_puzzles(n_people, 20, 1))
        write_jsonl(hub / "train" / f"{train_name}.jsonl", puzzles[:14])
        write_jsonl(hub / "test" / f"{test_name}.jsonl", puzzles[10:])
    (hub / "README.md").write_text(HUB_CARD)
    words = arguments(tmp_path / "out", "--source", "hf", "--hf-dataset", hub, people="2 3", train="10", test="5")
    done = script(environment, *words)
    assert done.returncode == 0, done.stderr
    assert "3ppl: 10 train, 5 test of 24 read; 4 dropped: repeats a puzzle" in done.stdout
    train, test = (rows(tmp_path / "out" / f"{split}.parquet") for split in ("train", "test"))
    for data, split, allowed in ((train, "train", range(10)), (test, "test", range(10, 20))):
        assert len(data) == (20 if split == "train" else 10)
        for row in data:
            n_people = row["extra_info"]["n_people"]
            quizzes = [puzzle.quiz for puzzle in generate_puzzles(n_people, 20, 1)]
            assert quizzes.index(row["prompt"][0]["content"].removeprefix(INSTRUCTION).strip()) in allowed
            assert f"/{split}/{n_people}ppl#" in row["extra_info"]["origin"]
    # One puzzle less than asked for is an error, not a smaller data set.
    done = script(
        environment,
        *words[:-2],
        "--train",
        "11",
        "--out",
        str(tmp_path / "more"),
        "--source",
        "hf",
        "--hf-dataset",
        str(hub),
    )
    assert done.returncode == 2
    assert "24 rows give only 10 train and 10 test" in done.stderr


def test_the_public_data_set_without_a_network(tmp_path, environment):
    done = script(environment, *arguments(tmp_path / "out", "--source", "hf", "--revision", "v7"))
    assert done.returncode == 2
    for part in ("K-and-K/knights-and-knaves", "'train', split '3ppl'", "revision 'v7'", "--source generate"):
        assert part in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()
