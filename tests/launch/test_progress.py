"""The progress of a run: a line where there is a terminal, lines elsewhere, and the signals of a sick run."""

import contextlib
import fcntl
import io
import os
import pty
import re
import struct
import termios

from verl_trgrpo.launch.progress import RunProgress
from verl_trgrpo.runs.metrics import Step

EQUAL, REWARD, CUT_OFF, WEIGHT = (
    "critic/equal_groups_frac", "critic/score/mean", "critic/cut_off_frac", "actor/tr_weight_mean",
)  # fmt: skip


def steps_of(records):
    return [Step(number, record) for number, record in enumerate(records, start=1)]


def lines(*records, **options):
    """What is printed after the first line while the steps arrive one by one."""
    stream = io.StringIO()
    progress = RunProgress(total=9, stream=stream, **options)
    steps = steps_of(records)
    for seen in (*range(len(steps) + 1), len(steps)):
        progress.update(steps[:seen])
    progress.close()
    return stream.getvalue().splitlines()[1:]


def read_all(terminal):
    """Yield what was written to the other end, which is closed; it may arrive in parts."""
    with contextlib.suppress(OSError):
        while part := os.read(terminal, 100_000):
            yield part.decode()


def test_a_line_per_validation():
    validated = {"val-core/a/acc/mean@1": 0.25, WEIGHT: 1.375, CUT_OFF: 0.125}
    assert lines({REWARD: 0.5}, validated) == [
        "step 2 of 9 (0 min, about 0 min left): val acc 0.250, weight 1.375, cut off 12%"
    ]


def test_without_validation_a_line_when_the_time_has_come():
    assert lines({REWARD: 0.5}, {REWARD: 0.75}, every=0.0) == [
        "step 1 of 9 (0 min): reward 0.50",
        "step 2 of 9 (0 min, about 0 min left): reward 0.75",
    ]
    assert lines({REWARD: 0.5}, {REWARD: 0.75}, every=1e9) == []


def test_a_line_says_how_long_it_took_and_how_long_the_rest_takes():
    stream, now = io.StringIO(), [0.0]
    progress = RunProgress(total=9, stream=stream, every=0.0, clock=lambda: now[0])
    steps = steps_of([{REWARD: 0.5}] * 3)
    for seen, minutes in enumerate((4, 6, 10), start=1):  # the first step comes with the start of the processes
        now[0] = 60.0 * minutes
        progress.update(steps[:seen])
    begins = [line.partition(":")[0] for line in stream.getvalue().splitlines()[1:]]
    assert begins == [
        "step 1 of 9 (4 min)",
        "step 2 of 9 (6 min, about 14 min left)",
        "step 3 of 9 (10 min, about 18 min left)",
    ]


def test_the_name_of_a_metric_does_not_act_on_a_terminal():
    """Names of data sources are in those of metrics."""
    records = [{"val-core/a\x1b]0;x\x07\u202e/acc/mean@1": 0.6 if step < 10 else 0.02} for step in range(60)]
    found = lines(*records)
    assert any(r"\x1b]0;x\x07\u202e" in line for line in found), found
    assert all(line.isprintable() for line in found)


def test_a_signal_is_said_when_it_appears_and_when_it_ends():
    nothing, something = {EQUAL: 1.0, REWARD: 0.0}, {EQUAL: 0.5, REWARD: 0.4}
    assert lines(nothing, nothing) == lines(nothing, something, nothing, nothing) == lines({REWARD: 0.0}) == []
    [line] = lines(*[nothing] * 12)
    assert line.startswith("warning: all groups are equal since step 1 ") and "preview" in line
    first, last = lines(*[nothing] * 12, *[something] * 3)
    assert first == line and last.startswith("note: ended at step 1") and last.endswith(": all groups are equal")


def test_a_step_that_does_not_come_is_said_once():
    """Not before it takes several times as long as the longest, nor in the first half hour."""
    now, stream = [0.0], io.StringIO()
    progress = RunProgress(total=9, stream=stream, every=1e9, clock=lambda: now[0])
    steps = steps_of([{REWARD: 0.5}] * 3)
    for seconds, seen, said in (
        (1799, 0, 0), (1801, 0, 1), (4000, 0, 1), (5000, 1, 1), (6000, 2, 1), (8000, 2, 1), (10900, 2, 1), (11100, 2, 2),
        (99999, 2, 2), (100000, 3, 2), (400000, 3, 2),
    ):  # fmt: skip
        now[0] = seconds
        progress.update(steps[:seen])
        assert stream.getvalue().count("no step") == said, seconds
    assert "no step yet for 30 minutes" in stream.getvalue() and "since step 2 for 85 minutes" in stream.getvalue()


def test_the_line_is_no_wider_than_the_terminal_and_the_start_is_no_step():
    record = {
        REWARD: 0.5,
        "val-core/a/acc/mean@1": 0.25,
        WEIGHT: 1.375,
        "actor/grad_norm": 0.123,
        EQUAL: 0.5,
        CUT_OFF: 0.1,
    }
    for width, shown in ((80, "weight 1.375"), (200, "cut off 10%")):
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
        with os.fdopen(slave, "w") as terminal:
            progress = RunProgress(total=60, stream=terminal)
            progress.update([])
            progress._bar.start_t -= 3600  # the start took an hour
            progress.update(steps_of([record]))
            progress.update(steps_of([record] * 2))
            progress.close()
        text = "".join(read_all(master))
        os.close(master)
        drawn = [re.sub(r"\x1b\[[0-9;]*[A-Z]", "", line) for line in re.split(r"[\r\n]+", text)]
        assert max(map(len, drawn)) <= width, drawn
        assert any("starting" in line for line in drawn) and drawn[-2].rstrip().endswith(shown), drawn
        assert not any("1:00:" in line for line in drawn[-2:]), drawn
