"""Ground truths of other prompts, and findings about whole files: what is named, and what is not."""

import pytest

from tests.data.checked_files import results, row, truth, user, write
from verl_trgrpo.tasks.knights_and_knaves.puzzles import generate_puzzles, puzzle_row
from verl_trgrpo.tasks.math import reward as mathematics
from verl_trgrpo.tasks.reasoning_gym.rows import ReasoningGymOptions, make_rows
from verl_trgrpo.tasks.registry import _known, find_reward
from verl_trgrpo.tasks.search_qa.rows import search_prompt

# Rewards whose task cannot tell by a prompt and a ground truth alone whether they belong together.
CANNOT_TELL = {
    **dict.fromkeys(("score_math", "score_dapo", "score_minerva"), "the problem has to be solved"),
    "score_search_qa": "the question has to be answered",
}


def kk(count, **options):
    return [puzzle_row(puzzle, **options) for puzzle in generate_puzzles(3, count, 1)]


def gym(task):
    def made(count):
        return make_rows(ReasoningGymOptions(task=task, train=count, test=1, out="-"), "train", set())

    return made


# By the reward of the task: rows as they are built.
BUILT = {
    "score_knights_and_knaves": [kk, lambda n: kk(n, terse=True), lambda n: kk(n, extra_info=())],
    "score_reasoning_gym": [gym(task) for task in ("chain_sum", "knights_knaves", "rectangle_count", "figlet_font")],
}
MAKERS = [(name, number) for name, makers in BUILT.items() for number in range(len(makers))]


def shifted(rows):
    return [
        mine | {"reward_model": other["reward_model"]} for mine, other in zip(rows, rows[1:] + rows[:1], strict=True)
    ]


def found(tmp_path, rows, check="ground truth", **options):
    numbered = [row | {"extra_info": {"index": i} | row["extra_info"]} for i, row in enumerate(rows)]
    return results(write(tmp_path / "data.parquet", numbered), **options)[check]


def test_every_task_can_tell_or_has_a_reason_why_not():
    by_reward = {str(task.reward).partition(":")[2]: bool(task.mismatch) for task in _known.rewards.values()}
    assert {name for name, tells in by_reward.items() if tells} == BUILT.keys()
    assert {name for name, tells in by_reward.items() if not tells} == CANNOT_TELL.keys()


@pytest.mark.parametrize(("reward", "number"), MAKERS)
def test_a_ground_truth_of_another_row_is_named(tmp_path, reward, number):
    rows = BUILT[reward][number](24)
    assert found(tmp_path, rows).status == "ok"
    for moved in (shifted(rows), [*shifted(rows[:6]), *rows[6:]]):
        others = sum(mine["reward_model"] != other["reward_model"] for mine, other in zip(rows, moved, strict=True))
        checked = found(tmp_path, moved)
        assert (checked.status, checked.count) == ("error", others)


def test_a_puzzle_is_told_by_its_people_and_its_statements(tmp_path):
    made = kk(1)[0]
    names, gold = made["extra_info"]["names"], made["reward_model"]["ground_truth"]
    more = f"{gold}\n(4) Zacharias is a knave"
    fewer = "\n".join(gold.split("\n")[:2])
    swapped = gold.replace("knight", "k").replace("knave", "knight").replace("is a k\n", "is a knave\n")
    for changed, named in ((more, "zacharias"), (fewer, names[2].lower()), (swapped.removesuffix("k"), "solve")):
        if changed.endswith("is a "):
            changed += "knave"
        checked = found(tmp_path, [made | truth(changed)])
        assert checked.status == "error" and named in checked.examples[0], checked


def problem(i, gold, text="How much is it", **extra_info):
    return row(
        i,
        data_source="math",
        prompt=user(f"{text}, {i}? Put your final answer within \\boxed{{}}."),
        extra_info=extra_info,
    ) | truth(gold)


