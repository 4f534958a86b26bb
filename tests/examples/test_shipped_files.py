"""The files that ship are the ones that were made, and the models can do what reinforcement learning is to select."""

import hashlib
import json
import random
import re

import pytest
import torch
import yaml

from examples import search_world
from examples.makers import demonstrations
from examples.small_lm import TASKS
from tests.demos.models import continued, load, prompt_text, sampled_probs
from verl_trgrpo.common.files import file_sha256
from verl_trgrpo.core import make_shaping
from verl_trgrpo.demos import puzzles
from verl_trgrpo.tasks import compute_score
from verl_trgrpo.tasks.knights_and_knaves.puzzles import format_solution, generate_puzzles

SHIPPED = {
    puzzles.CHECKPOINT: "ab871995697357ee61bd6ed5574aab1bacaf31c3a488fdf0fbc3800a3ecec0c4",
    search_world.CHECKPOINT: "298ccb6b9b4281c257555e758a6946018c5eac03f7a7ae0b715ff66a2ad0b865",
    TASKS["word_problems"].adapter: "b92d3fb2b38a553356fc27a5853015ed67db55389c9a2031faa3c30a925c8004",
    TASKS["puzzles"].adapter: "3db7bc4268efef5890634a6a53d1c80a81505ecf413138814ec614c2ed353a3d",
}


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Threads of torch wait for each other longer than such a small model takes, when other programs need the cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("directory", SHIPPED, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_the_files_are_unchanged(directory):
    """Numbers in docs/results.md and docs/demonstrations.md were measured with them."""
    lines = [f"{file_sha256(path)}  {path.name}\n" for path in sorted(directory.iterdir()) if path.name != "README.md"]
    assert hashlib.sha256("".join(lines).encode()).hexdigest() == SHIPPED[directory]


@pytest.mark.parametrize("directory", SHIPPED, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_card_says_where_the_weights_come_from(directory):
    """Its base model is the adapter's, and its number of parameters that of the weights."""
    _, header, text = (directory / "README.md").read_text().split("---\n", 2)
    card = yaml.safe_load(header)
    assert card["license"] == "apache-2.0"
    rows = re.findall(r"^\| ([\w ]+) \|", text, re.MULTILINE)
    if (adapter := directory / "adapter_config.json").is_file():
        assert card["base_model"] == json.loads(adapter.read_text())["base_model_name_or_path"]
        assert f"rank {json.loads(adapter.read_text())['r']} " in text
        assert rows == ["base model", "origin", "data", "licence", "for", "not for"]
    else:
        manifest = json.loads((directory / "manifest.json").read_text())
        assert f"{manifest['parameters']:,} parameters" in text and f"{manifest['arguments']['steps']:,} steps" in text
        assert rows == ["origin", "data", "tokenizer", "licence", "for", "not for"]


def right(responses, asked):
    """Share of responses that the reward counts as right."""
    truths = [format_solution(puzzle.names, puzzle.solution) for puzzle in asked]
    return sum(compute_score("kk_3ppl", *pair)["acc"] for pair in zip(responses, truths, strict=True)) / len(asked)


def plain(text):
    """The text in the most frequent wording."""
    first = {word: words[0] for words in demonstrations.WORDINGS.values() for word in words}
    return re.sub(r"[a-z]+", lambda match: first.get(match[0], match[0]), text)


def test_the_puzzle_model_reasons_without_error_when_it_begins_to_and_rarely_of_its_own_accord():
    tokenizer, model = load(puzzles.CHECKPOINT)
    unseen = [*generate_puzzles(3, 32, 77, exclude=puzzles.WARM_START)]
    prompts = [prompt_text(tokenizer, puzzle) for puzzle in unseen]
    start, longest = "<think>try", puzzles.MAX_RESPONSE_TOKENS
    careful = [start + text for text in continued(tokenizer, model, [prompt + start for prompt in prompts], longest)]
    assert right(careful, unseen) >= 0.9
    rng = random.Random(0)
    worked_out = [f"<think>{demonstrations.truth_table_reasoning(puzzle, rng)}</think>" for puzzle in unseen]
    assert sum(map(str.startswith, map(plain, careful), map(plain, worked_out))) / 32 >= 0.9
    assert all(response.endswith("</answer>") for response in careful)
    assert right(continued(tokenizer, model, prompts, longest), unseen) <= 0.5


def test_the_puzzle_model_has_unlikely_tokens_whose_weights_spread():
    """Without them a run of the quickstart could not tell TR-GRPO from GRPO."""
    tokenizer, model = load(puzzles.CHECKPOINT)
    prompts = [prompt_text(tokenizer, puzzle) for puzzle in generate_puzzles(3, 64, 78, exclude=puzzles.WARM_START)]
    torch.manual_seed(0)
    probs = sampled_probs(tokenizer, model, prompts, puzzles.MAX_RESPONSE_TOKENS)
    assert 0.1 <= (probs < 0.5).float().mean() <= 1 / 3
    assert make_shaping("sigmoid")(probs).std() >= 0.05
