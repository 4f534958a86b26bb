"""What the search demonstration trains on."""

import json
import re
import shlex
import subprocess
import sys
import time

import pyarrow.parquet as pq
import pytest

from verl_trgrpo.data.parquet import file_sha256
from verl_trgrpo.retrieval.index import Index
from verl_trgrpo.tiny.search_dataset import AGENT_NAME, CORPUS, TEST, TRAIN, build_dataset, prepare

FILES = ("train.parquet", "test.parquet", CORPUS)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    directory = tmp_path_factory.mktemp("dataset")
    assert build_dataset(directory, seed=3)
    return directory


def rows(directory, split):
    return pq.read_table(directory / f"{split}.parquet").to_pylist()


def person(row):
    found = re.search(r"(?:Where was|profession of|country was) (.+?)(?: born)?\?", row["prompt"][0]["content"])
    return found[1]


def test_the_same_seed_gives_the_same_files_and_another_one_others(built, tmp_path):
    build_dataset(tmp_path / "same", seed=3)
    build_dataset(tmp_path / "other", seed=4)
    for name in FILES:
        assert file_sha256(tmp_path / "same" / name) == file_sha256(built / name)
        assert file_sha256(tmp_path / "other" / name) != file_sha256(built / name)


def test_what_is_there_is_left_alone(built):
    before = {path.name: path.stat().st_mtime_ns for path in built.iterdir()}
    time.sleep(0.01)
    assert not build_dataset(built, seed=3)
    assert {path.name: path.stat().st_mtime_ns for path in built.iterdir()} == before


def test_a_damaged_corpus_is_written_again(built):
    right = (built / CORPUS).read_bytes()
    (built / CORPUS).write_bytes(right[:-100])
    build_dataset(built, seed=3)
    assert (built / CORPUS).read_bytes() == right


def test_no_person_is_asked_about_twice_or_in_both_splits(built):
    train, test = ([person(row) for row in rows(built, split)] for split in ("train", "test"))
    assert (len(train), len(test)) == (TRAIN, TEST)
    assert len({*train, *test}) == TRAIN + TEST


@pytest.mark.parametrize("split", ["train", "test"])
def test_rows_are_what_the_loop_and_the_reward_read(built, split):
    table = rows(built, split)
    assert sum(row["extra_info"]["searches"] == 2 for row in table) == len(table) / 2
    for index, row in enumerate(table):
        assert row["agent_name"] == AGENT_NAME
        assert row["data_source"] == "search_qa"
        assert (row["extra_info"]["index"], row["extra_info"]["split"]) == (index, split)
        assert ("country" in row["prompt"][0]["content"]) == (row["extra_info"]["searches"] == 2)
        (answer,) = row["reward_model"]["ground_truth"]["target"]
        assert answer


def test_an_index_is_built_again_only_where_it_has_to_be(tmp_path):
    assert prepare(tmp_path, seed=3)
    manifest, files = tmp_path / "index" / "manifest.json", tmp_path / "index" / "index"
    before = manifest.stat().st_mtime_ns
    assert not prepare(tmp_path, seed=3)
    assert manifest.stat().st_mtime_ns == before
    next(files.glob("*.store")).unlink()  # damaged
    assert prepare(tmp_path, seed=3)
    (tmp_path / "data" / CORPUS).write_text("")  # made again, and with it the index
    assert prepare(tmp_path, seed=3)
    assert not prepare(tmp_path, seed=3)
    assert prepare(tmp_path, seed=4)  # another world
    assert len(Index(tmp_path / "index").search(["born"], 1)[0]) == 1


def test_the_recorded_command_builds_the_same_files(built, tmp_path):
    command = json.loads((built / "manifest.json").read_text())["command"]
    subprocess.run([sys.executable, *shlex.split(command)[1:]], cwd=tmp_path, check=True, timeout=600)
    for name in FILES:
        assert file_sha256(tmp_path / built.name / name) == file_sha256(built / name)


def test_preparing_builds_an_index_that_answers_the_questions(tmp_path):
    assert prepare(tmp_path, seed=3)
    assert not prepare(tmp_path, seed=3)
    backend = Index(tmp_path / "index")
    for row in rows(tmp_path / "data", "test"):
        (answer,) = row["reward_model"]["ground_truth"]["target"]
        contents = backend.search([person(row)], 1)[0][0].contents
        if row["extra_info"]["searches"] == 2:
            town = re.search(r"born in (\w+)\.", contents)[1]
            contents = backend.search([town], 1)[0][0].contents
        assert answer in contents
