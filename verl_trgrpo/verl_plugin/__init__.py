"""Connect the core to veRL: registration (``register``, which veRL imports), options, losses, estimators, CPU platform.

Here are only the OmegaConf resolvers of the configuration files, which Hydra's plugin registers in every Hydra application
and ``register`` in every worker of veRL, the names of losses, and that of a file in checkpoints; so this module imports
neither veRL nor torch.
"""

from pathlib import Path

# veRL's own losses with token weights, and their names here: those that multiply the loss of each token by
# ``rollout_is_weights`` after their own clip. vanilla is the loss of TR-GRPO. Not in `config`, which imports veRL, which
# imports the losses before `config` is complete.
_TOKEN_WISE = ("dppo_tv", "dppo_kl", "gspo", "sapo", "cispo", "clip_cov", "kl_cov", "gpg", "dro")
WEIGHTED = {"vanilla": "tr_grpo"} | {name: f"tr_{name}" for name in _TOKEN_WISE}
LOSS_MODES = ("tr_grpo", "aspo", *(f"tr_{name}" for name in _TOKEN_WISE))
# Those that do not, and why.
WITHOUT_WEIGHTS = {
    "geo_mean": "takes the geometric mean of a response's weights, one number for all of its tokens",
    "bypass_mode": "computes weights of its own and ignores all others",
}
# In the directory of a checkpoint: what the run's estimator remembers.
ESTIMATOR_STATE = "estimator_state.json"


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


def _asks_for(given: str, shaping: str | None) -> bool:
    if shaping is None:  # a loss without token weights
        return False
    # Imports torch, for which Hydra's plugin discovery need not wait.
    from verl_trgrpo.core.shaping import asks_for

    return asks_for(given, shaping)
