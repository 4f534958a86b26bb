"""``verl-trgrpo validate``."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import tyro

from verl_trgrpo.common.findings import Level


@dataclass(frozen=True)
class ValidateOptions:
    """Select the configuration and what to print.

    Args:
        config: recipe file, or name of a configuration, such as trgrpo_trainer.
        overrides: Hydra overrides, all before or all after the options.
        show: also print where the configuration differs from veRL's defaults, and the number of steps.
        no_files: report missing data and model files as "not checked", for machines that do not have them.
    """

    config: tyro.conf.Positional[str]
    overrides: tyro.conf.Positional[tuple[str, ...]] = ()
    show: bool = False
    no_files: bool = False

    def __post_init__(self) -> None:
        if "=" in self.config and not Path(self.config).is_file():
            raise ValueError(f"{self.config} is an override, not a configuration; give a recipe file or a name first")


def run(options: ValidateOptions) -> int:
    """Find all mistakes in a recipe or configuration without starting it.

    examples:
      verl-trgrpo validate recipes/knights_and_knaves/qwen2.5-3b-instruct.yaml trainer.nnodes=2 --show
      verl-trgrpo validate trgrpo_trainer data.train_files=train.parquet data.val_files=test.parquet ...
      verl-trgrpo validate kk_quickstart platform=cpu --no-files        as on a machine without an accelerator

    notes:
      The configuration is composed as for a training on accelerators, wherever the command runs.
      It is checked in three stages: single settings and files, veRL's dataclasses, rules between settings.
      A stage with errors ends the check.
      "Not checked" is what cannot be checked on this machine, such as a model on a hub.

    exit codes:
      0 no errors, 1 errors, 2 the configuration cannot be composed
    """
    from verl_trgrpo.checks import check
    from verl_trgrpo.runs.compose import compose

    composed, need_files = compose(options.config, options.overrides), not options.no_files
    early = [finding for finding in check.early_findings(composed, need_files) if finding.level is Level.ERROR]
    if early:
        lines = [*(f"error: {finding.message}" for finding in early), "checking the rest ..."]
        print("\n".join(lines), file=sys.stderr, flush=True)
    report = check.check(composed, need_files)
    print(report.findings_text())
    if options.show:
        print(f"\n{report.details_text()}")
    return 0 if report.ok else 1
