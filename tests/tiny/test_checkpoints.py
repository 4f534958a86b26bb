"""The checkpoints that ship with the package: small, as recorded, and able to do what is to be learned."""

import json
import random

import pytest
import torch
from safetensors.torch import load_file

from tests.tiny.worlds import continued, unseen_puzzles
from verl_trgrpo.common.files import file_sha256, read_json
from verl_trgrpo.data.write import MANIFEST
from verl_trgrpo.tasks import compute_score
from verl_trgrpo.tasks.knights_and_knaves.puzzles import format_solution
from verl_trgrpo.tasks.search_qa.format import STOP_STRINGS, observation_frame, read_action
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
    manifest = read_json(module.CHECKPOINT / MANIFEST)
    assert {path.name for path in module.CHECKPOINT.iterdir()} == {"manifest.json", *manifest["files"]}
    assert sum(path.stat().st_size for path in module.CHECKPOINT.iterdir()) < 4_000_000
    for name, facts in manifest["files"].items():
        assert file_sha256(module.CHECKPOINT / name) == facts["sha256"]


@both
def test_a_checkpoint_is_what_the_default_options_of_its_world_build(module):
    manifest = read_json(module.CHECKPOINT / MANIFEST)
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
    assert model.num_parameters() == read_json(module.CHECKPOINT / MANIFEST)["parameters"] < 1_000_000
    assert torch.equal(model.get_input_embeddings().weight, weights["model.embed_tokens.weight"].float())


def right(responses, asked):
    """Share of responses that the reward counts as right."""
    truths = [format_solution(puzzle.names, puzzle.solution) for puzzle in asked]
    return sum(compute_score("kk_3ppl", *pair)["acc"] for pair in zip(responses, truths, strict=True)) / len(asked)


def test_the_puzzle_model_reasons_without_error_when_it_begins_to_and_rarely_of_its_own_accord():
    tokenizer, model = load(puzzles.CHECKPOINT)
    unseen = unseen_puzzles(3, 32, seed=77)
    prompts = [puzzles.prompt_text(tokenizer, puzzle) for puzzle in unseen]
    start = "<think>K"
    written = continued(tokenizer, model, [prompt + start for prompt in prompts], puzzles.MAX_RESPONSE_TOKENS)
    careful = [start + text for text in written]
    assert right(careful, unseen) >= 0.9
    worked_out = [f"<think>{puzzles.truth_table_reasoning(puzzle)}</think>" for puzzle in unseen]
    assert sum(map(str.startswith, careful, worked_out)) / 32 >= 0.9
    assert all(response.endswith("</answer>") for response in careful)
    assert all(len(tokenizer.encode(response)) < puzzles.MAX_RESPONSE_TOKENS for response in careful)
    assert right(continued(tokenizer, model, prompts, puzzles.MAX_RESPONSE_TOKENS), unseen) <= 0.5


def answer(tokenizer, model, backend, question, searches=0):
    """The model's greedy answer, or None; it is made to begin its first turns with a search."""
    messages = search.prompt_messages(question)
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    for turn in range(3):
        start = "<think>search</think><search>" if turn < searches else ""
        written = start + continued(tokenizer, model, [text + start], 48, STOP_STRINGS)[0]
        action = read_action(written)
        if action.kind != "search":
            return action.content if action.kind == "answer" else None
        text += written + search.observed(backend, action.content)
    return None


def test_the_search_model_finds_answers_in_a_new_world_when_made_to_search_and_rarely_otherwise(tmp_path):
    tokenizer, model = load(search.CHECKPOINT)
    world = make_world("training", 77)
    backend = search.open_index(world, tmp_path)
    tags = [*STOP_STRINGS, "<search>", "<answer>", "<think>", "</think>", "<information>", "</information>"]
    assert all(len(tokenizer.encode(tag)) == 1 for tag in tags)
    texts = [*observation_frame(), *(text for _, text in world.documents())]
    assert all(tokenizer.decode(tokenizer.encode(text)) == text for text in texts)
    people = random.Random(0).sample([*world.people], 5)
    asked = [question for name in people for question in world.questions(name)]
    careful = [answer(tokenizer, model, backend, q, len(q.path)) == q.answer for q in asked]
    greedy = [answer(tokenizer, model, backend, q) == q.answer for q in asked]
    assert sum(careful) / len(asked) >= 0.9
    assert sum(greedy) / len(asked) <= 0.5  # there is something left to learn
