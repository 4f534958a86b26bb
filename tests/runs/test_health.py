"""Each signal stands where it should, and on no healthy run."""

import json
import math

import pytest

from verl_trgrpo.cli.main import main
from verl_trgrpo.runs.health import ACCURACY, SIGNALS, judge
from verl_trgrpo.runs.metrics import Step

NAN = math.nan
HEALTHY = {
    "critic/score/mean": 0.5, "actor/grad_norm": 0.4, "actor/entropy": 0.3, "response_length/mean": 150.0,
    "response_length/clip_ratio": 0.02, "actor/ppo_kl": 0.001, "actor/kl_loss": 0.05, "actor/reward_kl_penalty": 0.05,
    "actor/pg_clipfrac": 0.01, "actor/lr": 1e-6, "critic/equal_groups_frac": 0.3, "critic/no_answer_frac": 0.05,
    "critic/cut_off_frac": 0.02, "actor/tr_weight_mean": 1.3, "actor/tr_weight_std": 0.15, "actor/tr_zero_grad_frac": 0.01,
    "training/rollout_probs_diff_mean": 0.002,
}  # fmt: skip
VALIDATION = "val-core/math/acc/mean@1"
AT_ONCE = "gradient is not finite"
# Values of the steps: the last makes the signal stand, all but the last do not.
SICK = {
    ("reward is not finite", "critic/score/mean"): [0.5, NAN],
    ("gradient is not finite", "actor/grad_norm"): [0.4, math.inf],
    ("all updates are skipped", "actor/grad_norm"): [0.4, NAN, math.inf, NAN],
    ("gradient is 0", "actor/grad_norm"): [0.4, 0.0, 0.0, 0.0],
    ("gradient explodes", "actor/grad_norm"): [0.4, 0.4, 0.4, 90.0, 1e3, 1e4],
    ("learning rate is 0", "actor/lr"): [0.0, 0.0, 0.0],
    ("all groups are equal", "critic/equal_groups_frac"): [0.85, 1.0, 0.9, 0.95],
    ("nothing is answered", "critic/no_answer_frac"): [0.5, 0.9, 1.0, 1.0],
    ("nearly all are cut off", "critic/cut_off_frac"): [0.6, 0.95, 0.95, 0.95],
    ("nearly all are cut off", "response_length/clip_ratio"): [0.6, 0.95, 0.95, 0.95],
    ("responses have become short", "response_length/mean"): [150, 150, 150, 60, 16, 15, 10],
    ("entropy is near 0", "actor/entropy"): [0.3, 0.1, 0.01, 1e-3, 9e-4, 8e-4],
    ("entropy explodes", "actor/entropy"): [0.3, 0.3, 0.3, 1.7, 2.0, 4.0],
    ("KL explodes", "actor/ppo_kl"): [0.001, 0.1, 0.4, -0.6, 2.0],
    ("KL explodes", "actor/kl_loss"): [0.05, 0.5, 4.0, 6.0, 20.0],
    ("KL explodes", "actor/reward_kl_penalty"): [0.05, 0.5, 4.0, 6.0, 20.0],
    ("rollout and training disagree", "training/rollout_probs_diff_mean"): [0.002, 0.09, 0.12, 0.3],
    ("nearly all tokens are clipped", "actor/pg_clipfrac"): [0.2, 0.5, 0.95, 0.99],
    ("nearly all tokens are clipped", "actor/tr_zero_grad_frac"): [0.2, 0.5, 0.95, 0.99],
    ("weights are all equal", "actor/tr_weight_std"): [0.15, 0.0, 1e-4, 9e-4],
    ("validation has fallen", VALIDATION): [0.2, 0.6, 0.5, 0.31, 0.3, 0.25],
}  # fmt: skip


def steps_with(metric, values):
    return [Step(number, HEALTHY | {metric: value}) for number, value in enumerate(values, start=1)]


def test_every_row_has_a_case():
    assert {(row.name, VALIDATION if row.metric == ACCURACY else row.metric) for row in SIGNALS} == SICK.keys()


@pytest.mark.parametrize("case", SICK, ids=" ".join)
def test_a_signal_stands_when_its_values_have_lasted_and_is_over_when_they_end(case):
    name, metric = case
    steps = steps_with(metric, SICK[case])

    def judged(steps):
        return [found for found in judge(steps) if (name, found.signal.name) != ("all updates are skipped", AT_ONCE)]

    assert judged(steps[:-1]) == []
    [found] = judged(steps)
    assert (found.signal.name, found.stands, found.last) == (name, True, len(steps))
    assert found.message.startswith(name) and found.signal.remedy in found.message
    healed = [*steps, Step(len(steps) + 1, HEALTHY | {VALIDATION: 0.6})]
    [found] = judged(healed)
    assert not found.stands and found.last == len(steps)


def test_in_a_longer_run_a_state_has_to_last_longer_up_to_a_bound():
    metric = "critic/equal_groups_frac"
    assert judge(steps_with(metric, [0.3] * 40 + [1.0] * 9)) == []
    assert judge(steps_with(metric, [0.3] * 400 + [1.0] * 10))[0].stands
    assert judge(steps_with("critic/score/mean", [0.5] * 400 + [NAN]))[0].stands, "at once"


def test_a_healthy_run_and_one_that_logs_little_have_no_signal():
    assert judge(steps_with(VALIDATION, [0.3, 0.5, 0.45, 0.6])) == []
    assert judge([]) == judge([Step(1, {})]) == []


def test_the_uniform_shaping_asks_for_grpo():
    weights = {"actor/tr_weight_mean": 1.0, "actor/tr_weight_std": 0.0}
    assert judge([Step(number, HEALTHY | weights) for number in range(5)]) == []


def test_of_one_name_the_row_that_stands_is_reported():
    values = zip([0.02, 0.02, 0.02, 0.95, 0.95, 0.95], [0.95, 0.95, 0.95, 0.95, 0.02, 0.02], strict=True)
    steps = [
        Step(number, HEALTHY | {"response_length/clip_ratio": clipped, "critic/cut_off_frac": cut})
        for number, (clipped, cut) in enumerate(values)
    ]
    [found] = judge(steps)
    assert found.stands and found.signal.metric == "response_length/clip_ratio"


def test_the_command_judges_a_file_of_verls_logger(tmp_path, capsys):
    path = tmp_path / "metrics.jsonl"
    lines = [json.dumps({"step": step, "data": HEALTHY | {"critic/score/mean": 0.1}}) for step in range(1, 4)]
    path.write_text("\n".join(lines) + "\n")
    assert main(["health", str(path)]) == 0
    assert capsys.readouterr().out == "3 steps, the last is 3: no signals\n"
    # veRL writes NaN as null; the last line is still being written.
    lines.append(json.dumps({"step": 4, "data": HEALTHY | {"critic/score/mean": None}}))
    path.write_text("\n".join(lines) + '\n{"step": 5, "da')
    assert main(["health", str(path)]) == 1
    output = capsys.readouterr().out
    assert output.startswith("stands  reward is not finite (critic/score/mean nan, step 4)") and "1 signal\n" in output


def test_what_holds_no_metrics_is_wrong_input(tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    for path in ("nowhere", "empty"):
        assert main(["health", str(tmp_path / path)]) == 2
    assert "does not exist" in capsys.readouterr().err
