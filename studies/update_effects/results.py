"""Make tables and picture of the effects of one update (run.py) from its records; `make results` calls it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from studies.chains.effects import save_svg
from verl_trgrpo.common.text import markdown_table
from verl_trgrpo.compare.statistics import Estimate, mean_interval
from verl_trgrpo.compare.tables import interval_text

Record = Mapping[str, Any]
Runs = Mapping[str, Sequence[Record]]
KINDS = ("rare right", "rare wrong", "likely right", "likely wrong")
STATES = {"own state": "states of their own", "same state": "the trained arm's state"}
# Steps that count as the beginning of a training.
EARLY = 10
# Thousandths that the picture shows; two settings have far wider intervals than the others.
SHOWN = 2.0


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


def by_seed(records: Sequence[Record], values: Sequence[float]) -> list[float]:
    """Return the means of the values of each seed: both arms are trained from the same start on the same prompts."""
    seeds: dict[int, list[float]] = {}
    for record, value in zip(records, values, strict=True):
        seeds.setdefault(record["seed"], []).append(value)
    return [fmean(own) for own in seeds.values()]


def with_and_without(records: Sequence[Record], pairs: Sequence[tuple[float, float]]) -> tuple[Estimate, Estimate]:
    """Return the figure without weights, and the difference that weights make, over seeds: of pairs as `pair` returns them."""
    plain, change = [plain for _, plain in pairs], [weighted - plain for weighted, plain in pairs]
    return mean_interval(by_seed(records, plain)), mean_interval(by_seed(records, change))


def direction_table(runs: Runs, arms: Sequence[str]) -> str:
    """Return cosines and lengths of gradients and of updates with weights, relative to those without, by the arm that trains."""
    names = {"gradient": "of gradients", "same state": "of updates, same state", "own state": "of updates, own states"}
    columns = [(f"{name} {figure}", figure, about) for figure in ("cosine", "length") for name, about in names.items()]
    rows = []
    for (name, records), arm in itertools.product(runs.items(), arms):
        if own := [one for one in records if one["arm"] == arm]:
            cells = [mean_interval([fmean(one["relations"][key]) for one in own]) for key, _, _ in columns]
            rows.append([name, arm, str(len(own)), *map(interval_text, cells)])
    head = [f"{figure} {about}" if "gradients" in about else about for _, figure, about in columns]
    return markdown_table(rows, ["setting", "arm that trains", "seeds", *head])


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
            rows.append(
                [name, kind, f"{tokens:,}", *(thousandths(one, "+") for one in with_and_without(counted, pairs))]
            )
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
            found = [
                with_and_without(records, [mean_gains(one, arms, state, early) for one in records]) for state in STATES
            ]
            figures = [found[0][0], *(difference for _, difference in found)]
            rows.append([name, phase, *(thousandths(one, "+") for one in figures)])
    head = [f"difference with weights, from {about}" for about in STATES.values()]
    return markdown_table(rows, ["setting", "steps", "change of accuracy without weights", *head])


def title_text(name: str) -> str:
    """Return the name of a setting in words."""
    if name.startswith("chains_"):
        _, fillers, right = name.split("_")
        return f"chains, {fillers} fillers, right {right}"
    return {"tiny_puzzles": "tiny model, puzzles", "small_lm": "SmolLM2-135M"}.get(name, name)


def plot_effects(runs: Runs, arms: Sequence[str], path: Path) -> None:
    """Draw cosines over the steps, and what weights change for each kind of token, into an SVG file."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 5.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    for number, (name, records) in enumerate(runs.items()):
        colour = f"C{number}"
        for key, style in (("gradient cosine", ":"), ("own state cosine", "-")):
            by_step: dict[int, list[float]] = {}
            for one in records:
                for step, value in zip(one["steps"], one["relations"][key], strict=True):
                    by_step.setdefault(step, []).append(value)
            steps = sorted(by_step)
            label = title_text(name) if style == "-" else None
            left.plot(steps, [fmean(by_step[s]) for s in steps], style, color=colour, label=label)
        for place, kind in enumerate(KINDS):
            counted = [one for one in records if f"own {kind}" in one["changes"]]
            if counted:
                pairs = [pair(one, one["changes"][f"own {kind}"], arms, "own state") for one in counted]
                found = mean_interval(by_seed(counted, [1000 * (weighted - plain) for weighted, plain in pairs]))
                low, high = (found.mean if end is None else end for end in (found.low, found.high))
                where = place + 0.1 * (number - (len(runs) - 1) / 2)
                ends = [[found.mean - low], [high - found.mean]]
                right.errorbar(where, found.mean, ends, fmt="o", color=colour, capsize=2)
                if abs(found.mean) > SHOWN:
                    edge = SHOWN if found.mean > 0 else -SHOWN
                    box = {"facecolor": "white", "edgecolor": "none", "pad": 1}
                    right.annotate(f"{found.mean:+.1f}", (where, 0.9 * edge), color=colour, ha="center", bbox=box)
    left.set(
        title="TR-GRPO against GRPO from one batch: cosine\n(dotted: gradients; lines: updates of Adam)",
        xlabel="step",
        ylabel="cosine",
    )
    left.legend(fontsize="small", loc="best")
    right.axhline(0, color="0.6", linewidth=1)
    right.set_ylim(-SHOWN, SHOWN)
    right.set_xticks(range(len(KINDS)), [f"{kind}\ntokens" for kind in KINDS])
    right.set(
        title="change of a token's probability in one update,\nTR-GRPO minus GRPO (long intervals are cut off)",
        ylabel="thousandths",
    )
    save_svg(figure, path)


def by_role(runs: Runs, arms: Sequence[str]) -> str:
    """Return changes of probabilities of the tokens that an update is made from, of all and of each role, from own states."""
    roles = [f"{role} {kind}" for role in ("decision", "filler") for kind in KINDS]
    return change_table(runs, arms, "own state", "own", (*KINDS, *roles))


# By name of the place on the page, called with the records and the arms.
TABLES: dict[str, Callable[[Runs, Sequence[str]], str]] = {
    "directions": direction_table,
    "accuracy": accuracy_table,
    "changes": by_role,
    "same_state": partial(change_table, state="same state", half="own"),
    "other_half": partial(change_table, state="own state", half="other"),
}
