"""The questions of the small language model's tasks: right, different, and new to the model after its warm start."""

import random
import re

import pytest

from examples import two_person_puzzles, word_problems
from examples.makers import categories, demonstrations
from tests.demos.test_puzzles import check_rewards, rows
from tests.tasks.knights_and_knaves.kk_oracle import solutions
from verl_trgrpo.demos.puzzles import HELD_OUT
from verl_trgrpo.tasks import compute_score
from verl_trgrpo.tasks.knights_and_knaves.logic import canonical_key, parse_statements
from verl_trgrpo.tasks.knights_and_knaves.puzzles import generate_puzzles
from verl_trgrpo.tasks.reward_input import reward_input


def test_the_answer_is_the_only_word_of_its_kind_and_test_words_are_held_out():
    kinds = {word: kind for kind, words in categories._KINDS.items() for word in words.split()}
    used = {}
    for name in ("train", "warm_start", "test"):
        found = categories.choices(name, 100)
        for choice in found:
            (right,) = (word for word in choice.words if kinds[word] in choice.question)
            assert right == choice.answer and all(word in choice.question for word in choice.words)
        used[name] = {word for choice in found for word in choice.words}
    assert len({choice.question for choice in found}) == len(found)
    assert not used["test"] & (used["train"] | used["warm_start"])


def test_demonstrations_have_the_form_that_the_reward_reads_and_choose_nearly_at_random(tmp_path):
    shown = demonstrations.choice_demonstrations(0)
    answers = {choice.question: choice.answer for choice in categories.choices("warm_start", categories.WARM_START)}
    said = [(one.segments[0].text, answers[one.messages[1]["content"]], one.messages) for one in shown]
    right = [compute_score("math", text, answer, reward_input({}, messages))["acc"] for text, answer, messages in said]
    assert 0.33 < sum(right) / len(right) < 0.5
    assert categories.build_dataset(tmp_path)
    assert len(rows(tmp_path, "test")) == categories.TEST


@pytest.fixture(scope="module")
def problems():
    return word_problems.split_problems()


def test_test_train_and_warm_start_problems_are_different_ones(problems):
    assert {name: len(found) for name, found in problems.items()} == {
        "test": word_problems.TEST, "warm_start": word_problems.WARM_START, "train": word_problems.TRAIN,
    }  # fmt: skip
    questions = [problem.question for found in problems.values() for problem in found]
    assert len({*questions}) == len(questions)


def test_the_steps_lead_to_the_answer(problems):
    for problem in problems["test"]:
        first, second = problem.steps
        assert eval(first.expression) == pytest.approx(first.value)
        assert eval(second.expression) == pytest.approx(second.value)
        assert second.value == problem.answer
        assert str(first.value) in second.expression.split()
        assert max(map(float, re.findall(r"\d+", problem.question))) <= word_problems.LARGEST


def test_rows_are_scored_by_the_reward(problems, tmp_path, monkeypatch):
    monkeypatch.setattr(word_problems, "split_problems", lambda: problems)
    assert word_problems.build_dataset(tmp_path) and not word_problems.build_dataset(tmp_path)
    for row in rows(tmp_path, "test")[:50]:
        truth = row["reward_model"]["ground_truth"]
        assert compute_score(row["data_source"], rf"So it is \boxed{{{truth}}}.", truth)["acc"] == 1.0
        assert compute_score(row["data_source"], rf"So it is \boxed{{{int(truth) + 1}}}.", truth)["acc"] == 0.0


@pytest.fixture(scope="module")
def small_lm(tmp_path_factory):
    directory = tmp_path_factory.mktemp("small_lm")
    assert two_person_puzzles.build_dataset(directory) and not two_person_puzzles.build_dataset(directory)
    return directory


def test_variations_are_the_same_puzzle_with_its_solution_in_every_order():
    rng = random.Random(0)
    pool = [*generate_puzzles(3, 50, 4, exclude=HELD_OUT)]
    for puzzle in pool[:30]:
        variation = two_person_puzzles.vary(puzzle, rng)
        assert canonical_key(variation.statements) == canonical_key(puzzle.statements)
        assert len(set(variation.names)) == 3
        assert solutions(variation.statements) == [variation.solution]
    two_ands = next(p for p in pool if sum(statement[0] == "and" for statement in p.statements) == 2)
    variations = {two_person_puzzles.vary(two_ands, rng).statements for _ in range(300)}
    assert len(variations) == 24  # 3! orders of the people times 2 orders of the operands of each "and"


def test_the_small_models_test_train_and_warm_start_puzzles_are_different_ones_in_all_names_and_orders(small_lm):
    found = {split: rows(small_lm, split) for split in ("train", "test")}
    assert {split: len(found[split]) for split in found} == two_person_puzzles.ROWS
    keys = {
        split: {canonical_key(parse_statements(row["extra_info"]["statements"])) for row in split_rows}
        for split, split_rows in found.items()
    }
    shown = generate_puzzles(two_person_puzzles.PEOPLE, two_person_puzzles.HALF, 0, exclude=HELD_OUT)
    keys["warm start"] = {canonical_key(puzzle.statements) for puzzle in shown}
    assert len(set.union(*keys.values())) == sum(map(len, keys.values())) == 2 * two_person_puzzles.HALF
    texts = [row["prompt"][0]["content"] for split_rows in found.values() for row in split_rows]
    texts += [demonstration.messages[0]["content"] for demonstration in demonstrations.case_demonstrations(0)]
    assert len({*texts}) == len(texts) == sum(two_person_puzzles.ROWS.values()) + demonstrations.CASES
    check_rewards(found["test"])
