"""The progress of a run where there is no terminal: lines, and the warning of a run that learns nothing."""

import io

from verl_trgrpo.launch.progress import RunProgress
from verl_trgrpo.runs.metrics import Step

EQUAL, NO_ANSWER, REWARD = "critic/equal_groups_frac", "critic/no_answer_frac", "critic/score/mean"
CUT_OFF = "critic/cut_off_frac"


def lines(*records):
    """What is printed after the first line while the steps arrive one by one."""
    stream = io.StringIO()
    progress = RunProgress(total=9, stream=stream)
    steps = [Step(number, record) for number, record in enumerate(records, start=1)]
    for seen in (*range(len(steps) + 1), len(steps)):
        progress.update(steps[:seen])
    progress.close()
    return stream.getvalue().splitlines()[1:]


def test_a_line_per_validation():
    validated = {"val-core/a/acc/mean@1": 0.25, "actor/tr_weight_mean": 1.375, CUT_OFF: 0.125}
    assert lines({REWARD: 0.5}, validated) == ["step 2: val acc 0.250, mean weight 1.375, cut off 12%"]


def test_a_run_that_learns_nothing_says_so_once_after_three_steps():
    nothing, something = {EQUAL: 1.0, REWARD: 0.0}, {EQUAL: 0.5, REWARD: 0.4}
    assert lines(nothing, nothing) == lines(nothing, something, nothing, nothing) == lines({REWARD: 0.0}) == []
    [line] = lines(something, nothing, nothing, nothing, nothing)
    assert line.startswith("warning: in steps 2 to 4") and "preview" in line
    [line] = lines(*[nothing | {NO_ANSWER: 0.75}] * 3)
    assert "75% of the responses had no answer" in line and "cut off" not in line
    [line] = lines(*[nothing | {NO_ANSWER: 0.75, CUT_OFF: 0.5}] * 3)
    assert "50% were cut off" in line
