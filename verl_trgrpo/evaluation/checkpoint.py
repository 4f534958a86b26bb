"""From what the user names to a directory that vLLM loads; sharded veRL checkpoints are merged by veRL's own merger."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_trgrpo.common.files import staged_directory
from verl_trgrpo.runs.environment import accelerator_found, training_environment

MERGED = "merged_hf"
_ORIGIN = "merged_from.json"
_WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.pth")


@dataclass(frozen=True)
class Model:
    """What `find_model` found.

    load_from: directory or hub name for vLLM; None for a sharded checkpoint, which has to be merged.
    shards: directory of the sharded checkpoint, or None.
    """

    load_from: str | None
    shards: Path | None = None

    def fingerprint(self) -> dict[str, Any]:
        """Return what changes when the weights do: the name, and size and time of each weight file of a directory."""
        place = self.shards or Path(str(self.load_from))
        if not place.is_dir():
            return {"name": self.load_from}
        return {"name": str(place.resolve()), "weights": _weight_files(place)}


def find_model(name: str) -> Model:
    """Return where the weights of `name` are: a veRL checkpoint, a Hugging Face directory, or a name on the hub.

    Raises ValueError for a directory that is none of these, and for kinds of checkpoints that cannot be merged here.
    """
    path = Path(name).expanduser()
    if not path.exists():
        if path.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1:
            raise ValueError(f"the model {name} does not exist; check the path")
        return Model(name)
    if (path / "config.json").is_file():
        return Model(str(path))
    shards = path / "actor" if (path / "actor").is_dir() else path
    if (shards / "huggingface" / "config.json").is_file() and [*(shards / "huggingface").glob("*.safetensors")]:
        return Model(str(shards / "huggingface"))  # saved with checkpoint.save_contents=[..., hf_model]
    if (shards / "model").is_dir() and not (shards / "fsdp_config.json").is_file():
        raise ValueError(
            f"{shards} looks like a Megatron checkpoint; merge it with python -m verl.model_merger merge --backend "
            f"megatron --local_dir {shards} --target_dir DIR, then evaluate DIR"
        )
    if not (shards / "fsdp_config.json").is_file():
        latest = path / "latest_checkpointed_iteration.txt"
        hint = f"; its latest checkpoint is {path}/global_step_{latest.read_text().strip()}" if latest.is_file() else ""
        raise ValueError(
            f"{path} is neither a veRL checkpoint (global_step_N or its actor directory) nor a Hugging Face model "
            f"directory (config.json){hint}"
        )
    if (shards / "lora_train_meta.json").is_file():
        raise ValueError(_lora_problem(shards))
    return Model(None, shards)


def merged_model(model: Model, out: Path) -> str:
    """Return what vLLM loads; a sharded checkpoint is merged first, unless that was done before.

    The merged model lies beside the checkpoint's ``actor`` directory as ``merged_hf``, or in `out` where that cannot be
    written. It appears whole or not at all, and is made again when the shards have changed. veRL's merger writes
    bfloat16 weights, whatever the shards are.

    Raises RuntimeError when the merger fails.
    """
    if model.load_from is not None or model.shards is None:
        return str(model.load_from)
    parent = model.shards.parent if os.access(model.shards.parent, os.W_OK | os.X_OK) else out
    target = parent / MERGED
    origin = {"shards": str(model.shards.resolve()), "weights": _weight_files(model.shards)}
    if _read_json(target / _ORIGIN) == origin:
        return str(target)
    old = {path.name for path in target.iterdir()} if target.is_dir() else set()
    with staged_directory(target, replaces=old) as stage:
        _merge(model.shards, stage)
        if (stage / "lora_adapter").exists():
            raise RuntimeError(_lora_problem(model.shards))
        (stage / _ORIGIN).write_text(json.dumps(origin, indent=2) + "\n", encoding="utf-8")
    return str(target)


def _merge(shards: Path, stage: Path) -> None:
    arguments = ["merge", "--backend", "fsdp", "--local_dir", str(shards), "--target_dir", str(stage)]
    environment = training_environment(not accelerator_found(), os.devnull)
    # In a process of its own: it needs the memory of the whole model, which vLLM will want.
    result = subprocess.run(
        [sys.executable, "-m", "verl.model_merger", *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if result.returncode or not (stage / "config.json").is_file():
        ending = " | ".join((result.stderr or result.stdout).strip().splitlines()[-3:])
        raise RuntimeError(
            f"veRL's model merger failed on {shards} (exit code {result.returncode}): {ending}. "
            f"Run python -m verl.model_merger {' '.join(arguments[:-1])} DIR to see all of its output"
        )


def _weight_files(directory: Path) -> dict[str, list[int]]:
    paths = sorted({path for pattern in _WEIGHTS for path in directory.glob(pattern)})
    # The optimizer's shards do not matter, and are often left out of copies.
    facts = {path.name: path.stat() for path in paths if not path.name.startswith(("optim_", "extra_state_"))}
    return {name: [stat.st_size, stat.st_mtime_ns] for name, stat in facts.items()}


def _lora_problem(shards: Path) -> str:
    return (
        f"{shards} is a LoRA checkpoint; veRL's merger writes base weights and adapter apart, and evaluating the base would "
        "mislead. Merge the adapter into the base (peft's merge_and_unload) and evaluate the result"
    )


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
