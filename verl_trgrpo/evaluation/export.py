"""Export a run's checkpoint as a Hugging Face directory with a short model card."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import yaml

from verl_trgrpo.common.files import staged_directory
from verl_trgrpo.evaluation.checkpoint import find_checkpoint, find_model, merged_model
from verl_trgrpo.runs.checkpoints import step_of
from verl_trgrpo.runs.metrics import MetricsLog, read_record
from verl_trgrpo.runs.run_directory import TRAINING_DATA, base_model, run_settings, short_path

_HUB_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*")


def export(run: Path, out: Path) -> Path:
    """Write a checkpoint's model, tokenizer and card into `out`, which appears as a whole, and return the checkpoint.

    Of a run directory the latest checkpoint is taken.

    Raises:
        ValueError: there is no checkpoint, or `out` has other files.
        RuntimeError: veRL's merger fails.
    """
    checkpoint = find_checkpoint(run)
    if out.exists() and any(out.iterdir()):
        raise ValueError(f"out={out} has files; choose another directory")
    with staged_directory(out) as stage:
        model = Path(merged_model(find_model(str(checkpoint)), stage / "merged"))
        _check_links(model, (checkpoint.resolve(), stage))
        left_out = shutil.ignore_patterns("merged_from.json", "optimizer.pt")
        shutil.copytree(model, stage, dirs_exist_ok=True, ignore=left_out)
        shutil.rmtree(stage / "merged", ignore_errors=True)
        (stage / "README.md").write_text(model_card(checkpoint), encoding="utf-8")
    return checkpoint


def _check_links(model: Path, allowed: tuple[Path, ...]) -> None:
    """Raise a ValueError for a model with a link out of its checkpoint: the file behind it would be published."""
    for path in (model, *model.rglob("*")):
        if not any(path.resolve().is_relative_to(place) for place in allowed):
            raise ValueError(f"{path} is a link out of {allowed[0]}; put the file itself there, or remove it")


def model_card(checkpoint: Path) -> str:
    """Build the card from the run's own record: base model, data, algorithm, validation accuracy, versions."""
    run_dir, step = checkpoint.parent, step_of(checkpoint)
    record, settings, base = read_record(run_dir), run_settings(run_dir), base_model(run_dir)
    known = [found for found in MetricsLog(run_dir).read() if found.number <= step and found.accuracy is not None]
    accuracy = f"{known[-1].accuracy:.3f} (step {known[-1].number})" if known else "not recorded"
    made_with = [f"{name} {version}" for name, version in record.get("versions", {}).items()]
    head = {"library_name": "transformers", "tags": ["verl-trgrpo", "reinforcement-learning"]}
    if _is_on_hub(base, run_dir):
        head["base_model"] = base
    facts = {
        "base model": short_path(base) if base else "not recorded",
        "algorithm": record.get("algorithm") or record.get("arm") or settings.get("arm") or run_dir.name,
        TRAINING_DATA: settings.get(TRAINING_DATA) or "not recorded",
        "validation accuracy in training": accuracy,
        "made with": ", ".join([*made_with, f"commit {record.get('commit') or 'not recorded'}"]),
    }
    lines = [f"- {name}: {value}" for name, value in facts.items()]
    title = f"# {run_dir.name}, step {step}, by [verl-trgrpo](https://arxiv.org/abs/2511.00066)"
    return "\n".join(["---", yaml.safe_dump(head).strip(), "---", "", title, "", *lines, ""])


def _is_on_hub(model: str, run_dir: Path) -> bool:
    """Return whether a model is OWNER/NAME and not a path: neither the current nor a directory above the run has it."""
    places = (Path(), run_dir, *run_dir.absolute().parents)
    return bool(_HUB_NAME.fullmatch(model)) and not any((place / model).exists() for place in places)
