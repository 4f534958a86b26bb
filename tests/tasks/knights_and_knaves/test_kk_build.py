"""What is in the written files, and which options are refused."""

import signal
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from tests.data.builder_files import (
    command_of,
    data_in,
    environment_for,
    files_in,
    repeat_recorded_command,
    rows_of,
    run_script,
    staging_directories,
    stop_amid_work,
)
from tests.tasks.knights_and_knaves.kk_files import build_kk, write_jsonl
from tests.tasks.knights_and_knaves.kk_oracle import smallest_renaming, solutions
from verl_trgrpo.data.build import run_builder
from verl_trgrpo.tasks.knights_and_knaves.build import HUB_DATASET, KkOptions, build
from verl_trgrpo.tasks.knights_and_knaves.logic import parse_statements
from verl_trgrpo.tasks.knights_and_knaves.prompts import INSTRUCTION, puzzle_prompt
from verl_trgrpo.tasks.knights_and_knaves.puzzles import NAMES, generate_puzzles

main = partial(run_builder, KkOptions, build, "data_prep/kk.py", "")
WORDS = ["--people", "3", "--train", "6", "--test", "3"]


def keys_of(rows):
    return [smallest_renaming(parse_statements(row["extra_info"]["statements"])) for row in rows]


def sizes_in(rows):
    return Counter(row["extra_info"]["n_people"] for row in rows)


def test_rows_are_what_verl_reads_and_right_and_no_puzzle_occurs_twice(tmp_path):
    data, manifest = build_kk(tmp_path / "kk", people=(2, 3, 5), train=30, test=12, seed=5)
    assert sizes_in(data["train"]) == {2: 30, 3: 30, 5: 30} and sizes_in(data["test"]) == {2: 12, 3: 12, 5: 12}
    assert len(sizes_in(data["train"][:45])) == 3, "sizes must be interleaved"
    for split, rows in data.items():
        for position, row in enumerate(rows):
            info = row["extra_info"]
            (solution,) = solutions(parse_statements(info["statements"]))
            roles = ["knight" if is_knight else "knave" for is_knight in solution]
            said = [f"({k}) {n} is a {r}" for k, (n, r) in enumerate(zip(info["names"], roles, strict=True), start=1)]
            assert row["reward_model"] == {"style": "rule", "ground_truth": "\n".join(said)}
            (message,) = row["prompt"]
            assert message["role"] == "user" and message["content"].startswith(INSTRUCTION)
            assert all(name in message["content"] for name in info["names"])
            assert (row["data_source"], row["ability"]) == (f"kk_{info['n_people']}ppl", "logic")
            assert (info["index"], info["split"]) == (position, split)
            assert info["origin"].startswith(f"generated/{info['n_people']}ppl/seed5#")
    keys = keys_of([*data["train"], *data["test"]])
    assert len(keys) == len(set(keys)) == 3 * 42
    assert manifest["files"]["train.parquet"]["rows"] == 90


def test_bytes_depend_on_the_options_alone(tmp_path):
    """Not on the process or the hash seed; another seed gives other puzzles."""
    environment = environment_for(tmp_path)
    words = ["--people", "5", "2", "3", "--train", "6", "--test", "3"]
    for name, more in (("1", ()), ("2", ()), ("3", ("--seed", "1"))):
        out = ("--out", tmp_path / name / "kk")
        done = run_script("kk", environment | {"PYTHONHASHSEED": name}, *words, *out, *more)
        assert done.returncode == 0
        assert "%|" in done.stderr and "%|" not in done.stdout
        assert "train.parquet: 18 rows" in done.stdout
    assert data_in(tmp_path / "1" / "kk") == data_in(tmp_path / "2" / "kk")
    assert set(keys_of(rows_of(tmp_path / "1/kk/train.parquet"))) != set(
        keys_of(rows_of(tmp_path / "3/kk/train.parquet"))
    )


def test_the_recorded_command_gives_the_same_bytes_where_it_was_run(tmp_path, monkeypatch):
    write_jsonl(tmp_path / "sources" / "kk.jsonl", generate_puzzles(3, 12, 1))
    monkeypatch.chdir(tmp_path)
    out = Path("some where/kk")
    assert main(["--out", str(out), *WORDS, "--source", "./sources/kk.jsonl", "--seed", "4"]) == 0
    before = files_in(out)
    repeat_recorded_command(out, tmp_path, environment_for(tmp_path) | {"PYTHONHASHSEED": "77"})
    assert files_in(out) == before


def test_the_prompt_is_instructions_and_quiz():
    (puzzle,) = generate_puzzles(3, 1, 0)
    assert puzzle_prompt(puzzle) == [{"role": "user", "content": f"{INSTRUCTION}\n\n{puzzle.quiz}"}]
    assert not [name for name in NAMES if name in INSTRUCTION], "the example must name nobody"


def test_another_number_of_train_puzzles_leaves_the_test_puzzles_as_they_are(tmp_path):
    first, _ = build_kk(tmp_path / "a", people=(2, 3), train=3, test=4)
    more, _ = build_kk(tmp_path / "b", people=(2, 3), train=5, test=4)
    assert more["test"] == first["test"]


