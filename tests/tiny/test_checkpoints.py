"""The checkpoints that ship with the package: small, as recorded, and as able as their manifests say."""

import json
import random

import pytest
import torch
from safetensors.torch import load_file

from tests.tiny.worlds import unseen_puzzles
from verl_trgrpo.data.parquet import file_sha256, read_manifest
from verl_trgrpo.tasks.search_qa.tags import STOP_STRINGS, observation_frame
from verl_trgrpo.tiny import puzzles, search
from verl_trgrpo.tiny.model import load
from verl_trgrpo.tiny.search_world import make_world
from verl_trgrpo.tiny.warm_start import WORLDS, is_built

both = pytest.mark.parametrize("module", [puzzles, search], ids=["puzzles", "search"])


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Threads of torch wait for each other longer than such a small model takes, when other programs need the cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@both
def test_a_checkpoint_is_small_and_as_recorded(module):
    manifest = read_manifest(module.CHECKPOINT)
    assert {path.name for path in module.CHECKPOINT.iterdir()} == {"manifest.json", *manifest["files"]}
    assert sum(path.stat().st_size for path in module.CHECKPOINT.iterdir()) < 4_000_000
    for name, facts in manifest["files"].items():
        assert file_sha256(module.CHECKPOINT / name) == facts["sha256"]


@both
def test_a_checkpoint_is_what_the_default_options_of_its_world_build(module):
    manifest = read_manifest(module.CHECKPOINT)
    kind = WORLDS[manifest["world"]]
    assert is_built(kind(out=module.CHECKPOINT))
    words = json.dumps(manifest).replace('"', " ").split()
    assert not [word for word in words if word.startswith("/")]  # no directory of the machine that built it


@both
def test_weights_are_bf16_on_disk_and_fp32_in_training(module):
    weights = load_file(module.CHECKPOINT / "model.safetensors")
    assert {weight.dtype for weight in weights.values()} == {torch.bfloat16}
    _, model = load(module.CHECKPOINT)
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}
    assert model.num_parameters() == read_manifest(module.CHECKPOINT)["parameters"] < 1_000_000
    assert torch.equal(model.get_input_embeddings().weight, weights["model.embed_tokens.weight"].float())


def test_the_puzzle_model_reasons_without_error_when_it_begins_to_and_rarely_of_its_own_accord():
    tokenizer, model = load(puzzles.CHECKPOINT)
    accuracy = read_manifest(puzzles.CHECKPOINT)["accuracy"]["3ppl"]
    unseen = unseen_puzzles(3, 32, seed=77)
    careful = puzzles.greedy_responses(tokenizer, model, unseen, puzzles.CAREFUL_START)
    assert sum(map(puzzles.is_correct, careful, unseen)) / 32 >= accuracy["careful"] - 0.1
    worked_out = [f"<think>{puzzles.truth_table_reasoning(puzzle)}</think>" for puzzle in unseen]
    assert sum(map(str.startswith, careful, worked_out)) / 32 >= 0.9
    assert all(response.endswith("</answer>") for response in careful)
    assert all(len(tokenizer.encode(response)) < puzzles.MAX_RESPONSE_TOKENS for response in careful)
    greedy = sum(map(puzzles.is_correct, puzzles.greedy_responses(tokenizer, model, unseen), unseen)) / 32
    assert abs(greedy - accuracy["greedy"]) <= 0.25
    assert greedy <= 0.5


@pytest.mark.slow
def test_the_search_model_finds_answers_in_a_new_world_when_made_to_search_and_rarely_otherwise(tmp_path):
    tokenizer, model = load(search.CHECKPOINT)
    world = make_world("training", 77)
    backend = search.open_index(world, tmp_path)
    tags = [*STOP_STRINGS, "<search>", "<answer>", "<think>", "</think>", "<information>", "</information>"]
    assert all(len(tokenizer.encode(tag)) == 1 for tag in tags)
    texts = [search.CAREFUL_START, *observation_frame(), *(text for _, text in world.documents())]
    assert all(tokenizer.decode(tokenizer.encode(text)) == text for text in texts)
    people = random.Random(0).sample([*world.people], 5)
    asked = [question for name in people for question in world.questions(name)]
    careful = [search.answer(tokenizer, model, backend, q, len(q.path)) == q.answer for q in asked]
    greedy = [search.answer(tokenizer, model, backend, q) == q.answer for q in asked]
    assert sum(careful) / len(asked) >= 0.9
    assert sum(greedy) / len(asked) <= 0.5  # there is something left to learn
