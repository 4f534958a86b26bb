"""Data sets from files and from a copy of the public data set's repository."""

import json
import shutil

import pytest

from tests.data.builder_files import rows_of
from tests.tasks.knights_and_knaves.kk_files import arguments, script, write_jsonl
from verl_trgrpo.tasks.knights_and_knaves.prompts import INSTRUCTION
from verl_trgrpo.tasks.knights_and_knaves.puzzles import generate_puzzles


def test_files_as_source(kk, tmp_path, capsys):
    source = write_jsonl(tmp_path / "kk.jsonl", [*generate_puzzles(3, 12, 1), *generate_puzzles(4, 5, 1)])
    assert kk.main(arguments(tmp_path / "out", "--source", source)) == 0
    assert "3 dropped: not asked for" in capsys.readouterr().out
    quizzes = {puzzle.quiz for puzzle in generate_puzzles(3, 12, 1)}
    for row in rows_of(tmp_path / "out" / "train.parquet"):
        assert row["prompt"][0]["content"].removeprefix(INSTRUCTION).strip() in quizzes
        assert row["extra_info"]["origin"].startswith("kk.jsonl#")
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["counts"]["4ppl"]["dropped"] == {"this number of people not asked for": 5}
    assert f"--source {source}" in manifest["command"]
    assert str(tmp_path) not in json.dumps(manifest | {"command": ""})
    # A changed source is noticed although its name is the same.
    write_jsonl(source, generate_puzzles(3, 12, 2))
    assert kk.main(arguments(tmp_path / "out", "--source", source)) == 0
    assert "already has" not in capsys.readouterr().out


def test_train_and_test_files(kk, tmp_path):
    puzzles = list(generate_puzzles(3, 12, 1))
    train, test = (write_jsonl(tmp_path / f"{i}.jsonl", part) for i, part in enumerate((puzzles[:8], puzzles[6:])))
    assert kk.main(arguments(tmp_path / "out", "--source", train, "--test-source", test)) == 0
    assert {row["extra_info"]["origin"] for row in rows_of(tmp_path / "out" / "train.parquet")} == {
        f"0.jsonl#{number}" for number in range(1, 7)
    }
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert f"--source {train} --test-source {test}" in manifest["command"]
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


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    """A directory laid out like the public data set; the last four train puzzles of each size are test puzzles, too."""
    directory = tmp_path_factory.mktemp("hub") / "copy"
    for n_people, train_name, test_name in (
        (2, "people2_num200", "people2_num100"),
        (3, "people3_num1000", "people3_num100"),
    ):
        puzzles = list(generate_puzzles(n_people, 20, 1))
        write_jsonl(directory / "train" / f"{train_name}.jsonl", puzzles[:14])
        write_jsonl(directory / "test" / f"{test_name}.jsonl", puzzles[10:])
    (directory / "README.md").write_text(HUB_CARD)
    return directory


def hub_arguments(out, hub, *more, **sizes):
    return arguments(out, "--source", "hf", "--hf-dataset", hub, *more, people="2 3", **sizes)


def test_a_local_copy_of_the_public_data_set(kk, tmp_path, capsys, datasets_cache, hub):
    assert kk.main(hub_arguments(tmp_path / "out", hub, train="10", test="5")) == 0
    printed = capsys.readouterr().out
    assert "3ppl train: 10 kept of 14 read; 4 dropped: equals a test puzzle" in printed
    assert "3ppl test: 5 kept of 10 read; 5 dropped: not asked for" in printed
    train, test = (rows_of(tmp_path / "out" / f"{split}.parquet") for split in ("train", "test"))
    for data, split, allowed in ((train, "train", range(10)), (test, "test", range(10, 20))):
        assert len(data) == (20 if split == "train" else 10)
        for row in data:
            n_people = row["extra_info"]["n_people"]
            quizzes = [puzzle.quiz for puzzle in generate_puzzles(n_people, 20, 1)]
            position = quizzes.index(row["prompt"][0]["content"].removeprefix(INSTRUCTION).strip())
            assert position in allowed
            number = position + 1 - (0 if split == "train" else 10)
            assert row["extra_info"]["origin"] == f"copy/{split}/{n_people}ppl#{number}"
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert f"--hf-dataset {hub} " in manifest["command"]
    assert str(hub) not in json.dumps(manifest | {"command": ""})
    assert manifest["arguments"]["hf_dataset"] == "copy"


