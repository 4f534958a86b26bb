"""Tasks of reasoning-gym: rows, and its verifiers as rewards."""

import inspect
import json
import random
import re
from functools import cache

import pytest

from tests.checks.test_files import view_of
from tests.data.checked_files import results, row, write
from tests.data.checked_files import truth as gold
from verl_trgrpo.checks.data_files import data_findings
from verl_trgrpo.common.findings import Level
from verl_trgrpo.tasks import compute_score
from verl_trgrpo.tasks.reasoning_gym.reward import (
    ARITHMETIC_TASKS,
    EXPRESSION_TASKS,
    LIST_TASKS,
    MOVE_TASKS,
    NUMBER_TASKS,
    REFUSED_TASKS,
    reference_response,
    verifier_judge,
)
from verl_trgrpo.tasks.reasoning_gym.rows import (
    ReasoningGymOptions,
    build_reasoning_gym,
    check_verifier,
    question_pieces,
    scored,
)
from verl_trgrpo.tasks.registry import reference_response_of
from verl_trgrpo.tasks.reward_input import reward_input


@pytest.mark.parametrize("task", ["gsm_symbolic", "chain_sum", "countdown", "sudoku", "zebra_puzzles"])
def test_tasks_build_and_score_right_and_wrong_answers(tmp_path, task, load_in_verl):
    build_reasoning_gym(ReasoningGymOptions(out=tmp_path, task=task, train=12, test=4))
    data, batch = load_in_verl([tmp_path / "train.parquet", tmp_path / "test.parquet"])
    assert len(data) == 16
    for source, reward_model, messages in zip(
        batch["data_source"], batch["reward_model"], batch["raw_prompt"], strict=True
    ):
        truth = reward_model["ground_truth"]
        assert source == f"reasoning_gym/{task}"
        assert messages[0]["content"].startswith(json.loads(truth)["entry"]["question"])
        right = reference_response_of(source)(truth)
        responses = (
            right,
            f"Hm. <answer>no</answer> {right} .",
            f"{right}</answer>",
            f"{right} Closed with </answer>.",
        )
        scores = [compute_score(source, response, truth) for response in responses]
        assert all(score["score"] == score["acc"] == score["format_ok"] == 1.0 for score in scores)
        wrong = compute_score(source, f"{right} <answer>no</answer>", truth)
        assert wrong["acc"] == 0.0 and wrong["score"] < 0.1 and wrong["format_ok"] == 1.0
        for text in ("", right.removeprefix("<answer>"), right.removesuffix("</answer>")):
            assert compute_score(source, text, truth)["score"] == compute_score(source, text, truth)["format_ok"] == 0.0


def test_rows_without_a_stated_answer_are_not_checked_against_one(tmp_path):
    build_reasoning_gym(ReasoningGymOptions(out=tmp_path, task="graph_color", train=3, test=1))
    found = results(tmp_path / "train.parquet")["reward of gold"]
    assert found.status == "not checked"


@pytest.mark.parametrize("piece", ["<answer>", "</answer>", "<answer></answer>", "(", "9**"])
def test_long_responses_get_a_score(piece):
    truth = json.dumps(
        {"task": "chain_sum", "config": {}, "entry": {"question": "1 + 1 =", "answer": "2", "metadata": {}}}
    )
    assert compute_score("reasoning_gym/chain_sum", f"<answer>{piece * 50_000}</answer>", truth)["acc"] == 0.0


@cache
def truths(task, size=6):
    import reasoning_gym

    entries = reasoning_gym.create_dataset(task, size=size, seed=1)
    return [json.dumps({"task": task, "config": {}, "entry": entry}, default=str) for entry in entries]


def accuracy(task, answer, row=0):
    return compute_score(f"reasoning_gym/{task}", f"<answer>{answer}</answer>", truths(task)[row])["acc"]


HOSTILE = {
    "write": "__import__('pathlib').Path('{path}').write_text('x')",
    "write in a list": "[__import__('pathlib').Path('{path}').write_text('x')]",
    "open": "open('{path}', 'w')",
    "exit": "__import__('os')._exit(3)",
    "quit": "exit()",
    "replace the verifier": "[c for c in ().__class__.__base__.__subclasses__() if setattr(c, 'score_answer', 1)]",
    "builtins": "globals()['__builtins__']['open']('{path}', 'w')",
    "name of a module": "os.system('touch {path}')",
    "lambda": "(lambda: open('{path}', 'w'))()",
    "tower": "9**9**7",
    "long tower": "9**9**9**9",
    "factorial": "factorial(10**6)",
    "power of a sum": "(x+1)**99999",
    "the right answer": "[entry['answer']]",
    "the right answer by name": "oracle_answer",
    "a right board": "[[entry['metadata']['valid_answers'][0]]]",
    "a change of the row": "[0 for entry['answer'] in [[]]]",
    "a formatted string": "[f'{oracle_answer}']",
    "an attribute of a string": "[''.join]",
    "many brackets": "[" * 5000,
    "half a surrogate pair": "\ud800",
    "nothing": "\x00",
}


