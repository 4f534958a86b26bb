"""Judge a run by its metrics: a row for each quantity of a sound run (docs/faults.md, "A run that is sick"), and one engine.

A level, the median of the last values, is compared with the quantity's own start or with the best level it had reached. It is
sick if it is worse by more than the change that the row names and by more than its noise; two values are enough if they are
worse by far more. tests/runs/made_runs.py makes the runs by which this is judged.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from verl_trgrpo.runs.history import (
    REWARDS,
    STEP_TIME,
    TIMES,
    VALIDATION,
    Flags,
    History,
    Values,
    levels,
    noise_of,
    sums,
)
from verl_trgrpo.runs.metrics import CUT_OFF_SHARE, EQUAL_GROUPS, MEAN_REWARD, NO_ANSWER, WEIGHT_STD, Step

_LOST, _LOST_STEPS = 0.1, 3  # what came and went counts if it took this share of the steps, and this many
_SURE, _SURE_ALONE, _SURE_TWO = 4.0, 8.0, 10.0  # standard deviations by which a level, a value alone, and two are worse
_START, _LONGEST = 5, 9  # values that make a start, and at least a level; fewer in a short run
_FEWEST = {"finite": 1, "bound": 3, "repeat": 6}  # values that make a level, of units that are compared with no history


@dataclass(frozen=True)
class Signal:
    """A state of a quantity that somebody should look at: one row of the table.

    Args:
        name: in a few words.
        metrics: regular expression of the metrics that show the quantity; each is judged alone.
        means: what the state means.
        remedy: what to do; {resume} are the overrides that go back to a sound step, {slower} sets half of the learning rate.
        unit: of the change: ``factor``, ``distance`` (a factor of the distance from 1) or ``share``, against the start; ``part``
            of what had been reached. Without a change: ``finite``, ``repeat`` (the value before), ``bound``.
        change: smallest one that matters; the bound itself.
        falls: smaller is worse.
        normal: range to which the start is clipped, by the definition of the metric.
        excuses: methods of the run that return by how much larger a change they allow.
        back: steps back to the last weights that are sound. Rollouts of a step show those that the update before it made, so 2;
            1 for what the update of the step itself logs, and for a validation, which follows it.
        note: whether it is said, but nothing is wrong.
        machine: whether it shows the machine and not the learning: it is reported, and the run is not sick.
    """

    name: str
    metrics: str
    means: str
    remedy: str
    unit: str = "factor"
    change: float = 0.0
    falls: bool = False
    normal: tuple[float, float] = (0.0, math.inf)
    excuses: tuple[str, ...] = ()
    back: int = 2
    note: bool = False
    machine: bool = False


@dataclass(frozen=True)
class Observation:
    """A signal that stood in a run, from step `first` to `last` of a metric, of which `facts` say level, start and count.

    `cause` says what came before that explains it. The signal `stands` at the last step that logs the metric; `lost` is one that
    took a share of the run that counts.
    """

    signal: Signal
    metric: str
    first: int
    last: int
    facts: str
    cause: str
    stands: bool
    lost: bool
    remedy: str

    @property
    def rank(self) -> tuple[bool, bool, bool, int]:
        """Return an order of the findings of a signal, the largest of which is reported; a part of a step's time says more."""
        return self.stands, self.lost, "step" not in self.metric, -self.first

    def repeats(self, other: Observation) -> bool:
        """Return whether the other one shows the same fault: from the same step in the same numbers, or in one validation."""
        source, its = (re.sub(_REWARD, MEAN_REWARD, re.sub(_SOURCE, r"\1", each.metric)) for each in (self, other))
        at_once = self.first <= other.last + 1 if self.metric.startswith("val-") else self.first <= other.first + 1
        return source == its and at_once and self.is_sick <= other.is_sick

    @property
    def is_sick(self) -> bool:
        """Return whether somebody should look at it now."""
        return self.counts and not self.signal.machine

    @property
    def counts(self) -> bool:
        """Return whether it is more than a note: a fault of the run or of its machine."""
        return (self.stands or self.lost) and not self.signal.note

    @property
    def steps(self) -> str:
        """Return first and last step in words."""
        return f"step {self.first}" if self.first == self.last else f"steps {self.first} to {self.last}"

    @property
    def message(self) -> str:
        """Return state, steps, values and meaning in one sentence."""
        when = f"since step {self.first}" if self.stands else f"in {self.steps}"
        return f"{self.signal.name} {when} ({self.facts}): {self.signal.means}{self.cause}"


