"""`check_files`: every defect of a row is found in a planted one, and the clean files trigger no finding."""

from pathlib import Path

import pytest

from tests.data.checked_files import clean, report, results, row, truth, user, write
from verl_trgrpo.data.check import CHECKS, CheckOptions


def test_clean_files_have_no_finding(tmp_path):
    train, test = write(tmp_path / "train.parquet", clean()), write(tmp_path / "test.parquet", clean("test", 3))
    more = write(tmp_path / "more.parquet", [row(i, prompt=user(f"More of {i}")) for i in range(3)])
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
    "assistant last": ({"prompt": turns("user", "assistant")}, "prompt", "error", "the last message is the assistant's"),
    "chat tags": ({"prompt": user("<|im_start|>user\nHi<|im_end|>")}, "chat tags", "error", "<|im_start|>, <|im_end|>"),
    "opened think": ({"prompt": user("Solve it. <think>\n")}, "chat tags", "error", "<think>"),
    "unknown source": ({"data_source": ""}, "data source", "error", "no reward for ''"),
    "empty truth": (truth(" "), "ground truth", "error", "says nothing"),
    "no truth": (truth(None), "ground truth", "error", "says nothing"),
    "malformed truth": (truth("Zoey is a knight"), "reward of gold", "error", "Error: malformed"),
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
    found = results(
        train := write(tmp_path / "data.parquet", rows), no_rewards=check not in ("reward of gold", "data source")
    )
    assert found[check].status == status, found
    assert found[check].examples[0].startswith("data.parquet row 2: ")
    assert example in found[check].examples[0]
    twin = results(write(train, clean()), no_rewards=check not in ("reward of gold", "data source"))
    assert twin[check].status == "ok"


def test_an_answer_that_the_reward_misreads_is_no_false_alarm_for_the_others(tmp_path):
    rows = clean()
    rows[2] |= truth("(1) Zoey is a knight\n(2) Zoey is a knave")
    found = results(write(tmp_path / "data.parquet", rows))
    assert (found["reward of gold"].status, found["reward of gold"].count) == ("error", 1)
    assert (found["ground truth"].status, found["columns"].status) == ("ok", "ok")


@pytest.mark.parametrize(("value", "kind"), [(142.0, "float"), (True, "bool"), ({"a": 1.5}, "float")])
def test_a_ground_truth_that_is_no_text_is_a_warning(tmp_path, value, kind):
    rows = [row(i) | truth(value) | {"data_source": "math"} for i in range(3)]
    found = results(write(tmp_path / "data.parquet", rows), no_rewards=True)["ground truth"]
    assert (found.status, found.count) == ("warning", 3)
    assert found.examples[0].startswith(f"data.parquet row 0 and 2 more: reward_model.ground_truth holds a {kind};")


def test_a_problem_that_all_rows_share_is_shown_once_with_its_number(tmp_path):
    found = results(write(tmp_path / "data.parquet", [row(i, data_source="") for i in range(50)]))["data source"]
    assert found.count == 50
    assert len(found.examples) == 1
    assert found.examples[0].startswith("data.parquet row 0 and 49 more: no reward for ''")


WRONG_OPTIONS = {
    "no file": ({}, ["no file is given"]),
    "missing files": (
        {"train": ("a.parquet",), "test": ("b.parquet",)},
        ["a.parquet is not a file", "b.parquet is not"],
    ),
    "given twice": ({"train": (__file__,), "test": (__file__,)}, ["more than once"]),
    "limit": ({"train": ("a.parquet",), "max_prompt_length": 0}, ["max_prompt_length is 0", "a.parquet"]),
}


@pytest.mark.parametrize("name", WRONG_OPTIONS)
def test_wrong_options_are_reported_together(name):
    options, reasons = WRONG_OPTIONS[name]
    options = {key: tuple(map(Path, value)) if isinstance(value, tuple) else value for key, value in options.items()}
    with pytest.raises(ValueError, match=r".") as caught:
        CheckOptions(**options)
    assert all(reason in str(caught.value) for reason in reasons), caught.value


def test_the_report_is_plain_text_that_cannot_drive_a_terminal(tmp_path):
    rows = clean()
    rows[0]["data_source"] = "\x1b[2Jevil\u202e"
    rows[1]["prompt"] = [{"role": "\x1b]0;title\x07", "content": "x"}]
    text = report(write(tmp_path / "data.parquet", rows)).render()
    assert "evil" in text
    assert all(char == "\n" or char.isprintable() for char in text)
    assert [name for name in CHECKS if not any(line.startswith(name) for line in text.splitlines())] == []
