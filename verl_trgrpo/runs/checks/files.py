"""Files of a run: data, data sources and their rewards. What is missing is found without any heavy import."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from omegaconf import DictConfig, ListConfig, OmegaConf

from verl_trgrpo.common.findings import Finding, Level
from verl_trgrpo.common.text import as_yaml

MODEL = "actor_rollout_ref.model.path"
REWARD = "reward.custom_reward_function"
# This package's rewards.
OWN_REWARDS = "pkg://verl_trgrpo.tasks"

DATA = ("data.train_files", "data.val_files")

# Keys that name a Python file, or a module behind pkg://. The reward's file is loaded where reward functions are looked at.
_PYTHON_FILES = (f"{REWARD}.path", "data.custom_cls.path", "trainer.v1.sampler.custom_sampler.path")


def missing_files(config: DictConfig, need_files: bool = True) -> list[Finding]:
    """Complaints about data or a model directory that are not there, "not checked" unless they are needed."""
    level = Level.ERROR if need_files else Level.NOT_CHECKED
    findings = []
    for key in DATA:
        if not data_files(config, key):
            findings.append(Finding.error(key, f"{key} names no file; give a parquet file"))
        for path in local_data_files(config, key):
            if path.is_dir():
                findings.append(Finding.error(key, f"{key}={path} is a directory; name the parquet files in it"))
            elif not path.is_file():
                message = f"{key}={path} does not exist; build it (data_prep, docs/data.md), or correct the path"
                findings.append(Finding(level, key, message))
    model = str(config.actor_rollout_ref.model.path)
    # "name/model" may be on a hub; anything that looks like a path must be there.
    default = " (this is veRL's default)" if model.startswith("~/models/deepseek") else ""
    if looks_local(model) and not Path(model).expanduser().is_dir():
        findings.append(
            Finding(
                level, MODEL, f"{MODEL}={model} is not a directory; set it to a model directory or a hub name{default}"
            )
        )
    tokenizer = config.actor_rollout_ref.model.get("tokenizer_path")
    if tokenizer and looks_local(str(tokenizer)) and not Path(str(tokenizer)).expanduser().is_dir():
        key = "actor_rollout_ref.model.tokenizer_path"
        findings.append(Finding(level, key, f"{key}={tokenizer} is not a directory; correct it, or leave it out"))
    return findings + _named_files(config)


def _named_files(config: DictConfig) -> list[Finding]:
    """Complaints about Python files and a checkpoint that a run names and that are not there."""
    findings = []
    for key in _PYTHON_FILES:
        place = OmegaConf.select(config, key)
        if not place or "://" in str(place).removeprefix("pkg://"):
            continue
        module = str(place).removeprefix("pkg://")
        there = Path(module).expanduser().is_file() if module == str(place) else _importable(module)
        if not there:
            findings.append(Finding.error(key, f"{key}={place} does not exist; correct it, or leave it out"))
    key, trainer = "trainer.resume_from_path", config.trainer
    if trainer.get("resume_mode") == "resume_path":
        place = trainer.get("resume_from_path")
        if not place or not Path(str(place)).expanduser().is_dir():
            message = (
                f"trainer.resume_mode=resume_path, but {key}={as_yaml(place)} is no directory; name one of a run's "
                "global_step_N"
            )
            findings.append(Finding.error(key, message))
    return findings


def _importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:  # a package above it is not there
        return False


def data_findings(config: DictConfig) -> list[Finding]:
    """Complaints about data files that are there: columns, rows, data sources without a reward, training on the validation."""
    findings = []
    for key in DATA:
        findings += [
            Finding.not_checked(key, f"{key}={file} is not a local file; veRL will read it")
            for file in data_files(config, key)
            if "://" in file
        ]
        for path in local_data_files(config, key):
            if path.suffix != ".parquet" and path.is_file():
                note = f"{key}={path} is no parquet file; only veRL reads its columns and counts its rows"
                findings.append(Finding.not_checked(key, note))
            elif path.is_file():
                findings += _parquet_findings(key, path, config)
    training, validation = ({path.resolve() for path in local_data_files(config, key)} for key in DATA)
    if shared := sorted(path for path in training & validation if path.is_file()):
        message = (
            f"data.val_files={shared[0]} is among data.train_files: the validation measures what was learnt by heart"
        )
        findings.append(Finding.warning("data.val_files", f"{message}; give it a file of its own"))
    if any(finding.level is Level.ERROR for finding in findings):
        return findings
    rows, prompts = training_rows(config), config.data.train_batch_size
    if rows is not None and isinstance(prompts, int) and rows < prompts:
        message = (
            f"data.train_files has {rows} rows, fewer than the data.train_batch_size={prompts} prompts of one step; "
            "add rows, or lower the batch size"
        )
        findings.append(Finding.error("data.train_batch_size", message))
    return findings


def training_rows(config: DictConfig) -> int | None:
    """Rows of the training files, before veRL's filter; None where a file is missing or no parquet."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = data_files(config, "data.train_files")
    try:
        rows = sum(pq.read_metadata(Path(file).expanduser()).num_rows for file in files)
    except (pa.ArrowException, OSError):
        return None
    limit = config.data.get("train_max_samples", -1)
    return (min(rows, limit) if limit and limit > 0 else rows) if files else None


