import re
import subprocess
import sys

import pytest

from verl_trgrpo.data.parquet import file_sha256, read_manifest
from verl_trgrpo.tiny.puzzles.checkpoint_files import CHECKPOINT_FILES
from verl_trgrpo.tiny.puzzles.training import WarmStartOptions
from verl_trgrpo.tiny.puzzles.warm_start import build, main

TINY = WarmStartOptions(puzzles=20, steps=3, batch_size=2, test_puzzles=1)
FLAGS = ["--puzzles", "20", "--steps", "3", "--batch-size", "2", "--test-puzzles", "1"]


def hashes(directory):
    return {name: file_sha256(directory / name) for name in CHECKPOINT_FILES}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    out = tmp_path_factory.mktemp("built")
    assert build(out, TINY)
    return out


def test_a_second_build_gives_the_same_bytes(built, tmp_path):
    assert build(tmp_path / "again", TINY)
    assert hashes(tmp_path / "again") == hashes(built)
    assert (tmp_path / "again/manifest.json").read_bytes() == (built / "manifest.json").read_bytes()


def test_all_files_can_be_read_by_everybody(built):
    assert {(built / name).stat().st_mode & 0o444 for name in CHECKPOINT_FILES} == {0o444}


def test_another_seed_gives_other_weights(built, tmp_path):
    build(tmp_path, WarmStartOptions(seed=1, puzzles=20, steps=3, batch_size=2, test_puzzles=1))
    assert hashes(tmp_path)["model.safetensors"] != hashes(built)["model.safetensors"]


def test_what_is_there_is_not_built_again_unless_forced(built, capsys):
    before = {path.name: path.stat().st_mtime_ns for path in built.iterdir()}
    assert not build(built, TINY)
    assert main(["--out", str(built), *FLAGS]) == 0
    assert "already has this checkpoint" in capsys.readouterr().out
    assert {path.name: path.stat().st_mtime_ns for path in built.iterdir()} == before
    assert build(built, TINY, force=True)
    assert (built / "model.safetensors").stat().st_mtime_ns > before["model.safetensors"]


def test_a_damaged_checkpoint_is_built_again(built):
    right = hashes(built)
    (built / "config.json").write_text("{}")
    assert build(built, TINY)
    assert hashes(built) == right


def test_the_manifest_records_the_files_and_options(built):
    manifest = read_manifest(built)
    assert {name: facts["sha256"] for name, facts in manifest["files"].items()} == hashes(built)
    assert manifest["arguments"]["steps"] == 3
    assert set(manifest["accuracy"]) == {"2ppl", "3ppl"}
    assert "--steps 3" in manifest["command"]


def stop_after_one(items, total, label):
    yield next(iter(items))
    raise KeyboardInterrupt


def test_an_interrupted_build_leaves_what_was_there(built, tmp_path):
    before = hashes(built)
    with pytest.raises(KeyboardInterrupt):
        build(built, WarmStartOptions(seed=2, puzzles=20, steps=3, batch_size=2), progress=stop_after_one)
    assert hashes(built) == before
    assert not [path for path in built.iterdir() if path.name.startswith(".")]
    with pytest.raises(KeyboardInterrupt):
        build(tmp_path / "new", TINY, progress=stop_after_one)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--steps", "0"], "steps is 0"),
        (["--threads", "0", "--seed", "-3"], "seed is -3"),
        (["--puzzles", "99999"], "15088|exist"),
    ],
    ids=["no steps", "two at once", "too many puzzles"],
)
def test_impossible_options_end_in_one_line_and_code_2(flags, reason, tmp_path, capsys):
    assert main(["--out", str(tmp_path / "out"), *flags]) == 2
    error = capsys.readouterr().err
    assert re.search(reason, error)
    assert "Traceback" not in error
    assert not (tmp_path / "out").exists()


def test_an_output_that_is_a_file_is_refused(tmp_path, capsys):
    (tmp_path / "file").write_text("x")
    assert main(["--out", str(tmp_path / "file"), *FLAGS]) == 2
    assert "cannot write to" in capsys.readouterr().err


def test_importing_needs_neither_torch_nor_verl():
    code = (
        "import sys, verl_trgrpo.tiny.puzzles.warm_start, verl_trgrpo.tiny.puzzles.accuracy; "
        "print(sorted({'torch', 'transformers', 'verl', 'vllm', 'ray'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