@pytest.mark.parametrize("task", sorted((LIST_TASKS | ARITHMETIC_TASKS | EXPRESSION_TASKS) - REFUSED_TASKS.keys()))
def test_no_answer_runs_as_code(task, tmp_path, monkeypatch):
    path = tmp_path / "written"
    references = [reference_response(truth) for truth in truths(task)]
    with monkeypatch.context() as patch:
        patch.setattr("verl_trgrpo.tasks.reasoning_gym.reward.VERIFIER_SECONDS", 0.3)
        for answer in HOSTILE.values():
            text = f"<answer>{answer.replace('{path}', str(path))}</answer>"
            result = compute_score(f"reasoning_gym/{task}", text, truths(task)[0])
            assert result["acc"] == 0.0 and result["score"] < 0.1, answer
            assert not path.exists(), answer
    pid = verifier_judge.judges[0].process.pid
    scores = [
        [compute_score(f"reasoning_gym/{task}", reference, truth)["acc"] for reference in references if reference]
        for truth in truths(task)
    ]
    assert all(scores[row][row] == 1.0 for row in range(len(scores)) if "Integral" not in references[row])
    assert verifier_judge.judges[0].process.pid == pid, "answers end workers, not the judge"


def test_the_tasks_whose_verifiers_evaluate_answers_are_known():
    from reasoning_gym.factory import DATASETS

    def evaluates(task):
        source = inspect.getsource(DATASETS[task][0].score_answer)
        return re.search(r"\b(?:eval|exec|sympify|parse_expr)\((?!problem|entry|expr\b)", source) is not None

    assert {task for task in DATASETS if evaluates(task)} == (LIST_TASKS | ARITHMETIC_TASKS | EXPRESSION_TASKS)


@pytest.mark.parametrize("task", sorted(REFUSED_TASKS))
def test_a_verifier_that_takes_wrong_answers_is_refused_wherever_its_rows_come_from(
    task, tmp_path, sound_run, monkeypatch
):
    with pytest.raises(ValueError, match=re.escape(REFUSED_TASKS[task])):
        ReasoningGymOptions(out=tmp_path, task=task)
    if task == "composite":
        truth = json.dumps({"task": task, "config": {"datasets": [{"name": "puzzle24"}]}, "entry": {"answer": "24"}})
    else:
        truth = truths(task, 20)[0]
    path = write(
        tmp_path / "foreign.parquet", [row(i, data_source=f"reasoning_gym/{task}") | gold(truth) for i in range(4)]
    )
    checked = results(path)["reward of gold"]
    assert checked.status == "error" and REFUSED_TASKS[task] in checked.examples[0]
    [found] = [each for each in data_findings(view_of(sound_run, f"data.train_files={path}")) if task in each.message]
    assert found.level is Level.ERROR and REFUSED_TASKS[task] in found.message
    right = f"<answer>{json.loads(truth)['entry']['answer']}</answer>"
    score = compute_score(f"reasoning_gym/{task}", right, truth)
    assert (score["score"], score["acc"], score["gold_unparseable"]) == (0.0, 0.0, 1.0)
    if task != "composite":  # the list has no task that the builder's own trial would take
        monkeypatch.setattr("verl_trgrpo.tasks.reasoning_gym.reward.REFUSED_TASKS", {})
        with pytest.raises(ValueError, match=f"task={task}.*full marks"):
            check_verifier(task, truths(task, 20))


# Their rows are not built, because the verifier refuses its own answer.
OWN_ANSWER_REFUSED = {"arc_agi", "rearc", "intermediate_integration"}
# Where the entry states no answer, one of its metadata; none is known of boxnet and rush_hour.
STATED = {
    "rubiks_cube": lambda data: data["example_correct_answer"],
    "graph_color": lambda data: json.dumps(data["possible_answer"]),
}
HARMLESS = ["  R \n", "\tR\n\n"]
DENIALS = [
    "R is false", "R is not right", "not R", "NOT R", "!R", "~R", "¬R", "≠R", "never R", "no, R", "false: R", "It is not R", "R!",
    "R?", "R ~", "not\nR", "R\nfalse", "R\nThis is wrong.", "R # no", "R (not)", "notR", "I guess R", "R or none", "maybe R",
]  # fmt: skip
SEVERAL = [
    f"{one}{between}{other}" for one, other in ("RO", "OR") for between in
    (" ", "\n", ", ", "; ", " or ", " and ", " | ", "/", ", not ", " / ", "\n\n", "\t")
]  # fmt: skip
SEVERAL += ["[R, O]", '["R", "O"]', "R\nQ", "Q\nR"]


