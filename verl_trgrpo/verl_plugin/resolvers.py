"""OmegaConf resolvers of this project's configuration files."""

from pathlib import Path

from omegaconf import OmegaConf


def register_resolvers() -> None:
    """Make the resolvers known; needed wherever a configuration is resolved: Hydra applications and veRL's Ray workers.

    ``${verl_trgrpo_file:tasks/search_qa/agent_loops.yaml}`` is the path of that file of the package, and
    ``${verl_trgrpo_asks_for_entropy:NAME}`` tells whether the shaping of that name takes the entropy.
    """
    OmegaConf.register_new_resolver("verl_trgrpo_file", _path_of, replace=True)
    OmegaConf.register_new_resolver("verl_trgrpo_asks_for_entropy", _asks_for_entropy, replace=True)


def _path_of(name: str) -> str:
    path = Path(__file__).parents[1] / name
    if not path.is_file():
        raise ValueError(f"verl_trgrpo has no file {name}; check the configuration")
    return str(path)


def _asks_for_entropy(shaping: str) -> bool:
    from verl_trgrpo.core import asks_for_entropy  # imports torch, which Hydra's plugin discovery need not wait for

    return asks_for_entropy(shaping)
