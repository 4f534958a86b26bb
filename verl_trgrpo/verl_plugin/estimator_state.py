"""Save what the advantage estimator of a run remembers with each checkpoint, and restore it when the run resumes.

For ``trainer.checkpoint_callback_class``, which veRL reads since 0.9.1 and calls in the trainer's process after each save. A
resumed run then goes on with the history of HA-DW of an uninterrupted one.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from pydantic import Field
from verl.trainer.ppo.checkpoint_callback import CheckpointCallback
from verl.utils.checkpoint.checkpoint_manager import find_latest_ckpt_path
from verl.utils.import_utils import load_class_from_fqn

from verl_trgrpo.common.files import write_json
from verl_trgrpo.common.foreign import ForeignFileError
from verl_trgrpo.common.typed import Schema, Text, read_typed
from verl_trgrpo.verl_plugin.advantage_estimator import find_estimator

logger = logging.getLogger(__name__)

ESTIMATOR_STATE = "estimator_state.json"
"""File in the directory of a checkpoint."""


class EstimatorState(Schema):
    """``estimator_state.json``: an estimator, and what it remembers."""

    adv_estimator: Text | None = None
    state: dict[Text, Any] = Field(default_factory=dict)


class EstimatorStateCallback(CheckpointCallback):
    """Write the state of the run's estimator into each checkpoint.

    veRL builds it before anything else of a trainer, and has no call for loading: the state is restored here, from the
    checkpoint that veRL resumes from; a run that starts anew begins with an empty state. A callback of your own for the same
    key may inherit from this class.
    """

    def __init__(self, config: DictConfig) -> None:
        super().__init__(config)
        self._name = str(config.algorithm.adv_estimator)
        if options := config.algorithm.get("_target_"):
            load_class_from_fqn(options)  # an estimator that is found only when asked for registers with its options
        estimator = find_estimator(self._name)
        self._state = estimator.state if estimator and estimator.remembers else None
        if self._state is not None:
            self._state.clear()
            checkpoint = resumed_checkpoint(config.trainer)
            self._state.update(self._saved(checkpoint) if checkpoint else {})

    def on_save(self, trainer: Any, global_step: int, checkpoint_dir: str, async_save: bool = False, **_: Any) -> None:
        if self._state is not None:
            write_json(Path(checkpoint_dir) / ESTIMATOR_STATE, {"adv_estimator": self._name, "state": self._state})

    def _saved(self, checkpoint: Path) -> dict[str, Any]:
        path = checkpoint / ESTIMATOR_STATE
        try:
            saved = read_typed(path, EstimatorState)
            if saved.adv_estimator == self._name:
                return dict(saved.state)
            reason = f"{path} " + (
                f"is of adv_estimator={saved.adv_estimator}" if saved.adv_estimator else "does not exist"
            )
        except ForeignFileError as error:
            reason = str(error)
        logger.warning("%s: adv_estimator=%s starts without a history", reason, self._name)
        return {}


def resumed_checkpoint(trainer: DictConfig) -> Path | None:
    """Return the checkpoint that veRL's trainer resumes from with this ``trainer`` section, None if it starts anew."""
    if trainer.resume_mode == "auto":
        found = find_latest_ckpt_path(str(Path(trainer.default_local_dir).absolute()))
        return Path(found) if found else None
    return Path(trainer.resume_from_path).absolute() if trainer.resume_mode == "resume_path" else None
