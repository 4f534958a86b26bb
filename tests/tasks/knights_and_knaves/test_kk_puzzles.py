import itertools
import re
import subprocess
import sys

import pytest

from tests.tasks.knights_and_knaves.kk_oracle import holds, renamed, smallest_renaming, solutions, speakable
from verl_trgrpo.tasks.knights_and_knaves.puzzles import DISTINCT_PUZZLES, Puzzle, canonical_key, generate_puzzles


@pytest.mark.parametrize("n_people", range(2, 9))
def test_every_puzzle_has_the_stated_solution_and_no_other(n_people):
    puzzles = list(generate_puzzles(n_people, 40, seed=11))
    assert [puzzle.index for puzzle in puzzles] == list(range(40))
    for puzzle in puzzles:
        assert solutions(puzzle.statements) == [puzzle.solution]
        assert len(puzzle.names) == len(set(puzzle.names)) == len(puzzle.statements) == n_people
        assert all(re.search(rf"\b{name}\b", puzzle.quiz) for name in puzzle.names)


@pytest.mark.parametrize(("n_people", "count"), [(2, 95), (3, 300), (4, 150), (5, 40)])
def test_no_puzzle_equals_another_one_even_with_other_names(n_people, count):
    puzzles = list(generate_puzzles(n_people, count, seed=2))
    assert len({smallest_renaming(puzzle.statements) for puzzle in puzzles}) == count


@pytest.mark.parametrize("n_people", [2, 3])
def test_the_number_of_puzzles_that_exist_follows_from_the_orbit_counting_lemma(n_people):
    """Count the orbits of all unique-solution puzzles as the mean number of puzzles that a renaming leaves unchanged."""
    assignments = list(itertools.product([True, False], repeat=n_people))
    fits = [
        {
            statement: [holds(statement, a) == a[speaker] for a in assignments]
            for statement in speakable(n_people, speaker)
        }
        for speaker in range(n_people)
    ]
    existing = {
        renamed(statements, tuple(range(n_people)))
        for statements in itertools.product(*fits)
        if sum(map(all, zip(*(fits[i][statement] for i, statement in enumerate(statements)), strict=True))) == 1
    }
    orders = list(itertools.permutations(range(n_people)))
    unchanged = sum(renamed(statements, order) == statements for order in orders for statements in existing)
    assert unchanged % len(orders) == 0
    assert unchanged // len(orders) == DISTINCT_PUZZLES[n_people]
    for puzzle in generate_puzzles(n_people, 90, seed=0):
        assert renamed(puzzle.statements, tuple(range(n_people))) in existing


def test_the_stream_depends_on_seed_and_size_and_continues_with_the_count():
    first = list(generate_puzzles(4, 30, seed=5))
    assert list(generate_puzzles(4, 50, seed=5))[:30] == first
    assert list(generate_puzzles(4, 30, seed=6)) != first
    assert list(generate_puzzles(4, 30, seed=-5)) != first


def test_excluded_puzzles_do_not_come_back():
    test_keys = {canonical_key(puzzle.statements) for puzzle in generate_puzzles(2, 40, seed=0)}
    others = list(generate_puzzles(2, 50, seed=1, exclude=test_keys))
    assert len(others) == 50
    assert not {canonical_key(puzzle.statements) for puzzle in others} & test_keys


def test_asking_for_more_than_exclusion_leaves_is_an_error_after_what_was_found():
    excluded = {canonical_key(puzzle.statements) for puzzle in generate_puzzles(2, 90, seed=0)}
    found = []
    with pytest.raises(ValueError, match="only 5 of 6 different puzzles with 2 people"):
        found.extend(generate_puzzles(2, 6, 1, excluded))


@pytest.mark.parametrize(
    ("n_people", "count", "reasons"),
    [
        (1, 1, ["n_people is 1", "2 to 8"]),
        (9, 1, ["n_people is 9"]),
        (3, -1, ["count is -1"]),
        (2, 96, ["count is 96", "only 95"]),
        (3, 15_089, ["only 15088"]),
        (0, -2, ["n_people is 0", "count is -2"]),
    ],
)
def test_impossible_requests_are_refused_before_anything_is_generated(n_people, count, reasons):
    with pytest.raises(ValueError) as caught:
        generate_puzzles(n_people, count, 0)
    assert all(reason in str(caught.value) for reason in reasons)


def test_no_puzzles_are_no_error():
    assert list(generate_puzzles(3, 0, 0)) == []


def test_puzzles_are_immutable_and_hashable():
    puzzle = next(generate_puzzles(3, 1, 0))
    with pytest.raises(AttributeError):
        puzzle.index = 1
    assert isinstance(puzzle, Puzzle)
    assert len({puzzle, puzzle}) == 1


def test_importing_the_package_is_light():
    names = "kk.build kk.canonical kk.logic kk.options kk.prompts kk.puzzles kk.reasoning kk.rows kk.sources kk.wording"
    imports = "; ".join(f"import verl_trgrpo.data.{name}" for name in names.split())
    heavy = "{'verl', 'vllm', 'ray', 'torch', 'datasets', 'reasoning_gym'}"
    code = f"import sys; {imports}; print(sorted({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
