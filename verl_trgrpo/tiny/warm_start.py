"""Build a tiny model's checkpoint: ``python -m verl_trgrpo.tiny.warm_start puzzles --out DIR --seed 0``.

Same options, machine and versions of the libraries give the same bytes.
"""

from __future__ import annotations

import argparse
import platform
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict, fields
from importlib.metadata import version
from pathlib import Path

from tqdm import tqdm

from verl_trgrpo import __version__
from verl_trgrpo.common.files import staged_directory
from verl_trgrpo.common.progress import Progress, interruptible, no_progress
from verl_trgrpo.data.parquet import MANIFEST, file_sha256, is_intact, read_manifest, write_manifest
from verl_trgrpo.tiny.puzzles import PuzzleWarmStart
from verl_trgrpo.tiny.search import SearchWarmStart
from verl_trgrpo.tiny.training import WarmStart, train

WORLDS: dict[str, type[WarmStart]] = {kind.world: kind for kind in (PuzzleWarmStart, SearchWarmStart)}

CHECKPOINT_FILES = (
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
)


def build(out: Path, options: WarmStart, force: bool = False, progress: Progress = no_progress) -> bool:
    """Train a model and write checkpoint, tokenizer and ``manifest.json`` to `out`, all together or not at all.

    Args:
        out: directory, created if needed.
        options: world and training.
        force: build even where `out` has an intact checkpoint of the same options.
        progress: shows the training.

    Returns:
        whether anything was built.

    Raises:
        ValueError: where `out` cannot be written, or the world has not as many tasks.
    """
    identity = {"package_version": __version__, "world": options.world, "arguments": asdict(options)}
    recorded = read_manifest(out) or {}
    if not force and identity.items() <= recorded.items() and is_intact(out, recorded):
        return False
    with staged_directory(out, replaces=[*CHECKPOINT_FILES, MANIFEST]) as stage:
        tokenizer, model = train(options, progress)
        # Half the size; reinforcement learning loads the weights as fp32 again.
        model.bfloat16().save_pretrained(stage)
        tokenizer.save_pretrained(stage)
        # safetensors makes its file readable for its owner alone, which would not do in an installed package.
        (stage / "model.safetensors").chmod(0o644)
        flags = [word for name, value in asdict(options).items() for word in (_flag(name), str(value))]
        manifest = {
            **identity,
            "command": shlex.join(
                ["python", "-m", "verl_trgrpo.tiny.warm_start", options.world, "--out", "DIR", *flags]
            ),
            "library_versions": {name: version(name) for name in options.libraries},
            "machine": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
            "parameters": model.num_parameters(),
            "accuracy": options.accuracy(stage),
            "files": {name: {"sha256": file_sha256(stage / name)} for name in CHECKPOINT_FILES},
        }
        write_manifest(stage, manifest)
    return True


def main(argv: Sequence[str] | None = None) -> int:
    """Build a checkpoint from the words of a command line (None: of this process).

    Returns:
        the exit code: 0 built or already there, 2 for an error that the user can correct, 130 interrupted.
    """
    arguments = vars(_parser().parse_args(argv))
    kind, out, force = WORLDS[arguments.pop("world")], arguments.pop("out"), arguments.pop("force")
    try:
        with interruptible() as progress:
            built = build(out, kind(**arguments), force, progress)
    except (ValueError, OSError) as error:
        tqdm.write(f"warm_start: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        tqdm.write("warm_start: interrupted; the output directory is as before", file=sys.stderr)
        return 130
    if not built:
        tqdm.write(f"{out} already has this checkpoint, trained with the same options; --force trains it again")
    for tasks, accuracy in (read_manifest(out) or {}).get("accuracy", {}).items():
        tqdm.write(f"{tasks}: greedy accuracy {accuracy['greedy']:.2f}, made to be careful {accuracy['careful']:.2f}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m verl_trgrpo.tiny.warm_start",
        description="Train a tiny model on demonstrations of its world, and write checkpoint, tokenizer and manifest.json "
        "to DIR. Same options, machine and library versions give the same bytes.",
    )
    worlds = parser.add_subparsers(dest="world", required=True, metavar="WORLD")
    for world, kind in WORLDS.items():
        options = worlds.add_parser(world, help=kind.__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
        options.add_argument("--out", type=Path, required=True, metavar="DIR", help="directory for the files")
        options.add_argument("--force", action="store_true", help="train even if DIR has this checkpoint")
        for option in fields(kind):
            kwargs = {"type": type(option.default), "default": option.default, "help": option.metadata["help"]}
            options.add_argument(_flag(option.name), **kwargs)
    return parser


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


if __name__ == "__main__":
    sys.exit(main())
