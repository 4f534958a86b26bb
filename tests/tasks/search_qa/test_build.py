"""Limits, repeated builds, errors, and builds that are stopped."""

import json
import signal
from pathlib import Path

import pytest

from tests.data.builder_files import (
    command_of,
    environment_for,
    files_in,
    manifest_of,
    repeat_recorded_command,
    rows_of,
    staging_directories,
    stop_amid_work,
)
from tests.tasks.search_qa.files import question, run, write_collection, write_jsonl


@pytest.fixture
def source(tmp_path):
    return write_collection(tmp_path / "source")


def origins(path):
    return [row["extra_info"]["origin"] for row in rows_of(path)]


def test_the_same_arguments_give_the_same_bytes_also_with_more_processes(tmp_path, source):
    words = ["--source", source, "--limit", "4", "--val-per-set", "2", "--seed", "3"]
    assert run(tmp_path / "data", *words) == 0
    before = files_in(tmp_path / "data")
    assert run(tmp_path / "data", *words, "--force", "--num-proc", "2") == 0
    assert files_in(tmp_path / "data") == before


def test_limit_draws_from_each_set_with_the_seed_and_keeps_the_order(tmp_path, source):
    draws = []
    for seed in range(4):
        assert run(tmp_path / "out", "--source", source, "--limit", "3", "--seed", seed) == 0
        train = origins(tmp_path / "out" / "train.parquet")
        assert len(set(train)) == len(train) == 6
        assert train == sorted(train, key=lambda origin: (origin.startswith("hotpotqa"), origin))
        assert len(origins(tmp_path / "out" / "test.parquet")) == 3 * 7
        draws.append(tuple(train))
    assert len(set(draws)) > 1
    counts = manifest_of(tmp_path / "out")["counts"]["nq/train for train"]
    assert counts == {"read": 6, "kept": 3, "dropped": {"not drawn for the limit": 3}}


def test_a_limit_above_the_size_of_a_set_takes_all(tmp_path, source):
    assert run(tmp_path / "out", "--source", source, "--limit", "100", "--val-per-set", "100") == 0
    assert origins(tmp_path / "out" / "val.parquet") == origins(tmp_path / "out" / "test.parquet")


def test_the_recorded_command_gives_the_same_bytes_where_it_was_run(tmp_path, source, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["--limit", "4", "--val-per-set", "2", "--system", "--loop", "tool_agent", "--train-sets", "hotpotqa"]
    out = Path("some data/one")
    assert run(out, "--source", f"./{source.name}", *words) == 0
    recorded = manifest_of(out)
    assert recorded["command"].startswith("python data_prep/search_qa.py --out 'some data/one' ")
    assert f"--source ./{source.name}" in recorded["command"]
    assert str(tmp_path) not in json.dumps(recorded)
    before = files_in(out)
    repeat_recorded_command(out, tmp_path, environment_for(tmp_path))
    assert files_in(out) == before


def test_a_data_set_is_built_again_only_when_something_changed(tmp_path, source, capsys):
    out = tmp_path / "out"
    assert run(out, "--source", source) == 0
    capsys.readouterr()
    assert run(out, "--source", source) == 0
    assert "already has this data set" in capsys.readouterr().out
    write_jsonl(source / "nq" / "train.jsonl", [question("nq", "train", 9)])
    assert run(out, "--source", source) == 0
    assert "already has" not in capsys.readouterr().out
    assert len(rows_of(out / "train.parquet")) == 7
    assert run(out, "--source", source, "--val-per-set", "1") == 0
    assert (out / "val.parquet").exists()
    assert run(out, "--source", source) == 0
    assert not (out / "val.parquet").exists(), "a file of the data set before must not stay beside the new ones"


ERRORS = {
    "a set that does not exist": (["--train-sets", "squad"], ["train_sets is ['squad']", "bamboogle"]),
    "a set twice": (["--test-sets", "nq", "nq"], ["test_sets is ['nq', 'nq']", "each set once"]),
    "no sets": (["--train-sets", "--test-sets"], ["both empty"]),
    "no validation rows": (["--val-per-set", "0"], ["val_per_set is 0"]),
    "validation without tests": (["--val-per-set", "3", "--test-sets"], ["test_sets is empty"]),
    "no rows": (["--limit", "0"], ["limit is 0"]),
    "a missing source": (["--source", "nowhere"], ["source nowhere does not exist"]),
    "a revision of files": (["--revision", "v1"], ["error: revision goes with source 'hf' only"]),
    "an unknown loop": (["--loop", "react"], ["react"]),
    "several at once": (
        ["--limit", "0", "--num-proc", "0", "--train-sets", "x"],
        ["3 problems", "limit", "num_proc", "'x'"],
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_wrong_arguments_give_one_clear_error_and_exit_code_2(tmp_path, source, capsys, name):
    words, reasons = ERRORS[name]
    assert run(tmp_path / "out", "--source", source, *words) == 2
    error = capsys.readouterr().err
    assert error.count("error:") == 1
    assert all(reason in error for reason in reasons), error
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=["killed", "interrupted"])
def test_a_build_that_is_stopped_leaves_the_old_data_set(tmp_path, source, number):
    out = tmp_path / "out"
    assert run(out, "--source", source) == 0
    before = files_in(out)
    large = tmp_path / "large" / "nq_test.jsonl"
    large.parent.mkdir()
    large.write_text((json.dumps(question("nq", "test", 1)) + "\n") * 300_000)
    command = command_of("search_qa", "--out", out, "--source", large)
    code, error = stop_amid_work(command, environment_for(tmp_path), out, number)
    assert files_in(out) == before
    if number == signal.SIGINT:
        assert code == 130
        assert "interrupted; the output directory is as before" in error
        assert not staging_directories(out)
