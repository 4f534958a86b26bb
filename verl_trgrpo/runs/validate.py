"""Everything that is wrong with a run's configuration, at once and before a GPU is rented."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from verl_trgrpo.common.findings import Finding, Level
from verl_trgrpo.common.text import count_of
from verl_trgrpo.runs.checks.algorithm import algorithm_findings
from verl_trgrpo.runs.checks.batches import batch_findings, total_steps
from verl_trgrpo.runs.checks.contracts import dataclass_findings, validate_config_findings
from verl_trgrpo.runs.checks.files import REWARD, data_findings, missing_files, training_rows
from verl_trgrpo.runs.checks.keys import key_findings
from verl_trgrpo.runs.checks.model_files import model_findings
from verl_trgrpo.runs.checks.reward_function import reward_findings
from verl_trgrpo.runs.checks.sections import beside, section_findings
from verl_trgrpo.runs.checks.values import LENGTHS, SIZES, value_findings
from verl_trgrpo.runs.compose import ComposedRun, defaults_of, flat, verl_defaults


@dataclass(frozen=True)
class Report:
    """What was found.

    Args:
        config: the composed configuration.
        findings: errors, warnings and what was not checked, in this order.
        total_steps: of the run, at most; None where sizes do not fit or the data are not there.
    """

    config: DictConfig
    findings: tuple[Finding, ...]
    total_steps: int | None

    def messages(self, level: Level) -> list[str]:
        """What the findings of one level say."""
        return [finding.message for finding in self.findings if finding.level is level]

    @property
    def ok(self) -> bool:
        """Whether there is no error."""
        return not self.messages(Level.ERROR)

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
        """Where the configuration differs from veRL's own defaults, with those, and the number of steps."""
        written, defaults = flat(verl_defaults()), _resolved(verl_defaults())
        values, lines = _resolved(self.config), []
        for key, own in flat(self.config).items():
            if key not in written:
                lines.append(f"{key}: {values[key]}")
            elif (
                own != written[key] and values[key] != defaults[key]
            ):  # and not only what refers to something that differs
                lines.append(f"{key}: {values[key]}  (veRL: {defaults[key]})")
        steps = f"steps: {self.total_steps or 'not known'}"
        return "\n".join(["where it differs from veRL's defaults", *lines, "", steps])


def _resolved(config: DictConfig) -> dict[str, object]:
    """Dotted keys with their values; what cannot be resolved stays as it is written."""
    values = {}
    for key, written in flat(config).items():
        try:
            value = OmegaConf.select(config, key, throw_on_missing=False)
        except OmegaConfBaseException:
            value = written
        values[key] = OmegaConf.to_container(value) if OmegaConf.is_config(value) else value
    return values


def check(run: ComposedRun, need_files: bool = True) -> Report:
    """Look at everything that can be looked at before a run starts, on any machine.

    Missing data and model files are "not checked" unless they are needed. The import of veRL alone takes many seconds.
    """
    # veRL's registries and a user's own modules come with it.
    import verl  # noqa: F401

    from verl_trgrpo.runs.checks.lengths import length_findings
    from verl_trgrpo.runs.checks.objective import objective_findings
    from verl_trgrpo.runs.checks.prompt_lengths import prompt_length_findings

    defaults = defaults_of(run.choices)
    wrong_sections, config = section_findings(run.config, run.choices)
    wrong_keys, config = key_findings(config, defaults, run.added)
    wrong_values, config = value_findings(config, defaults)
    wrong = wrong_sections + beside(wrong_sections, wrong_values)
    bad = [size for size in SIZES if any(f"{size}.".startswith(f"{finding.where}.") for finding in wrong)]
    missing = missing_files(config, need_files)
    more = missing + data_findings(config) + model_findings(config) + dataclass_findings(config, need_files)
    if not any(finding.where == f"{REWARD}.path" for finding in missing):
        more += reward_findings(config)
    objective_problems, sound = objective_findings(config)
    more += objective_problems + algorithm_findings(config, run.choices.get("algorithm"))
    batch_problems = _unless(bad, "how batches are cut", lambda: batch_findings(config))
    sizes_fit = not bad and all(finding.level is not Level.ERROR for finding in batch_problems)
    more += batch_problems
    if sound is not None:
        more += _unless(bad, "veRL's validate_config", lambda: validate_config_findings(sound, sizes_fit))
    limits = [size for size in bad if size in LENGTHS]
    more += _unless(limits, "lengths", lambda: length_findings(config))
    more += _unless(limits, "the length of prompts", lambda: prompt_length_findings(config))
    findings = wrong_keys + wrong + beside(wrong, more)
    steps = total_steps(config, training_rows(config)) if sizes_fit else None
    order = list(Level)
    findings.sort(key=lambda finding: order.index(finding.level))
    return Report(run.config, tuple(findings), steps)


def _unless(bad: Sequence[str], subject: str, look: Callable[[], list[Finding]]) -> list[Finding]:
    """What a look finds, or that it was not taken because of sizes that are wrong."""
    if not bad:
        return look()
    return [
        Finding.not_checked(subject, f"{subject} could not be looked at without {', '.join(bad)}; correct that first")
    ]
