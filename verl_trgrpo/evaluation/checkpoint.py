"""Find the model that a user names, merge sharded veRL checkpoints with veRL's own merger, and export them with a model card."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf

from verl_trgrpo.common.files import staged_directory, write_json
from verl_trgrpo.common.foreign import ForeignFileError, check_model_directory, check_no_link
from verl_trgrpo.common.text import as_markdown
from verl_trgrpo.common.typed import Schema, Text, read_typed
from verl_trgrpo.evaluation.adapter import ADAPTER
from verl_trgrpo.runs.checkpoints import FSDP_RECORD, checkpoints, latest_checkpoint, step_of, tracked_checkpoint
from verl_trgrpo.runs.environment import accelerator_found, training_environment
from verl_trgrpo.runs.metrics import read_run
from verl_trgrpo.runs.records import read_record
from verl_trgrpo.runs.run_directory import TRAINING_DATA, base_model, read_config, run_settings, short_path
from verl_trgrpo.runs.weights import MOST_BFLOAT16, NOT_WEIGHTS, broken_weights, largest_loaded, weight_files

_ORIGIN = "merged_from.json"
_HUB_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*")


class Origin(Schema):
    """``merged_from.json``: the `fingerprint` of the shards that a model was merged from."""

    name: Text | None = None
    weights: dict[Text, list[int]] | None = None


def find_checkpoint(run: Path) -> Path:
    """Return the latest ``global_step_N`` of a run directory, or `run` if it is one, which then may be a link.

    Raises:
        ForeignFileError: the latest one is a link, whose weights may be somebody else's.
        ValueError: there is none.
    """
    if run.name in ("", ".."):  # "." as well; any other path keeps its own name, even that of a link
        run = run.resolve()
    if run.name.startswith("global_step_") and run.is_dir():
        return run
    # The weights of the tracked one may be whole where it cannot be resumed from. The single-file trainer keeps no tracker file.
    found = tracked_checkpoint(run) or latest_checkpoint(run) or max(checkpoints(run), key=step_of, default=None)
    if found is None:
        raise ValueError(f"{run} has no checkpoint; give a run directory, or a global_step_N in it (trainer.save_freq)")
    check_no_link(found)
    return found


def resolved_run(name: str) -> str:
    """Return the latest checkpoint of a run directory that has one; any other name of a model as it is."""
    path = Path(name).expanduser()
    if path.is_dir() and not (path / "config.json").is_file():
        try:
            return str(find_checkpoint(path))
        except ForeignFileError:
            raise
        except ValueError:
            return name
    return name


def find_model(name: str) -> str:
    """Return the place of the weights of `name`: a Hugging Face directory, one of veRL's shards, or a name on the hub.

    Of a run directory, its latest checkpoint counts.

    Raises:
        ValueError: a directory that is none of these, or a kind of checkpoint that cannot be merged here.
    """
    path = Path(resolved_run(name)).expanduser()
    check_model_directory(path)
    if not path.exists():
        if path.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1:
            raise ValueError(f"model={name} does not exist; check the path")
        return name
    if (path / "config.json").is_file():
        return str(path)
    shards = path / "actor" if (path / "actor").is_dir() else path
    whole = shards / "huggingface"
    if (whole / "config.json").is_file() and any(whole.glob("*.safetensors")):
        return str(whole)  # saved with checkpoint.save_contents=[..., hf_model]
    if (shards / FSDP_RECORD).is_file():
        return str(shards)
    raise ValueError(
        f"{path} is neither a run directory with an FSDP checkpoint of veRL, one of its global_step_N, nor a Hugging Face "
        "model directory (config.json); `python -m verl.model_merger` makes the latter from a checkpoint of Megatron"
    )


def config_of_run(name: str) -> DictConfig | None:
    """Return the configuration of the run that made the checkpoint `name`; None where it is not a run's checkpoint.

    It does not trust Python code of the model: the run may be a stranger's. Raises a ValueError if it is damaged.
    """
    path = Path(resolved_run(name)).expanduser()
    steps = [folder for folder in (path, *path.parents) if folder.name.startswith("global_step_")]
    config = read_config(steps[0].parent) if path.is_dir() and steps else None
    if config is not None:
        OmegaConf.update(config, "actor_rollout_ref.model.trust_remote_code", False, force_add=True)
    return config


def model_label(name: str) -> str:
    """Return a name for files about the model `name`: the last two parts of its path, such as tr_grpo-global_step_20."""
    return "-".join([part for part in Path(resolved_run(name)).parts if part not in ("/", "..", "actor")][-2:])


def fingerprint(place: str) -> dict[str, Any]:
    """Return the name of `place`, and size and time of each weight file if it is a directory; it changes with the weights."""
    path = Path(place)
    if not path.is_dir():
        return {"name": place}
    status = {file.relative_to(path): file.stat() for file in weight_files(path)[0] if file.is_file()}
    weights = {str(name): [each.st_size, each.st_mtime_ns] for name, each in status.items()}
    return {"name": str(path.resolve()), "weights": weights}


def merged_model(place: str, out: Path) -> str:
    """Return the model for vLLM to load; merge a sharded checkpoint first, unless that was done before.

    The merged model is ``merged_hf`` beside the checkpoint's ``actor`` directory, or in `out` if that cannot be written. It
    appears whole or not at all, and is made again if the shards have changed. veRL's merger writes bfloat16 weights,
    whatever the shards are; a LoRA adapter is added to the base's.

    Raises:
        ValueError: weights are not finite or cannot be read, or the record of the merged model is damaged.
        RuntimeError: veRL's merger or PEFT's fails.
    """
    shards = Path(place)
    if not shards.is_dir():  # a name on the hub
        return place
    sharded = (shards / FSDP_RECORD).is_file()
    _check_weights(shards, MOST_BFLOAT16 if sharded else largest_loaded(shards))
    if not sharded:
        return place
    parent = shards.parent if os.access(shards.parent, os.W_OK | os.X_OK) else out
    target = parent / "merged_hf"
    if target.is_symlink():
        raise ValueError(f"{target} is a link, which could lead anywhere; remove the link")
    origin = fingerprint(place)
    if read_typed(target / _ORIGIN, Origin).content() == origin:
        check_model_directory(target)
        _check_weights(target, largest_loaded(target))
        return str(target)
    with staged_directory(target, _merged) as stage:
        # In processes of their own: they need the memory of the whole model, which vLLM will want.
        merger = [
            "verl.model_merger",
            "merge",
            "--backend",
            "fsdp",
            "--local_dir",
            str(shards),
            "--target_dir",
            str(stage),
        ]
        _run("veRL's model merger", shards, *merger)
        if (stage / ADAPTER).is_dir():
            _run("PEFT's merge of the adapter", shards, "verl_trgrpo.evaluation.adapter", str(stage))
        _check_weights(stage, largest_loaded(stage))
        write_json(stage / _ORIGIN, origin)
    return str(target)


def _run(what: str, shards: Path, *module: str) -> None:
    """Run a Python module; RuntimeError with its last words if it fails."""
    environment = training_environment(not accelerator_found(), os.devnull)
    result = subprocess.run(
        [sys.executable, "-m", *module], env=environment, capture_output=True, text=True, check=False
    )
    if result.returncode:
        ending = " | ".join(result.stderr.strip().splitlines()[-3:])
        raise RuntimeError(f"{what} failed on {shards} (exit code {result.returncode}): {ending}")


def _check_weights(directory: Path, largest: float) -> None:
    if broken := broken_weights(directory, largest):
        raise ValueError(f"{broken}; choose another checkpoint, such as an earlier global_step_N")


def _merged(directory: Path) -> list[str]:
    """Return the entries of a merged model, its origin last."""
    with contextlib.suppress(ForeignFileError):
        if read_typed(directory / _ORIGIN, Origin).name:
            return sorted((path.name for path in directory.iterdir()), key=lambda name: name == _ORIGIN)
    return []


def export(run: Path, out: Path) -> Path:
    """Write a checkpoint's model, tokenizer and card into `out`, which appears as a whole, and return the checkpoint.

    Of a run directory the latest checkpoint is taken.

    Raises:
        ValueError: there is no checkpoint, or `out` has other files.
        RuntimeError: veRL's merger fails.
    """
    checkpoint = find_checkpoint(run)
    if out.is_dir() and any(out.iterdir()):
        raise ValueError(f"out={out} has files; choose another directory")
    with staged_directory(out) as stage:
        model = Path(merged_model(find_model(str(checkpoint)), stage / "merged"))
        shutil.copytree(model, stage, dirs_exist_ok=True, ignore=_left_out)
        shutil.rmtree(stage / "merged", ignore_errors=True)
        (stage / "README.md").write_text(model_card(checkpoint), encoding="utf-8")
    return checkpoint


def _left_out(_: str, names: list[str]) -> set[str]:
    """Return what is not published of a directory: records, and a trainer's other files, some of which are pickles."""
    return {name for name in names if name == _ORIGIN or NOT_WEIGHTS.fullmatch(name)}


