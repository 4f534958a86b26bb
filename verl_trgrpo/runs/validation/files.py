"""Files: data, data sources and their rewards, the model, the tools."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from omegaconf import DictConfig, OmegaConf

from verl_trgrpo.common.problems import Finding, Level, error, not_checked
from verl_trgrpo.runs.launch.configuration import root_cause
from verl_trgrpo.runs.launch.data_files import column_problems, data_files, row_problems
from verl_trgrpo.runs.launch.model_files import (
    REWARD_MODEL,
    policy_problems,
    reward_model_path,
    reward_model_problems,
)
from verl_trgrpo.runs.launch.reward_function import OWN_REWARDS, REWARD, check_reward
from verl_trgrpo.runs.validation.batches import size_findings
from verl_trgrpo.tasks import known_data_sources
from verl_trgrpo.tasks.registry import has_reward

_MODEL = "actor_rollout_ref.model.path"

# How the project's own data is built, by its directory.
_BUILDERS = {
    "kk": "python data_prep/kk.py --out {} --paper",
    "deepscaler": "python data_prep/deepscaler.py --out {} --source hf",
    "search_qa": "python data_prep/search_qa.py --out {} --source hf --val-per-set 100",
    "search_qa_tools": "python data_prep/search_qa.py --out {} --source hf --val-per-set 100 --loop tool_agent",
}


def file_findings(config: DictConfig, need_files: bool) -> list[Finding]:
    """Complaints about files; one that is missing is an error, or "not checked" unless ``need_files``."""
    own_reward, findings = _reward_findings(config)
    for key in ("data.train_files", "data.val_files"):
        files = data_files(config, key)
        if not files:
            findings.append(error(key, f"{key} names no local file; give a parquet file"))
        for file in files:
            findings += _data_findings(config, key, Path(file).expanduser(), own_reward, need_files)
    if all(finding.level is not Level.ERROR for finding in findings) and not size_findings(config):
        findings += [error("data.train_batch_size", problem) for problem in row_problems(config)]
    return findings + _model_findings(config, need_files) + _reward_model_findings(config) + _tool_findings(config)


def _data_findings(config: DictConfig, key: str, path: Path, own_reward: bool, need_files: bool) -> list[Finding]:
    if not path.is_file():
        build = _BUILDERS.get(path.parent.name)
        remedy = f"build it: {build.format(path.parent)}" if build else "build it, or correct the path"
        level = Level.ERROR if need_files else Level.NOT_CHECKED
        return [Finding(level, key, f"{key}={path} does not exist; {remedy}")]
    if path.suffix != ".parquet":
        return [not_checked(key, f"{key}={path} is no parquet file; only veRL reads its columns and counts its rows")]
    problems = column_problems(key, path, config)
    if problems or not own_reward:
        return [error(key, problem) for problem in problems]
    try:
        sources = pq.read_table(path, columns=["data_source"])["data_source"].unique().to_pylist()
    except (pa.ArrowException, OSError) as problem:
        return [error(key, f"{key}={path} cannot be read ({problem}); build it again")]
    unknown = sorted(repr(source) for source in sources if not has_reward(source))
    if not unknown:
        return []
    known = ", ".join(known_data_sources())
    return [
        error(
            key,
            f"{key}={path} has the data source {', '.join(unknown[:5])}, for which there is no reward; known are {known}. "
            "Register a reward (docs/data.md), or set reward.custom_reward_function.path",
        )
    ]


def _reward_findings(config: DictConfig) -> tuple[bool, list[Finding]]:
    """Whether the run uses this package's rewards, and complaints about the reward function."""
    path = OmegaConf.select(config, f"{REWARD}.path")
    if not path:
        return False, [not_checked(REWARD, f"{REWARD}.path is not set; veRL's own rewards choose by data_source")]
    if path == OWN_REWARDS:
        return True, []
    check = check_reward(config)
    if check.problem:
        return False, [error(REWARD, check.problem)]
    return False, [not_checked(REWARD, check.unchecked or f"{path} decides which data sources it knows")]


def _model_findings(config: DictConfig, need_files: bool) -> list[Finding]:
    from verl.utils.config import omega_conf_to_dataclass

    name = str(config.actor_rollout_ref.model.path)
    path = Path(name).expanduser()
    if not path.is_dir():
        if path.is_absolute() or name.startswith((".", "~")):
            level = Level.ERROR if need_files else Level.NOT_CHECKED
            return [Finding(level, _MODEL, f"{_MODEL}={name} is not a directory; give a model directory or a hub name")]
        unseen = not_checked(_MODEL, f"{_MODEL}={name} is a name on a hub; nothing is downloaded to look at it")
        return [unseen, *(error(_MODEL, problem) for problem in policy_problems(config))]  # of a local tokenizer
    if problems := policy_problems(config):
        return [error(_MODEL, problem) for problem in problems]
    try:
        omega_conf_to_dataclass(config.actor_rollout_ref.model)
    except Exception as problem:  # transformers raises many kinds
        return [error(_MODEL, f"{_MODEL}={name} cannot be opened: {root_cause(problem)}; get the model again")]
    return []


def _reward_model_findings(config: DictConfig) -> list[Finding]:
    key, name = f"{REWARD_MODEL}.model_path", reward_model_path(config)
    if name is None:
        return []
    if not Path(name).expanduser().is_dir():
        return [not_checked(key, f"{key}={name} is no local directory; whether it brings code of its own is not known")]
    return [error(key, problem) for problem in reward_model_problems(config)]


def _tool_findings(config: DictConfig) -> list[Finding]:
    findings = []
    for key in ("multi_turn.tool_config_path", "multi_turn.function_tool_path", "agent.agent_loop_config_path"):
        full = f"actor_rollout_ref.rollout.{key}"
        value = OmegaConf.select(config, full)
        if value and not Path(value).expanduser().is_file():
            findings.append(error(full, f"{full}={value} does not exist; give the absolute path of the file"))
    return findings
