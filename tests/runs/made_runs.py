"""Make runs, sound and sick, by which verl_trgrpo/runs/health.py is judged.

    python -m tests.runs.made_runs --runs 1000                on even seeds, for tuning, with what was missed
    python -m tests.runs.made_runs --runs 1000 --held-back    on odd seeds, the figures alone

Odd seeds are held back: rows, bounds and engine are changed by what even seeds show, and of the others only the figures are read.

A seed decides length, level, noise, scale, what is logged, and what is odd about a sound run: warm-up, a base model that
rambles, other prompts, a resumed run, a validation of thirty problems, a solved task, single steps that are not finite. Half of
the seeds are sick in one quantity, by one shape, from one step. *Sick* is what a person would see in the curve: what changes
does so by several standard deviations of its noise (`VISIBLE`) and by a factor or share that its row of `SICKNESSES` names, for
a tenth of the run and three steps at least. A weaker change is neither made nor counted.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from verl_trgrpo.runs.health import judge
from verl_trgrpo.runs.metrics import Step

VISIBLE = 5.0
"""Standard deviations of the noise, of a single value, by which the mean of up to nine sick ones differs times their root."""

SCORE, REWARDS, ACC = "critic/score/mean", "critic/rewards/mean", "critic/acc/mean"
GRAD, ENTROPY, LENGTH, CLIP = "actor/grad_norm", "actor/entropy", "response_length/mean", "response_length/clip_ratio"
EQUAL, NO_ANSWER, CUT_OFF = "critic/equal_groups_frac", "critic/no_answer_frac", "critic/cut_off_frac"
KL, PPO_KL, CLIPPED, LR = "actor/kl_loss", "actor/ppo_kl", "actor/pg_clipfrac", "actor/lr"
DIFF, PEARSON, K3 = (
    "training/rollout_probs_diff_mean",
    "training/rollout_actor_probs_pearson_corr",
    "rollout_corr/k3_kl",
)
TIME, MEMORY, TURNS, PROMPT = "timing_s/step", "perf/cpu_memory_used_gb", "num_turns/mean", "prompt_length/mean"


@dataclass
class MadeRun:
    """A run: values by metric, NaN where it was logged as NaN, and None (masked) where it was not logged."""

    numbers: np.ndarray
    columns: dict[str, np.ndarray]
    logged: dict[str, np.ndarray]
    sickness: str = ""
    shape: str = ""
    first: int = 0  # index of the first sick step
    full: int = 0  # index from which the change is complete
    metrics: frozenset[str] = frozenset()

    @property
    def steps(self) -> list[Step]:
        return [
            Step(int(number), {name: float(v[i]) for name, v in self.columns.items() if self.logged[name][i]})
            for i, number in enumerate(self.numbers)
        ]


def _ar(rng, size, sd, memory):
    """Noise, of which a part lasts."""
    noise = rng.normal(0, 1, size)
    for i in range(1, size):
        noise[i] += memory * (noise[i - 1] - noise[i] * 0.3)
    return sd * noise


def make_run(seed: int, sick: bool | None = None) -> MadeRun:
    """Make the run of a seed; half of them are sick."""
    rng = np.random.default_rng(seed)
    sick = bool(rng.random() < 0.5) if sick is None else sick
    for _ in range(200):
        world = _World(rng)
        if not sick:
            return world.finish()
        kind = list(SICKNESSES)[rng.integers(len(SICKNESSES))]
        if world.sicken(kind):
            return world.finish()
    raise AssertionError("no visible sickness was drawn")


class _World:
    """A sound run, and ways to make it sick."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        n = self.n = round(10 ** rng.uniform(1, 3))
        self.t = np.linspace(0, 1, n)
        self.sickness = self.shape = ""
        self.first = self.full = 0
        self.metrics: frozenset[str] = frozenset()
        self.noise: dict[str, float] = {}
        self.columns: dict[str, np.ndarray] = {}
        self.constants: list[tuple[str, np.ndarray, float | None]] = []
        self._accuracy()
        self._policy()
        self._engine()

    def _accuracy(self) -> None:
        rng, t, n = self.rng, self.t, self.n
        start = rng.uniform(0.02, 0.7)
        kind = rng.choice(["learns", "flat", "solved"], p=[0.75, 0.15, 0.1])
        end = {"learns": start + (1 - start) * rng.uniform(0.1, 0.8), "flat": start, "solved": rng.uniform(0.97, 1.0)}[
            kind
        ]
        self.solved = kind == "solved"
        rate = rng.uniform(1.5, 8)
        self.accuracy = start + (end - start) * (1 - np.exp(-rate * t)) / (1 - np.exp(-rate))
        self.rambles = n >= 12 and rng.random() < 0.12
        if self.rambles:
            self.ramble = np.exp(-np.arange(n) / rng.uniform(1, max(2, n / 15)))
            self.accuracy = self.accuracy * (1 - 0.9 * self.ramble)
        self.validation = self.accuracy.copy()
        self.curriculum = n >= 15 and rng.random() < 0.12
        self.change = int(rng.uniform(0.3, 0.8) * n)
        if self.curriculum:
            self.accuracy = np.where(np.arange(n) < self.change, self.accuracy, self.accuracy * rng.uniform(0.4, 0.75))
        self.batch = int(2 ** rng.integers(5, 11))
        self.low, self.high = [(0.0, 1.0), (-1.0, 1.0), (-3.0, 3.0), (0.0, 100.0), (0.1, 1.1), (-1.0, 0.0)][
            rng.integers(6)
        ]

    def _policy(self) -> None:
        rng, t, n, put = self.rng, self.t, self.n, self._put
        put(GRAD, 10 ** rng.uniform(-3, 0.7) * np.exp(rng.normal(0, 0.4) * t), rng.uniform(0.05, 0.4))
        spikes = rng.random(n) < 0.004
        self.columns[GRAD] = np.where(spikes, self.columns[GRAD] * rng.uniform(3, 20), self.columns[GRAD])
        put(
            ENTROPY,
            10 ** rng.uniform(-1.2, 0.2) * np.exp(rng.uniform(-2.2, 0.4) * (1 - np.exp(-3 * t))),
            rng.uniform(0.02, 0.15),
        )
        length, limit = 10 ** rng.uniform(1.7, 3.8), 0.0
        lengths = length * np.exp(rng.uniform(-0.7, 0.9) * t)
        limit = float(lengths.max() * rng.uniform(1.5, 6))
        clipped = np.clip((lengths / limit) ** 3 * rng.uniform(0, 0.6), 0, 0.25)
        if self.rambles:
            lengths = lengths + (0.97 * limit - lengths) * self.ramble
            clipped = clipped + (0.97 - clipped) * self.ramble
        self.limit = limit
        put(LENGTH, lengths, rng.uniform(0.01, 0.1))
        put(CLIP, clipped, 0, share=True)
        self.columns[CUT_OFF] = self.columns[CLIP].copy()
        put(KL, 10 ** rng.uniform(-2.5, -0.7) * t + 1e-4, rng.uniform(0.05, 0.3))
        self.columns[PPO_KL] = rng.normal(0, 10 ** rng.uniform(-4, -2.6), n)
        put(CLIPPED, 10 ** rng.uniform(-3.5, -1), 0.4)
        put(DIFF, 10 ** rng.uniform(-3.7, -2.2) * np.exp(rng.uniform(-0.2, 0.5) * t), rng.uniform(0.02, 0.15))
        self.columns[PEARSON] = 1 - 10 ** rng.uniform(-4, -2.3) * np.exp(rng.normal(0, 0.2, n))
        put(K3, 10 ** rng.uniform(-5, -2.8) * np.exp(rng.uniform(-0.2, 0.5) * t), rng.uniform(0.05, 0.3))
        put(NO_ANSWER, rng.uniform(0, 0.4) * np.exp(-5 * t) + (0.6 * self.ramble if self.rambles else 0), 0, share=True)

    def _engine(self) -> None:
        rng, t, n, put = self.rng, self.t, self.n, self._put
        warm = int(rng.choice([0, 0, 1, min(10, n // 4)]))
        rate = 10 ** rng.uniform(-6.5, -4.5) * np.ones(n)
        if rng.random() < 0.3:
            rate = rate * (0.5 * (1 + np.cos(np.pi * t * 0.999)))
        self.columns[LR] = rate * np.minimum(1, np.arange(n) / warm if warm else 1)
        growth = self.columns[LENGTH] / self.columns[LENGTH][0]
        put(TIME, 10 ** rng.uniform(0.7, 3) * growth ** rng.uniform(0.3, 1.2), rng.uniform(0.02, 0.2))
        self.columns[TIME][0] *= rng.uniform(1, 3)
        if rng.random() < 0.5:  # with validation and checkpoint
            self.columns[TIME][:: rng.integers(4, 20)] *= rng.uniform(1, 6)
        if rng.random() < 0.2:  # the machine is shared for a while
            start = rng.integers(n)
            self.columns[TIME][start : start + n // 4] *= rng.uniform(1, 1.5)
        put(MEMORY, 10 ** rng.uniform(1, 2.5) * (1 + rng.uniform(0, 0.2) * (1 - np.exp(-8 * t))), 0.01)
        put(TURNS, rng.uniform(2, 8) * np.exp(rng.uniform(-0.2, 0.3) * t), 0.03)
        put(PROMPT, 10 ** rng.uniform(1.7, 3), rng.uniform(0.01, 0.05))
        self.traces = rng.random() < 0.6  # other prompts have another length
        if self.curriculum and self.traces:
            self.columns[PROMPT][self.change :] *= rng.choice([0.7, 1.3, 1.8])

    def _put(self, name, level, noise, share=False) -> None:
        """Add a metric: a level with lognormal noise, or a share with that of a batch."""
        level = np.broadcast_to(level, (self.n,)).astype(float)
        if share:
            self.columns[name] = self.rng.binomial(self.batch, np.clip(level, 0, 1)) / self.batch
        else:
            self.columns[name] = level * np.exp(_ar(self.rng, self.n, noise, 0.5))
            self.noise[name] = noise

    def finish(self) -> MadeRun:
        """Draw rewards and validations of the accuracy, choose what is logged, and what is not finite for a step."""
        rng, n = self.rng, self.n
        difficulty = _ar(rng, n, rng.uniform(0, 0.03), 0.6)
        inside = np.clip(self.accuracy + difficulty * (4 * self.accuracy * (1 - self.accuracy)), 0, 1)
        groups = max(4, self.batch // 8)
        drawn = np.clip(inside + rng.normal(0, 1, n) * np.sqrt(inside * (1 - inside) * 0.6 / groups), 0, 1)
        drawn = np.round(drawn * self.batch) / self.batch
        columns, logged = dict(self.columns), {}
        columns[ACC] = drawn
        columns[SCORE] = self.low + (self.high - self.low) * drawn
        columns["critic/score/max"] = np.where(drawn > 0, self.high, self.low)
        columns["critic/score/min"] = np.where(drawn < 1, self.low, self.high)
        columns[REWARDS] = columns[SCORE]
        columns.setdefault(EQUAL, np.clip(drawn**8 + (1 - drawn) ** 8 + rng.normal(0, 0.03, n), 0, 1))
        for name, w, value in self.constants:
            source = columns.setdefault(name, rng.normal(0, 0.01, n))
            columns[name] = np.where(w > 0, source[self.first] if value is None else value, source)
        families = [
            [ACC],
            [GRAD, "actor/pg_loss"],
            [ENTROPY],
            [LENGTH, CLIP],
            [EQUAL, NO_ANSWER, CUT_OFF],
            [KL],
            [PPO_KL, CLIPPED],
            [LR],
            [DIFF, PEARSON],
            [K3],
            [TIME],
            [MEMORY],
            [TURNS],
            [PROMPT],
            [REWARDS],
            ["critic/score/max", "critic/score/min"],
        ]
        for family in families:
            absent = rng.random() < (0.8 if family == [TURNS] else 0.3) and not self.metrics & set(family)
            if family == [PROMPT] and self.curriculum:
                absent = False
            for name in family:
                if name in columns:
                    logged[name] = np.full(n, not absent)
        logged[SCORE] = np.full(n, True)
        self._validate(columns, logged)
        if n > 20 and rng.random() < 0.15:  # a single step that is not finite
            name = [GRAD, KL, ENTROPY, K3][rng.integers(4)]
            columns[name] = columns[name].copy()
            columns[name][rng.integers(n - 1)] = math.nan
        numbers = np.arange(1, n + 1)
        if n > 20 and rng.random() < 0.15:  # steps that were lost in a restart
            numbers = numbers + np.where(numbers > rng.integers(n), rng.integers(1, 5), 0)
        return MadeRun(numbers, columns, logged, self.sickness, self.shape, self.first, self.full, self.metrics)

    def _validate(self, columns, logged) -> None:
        rng, n = self.rng, self.n
        every = max(1, int(n / rng.integers(4, 25)))
        wanted = self.sickness.startswith("validation") or (self.curriculum and not self.traces)
        if not wanted and rng.random() < 0.25:
            return
        when = np.zeros(n, dtype=bool)
        when[every - 1 :: every] = True
        when[-1] = True
        kind = rng.choice(["acc", "acc", "reward"])
        for number, (name, factor) in enumerate(self.sources.items() if hasattr(self, "sources") else self._sources()):
            problems, samples = int(rng.choice([30, 100, 256, 500, 1319])), int(rng.choice([1, 1, 4, 16]))
            if number == 0 and self.sickness.startswith("validation"):
                problems, samples = self.problems
            level = np.clip(self.validation * factor, 0, 1)
            if number == 0 and hasattr(self, "fallen"):
                level = level * self.fallen
            metric = f"val-core/{name}/{kind}/mean@{samples}"
            columns[metric] = rng.binomial(problems * samples, level) / (problems * samples)
            logged[metric] = when
            if number == 0 and self.sickness.startswith("validation"):
                self.metrics = frozenset({metric})

    def _sources(self):
        count = int(self.rng.choice([1, 1, 2, 4]))
        return [
            (("math", "aime24", "gsm8k", "kk_3ppl")[i], max(self.solved, self.rng.uniform(0.4, 1.1)) if i else 1.0)
            for i in range(count)
        ]

    # Sickness

    def when(self, shapes: str) -> np.ndarray:
        """Draw shape, first step and length; return how sick each step is, from 0 to 1."""
        rng, n = self.rng, self.n
        least = max(3, math.ceil(0.1 * n))
        self.shape = str(rng.choice(shapes.split()))
        self.first = int(rng.integers(max(4, n // 8), max(5, n - least))) if n - least > 4 else 4
        i, w = np.arange(n), np.zeros(n)
        self.full = self.first
        if self.shape in ("step", "always"):
            w[self.first :] = 1
        elif self.shape in ("ramp", "drift"):
            room = n - self.first
            self.full = self.first + max(1, int(room * (rng.uniform(0.1, 0.6) if self.shape == "ramp" else 0.9)))
            w = np.clip((i - self.first) / (self.full - self.first), 0, 1)
        elif self.shape == "spikes":
            w[self.first :] = rng.random(n - self.first) < rng.uniform(0.25, 0.6)
        elif self.shape == "oscillates":
            period = int(rng.integers(2, max(3, min(20, (n - self.first) // 2 + 1))))
            w[self.first :] = (np.arange(n - self.first) // max(1, period // 2)) % 2 == 0
        elif self.shape == "passes":
            w[self.first : self.first + max(least + 2, int(rng.uniform(0.15, 0.4) * n))] = 1
        if not w.any():
            return w
        self.first = int(np.flatnonzero(w)[0]) if self.shape in ("spikes", "oscillates") else self.first
        return w

    def visible(self, change: float, noise: float, w: np.ndarray) -> bool:
        """Tell whether the change stands out from the noise in the steps where it is nearly complete."""
        count = int((w > 0.7).sum())
        return count >= max(3, 0.1 * self.n) and abs(change) * math.sqrt(min(count, 9)) >= VISIBLE * 2 * max(
            noise, 1e-9
        )

    def sicken(self, kind: str) -> bool:
        """Make the run sick in one way; return False if that would not be seen."""
        self.sickness = kind
        if self.rambles and kind.startswith(("answers", "nothing", "reward")):
            return False
        return SICKNESSES[kind](self)


def _scaled(
    metric: str,
    low: float,
    high: float,
    shapes: str,
    *,
    collapse: float = 0.0,
    at_least: float = 0.0,
    at_most: float = 1e9,
):
    """A sickness that multiplies a metric by a factor drawn between two, and lowers the accuracy or stops its rise."""

    def sicken(world: _World) -> bool:
        w = world.when(shapes)
        factor = math.exp(world.rng.uniform(math.log(low), math.log(high)))
        values, worse = world.columns[metric], max if low > 1 else min
        level = worse(float(np.median(values[:5])), float(np.median(values[: max(2, world.first)][-9:])))
        noise = world.noise.get(metric, 0.3)
        if not at_least <= level * factor <= at_most or not world.visible(math.log(factor), noise, w):
            return False
        before = world.columns[metric]
        # The change is against the start; what a sound run had done in between is undone with it.
        changed = np.log(level * factor) + np.log(before / np.median(before))
        world.columns[metric] = np.exp(np.log(before) * (1 - w) + w * changed)
        world.stall(w, collapse)
        world.metrics = frozenset({metric})
        return True

    return sicken


def _stall(self: _World, w: np.ndarray, collapse: float) -> None:
    """Stop the rise of the accuracy where the run is sick, and lower it by a share."""
    for name in ("accuracy", "validation"):
        curve = getattr(self, name)
        stopped = np.where(np.arange(self.n) < self.first, curve, np.minimum(curve, curve[max(0, self.first - 1)]))
        setattr(self, name, stopped * (1 - collapse * w * self.rng.uniform(0.3, 1)))


_World.stall = _stall


def _reward(low: float, high: float, shapes: str, sides: str = "both"):
    def sicken(world: _World) -> bool:
        w, size = world.when(shapes), world.rng.uniform(low, high)
        reached = world.accuracy[max(0, world.first - 1)]
        noise = math.sqrt(max(reached * (1 - reached), 0.05) / max(4, world.batch // 8)) + 0.02
        if world.curriculum or reached < 0.15 or not world.visible(size * reached, noise, w):
            return False
        world.stall(w, 0.0)
        world.accuracy = world.accuracy * (1 - size * w)
        if sides == "both":
            world.validation = world.validation * (1 - size * w)
        world.metrics = frozenset({SCORE, REWARDS, ACC})
        return True

    return sicken


def _validation(world: _World) -> bool:
    w, size = world.when("step ramp"), world.rng.uniform(0.4, 1.0)
    world.problems = (int(world.rng.choice([100, 256, 500, 1319])), int(world.rng.choice([1, 4])))
    reached = world.validation[max(0, world.first - 1)]
    noise = math.sqrt(reached * (1 - reached) / math.prod(world.problems))
    lasts = world.n >= 20 and world.first >= world.n / 3 and (w > 0.7).sum() >= 0.35 * world.n
    if not lasts or reached < 0.15 or size * reached < 5 * noise:
        return False
    world.fallen = 1 - size * w
    keep = np.where(np.arange(world.n) < world.first, world.validation, world.validation[world.first])
    world.validation = keep
    world.metrics = frozenset({"val-core"})
    return True


def _constant(metrics: tuple[str, ...], value: float | None, shapes: str, stall: bool = True):
    """A sickness that sets metrics to a value, or leaves them where they are (None)."""

    def sicken(world: _World) -> bool:
        w = world.when(shapes)
        share = 0.1 if value is not None and math.isnan(value) else 0.2
        if (w > 0).sum() < max(8 if value is None else 3, share * world.n):
            return False
        if stall:
            world.stall(w, 0.0)
            if world.accuracy[-1] > 0.85:
                return False
        world.constants = [(metric, w, value) for metric in metrics]
        world.metrics = frozenset(metrics)
        return True

    return sicken


def _share(metric: str, low: float, high: float, shapes: str, collapse: float):
    def sicken(world: _World) -> bool:
        w, size = world.when(shapes), world.rng.uniform(low, high)
        before = world.columns.get(metric, np.full(world.n, 0.3))
        seen = world.visible(size - np.median(before), 0.5 / math.sqrt(world.batch), w)
        if world.rambles or world.accuracy[max(0, world.first - 1)] > 0.8 or not seen:
            return False
        noisy = np.clip(size + world.rng.normal(0, 0.02, world.n), 0, 1)
        world.columns[metric] = before * (1 - w) + np.maximum(before, noisy) * w
        world.stall(w, collapse)
        world.metrics = frozenset({metric} | ({CLIP, CUT_OFF} if metric == CLIP else set()))
        if metric == CLIP:
            world.columns[CUT_OFF] = world.columns[CLIP]
        return True

    return sicken


def _pearson(world: _World) -> bool:
    w = world.when("step ramp drift")
    far = 10 ** world.rng.uniform(-1.2, -0.2)
    if far < 8 * np.median(1 - world.columns[PEARSON]) or not world.visible(2, 0.2, w):
        return False
    world.columns[PEARSON] = 1 - np.exp(np.log(1 - world.columns[PEARSON]) * (1 - w) + np.log(far) * w)
    world.metrics = frozenset({PEARSON})
    return True


_NAN = "step spikes oscillates passes"
SICKNESSES: dict[str, Callable[[_World], bool]] = {
    "reward falls": _reward(0.45, 0.9, "step ramp drift passes"),
    "reward to 0": _reward(1.0, 1.0, "step ramp oscillates passes"),
    "reward falls, nothing validated": _reward(0.5, 1.0, "step ramp drift"),
    "validation falls": _validation,
    "gradient explodes": _scaled(GRAD, 20, 1e4, "step ramp spikes drift passes", collapse=0.3),
    "gradient is 0": _constant((GRAD,), 0.0, "step passes"),
    "updates are NaN": _constant((GRAD, "actor/pg_loss"), math.nan, _NAN),
    "KL is NaN": _constant((KL,), math.nan, _NAN, stall=False),
    "entropy is NaN": _constant((ENTROPY,), math.nan, _NAN, stall=False),
    "reward is NaN": _constant((SCORE, REWARDS), math.nan, _NAN),
    "learning rate is 0": _constant((LR,), 0.0, "step"),
    "gradient freezes": _constant((GRAD,), None, "step"),
    "entropy freezes": _constant((ENTROPY,), None, "step"),
    "reward freezes": _constant((SCORE, REWARDS), None, "step"),
    "entropy explodes": _scaled(ENTROPY, 5, 30, "step ramp drift", collapse=0.4, at_least=0.4),
    "entropy collapses": _scaled(ENTROPY, 0.001, 0.02, "step ramp drift", at_most=0.02),
    "KL explodes": _scaled(KL, 50, 1e4, "step ramp", collapse=0.3, at_least=1.0),
    "policies part": _scaled(CLIPPED, 5, 500, "step ramp", collapse=0.2, at_least=0.4, at_most=0.9),
    "rollout drifts": _scaled(DIFF, 6, 60, "step ramp drift", at_least=0.02, at_most=0.9),
    "rollout parts": _pearson,
    "rollout KL": _scaled(K3, 20, 2000, "step ramp drift", at_least=0.06),
    "answers vanish": _scaled(LENGTH, 0.01, 0.1, "step ramp drift", collapse=0.3),
    "answers are cut off": _share(CLIP, 0.6, 1.0, "step ramp drift", 0.5),
    "nothing is answered": _share(NO_ANSWER, 0.6, 1.0, "step ramp drift", 0.5),
    "groups are equal": _share(EQUAL, 0.97, 1.0, "step ramp", 0.0),
    "steps take longer": _scaled(TIME, 3.5, 20, "step ramp drift passes"),
    "memory grows": _scaled(MEMORY, 2.5, 6, "ramp drift"),
    "tools vanish": _scaled(TURNS, 0.1, 0.35, "step ramp", collapse=0.3),
}  # fmt: skip


@dataclass
class Figures:
    """Of many runs: how many sick ones are named, by the right quantity and step, and how many sound ones are flagged."""

    sick: int = 0
    named: int = 0
    quantity: int = 0
    step: int = 0
    sound: int = 0
    flagged: int = 0

    def text(self) -> str:
        named, quantity, step = (part / max(1, self.sick) for part in (self.named, self.quantity, self.step))
        return (
            f"{self.sick} sick: {named:.1%} named, {quantity:.1%} by the right quantity, {step:.1%} also at the right step; "
            f"{self.sound} sound: {self.flagged / max(1, self.sound):.1%} flagged; "
            f"precision {self.named / max(1, self.named + self.flagged):.1%}"
        )


def score(run: MadeRun, figures: Figures) -> str:
    """Judge a run; return what was wrong about it in a line, "" if nothing."""
    found = [each for each in judge(run.steps) if each.counts]
    if not run.sickness:
        figures.sound += 1
        figures.flagged += bool(found)
        return f"flagged: {found[0].message}" if found else ""
    figures.sick += 1
    figures.named += bool(found)
    right = [each for each in found if each.metric in run.metrics]
    figures.quantity += bool(right)
    n = len(run.numbers)
    early, late = run.numbers[run.first] - max(3, 0.1 * n), run.numbers[min(run.full, n - 1)] + max(5, 0.1 * n)
    near = any(early <= each.first <= late for each in right)
    figures.step += near
    if not found:
        return f"missed: {run.sickness}, {run.shape}, from {run.numbers[run.first]} of {n}"
    what = f"{run.sickness}, {run.shape}, from {run.numbers[run.first]} of {n}; {[(e.metric, e.first) for e in found]}"
    return "" if near else f"{'step' if right else 'quantity'}: {what}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--held-back", action="store_true")
    options = parser.parse_args()
    figures, wrong, of = Figures(), Counter(), Counter()
    for seed in range(int(options.held_back), 2 * options.runs, 2):
        run = make_run(seed)
        of[run.sickness or "sound"] += 1
        if (line := score(run, figures)) and not options.held_back:
            wrong[run.sickness or "sound", line.split(":")[0]] += 1
            print(f"{seed} {line}")
    for (kind, what), count in sorted(wrong.items()):
        print(f"  {what} {kind}: {count} of {of[kind]}")
    print(figures.text())


if __name__ == "__main__":
    main()
