"""Curves over seeds, the comparison with the baseline, and what the notes say of both."""

import math
from dataclasses import replace

import pytest

from tests.runs.report.files import generation, write_generations, write_record, write_run, write_steps
from verl_trgrpo.runs.charts import plain
from verl_trgrpo.runs.report.build import ReportOptions, build_report, compare_arms
from verl_trgrpo.runs.report.charts import _CURVES, curve_charts, curves
from verl_trgrpo.runs.report.page import notes
from verl_trgrpo.runs.report.runs import group_arms, last_common_step, read_runs

NORM = "actor/grad_norm"


def arms_of(*directories, baseline="grpo"):
    return group_arms(read_runs([str(directory) for directory in directories]), baseline)


def sweep(root, slopes, seeds):
    return [
        write_run(root / f"{arm}-seed{seed}", slope, seed) for arm, slope in slopes.items() for seed in range(seeds)
    ]


def test_the_page_tests_what_the_study_named_beforehand(tmp_path):
    """Six pairs of the same sign: p = 2 / 2^6, which a correction for three tests would not leave below 0.05."""
    for arm, slope in (("base", 0.05), ("new", 0.06)):
        for seed in range(6):
            run = write_run(tmp_path / arm / f"seed-{seed}", slope, seed)
            study = {"baseline": "base", "primary": "new", "margin": 0.2}
            write_record(run, arm=arm, seed=seed, finished=True, study=study)
    options = ReportOptions(runs=(str(tmp_path),), out=tmp_path / "r.html")
    assert "p=0.031 against base: they differ" in build_report(options).summary[1]
    page = (tmp_path / "r.html").read_text()
    assert "equivalence within 0.2" in page
    assert "over seeds and prompts" not in page, "no responses were dumped, and the column would be empty"
    # Another baseline was not named.
    assert (
        "p=0.031 (0.094) against new: with so few runs no such test could"
        in build_report(replace(options, baseline="new")).summary[1]
    )


def test_the_interval_over_prompts_is_there_where_runs_dumped_their_responses(tmp_path):
    """Two of four prompts right for the baseline, three for the other arm, after step 4; what came later does not count."""
    right = {"grpo": "1100", "tr_grpo": "1110"}
    for arm, verdicts in right.items():
        for seed in (0, 1):
            accuracy = verdicts.count("1") / 4
            steps = {step: {"val-core/kk/acc/mean@1": accuracy, NORM: 1.0 + seed} for step in (0, 4)}
            steps |= {8: {"val-core/kk/acc/mean@1": accuracy}} if arm == "tr_grpo" else {}
            run = write_steps(tmp_path / f"{arm}-seed{seed}" / "metrics-1.jsonl", steps).parent
            rows = [generation(f"p{i}", "o", float(verdict)) for i, verdict in enumerate(verdicts)]
            later = {8: [*rows[::-1], generation("another", "o", 1.0)]} if arm == "tr_grpo" else {}
            write_generations(run / "validation", {4: rows, **later})
    arms = arms_of(tmp_path)
    difference = compare_arms(arms, "grpo", upto=4)["tr_grpo"]["final_accuracy"].difference
    assert difference.over_prompts.mean == pytest.approx(0.25)
    assert difference.over_prompts.low < 0.25 < difference.over_prompts.high
    options = ReportOptions(runs=(str(tmp_path),), out=tmp_path / "r.html")
    assert "over seeds and prompts" in build_report(options).page.read_text()
    (tmp_path / "grpo-seed1" / "validation" / "4.jsonl").unlink()
    assert "over seeds and prompts" not in build_report(options).page.read_text()


def test_no_title_of_a_picture_is_cut():
    assert [title for _, title, _ in _CURVES if plain(title) != title] == []


def test_the_mean_is_over_seeds_at_each_step_and_the_baseline_comes_first(tmp_path):
    arms = arms_of(*sweep(tmp_path, {"tr_grpo": 0.1, "grpo": 0.05}, 3))
    assert [(arm.label, arm.number, len(arm.runs)) for arm in arms] == [("grpo", 0, 3), ("tr_grpo", 1, 3)]
    curve = curves(arms, None, upto=6)[1]
    assert (curve.counted, curve.runs.shape) == (3, (4, 3))
    assert curve.mean.to_dict() == pytest.approx({step: 0.3 + 0.1 * step + 0.02 for step in (0, 2, 4, 6)})
    # 0.02 times t(0.975, 2 degrees of freedom) / sqrt(3)
    assert [*curve.half_width] == pytest.approx([0.02 * 4.302653 / math.sqrt(3)] * 4, rel=1e-5)


