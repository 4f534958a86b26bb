"""What a command finds in its run directory: a run that it may go on with, or another one; and what it does next time."""

from __future__ import annotations

from pathlib import Path

import yaml
from omegaconf import DictConfig, OmegaConf

from verl_trgrpo.common.findings import InvalidInputError
from verl_trgrpo.runs.checkpoints import latest_checkpoint
from verl_trgrpo.runs.compose import flat

# The configuration that made the checkpoints of a run directory.
CONFIG_FILE = "config.yaml"

# What may change between attempts: how long, how often and how loudly, and where the machine keeps things.
MAY_CHANGE = (
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


def check_same_run(config: DictConfig, run_dir: Path) -> None:
    """Refuse to continue, or to show as finished, a run that another configuration made.

    Nothing is checked where the run found has no record of its configuration. Raises InvalidInputError with the keys that
    differ and the remedy.
    """
    recorded = run_dir / CONFIG_FILE
    if not recorded.is_file():
        return
    try:
        asked, found = flat(config), flat(OmegaConf.load(recorded))
    except (OSError, ValueError, AttributeError, yaml.YAMLError) as error:
        message = f"{recorded} cannot be read ({error}); {_REMEDY}"
        raise InvalidInputError([message]) from error
    differing = sorted(
        key
        for key in asked.keys() | found.keys()
        if asked.get(key) != found.get(key) and not key.startswith(MAY_CHANGE)
    )
    if differing:
        shown = [f"{key}: {found.get(key)!r} there, {asked.get(key)!r} asked for" for key in differing[:_MAX_SHOWN]]
        more = [f"and {len(differing) - _MAX_SHOWN} more"] if len(differing) > _MAX_SHOWN else []
        message = (
            f"{run_dir} holds a run with another configuration ({'; '.join(shown + more)}). Give this run its own "
            "trainer.default_local_dir or trainer.experiment_name, or start over there with trainer.resume_mode=disable"
        )
        raise InvalidInputError([message])


def next_start(config: DictConfig, run_dir: Path) -> str:
    """What the command of a training that did not come to its end does when it is given again, without a full stop."""
    mode, checkpoint = config.trainer.resume_mode, latest_checkpoint(run_dir)
    if mode == "resume_path":
        return "the same command starts again from trainer.resume_from_path"
    if checkpoint is None:
        return "no checkpoint was saved (trainer.save_freq), so the same command starts from scratch"
    command = "the same command" if mode == "auto" else "with trainer.resume_mode=auto the command"
    return f"{command} goes on from the latest checkpoint, {checkpoint.name}"
