"""Means and intervals over seeds, and the comparison with the baseline, against closed forms."""

import math

import pytest

from tests.runs.report.files import metrics, write_record, write_run, write_steps
from verl_trgrpo.runs.report.arms import MOST_POINTS, accuracy, curves, group_arms, metric
from verl_trgrpo.runs.report.charts import style
from verl_trgrpo.runs.report.comparison import compare, last_common_step
from verl_trgrpo.runs.report.origin import notes, origin
from verl_trgrpo.runs.report.runs import read_runs

NORM = "actor/grad_norm"


def arms_of(*directories, baseline="grpo"):
    return group_arms(read_runs([str(directory) for directory in directories]), baseline)


def entry(sections, figure, label):
    (section,) = (section for section in sections if section.name == figure)
    (found,) = (entry for entry in section.entries if entry.arm.label == label)
    return found


def test_eight_arms_have_eight_colours_that_show_on_white_and_forty_arms_forty_looks():
    looks = [style(number) for number in range(40)]
    assert len({look["color"] for look in looks[:8]}) == len({look["marker"] for look in looks[:8]}) == 8
    assert len({tuple(map(str, look.values())) for look in looks}) == 40
    for look in looks[:8]:
        red, green, blue = (int(look["color"][i : i + 2], 16) for i in (1, 3, 5))
        assert 0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.75 * 255


def sweep(root, slopes, seeds):
    return [
        write_run(root / f"{arm}-seed{seed}", slope, seed) for arm, slope in slopes.items() for seed in range(seeds)
    ]


def test_the_mean_is_over_seeds_at_each_step_and_the_baseline_comes_first(tmp_path):
    arms = arms_of(*sweep(tmp_path, {"tr_grpo": 0.1, "grpo": 0.05}, 3))
    assert [(arm.label, arm.number, len(arm.runs)) for arm in arms] == [("grpo", 0, 3), ("tr_grpo", 1, 3)]
    drawn, width = curves(arms, accuracy(None), upto=6)
    assert width == 1
    band = drawn[1].band
    assert band.steps == [0, 2, 4, 6]
    assert band.mean == pytest.approx([0.3 + 0.1 * step + 0.02 for step in (0, 2, 4, 6)])
    assert all(low < mean < high for low, mean, high in zip(band.low, band.mean, band.high, strict=True))
    assert len(drawn[1].seeds) == drawn[1].counted == 3


def test_one_seed_has_a_mean_and_no_interval(tmp_path):
    ((one,), _) = curves(arms_of(write_run(tmp_path / "grpo-seed0", 0.1)), accuracy(None), upto=6)
    assert one.band.mean == pytest.approx([0.3, 0.5, 0.7, 0.9])
    assert all(map(math.isnan, one.band.low))


def test_a_shorter_run_is_drawn_and_does_not_bend_the_mean(tmp_path):
    runs = [write_run(tmp_path / f"grpo-seed{seed}", 0.1, seed, last) for seed, last in enumerate((6, 6, 2))]
    ((counted, _), (all_, _)) = (curves(arms_of(*runs), metric("critic/score/mean"), upto) for upto in (6, 2))
    assert (len(counted[0].seeds), counted[0].counted) == (3, 2)
    assert counted[0].band.mean == pytest.approx([0.1 * step + 0.005 for step in range(7)])
    # Compared at step 2, all three count, and their mean ends where the shortest ends.
    assert all_[0].band.steps == [0, 1, 2]
    assert all_[0].band.mean == pytest.approx([0.1 * step + 0.01 for step in range(3)])


def test_a_value_that_is_not_a_number_is_a_gap(tmp_path):
    steps = {step: {NORM: math.nan if step == 2 else 1.0} for step in range(4)}
    write_steps(tmp_path / "grpo-seed0" / "metrics-1.jsonl", steps)
    write_run(tmp_path / "grpo-seed1", 0.1, last=3)
    arms = arms_of(tmp_path)
    ((one,), _) = curves(arms, metric(NORM), upto=3)
    assert [math.isnan(mean) for mean in one.band.mean] == [False, False, True, False]
    assert any("grpo seed 0 logged values that are not numbers: actor/grad_norm at step 2." in note
               for note in notes(arms, "grpo", None, 3))  # fmt: skip
    assert entry(compare(arms, "grpo", None, 3), "grad_norm", "grpo").runs == 2


def test_long_runs_are_averaged_over_neighbouring_steps(tmp_path):
    count = 2 * MOST_POINTS
    write_steps(tmp_path / "grpo" / "metrics-1.jsonl", {step: {NORM: float(step)} for step in range(1, count + 1)})
    ((one,), width) = curves(arms_of(tmp_path), metric(NORM), upto=count)
    assert width == 2
    assert one.band.steps == [2.0 * i for i in range(1, MOST_POINTS + 1)]
    assert one.band.mean == [2.0 * i - 0.5 for i in range(1, MOST_POINTS + 1)]


