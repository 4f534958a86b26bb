"""Absolute paths of the package's own files, for configuration keys that want a path."""

from pathlib import Path

from omegaconf import OmegaConf


def register_resolver() -> None:
    """Make ``${verl_trgrpo_file:tasks/search_qa/agent/agent_loops.yaml}`` stand for the path of that file of the package.

    It has to be known wherever a configuration is resolved: in Hydra applications and in veRL's Ray workers.
    """
    OmegaConf.register_new_resolver("verl_trgrpo_file", _path_of, replace=True)


def _path_of(name: str) -> str:
    path = Path(__file__).parents[1] / name
    if not path.is_file():
        raise ValueError(f"verl_trgrpo has no file {name}; check the configuration")
    return str(path)