def answers_of(task, size=2):
    found = []
    for truth in truths(task, size):
        entry = json.loads(truth)["entry"]
        right = entry["answer"] if task not in STATED else STATED[task](entry["metadata"])
        if right is not None:
            found.append((truth, str(right), entry["question"][:500]))
    return found


def hedges_of(task, right, other, question, draw, count):
    """Draw hedges of a right answer; those that are right by another reading are left out."""
    templates = [*DENIALS]
    # Formulas in another letter are constants of integration; moves after the solution are still a solution.
    if right != other and task not in EXPRESSION_TASKS | ARITHMETIC_TASKS | MOVE_TASKS:
        templates += SEVERAL
    for template in draw.sample(templates, min(count, len(templates))):
        yield re.sub("[ROQ](?![a-z])(?<![A-Z]{2})", lambda m: {"R": right, "O": other, "Q": question}[m[0]], template)


def test_no_task_pays_a_denied_or_a_second_answer_and_each_pays_the_plain_one():
    from reasoning_gym.factory import DATASETS

    paid, refused = [], []
    for task in sorted(DATASETS.keys() - REFUSED_TASKS.keys() - OWN_ANSWER_REFUSED):
        draw = random.Random(task)
        known = answers_of(task)
        for (truth, right, question), (_, other, _) in zip(known[:1], known[-1:], strict=True):
            for text in (right, draw.choice(HARMLESS).replace("R", right)):
                if scored((truth, right, text)).acc != 1.0:
                    refused.append((task, text))
            for text in hedges_of(task, right, other, question, draw, 3):
                if scored((truth, right, text)).acc:
                    paid.append((task, right, text))
    assert paid == [] and refused == []


@pytest.mark.parametrize("task", ["countdown", "chain_sum", "sudoku", "gsm_symbolic"])
def test_a_verifier_that_tells_right_from_wrong_is_accepted(task):
    check_verifier(task, truths(task, 20))


def test_pieces_of_a_question_are_tried_as_answers():
    question = "Given:\n1. P\n2. (P → Q)\nWhat follows from 'R'?\nState it: a formula"
    assert {"P", "(P → Q)", "(P) ∧ ((P → Q))", "R", "a formula", "State it: a formula"} <= {*question_pieces(question)}


def test_numbers_are_read_strictly_where_the_verifier_does_not():
    assert {"gsm_symbolic"} == NUMBER_TASKS
    right = json.loads(truths("gsm_symbolic")[0])["entry"]["answer"]
    assert [accuracy("gsm_symbolic", text) for text in (right, f"${right}", f"{right} apples", f"{right}.0")] == [
        1.0
    ] * 4
    wrong = (f"-{right}", f"{right} or 7", f"7, {right}", f"not {right}", f"{right}1", "")
    assert [accuracy("gsm_symbolic", text) for text in wrong] == [0.0] * len(wrong)


def test_an_answer_within_the_reasoning_does_not_count():
    truth = truths("gsm_symbolic")[0]
    answer = reference_response(truth)
    opened = reward_input({}, None, thinking_opened=True)
    cases = [
        (answer, opened, 0.0),
        (f"</think>{answer}", opened, 1.0),
        (answer, {}, 1.0),
        (f"<think>{answer}", {}, 0.0),
    ]
    for response, extra_info, right in cases:
        verdict = compute_score("reasoning_gym/gsm_symbolic", response, truth, extra_info)
        assert (verdict["acc"], verdict["format_ok"]) == (right, right)


@pytest.mark.parametrize("task", sorted(LIST_TASKS))
def test_lists_of_plain_values_are_read(task):
    answer = json.loads(truths(task)[0])["entry"]["answer"]
    rows = [line.split() for line in answer.splitlines()]
    lists = {"spiral_matrix": answer.split(), "string_insertion": [*answer]}.get(task, rows)
    if task == "binary_matrix":
        lists = [[int(cell) for cell in line] for line in rows]
    for text in (str(lists), json.dumps(lists)):
        assert compute_score(f"reasoning_gym/{task}", f"<answer>{text}</answer>", truths(task)[0])["score"] >= 0.1


@pytest.mark.parametrize(
    "answer", ["94*4-61-6*cos(x-x)", "94*4 - 61 - 6**1", "94.0*4 - 61 - 6", "(94-94)*4*61*6 + 309", "94*4 - 61//6 - 0"]
)
def test_arithmetic_uses_the_numbers_of_the_puzzle_and_nothing_else(answer):
    assert accuracy("countdown", "94*4 - 61 - 6") == 1.0
    assert accuracy("countdown", answer) == 0.0


def test_an_answer_that_ends_its_judge_is_counted(monkeypatch):
    monkeypatch.setattr("verl_trgrpo.tasks.reasoning_gym.reward.VERIFIER_SECONDS", 0.3)
    task = "polynomial_multiplication"
    result = compute_score(f"reasoning_gym/{task}", "<answer>9**9**9</answer>", truths(task)[0])
    assert (result["acc"], result["timed_out"]) == (0.0, 1.0)
