"""A report as text."""

from __future__ import annotations

from omegaconf import OmegaConf

from verl_trgrpo.common.problems import Level
from verl_trgrpo.runs.validation.batches import BatchArithmetic
from verl_trgrpo.runs.validation.memory import FORMULA, MemoryEstimate
from verl_trgrpo.runs.validation.validate import Report


def findings_text(report: Report) -> str:
    """Errors, warnings and what was not checked, apart, and a verdict."""
    lines = []
    for level in Level:
        found = report.of(level)
        if found:
            lines += [f"{level.value} ({len(found)})", *(f"  - {finding.message}" for finding in found), ""]
    errors, warnings = len(report.of(Level.ERROR)), len(report.of(Level.WARNING))
    verdict = f"{errors} errors" if errors else "no errors"
    return "\n".join([*lines, f"{verdict}, {warnings} warnings, {len(report.of(Level.NOT_CHECKED))} not checked"])


def details_text(report: Report) -> str:
    """The composed configuration, the arithmetic of a step, and the memory of a GPU."""
    parts = [OmegaConf.to_yaml(report.config).rstrip()]
    parts.append(_batches_text(report.batches) if report.batches else "batches: sizes do not fit, see the errors")
    parts.append(
        _memory_text(report.memory) if report.memory else "memory: not estimated (unknown model, sizes or engine)"
    )
    return "\n\n".join(parts)


def _batches_text(batches: BatchArithmetic) -> str:
    def shown(value: int | None) -> str:
        return "not known without the data file" if value is None else f"{value:,}"

    rows = [
        ("prompts, responses in a step", f"{batches.prompts:,}, {batches.responses:,}"),
        ("updates in a step", f"{batches.updates}, of {batches.responses_per_update:,} responses"),
        ("GPUs, data-parallel groups", f"{batches.gpus}, {batches.data_parallel}"),
        (
            "responses per group and update",
            f"{batches.responses_per_gpu:g}, in up to {batches.micro_batches} micro-batches",
        ),
        ("tokens of a micro-batch", f"up to {batches.tokens_per_micro_batch:,} on a GPU"),
        ("steps per epoch", shown(batches.steps_per_epoch)),
        ("steps in all", shown(batches.total_steps)),
    ]
    return _table("batches", rows)


def _memory_text(memory: MemoryEstimate) -> str:
    def gib(value: float) -> str:
        return f"{value:6.1f}"

    rows = [
        ("update: weights, gradients", f"{gib(memory.weights)} {gib(memory.gradients)}"),
        ("  Adam, reference", f"{gib(memory.optimizer)} {gib(memory.reference)}"),
        ("  activations, logits", f"{gib(memory.activations)} {gib(memory.logits)}"),
        ("  gathered layers", gib(memory.gathered)),
        ("  in all", f"{gib(memory.update)} of {memory.gpu:.0f}"),
        ("generation: vLLM, trainer", f"{gib(memory.engine)} {gib(memory.resident)}"),
        ("  KV cache", f"{gib(memory.kv_cache)}, {memory.kv_tokens:,} tokens"),
        ("  in all", f"{gib(memory.rollout)} of {memory.gpu:.0f}"),
    ]
    formula = "\n".join(f"  {line}" for line in FORMULA.splitlines())
    return f"{_table('memory of a GPU, GiB, a rough estimate', rows)}\n{formula}"


def _table(title: str, rows: list[tuple[str, str]]) -> str:
    width = max(len(name) for name, _ in rows)
    return "\n".join([title, *(f"  {name:<{width}}  {value}" for name, value in rows)])
