"""Guards a run directory: a checkpoint is continued only by the configuration that made it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf

from verl_trgrpo.runs.launch.configuration import ConfigurationError

# What may change between attempts: how long, how often and how loudly, and where the machine keeps things.
_MAY_CHANGE = (
    "trainer.total_training_steps",
    "trainer.total_epochs",
    "trainer.logger",
    "trainer.test_freq",
    "trainer.save_freq",
    "trainer.max_actor_ckpt_to_keep",
    "trainer.max_critic_ckpt_to_keep",
    "trainer.val_before_train",
    "trainer.log_val_generations",
    "trainer.validation_data_dir",
    "trainer.rollout_data_dir",
    "trainer.default_local_dir",
    "trainer.resume_mode",
    "trainer.resume_from_path",
    "ray_kwargs",
    "actor_rollout_ref.rollout.custom.search.url",  # the same documents may be served at another address
    "global_profiler",
)

_MAX_SHOWN = 5

_REMEDY = "put it back, delete it to go on without comparing, or start over with trainer.resume_mode=disable"


def check_same_run(config: DictConfig, recorded: Path) -> None:
    """Refuse to continue, or to show as finished, a run that another configuration made.

    Args:
        config: of the run asked for.
        recorded: ``config.yaml`` of the run found; nothing is checked when it is missing.

    Raises:
        ConfigurationError: with the keys that differ and the remedy.
    """
    if not recorded.is_file():
        return
    asked, found = flat(config), flat(_recorded(recorded))
    differing = sorted(
        key
        for key in asked.keys() | found.keys()
        if asked.get(key) != found.get(key) and not key.startswith(_MAY_CHANGE)
    )
    if differing:
        shown = [f"{key}: {found.get(key)!r} there, {asked.get(key)!r} asked for" for key in differing[:_MAX_SHOWN]]
        more = [f"and {len(differing) - _MAX_SHOWN} more"] if len(differing) > _MAX_SHOWN else []
        raise ConfigurationError(
            [
                f"{recorded.parent} holds a run with another configuration ({'; '.join(shown + more)}). Give this run its own "
                "trainer.default_local_dir or trainer.experiment_name, or start over there with trainer.resume_mode=disable"
            ]
        )


def _recorded(path: Path) -> DictConfig:
    """The configuration in a file that nobody but the launcher should have written.

    Raises:
        ConfigurationError: when it is no configuration.
    """
    try:
        found = OmegaConf.load(path)
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigurationError([f"{path} cannot be read ({error}); {_REMEDY}"]) from error
    if not isinstance(found, DictConfig) or not found:
        raise ConfigurationError([f"{path} does not hold a configuration; {_REMEDY}"])
    return found


def flat(config: Any, prefix: str = "") -> dict[str, Any]:
    """Dotted keys and leaf values of a configuration (unresolved) or of a dictionary; lists count as leaves."""
    container: Any = OmegaConf.to_container(config, resolve=False) if OmegaConf.is_config(config) else config
    leaves: dict[str, Any] = {}
    for key, value in container.items():
        name = f"{prefix}{key}"
        leaves.update(flat(value, f"{name}.") if isinstance(value, dict) and value else {name: value})
    return leaves
