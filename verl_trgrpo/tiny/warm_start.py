"""Train a tiny model on demonstrations of its world; write checkpoint, tokenizer and manifest.json to a directory.

examples:
  python -m verl_trgrpo.tiny.warm_start puzzles --out DIR --seed 0
  python -m verl_trgrpo.tiny.warm_start search --out DIR --steps 500

Same options, machine and versions of the libraries give the same bytes.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from verl_trgrpo import __version__
from verl_trgrpo.common.files import file_sha256, read_json, staged_directory, write_json
from verl_trgrpo.common.options import run_program
from verl_trgrpo.common.progress import Progress, no_progress
from verl_trgrpo.data.write import MANIFEST
from verl_trgrpo.tiny.puzzles import PuzzleWarmStart
from verl_trgrpo.tiny.search import SearchWarmStart
from verl_trgrpo.tiny.training import WarmStart, train

WORLDS: dict[str, type[WarmStart]] = {kind.world: kind for kind in (PuzzleWarmStart, SearchWarmStart)}


def is_built(options: WarmStart) -> bool:
    """Return whether the options' directory has a checkpoint that was trained with these options."""
    return read_json(options.out / MANIFEST).get("arguments") == _arguments(options)


def build(options: WarmStart, progress: Progress = no_progress) -> dict[str, Any]:
    """Train a model and write checkpoint, tokenizer and ``manifest.json`` to ``options.out``, all together or not at all.

    Returns:
        the manifest: options, versions and the files' sha256.

    Raises:
        ValueError: where ``options.out`` cannot be written, or the world has not as many tasks.
    """
    with staged_directory(options.out) as stage:
        tokenizer, model = train(options, progress)
        # Half the size; reinforcement learning loads the weights as fp32 again.
        model.bfloat16().save_pretrained(stage)
        tokenizer.save_pretrained(stage)
        # safetensors makes its file readable for its owner alone, which would not do in an installed package.
        (stage / "model.safetensors").chmod(0o644)
        manifest = {
            "package_version": __version__,
            "world": options.world,
            "arguments": _arguments(options),
            "library_versions": {name: version(name) for name in options.libraries},
            "machine": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
            "parameters": model.num_parameters(),
            "files": {path.name: {"sha256": file_sha256(path)} for path in sorted(stage.iterdir())},
        }
        write_json(stage / MANIFEST, manifest)
    return manifest


def _arguments(options: WarmStart) -> dict[str, Any]:
    return {name: value for name, value in asdict(options).items() if name != "out"}


def main(argv: Sequence[str] | None = None) -> int:
    """Build a checkpoint from the words of a command line (None: of this process).

    Returns:
        the exit code: 0 built, 2 for an error that the user can correct, 130 interrupted.
    """
    world, *words = argv or sys.argv[1:] or [""]
    if world not in WORLDS:
        sys.stderr.write(f"{__doc__}\n")
        return 2
    prog = f"python -m verl_trgrpo.tiny.warm_start {world}"
    return run_program(WORLDS[world], _work, prog, __doc__ or "", words)


def _work(options: WarmStart, progress: Progress) -> str:
    return f"{build(options, progress)['parameters']} parameters in {options.out}\n"


if __name__ == "__main__":
    sys.exit(main())
