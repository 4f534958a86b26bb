"""Check a run's configuration in stages, before anything is started."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict

from verl_trgrpo.checks.files import missing_files, model_findings, module_findings
from verl_trgrpo.checks.settings import key_findings, section_findings, type_findings
from verl_trgrpo.checks.view import RunView
from verl_trgrpo.common.findings import Finding, Level, grouped
from verl_trgrpo.common.import_path import large_imports
from verl_trgrpo.common.secrets import Secret, secrets_of
from verl_trgrpo.common.text import count_of
from verl_trgrpo.data.prompts import own_agent_loops
from verl_trgrpo.runs.compose import ComposedRun, changed_values, resolved, verl_defaults
from verl_trgrpo.runs.keys import LOSS, flat, selected
from verl_trgrpo.runs.overrides import override_key
from verl_trgrpo.runs.readers import located

Check = Callable[[RunView], list[Finding]]
"""Takes the view of a run and returns what it finds."""


@dataclass(frozen=True)
class CheckReport:
    """Findings of a check.

    Args:
        config: the composed configuration.
        findings: errors, warnings and what was not checked, in this order.
        total_steps: of the run, at most; None if there are errors or the training files are not on this machine.
        first_prompt: the first training prompt as the model will see it, for the record of a run; None where it is not known.
        memory: lines of the memory plan; none where the errors come first.
    """

    config: DictConfig
    findings: tuple[Finding, ...]
    total_steps: int | None
    first_prompt: dict[str, Any] | None = field(default=None, compare=False)
    memory: tuple[str, ...] = field(default=(), compare=False)

    def messages(self, level: Level) -> list[str]:
        """Return the messages of one level."""
        return [finding.message for finding in self.findings if finding.level is level]

    @property
    def ok(self) -> bool:
        """Return True if there are no errors."""
        return not self.messages(Level.ERROR)

    def with_findings(self, more: Sequence[Finding]) -> CheckReport:
        """Return the report with findings about where the configuration comes from."""
        found = sorted([*more, *self.findings], key=lambda each: [*Level].index(each.level))
        return replace(self, findings=tuple(found))

    def beside(self, refused: Mapping[str, str], overrides: Sequence[str] = ()) -> CheckReport:
        """Return the report of a run whose overrides of some keys were left out, with the messages that refuse them as errors.

        Findings about these keys are left out, and findings about a key that a message proposes, unless `overrides` set it.
        """
        meant = {key for message in refused.values() for key in re.findall(r"did you mean \+?([\w.]+)\?", message)}
        meant -= {*map(override_key, overrides)}
        found = [each for each in self.findings if not _about(each, {*refused, *meant})]
        errors = [Finding.error(key, message) for key, message in refused.items()]
        return replace(self, findings=(*errors, *found), total_steps=None) if refused else self

    def findings_text(self, printed: Collection[str] = ()) -> str:
        """Return errors, warnings and what was not checked as separate lists, and a summary line that counts all.

        Args:
            printed: messages that are not repeated.
        """
        lines = []
        for level in Level:
            if found := grouped([message for message in self.messages(level) if message not in printed]):
                lines += [f"{level.value} ({len(found)})", *(f"  - {message}" for message in found), ""]
        errors, warnings, unchecked = (len(grouped(self.messages(level))) for level in Level)
        summary = count_of(errors, "error") if errors else "no errors"
        return "\n".join([*lines, f"{summary}, {count_of(warnings, 'warning')}, {unchecked} not checked"])

    def details_text(self) -> str:
        """Return where the configuration differs from veRL's own defaults, the number of steps, and the memory plan."""
        defaults = verl_defaults()
        written, lines = flat(defaults), []
        for key, value in changed_values(self.config, defaults).items():
            default = f"  (veRL: {resolved(defaults, key, written[key])})" if key in written else ""
            lines.append(f"{key}: {value}{default}")
        steps = f"steps: {self.total_steps or 'unknown'}"
        memory = self.memory or ("memory plan: not known (the errors come first)",)
        return "\n".join(["differences from veRL's defaults", *lines, "", steps, "", *memory])


