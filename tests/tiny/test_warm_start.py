"""Building a checkpoint: the same bytes again, all or nothing, and a command that explains its refusals."""

import subprocess
import sys

import pytest

from verl_trgrpo.data.parquet import file_sha256, read_manifest
from verl_trgrpo.tiny.puzzles import PuzzleWarmStart
from verl_trgrpo.tiny.search import SearchWarmStart
from verl_trgrpo.tiny.warm_start import CHECKPOINT_FILES, build, main

SHORT = {"steps": 1, "batch_size": 2, "test_tasks": 1}
PUZZLES = PuzzleWarmStart(puzzles=20, **SHORT)
FLAGS = ["--puzzles", "20", "--steps", "1", "--batch-size", "2", "--test-tasks", "1"]


def hashes(directory):
    return {name: file_sha256(directory / name) for name in CHECKPOINT_FILES}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    out = tmp_path_factory.mktemp("built")
    assert build(out, PUZZLES)
    return out


def test_a_second_build_gives_the_same_bytes_and_another_seed_others(built, tmp_path):
    assert main(["puzzles", "--out", str(tmp_path / "again"), *FLAGS]) == 0
    assert hashes(tmp_path / "again") == hashes(built)
    assert (tmp_path / "again/manifest.json").read_bytes() == (built / "manifest.json").read_bytes()
    build(tmp_path / "other", PuzzleWarmStart(seed=1, puzzles=20, **SHORT))
    assert hashes(tmp_path / "other")["model.safetensors"] != hashes(built)["model.safetensors"]


def test_all_files_can_be_read_by_everybody(built):
    assert {(built / name).stat().st_mode & 0o444 for name in CHECKPOINT_FILES} == {0o444}


def test_what_is_there_is_built_again_only_if_forced_or_damaged(built, capsys):
    right, before = hashes(built), {path.name: path.stat().st_mtime_ns for path in built.iterdir()}
    assert main(["puzzles", "--out", str(built), *FLAGS]) == 0
    assert "already has this checkpoint" in capsys.readouterr().out
    assert {path.name: path.stat().st_mtime_ns for path in built.iterdir()} == before
    assert build(built, PUZZLES, force=True)
    assert (built / "model.safetensors").stat().st_mtime_ns > before["model.safetensors"]
    (built / "config.json").write_text("{}")
    assert build(built, PUZZLES)
    assert hashes(built) == right


def test_the_manifest_records_files_options_and_accuracy(tmp_path):
    build(tmp_path, PuzzleWarmStart(puzzles=4, most_people=4, **SHORT))
    manifest = read_manifest(tmp_path)
    assert {name: facts["sha256"] for name, facts in manifest["files"].items()} == hashes(tmp_path)
    assert manifest["arguments"]["steps"] == 1
    assert "--steps 1" in manifest["command"] and "--most-people 4" in manifest["command"]
    assert [*manifest["accuracy"]] == ["2ppl", "3ppl", "4ppl"]


@pytest.mark.slow
def test_the_search_model_is_built_by_the_same_command(tmp_path):
    assert build(tmp_path, SearchWarmStart(**SHORT))
    assert {*read_manifest(tmp_path)["accuracy"]} == {"one search", "two searches"}


def test_an_interrupted_build_leaves_what_was_there(built, tmp_path):
    def interrupt(items, total, label):
        raise KeyboardInterrupt

    before = hashes(built)
    with pytest.raises(KeyboardInterrupt):
        build(built, PuzzleWarmStart(seed=2, puzzles=20, **SHORT), progress=interrupt)
    assert hashes(built) == before
    with pytest.raises(KeyboardInterrupt):
        build(tmp_path / "new", PUZZLES, progress=interrupt)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("flags", "reasons"),
    [
        (["--steps", "0", "--seed", "-3"], ["steps is 0", "seed is -3"]),
        (["--puzzles", "99999"], ["puzzles"]),
        (["--most-people", "5"], ["most_people is 5"]),
    ],
    ids=["two at once", "too many puzzles", "too many people"],
)
def test_impossible_options_end_with_their_reasons_and_code_2(flags, reasons, tmp_path, capsys):
    assert main(["puzzles", "--out", str(tmp_path / "out"), *flags]) == 2
    error = capsys.readouterr().err
    assert all(reason in error for reason in reasons)
    assert "Traceback" not in error
    assert not (tmp_path / "out").exists()


def test_importing_needs_neither_torch_nor_verl():
    code = (
        "import sys, verl_trgrpo.tiny.warm_start; "
        "print(sorted({'torch', 'transformers', 'verl', 'vllm', 'ray'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
