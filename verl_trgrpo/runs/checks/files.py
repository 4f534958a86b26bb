"""Check the files of a run: data and their rewards, model and tokenizer, Python files, and the checkpoint to resume from."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, ListConfig

from verl_trgrpo.common.files import read_json
from verl_trgrpo.common.findings import Finding, Level
from verl_trgrpo.common.text import as_plain_yaml, did_you_mean, first_line
from verl_trgrpo.runs.compose import selected
from verl_trgrpo.tasks.registry import DEFAULT_REWARD_KEY, DEFAULT_REWARDS, has_reward, unknown_source

DATA = ("data.train_files", "data.val_files")
MODEL = "actor_rollout_ref.model.path"
CRITIC = "critic.model.path"
TOKENIZER = "actor_rollout_ref.model.tokenizer_path"
REWARD = "reward.custom_reward_function"
# This package's rewards.
OWN_REWARDS = "pkg://verl_trgrpo.tasks"
MANAGER = "reward.reward_manager"
# veRL's reward managers, extended.
OWN_MANAGER = "pkg://verl_trgrpo.verl_plugin.reward_manager"
RESUME_PATH = "trainer.resume_from_path"

_CHECKPOINT_NAME = re.compile(r"global_step_[0-9]+")
_JUDGE = "reward.reward_model"
# Data sources without a reward that are named one by one.
_MAX_SOURCES = 5
# Keys that name a Python file, or a module behind pkg://.
_PYTHON_FILES = (
    f"{REWARD}.path",
    f"{MANAGER}.module.path",
    "data.custom_cls.path",
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
        for path in local_data_files(config, key):
            if path.is_dir():
                findings.append(Finding.error(key, f"{key}={path}: is a directory; name the Parquet files in it"))
            elif not path.is_file():
                message = f"{key}={path}: does not exist; build it (docs/data.md), or correct the path"
                findings.append(Finding(level, key, message))
    fixes = {
        MODEL: "set it to a model directory or a hub name",
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


def data_findings(config: DictConfig) -> list[Finding]:
    """Check existing data files: columns, rows, data sources without a reward, and validation on training data."""
    findings = _default_reward_findings(config)
    for key in DATA:
        for file in data_files(config, key):
            path = Path(file).expanduser()
            if "://" in file:
                findings.append(Finding.not_checked(key, f"{key}={file}: is not a local file"))
            elif path.is_file() and path.suffix != ".parquet":
                message = f"{key}={file}: is not a Parquet file, so columns and row count were not checked"
                findings.append(Finding.not_checked(key, message))
            elif path.is_file():
                findings += _parquet_findings(key, path, config)
    training, validation = ({path.resolve() for path in local_data_files(config, key)} for key in DATA)
    if shared := sorted(path for path in training & validation if path.is_file()):
        message = f"data.val_files={shared[0]}: is one of data.train_files; validate with another file"
        findings.append(Finding.warning("data.val_files", message))
    return findings


def has_own_manager(config: DictConfig) -> bool:
    """Return whether veRL will take its reward manager from `OWN_MANAGER`."""
    return (
        selected(config, f"{MANAGER}.source") == "importlib"
        and selected(config, f"{MANAGER}.module.path") == OWN_MANAGER
    )


def training_rows(config: DictConfig) -> int | None:
    """Return the rows of the training files before veRL's filter; None where a file is missing or not a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = data_files(config, "data.train_files")
    try:
        rows = sum(pq.read_metadata(Path(file).expanduser()).num_rows for file in files)
    except (pa.ArrowException, OSError):
        return None
    limit = selected(config, "data.train_max_samples") or -1
    return (min(rows, limit) if limit > 0 else rows) if files else None


def columns_of(config: DictConfig, key: str) -> set[str] | None:
    """Return the columns that some file under ``key`` has; None where one is missing or not a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return {name for file in data_files(config, key) for name in pq.read_schema(Path(file).expanduser()).names}
    except (pa.ArrowException, OSError):
        return None


def _parquet_findings(key: str, path: Path, config: DictConfig) -> list[Finding]:
    """Read the columns that veRL and the rewards need to their last row: a damaged file may have a sound schema."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    needed = sorted({str(selected(config, "data.prompt_key")), "data_source", "reward_model"})
    try:
        columns = set(pq.read_schema(path).names)
        if missing := sorted(set(needed) - columns):
            message = f"{key}={path}: lacks the columns {', '.join(missing)} (has {', '.join(sorted(columns))}); see docs/data.md"
            return [Finding.error(key, message)]
        rows = pq.read_table(path, columns=needed)
    except (pa.ArrowException, OSError) as error:
        return [Finding.error(key, f"{key}={path}: cannot be read as Parquet ({first_line(error)}); build it again")]
    if not rows.num_rows:
        return [Finding.error(key, f"{key}={path}: has no rows; build it again")]
    sources = rows["data_source"].unique().to_pylist()
    if strange := [source for source in sources if not isinstance(source, str)]:
        return [Finding.error(key, f"{key}={path}: data source {strange[0]!r} is not a name; build it again")]
    without = [(source, message) for source in sorted(sources) if (message := _no_reward(config, source))]
    shown = [Finding.error(key, f"{key}={path}: {message}") for _, message in without[:_MAX_SOURCES]]
    if others := [repr(source) for source, _ in without[_MAX_SOURCES:]]:
        shown.append(
            Finding.error(key, f"{key}={path}: no reward for {len(others)} more data sources, such as {others[0]}")
        )
    return shown


