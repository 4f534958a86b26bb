"""Write a run's checkpoint as a Hugging Face directory with a model card, and push it to the hub if you like.

examples:
  verl-trgrpo export runs/quickstart/tr_grpo-seed0 --out models/quickstart
  verl-trgrpo export runs/knights_and_knaves/qwen2.5-3b-instruct-tr_grpo --out models/kk-3b --push my-name/kk-3b-tr-grpo --private

RUN is a run directory, whose latest checkpoint is taken, or one of its global_step_N. A sharded checkpoint is merged by veRL's
merger. The card is made from the run's own record: base model, data, algorithm with its constants, versions, final figures.
Of paths it has the last two parts: read it before you publish it. With --push, --out may hold an export of the same checkpoint
with an edited card, which is uploaded as it is.
Exit code: 0 fine, 1 the merger or the hub failed, 2 wrong input, 130 interrupted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from verl_trgrpo.common.findings import raise_invalid
from verl_trgrpo.common.options import parse_options


@dataclass(frozen=True)
class ExportOptions:
    """One export.

    Args:
        run: run directory, or one of its global_step_N.
        out: directory for the model; must not have files yet, except with --push those of the same export.
        push: repository on the Hugging Face hub, OWNER/NAME; made if needed.
        private: make a private repository; an existing public one is refused.
    """

    run: Path
    out: Path
    push: str = ""
    private: bool = False

    def __post_init__(self) -> None:
        messages = []
        if self.push and self.push.count("/") != 1:
            messages.append(f"push={self.push!r} is not a repository; give OWNER/NAME")
        if self.private and not self.push:
            messages.append("--private has no effect without --push; give the repository")
        raise_invalid(messages)


def run(words: Sequence[str]) -> int:
    options = parse_options(ExportOptions, "verl-trgrpo export", __doc__, words, ("run",))
    from verl_trgrpo.evaluation.export import export, push

    print(f"checkpoint  {export(options.run, options.out, reuse=bool(options.push))}\nmodel       {options.out}")
    if options.push:
        print(f"hub         {push(options.out, options.push, options.private)}")
    return 0
