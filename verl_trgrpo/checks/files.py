"""Check the files of a run: data and their rewards, model and tokenizer, Python files, and the checkpoint to resume from."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, ListConfig

from verl_trgrpo.common.files import read_json
from verl_trgrpo.common.findings import Finding, Level
from verl_trgrpo.common.text import as_plain_yaml, first_line
from verl_trgrpo.runs.compose import selected
from verl_trgrpo.runs.keys import MANAGER, MODEL, MODEL_PATH, REWARD, REWARD_MODEL

TRAINING = "data.train_files"
DATA = (TRAINING, "data.val_files")
CRITIC = "critic.model.path"
TOKENIZER = f"{MODEL}.tokenizer_path"
# This package's rewards.
OWN_REWARDS = "pkg://verl_trgrpo.tasks"
# veRL's reward managers, extended.
OWN_MANAGER = "pkg://verl_trgrpo.tasks.reward_manager"
RESUME_PATH = "trainer.resume_from_path"
DATA_SET = "data.custom_cls.path"

_CHECKPOINT_NAME = re.compile(r"global_step_[0-9]+")
# Keys that name a Python file, or a module behind pkg://.
_PYTHON_FILES = (
    f"{REWARD}.path",
    f"{MANAGER}.module.path",
    DATA_SET,
    "trainer.v1.sampler.custom_sampler.path",
)


def missing_files(config: DictConfig, need_files: bool = True) -> list[Finding]:
    """Check that every file and directory that a run names exists, without importing veRL, torch or pyarrow.

    Args:
        config: of the run; values of the wrong type are left to other checks.
        need_files: report missing data and models as "not checked" if False.
    """
    level = Level.ERROR if need_files else Level.NOT_CHECKED
    findings = []
    for key in DATA:
        if not data_files(config, key):
            findings.append(Finding.error(key, f"{key}: names no file; give a Parquet file"))
        for name in data_files(config, key):
            if name.startswith("~") and (whole := Path(name).expanduser()).is_file():
                findings.append(Finding.error(key, f"{key}={name}: veRL does not expand ~ here; write {whole}"))
        for path in local_data_files(config, key):
            if path.is_dir():
                findings.append(Finding.error(key, f"{key}={path}: is a directory; name the Parquet files in it"))
            elif not path.is_file():
                message = f"{key}={path}: does not exist; build it (docs/data.md), or correct the path"
                findings.append(Finding(level, key, message))
    fixes = {
        MODEL_PATH: "set it to a model directory or a hub name",
        TOKENIZER: "correct it, or leave it out",
    }
    if needs_critic(config):
        fixes[CRITIC] = "set it to a model directory or a hub name, or use algorithm.adv_estimator=grpo"
    for key, fix in fixes.items():
        name = selected(config, key)
        if isinstance(name, str) and looks_local(name) and not Path(name).expanduser().is_dir():
            findings.append(Finding(level, key, f"{key}={name}: is not a directory; {fix}"))
    return findings + _named_files(config) + _resume_path_findings(config)


def needs_critic(config: DictConfig) -> bool:
    """Return what veRL's ``need_critic`` returns, without veRL."""
    enabled = selected(config, "critic.enable")
    return selected(config, "algorithm.adv_estimator") == "gae" if enabled is None else bool(enabled)


def _named_files(config: DictConfig) -> list[Finding]:
    findings = []
    for key in _PYTHON_FILES:
        place = selected(config, key)
        if not isinstance(place, str) or not place or "://" in place.removeprefix("pkg://"):
            continue
        module = place.removeprefix("pkg://")
        if not (_importable(module) if module != place else Path(place).expanduser().is_file()):
            findings.append(Finding.error(key, f"{key}={place}: does not exist; correct it, or leave it out"))
    return findings


def _resume_path_findings(config: DictConfig) -> list[Finding]:
    if selected(config, "trainer.resume_mode") != "resume_path":
        return []
    place = selected(config, RESUME_PATH)
    if not place or not Path(str(place)).is_dir():  # veRL does not expand a ~
        reason = "trainer.resume_mode=resume_path needs a directory; name a global_step_N"
    elif not _CHECKPOINT_NAME.fullmatch(str(place).rpartition("/")[2]):  # a slash at the end would stop veRL, too
        reason = "veRL reads the step from the name; the path must end in global_step_N"
    else:
        return []
    return [Finding.error(RESUME_PATH, f"{RESUME_PATH}={as_plain_yaml(place)}: {reason}")]


def _importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:  # a package above it does not exist
        return False


def data_files(config: DictConfig, key: str) -> list[str]:
    """Return the files under ``key``, which holds one or a list."""
    files = selected(config, key)
    return [str(file) for file in (files if isinstance(files, ListConfig) else [files]) if file]


def local_data_files(config: DictConfig, key: str) -> list[Path]:
    """Return the files under ``key`` that are not on remote storage."""
    return [Path(file).expanduser() for file in data_files(config, key) if "://" not in file]


def looks_local(name: str) -> bool:
    """Return True for a model's name that is a path; a name with at most one slash may be on a hub."""
    return name.startswith((".", "~", "/")) or name.count("/") > 1


def own_data_set(config: DictConfig) -> str | None:
    """Return the file of the run's own data set class, which reads the data files in its own way; None without one."""
    path = selected(config, DATA_SET)
    return str(path) if path else None


