"""Everything that is wrong with a run's configuration, at once and before a GPU is rented."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from verl_trgrpo.common.problems import Finding, Level, count_of, error, not_checked
from verl_trgrpo.common.tables import text_table
from verl_trgrpo.runs.checks.batches import BatchArithmetic, batch_arithmetic, batch_findings, size_findings
from verl_trgrpo.runs.checks.contracts import dataclass_findings, validate_config_findings
from verl_trgrpo.runs.checks.files import MODEL, data_findings, missing_files, training_rows
from verl_trgrpo.runs.checks.memory import FORMULA, MemoryEstimate, estimate_memory, memory_findings
from verl_trgrpo.runs.checks.model_facts import RECIPE_KEY, ModelFacts, read_model_facts
from verl_trgrpo.runs.checks.model_files import model_findings
from verl_trgrpo.runs.checks.reward_function import reward_findings
from verl_trgrpo.runs.compose import DEFAULT_CONFIG, compose


@dataclass(frozen=True)
class Report:
    """What was found.

    Args:
        config: the composed configuration.
        findings: errors, warnings and what was not checked, in this order.
        batches: None where sizes do not fit.
        memory: None where the model's figures are not known, or for engines other than FSDP.
    """

    config: DictConfig
    findings: tuple[Finding, ...]
    batches: BatchArithmetic | None
    memory: MemoryEstimate | None

    def messages(self, level: Level) -> list[str]:
        """What the findings of one level say."""
        return [finding.message for finding in self.findings if finding.level is level]

    @property
    def ok(self) -> bool:
        """Whether there is no error."""
        return not self.messages(Level.ERROR)

    def as_dict(self) -> dict[str, Any]:
        """The report for programs, without the configuration; sizes in GiB."""
        memory = self.memory
        return {
            "ok": self.ok,
            "findings": [asdict(finding) | {"level": finding.level.value} for finding in self.findings],
            "batches": asdict(self.batches) if self.batches else None,
            "memory_gib": asdict(memory) | {"update": memory.update, "rollout": memory.rollout} if memory else None,
        }

    def findings_text(self) -> str:
        """Errors, warnings and what was not checked, apart, and a verdict."""
        lines = []
        for level in Level:
            if found := self.messages(level):
                lines += [f"{level.value} ({len(found)})", *(f"  - {message}" for message in found), ""]
        errors, warnings, unchecked = (len(self.messages(level)) for level in Level)
        verdict = count_of(errors, "error") if errors else "no errors"
        return "\n".join([*lines, f"{verdict}, {count_of(warnings, 'warning')}, {unchecked} not checked"])

    def details_text(self) -> str:
        """The composed configuration, the arithmetic of a step, and the memory of a GPU."""
        batches = _batches_text(self.batches) if self.batches else "batches: sizes do not fit, see the errors"
        memory = _memory_text(self.memory) if self.memory else "memory: not estimated (unknown model, sizes or engine)"
        return "\n\n".join([OmegaConf.to_yaml(self.config).rstrip(), batches, memory])


def validate(source: str | Path = DEFAULT_CONFIG, overrides: Sequence[str] = (), need_files: bool = True) -> Report:
    """Compose a run's configuration as training on accelerators would, wherever that is asked, and check it.

    Args:
        source: as :func:`~verl_trgrpo.runs.compose.compose` takes it.
        overrides: Hydra overrides; ``platform=cpu`` is for a look at what a machine without an accelerator would train.
        need_files: whether data and model must be there; otherwise a missing file is "not checked".

    Raises:
        ProblemsError: when it cannot be composed, so that nothing can be looked at.
    """
    return check(compose(source, overrides).config, need_files)


def check(config: DictConfig, need_files: bool = True) -> Report:
    """Look at everything that can be looked at before a run starts; see :func:`validate`."""
    # veRL's registries and a user's own modules come with it.
    import verl  # noqa: F401

    from verl_trgrpo.runs.checks.lengths import length_findings
    from verl_trgrpo.runs.checks.objective import objective_findings

    findings = missing_files(config, need_files) + data_findings(config) + model_findings(config)
    findings += reward_findings(config) + dataclass_findings(config)
    objective_problems, sound = objective_findings(config)
    findings += objective_problems
    sizes = size_findings(config)
    batch_problems = sizes or batch_findings(config)
    findings += batch_problems
    sizes_fit = all(finding.level is not Level.ERROR for finding in batch_problems)
    if not sizes and sound is not None:
        findings += validate_config_findings(sound, sizes_fit)
    facts = _facts(config, findings)
    if not sizes:
        findings += length_findings(config, facts)
    batches = batch_arithmetic(config, training_rows(config)) if sizes_fit else None
    memory = estimate_memory(config, facts, batches) if facts and batches else None
    if memory:
        findings += memory_findings(config, memory)
    order = list(Level)
    findings.sort(key=lambda finding: order.index(finding.level))
    return Report(config, tuple(findings), batches, memory)


def _facts(config: DictConfig, findings: list[Finding]) -> ModelFacts | None:
    """The model's figures; adds to ``findings`` why there are none."""
    try:
        facts = read_model_facts(config)
    except ValueError as problem:
        findings.append(error(RECIPE_KEY, str(problem)))
        return None
    if isinstance(facts, str):
        findings.append(not_checked(MODEL, f"context length and memory: {facts}"))
        return None
    return facts


def _batches_text(batches: BatchArithmetic) -> str:
    def shown(value: int | None) -> str:
        return "not known without the data file" if value is None else f"{value:,}"

    per_group = f"{batches.responses_per_gpu:g}, in up to {batches.micro_batches} micro-batches"
    rows = [
        ("prompts, responses in a step", f"{batches.prompts:,}, {batches.responses:,}"),
        ("updates in a step", f"{batches.updates}, of {batches.responses_per_update:,} responses"),
        ("GPUs, data-parallel groups", f"{batches.gpus}, {batches.data_parallel}"),
        ("responses per group and update", per_group),
        ("tokens of a micro-batch", f"up to {batches.tokens_per_micro_batch:,} on a GPU"),
        ("steps per epoch", shown(batches.steps_per_epoch)),
        ("steps in all", shown(batches.total_steps)),
    ]
    return f"batches\n{_indented(text_table(rows))}"


def _memory_text(memory: MemoryEstimate) -> str:
    rows = [
        ("update: weights, gradients", f"{memory.weights:6.1f} {memory.gradients:6.1f}"),
        ("  Adam, reference", f"{memory.optimizer:6.1f} {memory.reference:6.1f}"),
        ("  activations, logits", f"{memory.activations:6.1f} {memory.logits:6.1f}"),
        ("  gathered layers", f"{memory.gathered:6.1f}"),
        ("  in all", f"{memory.update:6.1f} of {memory.gpu:.0f}"),
        ("generation: vLLM, trainer", f"{memory.engine:6.1f} {memory.resident:6.1f}"),
        ("  KV cache", f"{memory.kv_cache:6.1f}, {memory.kv_tokens:,} tokens"),
        ("  in all", f"{memory.rollout:6.1f} of {memory.gpu:.0f}"),
    ]
    return f"memory of a GPU, GiB, a rough estimate\n{_indented(text_table(rows))}\n{_indented(FORMULA)}"


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
