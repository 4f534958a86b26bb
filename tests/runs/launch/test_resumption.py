"""What is said of the next start is what the next start does."""

import pytest
from omegaconf import OmegaConf

from verl_trgrpo.runs.launch.resumption import next_start


@pytest.mark.parametrize(
    ("mode", "saved", "expected"),
    [
        ("auto", True, "the same command goes on from the latest checkpoint, global_step_7"),
        ("auto", False, "no checkpoint was saved (trainer.save_freq), so the same command starts from scratch"),
        (
            "disable",
            True,
            "with trainer.resume_mode=auto the command goes on from the latest checkpoint, global_step_7",
        ),
        ("disable", False, "no checkpoint was saved (trainer.save_freq), so the same command starts from scratch"),
        ("resume_path", True, "the same command starts again from trainer.resume_from_path"),
    ],
)
def test_the_next_start_depends_on_the_mode_and_on_what_was_saved(tmp_path, mode, saved, expected):
    if saved:
        (tmp_path / "latest_checkpointed_iteration.txt").write_text("7")
        (tmp_path / "global_step_7").mkdir()
    assert next_start(OmegaConf.create({"trainer": {"resume_mode": mode}}), tmp_path) == expected
