"""What both checkpoints that ship with the package have to be: small, as recorded, in bfloat16, and trained in float32."""

import json

import pytest
import torch
from safetensors.torch import load_file

from verl_trgrpo.data.parquet import file_sha256, read_manifest
from verl_trgrpo.tiny import puzzles, search
from verl_trgrpo.tiny.puzzles.accuracy import load

pytestmark = pytest.mark.parametrize(
    "checkpoint", [puzzles.CHECKPOINT, search.CHECKPOINT], ids=["tiny_model", "tiny_search"]
)


def test_it_is_small_and_as_recorded(checkpoint):
    manifest = read_manifest(checkpoint)
    assert {path.name for path in checkpoint.iterdir()} - {"manifest.json", "README.md"} == set(manifest["files"])
    assert sum(path.stat().st_size for path in checkpoint.iterdir()) < 4_000_000
    for name, facts in manifest["files"].items():
        assert file_sha256(checkpoint / name) == facts["sha256"]


def test_the_manifest_names_no_directory_of_the_machine_that_built_it(checkpoint):
    text = json.dumps(read_manifest(checkpoint))
    assert not [word for word in text.replace('"', " ").split() if word.startswith("/")]


def test_weights_are_bf16_on_disk_and_fp32_in_training(checkpoint):
    weights = load_file(checkpoint / "model.safetensors")
    assert {weight.dtype for weight in weights.values()} == {torch.bfloat16}
    _, model = load(checkpoint)
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}
    assert model.num_parameters() == read_manifest(checkpoint)["parameters"] < 1_000_000
    embedding = weights["model.embed_tokens.weight"].float()
    assert torch.equal(model.get_input_embeddings().weight, embedding)