_SCORED = r"critic/(score|rewards?|acc|advantages|returns)/.*|val-.*"
_UPDATED = r"actor/.*|critic/(vf_|grad_norm|vpred|kl).*"
_PARTS = r"critic/(reward/.+|acc)/mean|val-aux/.+/(acc|reward|score|f1|em|format\w*)/mean@\d+"
_SOURCE, _REWARD = r"val-\w+/(.+)/[^/]+/mean@\d+", r"critic/(rewards|acc)/mean"  # whose numbers are another metric's
_READ = "read responses with their rewards: `verl-trgrpo preview`"
_SLOWER = "{slower} {resume}"
# Meaning and remedy of the rows that share them.
_CLIPPED = ("updates are clipped to noise", _SLOWER)
_AWAY = ("the policy runs away from the one it is compared with", _SLOWER)
_APART = ("tokens are sampled from another policy than the one that is trained",
          "compare weights and precision of both, or set algorithm.rollout_correction.rollout_is=token")  # fmt: skip
_CUT = ("rewards then measure the limit", f"{_READ}; if they are right, raise data.max_response_length, or {{resume}}")
_FELL = ("it is below what the run had reached", _SLOWER)

# An element of a gradient below Adam's eps is divided by eps, so its update vanishes with it: a norm below does so for all.
_ADAM_EPS = 1e-8
# Half of the distance between numbers of float32 near 1/64, a usual size of weights: a smaller update is rounded away.
_SPACING = 2.0**-31

