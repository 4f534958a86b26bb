"""`check_files`: defects of columns and of whole files, and what several files must not be to each other."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.data.checked_files import clean, results, row, truth, user, write
from tests.data.puzzle_statements import OTHER, RENAMED, STATEMENTS


def drop(*names):
    return lambda rows: [{name: value for name, value in r.items() if name not in names} for r in rows]


def replace(**values):
    return lambda rows: [r | values for r in rows]


COLUMN_DEFECTS = {
    "no data source": (drop("data_source"), "columns", "error", "it has no data_source"),
    "no extra_info": (drop("extra_info"), "columns", "warning", "no extra_info"),
    "extra_info a text": (replace(extra_info="from AoPS"), "columns", "error", "extra_info is string"),
    "prompt a text": (replace(prompt="Who is who?"), "prompt", "error", "must be a list of chat messages"),
    "prompt without role": (replace(prompt=[{"content": "Who?"}]), "prompt", "error", "the role None"),
    "reward_model a text": (replace(reward_model="x"), "ground truth", "error", "is None"),
    "no ground truth": (replace(reward_model={"style": "rule"}), "ground truth", "error", "is None"),
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
    "no parquet": (lambda path: path.write_text("{}"), "not a readable parquet file"),
    "empty file": (lambda path: path.write_bytes(b""), "not a readable parquet file"),
    "no rows": (lambda path: pq.write_table(pa.Table.from_pylist(clean()).slice(0, 0), path), "it has no rows"),
    "damaged": (damaged, "is damaged"),
    "not UTF-8": (not_utf8, "is damaged"),
}


@pytest.mark.parametrize("name", FILE_DEFECTS)
def test_a_file_that_cannot_be_read_does_not_hide_the_others(tmp_path, name):
    make, example = FILE_DEFECTS[name]
    make(tmp_path / "bad.parquet")
    good = write(tmp_path / "good.parquet", [row(0, data_source="")])
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
    assert found.examples == ["test.parquet row 3: same prompt as train.parquet row 5"]
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


TYPES = {
    "equal": (row(0), row(0), "ok", None),
    "order of fields": (row(0), row(0, extra_info={"split": "train", "index": 3}), "ok", None),
    "float truth": (row(0), row(0) | truth(1.0), "error", ("reward_model.ground_truth", "string", "double")),
    "list truth": (row(0), row(0) | truth(["1"]), "error", ("reward_model.ground_truth", "string", "list<")),
    "field missing": (
        row(0),
        row(0, extra_info={"split": "train"}),
        "warning",
        ("extra_info.index", "int64", "missing"),
    ),
    "column missing": (row(0), drop("ability")([row(0)])[0], "warning", ("ability", "string", "missing")),
    "null column": (row(0), row(0, ability=None), "ok", None),
    "nested": (
        row(0, extra_info={"index": 0, "split": "train", "steps": [{"a": 1}]}),
        row(0, extra_info={"index": 0, "split": "train", "steps": [{"a": "1"}]}),
        "error",
        ("extra_info.steps[].a", "int64", "string"),
    ),
}


@pytest.mark.parametrize("name", TYPES)
def test_concatenation_is_judged_as_the_library_does_it(tmp_path, name):
    import datasets

    one, other, status, difference = TYPES[name]
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
