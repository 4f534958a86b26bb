"""Each row of the table on either side of its change; runs that are made and runs that were reported; the command."""

import itertools
import json
import math
import re
import warnings

import numpy as np
import pytest

from tests.runs.growing_runs import AT_START, at_start
from tests.runs.made_runs import Figures, make_run, score
from tests.runs.reported_runs import SICK, SOUND, VAL, Draw, curve, steps_of
from verl_trgrpo.cli.main import main
from verl_trgrpo.runs.alarms import Column
from verl_trgrpo.runs.health import SIGNALS, judge, unjudged
from verl_trgrpo.runs.history import History
from verl_trgrpo.runs.metrics import Step

NAN = math.nan
# Names that veRL 0.9.1 or this package logs; each row has to know one.
NAMES = (
    "critic/score/mean", "critic/rewards/mean", "critic/reward/f1/mean", "critic/equal_groups_frac", "critic/no_answer_frac",
    "critic/cut_off_frac", "prompt_length/clip_ratio", "actor/grad_norm", "actor/lr", "actor/entropy", "actor/kl_loss",
    "actor/ppo_kl", "actor/pg_clipfrac", "actor/pg_loss", "actor/tr_weight_std", "training/rollout_probs_diff_mean",
    "training/rollout_actor_probs_pearson_corr", "rollout_corr/k3_kl", "response_length/mean", "num_turns/mean",
    "response/aborted_ratio", "timing_s/step", "rollout_corr/rollout_is_eff_sample_size", "rollout_corr/rollout_is_mean",
    "perf/cpu_memory_used_gb", "critic/vf_explained_var", "val-core/math/acc/mean@1",
)  # fmt: skip
# Rows of what is sick from the first step alone (AT_START).
STARTS = (
    "learning rate changes nothing", "gradient is far above its bound", "KL is large at the start", "no answer is right",
    "validation and training disagree",
)  # fmt: skip
ROWS = {f"{row.name}, {row.metrics}, {row.unit}": row for row in SIGNALS if row.name not in STARTS}


# What has to happen beside it.
BESIDE = {
    "validation and training part": lambda i: {"critic/score/mean": i / 30},
    "nothing is left to learn": lambda i: {"critic/score/mean": 1.0},
    "steps take longer": lambda i: {"response_length/mean": 300.0},
}
# What veRL computes while it updates; everything else of a step is measured on rollouts of the weights before it.
IN_UPDATE = ("actor/grad_norm", "actor/pg_loss", "actor/ppo_kl", "actor/pg_clipfrac")


def values_of(row, times, length=30):
    """Return values that are sound and then, from step 16 on, change by `times` what the row names."""
    later = np.arange(1, length + 1) > 15
    noise = np.random.default_rng(0).normal(0, 1, length)
    if row.unit == "finite":
        return np.where(later & (times > 1), NAN, 0.5)
    if row.unit == "repeat":
        return np.where(later & (times > 1), 0.5, 0.5 + 0.1 * noise)
    if row.unit == "bound" and row.change < 0:  # of what cannot be negative
        return np.where(later, row.change * times, -row.change)
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
    assert (
        found[0].stands
        and found[0].counts != row.note
        and found[0].is_sick == (found[0].counts and not row.machine)
        and found[0].first in (16, 17)
        and found[0].metric == metric
    )
    assert found[0].message.startswith(f"{row.name} since step ") and "{" not in found[0].remedy
    if "{resume}" in row.remedy:
        back = 1 if metric in IN_UPDATE or metric.startswith("val-") else 2
        resumed = int(re.search(r"/global_step_(\d+) ", found[0].remedy)[1])
        assert resumed == found[0].first - back or (metric.startswith("val-") and resumed < found[0].first)


CHANGES = {name: row for name, row in ROWS.items() if row.unit in ("factor", "distance", "share", "part")}


@pytest.mark.parametrize("row", CHANGES.values(), ids=CHANGES)
def test_two_values_are_enough_for_a_change_far_outside_its_noise(row):
    metric = next(name for name in NAMES if re.fullmatch(row.metrics, name))
    for count in (1, 2):
        values = values_of(row, 0, 60)
        values[-count:] = values_of(row, 2.5, 60)[-count:]
        steps = [
            Step(i, BESIDE.get(row.name, lambda i: {})(i) | {metric: float(value)})
            for i, value in enumerate(values, start=1)
        ]
        found = [each.first for each in judge(steps, [row]) if each.counts]
        assert found == ([59] if count == 2 and row.name != "steps take longer" else [])