def test_a_shorter_run_is_drawn_and_does_not_bend_the_mean(tmp_path):
    runs = [write_run(tmp_path / f"grpo-seed{seed}", 0.1, seed, last) for seed, last in enumerate((6, 6, 2))]
    ((late,), (early,)) = (curves(arms_of(*runs), "critic/score/mean", upto) for upto in (6, 2))
    assert (late.runs.shape[1], late.counted) == (3, 2)
    assert late.mean.to_dict() == pytest.approx({step: 0.1 * step + 0.005 for step in range(7)})
    # Compared at step 2, all three count, and their mean ends where the shortest ends.
    assert early.mean.to_dict() == pytest.approx({step: 0.1 * step + 0.01 for step in range(3)})


def test_two_runs_have_no_band(tmp_path):
    (curve,) = curves(arms_of(*sweep(tmp_path, {"grpo": 0.05}, 2)), NORM, upto=6)
    assert curve.counted == 2 and curve.half_width.isna().all()


def test_a_metric_with_one_step_is_shown_arm_beside_arm(tmp_path):
    """A curve of one point would say nothing; the runs of a seed are joined instead."""
    for arm, value in (("grpo", 0.5), ("tr_grpo", 0.4)):
        for seed in range(3):
            write_steps(tmp_path / f"{arm}-seed{seed}" / "metrics-1.jsonl", {4: {NORM: value + seed}})
    (chart,) = curve_charts(arms_of(tmp_path), None, upto=4)
    assert all(part in chart.alt for part in ("step 4", "grpo, 3 seeds: 1.500", "tr_grpo, 3 seeds: 1.400"))
    assert chart.png[1:4] == b"PNG"


def test_a_value_that_is_not_a_number_is_left_out_and_noted(tmp_path):
    steps = {step: {NORM: math.nan if step == 2 else 1.0} for step in range(4)}
    write_steps(tmp_path / "grpo-seed0" / "metrics-1.jsonl", steps)
    write_run(tmp_path / "grpo-seed1", 0.1, last=3)
    arms = arms_of(tmp_path)
    (curve,) = curves(arms, NORM, upto=3)
    assert [*curve.mean.index] == [0, 1, 3]
    assert "Not a number, and left out: actor/grad_norm of grpo seed 0 from step 2." in notes(arms, "grpo", 3)
    assert compare_arms(arms, "grpo", upto=3)["grpo"]["grad_norm"].runs == 2


def test_only_common_seeds_are_paired(tmp_path):
    runs = [write_run(tmp_path / f"grpo-seed{seed}", 0.05, seed) for seed in (0, 1)]
    runs += [write_run(tmp_path / f"tr_grpo-seed{seed}", 0.1, seed) for seed in (1, 2)]
    runs += [write_run(tmp_path / "nameless", 0.1)]
    arms = arms_of(*runs)
    found = compare_arms(arms, "grpo", upto=6)
    entry = found["tr_grpo"]["final_accuracy"]
    assert (entry.runs, entry.difference.pairs, entry.difference.test) == (2, 1, None)
    assert entry.difference.estimate.mean == pytest.approx(0.3)
    assert found["nameless"]["final_accuracy"].difference is None
    text = " ".join(notes(arms, "grpo", 6))
    assert "Not paired, because grpo has no run with that seed: tr_grpo seed 2, nameless." in text
    assert "One run alone does not say how much another seed would differ: nameless." in text


def test_runs_are_compared_where_all_of_them_were(tmp_path):
    runs = [write_run(tmp_path / "grpo-seed0", 0.1, 0, 6), write_run(tmp_path / "tr_grpo-seed0", 0.1, 0, 4)]
    arms = arms_of(*runs)
    assert last_common_step(read_runs([str(tmp_path)])) == 4
    assert compare_arms(arms, "grpo", upto=4)["grpo"]["final_accuracy"].estimate.mean == pytest.approx(0.7)
    assert any("Longer runs end later: grpo seed 0 at 6." in note for note in notes(arms, "grpo", 4))
    # At step 6 the shorter run has no figures.
    found = compare_arms(arms, "grpo", upto=6)
    assert found["grpo"] and not found["tr_grpo"]
    assert any("end before step 6: tr_grpo seed 0 at 4." in note for note in notes(arms, "grpo", 6))


def test_a_run_that_is_known_to_be_unfinished_does_not_shorten_the_others(tmp_path):
    write_run(tmp_path / "grpo-seed0", 0.1, last=6)
    late = write_run(tmp_path / "grpo-seed1", 0.1, last=1)
    assert last_common_step(read_runs([str(tmp_path)])) == 1
    write_record(late, arm="grpo", seed=1, finished=False)
    assert last_common_step(read_runs([str(tmp_path)])) == 6
    assert last_common_step(read_runs([str(late)])) == 1
    assert "Not finished: grpo seed 1." in notes(arms_of(tmp_path), "grpo", 6)