def model_card(checkpoint: Path) -> str:
    """Build the card from the run's own record: base model, data, algorithm, validation accuracy, versions."""
    run_dir, step = checkpoint.parent, step_of(checkpoint)
    record, settings, base = read_record(run_dir), run_settings(run_dir), base_model(run_dir)
    known = [found for found in read_run(run_dir, upto=step).line if found.accuracy is not None]
    accuracy = f"{known[-1].accuracy:.3f} (step {known[-1].number})" if known else "not recorded"
    made_with = [f"{name} {version}" for name, version in record.versions.items()]
    head = {"library_name": "transformers", "tags": ["verl-trgrpo", "reinforcement-learning"]}
    if _is_on_hub(base, run_dir):
        head["base_model"] = base
    facts = {
        "base model": short_path(base) if base else "not recorded",
        "algorithm": record.algorithm or record.arm or settings.get("arm") or run_dir.name,
        TRAINING_DATA: settings.get(TRAINING_DATA) or "not recorded",
        "validation accuracy in training": accuracy,
        "made with": ", ".join([*made_with, f"commit {record.commit or 'not recorded'}"]),
    }
    lines = [f"- {name}: {as_markdown(value)}" for name, value in facts.items()]
    title = f"# {as_markdown(run_dir.name)}, step {step}, by [verl-trgrpo](https://arxiv.org/abs/2511.00066)"
    return "\n".join(["---", yaml.safe_dump(head).strip(), "---", "", title, "", *lines, ""])


def _is_on_hub(model: str, run_dir: Path) -> bool:
    """Return whether a model is OWNER/NAME and not a path: neither the current nor a directory above the run has it."""
    places = (Path(), run_dir, *run_dir.absolute().parents)
    return bool(_HUB_NAME.fullmatch(model)) and not any((place / model).exists() for place in places)
