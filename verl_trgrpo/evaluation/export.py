"""A run's checkpoint as a Hugging Face directory with a model card, and on the hub."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from verl_trgrpo.common.files import staged_directory
from verl_trgrpo.common.text import markdown_table
from verl_trgrpo.evaluation.checkpoint import find_model, merged_model, same_weights
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


def find_checkpoint(run: Path) -> Path:
    """The latest ``global_step_N`` of a run directory, or the one that is named.

    Raises ValueError where there is none.
    """
    if run.name in ("", ".."):  # "." as well; any other path keeps its own name, even if that is a link's
        run = run.resolve()
    if run.name.startswith("global_step_") and run.is_dir():
        return run
    found = latest_checkpoint(run)
    if found is None:  # the single-file trainer keeps no tracker file
        steps = sorted(run.glob("global_step_*"), key=step_of) if not (run / TRACKER).is_file() else []
        found = steps[-1] if steps else None
    if found is None:
        raise ValueError(f"{run} has no checkpoint; name a run directory, or a global_step_N in it (trainer.save_freq)")
    return found


def export(run: Path, out: Path, reuse: bool = False) -> Path:
    """Write a checkpoint's model, tokenizer and card into `out`, which appears as a whole, and return the checkpoint.

    `run` is a run directory, whose latest checkpoint is taken, or one of its ``global_step_N``; `out` is not there yet, or
    empty. With `reuse` it may have been exported before, and stays as it is: its card may have been edited.

    Raises ValueError where there is no checkpoint or `out` has other files, RuntimeError where veRL's merger fails.
    """
    checkpoint = find_checkpoint(run)
    if out.exists() and any(out.iterdir()):
        if not reuse:
            raise ValueError(f"{out} has files; choose another --out")
        if not _is_export(out, checkpoint):
            raise ValueError(
                f"{out} has files that are no export of {checkpoint}; name the one that was exported, or another --out"
            )
        return checkpoint
    with staged_directory(out) as stage:
        model = Path(merged_model(find_model(str(checkpoint)), stage / "merged"))
        shutil.copytree(
            model, stage, dirs_exist_ok=True, ignore=shutil.ignore_patterns("merged_from.json", "optimizer.pt")
        )
        shutil.rmtree(stage / "merged", ignore_errors=True)
        (stage / _CARD).write_text(model_card(checkpoint), encoding="utf-8")
    return checkpoint


def _is_export(out: Path, checkpoint: Path) -> bool:
    # For a merge, where the checkpoint's own directory cannot be written.
    with tempfile.TemporaryDirectory(dir=out.parent) as spare:
        model = Path(merged_model(find_model(str(checkpoint)), Path(spare)))
        return (out / _CARD).is_file() and same_weights(model, out)


def push(directory: Path, repository: str, private: bool = False) -> str:
    """Upload an exported directory to the hub, into a repository that is made if needed; returns its address.

    Raises:
        RuntimeError: when the hub refuses it or cannot be reached, or when `private` is asked for and the repository, which
            was there before, is public; nothing is uploaded then.
    """
    from huggingface_hub import HfApi  # slow import, needed here only

    api = HfApi()
    try:
        url = api.create_repo(repository, private=private or None, exist_ok=True)
        exposed = private and not api.model_info(repository).private
        if not exposed:
            api.upload_folder(folder_path=directory, repo_id=repository, commit_message="Model and card")
    except Exception as error:  # the client and the network beneath it raise many unrelated types
        raise RuntimeError(
            f"{repository} could not be uploaded to {api.endpoint} ({error}); log in with `hf auth login`, and check the name. "
            f"The model is in {directory}; the same command uploads it"
        ) from error
    if exposed:
        raise RuntimeError(
            f"{repository} is there already and public, so nothing was uploaded; make it private on the hub, or leave out "
            "--private"
        )
    return str(url)


def model_card(checkpoint: Path) -> str:
    """What the model is, from the run's own record: base model, data, algorithm, constants, versions, final figures."""
    run_dir, step = checkpoint.parent, step_of(checkpoint)
    record, settings = read_record(run_dir), run_settings(run_dir)
    settings.pop(BASE_MODEL, None)
    base = base_model(run_dir)
    origin = f"{short_path(base)}, trained" if base else "Base model not recorded. Trained"
    algorithm = record.get("algorithm") or record.get("arm") or settings.get("arm") or run_dir.name
    # The single-file trainer writes the model into global_step_N itself.
    by_verl = (run_dir / CONFIG_FILE).is_file() or (checkpoint / "actor").is_dir()
    steps = [found for found in MetricsLog(run_dir).read() if found.number <= step]
    head: dict[str, Any] = {"library_name": "transformers", "pipeline_tag": "text-generation"}
    if _is_on_hub(base, run_dir):
        head["base_model"] = base
    head["tags"] = [*(["verl"] if by_verl else []), "verl-trgrpo", "reinforcement-learning"]
    versions = {**record.get("versions", {}), "commit": record.get("commit") or "not recorded"}
    return "\n".join([
        f"---\n{yaml.safe_dump(head, sort_keys=False)}---\n",
        f"# {run_dir.name}, step {step}\n",
        f"{origin} with {algorithm} by [verl-trgrpo](https://arxiv.org/abs/2511.00066){' and veRL' if by_verl else ''}.",
        *(["Weights are as veRL's merger writes them (bfloat16 for sharded checkpoints)."] if by_verl else []),
        "\n## Training\n", _table(settings),
        "\n## Figures\n", _table(_figures(steps)) if steps else "No metrics were recorded.",
        "\nAccuracies are those of the run's own validations, not of a benchmark's protocol.",
        "\n## Made with\n", _table(versions), "",
    ])  # fmt: skip


def _is_on_hub(model: str, run_dir: Path) -> bool:
    """Whether a model is OWNER/NAME, and no path: nothing of that name is here, or above the run, where it may have started."""
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
    return markdown_table(
        [[f"`{name}`" if "." in name else name, str(value)] for name, value in rows.items()], ["what", "value"]
    )
