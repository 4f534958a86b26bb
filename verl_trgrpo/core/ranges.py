"""Numbers in an interval: the one way in which the core checks its parameters."""

from __future__ import annotations

from collections.abc import Mapping


def range_problems(values: Mapping[str, object], ranges: Mapping[str, str]) -> list[str]:
    """Return a complaint for each value that is no number in its interval.

    Args:
        values: by name; names without an interval are not looked at.
        ranges: intervals such as ``(0, 1]`` by name; a round bracket leaves the end out.
    """
    problems = []
    for name, interval in ranges.items():
        if name not in values:
            continue
        value = values[name]
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            problems.append(f"{name}={value!r} is not a number; give one in {interval}")
        elif not _within(value, interval):
            problems.append(f"{name}={value!r} is out of range; give a number in {interval}")
    return problems


def _within(value: float, interval: str) -> bool:
    low, high = (float(end) for end in interval[1:-1].split(","))
    above = value > low if interval[0] == "(" else value >= low
    below = value < high if interval[-1] == ")" else value <= high
    return above and below
