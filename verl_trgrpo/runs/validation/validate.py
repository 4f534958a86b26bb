"""All checks together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from verl_trgrpo.common.problems import Finding, Level, error, not_checked
from verl_trgrpo.runs.launch.configuration import DEFAULT_CONFIG, compose_run, recipe_arguments
from verl_trgrpo.runs.launch.data_files import training_rows
from verl_trgrpo.runs.validation.batches import BatchArithmetic, batch_arithmetic, batch_findings, size_findings
from verl_trgrpo.runs.validation.contracts import dataclass_findings, host_findings
from verl_trgrpo.runs.validation.files import file_findings
from verl_trgrpo.runs.validation.lengths import length_findings
from verl_trgrpo.runs.validation.memory import MemoryEstimate, estimate_memory, memory_findings
from verl_trgrpo.runs.validation.model_facts import ModelFacts, read_model_facts
from verl_trgrpo.runs.validation.objective import objective_findings


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

    def of(self, level: Level) -> list[Finding]:
        """The findings of one level."""
        return [finding for finding in self.findings if finding.level is level]

    @property
    def ok(self) -> bool:
        """Whether there is no error."""
        return not self.of(Level.ERROR)

    def as_dict(self) -> dict[str, Any]:
        """The report for programs, without the configuration; sizes in GiB."""
        memory = self.memory
        return {
            "ok": self.ok,
            "findings": [asdict(finding) | {"level": finding.level.value} for finding in self.findings],
            "batches": asdict(self.batches) if self.batches else None,
            "memory_gib": asdict(memory) | {"update": memory.update, "rollout": memory.rollout} if memory else None,
        }


def validate(source: str = DEFAULT_CONFIG, overrides: Sequence[str] = (), need_files: bool = True) -> Report:
    """Compose a run's configuration and look at everything that can be looked at before it starts.

    Args:
        source: a recipe file (it ends in .yaml or has a slash), or the name of a primary configuration.
        overrides: Hydra overrides.
        need_files: whether data and model must be there; otherwise a missing file is "not checked".

    Raises:
        ConfigurationError: when it cannot be composed, so that nothing can be looked at.
    """
    # veRL's registries, the resolver of package files and a user's own modules come with it.
    import verl  # noqa: F401

    arguments = list(overrides)
    if source.endswith(".yaml") or "/" in source:
        source, arguments = recipe_arguments(Path(source), arguments)
    # Without the launcher's platform=cpu: a recipe for GPUs is looked at on machines that have none.
    config, _ = compose_run(source, arguments)
    findings = file_findings(config, need_files) + dataclass_findings(config)
    objective_problems, sound = objective_findings(config)
    findings += objective_problems
    sizes = size_findings(config)
    batch_problems = sizes or batch_findings(config)
    findings += batch_problems
    sizes_fit = all(finding.level is not Level.ERROR for finding in batch_problems)
    if not sizes and sound is not None:
        findings += host_findings(sound, sizes_fit)
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
        facts, origin = read_model_facts(config)
    except ValueError as problem:
        findings.append(error("recipe.model", str(problem)))
        return None
    if facts is None:
        findings.append(not_checked("actor_rollout_ref.model.path", f"context length and memory: {origin}"))
    return facts
