"""Say whether a run fits, and which one setting to turn where it does not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from verl_trgrpo.memory.constants import PLAN, QUARTER
from verl_trgrpo.memory.plan import Phase, Plan
from verl_trgrpo.memory.setup import MicroBatch, Setup
from verl_trgrpo.runs.keys import ACTOR, MODEL, REF, ROLLOUT

FITS, DEPENDS, DOES_NOT, NOT_KNOWN = "fits", "depends on response length", "does not fit", "not known"


@dataclass(frozen=True)
class MemoryVerdict:
    """Whether a run fits.

    Args:
        kind: ``fits``, ``depends on response length``, ``does not fit`` or ``not known``.
        phase: the one that the kind rests on; the one with the largest share, at the allowed length, where a run fits.
        reason: what the kind rests on.
        setting: dotted key and value that make the run fit, alone; "" where there is none or none is needed.
    """

    kind: str
    phase: Phase
    reason: str = ""
    setting: str = ""

    @property
    def line(self) -> str:
        """Return the last line of a plan."""
        more = "; ".join(filter(None, (self.reason, self.setting and f"set {self.setting}")))
        return f"memory plan: {self.kind}" + (f" ({more})" if more else "")


def short_mean(setup: Setup) -> float:
    """Return the mean length of prompt and response where responses are short."""
    return QUARTER.value * setup.longest


def memory_verdict(plan: Plan) -> MemoryVerdict:
    """Return whether a run fits at all lengths, at none, or up to a mean length.

    A phase fits if it does so by more than its error. It fails only beyond the error of the whole plan, because that stops a run.
    In between nothing is claimed. Of phases that fail the first counts: a run does not come further.
    """
    setup = plan.setup
    few, many = ({phase.name: phase for phase in plan.at(mean)} for mean in (short_mean(setup), setup.longest))
    failing = [name for name in many if all(_fails(each[name]) for each in (few, many))]
    if failing:
        first = many[failing[0]]
        settings = filter(None, (remedy(plan, name) for name in failing))
        return MemoryVerdict(DOES_NOT, first, f"{first.name} takes {_percent(first)}", next(settings, ""))
    if crossing := [name for name in many if (few[name].share > 1) != (many[name].share > 1)]:
        breaks = {name: _breaking(plan, name, few[name].share > 1) for name in crossing}
        soonest = min(breaks, key=lambda name: breaks[name])
        beyond = "below" if few[soonest].share > 1 else "above"
        reason = f"{soonest} breaks {beyond} a mean of {breaks[soonest]} tokens of prompt and response"
        return MemoryVerdict(DEPENDS, many[soonest], reason, remedy(plan, soonest) or "")
    close = [phase for each in (few, many) for phase in each.values() if not _holds(phase)]
    if close:
        worst = max(close, key=lambda phase: phase.share)
        reason = f"{worst.name} comes closer to the card's limit than the plan's error"
        return MemoryVerdict(NOT_KNOWN, worst, reason)
    return MemoryVerdict(FITS, max(many.values(), key=lambda phase: phase.share))


def _fails(phase: Phase) -> bool:
    return phase.total - max(phase.error, PLAN.value * phase.limit) > phase.limit


def _holds(phase: Phase) -> bool:
    return phase.total + phase.error <= phase.limit


def _percent(phase: Phase) -> str:
    of = "the engine's share" if phase.name == "cache" else "the card"
    return f"{phase.share:.0%} of {of}" if phase.limit > 0 else "more than there is"


def _breaking(plan: Plan, name: str, falls: bool) -> int:
    """Return the mean length at which a phase takes the whole card, to one token."""
    low, high = short_mean(plan.setup), float(plan.setup.longest)
    while high - low > 1:
        middle = (low + high) / 2
        over = next(phase for phase in plan.at(middle) if phase.name == name).share > 1
        low, high = (low, middle) if over != falls else (middle, high)
    return int(low)


def remedy(plan: Plan, name: str) -> str | None:
    """Return the first setting, ``KEY=VALUE``, with which no phase fails, of those that act in a phase; None if none does."""
    for key, value, setup in _changes(plan, name):
        changed = replace(plan, setup=setup)
        phases = [phase for mean in (short_mean(setup), setup.longest) for phase in changed.at(mean)]
        if all(phase.share <= 1 for phase in phases):
            return f"{key}={_written(value)}"
    return None


def _written(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _changes(plan: Plan, name: str) -> Iterator[tuple[str, Any, Setup]]:
    """Yield settings that act in a phase, with the setup that each makes: first those that cost no other card."""
    setup = plan.setup
    engine = f"{ACTOR}.fsdp_config"
    offloads = (("param_offload", f"{engine}.param_offload"), ("optimizer_offload", f"{engine}.optimizer_offload"))
    key = f"{ROLLOUT}.gpu_memory_utilization"
    steps = [round(0.05 * step, 2) for step in range(1, 19)]
    if name in ("engine start", "rollout"):
        for share in sorted((each for each in steps if each < setup.utilization), reverse=True):
            yield key, share, replace(setup, utilization=share)
    if name == "cache":
        for share in (each for each in steps if each > setup.utilization):
            yield key, share, replace(setup, utilization=share)
        yield f"{ROLLOUT}.max_model_len", setup.longest, replace(setup, engine_length=setup.longest)
    if name == "weight sync" and setup.lora_rank and not setup.layered_summon:
        yield f"{ROLLOUT}.layered_summon", True, replace(setup, layered_summon=True)
    if name in ("engine start", "rollout", "weight sync", "log-probabilities", "reference"):
        for field, full in offloads:
            if not getattr(setup, field):
                yield full, True, _with(setup, field, True)
    if name in ("cache", "weight sync"):
        for size in (2, 4, 8):
            if setup.tensor_parallel < size <= setup.cards_of_a_node and not setup.cards % size:
                yield f"{ROLLOUT}.tensor_model_parallel_size", size, replace(setup, tensor_parallel=size)
    batch = {"update": "update", "log-probabilities": "log_prob", "reference": "ref"}.get(name)
    if batch:
        if not setup.checkpointing and name == "update":
            yield f"{MODEL}.enable_gradient_checkpointing", True, replace(setup, checkpointing=True)
        yield from _smaller(setup, batch)
        if not setup.fused:
            yield f"{MODEL}.use_fused_kernels", True, replace(setup, fused=True)
    if name in ("update", "optimizer step") and setup.defers_sync:
        yield f"{engine}.use_no_sync_for_gradient_accumulation", False, replace(setup, defers_sync=False)
    for more in (2, 3, 4, 6, 8, 12, 16, 32):
        nodes = setup.nodes * more
        shards = nodes * setup.cards_of_a_node if setup.shards == setup.cards else setup.shards
        fewer = {part: max(1, getattr(setup, part) // more) for part in ("responses", "step_responses")}
        yield "trainer.nnodes", nodes, replace(setup, nodes=nodes, shards=shards, **fewer)


_SECTIONS = {
    "update": (ACTOR, "ppo_max_token_len_per_gpu", "ppo_micro_batch_size_per_gpu"),
    "log_prob": (ROLLOUT, "log_prob_max_token_len_per_gpu", "log_prob_micro_batch_size_per_gpu"),
    "ref": (REF, "log_prob_max_token_len_per_gpu", "log_prob_micro_batch_size_per_gpu"),
}


def _with(setup: Setup, field: str, value: Any) -> Setup:
    return replace(setup, **{field: value})


def _smaller(setup: Setup, batch: str) -> Iterator[tuple[str, int, Setup]]:
    """Yield smaller micro-batches, halved as often as they hold the longest sequence, or one response."""
    section, tokens, responses = _SECTIONS[batch]
    size: MicroBatch = getattr(setup, batch)
    least = -(-setup.longest // setup.sequence_parallel)
    packed, several = size.packed, size.responses
    while packed and packed // 2 >= least:
        packed //= 2
        yield f"{section}.{tokens}", packed, _with(setup, batch, MicroBatch(packed, None))
    while several and several > 1:
        several //= 2
        yield f"{section}.{responses}", several, _with(setup, batch, MicroBatch(None, several))