COUNTS = {"people": (3,), "train": 6, "test": 3}
PROBLEMS = {
    "one person": ({**COUNTS, "people": (1,)}, ["people is [1]", "2 to 8"]),
    "no train puzzles": ({**COUNTS, "train": 0}, ["train is 0", "at least 1"]),
    "generated puzzles without counts": ({"people": (3,)}, ["train is missing", "test is missing"]),
    "paper and sizes": ({**COUNTS, "paper": True}, ["leave out people, train, test"]),
    "a size twice": ({**COUNTS, "people": (3, 3)}, ["each once"]),
    "several at once": (
        {"people": (1,), "train": 0, "test": 3},
        ["2 problems", "[1]", "train is 0"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROBLEMS)
def test_wrong_options_are_refused_with_all_reasons(name):
    options, reasons = PROBLEMS[name]
    with pytest.raises(ValueError) as caught:
        KkOptions(out=Path("out"), **options)
    assert all(reason in str(caught.value) for reason in reasons), caught.value


def test_the_command_line_reports_errors_in_one_place_and_leaves_the_old_files(tmp_path, capsys):
    out = tmp_path / "out"
    words = ["--out", str(out), *WORDS]
    assert main(words) == 0
    before = files_in(out)
    assert main(words) == 0
    assert "already has this data set" in capsys.readouterr().out
    (tmp_path / "kk.jsonl").write_text('{"quiz": "Who?"}')
    for more, reason in (
        (["--people", "1"], "people is [1]"),
        (["--source", "nowhere.jsonl"], "nowhere.jsonl does not exist"),
        (["--source", str(tmp_path / "kk.jsonl")], "kk.jsonl, row 1: missing names, solution, statements"),
    ):
        assert main([*words, "--force", *more]) == 2
        error = capsys.readouterr().err
        assert error.count("error:") == 1 and reason in error and "Traceback" not in error
    assert files_in(out) == before


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=["killed", "interrupted"])
def test_a_build_that_is_stopped_leaves_the_old_data_set(tmp_path, number):
    out = tmp_path / "kk"
    build_kk(out)
    before = data_in(out)
    command = command_of("kk", "--out", out, "--force", "--people", "8", "--train", "1000000", "--test", "3")
    code, error = stop_amid_work(command, environment_for(tmp_path), out, number)
    assert data_in(out) == before
    if number == signal.SIGINT:
        assert code == 130
        assert "interrupted; the output directory is as before" in error
        assert not staging_directories(out)
    else:
        assert code == -signal.SIGKILL
        # What the killed build left does not disturb the next one.
        build_kk(out, force=True)
        assert data_in(out) == before


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


@pytest.fixture
def hub(tmp_path):
    """A directory laid out like the public data set; the last four train puzzles of each size are test puzzles, too."""
    for n_people, train, test in ((2, "people2_num200", "people2_num100"), (3, "people3_num1000", "people3_num100")):
        puzzles = list(generate_puzzles(n_people, 20, 1))
        write_jsonl(tmp_path / HUB_DATASET / "train" / f"{train}.jsonl", puzzles[:14])
        write_jsonl(tmp_path / HUB_DATASET / "test" / f"{test}.jsonl", puzzles[10:])
    (tmp_path / HUB_DATASET / "README.md").write_text(HUB_CARD)
    return tmp_path / HUB_DATASET


def test_a_local_copy_of_the_public_data_set(tmp_path, datasets_cache, hub, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the library reads a directory as it reads the hub
    options = {"people": (2, 3), "source": "hf"}
    data, manifest = build_kk(tmp_path / "out", train=10, test=5, **options)
    dropped = {"equals a test puzzle up to names and order": 4, "not asked for": 5}
    assert manifest["counts"]["3ppl"] == {"read": 24, "kept": 15, "dropped": dropped}
    for split, first, allowed in (("train", 0, range(10)), ("test", 10, range(10, 20))):
        for row in data[split]:
            n_people = row["extra_info"]["n_people"]
            quizzes = [puzzle.quiz for puzzle in generate_puzzles(n_people, 20, 1)]
            position = quizzes.index(row["prompt"][0]["content"].removeprefix(INSTRUCTION).strip())
            assert position in allowed
            assert row["extra_info"]["origin"] == f"{HUB_DATASET}/{split}/{n_people}ppl#{position - first + 1}"
    # All that there is of both; more is an error.
    every, _ = build_kk(tmp_path / "all", train=None, test=None, **options)
    assert (len(every["train"]), len(every["test"])) == (20, 20)
    with pytest.raises(ValueError, match="24 rows give only 10 train puzzles"):
        build_kk(tmp_path / "more", train=11, test=5, **options)
    # The same files as a directory.
    files, _ = build_kk(tmp_path / "files", people=(2, 3), train=None, test=None, source=str(hub))
    assert [sorted(keys_of(rows)) for rows in files.values()] == [sorted(keys_of(rows)) for rows in every.values()]
