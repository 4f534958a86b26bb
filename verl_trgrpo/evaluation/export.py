"""A run's checkpoint as a Hugging Face directory with a model card, and on the hub."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf

from verl_trgrpo.common.files import staged_directory
from verl_trgrpo.common.tables import markdown_table
from verl_trgrpo.evaluation.checkpoint import find_model, merged_model
from verl_trgrpo.runs.checkpoints import TRACKER, latest_checkpoint, step_of
from verl_trgrpo.runs.checks.files import data_files
from verl_trgrpo.runs.metrics import MetricsLog, Step
from verl_trgrpo.runs.record import read_record
from verl_trgrpo.runs.resume import CONFIG_FILE

_CARD = "README.md"
_LOSS = "actor_rollout_ref.actor.policy_loss"
# What decides how a model was trained, in the order in which people ask.
_KEYS = (
    f"{_LOSS}.loss_mode", "algorithm.adv_estimator", "actor_rollout_ref.actor.loss_agg_mode",
    "actor_rollout_ref.actor.clip_ratio_low", "actor_rollout_ref.actor.clip_ratio_high",
    "actor_rollout_ref.actor.use_kl_loss", "actor_rollout_ref.actor.kl_loss_coef", "actor_rollout_ref.actor.optim.lr",
    "data.train_batch_size", "actor_rollout_ref.actor.ppo_mini_batch_size", "actor_rollout_ref.rollout.n",
    "actor_rollout_ref.rollout.temperature", "data.max_prompt_length", "data.max_response_length", "data.seed",
)  # fmt: skip


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint and the run that made it.

    Args:
        path: ``global_step_N``.
        run_dir: the run's directory.
    """

    path: Path
    run_dir: Path


def find_checkpoint(run: Path) -> Checkpoint:
    """The latest checkpoint of a run directory, or the one that is named.

    Raises ValueError where there is none.
    """
    if run.name.startswith("global_step_") and run.is_dir():
        return Checkpoint(run, run.parent)
    found = latest_checkpoint(run)
    if found is None:  # the single-file trainer keeps no tracker file
        steps = sorted(run.glob("global_step_*"), key=step_of) if not (run / TRACKER).is_file() else []
        found = steps[-1] if steps else None
    if found is None:
        raise ValueError(f"{run} has no checkpoint; name a run directory, or a global_step_N in it (trainer.save_freq)")
    return Checkpoint(found, run)


def export(run: Path, out: Path) -> Path:
    """Write a checkpoint's model, tokenizer and card into `out`, which appears as a whole.

    Args:
        run: run directory, whose latest checkpoint is taken, or one of its ``global_step_N``.
        out: a directory that is not there yet, or is empty.

    Returns:
        the checkpoint.

    Raises:
        ValueError: no checkpoint, or `out` has files.
        RuntimeError: veRL's merger fails.
    """
    if out.exists() and any(out.iterdir()):
        raise ValueError(f"{out} has files; choose another --out")
    checkpoint = find_checkpoint(run)
    with staged_directory(out) as stage:
        model = Path(merged_model(find_model(str(checkpoint.path)), stage / "merged"))
        for path in model.iterdir():
            if path.name not in ("merged_from.json", "optimizer.pt"):
                shutil.copy2(path, stage)
        shutil.rmtree(stage / "merged", ignore_errors=True)
        (stage / _CARD).write_text(model_card(checkpoint), encoding="utf-8")
    return checkpoint.path


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


def model_card(checkpoint: Checkpoint) -> str:
    """What the model is, from the run's own record: base model, data, algorithm, constants, versions, final figures."""
    record = read_record(checkpoint.run_dir)
    config = OmegaConf.load(checkpoint.run_dir / CONFIG_FILE) if (checkpoint.run_dir / CONFIG_FILE).is_file() else None
    settings = _settings(config) if isinstance(config, DictConfig) else dict(record.get("settings", {}))
    base = str(settings.pop("base model", settings.pop("model", "not recorded")))
    algorithm = str(record.get("algorithm") or record.get("arm") or checkpoint.run_dir.name)
    step = step_of(checkpoint.path)
    steps = [found for found in MetricsLog(checkpoint.run_dir).read() if found.number <= step]
    head: dict[str, Any] = {"library_name": "transformers", "pipeline_tag": "text-generation"}
    if isinstance(config, DictConfig) and base == str(config.actor_rollout_ref.model.path):
        head["base_model"] = base  # a name on the hub
    head["tags"] = ["verl", "verl-trgrpo", "reinforcement-learning"]
    versions = {**record.get("versions", {}), "commit": record.get("commit") or "not recorded"}
    return "\n".join([
        f"---\n{yaml.safe_dump(head, sort_keys=False)}---\n",
        f"# {checkpoint.run_dir.name}, step {step}\n",
        f"{base}, trained with {algorithm} by [verl-trgrpo](https://arxiv.org/abs/2511.00066) and veRL.",
        "Weights are as veRL's merger writes them (bfloat16 for sharded checkpoints).\n",
        "## Training\n", _table(settings),
        "\n## Figures\n", _table(_figures(steps)) if steps else "No metrics were recorded.",
        "\nAccuracies are those of the run's own validations, not of a benchmark's protocol.",
        "\n## Made with\n", _table(versions), "",
    ])  # fmt: skip


def _settings(config: DictConfig) -> dict[str, Any]:
    """What matters of veRL's configuration, constants of the token weights included."""
    found: dict[str, Any] = {
        "base model": _place(str(config.actor_rollout_ref.model.path)),
        "training data": ", ".join(map(_place, data_files(config, "data.train_files"))),
        "validation data": ", ".join(map(_place, data_files(config, "data.val_files"))),
    }
    keys = [*_KEYS]
    loss: Any = OmegaConf.select(config, _LOSS)
    if "shaping" in loss:
        options = ("placement", "prob_source", "normalize", "kl")
        keys[1:1] = [f"{_LOSS}.{name}" for name in options] + [f"{_LOSS}.shaping.{name}" for name in loss.shaping]
    for key in keys:
        value = OmegaConf.select(config, key)
        if value is not None and not key.endswith("_target_"):
            found[key] = value
    return found


def _place(path: str) -> str:
    """A name on a hub as it is; of a path the last two parts, as the rest says more of a machine than of a model."""
    return "/".join(Path(path).parts[-2:]) if path.startswith(("/", "~", ".")) else path


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
