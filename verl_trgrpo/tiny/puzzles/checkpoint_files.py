"""The files of a tiny model's checkpoint: written together, with a manifest that says how they were made."""

from __future__ import annotations

import platform
import shlex
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verl_trgrpo import __version__
from verl_trgrpo.data.parquet import MANIFEST, file_sha256, is_intact, read_manifest, write_manifest
from verl_trgrpo.data.staging import staged_files

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, Qwen2ForCausalLM

CHECKPOINT_FILES = (
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
)


def build_checkpoint(
    out: Path,
    *,
    module: str,
    arguments: Mapping[str, Any],
    libraries: Sequence[str],
    train: Callable[[], tuple[PreTrainedTokenizerBase, Qwen2ForCausalLM]],
    measure: Callable[[Path], Any],
    force: bool = False,
) -> bool:
    """Train a model and write checkpoint, tokenizer and ``manifest.json`` to `out`, all together or not at all.

    Args:
        out: directory, created if needed.
        module: the module whose command line builds it.
        arguments: its options; equal ones give an equal checkpoint.
        libraries: packages that the result depends on.
        train: returns tokenizer and model.
        measure: returns accuracies of the checkpoint in a directory.
        force: build even where `out` has an intact checkpoint of the same arguments.

    Returns:
        whether anything was built.

    Raises:
        ValueError: where `out` cannot be written.
    """
    recorded = read_manifest(out)
    if recorded is not None and not force:
        same = recorded.get("package_version") == __version__ and recorded.get("arguments") == arguments
        if same and is_intact(out, recorded):
            return False
    with staged_files(out, replaces=[*CHECKPOINT_FILES, MANIFEST]) as stage:
        tokenizer, model = train()
        # Half the size; reinforcement learning loads the weights as fp32 again.
        model.bfloat16().save_pretrained(stage)
        tokenizer.save_pretrained(stage)
        for path in stage.iterdir():
            if path.name not in CHECKPOINT_FILES:
                path.unlink()
        # safetensors makes its file readable for its owner alone, which would not do in an installed package.
        (stage / "model.safetensors").chmod(0o644)
        flags = [word for name, value in arguments.items() for word in (f"--{name.replace('_', '-')}", str(value))]
        manifest = {
            "package_version": __version__,
            "command": shlex.join(["python", "-m", module, "--out", "checkpoint", *flags]),
            "arguments": dict(arguments),
            "library_versions": {name: version(name) for name in libraries},
            "machine": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
            "parameters": model.num_parameters(),
            "accuracy": measure(stage),
            "files": {name: {"sha256": file_sha256(stage / name)} for name in CHECKPOINT_FILES},
        }
        write_manifest(stage, manifest)
    return True
