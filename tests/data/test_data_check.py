"""`check_files`: every planted defect of rows, columns and files is found, and clean files have no finding."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.data.checked_files import OTHER, RENAMED, STATEMENTS, clean, report, results, row, truth, user, write
from verl_trgrpo.curation.data_check import CHECKS, CheckOptions
from verl_trgrpo.tasks import Score, Scoring, compute_score, register_reward


def test_clean_files_have_no_finding(tmp_path):
    train, test = write(tmp_path / "train.parquet", clean()), write(tmp_path / "test.parquet", clean("test", 3))
    more = write(tmp_path / "more.parquet", [row(i, prompt=user(f"More of Zoey and Oliver{i}")) for i in range(3)])
    made = report(train, more, test=(test,))
    found = {check.name: check.status for check in made.checks}
    assert list(found) == list(CHECKS)
    unchecked = {"chat template", "prompt length"}
    assert found == {name: "not checked" if name in unchecked else "ok" for name in CHECKS}
    assert made.files == [f"{train}: 6 rows, train", f"{more}: 3 rows, train", f"{test}: 3 rows, test"]


def turns(*roles):
    return [{"role": role, "content": f"words of the {role} {i}"} for i, role in enumerate(roles)]


# What replaces row 2 of a clean file of six rows -> the check, its status, a part of its example.
ROW_DEFECTS = {
    "no prompt": ({"prompt": None}, "prompt", "error", "the prompt is None"),
    "unknown role": ({"prompt": turns("human")}, "prompt", "error", "role 'human'"),
    "empty content": ({"prompt": user(" \n")}, "prompt", "error", "message 0 (user) is empty"),
    "assistant last": ({"prompt": turns("user", "assistant")}, "prompt", "error", "the last message is 'assistant'"),
    "chat tags": ({"prompt": user("<|im_start|>user\nHi<|im_end|>")}, "chat tags", "error", "<|im_start|>, <|im_end|>"),
    "opened think": ({"prompt": user("Solve it. <think>\n")}, "chat tags", "error", "<think>"),
    "unknown source": ({"data_source": "maths"}, "data source", "error", "'maths' (close names: math"),
    "empty truth": (truth(" "), "ground truth", "error", "must not be empty"),
    "no truth": (truth(None), "ground truth", "error", "must not be empty"),
    "malformed truth": (truth("Zoey is a knight"), "reward of gold", "error", "Error: malformed"),
    "truth of one person": (truth("(1) Zoey is a knight\n(2) Zoey is a knave"), "reward of gold", "error", "Zoey"),
    "duplicate": (row(1), "duplicates", "warning", "same prompt as data.parquet row 1"),
    "duplicate in capitals": (
        row(1, prompt=user("ZOEY  meets Ｏliver1 in the train\nfile. Who is a knight?")),
        "duplicates", "warning", "same prompt as data.parquet row 1",
    ),
    "conflict": ({"prompt": row(1)["prompt"]}, "duplicates", "error", "same prompt as data.parquet row 1"),
}  # fmt: skip


@pytest.mark.parametrize("name", ROW_DEFECTS)
def test_a_planted_defect_is_found_in_its_row(tmp_path, name):
    changes, check, status, example = ROW_DEFECTS[name]
    rows = clean()
    rows[2] = rows[2] | changes
    found = results(write(tmp_path / "data.parquet", rows), no_rewards=check not in ("reward of gold", "data source"))
    assert found[check].status == status, found
    assert all(text.startswith("data.parquet row 2: ") for text in found[check].examples)
    assert example in found[check].examples[0]


@pytest.mark.parametrize(("value", "kind"), [(142.0, "float"), (True, "bool"), ({"a": 1.5}, "float")])
def test_a_ground_truth_that_is_no_text_is_a_warning(tmp_path, value, kind):
    rows = [row(i) | truth(value) | {"data_source": "math"} for i in range(3)]
    found = results(write(tmp_path / "data.parquet", rows), no_rewards=True)["ground truth"]
    assert (found.status, found.count) == ("warning", 3)
    assert found.examples[0].startswith(f"data.parquet row 0 and 2 more: reward_model.ground_truth holds a {kind};")


def test_a_mapping_is_judged_by_what_rewards_read(tmp_path):
    puzzle = {"names": ["Zoey"], "solution": [True], "solution_text_format": "(1) Zoey is a knight"}
    question = {"target": "2", "question": "1+1?", "numbers": None}
    for source, value in (("kk_logic", puzzle), ("math", question)):
        found = results(write(tmp_path / "data.parquet", [row(0, data_source=source) | truth(value)]))
        assert found["ground truth"].status == found["reward of gold"].status == "ok"


def test_an_agent_loop_that_is_missing_is_an_error_and_an_unknown_one_a_warning(tmp_path):
    agents = {"single_turn_agent": "ok", "trgrpo_search": "ok", "tool_agnet": "warning", None: "error"}
    for name, status in agents.items():
        rows = [row(0, agent_name="tool_agent"), row(1, agent_name=name)]
        found = results(write(tmp_path / "data.parquet", rows))["columns"]
        assert found.status == status
        assert all(text.startswith("data.parquet row 1: agent_name is") for text in found.examples)


def test_wrong_options_are_reported_together(tmp_path):
    here = Path(__file__)
    for options, named in (
        ({"reward": "math", "no_rewards": True}, ["no file", "reward=math"]),
        ({"train": (here,), "test": (here,)}, ["given twice"]),
        ({"train": (here,), "template": ("a=1",)}, ["template=a=1", "--tokenizer"]),
        ({"train": (tmp_path / "a.parquet",), "max_prompt_length": 0}, ["max_prompt_length=0", "a.parquet"]),
    ):
        with pytest.raises(ValueError) as caught:
            CheckOptions(**options)
        assert all(name in str(caught.value) for name in named), caught.value


def test_the_report_is_plain_text_that_cannot_drive_a_terminal(tmp_path):
    rows = clean()
    rows[0]["data_source"] = "\x1b[2Jevil\u202e"
    rows[1]["prompt"] = [{"role": "\x1b]0;title\x07", "content": "x"}]
    text = report(write(tmp_path / "data.parquet", rows)).render()
    assert "evil" in text
    assert all(char == "\n" or char.isprintable() for char in text)
    assert [name for name in CHECKS if not any(line.startswith(name) for line in text.splitlines())] == []


def drop(*names):
    return lambda rows: [{name: value for name, value in r.items() if name not in names} for r in rows]


def replace(**values):
    return lambda rows: [r | values for r in rows]


COLUMN_DEFECTS = {
    "no prompt": (drop("prompt"), "columns", "error", "--prompt-key"),
    "no data source": (drop("data_source"), "columns", "error", "missing column data_source"),
    "no extra_info": (drop("extra_info"), "columns", "warning", "missing column extra_info"),
    "extra_info a text": (replace(extra_info="from AoPS"), "columns", "error", "extra_info is string"),
    "prompt a text": (replace(prompt="Who is who?"), "columns", "error", "needs a list of chat messages"),
    "prompt without role": (replace(prompt=[{"content": "Who?"}]), "columns", "error", "each with role and content"),
    "no ground truth": (replace(reward_model={"style": "rule"}), "columns", "error", "struct with ground_truth"),
}


@pytest.mark.parametrize("name", COLUMN_DEFECTS)
def test_a_wrong_column_is_found(tmp_path, name):
    change, check, status, example = COLUMN_DEFECTS[name]
    found = results(write(tmp_path / "data.parquet", change(clean())))[check]
    assert found.status == status
    assert any(example in text for text in found.examples), found


def damaged(path):
    content = write(path, clean(count=2000)).read_bytes()
    middle = len(content) // 4
    path.write_bytes(content[:middle] + b"\xff" * 2000 + content[middle + 2000 :])


def not_utf8(path):
    table = pa.Table.from_pylist(clean(count=1))
    bad = pa.array([b"kk\xff"], pa.binary()).view(pa.string())
    pq.write_table(table.set_column(table.column_names.index("data_source"), "data_source", bad), path)


FILE_DEFECTS = {
    "no parquet": (lambda path: path.write_text("{}"), "not a readable Parquet file"),
    "pointer": (lambda path: path.write_text("version https://git-lfs.github.com/spec/v1\noid x\n"), "git lfs pull"),
    "empty file": (lambda path: path.write_bytes(b""), "not a readable Parquet file"),
    "no rows": (lambda path: pq.write_table(pa.Table.from_pylist(clean()).slice(0, 0), path), "it has no rows"),
    "damaged": (damaged, "is damaged"),
    "not UTF-8": (not_utf8, "is damaged"),
}


@pytest.mark.parametrize("name", FILE_DEFECTS)
def test_a_file_that_cannot_be_read_does_not_hide_the_others(tmp_path, name):
    make, example = FILE_DEFECTS[name]
    make(tmp_path / "bad.parquet")
    good = write(tmp_path / "good.parquet", [row(0, data_source="unheard_of")])
    found = results(tmp_path / "bad.parquet", good)
    assert (found["file"].status, found["file"].count) == ("error", 1)
    assert found["file"].examples[0].startswith("bad.parquet: ")
    assert example in found["file"].examples[0]
    assert any("good.parquet row 0" in text for text in found["data source"].examples)


def test_train_and_test_files_must_not_share_prompts(tmp_path):
    test = clean("test", 4)
    test[3]["prompt"] = user(row(5)["prompt"][0]["content"].upper())
    test_file = write(tmp_path / "test.parquet", test)
    found = results(write(tmp_path / "train.parquet", clean()), test=(test_file,))["overlap"]
    assert (found.status, found.count) == ("error", 1)
    assert len(found.examples) == 1 and found.examples[0].startswith(
        "test.parquet row 3: same prompt as train.parquet row 5; "
    )
    alone = results(test=(test_file,))["overlap"]
    assert alone.status == "not checked" and "--train" in alone.note


def puzzle(i, split, statements):
    made = row(i, split, extra_info={"index": i, "split": split, "statements": statements})
    return made | {"prompt": user(f"A puzzle told in words of its own, {split} {i}")}


def test_puzzles_with_renamed_people_are_equal(tmp_path):
    train = write(tmp_path / "train.parquet", [puzzle(0, "train", STATEMENTS)])
    for statements, status in ((RENAMED, "error"), (OTHER, "ok"), ("__import__('os')", "ok")):
        found = results(train, test=(write(tmp_path / "test.parquet", [puzzle(0, "test", statements)]),))
        assert found["overlap"].status == status
    twice = results(write(train, [puzzle(0, "train", STATEMENTS), puzzle(1, "train", RENAMED)]))
    assert twice["duplicates"].examples == ["train.parquet row 1: same puzzle as train.parquet row 0, names aside"]
    assert twice["duplicates"].status == "warning", "other names, so another ground truth"


BOXED = "Put your final answer within \\boxed{}."


@pytest.mark.parametrize(
    ("one", "other", "status"),
    [
        ("\\frac{1}{2}", "0.5", "warning"),
        ("$\\dfrac12$", "\\frac{1}{2}", "warning"),
        ("5.0", "5", "warning"),
        ("0.09 \\text{ OR } \\frac{9}{100}", "\\frac{9}{100}", "warning"),
        ("24", "26", "error"),
        ("\\frac{1}{3}", "0.33", "error"),
    ],
)
def test_ground_truths_that_the_reward_takes_for_each_other_are_no_contradiction(tmp_path, one, other, status):
    rows = [row(0, data_source="math", prompt=user(f"How much? {BOXED}")) | truth(gold) for gold in (one, other)]
    for pair in (rows, rows[::-1]):
        found = results(write(tmp_path / "data.parquet", pair))["duplicates"]
        assert (found.status, found.count) == (status, 1)
        if status == "error":
            assert all(gold in found.examples[0] for gold in (repr(one), repr(other)))
    written_alike = results(write(tmp_path / "data.parquet", rows), no_rewards=True)["duplicates"]
    assert written_alike.status == "error", "without a reward only the strings are compared"


def test_contradictions_of_published_test_sets_are_warnings(tmp_path):
    rows = [row(0, "test", data_source="popqa") | truth({"target": [gold]}) for gold in ("Naomi Klein", "Brad Furman")]
    data = write(tmp_path / "data.parquet", rows)
    assert results(test=(data,))["duplicates"].status == "warning"
    assert "Naomi Klein" in results(test=(data,))["duplicates"].examples[0]
    assert results(data)["duplicates"].status == "error", "training would punish a right answer"


def test_alternatives_of_a_search_question_are_no_contradiction(tmp_path):
    rows = [row(0, data_source="nq", prompt=user("Where?")) | truth({"target": golds}) for golds in (["A", "B"], ["b"])]
    assert results(write(tmp_path / "data.parquet", rows))["duplicates"].status == "warning"


def test_a_default_reward_scores_the_sources_without_one(tmp_path):
    rows = [row(0, data_source="own", prompt=user(f"How much? {BOXED}")) | truth("24"), row(1)]
    data = write(tmp_path / "data.parquet", rows)
    assert results(data)["data source"].status == "error"
    found = results(data, reward="math")
    assert found["data source"].status == found["reward of gold"].status == "ok"
    found = results(write(data, [row(0, data_source="own") | truth("{")]), reward="math")["reward of gold"]
    assert found.status == "error" and "'own'" in found.examples[0]


def test_every_finding_is_shown_where_asked(tmp_path):
    rows = [row(i, prompt=user(" ")) for i in range(5)] + [row(9, data_source=f"own_{i}") for i in range(5)]
    data = write(tmp_path / "data.parquet", rows)
    few, every = results(data), results(data, all=True)
    assert (len(few["prompt"].examples), len(few["data source"].examples)) == (1, 3)
    assert [example.partition(": ")[0] for example in every["prompt"].examples] == [
        f"data.parquet row {i}" for i in range(5)
    ]
    assert len(every["data source"].examples) == 5
    assert few["prompt"].count == every["prompt"].count == 5


def test_the_column_of_the_prompts_can_have_another_name(tmp_path):
    rows = [{**row(i), "question": row(i)["prompt"], "prompt": "not a chat"} for i in range(3)]
    rows[2]["question"] = user(" ")
    data = write(tmp_path / "data.parquet", rows)
    found = results(data, prompt_key="question")
    assert (found["prompt"].count, found["columns"].status, found["duplicates"].status) == (1, "ok", "ok")
    assert (results(data)["columns"].count, results(data)["prompt"].status) == (1, "not checked")
    missing = results(data, prompt_key="questions")["columns"]
    assert missing.status == "error" and "questions" in missing.examples[0]


def test_different_prompts_are_counted(tmp_path):
    train = [write(tmp_path / f"{i}.parquet", [row(0), row(1), row(2 + i), row(2 + i, prompt=None)]) for i in range(2)]
    test = write(tmp_path / "test.parquet", [row(0), row(0)])
    made = report(*train, test=(test,))
    assert made.different_prompts == "4 of 8 train rows, 1 of 2 test rows"
    assert made.different_prompts in made.render()


def test_the_forms_that_prompts_ask_for_are_counted(tmp_path):
    asked = [BOXED, BOXED, "Put the answer index after ANSWER: ", "", ""]
    rows = [row(i, prompt=user(f"Question {i}? {text}")) for i, text in enumerate([*asked, ""])]
    made = report(write(tmp_path / "data.parquet", [*rows, row(9, prompt=None)]), no_rewards=True)
    assert made.forms == {"none": 3, "box": 2, "line": 1}
    assert "none 3, box 2, line 1" in made.render()


ONE = row(0, extra_info={"index": 0, "split": "train", "steps": [{"a": 1}]})
# What differs in the other of two files, and what is said of it.
TYPES = {
    "equal": ({}, "ok", None),
    "order of fields": ({"extra_info": dict(reversed(ONE["extra_info"].items()))}, "ok", None),
    "float truth": (truth(1.0), "error", ("reward_model.ground_truth", "string", "double")),
    "field missing": ({"extra_info": {"split": "x", "steps": [{"a": 1}]}}, "warning", ("extra_info.index", "int64", "missing")),
    "column more": ({"more": "x"}, "warning", ("more", "missing", "string")),
    "null column": ({"ability": None}, "ok", None),
    "nested": (
        {"extra_info": ONE["extra_info"] | {"steps": [{"a": "1"}]}},
        "error", ("extra_info.steps[].a", "int64", "string"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TYPES)
def test_concatenation_is_judged_as_the_library_does_it(tmp_path, name):
    import datasets

    changes, status, difference = TYPES[name]
    one, other = ONE, ONE | changes
    paths = write(tmp_path / "a.parquet", [one]), write(tmp_path / "b.parquet", [other])
    found = results(*paths, no_rewards=True)["columns"]
    assert found.status == status
    if difference:
        path, here, there = difference
        assert f"{path} is {here} in a.parquet and {there}" in found.examples[0]
    loaded = [datasets.Dataset.from_parquet(str(path), cache_dir=str(tmp_path / "cache")) for path in paths]
    if status == "error":
        with pytest.raises((ValueError, TypeError)):
            datasets.concatenate_datasets(loaded)
    else:
        assert len(datasets.concatenate_datasets(loaded)) == 2


def test_train_and_test_files_are_not_concatenated_with_each_other(tmp_path):
    test = write(tmp_path / "test.parquet", [row(0, "test") | truth(1.0)])
    found = results(write(tmp_path / "train.parquet", clean()), test=(test,), no_rewards=True)["columns"]
    assert (found.status, found.note) == ("ok", "")


def exact(response, ground_truth, extra_info):
    return Score(1.0, acc=float(response == f"ANSWER={ground_truth}"))


def test_the_reference_response_of_a_reward_is_tried(tmp_path, registry):
    register_reward("unusual")(exact)
    data = write(tmp_path / "data.parquet", [row(0, data_source="unusual")])
    assert results(data)["reward of gold"].status == "error", "none of the usual forms is right here"
    registry._known.rewards.pop("unusual")
    register_reward("unusual", reference_response=lambda gold: f"ANSWER={gold}")(exact)
    assert results(data)["reward of gold"].status == "ok"


@pytest.mark.parametrize("form", ["<think></think><answer>{}</answer>", r"\boxed{{{}}}", "<answer>{}</answer>"])
def test_the_usual_forms_of_answers_are_tried(tmp_path, registry, form):
    register_reward("usual")(
        lambda response, gold, info: Score(1.0, acc=float(response == form.format(gold["target"][1])))
    )
    rows = [row(i, data_source="usual") | truth({"target": ["wrong", f"gold {i}"]}) for i in range(3)]
    assert results(write(tmp_path / "data.parquet", rows))["reward of gold"].status == "ok"


BOX, TAGS = "Put your final answer within \\boxed{}.", "Answer inside <answer> and </answer>."
LINE = "The last line of your response should be of the form Answer: $Answer (without quotes)."
MATH = {"data_source": "math"} | truth("42")
SEARCH = {"data_source": "searchR1_nq"} | truth({"target": ["Rome"]})


def reads_boxes(response, gold, info):
    return Score(1.0, acc=float(response.endswith(f"\\boxed{{{gold}}}")))


def refuses(response, gold, info):
    return Score(0.0, acc=0.0)


# Row, instruction of the prompt, and what the message names; nothing where the file is right.
FORMS = {
    "mathematics in a box": (MATH, BOX, ()),
    "mathematics on a line": (MATH, LINE, ()),
    "mathematics in tags": (MATH, TAGS, ()),
    "alternatives": (MATH | truth("0.09 \\text{ OR } \\frac{9}{100}"), BOX, ()),
    "a box as the truth": (MATH | truth("\\boxed{7}"), BOX, ()),
    "DAPO": (MATH | {"data_source": "math_dapo"}, LINE, ()),
    "DAPO in a box": (MATH | {"data_source": "math_dapo"}, BOX, ()),
    "puzzle in tags": ({}, TAGS, ()),
    "puzzle in a box": ({}, BOX, ("\\boxed{...}", "'kk_2ppl'", "<answer>...</answer>")),
    "search on a line": (SEARCH, LINE, ("Answer: ...", "searchR1_nq")),
    "own reward": ({"data_source": "boxes"} | truth("42"), BOX, ()),
    "own reward on a line": ({"data_source": "boxes"} | truth("42"), LINE, ("Answer: ...", "'boxes'", "\\boxed{...}")),
    "own reward with a reference": ({"data_source": "referenced"} | truth("42"), LINE, ("Answer: ...", "\\boxed{...}")),
    "own reward that takes nothing": ({"data_source": "refuses"} | truth("42"), BOX, ("'42'", "\\boxed{...}", "0.0")),
}


@pytest.mark.parametrize("name", FORMS)
def test_the_ground_truth_is_stated_as_the_prompt_asks(tmp_path, registry, name):
    register_reward("boxes")(reads_boxes)
    register_reward("referenced", reference_response=lambda gold: f"It is \\boxed{{{gold}}}")(reads_boxes)
    register_reward("refuses")(refuses)
    changes, instruction, named = FORMS[name]
    rows = [row(i, prompt=user(f"Question {i}? {instruction}")) | changes for i in range(2)]
    found = results(write(tmp_path / "data.parquet", rows))["reward of gold"]
    assert (found.status, found.count) == (("error", 2) if named else ("ok", 0))
    if named:
        assert found.examples[0].startswith("data.parquet row 0") and all(part in found.examples[0] for part in named)


@pytest.mark.parametrize(
    ("verdict", "status", "example"),
    [
        ({"acc": 0.0}, "error", "gets acc 0.0"),
        ({"acc": 0.0, "gold_unparseable": 1.0}, "error", "does not understand the ground truth"),
        ({"acc": 1.0}, "error", "gives acc 1.0 to -98765.4321, too"),
        ({"acc": 0.0, "timed_out": 1.0}, "warning", "timed out"),
    ],
)
def test_verdicts_other_than_right_are_findings(tmp_path, registry, verdict, status, example):
    register_reward("moody")(lambda response, gold, info: Score(0.0, **verdict))
    found = results(write(tmp_path / "data.parquet", [row(0, data_source="moody")]))["reward of gold"]
    assert found.status == status
    assert example in found.examples[0]


def test_a_ground_truth_that_is_only_compared_literally_is_a_warning(tmp_path):
    gold = "$f(x)=a x+b$, where $b$ is an odd integer, and $a$ is positive"
    found = results(write(tmp_path / "data.parquet", [row(0, data_source="math") | truth(gold)]))
    assert found["ground truth"].status == "ok"
    assert (found["reward of gold"].status, found["literal golds"].status) == ("ok", "warning")


@pytest.mark.parametrize(("prose", "status"), [(0, "ok"), (2, "warning"), (9, "warning"), (10, "error"), (20, "error")])
def test_the_share_of_golds_that_are_only_compared_literally_is_an_error_from_a_half_on(tmp_path, prose, status):
    golds = [f"So the answer that we find is $2^{{{n}}}$, as claimed." if n < prose else f"{n}" for n in range(20)]
    rows = [row(n, data_source="math", prompt=user(f"Which is {n}?")) | truth(gold) for n, gold in enumerate(golds)]
    found = report(write(tmp_path / "data.parquet", rows))
    assert {check.name: check for check in found.checks}["literal golds"].status == status
    assert (f"{prose} ground truths only compared literally ({prose / 20:.1%})" in found.files[0]) == bool(prose)


def test_a_list_that_was_written_as_text_is_read(tmp_path):
    rows = [row(n, data_source="math", prompt=user(f"Which is {n}?")) | truth(f"['{n}']") for n in range(20)]
    found = results(write(tmp_path / "data.parquet", rows))
    assert found["reward of gold"].status == found["literal golds"].status == "ok"
    assert compute_score("math", "\\boxed{2916}", "['2916']", {})["acc"] == 1.0
    assert compute_score("math", "\\boxed{2917}", "['2916']", {})["acc"] == 0.0
    assert compute_score("math", "\\boxed{1}", "[1, 2]", {})["acc"] == 0.0
    assert compute_score("nq", "<answer>Rome</answer>", "['Roma', 'Rome']", {})["acc"] == 1.0


def test_what_was_not_checked_is_reported(tmp_path, registry):
    registry._known.rewards.clear()
    register_reward("here")(exact)
    registry._known.rewards["broken"] = Scoring("no_such_module_at_all:score")
    data = write(tmp_path / "data.parquet", [row(0, data_source="broken"), row(1, data_source="unknown")])
    found = results(data)["reward of gold"]
    assert found.status == "not checked"
    assert "the reward of 'broken' cannot be imported" in found.note
    assert "no reward for 'unknown'" in found.note
    assert results(data, no_rewards=True)["reward of gold"].note == "--no-rewards; leave out this option"


@pytest.mark.parametrize(("sources", "counts"), [
    (("kk_2ppl", "kk_2ppl"), {"kk_2ppl": 2, "--reward math": 0}),
    (("kk_2ppl", "of_mine", ""), {"kk_2ppl": 1, "--reward math": 2}),
])  # fmt: skip
def test_which_reward_scores_the_rows_is_said_also_where_the_option_scores_none(tmp_path, sources, counts):
    data = write(tmp_path / "data.parquet", [row(i, data_source=source) for i, source in enumerate(sources)])
    made = report(data, reward="math")
    assert made.rewards == counts and "--reward math " in made.render()
    assert not report(data, no_rewards=True).rewards


def test_each_check_that_is_not_made_has_a_remedy(tmp_path):
    for name in ("empty", "other"):
        (tmp_path / f"{name}.jsonl").write_text("")
    for options in ({}, {"no_rewards": True}, {"test": (tmp_path / "other.jsonl",)}):
        checks = report(tmp_path / "empty.jsonl", **options).checks
        skipped = [check.note for check in checks if check.status == "not checked"]
        assert skipped and all(";" in note for note in skipped), skipped


CHAT_TEMPLATE = (
    "{% for m in messages %}{% if 'forbidden' in m['content'] %}{{ raise_exception('not this word') }}{% endif %}"
    "{{ m['content'] }}{% endfor %}{% if add_generation_prompt %}!!{% endif %}"
)


@pytest.fixture
def model(tmp_path, tokenizer):
    """Directory of a tokenizer in which x and ! are tokens, however many stand in a row."""
    tokenizer.save_pretrained(tmp_path / "model")
    (tmp_path / "model" / "chat_template.jinja").write_text(CHAT_TEMPLATE)
    return tmp_path / "model"


def test_prompt_lengths_are_those_of_the_rendered_chat(tmp_path, model):
    contents = ["x" * n for n in (10, 20, 30, 40, 100)]
    data = write(tmp_path / "data.parquet", [row(i, prompt=user(content)) for i, content in enumerate(contents)])
    made = report(data, tokenizer=model, max_prompt_length=41, no_rewards=True)
    assert made.files == [f"{data}: 5 rows, train; tokens of a prompt: min 12, median 32, p95 102, max 102"]
    found = {check.name: check for check in made.checks}
    assert (found["prompt length"].status, found["prompt length"].count) == ("warning", 2)
    assert "data.parquet row 3 and 1 more: longer than 41 tokens" in found["prompt length"].examples[0]
    assert found["chat template"].status == "ok"
    fits = results(data, tokenizer=model, max_prompt_length=102, no_rewards=True)
    assert fits["prompt length"].status == "ok"


def test_options_of_the_chat_template_count(tmp_path, model):
    (model / "chat_template.jinja").write_text("{% if not enable_thinking %}" + "x" * 11 + "{% endif %}x")
    data = write(tmp_path / "data.parquet", clean(count=1))
    for template, most in (((), 12), (("enable_thinking=true",), 1)):
        assert report(data, tokenizer=model, template=template, no_rewards=True).files[0].endswith(f"max {most}")


def test_a_prompt_that_the_chat_template_refuses_is_an_error(tmp_path, model):
    rows = clean()
    rows[4]["prompt"] = user("a forbidden word")
    found = results(write(tmp_path / "data.parquet", rows), tokenizer=model, no_rewards=True)["chat template"]
    assert (found.status, found.count) == ("error", 1)
    assert found.examples == ["data.parquet row 4: the chat template refuses the prompt: not this word"]


def test_a_limit_without_a_tokenizer_is_not_checked(tmp_path):
    made = report(write(tmp_path / "a.parquet", clean()), max_prompt_length=1)
    found = {check.name: check for check in made.checks}["prompt length"]
    assert (found.status, "--tokenizer" in found.note, "tokens" in made.files[0]) == ("not checked", True, False)


@pytest.mark.parametrize(("content", "reason"), [(None, "is not a directory"), ({}, "cannot be loaded")])
def test_a_tokenizer_that_cannot_be_loaded_is_wrong_input(tmp_path, content, reason):
    if content is not None:
        (tmp_path / "model").mkdir()
        (tmp_path / "model" / "config.json").write_text(json.dumps(content))
    data = write(tmp_path / "data.parquet", clean())
    with pytest.raises(ValueError, match=reason):
        report(data, tokenizer=tmp_path / "model")
