"""Check a configuration before a run. Words that are no options are Hydra overrides.

examples:
  verl-trgrpo validate recipes/knights_and_knaves/qwen2.5-3b-instruct.yaml trainer.nnodes=2 --show
  verl-trgrpo validate trgrpo_trainer data.train_files=train.parquet data.val_files=test.parquet ...

Composes the configuration as training on accelerators would, wherever it is asked, builds veRL's dataclasses from it, asks
veRL's own validate_config, and compares sizes, lengths, files, rewards, clip and token weights. "Not checked" is what could
not be looked at, such as a model on a hub, and never counts as passed.
Exit code: 0 without errors, 1 with errors, 2 when nothing can be composed.
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
    """What to check, and what to print.

    Args:
        config: a recipe file, or a configuration's name, such as trgrpo_trainer.
        overrides: Hydra overrides.
        show: also print where the configuration differs from veRL's defaults, and the number of steps.
        no_files: missing data and model files are "not checked", for machines where they are not.
        here: as verl-trgrpo train would run it on this machine: without an accelerator, platform=cpu.
    """

    config: str
    overrides: tuple[str, ...] = ()
    show: bool = False
    no_files: bool = False
    here: bool = False

    def __post_init__(self) -> None:
        if "=" in self.config and not Path(self.config).is_file():
            raise ValueError(f"{self.config} is an override, not a configuration; give a recipe file or a name first")


def run(words: Sequence[str]) -> int:
    options = parse_options(ValidateOptions, "verl-trgrpo validate", __doc__, words, ("config",), "overrides")
    from verl_trgrpo.runs.checks.sections import early_findings
    from verl_trgrpo.runs.compose import compose
    from verl_trgrpo.runs.environment import accelerator_found
    from verl_trgrpo.runs.validate import check

    platform = "cpu" if options.here and not accelerator_found() else None
    composed, need_files = compose(options.config, options.overrides, platform), not options.no_files
    findings = early_findings(composed, need_files)
    if missing := [f"error: {finding.message}" for finding in findings if finding.level is Level.ERROR]:
        print("\n".join([*missing, "looking at the rest ..."]), file=sys.stderr, flush=True)
    report = check(composed, need_files)
    print(report.findings_text())
    if options.show:
        print(f"\n{report.details_text()}")
    return 0 if report.ok else 1
