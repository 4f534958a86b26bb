"""The checkpoint that ships with the package: whole, loadable, and as able as its manifest says."""

import random

import pytest
import torch

from verl_trgrpo.data.parquet import read_manifest
from verl_trgrpo.tasks.search_qa.agent.tags import STOP_STRINGS, observation_frame
from verl_trgrpo.tiny.puzzles.accuracy import load
from verl_trgrpo.tiny.search import CHECKPOINT
from verl_trgrpo.tiny.search.accuracy import answer, measure_accuracy
from verl_trgrpo.tiny.search.demonstrations import CAREFUL_START
from verl_trgrpo.tiny.search.training import SearchWarmStartOptions, open_index
from verl_trgrpo.tiny.search.world import make_world

COUNT = 6


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Threads of torch wait for each other longer than such a small model takes, when other programs need the cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def manifest():
    return read_manifest(CHECKPOINT)


@pytest.fixture(scope="module")
def loaded():
    return load(CHECKPOINT)


@pytest.fixture(scope="module")
def unseen(tmp_path_factory):
    """A world that neither the warm start nor the manifest's measurement saw, and its index."""
    world = make_world("training", 77)
    return world, open_index(world, tmp_path_factory.mktemp("unseen"))


def test_the_manifest_says_how_it_was_made(manifest):
    assert manifest["command"].startswith("python -m verl_trgrpo.tiny.search.warm_start --out checkpoint --seed 0 ")
    assert SearchWarmStartOptions(**manifest["arguments"]) == SearchWarmStartOptions()
    assert {"torch", "transformers", "tokenizers", "tantivy"} <= set(manifest["library_versions"])


def test_tags_are_single_tokens_and_every_text_survives_the_tokenizer(loaded, unseen):
    tokenizer, _ = loaded
    tags = [*STOP_STRINGS, "<search>", "<answer>", "<think>", "</think>", "<information>", "</information>"]
    assert all(len(tokenizer.encode(tag)) == 1 for tag in tags)
    texts = [CAREFUL_START, *observation_frame(), *(text for _, text in unseen[0].documents())]
    assert all(tokenizer.decode(tokenizer.encode(text)) == text for text in texts)


@pytest.mark.slow
def test_the_model_is_as_good_as_the_manifest_says(manifest):
    measured = measure_accuracy(CHECKPOINT, COUNT, manifest["arguments"]["seed"])
    assert set(measured) == set(manifest["accuracy"])
    for kind, accuracies in measured.items():
        for name, accuracy in accuracies.items():
            # The first few of the questions that the manifest counts may be easier or harder than all.
            assert abs(accuracy - manifest["accuracy"][kind][name]) <= 0.3, (kind, name)


@pytest.mark.slow
def test_the_model_finds_answers_in_a_new_world_when_made_to_search_and_rarely_otherwise(loaded, unseen):
    world, backend = unseen
    people = random.Random(0).sample([*world.people], COUNT)
    questions = [question for name in people for question in world.questions(name)]
    careful = [answer(*loaded, backend, question, len(question.path)) == question.answer for question in questions]
    greedy = [answer(*loaded, backend, question) == question.answer for question in questions]
    assert sum(careful) / len(questions) >= 0.9
    assert sum(greedy) / len(questions) <= 0.5  # there is something left to learn