_WANTED = {
    "reward": REWARDS,
    "validation (none is logged)": VALIDATION,
    "gradient": r"actor/grad_norm",
    "learning rate": r"actor/lr",
    "entropy": r"actor/entropy(_loss)?",
    "length of responses": r"response_length/mean",
    "responses that are cut off": r"critic/cut_off_frac|response_length/clip_ratio",
    "time of a step": STEP_TIME,
    "rollout against training (actor_rollout_ref.rollout.calculate_log_probs=True)": r"training/rollout_.*|rollout_corr/.*",
}
# Of the rows of one name, that which stands and began first is reported.
SIGNALS = (
    Signal("reward is not finite", _SCORED, "its group teaches nothing", "let the reward function return a number", "finite"),
    Signal("update is not finite", _UPDATED, "veRL skips such an update", _SLOWER, "finite", back=1),
    Signal("metric is not finite", rf"(?!({_SCORED}|{_UPDATED})$).*", "what it is computed from is not, or overflows", _READ,
           "finite"),
    Signal("gradient is 0", r"actor/grad_norm|critic/advantages/max", "advantages are 0, or nothing is trained",
           f"{_READ}; if rewards differ, look at the lora and freeze settings", "bound", _ADAM_EPS, True, excuses=("solved",)),
    Signal("nothing is left to learn", r"actor/grad_norm|critic/advantages/max", "all answers are right, and the gradient is 0",
           "end the run, or choose harder prompts", "bound", _ADAM_EPS, True, excuses=("unsolved",), note=True),
    Signal("learning rate is 0", r"actor/lr", "updates change nothing", "set actor_rollout_ref.actor.optim.lr and its schedule",
           "bound", 0.0, True),
    Signal("learning rate changes nothing", r"actor/lr", "an update is smaller than the spacing of the weights",
           "set actor_rollout_ref.actor.optim.lr=1e-6", "bound", _SPACING, True, excuses=("rate_was_larger",)),
    Signal("importance weights fail", r"rollout_corr/rollout_is_eff_sample_size", "their variance is above their squared mean",
           _APART[1], "bound", 0.5, True),
    Signal("importance weights fail", r"rollout_corr/rollout_is_mean", "their mean is 1 by definition: most of it is cut",
           _APART[1], "bound", 0.5, True),
    Signal("KL is negative", r"actor/(kl_loss|ppo_kl|reward_kl_penalty)|critic/kl|rollout_corr/(kl|k3_kl)",
           "no divergence is: the samples are not of the policy in it",
           "compare the weights and the precision of both policies", "bound", -0.05, True),
    Signal("metric repeats itself", rf"{MEAN_REWARD}|actor/(grad_norm|entropy)", "new samples hardly give exactly the same value",
           f"{_READ}; look whether rollouts and updates still run", "repeat", excuses=("solved",)),
    Signal("all groups are equal", EQUAL_GROUPS, "equal rewards have advantages of 0, so nothing is learned",
           f"{_READ}; if they are right, choose other prompts", "bound", 0.9, excuses=("solved",)),
    Signal("weights are all equal", WEIGHT_STD, "this run is GRPO with a constant factor",
           "choose another shaping (docs/shapings.md), or more updates per batch for one that compares with the old policy",
           "bound", 1e-3, True),
    Signal("gradient explodes", r"(actor|critic)/grad_norm|critic/vf_loss", *_CLIPPED, change=6.0, back=1),
    Signal("loss explodes", r"actor/(pg_)?loss", *_CLIPPED, change=30.0, normal=(0.1, math.inf), back=1),
    Signal("critic is worse than a constant", r"critic/vf_explained_var", "advantages are noise", _SLOWER, "bound", 0.0, True,
           excuses=("critic_learns",)),
    Signal("entropy explodes", r"actor/entropy(_loss)?", "the policy becomes noise", _SLOWER, change=2.5,
           normal=(0.1, math.inf), excuses=("improves",)),
    Signal("entropy is near 0", r"actor/entropy(_loss)?", "responses to a prompt are nearly all alike",
           "actor_rollout_ref.actor.clip_ratio_high=0.28 {resume}", change=40.0, falls=True, excuses=("solved",)),
    Signal("KL explodes", r"actor/(kl_loss|reward_kl_penalty)|critic/kl", *_AWAY, change=10.0, normal=(0.05, math.inf),
           excuses=("improves",)),
    Signal("KL explodes", r"actor/ppo_kl", *_AWAY, change=10.0, normal=(0.005, 0.05), back=1),
    Signal("rollout and training disagree", r"training/rollout_probs_diff_mean", *_APART, change=3.0, normal=(0.005, 0.0165)),
    Signal("rollout and training disagree", r"training/rollout_actor_probs_pearson_corr", *_APART, "distance", 3.0,
           normal=(0.01, 0.033)),
    Signal("rollout and training disagree", r"rollout_corr/(k3_kl|kl|log_ppl_abs_diff)", *_APART, change=8.0,
           normal=(0.005, 0.05)),
    Signal("tokens are clipped", r"actor/(pg_clipfrac|tr_zero_grad_frac)", "clipped tokens have no gradient",
           "look at clip_ratio_low, clip_ratio_high and the updates per batch", "share", 0.3, normal=(0.0, 0.6), back=1),
    Signal("answers are cut off", rf"{CUT_OFF_SHARE}|response_length/clip_ratio", *_CUT, "share", 0.3, normal=(0.0, 0.6),
           excuses=("improves",)),
    Signal("answers become long", r"response_length/mean", *_CUT, change=3.5, excuses=("improves",)),
    Signal("answers vanish", r"response_length/mean", "the reward may pay for bare answers", f"{_READ}; then {{resume}}",
           change=5.0, falls=True, excuses=("improves",)),
    Signal("answers vanish", r"(num_turns|tool_call_counts)/mean", "tools are no longer called", f"{_READ}; then {{resume}}",
           change=2.0, falls=True, excuses=("improves",)),
    Signal("answers vanish", r"response/aborted_ratio", "rollouts end without a response", "look at the log", "share", 0.3),
    Signal("nothing is answered", NO_ANSWER, "the reward finds no answer in the responses", _READ, "share", 0.3,
           normal=(0.0, 0.6), excuses=("improves",)),
    Signal("reward has fallen", REWARDS, *_FELL, "part", 0.22, True, excuses=("harder_prompts",)),
    Signal("validation and training part", VALIDATION, "it falls while the training reward rises", f"{_READ}; then {{resume}}",
           "part", 0.12, True, excuses=("training_stalls",), back=1),
    Signal("validation has fallen", VALIDATION, *_FELL, "part", 0.2, True, back=1),
    Signal("part of the reward has fallen", _PARTS, *_FELL, "part", 0.3, True, excuses=("improves", "harder_prompts")),
    Signal("steps take longer", TIMES, "answers did not grow as much",
           "look at memory, search servers and other jobs of the machine", change=1.7, excuses=("longer",),
           machine=True),
    Signal("memory grows", r"perf/cpu_memory_used_gb", "the run will end without memory", "{resume}", change=1.6, machine=True),
)  # fmt: skip


