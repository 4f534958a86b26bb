"""Export a run's checkpoint as a Hugging Face directory with a model card, and upload it to the hub."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from verl_trgrpo.common.files import staged_directory
from verl_trgrpo.common.text import markdown_table
from verl_trgrpo.evaluation.checkpoint import find_model, merged_model
from verl_trgrpo.runs.checkpoints import TRACKER, latest_checkpoint, step_of
from verl_trgrpo.runs.metrics import MetricsLog, Step
from verl_trgrpo.runs.run_directory import (
    BASE_MODEL,
    CONFIG_FILE,
    base_model,
    read_record,
    run_settings,
    short_path,
)

_CARD = "README.md"
_HUB_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*")

_TEMPLATE = """\
---
{{ card_data }}
---

# {{ name }}, step {{ step }}

{{ origin }} with {{ algorithm }} by [verl-trgrpo](https://arxiv.org/abs/2511.00066){{ " and veRL" if by_verl }}.
{{ "Weights are as veRL's merger writes them (bfloat16 for sharded checkpoints)." if by_verl }}

## Training

{{ settings }}

## Figures

{{ figures }}

Accuracies are those of the run's own validations, not of a benchmark's protocol.

## Made with

{{ versions }}
"""


def find_checkpoint(run: Path) -> Path:
    """Return the latest ``global_step_N`` of a run directory, or `run` if it is one.

    Raises:
        ValueError: there is none.
    """
    if run.name in ("", ".."):  # "." as well; any other path keeps its own name, even that of a link
        run = run.resolve()
    if run.name.startswith("global_step_") and run.is_dir():
        return run
    found = latest_checkpoint(run)
    if found is None:  # the single-file trainer keeps no tracker file
        steps = sorted(run.glob("global_step_*"), key=step_of) if not (run / TRACKER).is_file() else []
        found = steps[-1] if steps else None
    if found is None:
        raise ValueError(f"{run} has no checkpoint; give a run directory, or a global_step_N in it (trainer.save_freq)")
    return found


def export(run: Path, out: Path) -> Path:
    """Write a checkpoint's model, tokenizer and card into `out`, which appears as a whole, and return the checkpoint.

    Args:
        run: a run directory, whose latest checkpoint is taken, or one of its ``global_step_N``.
        out: must not exist yet, or be empty.

    Raises:
        ValueError: there is no checkpoint, or `out` has other files.
        RuntimeError: veRL's merger fails.
    """
    checkpoint = find_checkpoint(run)
    if out.exists() and any(out.iterdir()):
        raise ValueError(
            f"out={out} has files; choose another directory, or upload it with `hf upload OWNER/NAME {out}`"
        )
    with staged_directory(out) as stage:
        model = Path(merged_model(find_model(str(checkpoint)), stage / "merged"))
        left_out = shutil.ignore_patterns("merged_from.json", "optimizer.pt")
        shutil.copytree(model, stage, dirs_exist_ok=True, ignore=left_out)
        shutil.rmtree(stage / "merged", ignore_errors=True)
        (stage / _CARD).write_text(model_card(checkpoint), encoding="utf-8")
    return checkpoint


def push(directory: Path, repository: str, private: bool = False) -> str:
    """Upload an exported directory into a repository on the hub, which is made if needed; return its address.

    Raises:
        RuntimeError: the hub refuses it or cannot be reached, or `private` is set and an existing repository is public;
            nothing is uploaded then.
    """
    from huggingface_hub import HfApi  # slow import

    api = HfApi()
    try:
        url = api.create_repo(repository, private=private or None, exist_ok=True)
        exposed = private and not api.model_info(repository).private
        if not exposed:
            api.upload_folder(folder_path=directory, repo_id=repository, commit_message="Model and card")
    except Exception as error:  # the client and the network beneath it raise many unrelated types
        raise RuntimeError(
            f"{repository} could not be uploaded to {api.endpoint} ({error}); log in with `hf auth login`, check the name, and "
            f"upload the model with `hf upload {repository} {directory}`"
        ) from error
    if exposed:
        raise RuntimeError(
            f"{repository} exists and is public, so nothing was uploaded; make it private on the hub, or leave out --private"
        )
    return str(url)


def model_card(checkpoint: Path) -> str:
    """Build the card from the run's own record: base model, data, algorithm, constants, versions, final figures."""
    from huggingface_hub import ModelCard, ModelCardData

    run_dir, step = checkpoint.parent, step_of(checkpoint)
    record, settings = read_record(run_dir), run_settings(run_dir)
    settings.pop(BASE_MODEL, None)
    base = base_model(run_dir)
    # The single-file trainer writes the model into global_step_N itself.
    by_verl = (run_dir / CONFIG_FILE).is_file() or (checkpoint / "actor").is_dir()
    steps = [found for found in MetricsLog(run_dir).read() if found.number <= step]
    data = ModelCardData(
        library_name="transformers",
        pipeline_tag="text-generation",
        base_model=base if _is_on_hub(base, run_dir) else None,
        tags=[*(["verl"] if by_verl else []), "verl-trgrpo", "reinforcement-learning"],
    )
    card = ModelCard.from_template(
        data,
        template_str=_TEMPLATE,
        name=run_dir.name,
        step=step,
        origin=f"{short_path(base)}, trained" if base else "Base model not recorded. Trained",
        algorithm=record.get("algorithm") or record.get("arm") or settings.get("arm") or run_dir.name,
        by_verl=by_verl,
        settings=_table(settings),
        figures=_table(_figures(steps)) if steps else "No metrics were recorded.",
        versions=_table({**record.get("versions", {}), "commit": record.get("commit") or "not recorded"}),
    )
    return str(card) + "\n"


def _is_on_hub(model: str, run_dir: Path) -> bool:
    """Return whether a model is OWNER/NAME and not a path: neither the current nor a directory above the run has it."""
    places = (Path(), run_dir, *run_dir.absolute().parents)
    return bool(_HUB_NAME.fullmatch(model)) and not any((place / model).exists() for place in places)


def _figures(steps: list[Step]) -> dict[str, str]:
    accuracies = [(step.number, step.accuracy) for step in steps if step.accuracy is not None]
    rewards = [(step.number, step.reward) for step in steps if step.reward is not None]
    figures = {}
    for name, values in (("validation accuracy", accuracies), ("training reward", rewards)):
        for number, value in dict([values[0], values[-1]] if values else []).items():
            figures[f"{name} at step {number}"] = f"{value:.3f}"
    return figures


def _table(rows: Mapping[str, Any]) -> str:
    cells = [[f"`{name}`" if "." in name else name, str(value)] for name, value in rows.items()]
    return markdown_table(cells, ["name", "value"])
