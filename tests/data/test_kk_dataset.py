"""What is in the written files."""

import json
import shlex
import subprocess
import sys

import pytest
from kk_files import SCRIPT, arguments, files_in, rows, script
from kk_oracle import smallest_renaming, solutions

from verl_trgrpo.data.kk_logic import parse_statements
from verl_trgrpo.data.kk_prompts import INSTRUCTION


@pytest.fixture(scope="module")
def built(kk, tmp_path_factory):
    out = tmp_path_factory.mktemp("kk") / "built"
    assert kk.main(arguments(out, "--seed", 5, people="2 3 5", train="30", test="12")) == 0
    return out


def test_counts_are_per_number_of_people_and_sizes_are_mixed(built):
    for split, count in (("train", 30), ("test", 12)):
        sizes = [row["extra_info"]["n_people"] for row in rows(built / f"{split}.parquet")]
        assert {n: sizes.count(n) for n in set(sizes)} == {2: count, 3: count, 5: count}
        assert len(set(sizes[: len(sizes) // 2])) == 3, "sizes must be interleaved"


def test_every_row_is_what_verl_reads_and_right(built):
    for split in ("train", "test"):
        for position, row in enumerate(rows(built / f"{split}.parquet")):
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
        for row in rows(built / f"{split}.parquet")
    ]
    assert len(keys) == len(set(keys)) == 3 * 42


def test_the_manifest_tells_how_the_data_came_about(built, tmp_path, environment):
    manifest = json.loads((built / "manifest.json").read_text())
    assert manifest["arguments"] == {
        "source": "generate", "people": [2, 3, 5], "train": 30, "test": 12, "seed": 5, "prompt": "paper", "system": False,
    }  # fmt: skip
    assert manifest["counts"]["5ppl"] == {"read": 42, "train": 30, "test": 12, "dropped": {}}
    assert manifest["files"]["train.parquet"]["rows"] == 90
    # The recorded command makes the same bytes somewhere else.
    python, path, *words = shlex.split(manifest["command"])
    assert (python, path, words[:2]) == ("python", "data_prep/kk.py", ["--out", "."])
    other = tmp_path / "other"
    other.mkdir()
    command = [sys.executable, str(SCRIPT), *words]
    subprocess.run(command, env=environment | {"PYTHONHASHSEED": "77"}, cwd=other, check=True, capture_output=True)
    assert files_in(other) == files_in(built)


def test_bytes_do_not_depend_on_the_process_and_progress_goes_to_stderr(tmp_path, environment):
    for name, hash_seed in (("a", "1"), ("b", "2")):
        done = script(environment | {"PYTHONHASHSEED": hash_seed}, *arguments(tmp_path / name, people="4 3"))
        assert done.returncode == 0
        assert "3 people: 100%" in done.stderr
        assert "%|" not in done.stdout
        assert "4ppl: 6 train, 3 test of 9 read" in done.stdout
    assert set(files_in(tmp_path / "a")) == {"train.parquet", "test.parquet", "manifest.json"}
    assert files_in(tmp_path / "a") == files_in(tmp_path / "b")


def test_another_seed_gives_other_puzzles(kk, tmp_path):
    for seed in (0, 1):
        assert kk.main(arguments(tmp_path / str(seed), "--seed", seed)) == 0
    first, second = (
        {smallest_renaming(parse_statements(row["extra_info"]["statements"])) for row in rows(path)}
        for path in (tmp_path / "0" / "train.parquet", tmp_path / "1" / "train.parquet")
    )
    assert first != second


def test_the_recorded_command_has_every_argument(kk, tmp_path):
    assert kk.main(arguments(tmp_path / "a", "--system", "--seed", 4)) == 0
    words = shlex.split(json.loads((tmp_path / "a" / "manifest.json").read_text())["command"])
    assert words[:4] == ["python", "data_prep/kk.py", "--out", "."]
    assert kk.main(["--out", str(tmp_path / "b"), *words[4:]]) == 0
    assert files_in(tmp_path / "a") == files_in(tmp_path / "b")


def test_short_prompts_and_system_messages(kk, tmp_path):
    assert kk.main(arguments(tmp_path / "short", "--prompt", "short")) == 0
    assert kk.main(arguments(tmp_path / "system", "--system")) == 0
    for short, system in zip(
        rows(tmp_path / "short/test.parquet"), rows(tmp_path / "system/test.parquet"), strict=True
    ):
        (message,) = short["prompt"]
        speakers = [line.partition(": ")[0] for line in message["content"].split("\n")]
        assert speakers == short["extra_info"]["names"]
        assert [m["role"] for m in system["prompt"]] == ["system", "user"]
        assert system["prompt"][0]["content"] == INSTRUCTION
        assert short["reward_model"] == system["reward_model"]
