"""Connect the core to veRL: registration (``register``, which veRL imports), options, losses, estimators, CPU platform.

Here are only the OmegaConf resolvers of the configuration files, which Hydra's plugin registers in every Hydra application
and ``register`` in every worker of veRL, and the names of losses; so this module imports neither veRL nor torch.
"""

from pathlib import Path

# veRL's own losses that take token weights: their names here, and veRL's. Not in `config`, which imports veRL, which imports
# the losses before `config` is complete.
WEIGHTED = {"tr_dppo_tv": "dppo_tv", "tr_dppo_kl": "dppo_kl"}
LOSS_MODES = ("tr_grpo", "aspo", *WEIGHTED)


def register_resolvers() -> None:
    """Register the resolvers of this package's configuration files with OmegaConf.

    ``${verl_trgrpo_file:tasks/search_qa/agent_loops.yaml}`` is the path of that file of the package, and
    ``${verl_trgrpo_asks_for:INPUT,NAME}`` is true if the shaping of that name takes that input, such as the entropy, and
    ``${verl_trgrpo_fraction:N,K}`` is N / K rounded down, at least 1.
    """
    from omegaconf import OmegaConf

    OmegaConf.register_new_resolver("verl_trgrpo_file", _path_of, replace=True)
    OmegaConf.register_new_resolver("verl_trgrpo_asks_for", _asks_for, replace=True)
    OmegaConf.register_new_resolver("verl_trgrpo_fraction", _fraction, replace=True)


def _path_of(name: str) -> str:
    path = Path(__file__).parents[1] / name
    if not path.is_file():
        raise ValueError(f"verl_trgrpo_file:{name}: does not exist in the package verl_trgrpo; check the configuration")
    return str(path)


def _fraction(number: int, parts: int) -> int:
    return max(1, int(number) // int(parts))


def _asks_for(given: str, shaping: str) -> bool:
    # Imports torch, for which Hydra's plugin discovery need not wait.
    from verl_trgrpo.core.shaping import asks_for

    return asks_for(given, shaping)
