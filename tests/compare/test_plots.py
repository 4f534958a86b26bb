"""Curves over seeds, and pictures that show what was logged."""

import math

import pytest

from tests.compare.files import write_run, write_steps
from verl_trgrpo.compare.arms import group_arms, read_runs
from verl_trgrpo.compare.plots import curves, plot_arms, plot_run
from verl_trgrpo.runs.metrics import Step

NORM = "actor/grad_norm"


def arms_of(*directories):
    return group_arms(read_runs([str(directory) for directory in directories]), "grpo")


def test_the_mean_is_over_seeds_at_each_step_and_the_baseline_comes_first(tmp_path):
    for arm, slope in (("tr_grpo", 0.1), ("grpo", 0.05)):
        for seed in range(3):
            write_run(tmp_path / f"{arm}-seed{seed}", slope, seed)
    arms = arms_of(tmp_path)
    assert [(arm, len(runs)) for arm, runs in arms.items()] == [("grpo", 3), ("tr_grpo", 3)]
    curve = curves(arms, None, upto=6)[1]
    assert (curve.label, curve.number) == ("tr_grpo", 1)
    assert (curve.counted, curve.runs.shape) == (3, (4, 3))
    assert curve.mean.to_dict() == pytest.approx({step: 0.3 + 0.1 * step + 0.02 for step in (0, 2, 4, 6)})
    # 0.02 times t(0.975, 2 degrees of freedom) / sqrt(3)
    assert [*curve.half_width] == pytest.approx([0.02 * 4.302653 / math.sqrt(3)] * 4, rel=1e-5)


def test_a_shorter_run_is_drawn_and_does_not_bend_the_mean(tmp_path):
    runs = [write_run(tmp_path / f"grpo-seed{seed}", 0.1, seed, last) for seed, last in enumerate((6, 6, 2))]
    ((late,), (early,)) = (curves(arms_of(*runs), "critic/score/mean", upto) for upto in (6, 2))
    assert (late.runs.shape[1], late.counted) == (3, 2) and late.half_width.isna().all(), "two runs have no band"
    assert late.mean.to_dict() == pytest.approx({step: 0.1 * step + 0.005 for step in range(7)})
    # Compared at step 2, all three count, and their mean ends where the shortest ends.
    assert early.mean.to_dict() == pytest.approx({step: 0.1 * step + 0.01 for step in range(3)})


def test_a_value_that_is_not_a_number_is_left_out(tmp_path):
    write_steps(tmp_path / "grpo-seed0" / "metrics-1.jsonl", {s: {NORM: math.nan if s == 2 else 1.0} for s in range(4)})
    write_run(tmp_path / "grpo-seed1", 0.1, last=3)
    (curve,) = curves(arms_of(tmp_path), NORM, upto=3)
    assert [*curve.mean.index] == [0, 1, 3]


def test_only_logged_metrics_are_drawn(tmp_path):
    write_steps(tmp_path / "grpo-seed0" / "metrics-1.jsonl", {step: {NORM: 1.0 + step} for step in range(3)})
    [(title, png)] = plot_arms(arms_of(tmp_path), None, upto=2).items()
    assert title.startswith("gradient norm") and png.startswith(b"\x89PNG")
    write_steps(tmp_path / "cut-seed0" / "metrics-1.jsonl", {step: {"critic/cut_off_frac": 0.1} for step in range(3)})
    assert [title[:9] for title in plot_arms(arms_of(tmp_path), None, upto=2)] == ["gradient ", "responses"]
    steps = [Step(step, {"val-core/a/acc/mean@1": 0.1 * step, "actor/tr_weight_mean": 1.2}) for step in range(4)]
    assert plot_run(steps, tmp_path / "curves.png", "title").read_bytes().startswith(b"\x89PNG")


def test_signals_of_metrics_that_are_not_drawn_are_marked(tmp_path):
    pictures = [
        plot_run(
            [Step(n, {NORM: 1.0, "actor/lr": rate}) for n in range(12)], tmp_path / f"{rate}.png", "title"
        ).read_bytes()
        for rate in (1e-6, 2e-6, 0.0)
    ]
    assert pictures[0] == pictures[1] != pictures[2]


def test_at_a_single_step_every_run_is_drawn(tmp_path):
    """Mean and spread of both groups are equal, so only the runs themselves can make a difference."""
    pictures = []
    for values in ((1, 5, 6), (2, 3, 7)):
        for seed, value in enumerate(values):
            write_steps(tmp_path / str(values) / f"grpo-seed{seed}" / "metrics-1.jsonl", {4: {NORM: float(value)}})
        [png] = plot_arms(arms_of(tmp_path / str(values)), None, upto=4).values()
        pictures.append(png)
    assert pictures[0] != pictures[1]
