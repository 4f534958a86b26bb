"""Make tables and picture of the effects of one update (run.py) from its records; `make results` calls it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from verl_trgrpo.common.files import replaced_file
from verl_trgrpo.common.text import markdown_table
from verl_trgrpo.compare.statistics import Estimate, mean_interval
from verl_trgrpo.compare.tables import interval_text

Record = Mapping[str, Any]
Runs = Mapping[str, Sequence[Record]]
KINDS = ("rare right", "rare wrong", "likely right", "likely wrong")
STATES = {"own state": "states of their own", "same state": "the trained arm's state"}
# Steps that count as the beginning of a training.
EARLY = 10


def read_runs(path: Path) -> dict[str, list[Record]]:
    """Return the records of each setting."""
    found: dict[str, list[Record]] = {}
    for line in path.read_text().splitlines():
        record = json.loads(line)
        found.setdefault(record["run"], []).append(record)
    return found


def pair(record: Record, figures: Mapping[str, Any], arms: Sequence[str], state: str) -> tuple[Any, Any]:
    """Return the figure of the update with weights and of that without; the other arm's is from `state`."""
    weighted, plain = (figures[arm if arm == record["arm"] else f"{arm}, {state}"] for arm in arms)
    return weighted, plain


def with_and_without(pairs: Sequence[tuple[float, float]]) -> tuple[Estimate, Estimate]:
    """Return the figure without weights, and the difference that weights make, over runs: of pairs as `pair` returns them."""
    return mean_interval([plain for _, plain in pairs]), mean_interval([weighted - plain for weighted, plain in pairs])


def direction_table(runs: Runs) -> str:
    """Return cosines and lengths of gradients and of updates with weights, relative to those without."""
    names = {"gradient": "of gradients", "same state": "of updates, same state", "own state": "of updates, own states"}
    columns = [(f"{name} {figure}", figure, about) for figure in ("cosine", "length") for name, about in names.items()]
    rows = []
    for name, records in runs.items():
        cells = [mean_interval([fmean(one["relations"][key]) for one in records]) for key, _, _ in columns]
        rows.append([name, str(len(records)), *map(interval_text, cells)])
    head = [f"{figure} {about}" if "gradients" in about else about for _, figure, about in columns]
    return markdown_table(rows, ["setting", "runs", *head])


def thousandths(value: Estimate, sign: str = "") -> str:
    """Return an estimate times 1000."""
    ends = [None if end is None else 1000 * end for end in (value.low, value.high)]
    return interval_text(Estimate(1000 * value.mean, *ends), sign)


def change_table(runs: Runs, arms: Sequence[str], state: str, half: str, kinds: Iterable[str] = KINDS) -> str:
    """Return changes of probabilities without weights, and the difference that weights make, by kind of token."""
    rows = []
    for name, records in runs.items():
        for kind in kinds:
            counted = [one for one in records if f"{half} {kind}" in one["changes"]]
            if not counted:
                continue
            changes = [one["changes"][f"{half} {kind}"] for one in counted]
            pairs = [pair(one, found, arms, state) for one, found in zip(counted, changes, strict=True)]
            tokens = sum(found["tokens"] for found in changes)
            rows.append([name, kind, f"{tokens:,}", *(thousandths(one, "+") for one in with_and_without(pairs))])
    return markdown_table(rows, ["setting", "tokens", "number", "change without weights", "difference with weights"])


def mean_gains(record: Record, arms: Sequence[str], state: str, early: bool) -> tuple[float, float]:
    """Return the mean changes of accuracy in an update with and without weights, of early or of later steps."""
    weighted, plain = (
        fmean(gain for step, gain in zip(record["steps"], gains, strict=True) if (step <= EARLY) == early)
        for gains in pair(record, record["accuracy"], arms, state)
    )
    return weighted, plain


def accuracy_table(runs: Runs, arms: Sequence[str]) -> str:
    """Return the exact change of accuracy in one update without weights, and the difference that weights make, in thousandths."""
    rows = []
    for name, records in ((name, records) for name, records in runs.items() if "accuracy" in records[0]):
        for early, phase in ((True, f"1 to {EARLY}"), (False, "later")):
            found = [with_and_without([mean_gains(one, arms, state, early) for one in records]) for state in STATES]
            figures = [found[0][0], *(difference for _, difference in found)]
            rows.append([name, phase, *(thousandths(one, "+") for one in figures)])
    head = [f"difference with weights, from {about}" for about in STATES.values()]
    return markdown_table(rows, ["setting", "steps", "change of accuracy without weights", *head])


def plot_effects(runs: Runs, arms: Sequence[str], path: Path) -> None:
    """Draw cosines over the steps, and what weights change for each kind of token, into a PNG file."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    for number, (name, records) in enumerate(runs.items()):
        colour = f"C{number}"
        for key, style in (("gradient cosine", ":"), ("own state cosine", "-")):
            by_step: dict[int, list[float]] = {}
            for one in records:
                for step, value in zip(one["steps"], one["relations"][key], strict=True):
                    by_step.setdefault(step, []).append(value)
            steps = sorted(by_step)
            left.plot(
                steps, [fmean(by_step[s]) for s in steps], style, color=colour, label=name if style == "-" else None
            )
        for place, kind in enumerate(KINDS):
            counted = [one for one in records if f"own {kind}" in one["changes"]]
            if counted:
                pairs = [pair(one, one["changes"][f"own {kind}"], arms, "own state") for one in counted]
                found = mean_interval([1000 * (weighted - plain) for weighted, plain in pairs])
                low, high = (found.mean if end is None else end for end in (found.low, found.high))
                where = place + 0.1 * (number - (len(runs) - 1) / 2)
                right.errorbar(
                    where, found.mean, [[found.mean - low], [high - found.mean]], fmt="o", color=colour, capsize=2
                )
    left.set(
        title="cosine with and without weights\n(dotted: gradients; lines: updates of Adam)",
        xlabel="step",
        ylabel="cosine",
    )
    left.legend(fontsize="small", loc="best")
    right.axhline(0, color="0.6", linewidth=1)
    right.set_xticks(range(len(KINDS)), KINDS)
    right.set(title="change of probability in one update,\nwith minus without weights", ylabel="thousandths")
    with replaced_file(path) as temporary:
        figure.savefig(temporary, dpi=90, format="png")


def sections(runs: Runs, arms: Sequence[str]) -> tuple[str, list[str]]:
    """Return the block for the page of results, and the parts of the study's own page."""
    directions = direction_table(runs)
    accuracy = accuracy_table(runs, arms)
    parts = ["![effects](update_effects.png)", "## Direction and length", directions]
    parts += ["## Exact change of accuracy in one update, in thousandths", accuracy]
    roles = [f"{role} {kind}" for role in ("decision", "filler") for kind in KINDS]
    for state, about in STATES.items():
        parts += [f"## Changes of probabilities in thousandths, from {about}"]
        parts += ["Tokens that the update is made from:", change_table(runs, arms, state, "own", (*KINDS, *roles))]
        parts += ["Tokens of the other half of the batch:", change_table(runs, arms, state, "other", (*KINDS, *roles))]
    return f"{directions}\n\n{accuracy}", parts
