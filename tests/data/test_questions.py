"""Faults of data files and the doors that rows pass: no fault is silent at a door, and sound files have no finding at any.

A question without a fault fails here, and so does a part of the package that asks questions and is no door of the table.
"""

import ast
import logging
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import verl_trgrpo
from tests.conftest import composed
from tests.data.checked_files import row, truth, user, write
from verl_trgrpo.checks.data_files import data_findings
from verl_trgrpo.checks.view import RunView
from verl_trgrpo.common.findings import InvalidInputError, Level
from verl_trgrpo.curation.data_check import CheckOptions, check_files
from verl_trgrpo.data.questions.context import DataQuestion
from verl_trgrpo.data.rows import RESERVED_KEYS
from verl_trgrpo.evaluation.evaluate import load_evaluable_rows
from verl_trgrpo.tasks.data_set import DataSet


def by_builder(place, sound_run, caplog, train, test):
    """Build a data set of the rows; return what is refused, or else the warnings."""
    rows = {"train": pq.read_table(train).to_pylist(), "test": pq.read_table(test).to_pylist()}
    schema = pq.read_table(train).schema
    caplog.clear()
    try:
        DataSet(place / "built", "x", {}, ["x"], force=True).write(rows, schema)
    except ValueError as error:
        return [str(error)]
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def by_data_check(place, sound_run, caplog, train, test):
    made = check_files(CheckOptions(train=(train,), test=(test,)))
    found = [item for check in made.findings.values() for item in check.items()]
    return [f"{places[0]}: {message}" for (level, message), places in found if level is not Level.NOT_CHECKED]


def by_validate(place, sound_run, caplog, train, test):
    run = composed([*sound_run, f"data.train_files={train}", f"data.val_files={test}"])
    return [found.message for found in data_findings(RunView(run)) if found.level is not Level.NOT_CHECKED]


def by_eval(place, sound_run, caplog, train, test):
    """Load the rows of the first file, which has the faults; it is one to test with here."""
    caplog.clear()
    try:
        load_evaluable_rows([train], None, 0)
    except InvalidInputError as error:
        return error.messages
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


ROWS, FILES, PAIRS = "rows", "files", "pairs"
# Module that asks the questions -> what it asks of, and the door. A builder has rows and not yet files; an evaluation has test
# files and none to train on; ``train`` and ``validate`` are one.
DOORS = {
    "tasks/data_set.py": ({ROWS, PAIRS}, by_builder),
    "curation/data_check.py": ({ROWS, FILES, PAIRS}, by_data_check),
    "checks/data_files.py": ({ROWS, FILES, PAIRS}, by_validate),
    "evaluation/evaluate.py": ({ROWS}, by_eval),
}


def search(i, split="train", **changes):
    made = row(i, split, data_source="nq", prompt=user(f"Where is town {i} of the {split} file?"))
    return made | truth({"target": [f"Country {i}"]}) | changes


def mathematics(i, split="train", **changes):
    asked = user(f"How much is {i} and {i} in the {split} file? Put your final answer within \\boxed{{}}.")
    return row(i, split, data_source="math", prompt=asked) | truth(str(2 * i)) | changes


def listed(i, split="train", **changes):
    return search(i, split) | truth([f"Country {i}"]) | changes


def numbers(i, split="train", **changes):
    return mathematics(i, split) | truth(float(i)) | changes


def agents(i, split="train", **changes):
    return row(i, split, agent_name="single_turn_agent") | changes


def kept(i, split="train", **changes):
    made = mathematics(i, split)
    info = {"index": i, "split": split, "question": f"How much is {i} and {i}", "answer": f"It is \\boxed{{{2 * i}}}"}
    return made | {"extra_info": info} | changes


KINDS = (row, search, mathematics, listed, numbers, agents, kept)


def said(*messages):
    return {"prompt": [{"role": role, "content": content} for role, content in messages]}


def info(**fields):
    return {"extra_info": {"index": 3, "split": "train"} | fields}