def data_files(config: DictConfig, key: str) -> list[str]:
    """Files under ``key``, which holds one or a list."""
    files = OmegaConf.select(config, key)
    listed = files if isinstance(files, ListConfig) else [files]
    return [str(file) for file in listed if file]


def local_data_files(config: DictConfig, key: str) -> list[Path]:
    """Those that are not on remote storage."""
    return [Path(file).expanduser() for file in data_files(config, key) if "://" not in file]


def looks_local(name: str) -> bool:
    """Whether a model's name is a path; another, with one slash at most, may be on a hub."""
    return name.startswith((".", "~", "/")) or name.count("/") > 1


def _parquet_findings(key: str, path: Path, config: DictConfig) -> list[Finding]:
    """The columns that veRL and the rewards need are read to their last row: a damaged file may have a sound schema."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from verl_trgrpo.tasks import known_data_sources
    from verl_trgrpo.tasks.registry import has_reward

    needed = sorted({config.data.prompt_key, "data_source", "reward_model"})
    try:
        columns = set(pq.read_schema(path).names)
        if missing := sorted(set(needed) - columns):
            message = f"{key}={path} lacks the column {', '.join(missing)} (it has {', '.join(sorted(columns))})"
            return [Finding.error(key, f"{message}; see docs/data.md")]
        rows = pq.read_table(path, columns=needed)
    except (pa.ArrowException, OSError) as problem:
        return [Finding.error(key, f"{key}={path} cannot be read as parquet ({problem}); build it again")]
    if not rows.num_rows:
        return [Finding.error(key, f"{key}={path} has no rows; build it again")]
    sources, function = rows["data_source"].unique().to_pylist(), OmegaConf.select(config, f"{REWARD}.path")
    if strange := [source for source in sources if not isinstance(source, str) or not source]:
        return [
            Finding.error(key, f"{key}={path} has the data source {strange[0]!r}, which is no name; build it again")
        ]
    if function == OWN_REWARDS:
        unknown = [source for source in sources if not has_reward(source)]
        remedy = f"known are {', '.join(known_data_sources())}. Register a reward (docs/data.md), or set {REWARD}.path"
    elif function is None and not config.reward.reward_model.enable:
        unknown = [source for source in sources if not _verl_scores(source)]
        own = [source for source in unknown if has_reward(source)]
        place = f"{REWARD}.path={OWN_REWARDS} {REWARD}.name=compute_score"
        remedy = (
            f"veRL has no rule for it. Set {place}, which has" if own else f"veRL has no rule for it; set {REWARD}.path"
        )
    else:
        return []
    if not unknown:
        return []
    names = ", ".join(sorted(map(repr, unknown))[:5])
    return [Finding.error(key, f"{key}={path} has the data source {names}, for which there is no reward; {remedy}")]


def _verl_scores(source: object) -> bool:
    """Asks veRL itself, whose data sources are a chain of ifs."""
    from verl.utils.reward_score import default_compute_score

    try:
        default_compute_score(source, "", "")
    except NotImplementedError:
        return False
    except Exception:  # it has a rule, which wants a real answer or a package that is not there
        return True
    return True
