"""Each row of the table on either side of its change; runs that are made and runs that were reported; the command."""

import json
import math
import re
import warnings

import numpy as np
import pytest

from tests.runs.made_runs import Figures, make_run, score
from tests.runs.reported_runs import SICK, SOUND, VAL, Draw, curve, steps_of
from verl_trgrpo.cli.main import main
from verl_trgrpo.runs.health import SIGNALS, judge
from verl_trgrpo.runs.metrics import Step

NAN = math.nan
# Names that veRL 0.9.1 or this package logs; each row has to know one.
NAMES = (
    "critic/score/mean", "critic/rewards/mean", "critic/reward/f1/mean", "critic/equal_groups_frac", "critic/no_answer_frac",
    "critic/cut_off_frac", "actor/grad_norm", "actor/lr", "actor/entropy", "actor/kl_loss", "actor/ppo_kl", "actor/pg_clipfrac",
    "actor/pg_loss", "actor/tr_weight_std", "training/rollout_probs_diff_mean", "training/rollout_actor_probs_pearson_corr",
    "rollout_corr/k3_kl", "response_length/mean", "num_turns/mean", "response/aborted_ratio", "timing_s/step",
    "perf/cpu_memory_used_gb", "val-core/math/acc/mean@1",
)  # fmt: skip
ROWS = {f"{row.name}, {row.metrics}": row for row in SIGNALS}


# What has to happen beside it.
BESIDE = {"validation and training part": lambda i: {"critic/score/mean": i / 30}}


def values_of(row, times, length=30):
    """Return values that are sound and then, from step 16 on, change by `times` what the row names."""
    later = np.arange(1, length + 1) > 15
    noise = np.random.default_rng(0).normal(0, 1, length)
    if row.unit == "finite":
        return np.where(later & (times > 1), NAN, 0.5)
    if row.unit == "repeat":
        return np.where(later & (times > 1), 0.5, 0.5 + 0.1 * noise)
    if row.unit == "bound":
        sick = row.change * times if row.change else float(times < 1)
        sick = row.change / times if row.falls and row.change else sick
        return np.where(later, sick, row.change * (2.0 if row.falls else 0.5) or 1.0)
    start = {"share": 0.1, "part": 0.6, "factor": 1.0, "distance": 0.01}[row.unit]
    start = min(max(start, row.normal[0]), row.normal[1])
    if row.unit in ("factor", "distance"):
        power = (-1 if row.falls else 1) * times * later
        values = start * row.change**power * np.exp(0.02 * noise)
        return 1 - values if row.unit == "distance" else values
    change = times * row.change * (0.6 if row.unit == "part" else 1.0)
    return start + (-1 if row.falls else 1) * change * later + 0.005 * noise


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_each_row_names_a_change_above_its_own_and_no_other(row):
    metric = next(name for name in (*NAMES, "perf/throughput") if re.fullmatch(row.metrics, name))
    for times in (0.7, 1.3):
        steps = [
            Step(i, {"actor/tr_weight_mean": 1.3} | BESIDE.get(row.name, lambda i: {})(i) | {metric: float(value)})
            for i, value in enumerate(values_of(row, times), start=1)
        ]
        found = judge(steps, [row])
        assert bool(found) == (times > 1), times
    assert found[0].stands and found[0].sick and abs(found[0].first - 16) <= 1 and found[0].metric == metric
    assert found[0].message.startswith(f"{row.name} since step ") and "{" not in found[0].remedy


@pytest.mark.parametrize("name", [*NAMES, "perf/throughput", "a/metric/of/a/later/version"])
def test_any_metric_is_finite_in_nearly_all_steps(name):
    def found(*broken):
        steps = [Step(i, {name: NAN if i in broken else 0.5 + math.sin(i) / 5}) for i in range(1, 41)]
        return [each for each in judge(steps) if "finite" in each.signal.name]

    assert found() == []
    assert [(each.sick, each.stands) for each in found(20)] == [(False, False)], "one step"
    assert [(each.first, each.count, each.stands, each.lost) for each in found(*range(1, 41, 2))] == [
        (1, 20, False, True)
    ]
    assert [(each.first, each.last, each.stands) for each in found(40)] == [(40, 40, True)]


def test_most_made_runs_are_judged_rightly():
    """The sample is small, so that the bounds are wider than what python -m tests.runs.made_runs measures."""
    figures = Figures()
    for seed in range(2000, 2120):
        score(make_run(seed), figures)
    assert figures.named >= 0.85 * figures.sick > 40, figures.text()
    assert figures.step >= 0.8 * figures.sick and figures.flagged <= 0.05 * figures.sound, figures.text()


@pytest.mark.parametrize("report", SICK)
def test_what_was_reported_is_named(report):
    columns, every, metrics, first = SICK[report](Draw(0))
    found = [each for each in judge(steps_of(columns, every)) if each.sick and each.metric in metrics.split()]
    assert found and min(abs(each.first - first) for each in found) <= 0.25 * len(columns["actor/lr"])