def test_a_copy_of_the_hub_may_be_the_working_directory_and_a_change_in_it_is_noticed(
    kk, tmp_path, capsys, datasets_cache, hub, monkeypatch
):
    shutil.copytree(hub, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    words = hub_arguments("../out", ".", train="10", test="5")
    assert kk.main(words) == 0
    origins = {row["extra_info"]["origin"].split("#")[0] for row in rows_of(tmp_path / "out" / "train.parquet")}
    assert origins == {"copy/train/2ppl", "copy/train/3ppl"}
    hidden = tmp_path / "copy" / ".cache" / "note"
    hidden.parent.mkdir()
    hidden.write_text("hidden files are not data")
    capsys.readouterr()
    assert kk.main(words) == 0
    assert "already has this data set" in capsys.readouterr().out
    with (tmp_path / "copy" / "README.md").open("a") as card:
        card.write("changed\n")
    assert kk.main(words) == 0
    assert "already has" not in capsys.readouterr().out


def test_an_error_of_the_hub_has_a_line_of_its_own(kk, tmp_path, capsys, datasets_cache, hub):
    copy = tmp_path / "copy"
    shutil.copytree(hub, copy)
    path = copy / "test" / "people3_num100.jsonl"
    path.write_text(
        path.read_text().replace("knights and knaves", "people").replace('"solution": [', '"solution": [null, ')
    )
    assert kk.main(hub_arguments(tmp_path / "out", copy)) == 2
    assert "\nkk.py: error: malformed rows" in capsys.readouterr().err


def test_of_the_public_data_set_fewer_puzzles_than_asked_for_are_an_error_unless_allowed(
    kk, tmp_path, capsys, datasets_cache, hub
):
    assert kk.main(hub_arguments(tmp_path / "out", hub, train="11")) == 2
    assert "24 rows give only 10 train and 10 test" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert kk.main(hub_arguments(tmp_path / "out", hub, "--at-most", "--with-reasoning", train="11")) == 0
    assert len(rows_of(tmp_path / "out" / "train.parquet")) == 20
    response = rows_of(tmp_path / "out" / "sft_train.parquet")[0]["messages"][-1]["content"]
    assert response.startswith("<think>Let's think step by step.\nOne step.\nDone.</think><answer>(1) ")


def test_the_papers_merge_of_a_source_takes_what_is_left_without_repeats(kk, tmp_path):
    """As in the public data, where some sizes have fewer than 900 different train puzzles."""
    for n_people in (3, 4, 5, 6, 7):
        puzzles = list(generate_puzzles(n_people, 130 if n_people == 3 else 40, 1))
        test = puzzles[:110] if n_people == 3 else puzzles[:10]
        train = puzzles[len(test) - 3 :]
        write_jsonl(tmp_path / "copy" / "train" / f"{n_people}.jsonl", [*train, train[-1]])
        write_jsonl(tmp_path / "copy" / "test" / f"{n_people}.jsonl", test)
    out = tmp_path / "out"
    assert kk.main(["--out", str(out), "--paper", "--source", str(tmp_path / "copy")]) == 0
    counts = json.loads((out / "manifest.json").read_text())["counts"]
    leak, repeat = "equals a test puzzle up to names and order", "repeats a puzzle up to names and order"
    assert counts["3ppl train"] == {"read": 24, "kept": 20, "dropped": {leak: 3, repeat: 1}}
    assert counts["3ppl test"] == {"read": 110, "kept": 100, "dropped": {"not asked for": 10}}
    assert counts["7ppl train"] == {"read": 34, "kept": 30, "dropped": {leak: 3, repeat: 1}}
    assert counts["7ppl test"] == {"read": 10, "kept": 10, "dropped": {}}


def test_where_all_puzzles_go_to_the_test_set_the_error_says_so(kk, tmp_path, capsys):
    for n_people in (3, 4, 5, 6, 7):
        write_jsonl(tmp_path / "flat" / f"{n_people}.jsonl", generate_puzzles(n_people, 5, 1))
    words = ["--out", str(tmp_path / "out"), "--source", str(tmp_path / "flat")]
    assert kk.main([*words, "--paper", "--at-most"]) == 2
    error = capsys.readouterr().err
    assert "all 5 went to the test set: ask for fewer than 5 test puzzles" in error
    assert "at-most" not in error
    assert kk.main([*words, "--people", "3", "--test", "4"]) == 0


def test_the_output_directory_must_not_hold_the_source(kk, tmp_path, capsys):
    source = write_jsonl(tmp_path / "kk.jsonl", generate_puzzles(3, 12, 1))
    assert kk.main(arguments(tmp_path, "--source", source, "--force")) == 2
    assert "holds kk.jsonl, which the data set is made from" in capsys.readouterr().err
    assert source.exists()


def test_malformed_rows_stop_the_build_or_are_skipped_and_listed(kk, tmp_path, capsys):
    source = write_jsonl(tmp_path / "kk.jsonl", generate_puzzles(3, 12, 1))
    with source.open("a") as file:
        file.write('{"quiz": "Who?"}\n{"quiz"\n')
    assert kk.main(arguments(tmp_path / "out", "--source", source)) == 2
    error = capsys.readouterr().err
    assert "kk.jsonl, row 13: missing names" in error
    assert "kk.jsonl, row 14: it is not JSON" in error
    assert kk.main(arguments(tmp_path / "out", "--source", source, "--on-error", "skip")) == 0
    assert "2 malformed rows skipped" in capsys.readouterr().out
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert [problem.partition(": ")[0] for problem in manifest["skipped"]] == ["kk.jsonl, row 13", "kk.jsonl, row 14"]
    assert manifest["counts"] == {
        "3ppl": {"read": 12, "kept": 9, "dropped": {"not asked for": 3}},
        "malformed rows": {"read": 2, "kept": 0, "dropped": {"malformed": 2}},
    }


def test_a_reasoning_is_wanted_of_every_row_if_asked_for(kk, tmp_path, capsys):
    source = write_jsonl(tmp_path / "kk.jsonl", generate_puzzles(3, 12, 1))
    lines = source.read_text().replace('"cot_foot"', '"foot"', 1)
    source.write_text(lines)
    assert kk.main(arguments(tmp_path / "out", "--source", source)) == 0
    assert kk.main(arguments(tmp_path / "out", "--source", source, "--with-reasoning")) == 2
    assert "kk.jsonl, row 1: missing cot_foot" in capsys.readouterr().err


def test_a_file_to_be_split_needs_a_number_of_test_puzzles(kk, tmp_path, capsys):
    source = write_jsonl(tmp_path / "kk.jsonl", generate_puzzles(3, 12, 1))
    words = ["--out", str(tmp_path / "out"), "--people", "3", "--source", str(source)]
    assert kk.main(words) == 2
    assert "test is missing; say how many puzzles of the source are for testing" in capsys.readouterr().err
    assert kk.main([*words, "--test", "5"]) == 0
    assert len(rows_of(tmp_path / "out" / "train.parquet")) == 7


def test_the_public_data_set_without_a_network(tmp_path, environment):
    done = script(environment, *arguments(tmp_path / "out", "--source", "hf", "--revision", "v7"))
    assert done.returncode == 2
    for part in ("could not load K-and-K/knights-and-knaves/train/3ppl", "revision 'v7'", "Check the network"):
        assert part in done.stderr
    assert done.stderr.startswith("kk.py: error: "), "no progress bar before it"
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()
