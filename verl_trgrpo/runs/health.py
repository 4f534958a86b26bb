"""Judge a run by its metrics: one table of signals, each with what it means and what to do.

Bounds come from the definitions of the metrics (not finite, 0) or lie well outside what the recorded runs of docs/results.md
show: there entropy is at least 0.007 and at most 4 times its start, the gradient at most 5.3 times its start, abs(ppo_kl) at
most 0.043, the KL loss at most 0.14, probabilities of rollout and training differ by at most 0.005, responses keep 0.46 of
their length, 0.56 are cut off, and 0.20 of the tokens are clipped. tests/runs/test_health.py has a case for each row.

Why not a package: rldoctor 0.2.0, the closest one, reads these files without adaptation and finds clipped and truncated
runs, collapsed entropy and drift; it is silent on values that are not finite, on a learning rate of 0, equal groups, short
responses, the mismatch of rollout and training, and token weights. The files stay as veRL writes them, so it can be used beside
this.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from verl_trgrpo.runs.metrics import CUT_OFF, EQUAL_GROUPS, GRAD_NORM, NO_ANSWER, REWARD, WEIGHT, Step

ACCURACY = "validation accuracy"
"""Stands for the mean accuracy over data sources, which is no metric of veRL's."""

# Steps of which the mean is the start of a run.
_START = 3
# A state that has to last three steps or more has to last a third of the steps so far, up to this many. Of the 109 recorded runs
# three then have signals: one that its learning rate killed, and two that ended with 10 and 14 steps without a gradient.
_PATIENCE = 10


@dataclass(frozen=True)
class Signal:
    """A state of a run that somebody should look at.

    Args:
        name: in a few words; the same name may stand in several rows, for different metrics.
        metric: name in veRL's log, or ``ACCURACY``.
        sick: whether a value is, given the reference; the reference is NaN before there is one.
        steps: consecutive steps that log the metric for which this has to hold; from 3 on more of them in a longer run.
        means: what the state means.
        remedy: what to do.
        reference: of a value: ``start``, the mean of the first values, or ``best``, the largest so far; None for none.
    """

    name: str
    metric: str
    sick: Callable[[float, float], bool]
    steps: int
    means: str
    remedy: str
    reference: str | None = None


@dataclass(frozen=True)
class Finding:
    """A signal that stood in a run.

    Args:
        signal: the row of the table.
        first: step at which its values began.
        last: last step at which it stood.
        value: at the last step.
        stands: it stands at the last step that logged its metric.
    """

    signal: Signal
    first: int
    last: int
    value: float
    stands: bool

    @property
    def steps(self) -> str:
        """Return first and last step in words."""
        return f"step {self.first}" if self.first == self.last else f"steps {self.first} to {self.last}"

    @property
    def message(self) -> str:
        """Return value, steps, meaning and remedy in one line."""
        value = f"{self.signal.metric} {self.value:.4g}"
        return f"{self.signal.name} ({value}, {self.steps}): {self.signal.means}; {self.signal.remedy}"


def _not_finite(value: float, _: float) -> bool:
    return not math.isfinite(value)


def _zero(value: float, _: float) -> bool:
    return value == 0


def _at_least(bound: float) -> Callable[[float, float], bool]:
    return lambda value, _: value >= bound


def _at_most(bound: float) -> Callable[[float, float], bool]:
    return lambda value, _: value <= bound


_SAMPLES = "read a few responses and their rewards (verl-trgrpo preview)"
_SMALLER = "lower the learning rate or ppo_epochs, and resume from a checkpoint before it"
_KL_MEANS = "the policy runs away from the one it is compared with"

