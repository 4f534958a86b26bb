"""Register the OmegaConf resolvers of this package's configuration files.

Hydra's plugin registers them in every Hydra application, and ``register`` in every worker of veRL; so this module imports
neither veRL nor torch.
"""

import importlib.util
from pathlib import Path

from omegaconf import OmegaConf


def register_resolvers() -> None:
    """Register the resolvers of this package's configuration files with OmegaConf.

    ``${verl_trgrpo_file:verl_trgrpo/tasks/search_qa/agent_loops.yaml}`` is the path of that file of that package, and
    ``${verl_trgrpo_asks_for:INPUT,NAME}`` is true if the shaping of that name takes that input, such as the entropy, and
    ``${verl_trgrpo_fraction:N,K}`` is N / K rounded down, at least 1.
    """
    OmegaConf.register_new_resolver("verl_trgrpo_file", _path_of, replace=True)
    OmegaConf.register_new_resolver("verl_trgrpo_asks_for", _asks_for, replace=True)
    OmegaConf.register_new_resolver("verl_trgrpo_fraction", _fraction, replace=True)


def _path_of(name: str) -> str:
    package, _, place = name.partition("/")
    spec = importlib.util.find_spec(package)
    for directory in (spec and spec.submodule_search_locations) or ():
        if (path := Path(directory) / place).is_file():
            return str(path)
    raise ValueError(f"verl_trgrpo_file:{name}: does not exist in the package {package}; check the configuration")


def _fraction(number: int, parts: int) -> int:
    return max(1, int(number) // int(parts))


def _asks_for(given: str, shaping: str | None) -> bool:
    if shaping is None:  # a loss without token weights
        return False
    # Imports torch, for which Hydra's plugin discovery need not wait.
    from verl_trgrpo.core.shaping import asks_for

    return asks_for(given, shaping)