@pytest.mark.parametrize("name", [*NAMES, "perf/throughput", "a/metric/of/a/later/version"])
def test_any_metric_is_finite_in_nearly_all_steps(name):
    def found(*broken):
        steps = [Step(i, {name: NAN if i in broken else 0.5 + math.sin(i) / 5}) for i in range(1, 41)]
        return [each for each in judge(steps) if "finite" in each.signal.name]

    assert found() == []
    for step in (20, 40):
        assert [(each.is_sick, each.stands) for each in found(step)] == [(False, False)], "one step"
    [half] = found(*range(1, 41, 2))
    assert "20 of 40 values" in half.message and (half.first, half.stands, half.lost) == (1, True, True)
    assert [(each.first, each.last, each.stands) for each in found(39, 40)] == [(39, 40, True)]


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
    found = [each for each in judge(steps_of(columns, every)) if each.counts and each.metric in metrics.split()]
    assert found and min(abs(each.first - first) for each in found) <= 0.25 * len(columns["actor/lr"])


@pytest.mark.parametrize("habit", SOUND)
def test_what_is_sound_is_left_alone(habit):
    columns, every = SOUND[habit](Draw(0))
    assert [each.message for each in judge(steps_of(columns, every)) if each.counts] == []


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
    assert any(each.is_sick for each in judge(steps_of(columns | context, every)))


@pytest.mark.parametrize("mean", [1.0, 1.3])
def test_equal_weights_are_named_whatever_they_are(mean):
    """A shaping that is meant to be constant logs no spread (tests/verl_plugin/test_policy_loss.py)."""
    weights = {"actor/tr_weight_mean": mean, "actor/tr_weight_std": 0.0}
    assert [each.signal.name for each in judge([Step(i, weights) for i in range(12)])] == ["weights are all equal"]


@pytest.mark.parametrize(
    ("name", "sick", "sound"),
    [
        ("actor/lr", 1e-13, 1e-9),
        ("actor/grad_norm", 9e-9, 2e-8),
        ("rollout_corr/rollout_is_eff_sample_size", 0.04, 0.6),
        ("rollout_corr/rollout_is_mean", 0.02, 0.6),
        ("actor/kl_loss", -8.0, -0.03),
    ],
)
def test_what_is_sick_by_definition_is_so_from_the_first_step(name, sick, sound):
    """Without a sound past: the remedy goes back to no checkpoint."""
    noise = 1 + 0.1 * np.sin(np.arange(40))
    found = [each for each in judge(steps_of({name: sick * noise})) if each.is_sick]
    assert [(each.first, each.metric) for each in found] == [(1, name)] and "global_step" not in found[0].remedy
    assert judge(steps_of({name: sound * noise})) == []


@pytest.mark.parametrize("kind", AT_START)
def test_what_is_sick_from_its_start_is_named_from_there_and_goes_back_to_no_checkpoint(kind):
    run = at_start(7, kind, True)
    found = [each for each in judge(run.steps) if each.is_sick and each.metric in run.metrics]
    first = next(step.number for step in run.steps if kind != "validation 0" or step.accuracy is not None)
    assert found and found[0].first == first and "global_step" not in found[0].remedy
    assert [each.message for each in judge(at_start(7, kind, False).steps) if each.counts] == []


# Sound before step 70, and after it: what the reward, which rises from 0.40 to a level, excuses or not.
QUANTITIES = {
    "num_turns/mean": (5.2, 2.0), "actor/entropy": (0.4, 1.8), "actor/kl_loss": (0.05, 1.5), "response_length/mean": (400, 1900),
    "response_length/clip_ratio": (0.03, 0.5), "critic/no_answer_frac": (0.02, 0.5),
}  # fmt: skip


