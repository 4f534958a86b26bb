"""The makers in recipes/demos: demonstrations are right or careless as asked, and only what the model writes is learned.

tests/cluster/test_demo_makers.py makes a model and an adapter from end to end.
"""

import random
from itertools import islice

import pytest
import torch

from tests.demos.makers import demonstrations, warm_start
from tests.demos.models import load
from verl_trgrpo.demos import puzzles, search, word_problems
from verl_trgrpo.tasks import compute_score
from verl_trgrpo.tasks.knights_and_knaves.puzzles import format_solution, generate_puzzles
from verl_trgrpo.tasks.search_qa.format import read_action


def puzzle_scores(respond, n_people, count):
    found = generate_puzzles(n_people, 40, 6, exclude=puzzles.HELD_OUT)
    pool = [(puzzle, format_solution(puzzle.names, puzzle.solution)) for puzzle in found]
    draws = islice(pool * (count // len(pool) + 1), count)
    return [compute_score(f"kk_{n_people}ppl", respond(puzzle), truth)["acc"] for puzzle, truth in draws]


def word_problem_scores(count, **careless):
    rng = random.Random(0)
    return [
        compute_score("math", demonstrations.worked_solution(problem, rng, **careless), str(problem.answer))["acc"]
        for problem in word_problems.two_step_problems(count)
    ]


def search_scores(directory, careful):
    rng, world = random.Random(0), search.make_world("warm start", 5)
    index = search.open_index(world, directory)
    scores = []
    for question in (question for name in [*world.people][:200] for question in world.questions(name)):
        segments = demonstrations.trajectory(question, world, index, careful, rng)
        actions = [read_action(segment.text) for segment in segments if segment.by_model]
        assert [action.kind for action in actions] == ["search"] * (len(actions) - 1) + ["answer"]
        assert len(actions) - 1 == len(question.path) if careful else len(actions) - 1 < len(question.path)
        scores.append(actions[-1].content == question.answer)
    return scores


def test_careful_demonstrations_are_right(tmp_path):
    rng = random.Random(0)
    assert all(puzzle_scores(lambda puzzle: demonstrations.truth_table_response(puzzle, True, rng), 3, 40))
    assert all(puzzle_scores(lambda puzzle: demonstrations.case_response(puzzle, rng, hunch=0.0, slip=0.0), 2, 200))
    assert all(word_problem_scores(100, careless=0))
    assert all(search_scores(tmp_path, careful=True))


def test_careless_demonstrations_are_right_by_chance_alone(tmp_path):
    """Bounds are four standard errors around the chance."""
    rng = random.Random(0)
    for respond, n_people in (
        (lambda puzzle: demonstrations.truth_table_response(puzzle, False, rng), 2),
        (lambda puzzle: demonstrations.case_response(puzzle, rng, hunch=1.0), 2),
    ):
        assert 0.19 < sum(puzzle_scores(respond, n_people, 800)) / 800 < 0.31
    assert abs(sum(word_problem_scores(200, careless=0.35)) / 200 - 0.65**2) < 0.14
    assert sum(search_scores(tmp_path, careful=False)) / 600 < 0.15


def test_batches_label_what_the_model_writes_and_are_careless_in_the_last_part():
    tokenizer, _ = load(search.CHECKPOINT)
    options = warm_start.SearchModel(out="unused", steps=50, batch_size=2, final_careful=0.0)
    found = [*options.batches(tokenizer, random.Random(0))]
    assert len(found) == 50 and all(len(input_ids) == 2 for input_ids, _ in found)
    guesses = []
    for input_ids, labels in found:
        for ids, targets in zip(input_ids, labels, strict=True):
            labelled = targets != warm_start.NO_LABEL
            assert torch.equal(ids[labelled], targets[labelled])
            written, read = tokenizer.decode(targets[labelled]), tokenizer.decode(ids[~labelled])
            assert written.startswith("<think>") and written.endswith("</answer><|im_end|>")
            assert read.startswith("<|im_start|>user\n") and "Doc" not in written and "<think>" not in read
            guesses.append("guess" in written)
    assert sum(guesses[:80]) < 30 and sum(guesses[80:]) >= 10


def test_all_options_out_of_range_are_reported_at_once_and_impossible_sizes_with_what_exists(tmp_path):
    with pytest.raises(ValueError) as error:
        warm_start.PuzzleModel(out=tmp_path, seed=-1, steps=0, batch_size=0, final_careful=1.5, puzzles=8000)
    told = str(error.value)
    assert all(part in told for part in ("seed=-1", "steps=0", "batch_size=0", "final_careful=1.5", "8000", "7515"))
    with pytest.raises(ValueError) as error:
        warm_start.Adapter(base=tmp_path, out=tmp_path, lr=0, rank=0)
    assert "lr=0" in str(error.value) and "rank=0" in str(error.value)


def test_an_adapter_without_a_model_says_where_to_get_one(tmp_path, capsys):
    assert warm_start.main(["adapter", "--base", str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    assert "verl-trgrpo small-lm" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
