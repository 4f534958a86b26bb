"""A run's checkpoint as a Hugging Face directory with a model card, and on the hub."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf

from verl_trgrpo.common.files import staged_directory
from verl_trgrpo.common.tables import markdown_table
from verl_trgrpo.evaluation.checkpoint import find_model, merged_model
from verl_trgrpo.runs.checkpoints import TRACKER, latest_checkpoint, step_of
from verl_trgrpo.runs.metrics import MetricsLog, Step
from verl_trgrpo.runs.record import read_record
from verl_trgrpo.runs.resume import CONFIG_FILE
from verl_trgrpo.runs.settings import BASE_MODEL, run_settings

_CARD = "README.md"


def find_checkpoint(run: Path) -> Path:
    """The latest ``global_step_N`` of a run directory, or the one that is named.

    Raises ValueError where there is none.
    """
    if run.name.startswith("global_step_") and run.is_dir():
        return run
    found = latest_checkpoint(run)
    if found is None:  # the single-file trainer keeps no tracker file
        steps = sorted(run.glob("global_step_*"), key=step_of) if not (run / TRACKER).is_file() else []
        found = steps[-1] if steps else None
    if found is None:
        raise ValueError(f"{run} has no checkpoint; name a run directory, or a global_step_N in it (trainer.save_freq)")
    return found


def export(run: Path, out: Path) -> Path:
    """Write a checkpoint's model, tokenizer and card into `out`, which appears as a whole, and return the checkpoint.

    `run` is a run directory, whose latest checkpoint is taken, or one of its ``global_step_N``; `out` is not there yet, or
    empty.

    Raises ValueError where there is no checkpoint or `out` has files, RuntimeError where veRL's merger fails.
    """
    if out.exists() and any(out.iterdir()):
        raise ValueError(f"{out} has files; choose another --out")
    checkpoint = find_checkpoint(run)
    with staged_directory(out) as stage:
        model = Path(merged_model(find_model(str(checkpoint)), stage / "merged"))
        shutil.copytree(
            model, stage, dirs_exist_ok=True, ignore=shutil.ignore_patterns("merged_from.json", "optimizer.pt")
        )
        shutil.rmtree(stage / "merged", ignore_errors=True)
        (stage / _CARD).write_text(model_card(checkpoint), encoding="utf-8")
    return checkpoint


def push(directory: Path, repository: str) -> str:
    """Upload an exported directory to the hub, into a repository that is made if needed; returns its address.

    Raises:
        RuntimeError: when the hub refuses it or cannot be reached.
    """
    from huggingface_hub import HfApi  # slow import, needed here only

    api = HfApi()
    try:
        url = api.create_repo(repository, exist_ok=True)
        api.upload_folder(folder_path=directory, repo_id=repository, commit_message="Model and card")
    except Exception as error:  # the client and the network beneath it raise many unrelated types
        raise RuntimeError(
            f"{repository} could not be uploaded to {api.endpoint} ({error}); log in with `hf auth login`, and check the name. "
            f"The model is in {directory}"
        ) from error
    return str(url)


def model_card(checkpoint: Path) -> str:
    """What the model is, from the run's own record: base model, data, algorithm, constants, versions, final figures."""
    run_dir, step = checkpoint.parent, step_of(checkpoint)
    record, settings = read_record(run_dir), run_settings(run_dir)
    base = str(settings.pop(BASE_MODEL, "not recorded"))
    algorithm = str(record.get("algorithm") or record.get("arm") or run_dir.name)
    steps = [found for found in MetricsLog(run_dir).read() if found.number <= step]
    head: dict[str, Any] = {"library_name": "transformers", "pipeline_tag": "text-generation"}
    if base == _recorded_model(run_dir):
        head["base_model"] = base  # a name on the hub, which is not shortened
    head["tags"] = ["verl", "verl-trgrpo", "reinforcement-learning"]
    versions = {**record.get("versions", {}), "commit": record.get("commit") or "not recorded"}
    return "\n".join([
        f"---\n{yaml.safe_dump(head, sort_keys=False)}---\n",
        f"# {run_dir.name}, step {step}\n",
        f"{base}, trained with {algorithm} by [verl-trgrpo](https://arxiv.org/abs/2511.00066) and veRL.",
        "Weights are as veRL's merger writes them (bfloat16 for sharded checkpoints).\n",
        "## Training\n", _table(settings),
        "\n## Figures\n", _table(_figures(steps)) if steps else "No metrics were recorded.",
        "\nAccuracies are those of the run's own validations, not of a benchmark's protocol.",
        "\n## Made with\n", _table(versions), "",
    ])  # fmt: skip


def _recorded_model(run_dir: Path) -> str:
    path = run_dir / CONFIG_FILE
    return str(OmegaConf.select(OmegaConf.load(path), "actor_rollout_ref.model.path")) if path.is_file() else ""


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
