"""The stages with a tiny model in the place of the large one: each is kept, none is done twice."""

import shutil

import pytest
import torch
from transformers import AutoModelForCausalLM

from verl_trgrpo.small_lm.prepare import prepare_model
from verl_trgrpo.small_lm.warm_start import WarmStartOptions
from verl_trgrpo.tiny.puzzles import CHECKPOINT

pytest.importorskip("peft")


def weights(directory):
    return AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).state_dict()


@pytest.mark.slow
def test_every_stage_is_kept_and_none_is_done_twice(tmp_path):
    shutil.copytree(CHECKPOINT, tmp_path / "base")
    options = WarmStartOptions(steps=2, batch=2)
    notes = []
    model = prepare_model(tmp_path, options, notes.append)
    base, merged = weights(tmp_path / "base"), weights(model)
    moved = {name for name in base if not torch.equal(base[name], merged[name])}
    assert moved and all("proj" in name for name in moved), "LoRA is on the linear layers alone"

    made = (model / "model.safetensors").stat().st_mtime_ns
    assert prepare_model(tmp_path, options, notes.append) == model
    assert "already there" in notes[-1] and (model / "model.safetensors").stat().st_mtime_ns == made
    with pytest.raises(ValueError, match="another warm start"):
        prepare_model(tmp_path, WarmStartOptions(steps=3, batch=2))

    shutil.rmtree(model)  # the adapter is still there, and gives the same weights
    again = weights(prepare_model(tmp_path, options))
    assert all(torch.equal(merged[name], again[name]) for name in merged)
