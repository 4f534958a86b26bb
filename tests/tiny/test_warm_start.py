"""Building a checkpoint: the same bytes again, all or nothing, and a command that explains its refusals."""

import subprocess
import sys
from dataclasses import replace

import pytest

from verl_trgrpo.common.files import file_sha256, read_json
from verl_trgrpo.data.write import MANIFEST
from verl_trgrpo.tiny.puzzles import PuzzleWarmStart
from verl_trgrpo.tiny.search import SearchWarmStart
from verl_trgrpo.tiny.warm_start import build, is_built, main

SHORT = {"steps": 1, "batch_size": 2}
FLAGS = ["--puzzles", "20", "--steps", "1", "--batch-size", "2"]


def hashes(directory):
    return {path.name: file_sha256(path) for path in directory.iterdir()}


@pytest.fixture(scope="module")
def options(tmp_path_factory):
    options = PuzzleWarmStart(out=tmp_path_factory.mktemp("built"), puzzles=20, **SHORT)
    assert not is_built(options)
    build(options)
    return options


def test_a_second_build_gives_the_same_bytes_and_another_seed_others(options, tmp_path):
    assert main(["puzzles", "--out", str(tmp_path / "again"), *FLAGS]) == 0
    assert hashes(tmp_path / "again") == hashes(options.out)
    assert is_built(options)
    other = replace(options, seed=1, out=tmp_path / "other")
    build(other)
    assert hashes(other.out)["model.safetensors"] != hashes(options.out)["model.safetensors"]
    assert not is_built(replace(options, out=other.out))


def test_all_files_can_be_read_by_everybody(options):
    assert {path.stat().st_mode & 0o444 for path in options.out.iterdir()} == {0o444}


def test_the_manifest_records_files_and_options(options):
    manifest = read_json(options.out / MANIFEST)
    found = {name: facts["sha256"] for name, facts in manifest["files"].items()}
    assert found == {name: digest for name, digest in hashes(options.out).items() if name != "manifest.json"}
    assert manifest["arguments"]["steps"] == 1


def test_the_search_model_is_built_in_the_same_way(tmp_path):
    assert build(SearchWarmStart(out=tmp_path, **SHORT))["world"] == "search"


@pytest.mark.parametrize(
    ("flags", "reasons"),
    [
        (["--steps", "0", "--seed", "-3"], ["steps=0", "seed=-3"]),
        (["--most-people", "5"], ["most-people"]),
    ],
    ids=["two at once", "too many people"],
)
def test_impossible_options_end_with_their_reasons_and_code_2(flags, reasons, tmp_path, capsys):
    assert main(["puzzles", "--out", str(tmp_path / "out"), *flags]) == 2
    error = capsys.readouterr().err
    assert all(reason in error for reason in reasons)
    assert not (tmp_path / "out").exists()


def test_importing_needs_neither_torch_nor_verl():
    code = (
        "import sys, verl_trgrpo.tiny.warm_start; "
        "print(sorted({'torch', 'transformers', 'verl', 'vllm', 'ray'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
