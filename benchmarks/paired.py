"""Timing of alternatives against each other: interleaved, so that a noisy machine disturbs all of them alike."""

from __future__ import annotations

import json
import platform
import statistics
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any


def paired_times(candidates: dict[str, Callable[[], Any]], repeats: int, warm_up: int = 2) -> dict[str, list[float]]:
    """Seconds of each call, ``repeats`` rounds of all candidates in turn."""
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for round_number in range(warm_up + repeats):
        for name, candidate in candidates.items():
            start = time.perf_counter()
            candidate()
            elapsed = time.perf_counter() - start
            if round_number >= warm_up:
                times[name].append(elapsed)
    return times


def against(times: dict[str, list[float]], baseline: str) -> dict[str, dict[str, float]]:
    """Median milliseconds, median of the paired ratios to ``baseline``, and the ratios' quartiles."""
    result = {}
    for name, values in times.items():
        ratios = [value / base for value, base in zip(values, times[baseline], strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        result[name] = {
            "median_ms": 1e3 * statistics.median(values),
            "ratio": middle,
            "ratio_quartile_low": low,
            "ratio_quartile_high": high,
        }
    return result


def report(
    title: str, results: dict[str, dict[str, dict[str, float]]], packages: tuple[str, ...], as_json: bool
) -> None:
    """Print a table, or JSON with machine and versions."""
    versions = {name: version(name) for name in packages}
    if as_json:
        machine = {"machine": platform.machine(), "python": platform.python_version()}
        print(json.dumps({"title": title, **machine, "versions": versions, "results": results}, indent=2))
        return
    print(f"{title}  ({', '.join(f'{name} {number}' for name, number in versions.items())})")
    for case, rows in results.items():
        print(f"\n{case}\n{'':24}{'median ms':>11}{'ratio':>8}  quartiles of the ratio")
        for name, row in rows.items():
            quartiles = f"{row['ratio_quartile_low']:.2f} to {row['ratio_quartile_high']:.2f}"
            print(f"{name:24}{row['median_ms']:11.2f}{row['ratio']:8.2f}  {quartiles}")
