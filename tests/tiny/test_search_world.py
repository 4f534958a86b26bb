"""The invented world: what is in it, what can be asked, and that the answers are where the questions' paths lead."""

import json
import random
import re
from itertools import chain

import pytest

from verl_trgrpo.tasks.search_qa.format import read_action
from verl_trgrpo.tiny.search import TOPK, demonstrate, observed, open_index
from verl_trgrpo.tiny.search_world import KINDS, PEOPLE, PROFESSIONS, corpus_text, make_world


@pytest.fixture(scope="module")
def world():
    return make_world("training", 5)


@pytest.fixture(scope="module")
def backend(world, tmp_path_factory):
    return open_index(world, tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def some_questions(world):
    people = random.Random(1).sample([*world.people], 200)
    return [question for name in people for question in world.questions(name)]


def names(world):
    """All invented words of a world, endings of countries and rivers taken off."""
    texts = [*world.people, *world.towns, *(river.removesuffix(" River") for river in world.rivers)]
    countries = {country.removesuffix("ia") for country in world.towns.values()}
    return {*chain.from_iterable(text.split() for text in texts), *countries}


def test_equal_arguments_give_equal_worlds_and_others_do_not(world):
    again = make_world("training", 5)
    assert again == world
    assert corpus_text(again) == corpus_text(world)  # order too, which decides ids
    assert make_world("training", 6) != world


def test_worlds_of_different_kinds_share_no_name():
    first, second = ([names(make_world(kind, seed)) for seed in range(3)] for kind in KINDS)
    assert all(len(found) > PEOPLE for found in first + second)
    assert not set().union(*first) & set().union(*second)


def test_every_name_means_one_thing_and_leads_somewhere(world):
    titles = [title for title, _ in world.documents()]
    assert len(titles) == len(set(titles)) == len(world.people) + len(world.towns) + len(world.rivers)
    assert {profession for profession, _ in world.people.values()} == set(PROFESSIONS)
    assert {town for _, town in world.people.values()} <= set(world.towns)
    assert set(world.rivers.values()) <= set(world.towns)
    assert not set(world.towns) & set(world.towns.values())


def test_the_corpus_has_wiki_18s_form(world):
    rows = [json.loads(line) for line in corpus_text(world).splitlines()]
    assert [row["id"] for row in rows] == [str(number) for number in range(len(rows))]
    assert all(re.fullmatch(r'"([^"\n]+)"\n\1 is a [^\n]+\.', row["contents"]) for row in rows)


def test_an_answer_is_found_by_searching_for_the_titles_of_its_path_in_order(some_questions, backend):
    for question in some_questions:
        reading = question.text
        for title in question.path:
            assert title in reading, "the next title must stand where the last one led"
            first = backend.search([title], TOPK)[0][0]
            assert first.contents.startswith(f'"{title}"\n')
            reading = first.contents
        assert question.answer in reading
        assert question.answer not in question.text


def test_a_question_with_two_searches_cannot_be_answered_after_the_first(some_questions, backend):
    long = [question for question in some_questions if len(question.path) == 2]
    assert len(long) == len(some_questions) / 3
    for question in long:
        assert question.answer not in observed(backend, question.path[0])


def test_a_careful_demonstration_searches_the_path_and_is_right(world, some_questions, backend):
    rng = random.Random(0)
    for question in some_questions:
        segments = demonstrate(question, world, backend, True, rng)
        actions = [read_action(segment.text) for segment in segments if segment.by_model]
        assert [(action.kind, action.content) for action in actions] == [
            *(("search", title) for title in question.path), ("answer", question.answer),
        ]  # fmt: skip
        observations = [segment.text for segment in segments if not segment.by_model]
        assert observations == [observed(backend, title) for title in question.path]


def test_a_careless_demonstration_ends_early_and_answers_with_something_of_the_right_kind(
    world, some_questions, backend
):
    rng = random.Random(0)
    right, searched = 0, 0
    for question in some_questions:
        segments = demonstrate(question, world, backend, False, rng)
        actions = [read_action(segment.text) for segment in segments if segment.by_model]
        assert actions[-1].kind == "answer"
        assert len(actions) - 1 < len(question.path)
        searched += len(actions) - 1
        right += actions[-1].content == question.answer
        kinds = [PROFESSIONS, [*world.towns], [*world.towns.values()]]
        assert any(actions[-1].content in kind and question.answer in kind for kind in kinds) or len(actions) == 2
    # Half of the questions that take two searches get one; a guess of a profession is right one time in ten.
    assert 0.3 < searched / (len(some_questions) / 3) < 0.7
    assert right / len(some_questions) < 0.15
