"""Build the checkpoint of the tiny model: ``python -m verl_trgrpo.tiny_model.warm_start --out DIR --seed 0``.

Same options, machine and versions of the libraries give the same bytes.
"""

from __future__ import annotations

import argparse
import platform
import shlex
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tqdm import tqdm

from verl_trgrpo import __version__
from verl_trgrpo.data.kk_sources import Progress, no_progress
from verl_trgrpo.data.parquet import (
    MANIFEST,
    file_sha256,
    is_intact,
    read_manifest,
    staged_files,
    write_manifest,
)
from verl_trgrpo.tiny_model.accuracy import measure_accuracy
from verl_trgrpo.tiny_model.training import WarmStartOptions, train

CHECKPOINT_FILES = (
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
)

HELP = {
    "seed": "decides puzzles, first weights and order",
    "puzzles": "different puzzles with three people",
    "steps": "optimizer steps",
    "batch_size": "demonstrations per step",
    "skill_share": "share of the steps in the first part, which teaches reasoning",
    "skill_careful": "share of careful demonstrations in the first part",
    "final_careful": "share of careful demonstrations in the last part",
    "threads": "threads of torch",
    "test_puzzles": "held-out puzzles per number of people to measure the accuracy on",
}


def build(out: Path, options: WarmStartOptions, force: bool = False, progress: Progress = no_progress) -> bool:
    """Train the model and write checkpoint, tokenizer and ``manifest.json`` to `out`.

    Returns whether anything was built: nothing is where `out` has an intact checkpoint of the same options and `force`
    is not set. The files appear together or the old ones stay. Sets torch's global seed and number of threads. Raises
    ValueError where `out` cannot be written.
    """
    recorded = read_manifest(out)
    arguments = asdict(options)
    if recorded is not None and not force:
        same = recorded.get("package_version") == __version__ and recorded.get("arguments") == arguments
        if same and is_intact(out, recorded):
            return False
    with staged_files(out, [*CHECKPOINT_FILES, MANIFEST]) as stage:
        tokenizer, model = train(options, progress)
        # Half the size; reinforcement learning loads the weights as fp32 again.
        model.bfloat16().save_pretrained(stage)
        tokenizer.save_pretrained(stage)
        # safetensors makes its file readable for its owner alone, which would not do in an installed package.
        (stage / "model.safetensors").chmod(0o644)
        accuracy = measure_accuracy(stage, options.test_puzzles, options.seed)
        files = {name: {"sha256": file_sha256(stage / name)} for name in CHECKPOINT_FILES}
        write_manifest(stage, _manifest(options, accuracy, files, model.num_parameters()))
    return True


def _manifest(options: WarmStartOptions, accuracy: Any, files: Any, parameters: int) -> dict[str, Any]:
    flags = [word for name, value in asdict(options).items() for word in (f"--{name.replace('_', '-')}", str(value))]
    return {
        "package_version": __version__,
        "command": shlex.join(["python", "-m", "verl_trgrpo.tiny_model.warm_start", "--out", ".", *flags]),
        "arguments": asdict(options),
        "library_versions": {name: version(name) for name in ("torch", "transformers", "tokenizers", "reasoning-gym")},
        "machine": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "parameters": parameters,
        "accuracy_on_unseen_puzzles": accuracy,
        "files": files,
    }


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    defaults = WarmStartOptions()
    parser = argparse.ArgumentParser(
        prog="python -m verl_trgrpo.tiny_model.warm_start",
        description="Train the tiny model of the quickstart on puzzle demonstrations and write checkpoint, tokenizer "
        "and manifest.json to DIR. Same options, machine and library versions give the same bytes.",
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="directory for the files")
    for name, text in HELP.items():
        default = getattr(defaults, name)
        flag = f"--{name.replace('_', '-')}"
        parser.add_argument(flag, type=type(default), default=default, help=f"{text} (default {default})")
    parser.add_argument("--force", action="store_true", help="train even if DIR has this checkpoint")
    return parser.parse_args(argv)


def show_progress(items: Iterable[Any], total: int, label: str) -> Iterable[Any]:
    return tqdm(items, total=total, desc=label, file=sys.stderr)


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit code: 0 built or already there, 2 for an error that the user can correct, 130 interrupted."""
    arguments = vars(parse_arguments(argv))
    out, force = arguments.pop("out"), arguments.pop("force")
    try:
        built = build(out, WarmStartOptions(**arguments), force, show_progress)
    except (ValueError, OSError) as error:
        tqdm.write(f"warm_start: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        tqdm.write("warm_start: interrupted; the output directory is as before", file=sys.stderr)
        return 130
    if not built:
        tqdm.write(f"{out} already has this checkpoint, trained with the same options; --force trains it again")
    manifest = read_manifest(out) or {}
    for size, accuracy in manifest.get("accuracy_on_unseen_puzzles", {}).items():
        tqdm.write(f"{size}: greedy accuracy {accuracy['greedy']:.2f}, made to reason {accuracy['careful']:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
