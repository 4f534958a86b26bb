"""Judge runs while they grow, and runs that are sick from their first step.

    python -m tests.runs.growing_runs --runs 100                even seeds, with what was wrong
    python -m tests.runs.growing_runs --runs 100 --held-back    odd seeds, the figures alone

Each run of tests/runs/made_runs.py is judged at each of its steps. A *change of mind* is a step whose verdict differs from that
of the step before, beyond the one that names the sickness and, where it passes, the one that ends it.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass, field

import numpy as np

from tests.runs.made_runs import (
    ACC,
    CLIP,
    CUT_OFF,
    ENTROPY,
    GRAD,
    KL,
    LENGTH,
    LR,
    NO_ANSWER,
    SCORE,
    MadeRun,
    make_run,
)
from verl_trgrpo.runs.alarms import Column
from verl_trgrpo.runs.health import judge
from verl_trgrpo.runs.history import ACCURACY, History
from verl_trgrpo.runs.signals import SIGNALS

ABORTED, SAMPLES, IS_MEAN = (
    "response/aborted_ratio",
    "rollout_corr/rollout_is_eff_sample_size",
    "rollout_corr/rollout_is_mean",
)
PROMPTS, FORMAT, VAL = "prompt_length/clip_ratio", "critic/reward/format/mean", "val-core/math/acc/mean@1"


@dataclass
class Growth:
    """What was said of growing runs: changes of mind, steps between full sickness and its name as a share of the run."""

    sick: int = 0
    named: int = 0
    missed: list[str] = field(default_factory=list)
    changes: list[int] = field(default_factory=list)
    delays: list[float] = field(default_factory=list)
    sound: int = 0
    flagged: int = 0
    at_the_end: int = 0
    sound_changes: list[int] = field(default_factory=list)

    def text(self) -> str:
        return (
            f"{self.sick} sick: {self.named} named at some step; changes of mind {np.mean(self.changes or [0]):.2f} per run, "
            f"{np.mean(np.array(self.changes or [0]) > 0):.0%} of runs; delay after onset, median "
            f"{np.median(self.delays or [0]):.1f} and 90th percentile {np.percentile(self.delays or [0], 90):.1f} steps\n"
            f"{self.sound} sound: {self.flagged} flagged at some step, {self.at_the_end} at the end; changes of mind "
            f"{np.mean(self.sound_changes or [0]):.2f} per run"
        )


def said(run: MadeRun, machine: bool) -> list[set[str]]:
    """Return for each step of a run the metrics of which an alarm stands there, by the one pass over all of it.

    tests/runs/test_health.py holds that a pass over the steps up to one says the same of it.
    """
    history, standing = History(run.steps), [set[str]() for _ in run.numbers]
    places = {int(number): place for place, number in enumerate(run.numbers)}
    for signal in SIGNALS:
        names = (
            ()
            if signal.note or (signal.machine and not machine)
            else history.metrics(signal.metrics, signal.unit == "finite")
        )
        for column in (Column.of(signal, name, history) for name in names):
            for alarm in column.alarms():
                begin = alarm.sick[1] if signal.unit == "finite" and len(alarm.sick) > 1 else alarm.raised
                end = len(run.numbers) if alarm.ended is None else places[int(column.numbers[alarm.ended])]
                if signal.unit != "finite" or len(alarm.sick) > 1:
                    for each in standing[places[int(column.numbers[begin])] : end]:
                        each.add(column.metric)
    return standing


def watch(run: MadeRun, growth: Growth) -> str:
    """Judge a run while it grows; return what was wrong in a line, "" if nothing."""
    machine = bool(run.metrics & {"timing_s/step", "perf/cpu_memory_used_gb"})
    named = said(run, machine)
    if not run.sickness:
        flags = [bool(each) for each in named]
        changes = int(np.count_nonzero(np.diff([False, *flags])))
        growth.sound += 1
        growth.flagged += any(flags)
        growth.at_the_end += flags[-1]
        growth.sound_changes.append(changes)
        at = flags.index(True) if any(flags) else 0
        return f"sound, {at} of {len(flags)}, {changes} changes: {sorted(named[at])}" if any(flags) else ""
    right = [bool(each & run.metrics) and place >= run.first for place, each in enumerate(named)]
    changes = max(0, int(np.count_nonzero(np.diff([False, *right]))) - 1 - (run.shape == "passes" and not right[-1]))
    growth.sick += 1
    growth.named += any(right)
    growth.changes.append(changes)
    what = f"{run.sickness}, {run.shape}, from {run.first} (full at {run.full}) of {len(right)}"
    if not any(right):
        return f"missed: {what}"
    delay = right.index(True) - run.first
    growth.delays.append(delay)
    return f"{changes} changes, {delay} late: {what}" if changes or delay > max(10, 0.2 * len(right)) else ""


# By name: the metric, what it is in a run that is sick from its first step, and in one that is sound.
AT_START = {
    "aborted": ({ABORTED: (0.6, 0.95)}, {ABORTED: (0.02, 0.3)}),
    "cut off": ({CLIP: (0.6, 1.0), CUT_OFF: (0.6, 1.0)}, {CLIP: (0.05, 0.3), CUT_OFF: (0.05, 0.3)}),
    "no answer": ({NO_ANSWER: (0.6, 0.95)}, {NO_ANSWER: (0.05, 0.3)}),
    "prompts are cut": ({PROMPTS: (0.6, 0.95)}, {PROMPTS: (0.0, 0.05)}),
    "gradient": ({GRAD: (1e-10, 5e-9)}, {GRAD: (1e-6, 1e-3)}),
    "rate": ({LR: (1e-14, 1e-11)}, {LR: (1e-8, 1e-5)}),
    "validation 0": (
        {VAL: (0.0, 0.0), SCORE: (0.6, 0.8), ACC: (0.6, 0.8)}, {VAL: (0.1, 0.3), SCORE: (0.6, 0.8), ACC: (0.6, 0.8)}),
    "KL negative": ({KL: (-9.0, -1.0)}, {KL: (1e-4, 1e-2)}),
    "samples": ({SAMPLES: (0.01, 0.2)}, {SAMPLES: (0.7, 0.99)}),
    "weights": ({IS_MEAN: (0.01, 0.2)}, {IS_MEAN: (0.8, 1.1)}),
    "format alone": ({FORMAT: (0.2, 1.0), ACC: (0.0, 0.0)}, {FORMAT: (0.2, 1.0), ACC: (0.05, 0.4)}),
    "KL": ({KL: (4.0, 20.0)}, {KL: (1e-3, 0.1)}),
    "gradient is large": ({GRAD: (300.0, 5000.0)}, {GRAD: (0.5, 20.0)}),
}  # fmt: skip
SHOWN_BY = {"validation 0": {ACCURACY}, "format alone": {ACC}}


def at_start(seed: int, kind: str, sick: bool) -> MadeRun:
    """Make a run whose quantity is sick, or sound, from its first step."""
    rng = np.random.default_rng([seed, list(AT_START).index(kind), sick])
    n = int(rng.integers(30, 300))
    t = np.linspace(0, 1, n)
    reward = rng.binomial(256, np.full(n, rng.uniform(0.2, 0.6))) / 256
    columns = {SCORE: reward, GRAD: 0.3 * np.exp(rng.normal(0, 0.2, n)), ENTROPY: 0.4 * np.exp(rng.normal(0, 0.1, n) - t),
               LENGTH: 400 * np.exp(rng.normal(0, 0.05, n)), LR: np.full(n, 1e-6)}  # fmt: skip
    for name, (low, high) in AT_START[kind][not sick].items():
        if name == FORMAT:
            columns[name] = rng.binomial(256, low + (high - low) * t) / 256
            columns[SCORE] = 0.1 * columns[name]
            continue
        level = rng.uniform(low, high) if 0 <= low <= 1 and high <= 1 and low > 1e-3 else 0.0
        if low > 0 and not level:
            level = math.exp(rng.uniform(math.log(low), math.log(high)))
        elif low < 0:
            level = rng.uniform(low, high)
        share = 0 <= level <= 1 and 0.01 <= high <= 1
        columns[name] = rng.binomial(256, level, n) / 256 if share else level * np.exp(rng.normal(0, 0.1, n))
    if kind == "format alone" and not sick:
        columns[SCORE] = columns[SCORE] + columns[ACC]
    every = max(1, n // 10)
    logged = {name: (np.arange(n) % every == every - 1) if name == VAL else np.full(n, True) for name in columns}
    shown = SHOWN_BY.get(kind, set(AT_START[kind][0]))
    return MadeRun(np.arange(1, n + 1), columns, logged, kind if sick else "", "always", 0, 0, frozenset(shown))


def judge_starts(seeds: range, told: bool) -> str:
    """Return how many runs that are sick from their first step are named, rightly, from step 1, and without going back."""
    counts = dict.fromkeys(("sick", "named", "quantity", "from the start", "no checkpoint", "sound", "flagged"), 0)
    for kind in AT_START:
        for seed in seeds:
            run = at_start(seed, kind, True)
            found = [each for each in judge(run.steps) if each.counts]
            right = [each for each in found if each.metric in run.metrics]
            counts["sick"] += 1
            counts["named"] += bool(found)
            counts["quantity"] += bool(right)
            start = (
                int(run.numbers[run.logged[VAL]][0]) if VAL in run.logged else 1
            )  # what is not logged before has its start there
            counts["from the start"] += any(each.first == start for each in right)
            counts["no checkpoint"] += bool(right) and not any("global_step" in each.remedy for each in right)
            if told and not any(each.first == start for each in right):
                print(f"{kind}, {seed}, {len(run.numbers)} steps: {[(each.metric, each.first) for each in found]}")
            counts["sound"] += 1
            flagged = [each for each in judge(at_start(seed, kind, False).steps) if each.counts]
            counts["flagged"] += bool(flagged)
            if told and flagged:
                print(f"{kind}, {seed}: flagged {flagged[0].message}")
    return "sick from the first step: " + ", ".join(f"{value} {name}" for name, value in counts.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--held-back", action="store_true")
    options = parser.parse_args()
    seeds = range(10_000 + options.held_back, 10_000 + options.held_back + 2 * options.runs, 2)
    print(judge_starts(seeds[: max(1, options.runs // 10)], not options.held_back))
    growth = Growth()
    for seed in seeds:
        if (line := watch(make_run(seed), growth)) and not options.held_back:
            print(f"{seed} {line}", flush=True)
    print(growth.text())


if __name__ == "__main__":
    main()
