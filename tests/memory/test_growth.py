"""The wall is announced some steps before it comes, and never of memory that has come to rest."""

import pytest

from verl_trgrpo.memory.growth import ALLOCATED, MEAN_LENGTH, RESERVED, coming_wall


def rows(reserved, allocated=None, length=None):
    steps = []
    for number, size in enumerate(reserved, 1):
        found = {RESERVED: size, ALLOCATED: allocated[number - 1] if allocated else 20.0}
        steps.append((number, found | ({MEAN_LENGTH: length[number - 1]} if length else {})))
    return steps


def test_a_run_that_grows_meets_the_wall_where_its_line_does():
    wall = coming_wall(rows([40 + 0.5 * step for step in range(1, 31)]), 80)
    assert wall.growth == pytest.approx(0.5) and not wall.allocated_grows
    assert wall.step == pytest.approx((wall.room - 40) / 0.5, abs=1.5)
    assert wall.step > 30 and f"near step {wall.step}" in wall.message and "no longer fit" in wall.message


def test_longer_responses_are_named():
    grown = [20 + step for step in range(20)]
    wall = coming_wall(rows([25 + step for step in range(20)], grown, [100 * each for each in grown]), 48)
    assert wall.allocated_grows and "1.4 times as long" in wall.message


@pytest.mark.parametrize(
    "reserved",
    [
        [60.0] * 30, [60 + 0.3 * (step % 3) for step in range(30)], [min(60, 40 + 2 * step) for step in range(40)],
        [70.0 - step for step in range(20)], [40 + 0.01 * step for step in range(30)], [50, 55, 60], [float("nan")] * 20,
        [20.0] * 29 + [60.0],
    ],
    ids=["level", "noise", "at rest", "falls", "far away", "few", "not a number", "one peak"],
)  # fmt: skip
def test_nothing_is_said_of_others(reserved):
    assert coming_wall(rows(reserved), 80) is None


def test_runs_without_the_counter():
    assert coming_wall([(step, {"loss": 1.0}) for step in range(20)], 80) is None
