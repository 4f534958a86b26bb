import pytest

from verl_trgrpo.data.parquet import read_manifest
from verl_trgrpo.tasks.knights_and_knaves.puzzles import generate_puzzles
from verl_trgrpo.tiny.puzzles import CHECKPOINT
from verl_trgrpo.tiny.puzzles.accuracy import MAX_RESPONSE_TOKENS, greedy_responses, is_correct, load, measure_accuracy
from verl_trgrpo.tiny.puzzles.demonstrations import WarmStartPuzzles
from verl_trgrpo.tiny.puzzles.puzzle_texts import CAREFUL_START, truth_table_reasoning


@pytest.fixture(scope="module")
def manifest():
    return read_manifest(CHECKPOINT)


@pytest.fixture(scope="module")
def loaded():
    return load(CHECKPOINT)


@pytest.fixture(scope="module")
def unseen():
    return list(generate_puzzles(3, 32, 77, exclude=WarmStartPuzzles()))


def test_the_manifest_says_how_it_was_made(manifest):
    assert manifest["command"].startswith("python -m verl_trgrpo.tiny.puzzles.warm_start --out . --seed 0 ")
    assert {"torch", "transformers", "tokenizers"} <= set(manifest["library_versions"])


def test_the_model_reasons_without_error_when_it_begins_to(loaded, unseen, manifest):
    responses = greedy_responses(*loaded, unseen, CAREFUL_START)
    right = sum(map(is_correct, responses, unseen)) / len(unseen)
    assert right >= manifest["accuracy"]["3ppl"]["careful"] - 0.1
    worked_out = [f"<think>{truth_table_reasoning(puzzle)}</think>" for puzzle in unseen]
    assert sum(map(str.startswith, responses, worked_out)) / len(unseen) >= 0.9


def test_the_model_rarely_reasons_of_its_own_accord(loaded, unseen, manifest):
    right = sum(map(is_correct, greedy_responses(*loaded, unseen), unseen)) / len(unseen)
    assert abs(right - manifest["accuracy"]["3ppl"]["greedy"]) <= 0.25
    assert right <= 0.5


def test_every_response_to_an_unseen_puzzle_ends(loaded, unseen):
    tokenizer, _ = loaded
    for response in greedy_responses(*loaded, unseen, CAREFUL_START):
        assert response.endswith("</answer>")
        assert len(tokenizer.encode(response)) < MAX_RESPONSE_TOKENS


def test_measured_accuracy_is_a_share_of_right_responses(loaded):
    measured = measure_accuracy(CHECKPOINT, 4, seed=5, sizes=(2,))
    puzzles = list(generate_puzzles(2, 4, 5, exclude=WarmStartPuzzles()))
    assert set(measured) == {"2ppl"}
    for name, start in (("greedy", ""), ("careful", CAREFUL_START)):
        right = [
            is_correct(response, p)
            for response, p in zip(greedy_responses(*loaded, puzzles, start), puzzles, strict=True)
        ]
        assert measured["2ppl"][name] == sum(right) / 4
