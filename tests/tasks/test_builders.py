"""All builders behind ``verl-trgrpo data build``: bytes, repeated builds, rows that veRL loads, invalid input, stops."""

import json
import logging
import re
import shlex
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.tasks.built_files import build, content_of, environment_for, main, manifest_of, rows_of
from tests.tasks.knights_and_knaves.kk_oracle import write_jsonl as write_puzzles
from tests.tasks.math.deepscaler_files import write_all
from tests.tasks.search_qa.files import write_collection
from verl_trgrpo.curation.data_check import CheckOptions, check_files
from verl_trgrpo.tasks.knights_and_knaves.puzzles import generate_puzzles
from verl_trgrpo.tasks.reasoning_gym.rows import ReasoningGymOptions, build_reasoning_gym
from verl_trgrpo.tasks.registry import known_builders

# Seconds. They end a test that hangs, on any machine; nothing is expected to take that long.
HANGS = 600

# Words of a command; SOURCES stands for the directory of `sources`.
BUILDS = {
    "kk": "kk --people 5 2 3 --train 6 --test 3",
    "kk from files": "kk --people 3 --train 6 --test 3 --source SOURCES/kk.jsonl",
    "deepscaler": "deepscaler --source SOURCES/math --limit 4",
    "search-qa": "search-qa --source SOURCES/search --limit 4 --val-per-set 2",
    "reasoning-gym": "reasoning-gym --task chain_sum --config min_terms=2 max_terms=3 --train 12 --test 4",
}


def write_sources(directory):
    write_puzzles(directory / "kk.jsonl", generate_puzzles(3, 20, 1))
    write_all(directory / "math")
    write_collection(directory / "search")
    return directory


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    return write_sources(tmp_path_factory.mktemp("sources"))


def words_of(name, sources, *more):
    return [*BUILDS[name].replace("SOURCES", str(sources)).split(), *more]


def without_command(out):
    """All content that must not depend on where the files are."""
    return content_of(out) | {"manifest.json": manifest_of(out) | {"command": ""}}


@pytest.mark.parametrize("name", BUILDS)
def test_files_depend_on_options_and_content_of_the_sources_alone(tmp_path, sources, capsys, name):
    build(tmp_path / "a", *words_of(name, sources))
    assert "already" not in capsys.readouterr().out
    build(tmp_path / "a", *words_of(name, write_sources(tmp_path / "moved")))
    assert "already" in capsys.readouterr().out
    build(tmp_path / "b" / "c", *words_of(name, tmp_path / "moved"))
    assert without_command(tmp_path / "a") == without_command(tmp_path / "b" / "c")
    build(tmp_path / "d", *words_of(name, sources, "--seed", "1"))
    same = [
        file
        for file in content_of(tmp_path / "a")
        if content_of(tmp_path / "a")[file] == content_of(tmp_path / "d")[file]
    ]
    assert "train.parquet" not in same, "the seed must matter"


@pytest.mark.parametrize("name", BUILDS)
def test_verl_loads_all_files_in_one_run_and_every_ground_truth_gets_full_marks(
    tmp_path, sources, load_in_verl, tokenizer, name
):
    files = build(tmp_path / "out", *words_of(name, sources))
    paths = [tmp_path / "out" / file for file in files]
    tests = tuple(path for path in paths if path.name not in ("train.parquet", "val.parquet"))
    checked = check_files(CheckOptions(train=(tmp_path / "out" / "train.parquet",), test=tests))
    assert {check.name: check.status for check in checked.checks if check.status not in ("ok", "not checked")} == {}
    for file, rows in files.items():
        split = "train" if file == "train.parquet" else "test"
        assert [(row["extra_info"]["index"], row["extra_info"]["split"]) for row in rows] == [
            (index, split) for index in range(len(rows))
        ]
    data, batch = load_in_verl(paths)
    assert len(data) == sum(map(len, files.values())), "no prompt may be lost to an error in the chat template"
    for messages, row in zip(batch["raw_prompt"], (row for rows in files.values() for row in rows), strict=True):
        ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=True, return_dict=False)
        text = tokenizer.decode(ids)
        assert row["prompt"][-1]["content"] in text
        assert text.count("<|im_start|>") == 2 and text.endswith("<|im_start|>assistant\n")