RENDERED = "<|im_start|>user\nWho is a knight?<|im_end|>\n<|im_start|>assistant\n"
# What replaces fields of rows that are made by one of the kinds -> the question.
ROW_FAULTS = {
    "no prompt": (row, {"prompt": None}, DataQuestion.PROMPT),
    "a prompt without messages": (row, {"prompt": []}, DataQuestion.PROMPT),
    "a message without content": (row, said(("user", None)), DataQuestion.PROMPT),
    "an unknown role": (row, said(("human", "Who is a knight?")), DataQuestion.PROMPT),
    "a role that is null": (row, said((None, "Who is a knight?")), DataQuestion.PROMPT),
    "only a system message": (row, said(("system", "Be brief.")), DataQuestion.PROMPT),
    "a blank message": (row, said(("user", " \n")), DataQuestion.PROMPT),
    "a blank system message": (row, said(("system", ""), ("user", "Who is a knight?")), DataQuestion.PROMPT),
    "the answer of an SFT file": (row, said(("user", "Who?"), ("assistant", "Zoey.")), DataQuestion.PROMPT),
    "a rendered prompt": (row, {"prompt": user(RENDERED)}, DataQuestion.TAGS),
    "a tag of Llama 2": (row, {"prompt": user("[INST] Who is a knight?")}, DataQuestion.TAGS),
    "an end of text": (row, {"prompt": user("Who is a knight?</s>")}, DataQuestion.TAGS),
    "a tag in the system message": (row, said(("system", "<|system|> Brief."), ("user", "Who?")), DataQuestion.TAGS),
    "an opened thought": (row, {"prompt": user("Who is a knight? <think>\n")}, DataQuestion.TAGS),
    "no data source": (row, {"data_source": None}, DataQuestion.COLUMNS),
    "a blank data source": (row, {"data_source": " "}, DataQuestion.COLUMNS),
    "a misspelt data source": (row, {"data_source": "kk_logics"}, DataQuestion.SOURCE),
    "a data source without a reward": (row, {"data_source": "unheard_of"}, DataQuestion.SOURCE),
    "an empty data source": (mathematics, {"data_source": ""}, DataQuestion.SOURCE),
    "no reward_model": (row, {"reward_model": None}, DataQuestion.TRUTH),
    "no ground truth": (row, truth(None), DataQuestion.TRUTH),
    "an empty ground truth": (row, truth(""), DataQuestion.TRUTH),
    "a blank ground truth": (row, truth(" "), DataQuestion.TRUTH),
    "an empty list": (listed, truth([]), DataQuestion.TRUTH),
    "a list of an empty text": (listed, truth([""]), DataQuestion.TRUTH),
    "an alternative that is empty": (listed, truth(["4", ""]), DataQuestion.TRUTH),
    "a list of null": (listed, truth([None]), DataQuestion.TRUTH),
    "an empty target": (search, truth({"target": []}), DataQuestion.TRUTH),
    "a target of an empty text": (search, truth({"target": [""]}), DataQuestion.TRUTH),
    "a target with a blank alternative": (search, truth({"target": ["4", " "]}), DataQuestion.TRUTH),
    "a target that is null": (search, truth({"target": None}), DataQuestion.TRUTH),
    "NaN": (numbers, truth(float("nan")), DataQuestion.TRUTH),
    "infinity": (numbers, truth(float("inf")), DataQuestion.TRUTH),
    "the ground truth of another puzzle": (row, truth("(1) Ann is a knight\n(2) Bob is a knave"), DataQuestion.TRUTH),
    "another question": (kept, info(question="Why is it so?", answer="\\boxed{6}"), DataQuestion.TRUTH),
    "another solution": (kept, info(question="How much is", answer="It is \\boxed{77}"), DataQuestion.TRUTH),
    "a puzzle that is cut off": (row, truth("(1) Zoey is a"), DataQuestion.GOLD),
    "braces that do not match": (mathematics, truth("\\frac{1}{2"), DataQuestion.GOLD),
    "a form that the reward does not read": (
        row, {"prompt": user("Zoey met Oliver3. Put your final answer within \\boxed{}.")}, DataQuestion.GOLD,
    ),
    "prose": (mathematics, truth("$f(x)=a x+b$, where $b$ is an odd integer, and $a$ is positive"), DataQuestion.LITERAL),
    "an agent that is null": (agents, {"agent_name": None}, DataQuestion.COLUMNS),
    "an unknown agent": (agents, {"agent_name": "tool_agnet"}, DataQuestion.COLUMNS),
    **{f"a row's own {key}": (row, info(**{key: "x"}), DataQuestion.COLUMNS) for key in sorted(RESERVED_KEYS)},
}  # fmt: skip


def write_both(place, train, test):
    return write(place / "first.parquet", train), write(place / "second.parquet", test)


def changed(kind, changes, bad, count=25):
    """Return rows of which those with the numbers `bad` have a fault, and sound ones."""
    return [kind(i) | (changes if i in bad else {}) for i in range(count)], [kind(i, "test") for i in range(count)]


def without(*names):
    return [{name: value for name, value in row(i).items() if name not in names} for i in range(25)]


