"""What a training that did not come to its end does when its command is given again."""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig

from verl_trgrpo.runs.launch.checkpoints import latest_checkpoint


class TrainingInterruptedError(KeyboardInterrupt):
    """A signal ended the training; the message says what its command will do next time."""


def next_start(config: DictConfig, run_dir: Path) -> str:
    """Where the command starts when it is given again, as a sentence without its end.

    Args:
        config: of the run.
        run_dir: with the checkpoints that are there now.
    """
    mode, checkpoint = config.trainer.resume_mode, latest_checkpoint(run_dir)
    if mode == "resume_path":
        return "the same command starts again from trainer.resume_from_path"
    if checkpoint is None:
        return "no checkpoint was saved (trainer.save_freq), so the same command starts from scratch"
    command = "the same command" if mode == "auto" else "with trainer.resume_mode=auto the command"
    return f"{command} goes on from the latest checkpoint, {checkpoint.name}"