# Words after `data build`, and what the message names.
INVALID = {
    "no task": ("", ["kk", "deepscaler", "search-qa", "reasoning-gym"]),
    "an unknown task": ("kks", ["kks", "kk"]),
    "kk: a malformed row": ("kk --people 3 --test 1 --source SOURCES/bad/kk.jsonl", ["kk.jsonl, row 1", "names"]),
    "deepscaler: an unknown set": ("deepscaler --source SOURCES/math --sets aime2031", ["aime2031", "aime2024"]),
    "deepscaler: no sets": ("deepscaler --source SOURCES/empty", ["empty", "deepscaler.json"]),
    "deepscaler: a set twice": ("deepscaler --source SOURCES/twice", ["aime"]),
    "deepscaler: a chat tag": ("deepscaler --source SOURCES/math --instruction <|im_start|>", ["<|im_start|>"]),
    "deepscaler: several at once": ("deepscaler --source nowhere --limit 0", ["2 problems", "limit=0", "nowhere"]),
    "deepscaler: malformed rows": ("deepscaler --source SOURCES/bad/raw.jsonl", ["raw.jsonl, row 1"]),
    "search-qa: no sets": ("search-qa --source SOURCES/empty", ["empty", "nq/train.jsonl"]),
    "search-qa: a split twice": ("search-qa --source SOURCES/twice", ["nq/train"]),
    "search-qa: several at once": (
        "search-qa --train-sets --test-sets --val-per-set 0 --limit 0",
        ["3 problems", "train_sets", "val_per_set=0", "limit=0"],
    ),
    "reasoning-gym: several at once": (
        "reasoning-gym --task gsm_symbolc --train 0",
        ["2 problems", "train=0", "gsm_symbolc", "gsm_symbolic"],
    ),
    "reasoning-gym: a parameter": ("reasoning-gym --task chain_sum --config min_terms", ["config=min_terms"]),
    "reasoning-gym: an unknown parameter": ("reasoning-gym --task chain_sum --config terms=3", ["chain_sum", "terms"]),
    "reasoning-gym: an invalid parameter": ("reasoning-gym --task chain_sum --config min_terms=x", ["chain_sum"]),
    "reasoning-gym: answers JSON cannot hold": ("reasoning-gym --task rearc --train 1 --test 1", ["task=rearc"]),
}


@pytest.fixture(scope="module")
def bad_sources(tmp_path_factory):
    directory = write_sources(tmp_path_factory.mktemp("sources"))
    contents = {
        "empty/other.json": "[]",
        "twice/aime.json": "[]",
        "twice/aime.jsonl": "",
        "twice/nq/train.json": "[]",
        "twice/nq/train.jsonl": "",
        "bad/kk.jsonl": '{"quiz": "Who?"}',
        "bad/raw.jsonl": '{"problem": "", "answer": "1"}\n\n{"problem": "Why?", "answer": true}\n',
    }
    for name, content in contents.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(content)
    return directory


@pytest.mark.parametrize("name", INVALID)
def test_invalid_input_is_one_clear_error_and_leaves_the_old_files(tmp_path, bad_sources, capsys, name):
    words, named = INVALID[name]
    (tmp_path / "train.parquet").write_text("old")
    before = content_of(tmp_path)
    words = words.replace("SOURCES", str(bad_sources)).split()
    assert main(["data", "build", *words, *(["--out", str(tmp_path), "--force"] if words else [])]) == 2
    error = capsys.readouterr().err
    assert error.count("error:") == 1 and all(part in error for part in named), error
    assert "Traceback" not in error and content_of(tmp_path) == before


@pytest.mark.parametrize("task", known_builders())
def test_every_task_is_built_here_and_has_a_row_in_the_docs(task):
    assert task in {words.split()[0] for words in BUILDS.values()}, "add words for it to BUILDS"
    rows = (Path(__file__).parents[2] / "docs/data.md").read_text()
    assert f"\n| `{task}` |" in rows, "add a row to the table of docs/data.md, Building"


@pytest.mark.parametrize("task", known_builders())
def test_every_task_has_a_help_text_with_an_example(capsys, task):
    assert main(["data", "build", task, "--help"]) == 0
    shown = capsys.readouterr().out
    assert f"verl-trgrpo data build {task} --" in shown and "--seed" in shown
    assert main(["data", "build", "--help"]) == 0 and task in capsys.readouterr().out


