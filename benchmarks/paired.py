"""Timing of alternatives against each other: interleaved, so that a noisy machine disturbs all of them alike."""

from __future__ import annotations

import json
import platform
import statistics
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
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
    title: str,
    results: dict[str, dict[str, dict[str, float]]],
    packages: tuple[str, ...],
    out: Path | None = None,
    **more: Any,
) -> None:
    """Print a table, and write JSON with machine, versions and what is in ``more`` to ``out``."""
    versions = {name: version(name) for name in packages}
    if out:
        machine = {"machine": platform.machine(), "python": platform.python_version()}
        facts = {"title": title, **machine, "versions": versions, "results": results, **more}
        out.write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    print(f"{title}  ({', '.join(f'{name} {number}' for name, number in versions.items())})")
    for case, rows in results.items():
        memory = any("peak_mb" in row for row in rows.values())
        print(f"\n{case}\n{'':24}{'median ms':>11}{'ratio':>8}  {'quartiles':16}{'peak MB' if memory else ''}")
        for name, row in rows.items():
            quartiles = f"{row['ratio_quartile_low']:.2f} to {row['ratio_quartile_high']:.2f}"
            peak = f"{row['peak_mb']:7.1f}" if "peak_mb" in row else ""
            print(f"{name:24}{row['median_ms']:11.2f}{row['ratio']:8.2f}  {quartiles:16}{peak}".rstrip())