def judge(steps: Sequence[Step], signals: Sequence[Signal] = SIGNALS) -> list[Observation]:
    """Return the signals that stand or stood in a run so far, of which `steps` are in order; the first to begin is the first."""
    history, most = History(steps), dict[str, Observation]()
    for signal in signals:
        for metric in history.metrics(signal.metrics, broken=signal.unit == "finite"):
            with np.errstate(all="ignore"):  # of values near the largest number
                found = _find(signal, metric, history)
            known = most.get(signal.name)
            if found and (not known or found.rank > known.rank):
                most[signal.name] = found
    faults: list[Observation] = []
    for found in sorted(most.values(), key=lambda found: found.first):
        if not any(found.repeats(other) for other in faults):
            faults.append(found)
    return faults


def is_known(steps: Sequence[Step]) -> bool:
    """Return whether a run logs any metric that a row of the table names."""
    history = History(steps)
    known = (name for signal in SIGNALS if signal.unit != "finite" for name in history.metrics(signal.metrics))
    return any(len(history.column(name)[0]) for name in known)


def unjudged(steps: Sequence[Step]) -> list[str]:
    """Return what cannot be judged in a run, and why."""
    history = History(steps)
    logged = {
        what: any(len(history.column(name)[0]) for name in history.metrics(kind)) for what, kind in _WANTED.items()
    }
    few = [f"small changes (only {len(steps)} steps)"] * (len(steps) < 3 * _START)
    return [what for what, found in logged.items() if not found] + few