def early_findings(run: ComposedRun, need_files: bool = True) -> list[Finding]:
    """Run the checks that need neither veRL nor torch, whose imports take many seconds: sections and missing files."""
    return [*module_findings(), *without_repeats(section_findings, missing_files)(RunView(run, need_files))]


def check(run: ComposedRun, need_files: bool = True, trains: bool = False, gpu_gb: float | None = None) -> CheckReport:
    """Check a run in stages, and report all findings at once. Imports veRL, which takes many seconds.

    Later stages rely on what earlier ones found right: a setting with an error has its default there, and is reported once.
    They do without data and models that are missing.

    Args:
        run: the composed run.
        need_files: report missing data and models as "not checked" if False.
        trains: this machine trains, so that what it lacks is an error, and a Ray cluster and what agent loops need is asked once.
        gpu_gb: GB of a card, as in its name; None for this machine's.
    """
    view, findings = RunView(run, need_files, trains, gpu_gb), list[Finding]()
    if problems := module_findings():  # veRL cannot be imported
        return CheckReport(run.config, tuple(problems), None)
    without = missing_files(RunView(run, need_files=False))
    absent = {each.message for each in without if each.level is Level.NOT_CHECKED}
    for stage, checks in _stages().items():
        broken = {each.where for each in findings if each.level is Level.ERROR and each.message not in absent}
        findings += _found_beside(broken, view, stage, checks) if broken else [f for each in checks for f in each(view)]
    findings.sort(key=lambda each: [*Level].index(each.level))
    memory = tuple(view.memory.lines()) if "memory" in vars(view) else ()
    if any(each.level is Level.ERROR for each in findings):
        return CheckReport(run.config, tuple(findings), None, memory=memory)
    from verl_trgrpo.checks.data_files import first_prompt

    return CheckReport(run.config, tuple(findings), view.steps, first_prompt(view), memory)


def _found_beside(broken: Collection[str], view: RunView, stage: str, checks: Sequence[Check]) -> list[Finding]:
    """Return what the checks of a stage find in a run whose broken settings have their defaults, and that is not about these.

    Of a section that veRL's own validation refuses no key is known to be wrong: it has its defaults where a check fails without.
    """
    left = Finding.not_checked(stage, f"{stage}: not all checked until the errors are fixed")
    broken = {key for key in broken if not key.startswith("verl.")}
    try:
        tries = [(_with_defaults(view, keys), keys) for keys in (broken - _refused_sections(view, broken), broken)]
    except KeyError:
        return [left]
    found = list[Finding]()
    for run_check in checks:
        for repaired, keys in tries:
            try:
                found += [each for each in run_check(repaired) if not _about(each, keys)]
                break
            except Exception:  # veRL's own defaults do not construct everything
                continue
        else:
            found.append(left)
    return list(dict.fromkeys(found))


def _refused_sections(view: RunView, keys: Collection[str]) -> set[str]:
    """Return those of the keys that are sections, as they are by default."""
    return {
        key
        for key in keys
        if all(isinstance(selected(each, key), DictConfig) for each in (view.config, view.run.defaults))
    }


def _with_defaults(view: RunView, broken: Collection[str]) -> RunView:
    """Return the view of a run whose broken settings have their defaults; those that have none are left out.

    Raises:
        KeyError: one of `broken` is missing from the configuration.
    """
    config, defaults = copy.deepcopy(view.config), OmegaConf.to_container(view.run.defaults, resolve=False)
    with open_dict(config):
        for key in sorted(broken, reverse=True):  # a section after its keys
            section, _, name = key.rpartition(".")
            parent = OmegaConf.select(config, section) if section else config
            if not isinstance(parent, DictConfig) or name not in parent:
                raise KeyError(key)
            try:
                parent[name] = reduce(lambda part, word: part[word], key.split("."), defaults)
            except (KeyError, TypeError):
                del parent[name]
    return RunView(replace(view.run, config=config), need_files=False, trains=view.trains, gpu_gb=view.gpu_gb)


