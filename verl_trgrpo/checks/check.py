"""Check a run's configuration in stages, before anything is started."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from omegaconf import DictConfig

from verl_trgrpo.checks.batches import batch_findings, parallel_findings, total_steps, warm_up_findings
from verl_trgrpo.checks.files import missing_files, model_findings
from verl_trgrpo.checks.structure import key_findings, section_findings
from verl_trgrpo.common.findings import Finding, Level
from verl_trgrpo.common.text import count_of
from verl_trgrpo.runs.compose import ComposedRun, changed_values, flat, resolved, verl_defaults
from verl_trgrpo.runs.run_directory import is_finished

_Checks = Callable[[], list[Finding]]


@dataclass(frozen=True)
class Report:
    """Findings of a check.

    Args:
        config: the composed configuration.
        findings: errors, warnings and what was not checked, in this order.
        total_steps: of the run, at most; None if there are errors or the training files are not on this machine.
        agents: names of the agent loops that make the responses, as far as that is known; empty if there are errors.
        first_prompt: the first training prompt as the model will see it, for the record of a run; None where it is not known.
    """

    config: DictConfig
    findings: tuple[Finding, ...]
    total_steps: int | None
    agents: frozenset[str] = frozenset()
    first_prompt: dict[str, Any] | None = field(default=None, compare=False)

    def messages(self, level: Level) -> list[str]:
        """Return the messages of one level."""
        return [finding.message for finding in self.findings if finding.level is level]

    @property
    def ok(self) -> bool:
        """Return True if there are no errors."""
        return not self.messages(Level.ERROR)

    def findings_text(self) -> str:
        """Return errors, warnings and what was not checked as separate lists, and a summary line."""
        lines = []
        for level in Level:
            if found := self.messages(level):
                lines += [f"{level.value} ({len(found)})", *(f"  - {message}" for message in found), ""]
        errors, warnings, unchecked = (len(self.messages(level)) for level in Level)
        summary = count_of(errors, "error") if errors else "no errors"
        return "\n".join([*lines, f"{summary}, {count_of(warnings, 'warning')}, {unchecked} not checked"])

    def details_text(self) -> str:
        """Return where the configuration differs from veRL's own defaults, and the number of steps."""
        defaults = verl_defaults()
        written, lines = flat(defaults), []
        for key, value in changed_values(self.config, defaults).items():
            default = f"  (veRL: {resolved(defaults, key, written[key])})" if key in written else ""
            lines.append(f"{key}: {value}{default}")
        steps = f"steps: {self.total_steps or 'unknown'}"
        return "\n".join(["differences from veRL's defaults", *lines, "", steps])


def early_findings(run: ComposedRun, need_files: bool = True) -> list[Finding]:
    """Run the checks that need neither veRL nor torch, whose imports take many seconds: sections and missing files."""
    findings = section_findings(run)
    return findings + outside(findings, missing_files(run.config, need_files))


def check(run: ComposedRun, need_files: bool = True) -> Report:
    """Check a run in stages; a stage with errors ends the check, because later ones rely on it.

    The first stage is about each setting and file by itself, the second about veRL's dataclasses and its ``validate_config``,
    the third about rules between settings. All findings of a stage are reported at once. Imports veRL, which takes many
    seconds.

    Args:
        run: the composed run.
        need_files: report missing data and models as "not checked" if False.
    """
    # veRL's registries and the user's own modules come with it.
    import verl  # noqa: F401

    from verl_trgrpo.checks.data_files import data_findings
    from verl_trgrpo.checks.lengths import first_prompt, length_findings
    from verl_trgrpo.checks.run_data import RunData
    from verl_trgrpo.checks.types import type_findings
    from verl_trgrpo.checks.verl_dataclasses import verl_findings

    config, data = run.config, RunData(run.config)

    def each_setting() -> list[Finding]:
        findings = section_findings(run)
        for more in (
            key_findings(run),
            type_findings(config, run.defaults),
            missing_files(config, need_files),
            data_findings(data),
            model_findings(config),
        ):
            findings += outside(findings, more)
        return findings

    def between_settings() -> list[Finding]:
        from verl_trgrpo.checks.algorithm_drift import drift_findings
        from verl_trgrpo.checks.experiments import brought_findings
        from verl_trgrpo.checks.loss import loss_findings
        from verl_trgrpo.checks.machine import machine_findings
        from verl_trgrpo.checks.resume import saving_findings
        from verl_trgrpo.checks.reward_function import reward_findings
        from verl_trgrpo.checks.rules import rule_findings
        from verl_trgrpo.checks.switches import switch_findings
        from verl_trgrpo.checks.unread import unread_findings

        rows = data.training_rows
        steps = total_steps(config, rows)
        findings = rule_findings(data)
        changed = changed_values(config, run.defaults)
        for more in (switch_findings(data, changed), unread_findings(run, changed)):
            findings += outside(findings, more)
        return [
            *findings,
            *batch_findings(config, rows),
            *parallel_findings(config),
            *warm_up_findings(config, steps),
            *machine_findings(config, data.agents, trains=False),
            *length_findings(data),
            *loss_findings(config),
            *brought_findings(data),
            *drift_findings(config, run.choices.get("algorithm")),
            *reward_findings(config),
            *saving_findings(config),
            *_resume_findings(run, steps),
        ]

    stages: dict[str, _Checks] = {
        "single settings and files": each_setting,
        "veRL's dataclasses": lambda: verl_findings(config, run.defaults),
        "rules between settings": between_settings,
    }
    findings: list[Finding] = []
    left = list(stages)
    while left and not any(finding.level is Level.ERROR for finding in findings):
        findings += stages[left.pop(0)]()
    findings += [Finding.not_checked(stage, f"{stage}: not checked until the errors are fixed") for stage in left]
    sound = all(finding.level is not Level.ERROR for finding in findings)
    order = list(Level)
    findings.sort(key=lambda finding: order.index(finding.level))
    if not sound:
        return Report(config, tuple(findings), None)
    return Report(config, tuple(findings), total_steps(config, data.training_rows), data.agents, first_prompt(data))


def _resume_findings(run: ComposedRun, steps: int | None) -> list[Finding]:
    """Check what the run resumes from, unless it is finished."""
    from verl_trgrpo.checks.resume import resume_findings

    try:
        return [] if is_finished(run.config, run.directory, steps) else resume_findings(run.config)
    except ValueError as error:  # run.json is damaged
        return [Finding.error("trainer.default_local_dir", str(error))]


def outside(findings: list[Finding], more: list[Finding]) -> list[Finding]:
    """Return those of `more` that are not about keys, or sections with keys, that `findings` report already."""
    seen = tuple(f"{finding.where}." for finding in findings if finding.level is not Level.NOT_CHECKED)
    return [finding for finding in more if not f"{finding.where}.".startswith(seen)]