def test_a_task_that_runs_out_of_questions_says_so_while_it_searches(tmp_path, caplog):
    """There are about 160 sums of two digits."""
    few = {"task": "chain_sum", "config": ("min_terms=2", "max_terms=2", "max_digits=1")}
    assert build_reasoning_gym(ReasoningGymOptions(out=tmp_path / "few", train=80, test=40, **few))
    questions = [
        row["prompt"][0]["content"] for name in ("train", "test") for row in rows_of(tmp_path / f"few/{name}.parquet")
    ]
    assert len(set(questions)) == 120
    assert not caplog.records
    with pytest.raises(ValueError, match=r"chain_sum gave only \d+ of 100000 different train questions"):
        build_reasoning_gym(ReasoningGymOptions(out=tmp_path / "many", train=100_000, test=40, **few))
    assert any(record.levelno == logging.WARNING and "100000" in record.getMessage() for record in caplog.records)


def test_the_recorded_command_gives_the_same_bytes_where_it_was_run(tmp_path, sources):
    """Also in a process with another hash seed, through the script in data_prep."""
    environment = environment_for(tmp_path)
    script = Path(__file__).parents[2] / "data_prep" / "kk.py"
    (tmp_path / "kk.jsonl").write_bytes((sources / "kk.jsonl").read_bytes())
    words = ["--out", "out/kk", "--people", "3", "--train", "6", "--test", "3", "--source", "./kk.jsonl", "--seed", "4"]
    run = {"cwd": tmp_path, "check": True, "capture_output": True, "text": True, "timeout": HANGS}
    done = subprocess.run([sys.executable, script, *words], env=environment | {"PYTHONHASHSEED": "1"}, **run)
    assert "out/kk/train.parquet: 6 rows" in done.stdout
    before = content_of(tmp_path / "out/kk")
    for path in (tmp_path / "out/kk").iterdir():
        path.unlink()
    command = shlex.split(json.loads(before["manifest.json"])["command"])
    assert command[:4] == ["verl-trgrpo", "data", "build", "kk"]
    subprocess.run(
        [sys.executable, "-m", "verl_trgrpo", *command[1:]], env=environment | {"PYTHONHASHSEED": "77"}, **run
    )
    assert content_of(tmp_path / "out/kk") == before


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_build_that_is_stopped_leaves_the_old_data_set(tmp_path, number):
    out = tmp_path / "kk"
    words = ["kk", "--people", "3", "--train", "6", "--test", "3"]
    build(out, *words)
    before = content_of(out)
    command = ["kk", "--out", str(out), "--force", "--people", "8", "--train", "1000000", "--test", "3"]
    code, error = stop_amid_work(command, environment_for(tmp_path), number)
    assert content_of(out) == before
    if number == signal.SIGKILL:
        assert code == -signal.SIGKILL
        build(out, *words, "--force")  # the lock of the killed build does not disturb the next one
        assert without_command(out) == {**before, "manifest.json": manifest_of(out) | {"command": ""}}
    else:
        assert code == 130 and "the output directory is as before" in error


def stop_amid_work(words, environment, number):
    """Start a build, send it the signal `number` amid its work; return its exit code and what it wrote to stderr then.

    Amid its work means: the progress bar shows a speed. Its first line, "?it/s", would be too early, because what is
    imported after it may swallow a Ctrl-C.
    """
    command = [sys.executable, "-m", "verl_trgrpo", "data", "build", *words]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        deadline = threading.Timer(HANGS, process.kill)  # the loop then fails
        deadline.start()
        shown = ""
        while not re.search(r"\dit/s", shown):
            read = process.stderr.read(1)
            assert read, f"ended before the work began: {shown}"
            shown += read
        process.send_signal(number)
        _, error = process.communicate()
        deadline.cancel()
    return process.returncode, error


def test_the_hub_without_a_network_is_one_clear_error(tmp_path):
    words = ["data", "build", "deepscaler", "--out", str(tmp_path / "out"), "--sets", "amc2023"]
    done = subprocess.run(
        [sys.executable, "-m", "verl_trgrpo", *words],
        env=environment_for(tmp_path), capture_output=True, text=True, check=False, timeout=HANGS,
    )  # fmt: skip
    assert done.returncode == 2
    assert "AI-MO/aimo-validation-amc/train" in done.stderr and done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()
