"""Commands about one run: ``verl-trgrpo train``, ``validate`` and ``health``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from verl_trgrpo.common.findings import InvalidInputError, Level, grouped
from verl_trgrpo.common.text import count_of, from_here, shorten, show
from verl_trgrpo.runs.compose import DEFAULT_CONFIG
from verl_trgrpo.runs.environment import TRAINER
from verl_trgrpo.runs.metrics import read_run
from verl_trgrpo.shell.starts import is_script

if TYPE_CHECKING:
    from verl_trgrpo.checks.check import CheckReport
    from verl_trgrpo.shell.starts import ScriptStart


@dataclass(frozen=True)
class RunOptions:
    """Select the configuration.

    Args:
        config: recipe file, or name of a configuration.
        overrides: Hydra overrides, KEY=VALUE or ~KEY, all before or all after the options.
    """

    config: tyro.conf.Positional[str] = DEFAULT_CONFIG
    overrides: tyro.conf.Positional[tuple[str, ...]] = ()

    def configuration(self) -> tuple[str, tuple[str, ...]]:
        """Return the configuration, the default one if all words are overrides, and the overrides.

        Raises:
            ValueError: two words are not overrides.
        """
        words = (self.config, *self.overrides)
        overrides = tuple(word for word in words if "=" in word or word.startswith("~"))
        others = [word for word in words if word not in overrides] or [DEFAULT_CONFIG]
        if script := next((word for word in others if is_script(word)), None):
            raise ValueError(
                f"{script}: is a shell script; start the script with bash, or check the script: `verl-trgrpo validate {script}`"
            )
        if len(others) > 1:
            raise ValueError(
                f"{' and '.join(others)} are {len(others)} configurations; give one, and write overrides as KEY=VALUE"
            )
        return others[0], overrides


def train(options: RunOptions) -> int:
    """Train with veRL. OVERRIDES are Hydra overrides, as for python -m verl.trainer.main_ppo.

    examples:
      verl-trgrpo train recipes/knights_and_knaves/qwen2.5-3b-instruct.yaml algorithm=grpo
      verl-trgrpo train data.train_files=train.parquet data.val_files=test.parquet \\
          actor_rollout_ref.model.path=Qwen/Qwen2.5-3B-Instruct trainer.n_gpus_per_node=8 \\
          data.train_batch_size=256 actor_rollout_ref.actor.ppo_mini_batch_size=64 \\
          actor_rollout_ref.actor.use_dynamic_bsz=true

    notes:
      The configuration is checked before anything is started; `verl-trgrpo validate` checks it alone.
      On a machine without an accelerator, platform=cpu is set.
      Checkpoints, train-N.log, metrics-N.jsonl, curves.png, config.yaml and run.json are written to the
      run directory, trainer.default_local_dir.
      The same command resumes from the latest checkpoint; trainer.resume_mode=disable starts over.
    """
    source, overrides = options.configuration()
    train_run(overrides, source)
    return 0


def train_run(overrides: Sequence[str], source: str | Path, title: str | None = None) -> Path:
    """Train, draw the curves, print the end of the run in a few lines, and return the run directory.

    The curves are named after that directory unless they have a `title`.
    """
    from verl_trgrpo.launch.train import run_training

    outcome = run_training(overrides, source)
    from verl_trgrpo.compare.plots import plot_run  # imports matplotlib, which need not delay the start
    from verl_trgrpo.runs.health import judge
    from verl_trgrpo.runs.summary import summary_lines, weight_range

    run_dir = outcome.run_dir
    steps, abandoned = read_run(run_dir)
    curves = "none: no step was logged"
    if steps:
        path = run_dir / "curves.png"
        curves = str(from_here(plot_run(steps, path, title or run_dir.name, weight_range(run_dir), abandoned)))
    for line in summary_lines(steps):
        show(line)
    for finding in judge(steps):
        if finding.is_sick:
            show(f"warning              {finding.message}\n                     {finding.remedy}")
    show(f"curves               {curves}")
    saved = outcome.checkpoint and from_here(outcome.checkpoint)
    show(f"checkpoint           {saved or 'none saved (trainer.save_freq)'}")
    if outcome.log_file is None:
        show("this run had already finished; trainer.resume_mode=disable starts it over")
    return run_dir


@dataclass(frozen=True)
class ValidateOptions(RunOptions):
    """Select the configuration, or a shell script that starts veRL, and what to print.

    Args:
        config_name: of the primary configuration, as main_ppo takes it.
        config_path: its directory, as main_ppo takes it.
        show: also print where the configuration differs from veRL's defaults, the number of steps, and the memory plan.
        no_files: report missing data and model files as "not checked", for machines that do not have them.
        gpu_gb: GB of a card, as in its name, for the memory plan; this machine's by default, 80 where it has none.
    """

    config_name: str | None = None
    config_path: str | None = None
    show: bool = False
    no_files: bool = False
    gpu_gb: float | None = None

    def starts(self) -> list[ScriptStart]:
        """Return the runs to check: that of the configuration, or each that the script starts with the words behind it."""
        from verl_trgrpo.shell.starts import ScriptStart, main_arguments, read_script

        given = {"config-name": self.config_name, "config-path": self.config_path}
        flags = [f"--{name}={value}" for name, value in given.items() if value]
        words = (self.config, *self.overrides)
        if script := next(filter(is_script, words), None):
            return read_script(Path(script), [*(word for word in words if word != script), *flags])
        source, overrides = self.configuration()
        named, _ = main_arguments(flags)
        return [ScriptStart(0, named if flags else source, overrides, ())]


def validate(options: ValidateOptions) -> int:
    """Find the mistakes in a recipe, configuration or script without starting a run.

    examples:
      verl-trgrpo validate recipes/knights_and_knaves/qwen2.5-3b-instruct.yaml trainer.nnodes=2 --show
      verl-trgrpo validate trgrpo_trainer data.train_files=train.parquet data.val_files=test.parquet ...
      verl-trgrpo validate kk_quickstart platform=cpu --no-files        as on a machine without an accelerator
      verl-trgrpo validate train.sh +algorithm=tr_grpo                  what bash train.sh +algorithm=tr_grpo would start
      verl-trgrpo validate mine.yaml --show --gpu-gb 40                 does it fit on cards of 40 GB?

    notes:
      Of a script, only the arguments of main_ppo are read. The script is not executed. Arguments that cannot
      be read are reported with their lines.
      The configuration is composed as for a training on accelerators, also on a machine without one.
      Three stages are checked: single settings and files, veRL's dataclasses, rules between settings.
      A setting with an error is left out or has its default while the rest is checked, so that one round
      reports all mistakes.
      "Not checked" lists what cannot be checked on this machine, such as a model on a hub.

    exit codes:
      0 no errors, 1 errors, 2 the configuration cannot be composed
    """
    reports = [_validated(start, options) for start in options.starts()]
    return 0 if all(report.ok for report in reports) else 1


def _validated(start: ScriptStart, options: ValidateOptions) -> CheckReport:
    """Check one run, print what was found, and return the report."""
    from verl_trgrpo.checks import check, constructed
    from verl_trgrpo.runs.compose import compose_part

    constructed.begin()
    if start.line:
        module = start.trainer.module if start.trainer else TRAINER
        show(f"line {start.line}: python3 -m {module}, {count_of(len(start.overrides), 'override')}")
    try:
        composed, refused = compose_part(start.source, start.overrides)
    except InvalidInputError as error:
        raise InvalidInputError([*(each.message for each in start.findings), *error.messages]) from error
    composed = replace(composed, trainer=start.trainer)

    def whole(report: CheckReport) -> CheckReport:
        """Add what the script and its overrides have; of a key whose value is not known, the default says nothing."""
        known = tuple(each for each in report.findings if each.where not in start.unread)
        return replace(report, findings=known).beside(refused, start.overrides).with_findings(start.findings)

    if start.trainer and not start.trainer.name:
        report = whole(check.CheckReport(composed.config, (), None))
        show(report.findings_text())
        return report
    need_files = not options.no_files
    soon = check.CheckReport(composed.config, tuple(check.early_findings(composed, need_files)), None)
    if early := whole(soon).messages(Level.ERROR):
        shown = grouped(early)
        lines = [f"error ({len(shown)})", *(f"  - {message}" for message in shown)]
        show("\n".join([*lines, "", "checking the rest ...", ""]))
    report = whole(check.check(composed, need_files, gpu_gb=options.gpu_gb))
    show(report.findings_text(early))
    if options.show:
        show(f"\n{report.details_text()}")
    return report


@dataclass(frozen=True)
class HealthOptions:
    """Select the run.

    Args:
        path: run directory of this project, or a file of veRL's ``file`` logger (trainer.logger=[console,file]).
    """

    path: tyro.conf.Positional[Path]


def health(options: HealthOptions) -> int:
    """Find problems in the metrics of a run, finished or in progress: first step, meaning, remedy.

    examples:
      verl-trgrpo health runs/quickstart/tr_grpo-seed0
      verl-trgrpo health metrics.jsonl || [ $? != 1 ] || scancel $JOB     a file of veRL's file logger; for scripts

    notes:
      Each quantity is compared with its start or its best level in this run.
      The problem that began first is printed first, since the others may follow from this one.
      "active" is a problem at the last step, "lasted" one that ended after a considerable part of the run,
      "ended" a shorter one. "machine" is about time and memory, and has no exit code.

    exit codes:
      0 sound, 1 a problem is active or lasted,
      2 the path has no metrics, 3 nothing can be judged: no metric has a name that veRL or this package logs
    """
    from verl_trgrpo.runs.health import is_known, judge, unjudged

    if not options.path.exists():
        raise ValueError(f"{options.path} does not exist; name a run directory or a file of veRL's file logger")
    steps, abandoned = read_run(options.path)
    if not steps:
        raise ValueError(
            f"{options.path} has no metrics; give a run directory with metrics-N.jsonl, or the file that veRL's logger "
            "`file` wrote (trainer.logger=[console,file], VERL_FILE_LOGGER_PATH)"
        )
    if not is_known(steps):
        names = sorted({name for step in steps for name in step.metrics})
        shown = ", ".join(map(shorten, names[:5])) or "none"
        show(
            f"{count_of(len(steps), 'step')}: nothing can be judged, because no metric ({shown}) has a name that veRL logs"
        )
        return 3
    findings = judge(steps)
    for branch in abandoned:
        show(f"left    {branch.text}, before which the run went back")
    for finding in findings:
        show(f"{finding.state:<6}  {finding.message}")
        if finding.stands or finding.lost:
            show(f"        {finding.remedy}")
    from verl_trgrpo.memory.growth import coming_wall
    from verl_trgrpo.memory.run import card_of_run

    gb = card_of_run(options.path)
    if gb and (wall := coming_wall([(step.number, step.metrics) for step in steps], gb)):
        show(f"coming  {wall.message}")
    sick = sum(finding.is_sick for finding in findings)
    count = sum(step.number > 0 for step in steps)  # a validation may come before the first
    missing = "; not judged: " + ", ".join(unjudged(steps)) if not sick and unjudged(steps) else ""
    signals = count_of(sick, "signal") if sick else "no signals"
    show(f"{count_of(count, 'step')}, the last is {steps[-1].number}: {signals}{missing}")
    return 1 if sick else 0
