"""What the search demonstration trains on."""

import re

import pyarrow.parquet as pq
import pytest

from verl_trgrpo.common.files import file_sha256
from verl_trgrpo.tiny.search import CORPUS, TEST, TRAIN, prepare

FILES = ("train.parquet", "test.parquet", CORPUS)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    directory = tmp_path_factory.mktemp("dataset")
    assert prepare(directory, seed=3)
    return directory


def rows(directory, split):
    return pq.read_table(directory / "data" / f"{split}.parquet").to_pylist()


def person(row):
    found = re.search(r"(?:Where was|profession of|country was) (.+?)(?: born)?\?", row["prompt"][0]["content"])
    return found[1]


def test_no_person_is_asked_about_twice_or_in_both_splits(built):
    train, test = ([person(row) for row in rows(built, split)] for split in ("train", "test"))
    assert (len(train), len(test)) == (TRAIN, TEST)
    assert len({*train, *test}) == TRAIN + TEST


@pytest.mark.parametrize("split", ["train", "test"])
def test_rows_are_what_the_loop_and_the_reward_read(built, split):
    table = rows(built, split)
    assert sum(row["extra_info"]["searches"] == 2 for row in table) == len(table) / 2
    for index, row in enumerate(table):
        assert row["agent_name"] == "trgrpo_search"
        assert row["data_source"] == "search_qa"
        assert (row["extra_info"]["index"], row["extra_info"]["split"]) == (index, split)
        assert ("country" in row["prompt"][0]["content"]) == (row["extra_info"]["searches"] == 2)
        (answer,) = row["reward_model"]["ground_truth"]["target"]
        assert answer


def test_the_same_seed_gives_the_same_files_and_another_one_others(built, tmp_path):
    def digests(directory):
        return {name: file_sha256(directory / "data" / name) for name in FILES}

    assert prepare(tmp_path, seed=3)
    assert digests(tmp_path) == digests(built)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    assert not prepare(tmp_path, seed=3)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert prepare(tmp_path, seed=4)
    assert not {*digests(tmp_path).values()} & {*digests(built).values()}
