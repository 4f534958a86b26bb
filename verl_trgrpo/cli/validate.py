"""Check a configuration before a run. Words that are not options are Hydra overrides.

examples:
  verl-trgrpo validate recipes/knights_and_knaves/qwen2.5-3b-instruct.yaml trainer.nnodes=2 --show
  verl-trgrpo validate trgrpo_trainer data.train_files=train.parquet data.val_files=test.parquet ...

Composes the configuration as training on accelerators would, and checks it in three stages: single settings and files, veRL's
dataclasses, rules between settings. A stage with errors ends the check. "Not checked" is what could not be checked on this
machine, such as a model on a hub; it never counts as passed.
Exit code: 0 without errors, 1 with errors, 2 if the configuration cannot be composed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from verl_trgrpo.common.findings import Level
from verl_trgrpo.common.options import parse_options


@dataclass(frozen=True)
class ValidateOptions:
    """Options of ``verl-trgrpo validate``.

    Args:
        config: a recipe file, or a configuration's name, such as trgrpo_trainer.
        overrides: Hydra overrides.
        show: also print the differences from veRL's defaults, and the number of steps.
        no_files: report missing data and models as "not checked", for machines that do not have them.
        here: compose as verl-trgrpo train would on this machine: without an accelerator, with platform=cpu.
    """

    config: str
    overrides: tuple[str, ...] = ()
    show: bool = False
    no_files: bool = False
    here: bool = False

    def __post_init__(self) -> None:
        if "=" in self.config and not Path(self.config).is_file():
            raise ValueError(f"{self.config}: is an override; give a recipe file or the name of a configuration first")


def run(words: Sequence[str]) -> int:
    options = parse_options(ValidateOptions, "verl-trgrpo validate", __doc__, words, ("config",), "overrides")
    from verl_trgrpo.runs import validate
    from verl_trgrpo.runs.compose import compose
    from verl_trgrpo.runs.environment import accelerator_found

    platform = "cpu" if options.here and not accelerator_found() else None
    composed, need_files = compose(options.config, options.overrides, platform), not options.no_files
    early = [finding for finding in validate.early_findings(composed, need_files) if finding.level is Level.ERROR]
    if early:
        lines = [*(f"error: {finding.message}" for finding in early), "checking the rest ..."]
        print("\n".join(lines), file=sys.stderr, flush=True)
    report = validate.check(composed, need_files)
    print(report.findings_text())
    if options.show:
        print(f"\n{report.details_text()}")
    return 0 if report.ok else 1