@pytest.mark.parametrize("reward", [0.40, 0.42, 0.46, 0.75])
@pytest.mark.parametrize("metric", QUANTITIES)
def test_an_alarm_does_not_come_and_go_and_is_excused_by_size(metric, reward):
    draw, n, (before, after) = Draw(3), 140, QUANTITIES[metric]
    level = curve((0, before), (60, before), (70, after), (n - 1, after))
    values = draw.shares(level, 256) if after < 1 else draw.noisy(level)
    columns = draw.usual(n, **{
        metric: values, "critic/score/mean": draw.shares(curve((0, 0.4), (60, 0.4), (70, reward), (n - 1, reward)), 512),
    })  # fmt: skip
    steps, rows = steps_of(columns), [row for row in SIGNALS if re.fullmatch(row.metrics, metric)]
    said = [any(each.is_sick for each in judge(steps[:size], rows)) for size in range(60, n + 1, 4)]
    assert sum(a != b for a, b in itertools.pairwise(said)) <= (1 if reward < 0.7 else 2), (
        "one change of mind: it is named"
    )
    assert said[-1] == (reward < 0.7), metric


@pytest.mark.parametrize("metric", ["actor/grad_norm", "actor/entropy", "actor/kl_loss"])
def test_an_alarm_of_spikes_that_keep_coming_stands(metric):
    """One step in seven is sixty times larger: each run is judged at each of its steps."""
    changes, rows = [], [row for row in SIGNALS if re.fullmatch(row.metrics, metric) and row.unit == "factor"]
    for seed in range(4):
        rng = np.random.default_rng(seed)
        spikes = np.where((rng.random(240) < 0.15) & (np.arange(240) > 60), 60.0, 1.0)
        steps = steps_of({metric: 0.3 * np.exp(rng.normal(0, 0.15, 240)) * spikes})
        stands = [any(found.stands for found in judge(steps[:size], rows)) for size in range(60, 241)]
        assert stands[-1]
        changes.append(sum(a != b for a, b in itertools.pairwise(stands)))
    assert sum(changes) <= 6, changes  # one of each is its beginning


def of_data(seed, cycles, left=1.0):
    """Return a reward that follows the order of the data, and from the middle on is less by a factor."""
    rng, place = np.random.default_rng(seed), np.arange(240)
    level = (0.45 + 0.15 * np.sin(2 * np.pi * cycles * place / 240)) * np.where(place < 120, 1.0, left)
    return rng.binomial(512, level) / 512


@pytest.mark.parametrize("cycles", [3.5, 5.0, 8.0])
@pytest.mark.parametrize("seed", range(3))
def test_a_reward_in_waves_of_the_data_has_not_fallen_until_it_falls_deeper(seed, cycles):
    assert [found.message for found in rewards(of_data(seed, cycles)) if found.counts] == []
    found = [found for found in rewards(of_data(seed, cycles, left=0.35)) if found.stands]
    assert [each.signal.name for each in found] == ["reward has fallen"] and 90 <= found[0].first <= 170