def _find(signal: Signal, metric: str, history: History) -> Observation | None:
    """Return what one metric shows of a signal, or None."""
    numbers, values = history.column(metric)
    if signal.metrics == TIMES:
        signal = replace(signal, normal=(history.share_of_step(), math.inf))
    if signal.unit != "finite":
        # What is 0 for a while, such as a gradient, does not explode when it begins.
        usable = np.isfinite(values) & ((values != 0) | (signal.unit != "factor") | signal.falls)
        numbers, values = numbers[usable], values[usable]
    bounded, size, window = signal.unit in _FEWEST, len(values), _FEWEST.get(signal.unit, 2)
    if size < window + (not bounded):
        return None
    if window > 1:
        window = max(window, min(_LONGEST if bounded else _LONGEST + size // 50, size // 5))
    y = _badness(signal, values)
    level = levels(y, window)
    if bounded:
        reference, change = np.full(size, -signal.change if signal.falls else signal.change), np.zeros(size)
        near = y >= reference
        alone = near & (window == 1 or near.mean() >= 0.5)  # an update is lost at once, a state in half of the steps
        stands = sums(near, window) == window
    else:
        reference, change, half = _references(signal, y, level, window, history.worst_reward(metric))
        worse, worse_level = y - reference, level - reference
        noise = noise_of(y, worse >= change, binomial=history.binomial(metric))
        wander = noise_of(level, worse_level >= change, window) if size > 8 * window else 0.0
        near = y >= half
        steady = signal.metrics != TIMES  # of which single ones are those of a validation or a checkpoint
        alone = (worse >= np.maximum(1.5 * change, _SURE_ALONE * noise)) & steady
        sure = _SURE * np.maximum(noise * np.sqrt(2 / np.minimum(np.arange(1, size + 1), window)), wander)
        stands = (worse_level >= np.maximum(change, sure)) & (sums(near, window) > window / 2)
        stands |= (sums(worse >= np.maximum(2 * change, _SURE_TWO * noise), 2) == 2) & steady
    if window > 1 and not stands[-1]:  # a state of the start that ended
        later = np.arange(size) >= np.argmin(near | np.isnan(reference))
        alone, stands = alone & later, stands & later
    sick = alone | (near & (sums(stands[::-1], window)[::-1] > 0))
    lost = bool(sick.sum() >= max(_LOST_STEPS, (_LOST / 2 if window == 1 else _LOST) * size))
    if not stands.any() and not lost:
        return None
    first, last = _ends(sick, near, stands, window)
    calm = np.flatnonzero(~(level - reference >= change / 4)[:first])
    left, began, ended = numbers[calm[-1]] if len(calm) else numbers[0], int(numbers[first]), int(numbers[last])
    excused = max((getattr(history, each)(metric, left, began, ended) for each in signal.excuses), default=1.0)
    if excused > 1.0:
        larger = signal.change**excused if signal.unit in ("factor", "distance") else signal.change * excused
        return _find(replace(signal, change=larger, excuses=()), metric, history) if excused < math.inf else None
    facts = f"{metric} {float(np.median(values[sick][-window:])):.3g}"
    if not bounded:
        facts += _against(signal, numbers, values, level[:first], reference[first])
    cause, sound, remedy = "", began - signal.back - (signal.back > 1) * history.staleness(), signal.remedy
    if signal.unit == "part":
        cause, sound, remedy = history.cause(left, began, sound, remedy)
    return Observation(
        signal, metric, began, ended, f"{facts}, {sick.sum()} of {size} values", cause,
        bool(stands[-1] or (lost and sick[-1])), lost, history.fill(remedy, metric, sound),
    )  # fmt: skip


def _badness(signal: Signal, values: Values) -> Values:
    """Return values on a scale on which more is worse and differences are changes."""
    if signal.unit == "finite":
        return np.where(np.isfinite(values), -1.0, 1.0)
    if signal.unit == "repeat":
        return -np.abs(np.diff(values, prepend=np.inf)) - ((values == 0) | (np.ptp(values) == 0))
    if signal.unit in ("factor", "distance"):
        values = np.log(np.maximum(np.abs(values - (signal.unit == "distance")), 1e-9))
    return -values if signal.falls else values


def _references(signal: Signal, y: Values, level: Values, window: int, worst: float) -> tuple[Values, ...]:
    """Return for each value what it is compared with (NaN: nothing yet), the change that matters, and half of the way to it.

    `worst` is the smallest reward of a response: rewards are parts of what is between it and the best level.
    """
    size, count = len(y), min(_START, max(2, len(y) // 3))
    reference, start = np.full(size, np.nan), float(np.median(y[:count]))
    if signal.unit == "part":
        # One validation may be the best, of many answers; one step may not.
        early = np.arange(size) < max((window - 1) // 2, 0 if signal.metrics == VALIDATION else 2)
        reference[window:] = np.minimum.accumulate(np.where(early, np.inf, level))[: size - window]
        reached = np.fmax(np.maximum(np.abs(reference), start - reference), -worst - reference)
        change = signal.change * reached + 1e-9
        return reference, change, reference + change / 2
    logarithm = signal.unit != "share"
    low, high = (math.log(max(end, 1e-9)) if logarithm else end for end in signal.normal)
    reference[count:] = min(max(start, low), high) if not signal.falls else start
    change = np.full(size, math.log(signal.change) if logarithm else signal.change)
    full = reference + change
    return (
        reference,
        change,
        np.minimum(full, (np.maximum(start, reference) + full) / 2),
    )  # not from below its own start


def _ends(sick: Flags, near: Flags, stands: Flags, window: int) -> tuple[int, int]:
    """Return where the sick values begin and end: of the last stretch of them, or of all if it has not even half of them."""
    where = np.flatnonzero(sick)
    gaps = np.flatnonzero(np.diff(where) > window // 2 + 1)
    first = int(where[gaps[-1] + 1] if len(gaps) and gaps[-1] < len(where) / 2 else where[0])
    while first and near[first - 1]:
        first -= 1
    if stands[first : first + 2 * window].any():  # noise before a jump is near at times: begin where most are
        ahead = np.cumsum(np.where(near[first : first + np.argmax(stands[first:])], 1, -1))
        first += int(np.argmin(ahead) + 1) if (ahead < 0).any() else 0
    return first, int(where[-1])


def _against(signal: Signal, numbers: Values, values: Values, levels: Values, reference: float) -> str:
    """Say what the quantity had been."""
    if signal.unit == "part":
        return f", was {-reference:.3g} at step {numbers[int(np.argmin(np.abs(levels - reference)))]:.0f}"
    start, far = float(np.median(values[: min(_START, max(2, len(values) // 3))])), float(signal.unit == "distance")
    bound = min(max(abs(start - far), signal.normal[0]), signal.normal[1])
    clipped = "" if signal.falls or math.isclose(bound, abs(start - far)) else f", sound to {abs(far - bound):.3g}"
    return f", at the start {start:.3g}{clipped}"