def damaged(place):
    path = write(place, [row(i) for i in range(2000)])
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 4] + b"\xff" * 2000 + content[len(content) // 4 + 2000 :])


def of_tests():
    return [row(i, extra_info={"index": i, "split": "test"}) for i in range(25)]


# Rows of a file, or what writes it, its name, and the question.
FILE_FAULTS = {
    "no Parquet": (lambda path: path.write_text("{}"), "a.parquet", DataQuestion.FILE),
    "damaged": (damaged, "a.parquet", DataQuestion.FILE),
    "no rows": (
        lambda path: pq.write_table(pa.Table.from_pylist([row(0)]).slice(0, 0), path),
        "a.parquet",
        DataQuestion.FILE,
    ),
    "named as a test set": ([row(i) for i in range(25)], "aime_2024_test.parquet", DataQuestion.FILE),
    "no prompt": (without("prompt"), "a.parquet", DataQuestion.COLUMNS),
    "no data source": (without("data_source"), "a.parquet", DataQuestion.COLUMNS),
    "no reward_model": (without("reward_model"), "a.parquet", DataQuestion.COLUMNS),
    "no extra_info": (without("extra_info"), "a.parquet", DataQuestion.COLUMNS),
    "a prompt that is a text": ([row(i, prompt="Who?") for i in range(25)], "a.parquet", DataQuestion.COLUMNS),
    "a column of the rollout": ([row(i, responses="x") for i in range(25)], "a.parquet", DataQuestion.COLUMNS),
    "a column that veRL replaces": ([row(i, uid="x") for i in range(25)], "a.parquet", DataQuestion.COLUMNS),
}
# Rows to train on and to test on, and the question; the last is asked of whoever trains.
PAIR_FAULTS = {
    "all test rows are train rows": (
        [row(i) for i in range(64)], [row(i) for i in range(32)], DataQuestion.OVERLAP,
    ),
    "one test row is a train row": (
        [row(i) for i in range(25)], [row(3), *(row(i, "test") for i in range(24))], DataQuestion.OVERLAP,
    ),
    "a contradiction": ([*(mathematics(i) for i in range(25)), mathematics(3) | truth("77")], None, DataQuestion.DUPLICATES),
    "a repeated row": ([*(row(i) for i in range(25)), row(3)], None, DataQuestion.DUPLICATES),
    "twenty rows ten times": ([row(i % 20) for i in range(200)], None, DataQuestion.DUPLICATES),
    "rows of a test split": (of_tests(), None, DataQuestion.FILE),
    "one ground truth for all": ([mathematics(i) | truth("4") for i in range(25)], None, DataQuestion.TRUTH),
    "indices of choices": ([mathematics(i) | truth(str(i % 4)) for i in range(25)], None, DataQuestion.TRUTH),
    "stated ground truths": (
        [mathematics(i, prompt=user(f"How much is {i} and {i}? Answer: {2 * i}")) for i in range(25)], None, DataQuestion.TRUTH,
    ),
    "solutions in place of answers": (
        [mathematics(i) | truth(f"So we find that it must be $2^{{{i}}}$, as claimed.") for i in range(25)],
        None,
        DataQuestion.LITERAL,
    ),
}  # fmt: skip


def findings(door, place, sound_run, caplog, train, test):
    return DOORS[door][1](place, sound_run, caplog, train, test)


def doors_for(kind):
    return [name for name, (kinds, _) in DOORS.items() if kind in kinds]


def test_every_question_has_a_fault_and_every_part_that_asks_is_a_door():
    faults = [*ROW_FAULTS.values(), *FILE_FAULTS.values(), *PAIR_FAULTS.values()]
    assert {question for *_, question in faults} == {*DataQuestion}
    package = Path(verl_trgrpo.__file__).parent
    asking = [
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Questions")
    ]
    assert sorted(asking) == sorted(DOORS)


def test_the_first_page_has_the_number_of_faults():
    number = len(ROW_FAULTS) + len(FILE_FAULTS) + len(PAIR_FAULTS)
    assert f"{number} of {number} faults planted" in (Path(__file__).parents[2] / "README.md").read_text()


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_sound_files_have_no_finding_at_any_door(tmp_path, sound_run, caplog, kind, door):
    files = write_both(tmp_path, *changed(kind, {}, ()))
    assert findings(door, tmp_path, sound_run, caplog, *files) == []


@pytest.mark.parametrize("door", doors_for(ROWS))
@pytest.mark.parametrize("name", ROW_FAULTS)
def test_no_fault_of_rows_is_silent_whether_one_or_all_have_it(tmp_path, sound_run, caplog, name, door):
    kind, changes, _ = ROW_FAULTS[name]
    for bad in ([7], range(25)):
        files = write_both(tmp_path, *changed(kind, changes, bad))
        found = findings(door, tmp_path, sound_run, caplog, *files)
        of_column = "first.parquet: prompt is list<"  # where no row has a message
        assert any(f"row {bad[0]}" in text or of_column in text for text in found), found


@pytest.mark.parametrize("door", doors_for(FILES))
@pytest.mark.parametrize("name", FILE_FAULTS)
def test_no_fault_of_a_file_is_silent(tmp_path, sound_run, caplog, name, door):
    made, file, _ = FILE_FAULTS[name]
    path = tmp_path / "here" / file
    path.parent.mkdir()
    if callable(made):
        made(path)
    else:
        write(path, made)
    test = write(tmp_path / "second.parquet", [row(i, "test") for i in range(25)])
    assert findings(door, tmp_path, sound_run, caplog, path, test)


@pytest.mark.parametrize("door", doors_for(PAIRS))
@pytest.mark.parametrize("name", PAIR_FAULTS)
def test_no_fault_between_rows_is_silent(tmp_path, sound_run, caplog, name, door):
    train, test, _ = PAIR_FAULTS[name]
    files = write_both(tmp_path, train, test or [row(i, "test") for i in range(25)])
    assert findings(door, tmp_path, sound_run, caplog, *files)
