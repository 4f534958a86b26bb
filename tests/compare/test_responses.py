"""Responses before and after training, from veRL's validation dumps."""

import pytest

from tests.compare.files import generation, write_generations
from verl_trgrpo.compare.page import read_samples


def rows(verdicts):
    """A row for each prompt: 1 right, 0 wrong."""
    return [generation(f"p{i}", f"o{i} {score}", float(score)) for i, score in enumerate(verdicts)]


def test_first_and_last_step_of_the_same_prompts(tmp_path):
    write_generations(tmp_path, {2: rows([0, 0]), 10: rows([1, 0]), 9: rows([1, 1]), 0: rows([0, 1, 0])[::-1]})
    found = read_samples(tmp_path, most=4)
    assert (found.first, found.last) == (0, 10)
    assert found.counts == {"wrong to right": 1, "right to wrong": 1}
    assert read_samples(tmp_path, most=4) == found, "drawn with a seed"
    learned, lost = sorted(found.pairs, key=lambda pair: pair.before.prompt)
    assert learned.before[:2] == learned.after[:2] == ("p0", "answer of p0")
    assert (learned.before.text, learned.after.text) == ("o0 0", "o0 1")
    assert (learned.kind, lost.kind) == ("wrong to right", "right to wrong")


def test_a_single_validation_is_shown_alone(tmp_path):
    assert read_samples(tmp_path) is None
    write_generations(tmp_path, {7: [*rows([1, 0, 0]), generation("p0", "again", 0.0)]})
    found = read_samples(tmp_path, most=9)
    assert (found.first, found.last) == (7, 7)
    assert found.counts == {"wrong": 2, "right": 1}
    assert sorted((pair.before, pair.after.text, pair.kind) for pair in found.pairs) == [
        (None, "o0 1", "right"), (None, "o1 0", "wrong"), (None, "o2 0", "wrong"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("score", "more", "verdict"),
    [
        (3.0, {"acc": 0.0}, "wrong"), (-1.0, {"acc": True}, "right"), (1.0, {}, "right"), (0.5, {}, "wrong"),
        (1.0, {"acc": None}, "right"), (None, {}, "not scored"), (float("nan"), {}, "not scored"),
    ],
)  # fmt: skip
def test_the_verdict_goes_by_acc_and_then_by_the_score(tmp_path, score, more, verdict):
    write_generations(tmp_path, {step: [generation("p", "o", score, **more)] for step in (0, 1)})
    (pair,) = read_samples(tmp_path, most=1).pairs
    assert pair.kind == f"{verdict} to {verdict}"


def test_the_first_of_several_responses_counts_and_equal_prompts_are_told_apart_by_their_answers(tmp_path):
    twice = [
        generation("p", "first", 0.0),
        generation("p", "second", 1.0),
        generation("p", "x", 1.0) | {"gts": "other"},
    ]
    write_generations(tmp_path, {0: twice, 1: twice})
    assert sorted((pair.before.truth, pair.before.text) for pair in read_samples(tmp_path, most=9).pairs) == [
        ("answer of p", "first"), ("other", "x"),
    ]  # fmt: skip


def test_an_unfinished_line_waits_and_a_damaged_one_is_an_error(tmp_path):
    write_generations(tmp_path, {0: rows([1, 1]), 1: rows([1, 1])})
    path = tmp_path / "1.jsonl"
    whole = path.read_text()
    path.write_text(whole[:-10])
    assert len(read_samples(tmp_path, most=9).pairs) == 1
    path.write_text("[]\n" + whole)
    with pytest.raises(ValueError, match=r"1\.jsonl has a line that veRL did not dump"):
        read_samples(tmp_path, most=9)


def test_what_verl_dumps_is_read(tmp_path):
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

    for step, score in ((0, 0.0), (5, 1.0)):
        PPOTrainer._write_generations(
            ["prompt"], [f"output {step}"], ["truth"], [score], {"acc": [score], "uid": ["u"]}, str(tmp_path), step
        )
    (pair,) = read_samples(tmp_path, most=1).pairs
    assert pair.before == ("prompt", "truth", "output 0", "wrong", 0.0)
    assert pair.after == ("prompt", "truth", "output 5", "right", 1.0)