# One row for each signal; the values of the run that it was made for are in the tests.
SIGNALS = (
    Signal("reward is not finite", REWARD, _not_finite, 1, "a reward was NaN or infinite, and its group teaches nothing",
           "correct the reward function, which has to return a finite score for every response"),
    Signal("gradient is not finite", GRAD_NORM, _not_finite, 1, "veRL skips such an update",
           "look for NaN in the rewards, lower the learning rate, or compute in a wider type"),
    Signal("all updates are skipped", GRAD_NORM, _not_finite, 3, "no gradient is finite, so the model stays as it is",
           "look for NaN in the rewards, or resume from a checkpoint before it with a lower learning rate"),
    Signal("gradient is 0", GRAD_NORM, _zero, 3, "nothing is learned: all advantages are 0, or no parameter is trained",
           f"{_SAMPLES}; rewards that are all equal have advantages of 0"),
    Signal("gradient explodes", GRAD_NORM, lambda x, start: max(50 * start, 100.0) <= x < math.inf, 2,
           "updates are clipped to noise", _SMALLER, "start"),
    Signal("learning rate is 0", "actor/lr", _zero, 3, "updates change nothing",
           "set actor_rollout_ref.actor.optim.lr and its warm-up"),
    Signal("all groups are equal", EQUAL_GROUPS, _at_least(0.9), 3, "GRPO learns nothing from a group of equal rewards",
           f"{_SAMPLES}: the prompts may be far too easy or too hard, or the reward may not read the answers"),
    Signal("nothing is answered", NO_ANSWER, _at_least(0.9), 3, "the reward found no answer in nearly all responses",
           "compare a few with the expected form (verl-trgrpo preview), or warm-start the model"),
    Signal("nearly all are cut off", CUT_OFF, _at_least(0.9), 3, "rewards then measure the limit of length",
           "raise data.max_response_length, or penalize long responses"),
    Signal("nearly all are cut off", "response_length/clip_ratio", _at_least(0.9), 3, "rewards then measure the limit of length",
           "raise data.max_response_length, or penalize long responses"),
    Signal("responses have become short", "response_length/mean", lambda x, start: x <= 0.1 * start, 2,
           "at most a tenth of the length at the start", f"{_SAMPLES}: the reward may pay for bare answers", "start"),
    Signal("entropy is near 0", "actor/entropy", _at_most(1e-3), 3, "responses to a prompt are nearly all alike",
           "resume from a checkpoint before it, with a larger clip_ratio_high, an entropy bonus or a lower learning rate"),
    Signal("entropy explodes", "actor/entropy", lambda x, start: x >= max(6 * start, 1.0), 2, "the policy becomes noise",
           f"{_SMALLER}, and a smaller entropy bonus", "start"),
    Signal("KL explodes", "actor/ppo_kl", lambda x, _: abs(x) >= 0.5, 2, _KL_MEANS, _SMALLER),
    Signal("KL explodes", "actor/kl_loss", _at_least(5.0), 2, _KL_MEANS, f"{_SMALLER}, or raise kl_loss_coef"),
    Signal("KL explodes", "actor/reward_kl_penalty", _at_least(5.0), 2, _KL_MEANS, f"{_SMALLER}, or raise kl_ctrl.kl_coef"),
    Signal("rollout and training disagree", "training/rollout_probs_diff_mean", _at_least(0.1), 2,
           "tokens are sampled from another policy than the one that is trained",
           "compare versions, precision and attention of both, or correct it (algorithm.rollout_correction)"),
    Signal("nearly all tokens are clipped", "actor/pg_clipfrac", _at_least(0.9), 2, "hardly a token has a gradient",
           "look at the clip range, at placement=inside, and at the number of updates per batch"),
    Signal("nearly all tokens are clipped", "actor/tr_zero_grad_frac", _at_least(0.9), 2, "hardly a token has a gradient",
           "look at the clip range, at placement=inside, and at the number of updates per batch"),
    Signal("weights are all equal", "actor/tr_weight_std", _at_most(1e-3), 3, "this run is GRPO with a constant factor",
           "another shaping, or a model that is less certain of its tokens, can tell them apart"),
    Signal("validation has fallen", ACCURACY, lambda x, best: x <= best - max(0.1, 0.5 * best), 2,
           "it is far below its best", "stop, and resume from the best checkpoint with a lower learning rate", "best"),
)  # fmt: skip


def judge(steps: Sequence[Step], signals: Iterable[Signal] = SIGNALS) -> list[Finding]:
    """Return the signals that stand or stood in a run, in the order of the table; of one name the first row that did.

    Args:
        steps: of the run so far, in order.
        signals: rows to judge by.
    """
    found: dict[str, Finding] = {}
    for signal in signals:
        finding = _find(signal, steps)
        if finding and (signal.name not in found or (finding.stands and not found[signal.name].stands)):
            found[signal.name] = finding
    return list(found.values())


def _find(signal: Signal, steps: Sequence[Step]) -> Finding | None:
    """Return the last time at which a signal stood; None if it never did."""
    if signal.metric == "actor/tr_weight_std" and _weights_of_one(steps):
        return None
    finding, run, first, seen, reference = None, 0, 0, 0, math.nan
    for step in steps:
        if (value := _value(step, signal.metric)) is None:
            continue
        sick = signal.sick(value, reference)
        run, first = (run + 1, first if run else step.number) if sick else (0, 0)
        seen += 1
        if stands := run >= _patience(signal, seen):
            finding = Finding(signal, first, step.number, value, stands)
        elif finding:
            finding = replace(finding, stands=False)
        reference = _reference(signal, reference, value, seen)
    return finding


def _patience(signal: Signal, seen: int) -> int:
    """Return for how many steps a signal has to hold in a run that has logged its metric `seen` times."""
    return signal.steps if signal.steps < 3 else max(signal.steps, min(_PATIENCE, seen // 3))


def _value(step: Step, metric: str) -> float | None:
    return step.accuracy if metric == ACCURACY else step.metrics.get(metric)


def _reference(signal: Signal, reference: float, value: float, seen: int) -> float:
    """Return the reference of the values behind `value`, the metric's value number `seen`."""
    if signal.reference is None or not math.isfinite(value):
        return reference
    if math.isnan(reference):
        return value
    if signal.reference == "best":
        return max(reference, value)
    return reference + (value - reference) / seen if seen <= _START else reference


def _weights_of_one(steps: Sequence[Step]) -> bool:
    """Return True if every weight is 1: the shaping ``uniform``, which asks for GRPO."""
    return all(step.metrics.get(WEIGHT, 1.0) == 1.0 for step in steps)
