"""Alternatives against each other: interleaved, so that a noisy machine disturbs all of them alike; and peak memory."""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from itertools import accumulate
from pathlib import Path
from typing import Any

from torch.profiler import ProfilerActivity, profile

Calls = dict[str, Callable[[], Any]]


def parser(description: str | None, repeats: int) -> argparse.ArgumentParser:
    """Return a parser of the options that all comparisons have."""
    found = argparse.ArgumentParser(description=(description or "").split("\n")[0])
    found.add_argument("--repeats", type=_at_least_two, default=repeats, help="rounds, 2 or more")
    found.add_argument("--threads", type=int, default=1)
    found.add_argument("--out", type=Path, help="also write JSON to this file")
    return found


def _at_least_two(text: str) -> int:
    if (number := int(text)) < 2:
        raise argparse.ArgumentTypeError(f"{number} leaves no quartiles; use at least 2")
    return number


def compared(calls: Calls, baseline: str, repeats: int, warm_up: int = 2) -> dict[str, dict[str, float]]:
    """Median milliseconds of a core of each call, the ratio of its least to that of `baseline`, and quartiles of the ratios.

    The quartiles are of ratios in the same round. Processor time and minima, because waiting for other programs is in medians of
    wall time, and at a load of 4 those tell 0.64 from 0.97 no longer.
    """
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(warm_up + repeats):
        for name, call in calls.items():
            start = time.process_time()
            call()
            times[name].append(time.process_time() - start)
    found = {}
    for name, values in times.items():
        ratios = [value / base for value, base in zip(values[warm_up:], times[baseline][warm_up:], strict=True)]
        low, _, high = statistics.quantiles(ratios, n=4)
        found[name] = {
            "median_ms": 1e3 * statistics.median(values[warm_up:]),
            "ratio": min(values[warm_up:]) / min(times[baseline][warm_up:]),
            "ratio_quartile_low": low,
            "ratio_quartile_high": high,
        }
    return found


def peak_of_tensors(call: Callable[[], Any]) -> int:
    """Return the largest number of bytes that a second call holds at once in tensors of its own, on the processor."""
    call()  # what only the first call loads does not count
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        call()
    with tempfile.NamedTemporaryFile(suffix=".json") as trace:
        profiler.export_chrome_trace(trace.name)
        events = json.loads(Path(trace.name).read_text())["traceEvents"]
    changes = sorted((event for event in events if event["name"] == "[memory]"), key=lambda event: event["ts"])
    return max(accumulate(change["args"]["Bytes"] for change in changes), default=0)


def report(title: str, results: dict[str, dict[str, dict[str, float]]], out: Path | None = None, **more: Any) -> None:
    """Print a table, and write JSON with machine, versions and what is in `more` to `out`."""
    versions = {name: version(name) for name in ("torch", "verl")}
    if out:
        machine = {"machine": platform.machine(), "python": platform.python_version()}
        facts = {"title": title, **machine, "versions": versions, "results": results, **more}
        out.write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    print(f"{title}  ({', '.join(f'{name} {number}' for name, number in versions.items())})")
    for case, rows in results.items():
        print(f"\n{case}\n{'':24}{'median ms':>11}{'ratio':>8}  quartiles")
        for name, row in rows.items():
            quartiles = f"{row['ratio_quartile_low']:.2f} to {row['ratio_quartile_high']:.2f}"
            peak = f"{row['peak_mb']:9.1f} MB peak" if "peak_mb" in row else ""
            print(f"{name:24}{row['median_ms']:11.2f}{row['ratio']:8.2f}  {quartiles}{peak}")
