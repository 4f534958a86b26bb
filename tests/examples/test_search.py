"""The search demonstration: answers are where the questions' paths lead, and no person or name is in two places."""

import random
import re
from itertools import chain

import pyarrow.parquet as pq
import pytest

from examples.makers import demonstrations
from examples.search_world import CORPUS, KINDS, PEOPLE, TEST, TRAIN, make_world, prepare
from verl_trgrpo.common.files import file_sha256


def names(world):
    """All invented words of a world, endings of countries and rivers taken off."""
    texts = [*world.people, *world.towns, *(river.removesuffix(" River") for river in world.rivers)]
    countries = {country.removesuffix("ia") for country in world.towns.values()}
    return {*chain.from_iterable(text.split() for text in texts), *countries}


def test_worlds_of_different_kinds_share_no_name_and_equal_arguments_give_equal_worlds():
    first, second = ([names(make_world(kind, seed)) for seed in range(3)] for kind in KINDS)
    assert all(len(found) > PEOPLE for found in first + second)
    assert not set().union(*first) & set().union(*second)
    assert make_world("training", 5) == make_world("training", 5) != make_world("training", 6)


def test_an_answer_is_found_by_searching_for_the_titles_of_its_path_in_order_and_not_sooner(tmp_path):
    world = make_world("training", 5)
    index = demonstrations.open_index(world, tmp_path)
    people = random.Random(1).sample([*world.people], 200)
    for question in (question for name in people for question in world.questions(name)):
        reading = question.text
        for title in question.path:
            assert title in reading, "the next title must stand where the last one led"
            assert question.answer not in reading
            first = index.search([title], demonstrations.TOPK)[0][0]
            assert first.contents.startswith(f'"{title}"\n')
            reading = first.contents
        assert question.answer in reading
        if len(question.path) == 2:
            assert question.answer not in demonstrations.observation(index, question.path[0])


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    directory = tmp_path_factory.mktemp("dataset")
    assert prepare(directory, seed=3)
    return directory


def person(row):
    found = re.search(r"(?:Where was|profession of|country was) (.+?)(?: born)?\?", row["prompt"][0]["content"])
    return found[1]


def test_rows_are_what_the_loop_and_the_reward_read_and_no_person_is_asked_about_twice(built):
    tables = {split: pq.read_table(built / "data" / f"{split}.parquet").to_pylist() for split in ("train", "test")}
    assert (len(tables["train"]), len(tables["test"])) == (TRAIN, TEST)
    assert len({person(row) for table in tables.values() for row in table}) == TRAIN + TEST
    for split, table in tables.items():
        assert sum(row["extra_info"]["searches"] == 2 for row in table) == len(table) / 2
        for index, row in enumerate(table):
            assert (row["agent_name"], row["data_source"]) == ("trgrpo_search", "search_qa")
            assert (row["extra_info"]["index"], row["extra_info"]["split"]) == (index, split)
            assert ("country" in row["prompt"][0]["content"]) == (row["extra_info"]["searches"] == 2)
            assert all(row["reward_model"]["ground_truth"]["target"])


def test_the_same_seed_gives_the_same_files_and_another_one_others(built, tmp_path):
    def digests(directory):
        return {name: file_sha256(directory / "data" / name) for name in ("train.parquet", "test.parquet", CORPUS)}

    assert prepare(tmp_path, seed=3)
    assert digests(tmp_path) == digests(built)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    assert not prepare(tmp_path, seed=3)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert prepare(tmp_path, seed=4)
    assert not {*digests(tmp_path).values()} & {*digests(built).values()}
