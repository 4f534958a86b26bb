"""The clean file is the rest of the train rows; refusals, failures and stops destroy nothing."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.data.contaminated_files import pairs, texts, write
from verl_trgrpo.common.files import file_sha256
from verl_trgrpo.data.decontaminate import (
    ContaminationOptions,
    find_contamination,
    manifest_path,
    render,
    write_clean,
)


def no_key(row):
    return None


def clean(options):
    return write_clean(find_contamination(options, no_key), options)


@pytest.fixture
def dirty(tmp_path):
    """Options: rows 1 and 4 of 2,500 train rows are in the test file."""
    train, test = texts(2500, words=15), texts(5, words=15, seed=1)
    train[1], train[4] = test[2], test[0]
    paths = write(tmp_path / "train.parquet", train), (write(tmp_path / "test.parquet", test, split="test"),)
    return ContaminationOptions(*paths, out=tmp_path / "clean.parquet")


def test_the_clean_file_has_the_other_rows_as_they_were(tmp_path, dirty):
    found = find_contamination(dirty, no_key)
    write_clean(found, dirty)
    manifest = json.loads(manifest_path(dirty.out).read_text())
    before, after = (pq.read_table(path) for path in (dirty.train, dirty.out))
    assert after.schema.equals(before.schema, check_metadata=True)
    assert after.to_pylist() == [r for i, r in enumerate(before.to_pylist()) if i not in (1, 4)]
    assert (manifest["train_rows"], manifest["tests"]) == (2500, {"test.parquet": [5, 2]})
    assert manifest["sha256"] == {path.name: file_sha256(path) for path in (dirty.train, *dirty.against, dirty.out)}
    assert (manifest["ngram"], manifest["threshold"]) == (13, 0.8)
    assert [(m["train_row"], m["test_file"], m["test_row"], m["reason"]) for m in manifest["matches"]] == pairs(found)
    assert str(tmp_path) not in manifest_path(dirty.out).read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "clean.manifest.json", "clean.parquet", "test.parquet", "train.parquet",
    ]  # fmt: skip
    assert find_contamination(ContaminationOptions(dirty.out, dirty.against), no_key).matches == ()


def test_a_file_without_extra_info_is_cleaned_too(tmp_path):
    contents = texts(4)
    prompts = [[{"role": "user", "content": content}] for content in contents]
    pq.write_table(pa.table({"prompt": prompts, "more": [1.5, 2.5, 3.5, 4.5]}), tmp_path / "train.parquet")
    test = write(tmp_path / "test.parquet", contents[2:3])
    clean(ContaminationOptions(tmp_path / "train.parquet", (test,), out=tmp_path / "clean.parquet"))
    assert pq.read_table(tmp_path / "clean.parquet")["more"].to_pylist() == [1.5, 2.5, 4.5]


def test_outputs_that_would_destroy_something_are_refused(tmp_path, dirty):
    foreign = write(tmp_path / "foreign.parquet", ["precious"])
    refused = {
        dirty.train: "one of the inputs",
        dirty.against[0]: "one of the inputs",
        foreign: "exists; choose another name",
        tmp_path / "clean.csv": "name it .parquet",
    }
    for out, reason in refused.items():
        with pytest.raises(ValueError, match=reason):
            replace(dirty, out=out)
    clean(replace(dirty, out=foreign, force=True))
    assert pq.read_table(foreign).num_rows == 2498


def test_a_train_file_that_is_all_test_is_refused(tmp_path):
    train, test = write(tmp_path / "train.parquet", texts(3)), write(tmp_path / "test.parquet", texts(3))
    with pytest.raises(ValueError, match="nothing would be left"):
        clean(ContaminationOptions(train, (test,), out=tmp_path / "clean.parquet"))
    assert not (tmp_path / "clean.parquet").exists()


def test_a_failed_write_leaves_the_old_file(dirty):
    clean(dirty)
    found = find_contamination(dirty, no_key)
    before = dirty.out.read_bytes()
    dirty.train.write_bytes(dirty.train.read_bytes()[:-100])
    with pytest.raises(ValueError, match=r"cannot write .*clean\.parquet"):
        write_clean(found, dirty)
    assert dirty.out.read_bytes() == before


def test_the_result_as_text_names_rows_and_files(dirty):
    found = find_contamination(dirty, no_key)
    text = render(found, None)
    assert "2 of 2500 train rows contaminated; 2 equal prompt" in text
    assert "test.parquet: 2 of 5 rows in the train file" in text
    assert re.search(r"train row 1: equal prompt, test\.parquet row 2", text)
    assert "--out" in text
    assert "2498 rows; dropped rows are in clean.manifest.json" in render(found, Path("clean.parquet"))
