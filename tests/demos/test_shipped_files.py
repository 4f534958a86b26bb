"""The files that ship are the ones that were made, and the models can do what reinforcement learning is to select."""

import hashlib
import random

import pytest
import torch

from tests.demos.makers import demonstrations, warm_start
from tests.demos.models import continued, load, prompt_text
from verl_trgrpo.common.files import file_sha256
from verl_trgrpo.demos import puzzles, search
from verl_trgrpo.demos.small_lm import TASKS
from verl_trgrpo.tasks import compute_score
from verl_trgrpo.tasks.knights_and_knaves.puzzles import format_solution, generate_puzzles
from verl_trgrpo.tasks.search_qa.format import STOP_STRINGS, read_action

SHIPPED = {
    puzzles.CHECKPOINT: "f70877bfdb1894b27f1f8352b00c11a611261eb893068c7e20080977698f1bc3",
    search.CHECKPOINT: "298ccb6b9b4281c257555e758a6946018c5eac03f7a7ae0b715ff66a2ad0b865",
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
    """Numbers in docs/results.md and docs/index.md were measured with them."""
    lines = [f"{file_sha256(path)}  {path.name}\n" for path in sorted(directory.iterdir())]
    assert hashlib.sha256("".join(lines).encode()).hexdigest() == SHIPPED[directory]


def right(responses, asked):
    """Share of responses that the reward counts as right."""
    truths = [format_solution(puzzle.names, puzzle.solution) for puzzle in asked]
    return sum(compute_score("kk_3ppl", *pair)["acc"] for pair in zip(responses, truths, strict=True)) / len(asked)


def test_the_puzzle_model_reasons_without_error_when_it_begins_to_and_rarely_of_its_own_accord():
    tokenizer, model = load(puzzles.CHECKPOINT)
    unseen = [*generate_puzzles(3, 32, 77, exclude=puzzles.WARM_START)]
    prompts = [prompt_text(tokenizer, puzzle) for puzzle in unseen]
    start, longest = "<think>K", puzzles.MAX_RESPONSE_TOKENS
    careful = [start + text for text in continued(tokenizer, model, [prompt + start for prompt in prompts], longest)]
    assert right(careful, unseen) >= 0.9
    worked_out = [f"<think>{demonstrations.truth_table_reasoning(puzzle)}</think>" for puzzle in unseen]
    assert sum(map(str.startswith, careful, worked_out)) / 32 >= 0.9
    assert all(response.endswith("</answer>") for response in careful)
    assert right(continued(tokenizer, model, prompts, longest), unseen) <= 0.5


def answer(tokenizer, model, index, question, searches=0):
    """The model's greedy answer, or None; it is made to begin its first turns with a search."""
    messages = search.prompt_messages(question)
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    for turn in range(3):
        start = "<think>search</think><search>" if turn < searches else ""
        written = start + continued(tokenizer, model, [text + start], 48, STOP_STRINGS)[0]
        action = read_action(written)
        if action.kind != "search":
            return action.content if action.kind == "answer" else None
        text += written + demonstrations.observation(index, action.content)
    return None


def test_the_search_model_finds_answers_in_a_new_world_when_made_to_search_and_rarely_otherwise(tmp_path):
    tokenizer, model = load(search.CHECKPOINT)
    world = search.make_world("training", 77)
    index = search.open_index(world, tmp_path)
    people = random.Random(0).sample([*world.people], 5)
    asked = [question for name in people for question in world.questions(name)]
    careful = [answer(tokenizer, model, index, q, len(q.path)) == q.answer for q in asked]
    greedy = [answer(tokenizer, model, index, q) == q.answer for q in asked]
    assert sum(careful) / len(asked) >= 0.9
    assert sum(greedy) / len(asked) <= 0.5  # there is something left to learn


@pytest.mark.parametrize("directory", [puzzles.CHECKPOINT, search.CHECKPOINT], ids=["puzzles", "search"])
def test_the_tokenizers_keep_any_text_and_every_tag_as_one_token(directory):
    tokenizer, _ = load(directory)
    for text in ("(1) Zoey: (2) is not a knave\n", " \t two  spaces\r\n", "naïve 日本語 🧩", "\x00\x7f (9) 1234"):
        assert tokenizer.decode(tokenizer.encode(text), skip_special_tokens=True) == text
    kind = warm_start.PuzzleModel if directory == puzzles.CHECKPOINT else warm_start.SearchModel
    assert all(len(tokenizer.encode(token)) == 1 for token in (*kind.added_tokens, "\n"))