@pytest.mark.parametrize("habit", SOUND)
def test_what_is_sound_is_left_alone(habit):
    columns, every = SOUND[habit](Draw(0))
    assert [each.message for each in judge(steps_of(columns, every)) if each.sick] == []


FLAT = Draw(1).shares(np.full(400, 0.4), 500)


@pytest.mark.parametrize(
    ("habit", "context"),
    {
        "the prompts become harder at step 60": {
            VAL: Draw(2).shares(curve((0, 0.5), (59, 0.6), (70, 0.2), (119, 0.2)), 500)},
        "answers grow fivefold, accuracy with them": {VAL: FLAT[:300]},
        "KL rises with the accuracy": {VAL: FLAT},
        "a task is solved": {"critic/score/mean": Draw(3).shares(np.full(80, 0.3), 512)},
        "a base model rambles, then answers": {
            "response_length/clip_ratio": np.full(60, 0.95), "critic/score/mean": FLAT[:60]},
        "verbose answers become concise": {
            "response_length/mean": np.geomspace(1800, 60, 200), VAL: FLAT[:200]},
    }.items(),
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_without_its_excuse_it_is_sick(habit, context):
    columns, every = SOUND[habit](Draw(0))
    assert any(each.sick for each in judge(steps_of(columns | context, every)))


def test_the_shaping_uniform_asks_for_equal_weights():
    for mean, names in ((1.0, []), (1.3, ["weights are all equal"])):
        weights = {"actor/tr_weight_mean": mean, "actor/tr_weight_std": 0.0}
        assert [each.signal.name for each in judge([Step(i, weights) for i in range(9)])] == names


def test_a_remedy_names_the_best_validation_and_a_rate():
    def remedies(validation):
        values = [0.3, 0.2, 0.4, 0.3, 0.35] * 6 + [30.0] * 10
        steps = [
            Step(i, {"actor/grad_norm": value, "actor/lr": 2e-6} | ({VAL: validation[i]} if i in validation else {}))
            for i, value in enumerate(values, start=1)
        ]
        return [each.remedy for each in judge(steps) if each.signal.name == "gradient explodes"]

    [remedy] = remedies({10: 0.4, 20: 0.5, 30: 0.1})
    assert "global_step_20 (the best validation, 0.5)" in remedy and "optim.lr=1e-06" in remedy
    assert "global_step_30" in remedies({})[0]


@pytest.mark.parametrize("seed", range(6))
def test_any_values_are_judged(seed):
    """Of any length, missing or not finite, and as large as numbers are: without an error, and without a warning."""
    rng = np.random.default_rng(seed)
    odd = [0.0, 1.0, -1.0, NAN, math.inf, -math.inf, 1e308, -1e308, 5e-324]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for length in (0, 1, 2, 3, 4, 7, 60):
            names = [*NAMES, "critic/score/min", "critic/score/max", "critic/acc/mean", "prompt_length/mean"]
            steps = [Step(i, {name: rng.choice(odd) for name in names if rng.random() < 0.8}) for i in range(length)]
            for found in judge(steps):
                assert found.message and found.remedy and found.first <= found.last


def logged(path, metrics, tail=""):
    lines = (json.dumps({"step": i, "data": data}) + "\n" for i, data in enumerate(metrics, start=1))
    path.write_text("".join(lines) + tail)
    return ["health", str(path)]


def test_the_command_judges_a_file_of_verls_logger(tmp_path, capsys):
    path, sound = tmp_path / "metrics.jsonl", {"critic/score/mean": 0.1, "actor/grad_norm": 0.5}
    assert main(logged(path, [sound] * 3)) == 0
    assert capsys.readouterr().out == "3 steps, the last is 3: no signals\n"
    # veRL writes NaN as null; the last line is still being written.
    lost = sound | {"actor/grad_norm": None}
    assert main(logged(path, [sound] * 3 + [lost], tail='{"step": 5, "da')) == 1
    output = capsys.readouterr().out
    assert output.startswith("stands  update is not finite since step 4 (actor/grad_norm nan, 1 of 4 values)")
    assert output.endswith("4 steps, the last is 4: 1 signal\n")


def test_the_exit_code_counts_what_came_and_went_by_its_share(tmp_path, capsys):
    path, sound, lost = tmp_path / "metrics.jsonl", {"actor/grad_norm": 0.5}, {"actor/grad_norm": None}
    assert main(logged(path, [lost, sound] * 30)) == 1
    assert (
        "lost    update is not finite in steps 1 to 59 (actor/grad_norm nan, 30 of 60 values)"
        in capsys.readouterr().out
    )
    assert main(logged(path, [sound] * 30 + [lost] + [sound] * 30)) == 0
    assert "over    update is not finite in step 31 " in capsys.readouterr().out


def test_what_holds_no_metrics_is_wrong_input(tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    for path in ("nowhere", "empty"):
        assert main(["health", str(tmp_path / path)]) == 2
    assert "does not exist" in capsys.readouterr().err
