"""What is in the written files."""

import json
import re
import shlex
from collections import Counter
from pathlib import Path

import pytest

from tests.data.builder_files import data_in, files_in, repeat_recorded_command, rows_of
from tests.tasks.knights_and_knaves.kk_files import arguments, script, write_jsonl
from tests.tasks.knights_and_knaves.kk_oracle import smallest_renaming, solutions
from verl_trgrpo.tasks import compute_score
from verl_trgrpo.tasks.knights_and_knaves.logic import parse_statements
from verl_trgrpo.tasks.knights_and_knaves.prompts import INSTRUCTION
from verl_trgrpo.tasks.knights_and_knaves.puzzles import generate_puzzles


@pytest.fixture(scope="module")
def built(kk, tmp_path_factory):
    out = tmp_path_factory.mktemp("kk") / "built"
    assert kk.main(arguments(out, "--seed", 5, people="2 3 5", train="30", test="12")) == 0
    return out


def test_counts_are_per_number_of_people_and_sizes_are_mixed(built):
    for split, count in (("train", 30), ("test", 12)):
        sizes = [row["extra_info"]["n_people"] for row in rows_of(built / f"{split}.parquet")]
        assert {n: sizes.count(n) for n in set(sizes)} == {2: count, 3: count, 5: count}
        assert len(set(sizes[: len(sizes) // 2])) == 3, "sizes must be interleaved"


def test_every_row_is_what_verl_reads_and_right(built):
    for split in ("train", "test"):
        for position, row in enumerate(rows_of(built / f"{split}.parquet")):
            info = row["extra_info"]
            statements = parse_statements(info["statements"])
            (solution,) = solutions(statements)
            roles = ["knight" if is_knight else "knave" for is_knight in solution]
            assert row["reward_model"] == {
                "style": "rule",
                "ground_truth": "\n".join(
                    f"({k}) {name} is a {role}"
                    for k, (name, role) in enumerate(zip(info["names"], roles, strict=True), 1)
                ),
            }
            (message,) = row["prompt"]
            assert message["role"] == "user"
            assert message["content"].startswith(INSTRUCTION)
            assert all(name in message["content"] for name in info["names"])
            assert (row["data_source"], row["ability"]) == (f"kk_{info['n_people']}ppl", "logic")
            assert (info["index"], info["split"], info["n_people"]) == (position, split, len(statements))
            assert info["origin"].startswith(f"generated/{info['n_people']}ppl/seed5#")


def test_no_puzzle_occurs_twice_in_or_across_the_files(built):
    keys = [
        smallest_renaming(parse_statements(row["extra_info"]["statements"]))
        for split in ("train", "test")
        for row in rows_of(built / f"{split}.parquet")
    ]
    assert len(keys) == len(set(keys)) == 3 * 42


def test_the_manifest_tells_how_the_data_came_about(built):
    manifest = json.loads((built / "manifest.json").read_text())
    assert manifest["arguments"] == {
        "source": "generate", "sizes": [{"people": n, "train": 30, "test": 12} for n in (2, 3, 5)], "seed": 5,
        "prompt": "paper", "system": False, "test_per_size": False, "with_reasoning": False, "limit": None,
    }  # fmt: skip
    assert manifest["counts"]["5ppl train"] == {"read": 30, "kept": 30, "dropped": {}}
    assert manifest["counts"]["5ppl test"] == {"read": 12, "kept": 12, "dropped": {}}
    assert manifest["files"]["train.parquet"]["rows"] == 90


def test_the_recorded_command_gives_the_same_bytes_where_it_was_run(kk, tmp_path, environment, monkeypatch):
    write_jsonl(tmp_path / "sources" / "kk.jsonl", generate_puzzles(3, 12, 1))
    monkeypatch.chdir(tmp_path)
    out = Path("some where/kk")
    assert kk.main(arguments(out, "--source", "./sources/kk.jsonl", "--limit", "4", "--on-error", "skip")) == 0
    before = files_in(out)
    command = json.loads(before["manifest.json"])["command"]
    assert command.startswith("python data_prep/kk.py --out 'some where/kk' ")
    assert "--source ./sources/kk.jsonl" in command
    repeat_recorded_command(out, tmp_path, environment | {"PYTHONHASHSEED": "77"})
    assert files_in(out) == before


def test_bytes_do_not_depend_on_the_process_and_progress_goes_to_stderr(tmp_path, environment):
    for name, hash_seed in (("a", "1"), ("b", "2")):
        done = script(environment | {"PYTHONHASHSEED": hash_seed}, *arguments(tmp_path / name / "kk", people="4 3"))
        assert done.returncode == 0
        assert "3 people: 100%" in done.stderr
        assert "%|" not in done.stdout
        assert "4ppl train: 6 kept of 6 read" in done.stdout
    assert set(files_in(tmp_path / "a" / "kk")) == {"train.parquet", "test.parquet", "manifest.json"}
    assert data_in(tmp_path / "a" / "kk") == data_in(tmp_path / "b" / "kk")


def test_processes_that_share_the_work_write_the_same_bytes(tmp_path, environment):
    for count in ("1", "2"):
        words = arguments(tmp_path / count / "kk", "--num-proc", count, "--with-reasoning", people="5 2 3")
        assert script(environment, *words).returncode == 0
    assert data_in(tmp_path / "1" / "kk") == data_in(tmp_path / "2" / "kk")


def test_another_seed_gives_other_puzzles(kk, tmp_path):
    for seed in (0, 1):
        assert kk.main(arguments(tmp_path / str(seed), "--seed", seed)) == 0
    first, second = (
        {smallest_renaming(parse_statements(row["extra_info"]["statements"])) for row in rows_of(path)}
        for path in (tmp_path / "0" / "train.parquet", tmp_path / "1" / "train.parquet")
    )
    assert first != second


COMMANDS = {
    "everything": ["--people", "3", "4", "--train", "6", "--test", "3", "--system", "--seed", "4", "--limit", "5",
                   "--test-per-size", "--with-reasoning"],
    "mix": ["--mix", "4=5", "3=2", "--test", "3", "--prompt", "short"],
    "paper": ["--paper", "--limit", "7"],
}  # fmt: skip


@pytest.mark.parametrize("name", COMMANDS)
def test_the_recorded_command_has_every_argument(kk, tmp_path, name):
    out = tmp_path / "kk"
    assert kk.main(["--out", str(out), *COMMANDS[name]]) == 0
    before = files_in(out)
    words = shlex.split(json.loads(before["manifest.json"])["command"])
    assert words[:4] == ["python", "data_prep/kk.py", "--out", str(out)]
    for path in out.iterdir():
        path.unlink()
    assert kk.main(words[2:]) == 0
    assert files_in(out) == before


def sizes_in(path):
    return Counter(row["extra_info"]["n_people"] for row in rows_of(path))


def test_a_mix_has_as_many_train_puzzles_of_each_size_as_it_says(kk, tmp_path):
    assert kk.main(["--out", str(tmp_path / "kk"), "--mix", "3=10", "5=5", "2=1", "--test", "4"]) == 0
    assert sizes_in(tmp_path / "kk" / "train.parquet") == {3: 10, 5: 5, 2: 1}
    assert sizes_in(tmp_path / "kk" / "test.parquet") == {3: 4, 5: 4, 2: 4}
    # Another number of train puzzles leaves the test puzzles as they are.
    assert kk.main(["--out", str(tmp_path / "more"), "--mix", "3=12", "5=1", "2=2", "--test", "4"]) == 0
    assert rows_of(tmp_path / "more" / "test.parquet") == rows_of(tmp_path / "kk" / "test.parquet")


def test_the_papers_merge(kk, tmp_path):
    assert kk.main(["--out", str(tmp_path / "kk"), "--paper"]) == 0
    assert sizes_in(tmp_path / "kk" / "train.parquet") == dict.fromkeys((3, 4, 5, 6, 7), 900)
    assert sizes_in(tmp_path / "kk" / "test.parquet") == dict.fromkeys((3, 4, 5, 6, 7), 100)


def without_index(row):
    return {**row, "extra_info": {**row["extra_info"], "index": None}}


def test_test_files_per_size_share_out_the_merged_one(kk, tmp_path):
    out = tmp_path / "kk"
    assert kk.main(arguments(out, "--test-per-size", people="4 2 3", test="5")) == 0
    assert {path.name for path in out.glob("test*")} == {
        "test.parquet", "test_2ppl.parquet", "test_3ppl.parquet", "test_4ppl.parquet",
    }  # fmt: skip
    merged = rows_of(out / "test.parquet")
    for n_people in (2, 3, 4):
        part = rows_of(out / f"test_{n_people}ppl.parquet")
        same_size = [row for row in merged if row["data_source"] == f"kk_{n_people}ppl"]
        assert list(map(without_index, part)) == list(map(without_index, same_size))
        assert [row["extra_info"]["index"] for row in part] == list(range(5))
    # Without the flag they vanish: no file of another data set stays behind.
    assert kk.main(arguments(out, people="4 2 3", test="5")) == 0
    assert set(files_in(out)) == {"train.parquet", "test.parquet", "manifest.json"}


def test_a_limit_keeps_some_rows_of_each_file_in_their_order(kk, tmp_path):
    words = ["--test-per-size", "--with-reasoning"]
    assert kk.main(arguments(tmp_path / "all", *words, people="2 3", train="20", test="15")) == 0
    assert kk.main(arguments(tmp_path / "some", *words, "--limit", "9", people="2 3", train="20", test="15")) == 0
    for name in ("train", "test", "sft_train", "sft_test"):
        every = list(map(without_index, rows_of(tmp_path / "all" / f"{name}.parquet")))
        some = rows_of(tmp_path / "some" / f"{name}.parquet")
        positions = [every.index(without_index(row)) for row in some]
        assert len(positions) == 9
        assert positions == sorted(positions) != list(range(9))
        assert [row["extra_info"]["index"] for row in some] == list(range(9))
    assert kk.main(arguments(tmp_path / "more", *words, "--limit", "999", people="2 3", train="20", test="15")) == 0
    for name in ("train.parquet", "test.parquet", "test_2ppl.parquet"):
        assert rows_of(tmp_path / "more" / name) == rows_of(tmp_path / "all" / name)


def test_the_counts_are_those_of_the_written_files_where_a_limit_draws(kk, tmp_path, capsys):
    out = tmp_path / "kk"
    assert kk.main(["--out", str(out), "--mix", "3=10", "5=20", "--test", "5", "--limit", "7"]) == 0
    counts = json.loads((out / "manifest.json").read_text())["counts"]
    for split in ("train", "test"):
        written = sizes_in(out / f"{split}.parquet")
        assert written.total() == 7
        for n_people, train in ((3, 10), (5, 20)):
            count = train if split == "train" else 5
            dropped = {"not drawn for the limit": count - written[n_people]}
            expected = {"read": count, "kept": written[n_people], "dropped": dropped}
            assert counts[f"{n_people}ppl {split}"] == expected
    assert "dropped: not drawn for the limit" in capsys.readouterr().out


def test_sft_files_are_the_same_rows_with_a_worked_right_response(kk, tmp_path):
    out = tmp_path / "kk"
    assert kk.main(arguments(out, "--with-reasoning", "--system", people="2 5")) == 0
    for split in ("train", "test"):
        plain, worked = rows_of(out / f"{split}.parquet"), rows_of(out / f"sft_{split}.parquet")
        assert [{name: value for name, value in row.items() if name != "messages"} for row in worked] == plain
        for row in worked:
            *prompt, response = row["messages"]
            assert prompt == row["prompt"]
            assert response["role"] == "assistant"
            reasoning, answer = re.fullmatch(
                r"<think>(.+)</think><answer>(.+)</answer>", response["content"], re.DOTALL
            ).groups()
            assert reasoning.count("\n") > row["extra_info"]["n_people"]
            assert answer == row["reward_model"]["ground_truth"]
            assert compute_score(row["data_source"], response["content"], answer)["acc"] == 1.0


def test_short_prompts_and_system_messages(kk, tmp_path):
    assert kk.main(arguments(tmp_path / "short", "--prompt", "short")) == 0
    assert kk.main(arguments(tmp_path / "system", "--system")) == 0
    for short, system in zip(
        rows_of(tmp_path / "short/test.parquet"), rows_of(tmp_path / "system/test.parquet"), strict=True
    ):
        (message,) = short["prompt"]
        speakers = [line.partition(": ")[0] for line in message["content"].split("\n")]
        assert speakers == short["extra_info"]["names"]
        assert [m["role"] for m in system["prompt"]] == ["system", "user"]
        assert system["prompt"][0]["content"] == INSTRUCTION
        assert short["reward_model"] == system["reward_model"]