def has_own_manager(config: DictConfig) -> bool:
    """Return whether veRL will take its reward manager from `OWN_MANAGER`."""
    return (
        selected(config, f"{MANAGER}.source") == "importlib"
        and selected(config, f"{MANAGER}.module.path") == OWN_MANAGER
    )


def model_findings(config: DictConfig) -> list[Finding]:
    """Check the local directories of the policy and of the reward model; nothing is downloaded.

    Code of a directory is executed where ``model.trust_remote_code`` allows it, and not otherwise.
    """
    name, trusted = str(selected(config, MODEL_PATH)), bool(selected(config, f"{MODEL}.trust_remote_code"))
    path = Path(name).expanduser()
    tokenizer = Path(str(selected(config, TOKENIZER) or name)).expanduser()
    findings = []
    if not path.is_dir() and not looks_local(name):
        findings.append(
            Finding.not_checked(MODEL_PATH, f"{MODEL_PATH}={name}: is on a hub; nothing is downloaded to check it")
        )
    critic = str(selected(config, CRITIC))
    if needs_critic(config) and not looks_local(critic) and not Path(critic).is_dir():
        message = f"{CRITIC}={critic}: is a name on a hub; the critic's settings were not checked by veRL's own classes"
        findings.append(Finding.not_checked(CRITIC, message))
    errors = _code_errors(path, tokenizer, trusted, MODEL_PATH)
    # Opening a model that brings code of its own would fail for the same reason.
    if not errors and path.is_dir() and not (path / "config.json").is_file():
        errors = [f"{MODEL_PATH}={name}: has no config.json; give the directory of a whole model"]
    elif not errors and path.is_dir():
        errors = _config_errors(path, trusted) or _tokenizer_errors(path, tokenizer, config, trusted)
    findings += [Finding.error(MODEL_PATH, error) for error in errors]
    judge = selected(config, f"{REWARD_MODEL}.model_path")
    if judge and selected(config, f"{REWARD_MODEL}.enable"):
        key, path = f"{REWARD_MODEL}.model_path", Path(str(judge)).expanduser()
        findings += [Finding.error(key, error) for error in _code_errors(path, path, trusted, key)]
    return findings


def context_length(config: DictConfig) -> int | None:
    """Return the ``max_position_embeddings`` of a local model; None where it is not known."""
    length = decoder_value(model_content(config), "max_position_embeddings")
    return length if isinstance(length, int) else None


def model_content(config: DictConfig, key: str = MODEL_PATH) -> dict[str, Any]:
    """Return the content of the ``config.json`` of the local model under a key, {} where there is none."""
    return read_json(Path(str(selected(config, key))).expanduser() / "config.json")


def decoder_value(content: dict[str, Any], name: str) -> Any:
    """Return a figure of a model's ``config.json``; models that also see or hear keep those of the decoder one level down."""
    return content.get(name, (content.get("text_config") or {}).get(name))


def _code_errors(model: Path, tokenizer: Path, trusted: bool, key: str) -> list[str]:
    """Refuse a tokenizer that brings Python code, unless that was allowed.

    ``model.trust_remote_code=false`` does not prevent its execution: the workers of veRL's reward loop open the tokenizer with
    ``trust_remote_code=True`` whatever the configuration says.
    """
    own = read_json(tokenizer / "tokenizer_config.json")
    parts = [(own, "AutoTokenizer"), (read_json(tokenizer / "config.json"), "AutoTokenizer")]
    if "tokenizer_class" not in own:
        # Then transformers asks the model's configuration for it, which may be code as well.
        parts.append((read_json(model / "config.json"), "AutoConfig"))
    if trusted or not any(part in (content.get("auto_map") or {}) for content, part in parts):
        return []
    return [
        f"{key}={tokenizer}: brings Python code (auto_map), which veRL would execute; read it, then set "
        "actor_rollout_ref.model.trust_remote_code=true, or use a model without code"
    ]


def _config_errors(model: Path, trusted: bool) -> list[str]:
    from transformers import AutoConfig

    try:
        AutoConfig.from_pretrained(str(model), local_files_only=True, trust_remote_code=trusted)
    except Exception as error:  # transformers raises many unrelated types
        return [f"{MODEL_PATH}={model}: cannot be opened ({first_line(error)}); get the model again"]
    return []


def _tokenizer_errors(model: Path, tokenizer: Path, config: DictConfig, trusted: bool) -> list[str]:
    """Check that a tokenizer can be opened, has a chat template, and has no ids that the model lacks."""
    from transformers import AutoTokenizer

    if not tokenizer.is_dir():
        return []
    try:
        opened = AutoTokenizer.from_pretrained(str(tokenizer), local_files_only=True, trust_remote_code=trusted)
        highest = max(opened.get_vocab().values(), default=-1)
    except Exception as error:  # transformers raises many unrelated types
        return [f"{MODEL_PATH}={tokenizer}: its tokenizer cannot be opened ({first_line(error)}); get the model again"]
    errors = []
    if not opened.chat_template and not selected(config, "actor_rollout_ref.model.custom_chat_template"):
        errors.append(
            f"{MODEL_PATH}={tokenizer}: its tokenizer has no chat template; use an instruction-tuned model's, or set "
            "actor_rollout_ref.model.custom_chat_template"
        )
    size = decoder_value(read_json(model / "config.json"), "vocab_size")
    if isinstance(size, int) and highest >= size:
        errors.append(
            f"{MODEL_PATH}={model}: has embeddings up to id {size - 1}, the tokenizer {tokenizer} ids up to {highest}; use the "
            "model's own tokenizer"
        )
    return errors
