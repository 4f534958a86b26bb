"""``verl-trgrpo export``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro

from verl_trgrpo.common.findings import raise_invalid


@dataclass(frozen=True)
class ExportOptions:
    """Select the checkpoint and where to write it.

    Args:
        run: run directory, whose latest checkpoint is taken, or one of its global_step_N.
        out: directory for the model; must be empty, unless --push uploads an earlier export of the same checkpoint.
        push: repository on the Hugging Face hub, OWNER/NAME; created if needed.
        private: create a private repository; an existing public one is refused.
    """

    run: tyro.conf.Positional[Path]
    out: Path
    push: str = ""
    private: bool = False

    def __post_init__(self) -> None:
        problems = []
        if self.push and self.push.count("/") != 1:
            problems.append(f"--push {self.push!r} is not a repository; give OWNER/NAME")
        if self.private and not self.push:
            problems.append("--private needs a repository; name it with --push")
        raise_invalid(problems)


def run(options: ExportOptions) -> int:
    """Write a run's checkpoint as a Hugging Face directory with a model card; push it to the hub if asked.

    examples:
      verl-trgrpo export runs/quickstart/tr_grpo-seed0 --out models/quickstart
      verl-trgrpo export runs/kk/tr_grpo --out models/kk-3b --push my-name/kk-3b-tr-grpo --private

    notes:
      The model card is made from the run's own record: base model, data, algorithm, versions, final metrics.
      It shows the last two parts of local paths: read it before you publish.
      To edit the card first, export without --push, edit, and repeat the command with --push.
      A sharded checkpoint is merged by veRL's merger.

    exit codes:
      0 success, 1 the merger or the hub failed, 2 invalid input, 130 interrupted
    """
    from verl_trgrpo.evaluation.export import export, push

    print(f"checkpoint  {export(options.run, options.out, reuse=bool(options.push))}\nmodel       {options.out}")
    if options.push:
        print(f"hub         {push(options.out, options.push, options.private)}")
    return 0