def _about(finding: Finding, broken: Collection[str]) -> bool:
    """Return True if a finding is about a broken setting, or names it as a reason; veRL names the last words alone."""
    text = f"{finding.where} {finding.message.partition('did you mean ')[0]}"
    last = {key.rpartition(".")[2] for key in broken}
    words = [rf"(?<![\w.]){re.escape(key)}" for key in broken] + [rf"\b{name}" for name in last if "_" in name]
    return any(re.search(rf"{each}(?!\w)", text) for each in words)


def _stages() -> dict[str, tuple[Check, ...]]:
    """Return the checks: of each setting and file by itself, of veRL's dataclasses, and of rules between settings."""
    with large_imports():
        import verl  # registries, and the user's own modules
        import verl.workers.config  # noqa: F401  # what the check of keys asks

    from verl_trgrpo.checks.algorithm import drift_findings, loss_findings
    from verl_trgrpo.checks.apart import APART
    from verl_trgrpo.checks.constructed import constructed_findings, name_findings
    from verl_trgrpo.checks.data_files import data_findings, length_findings, loop_setting_findings, turn_findings
    from verl_trgrpo.checks.machine import machine_findings, own_code_findings
    from verl_trgrpo.checks.memory import memory_findings
    from verl_trgrpo.checks.resume import resume_findings
    from verl_trgrpo.checks.rules import RULES
    from verl_trgrpo.checks.sizes import LENGTHS, SIZES, head_findings, micro_batch_findings, token_findings
    from verl_trgrpo.checks.switches import SWITCHES
    from verl_trgrpo.checks.tables import rule_findings
    from verl_trgrpo.checks.trackers import account_findings
    from verl_trgrpo.checks.unread import unread_findings

    rules, switches, sizes = (
        partial(rule_findings, rules=table) for table in (RULES | APART, SWITCHES, SIZES | LENGTHS)
    )
    return {
        "single settings and files": (
            without_repeats(
                section_findings, key_findings, type_findings, name_findings, missing_files, data_findings, model_findings),
        ),
        "veRL's dataclasses": (constructed_findings,),
        "rules between settings": (
            without_repeats(rules, switches, unread_findings), sizes, micro_batch_findings, head_findings, token_findings,
            memory_findings, machine_findings, account_findings, loop_setting_findings, length_findings, turn_findings,
            loss_findings, drift_findings, own_code_findings, resume_findings, own_findings, secret_findings,
        ),
    }  # fmt: skip


def secret_findings(view: RunView) -> list[Finding]:
    """Warn of secrets that veRL prints into its log and hands to its trackers."""
    return [Finding.warning(secret.key, _secret_message(secret)) for secret in secrets_of(flat(view.run.config))]


def _secret_message(secret: Secret) -> str:
    what = f"is the variable {secret.variables[0]}" if secret.variables else "is a secret, by its name"
    where = "" if secret.variables else ", and config.yaml keeps it"
    remedy = "read a variable of the environment in your own code instead"
    if ".env_vars." in secret.key:
        remedy = f"export {secret.key.rpartition('.')[2]} before the command, whose processes inherit it"
    return f"{secret.key} {what}: veRL prints its value into the log and hands it to trackers{where}; {remedy}"


def own_findings(view: RunView) -> list[Finding]:
    """Run the checks that classes of the run bring along: a static method ``run_checks(view)``, which returns findings.

    The classes are those that ``_target_`` names in ``algorithm``, in the policy loss, and for the agent loops in use in the
    run's file of agent loops.
    """
    loops = own_agent_loops(view.config)
    names = [view["algorithm._target_"], view[f"{LOSS}._target_"], *(loops.get(name) for name in sorted(view.agents))]
    found = [located(name) for name in dict.fromkeys(filter(None, names))]
    return [finding for each in found if hasattr(each, "run_checks") for finding in each.run_checks(view)]


def without_repeats(*checks: Check) -> Check:
    """Return the check whose findings are those of `checks`, each about keys and sections that earlier ones did not report."""

    def run(view: RunView) -> list[Finding]:
        findings: list[Finding] = []
        for each in checks:
            seen = tuple(f"{found.where}." for found in findings if found.level is not Level.NOT_CHECKED)
            findings += [found for found in each(view) if not f"{found.where}.".startswith(seen)]
        return findings

    return run