def default_reward(config: DictConfig) -> Any:
    """Return the data source whose reward scores those that have none, as the run's reward function gets it, or None."""
    return selected(config, DEFAULT_REWARD_KEY) if selected(config, f"{REWARD}.path") == OWN_REWARDS else None


def _default_reward_findings(config: DictConfig) -> list[Finding]:
    default = default_reward(config)
    if default is None or default in DEFAULT_REWARDS:
        return []
    hint = did_you_mean(str(default), DEFAULT_REWARDS)
    return [Finding.error(DEFAULT_REWARD_KEY, f"{DEFAULT_REWARD_KEY}={default}: unknown; {hint}")]


def _no_reward(config: DictConfig, source: str) -> str:
    """Return why the run's reward function does not score a data source, and what to do; "" if it does."""
    function = selected(config, f"{REWARD}.path")
    if function == OWN_REWARDS:
        default = default_reward(config)
        return "" if default or has_reward(source) else f"{unknown_source(source)}, or register one (docs/data.md)"
    if function is None and not selected(config, f"{_JUDGE}.enable") and not _verl_scores(source):
        fix = f"set {REWARD}.path={OWN_REWARDS} {REWARD}.name=compute_score, or your own"
        return f"no reward for data source {source!r}: veRL has none; {fix}"
    return ""


def _verl_scores(source: str) -> bool:
    """Ask veRL itself, whose data sources are a chain of ifs."""
    from verl.utils.reward_score import default_compute_score

    try:
        default_compute_score(source, "", "")
    except NotImplementedError:
        return False
    except Exception:  # it has a rule, which needs a real answer or a package that is missing
        return True
    return True


def model_findings(config: DictConfig) -> list[Finding]:
    """Check the local directories of the policy and of the reward model; nothing is downloaded.

    Code of a directory is executed where ``model.trust_remote_code`` allows it, and not otherwise.
    """
    name, trusted = str(selected(config, MODEL)), bool(selected(config, "actor_rollout_ref.model.trust_remote_code"))
    path = Path(name).expanduser()
    tokenizer = Path(str(selected(config, TOKENIZER) or name)).expanduser()
    findings = []
    if not path.is_dir() and not looks_local(name):
        findings.append(
            Finding.not_checked(MODEL, f"{MODEL}={name}: is a name on a hub; nothing is downloaded to check it")
        )
    critic = str(selected(config, CRITIC))
    if needs_critic(config) and not looks_local(critic) and not Path(critic).is_dir():
        message = f"{CRITIC}={critic}: is a name on a hub; the critic's settings were not checked by veRL's own classes"
        findings.append(Finding.not_checked(CRITIC, message))
    errors = _code_errors(path, tokenizer, trusted, MODEL)
    # Opening a model that brings code of its own would fail for the same reason.
    if not errors and path.is_dir() and not (path / "config.json").is_file():
        errors = [f"{MODEL}={name}: has no config.json; give the directory of a whole model"]
    elif not errors and path.is_dir():
        errors = _config_errors(path, trusted) or _tokenizer_errors(path, tokenizer, config, trusted)
    findings += [Finding.error(MODEL, error) for error in errors]
    judge = selected(config, f"{_JUDGE}.model_path")
    if judge and selected(config, f"{_JUDGE}.enable"):
        key, path = f"{_JUDGE}.model_path", Path(str(judge)).expanduser()
        findings += [Finding.error(key, error) for error in _code_errors(path, path, trusted, key)]
    return findings


def context_length(config: DictConfig) -> int | None:
    """Return the ``max_position_embeddings`` of a local model; None where it is not known."""
    length = decoder_value(model_content(config), "max_position_embeddings")
    return length if isinstance(length, int) else None


def model_content(config: DictConfig) -> dict[str, Any]:
    """Return the content of a local model's ``config.json``, {} where there is none."""
    return read_json(Path(str(selected(config, MODEL))).expanduser() / "config.json")


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
        return [f"{MODEL}={model}: cannot be opened ({first_line(error)}); get the model again"]
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
        return [f"{MODEL}={tokenizer}: its tokenizer cannot be opened ({first_line(error)}); get the model again"]
    errors = []
    if not opened.chat_template and not selected(config, "actor_rollout_ref.model.custom_chat_template"):
        errors.append(
            f"{MODEL}={tokenizer}: its tokenizer has no chat template; use an instruction-tuned model's, or set "
            "actor_rollout_ref.model.custom_chat_template"
        )
    size = decoder_value(read_json(model / "config.json"), "vocab_size")
    if isinstance(size, int) and highest >= size:
        errors.append(
            f"{MODEL}={model}: has embeddings up to id {size - 1}, the tokenizer {tokenizer} ids up to {highest}; use the "
            "model's own tokenizer"
        )
    return errors