def test_a_reward_that_comes_and_goes_entirely_is_sick():
    level = np.where((np.arange(240) // 30) % 2, 0.0, 0.5)
    assert any(found.counts for found in rewards(np.random.default_rng(0).binomial(512, level) / 512))


def test_what_cannot_fall_is_not_judged():
    """A quantity is either judged or named as one that is not."""
    for lowest, values in {"0": [0.0], "-1": [-1.0]}.items():
        assert f"reward (always {lowest})" in unjudged(steps_of({"critic/score/mean": np.array(values * 40)}))
    assert "validation (always 0)" in unjudged(steps_of({VAL: np.zeros(40)}))
    said = unjudged(steps_of({"critic/score/mean": np.array([0.0] * 39 + [0.1])}))
    assert not any(each.startswith("reward") for each in said)
    assert any(each.startswith("KL (always 0)") for each in unjudged(steps_of({"actor/kl_loss": np.zeros(40)})))


def test_what_is_said_at_a_step_follows_from_the_steps_up_to_it():
    """One pass over a whole run finds the alarms that stand at each of its steps."""
    for seed in (4, 18):
        steps = make_run(seed).steps
        for size in (7, len(steps) // 2, len(steps) - 1):
            whole, part = History(steps).upto(steps[size - 1].number), History(steps[:size])
            for row in SIGNALS[:-2]:
                for name in part.metrics(row.metrics, broken=row.unit == "finite"):
                    stood = [each.sick for each in Column.of(row, name, part).alarms()]
                    assert stood == [each.sick for each in Column.of(row, name, whole).alarms()]


def test_a_rate_that_decays_or_warms_up_is_sound():
    for rates in (np.geomspace(1e-6, 1e-12, 40), np.linspace(1e-13, 1e-10, 40)):
        assert judge(steps_of({"actor/lr": rates})) == []


def messages(columns, every=1):
    return [(each.first, f"{each.message}. {each.remedy}") for each in judge(steps_of(columns, every)) if each.counts]


@pytest.mark.parametrize("part", ["gen", "reward", "ref", "update_actor", "a_later_part"])
@pytest.mark.parametrize("tokens", [1.0, 2.2])
def test_a_step_that_takes_twice_as_long_is_named_by_its_part_unless_tokens_explain_it(part, tokens):
    draw, later = Draw(0), np.arange(100) >= 50
    parts = {f"timing_s/{name}": draw.noisy(np.full(100, 30.0), 0.03) for name in ("gen", "reward", "update_actor")}
    name = f"timing_s/{part}"
    parts[name] = parts.get(name, np.full(100, 1.0)) + np.where(later, 100, 0)
    parts["timing_s/step"] = sum(parts.values())
    length = draw.noisy(np.where(later, tokens, 1.0) * 400, 0.03)
    found = messages(draw.usual(100, **parts, **{"response_length/mean": length}))
    assert [(first, name in text) for first, text in found] == ([(51, True)] if tokens == 1 else [])


def test_what_is_solved_in_training_alone_is_sick():
    columns, every = SOUND["a task is solved"](Draw(0))
    for name, end in {"critic/score/mean": 1.0, "critic/score/min": 1.0, "actor/grad_norm": 0.0}.items():
        columns[name][60:] = end
    [note] = judge(steps_of(columns, every))
    assert note.signal.note and note.stands and not note.is_sick and 50 < note.first <= 61
    found = messages(columns | {VAL: Draw(1).shares(np.full(80, 0.5), 500)}, every)
    assert any(text.startswith("gradient is 0 since") for _, text in found)


def test_what_came_before_a_fall_is_said_and_gone_back_before():
    draw, n = Draw(0), 120
    fallen = {"critic/score/mean": draw.shares(np.where(np.arange(n) < 60, 0.6, 0.2), 512)}
    [(first, text)] = messages(draw.usual(n, **fallen))
    assert first == 61 and "cause" not in text and "/global_step_59 " in text
    spike = draw.noisy(np.full(n, 0.3))
    spike[56:58] = 20.0
    [(first, text)] = messages(draw.usual(n, **fallen, **{"actor/grad_norm": spike}))
    assert "actor/grad_norm of 20 from step 57 on" in text and "/global_step_56 " in text and first == 61
    lost = draw.noisy(np.where(np.arange(n) < 60, np.linspace(0.001, 0.06, n), 0.0005))
    [(_, text)] = messages(draw.usual(n, **fallen, **{"actor/kl_loss": lost}))
    assert "were base weights loaded?" in text and "optim.lr" not in text


def test_a_critic_has_its_own_learning_rate():
    draw, n = Draw(0), 100
    explained = np.where(np.arange(n) < 60, 0.5, -3.0) + draw.rng.normal(0, 0.05, n)
    rates = {"actor/lr": np.full(n, 1e-6), "critic/lr": np.full(n, 1e-5)}
    for metric, values in {
        "critic/vf_explained_var": explained,
        "critic/vf_loss": draw.noisy(np.where(np.arange(n) < 60, 0.1, 5.0)),
    }.items():
        [(first, text)] = messages(draw.usual(n, **rates, **{metric: values}))
        assert first == 61 and "critic.optim.lr=5e-06" in text
    untrained = np.linspace(-3, -0.1, n) + draw.rng.normal(0, 0.05, n)
    assert messages(draw.usual(n, **{"critic/vf_explained_var": untrained})) == []


def test_rollouts_of_an_asynchronous_training_are_of_older_weights():
    draw, n = Draw(0), 100
    columns = draw.usual(n, **{
        "actor/entropy": draw.noisy(np.where(np.arange(n) < 60, 0.4, 4.0)),
        "training/off_policy/trajectory_staleness/max": np.full(n, 3.0),
    })  # fmt: skip
    [(first, text)] = messages(columns)
    assert first == 61 and "/global_step_56 " in text and "trainer.v1.sampler.max_off_policy_threshold=1 " in text


@pytest.mark.parametrize("seed", range(4))
def test_a_jump_begins_where_it_is_and_the_start_is_that_of_the_run(seed):
    draw, later = Draw(seed), np.arange(220) >= 100
    gap = draw.noisy(np.where(later, 0.096, 0.03), 0.07)  # a mixture of experts, whose gap is large from the start
    [(first, text)] = messages(draw.usual(220, **{"training/rollout_probs_diff_mean": gap}))
    assert first == 101 and re.search(r"at the start 0\.0(29|3)\d*, sound to 0\.0165", text)


def rewards(values):
    return judge([Step(i + 1, {"critic/score/mean": float(value)}) for i, value in enumerate(values)])


@pytest.mark.parametrize("noise", [0.0, 0.02])
@pytest.mark.parametrize("sound", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("length", [15, 60, 600])
def test_a_reward_that_falls_early_is_named_from_there_and_stands(sound, length, noise):
    """Whatever the length of a level becomes, what the first steps had reached is not forgotten."""
    level = np.where(np.arange(length) < sound, 0.6, 0.05)
    (found,) = rewards(level + np.random.default_rng(sound).normal(0, noise, length))
    assert (found.first, found.last, found.stands, found.counts) == (sound + 1, length, True, True)
    assert f"since step {sound + 1} " in found.message


@pytest.mark.parametrize("seed", range(6))
def test_a_first_step_that_differs_by_its_noise_alone_is_sound(seed):
    values = np.random.default_rng(seed).binomial(32, 0.3, 100) / 32
    assert rewards([0.55, *values]) == []


@pytest.mark.parametrize("seed", range(6))
def test_a_slow_fall_is_named_where_each_value_is_noisy(seed):
    values = np.random.default_rng(seed).binomial(64, np.linspace(0.4, 0.25, 100)) / 64
    assert [found.signal.name for found in rewards(values) if found.stands] == ["reward has fallen"]


@pytest.mark.parametrize("seed", [800034, 800039])
def test_the_noise_is_that_of_all_values(seed):
    """Of two sound runs with small batches, in which a low stretch is noise."""
    assert judge(make_run(seed).steps) == []


def test_one_validation_is_one_fault():
    draw = Draw(0)
    one, other = (draw.shares(curve((0, 0.5), (60, 0.6), (70, end), (119, end)), 500) for end in (0.1, 0.6))
    columns = draw.usual(120, **{
        VAL: one, VAL.replace("core", "aux").replace("acc", "reward"): one, VAL.replace("math", "code"): other,
        "critic/score/mean": draw.shares(np.linspace(0.3, 0.8, 120), 512),
    })  # fmt: skip
    [(_, text)] = messages(columns, 10)
    assert "/math/" in text and "global_step_60 (the best validation, " in text and "the mean over sources" in text


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
    assert "global_step_30 " in remedies({})[0]


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
    output = capsys.readouterr().out
    assert output.startswith("3 steps, the last is 3: no signals; not judged: learning rate")
    assert "validation (" in output and "calculate_log_probs=True" in output and "only 3 steps" in output
    # veRL writes NaN as null; the last line is still being written.
    lost = sound | {"actor/grad_norm": None}
    assert main(logged(path, [sound] * 3 + [lost] * 2, tail='{"step": 6, "da')) == 1
    output = capsys.readouterr().out
    assert output.startswith("active  update is not finite since step 4 (actor/grad_norm nan, 2 of 5 values)")
    assert output.endswith("5 steps, the last is 5: 1 signal\n")


def test_every_quantity_that_is_absent_is_said():
    """Those that a run without critic, tools and weights does not have are not missed."""
    said, steps = unjudged([Step(1, {"other": 1.0})]), {}
    for row in SIGNALS:
        steps |= {name: 0.5 for name in NAMES if re.fullmatch(row.metrics, name) and row.unit != "finite"}
        logged = {name: 0.5 for name in NAMES if re.fullmatch(row.metrics, name)}
        optional = row.metrics.startswith(("critic/vf_ex", "actor/tr_w", "(num_turns")) or not logged
        assert optional or row.unit == "finite" or set(unjudged([Step(1, logged)])) < set(said), row.metrics
    assert unjudged([Step(1, steps)]) == said[-1:] and "small changes" in said[-1]


def test_what_the_machine_does_is_no_fault_of_the_run(tmp_path, capsys):
    times = [100 + i % 3 for i in range(30)] + [300 + i % 3 for i in range(30)]
    path = tmp_path / "metrics.jsonl"
    assert (
        main(logged(path, [{"timing_s/step": time, "response_length/mean": 300.0 + time % 3} for time in times])) == 0
    )
    output = capsys.readouterr().out
    assert output.startswith("machine  steps take longer since step 31") and "no signals" in output


def test_names_of_another_trainer_are_not_judged(tmp_path, capsys):
    for names in (["foo"], ["grad_norm", "frac_reward_zero_std", "loss"]):
        assert main(logged(tmp_path / "metrics.jsonl", [dict.fromkeys(names, 0.0)] * 50)) == 3
        output = capsys.readouterr().out
        assert "nothing can be judged" in output and names[0] in output and "no signals" not in output
    assert main(logged(tmp_path / "metrics.jsonl", [{"critic/score/mean": 0.4 + i % 3 / 100} for i in range(50)])) == 0
    told = capsys.readouterr().out
    assert all(name in told for name in ("validation", "gradient", "entropy", "length of responses", "time of a step"))


def test_the_exit_code_counts_what_came_and_went_by_its_share(tmp_path, capsys):
    path, sound, lost = tmp_path / "metrics.jsonl", {"actor/grad_norm": 0.5}, {"actor/grad_norm": None}
    assert main(logged(path, [lost, sound] * 30)) == 1
    assert "active  update is not finite since step 1 (actor/grad_norm nan, 30 of 60 values)" in capsys.readouterr().out
    assert main(logged(path, [lost, sound] * 30 + [sound] * 20)) == 1
    assert (
        "lasted  update is not finite in steps 1 to 59 (actor/grad_norm nan, 30 of 80 values)"
        in capsys.readouterr().out
    )
    assert main(logged(path, [sound] * 30 + [lost] + [sound] * 30)) == 0
    output = capsys.readouterr().out
    assert "ended   update is not finite in step 31 " in output and "optim.lr" not in output
    assert main(logged(path, [sound, lost] * 30 + [sound, lost, sound, lost])) == 1
    assert "active  update is not finite since step 2 " in capsys.readouterr().out


def test_the_validation_before_the_first_step_counts_as_none(tmp_path, capsys):
    path = tmp_path / "metrics.jsonl"
    lines = [{"step": i, "data": {VAL: 0.5, "actor/grad_norm": 0.5 + i / 9} if i else {VAL: 0.5}} for i in range(4)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert main(["health", str(path)]) == 0
    output = capsys.readouterr().out
    assert output.startswith("3 steps, the last is 3: no signals") and "validation" not in output


def test_what_holds_no_metrics_is_wrong_input(tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    for path in ("nowhere", "empty"):
        assert main(["health", str(tmp_path / path)]) == 2
    assert "does not exist" in capsys.readouterr().err


def test_all_remedies_resume_from_before_the_first_signal():
    """A later signal's own last sound step lies behind the first fault, where its checkpoint has that fault."""
    rng = np.random.default_rng(0)
    rewards = np.where(np.arange(200) < 122, 0.6, 0.05) + rng.normal(0, 0.01, 200)
    norms = np.where((np.arange(200) >= 119) & (np.arange(200) < 138), 6.0, 0.3) * rng.uniform(0.9, 1.1, 200)
    entropies = np.where(np.arange(200) < 131, 0.5, 0.001) + rng.normal(0, 1e-4, 200)
    rows = zip(rewards, norms, entropies, strict=True)
    steps = [
        Step(i, {"critic/score/mean": reward, "actor/grad_norm": norm, "actor/entropy": entropy})
        for i, (reward, norm, entropy) in enumerate(rows, 1)
    ]
    found = judge(steps)
    named = {re.search(r"global_step_\d+", each.remedy)[0] for each in found}
    assert len(found) == 3 and named == {"global_step_119"}
