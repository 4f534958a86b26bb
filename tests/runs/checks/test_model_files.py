"""A model that cannot be opened, and a wrong option of one that can."""

import shutil

from verl_trgrpo.runs.checks.model_files import model_findings
from verl_trgrpo.runs.compose import compose
from verl_trgrpo.tiny.puzzles import CHECKPOINT

MODEL = "actor_rollout_ref.model"


def messages(sound_run, *overrides):
    return [finding.message for finding in model_findings(compose(overrides=[*sound_run, *overrides]).config)]


def test_a_wrong_option_is_not_blamed_on_the_files(sound_run):
    [message] = messages(sound_run, f"{MODEL}.lora_rank=8", f"{MODEL}.target_modules=3")
    assert message.startswith(f"{MODEL}: ") and "target_modules" in message
    assert "get the model again" not in message and str(CHECKPOINT) not in message


def test_files_that_cannot_be_opened_are(sound_run, tmp_path):
    model = shutil.copytree(CHECKPOINT, tmp_path / "model")
    (model / "config.json").write_text("{}")
    [message] = messages(sound_run, f"{MODEL}.path={model}", f"{MODEL}.target_modules=3")
    assert f"{MODEL}.path={model}" in message and "get the model again" in message


def test_a_sound_model_is_fine(sound_run):
    assert messages(sound_run) == []