@pytest.mark.parametrize("key", ["question", "answer", "solution"])
def test_what_a_row_keeps_of_its_own_must_be_that_of_its_prompt(tmp_path, key):
    kept = {"question": "How much is it, {}?", "answer": "So we get\n#### {}", "solution": "It is $\\boxed{{{}}}$."}[
        key
    ]
    rows = [problem(i, str(i), **{key: kept.format(i)}) for i in range(12)]
    assert found(tmp_path, rows).status == "ok"
    moved = [row | {"extra_info": other["extra_info"]} for row, other in zip(rows, rows[1:] + rows[:1], strict=True)]
    checked = found(tmp_path, moved)
    assert (checked.status, checked.count) == ("warning", 12) and f"extra_info.{key}" in checked.examples[0]
    questions = [
        row(i, data_source="nq", prompt=search_prompt(f"Who is {i}?")) | truth({"target": ["I"]}) for i in (1, 2)
    ]
    assert found(tmp_path, [each | {"extra_info": {"question": "Who is 1?"}} for each in questions]).count == 1


@pytest.mark.parametrize(("constant", "status"), [(60, "warning"), (55, "warning"), (50, "ok")])
def test_one_ground_truth_in_nearly_all_rows_is_a_warning(tmp_path, constant, status):
    rows = [problem(i, "7" if i < constant else str(i)) for i in range(60)]
    assert found(tmp_path, rows).status == status


def test_answers_of_a_small_set_and_small_or_repeated_files_are_sound(tmp_path):
    assert found(tmp_path, [problem(i, "ABCD"[i % 4]) for i in range(40)]).status == "ok"
    assert found(tmp_path, [problem(i, "7") for i in range(15)]).status == "ok"
    assert found(tmp_path, [problem(0, "7") for i in range(50)]).status == "ok"


STATED = {
    "a box": "How much? It is \\boxed{{{}}}", "tags": "How much? <answer> {} </answer>", "hashes": "How much?\n#### {}",
    "a line": "How much? Answer: {}.", "a sentence": "How much? The answer is {}", "a choice of names": "Which, {}",
}  # fmt: skip


@pytest.mark.parametrize("how", STATED)
def test_a_prompt_that_states_its_ground_truth_is_a_warning(tmp_path, how):
    def rows(stated, count=30):
        return [
            row(i, data_source="math", prompt=user(STATED[how].format(stated(i)))) | truth(str(100 + i))
            for i in range(count)
        ]

    leaked = found(tmp_path, rows(lambda i: 100 + i), no_rewards=True)
    assert leaked.status == "warning" and "30 prompts state" in leaked.examples[0]
    # An example in the instruction is right for one row, and a longer number is another one.
    assert found(tmp_path, rows(lambda i: 105), "ground truth", no_rewards=True).status == "ok"
    assert found(tmp_path, rows(lambda i: f"{100 + i}0"), "ground truth", no_rewards=True).status == "ok"


def test_a_number_of_the_question_may_be_its_answer(tmp_path):
    assert found(tmp_path, [problem(i, str(i)) for i in range(40)]).status == "ok"


def test_the_solution_below_a_puzzle_is_a_warning(tmp_path):
    rows = [made | {"prompt": [*made["prompt"][:-1], *user(made["prompt"][-1]["content"] + "\n" + gold)]}
            for made in kk(24) for gold in [made["reward_model"]["ground_truth"]]]  # fmt: skip
    assert "24 prompts state" in found(tmp_path, rows).examples[0]


def test_twenty_prompts_ten_times_each_are_a_warning_about_the_file(tmp_path):
    checked = found(tmp_path, [row(i % 20) for i in range(200)], "duplicates", all=True)
    assert any("20 different prompts in 200 rows" in text for text in checked.examples)


def test_an_empty_data_source_takes_the_reward_that_is_chosen(tmp_path):
    rows = [made | {"data_source": ""} for made in kk(3)]
    checked = found(tmp_path, rows, "data source")
    assert (checked.status, checked.count) == ("warning", 3) and "scored as math;" in checked.examples[0]
    assert find_reward("").__module__ == mathematics.__name__
    for check in ("data source", "reward of gold"):
        assert found(tmp_path, rows, check, reward="kk").status == "ok"