def test_differences_are_paired_by_seed_and_corrected_for_the_arms(tmp_path):
    """Six pairs that all differ by the same: p = 2 / 2^6 exactly, whichever figure."""
    arms = arms_of(*sweep(tmp_path, {"grpo": 0.05, "tr_grpo": 0.1, "same": 0.05}, 6))
    sections = compare(arms, "grpo", None, upto=6)
    final = entry(sections, "final_accuracy", "tr_grpo")
    assert final.interval.mean == pytest.approx(0.3 + 0.6 + 0.02 * 2.5)
    assert final.difference.interval.mean == pytest.approx(0.3)
    assert (final.difference.pairs, final.difference.p) == (6, 2 / 64)
    # Final accuracy, area and roughness of two arms are tested.
    tests = [e.difference.p for s in sections for e in s.entries if e.difference and e.difference.p is not None]
    assert len(tests) == 6
    assert final.difference.p_holm == pytest.approx(2 * 2 / 64)
    assert not final.difference.significant
    assert entry(sections, "final_accuracy", "same").difference.p == 1.0
    assert entry(sections, "final_accuracy", "grpo").difference is None
    assert entry(sections, "best_accuracy", "tr_grpo").difference.p is None, "not among the tested outcomes"


def test_only_common_seeds_are_paired(tmp_path):
    runs = [write_run(tmp_path / f"grpo-seed{seed}", 0.05, seed) for seed in (0, 1)]
    runs += [write_run(tmp_path / f"tr_grpo-seed{seed}", 0.1, seed) for seed in (1, 2)]
    runs += [write_run(tmp_path / "nameless", 0.1)]
    arms = arms_of(*runs)
    sections = compare(arms, "grpo", None, upto=6)
    found = entry(sections, "final_accuracy", "tr_grpo")
    assert (found.runs, found.difference.pairs, found.difference.p) == (2, 1, None)
    assert found.difference.interval == pytest.approx((0.3, None, None))
    assert entry(sections, "final_accuracy", "nameless").difference is None
    text = " ".join(notes(arms, "grpo", None, 6))
    assert "Not paired, because grpo has no run with that seed: tr_grpo seed 2." in text
    assert "nameless has one run" in text


def test_runs_are_compared_where_all_of_them_were(tmp_path):
    runs = [write_run(tmp_path / "grpo-seed0", 0.1, 0, 6), write_run(tmp_path / "tr_grpo-seed0", 0.1, 0, 4)]
    arms = arms_of(*runs)
    assert last_common_step(read_runs([str(tmp_path)])) == 4
    assert entry(compare(arms, "grpo", None, 4), "final_accuracy", "grpo").interval.mean == pytest.approx(0.7)
    assert any("Longer runs end later: grpo seed 0 at 6." in note for note in notes(arms, "grpo", None, 4))
    # At step 6 the shorter run has no figures.
    sections = compare(arms, "grpo", None, 6)
    assert {e.arm.label for s in sections for e in s.entries} == {"grpo"}
    assert any("end before step 6: tr_grpo seed 0 at 4." in note for note in notes(arms, "grpo", None, 6))


def test_a_run_that_is_known_to_be_unfinished_does_not_shorten_the_others(tmp_path):
    write_run(tmp_path / "grpo-seed0", 0.1, last=6)
    late = write_run(tmp_path / "grpo-seed1", 0.1, last=1)
    assert last_common_step(read_runs([str(tmp_path)])) == 1
    write_record(late, arm="grpo", seed=1, finished=False)
    assert last_common_step(read_runs([str(tmp_path)])) == 6
    assert last_common_step(read_runs([str(late)])) == 1
    assert "Not finished: grpo seed 1." in notes(arms_of(tmp_path), "grpo", None, 6)


def test_what_is_common_and_what_differs(tmp_path):
    for seed, lr in ((0, 1e-4), (1, 1e-4)):
        run = write_run(tmp_path / f"grpo-seed{seed}", 0.1, seed)
        write_record(run, arm="grpo", seed=seed, commit=f"c{seed}", machine="m", versions={"torch": "2.13"},
                     settings={"lr": lr, "algorithm": "grpo", "steps": 6})  # fmt: skip
    run = write_run(tmp_path / "tr_grpo-seed0", 0.1)
    write_record(run, arm="tr_grpo", seed=0, commit="c0", machine="m", versions={"torch": "2.13"},
                 settings={"lr": 1e-3, "algorithm": "tr_grpo", "steps": 6, "tau": 9})  # fmt: skip
    arms = arms_of(tmp_path)
    found = origin(arms, None)
    assert found.facts == [("machine", "m"), ("torch", "2.13"), ("steps", "6")]
    assert found.differences == [
        ("lr", [("grpo", "0.0001"), ("tr_grpo", "0.001")]),
        ("algorithm", [("grpo", "grpo"), ("tr_grpo", "tr_grpo")]),
        ("tau", [("grpo", "not set"), ("tr_grpo", "9")]),
    ]
    assert any("different commits" in note for note in notes(arms, "grpo", None, 6))
    assert [row.validation for row in found.runs] == ["0.900 at step 6", "0.920 at step 6", "0.900 at step 6"]


def test_runs_without_validation_have_the_other_figures(tmp_path):
    steps = {step: {k: v for k, v in metrics(step, 0.1, 0).items() if not k.startswith("val-")} for step in range(3)}
    steps[2]["val-core/kk/reward/mean@1"] = 0.5
    write_steps(tmp_path / "grpo" / "metrics-1.jsonl", steps)
    arms = arms_of(tmp_path)
    assert {section.name for section in compare(arms, "grpo", None, 2)} == {
        "grad_norm", "grad_roughness", "entropy", "response_length",
    }  # fmt: skip
    assert any("logged are val-core/kk/reward/mean@1, see --metric" in note for note in notes(arms, "grpo", None, 2))
    name = "val-core/kk/reward/mean@1"
    assert entry(compare(arms, "grpo", name, 2), "final_accuracy", "grpo").interval.mean == 0.5
