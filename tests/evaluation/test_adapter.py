"""A LoRA adapter beside its base, as veRL's merger writes both, and their sum."""

import json

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import Qwen2Config, Qwen2ForCausalLM

from verl_trgrpo.evaluation.adapter import ADAPTER, merge_adapter

R, ALPHA = 4, 12


@pytest.fixture
def merged(tmp_path):
    """Base weights in bfloat16 and an adapter that is not 0, in the layout of `save_lora_adapter`; the names it adapts."""
    torch.manual_seed(0)
    sizes = {
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "vocab_size": 32,
    }
    base = Qwen2ForCausalLM(Qwen2Config(**sizes, num_key_value_heads=2)).to(torch.bfloat16)
    base.save_pretrained(tmp_path)
    model = get_peft_model(base, LoraConfig(r=R, lora_alpha=ALPHA, target_modules=["q_proj", "down_proj"]))
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.5)
    model.save_pretrained(tmp_path / ADAPTER)
    return tmp_path


def test_the_sum_is_that_of_the_formula(merged):
    """W + alpha / r B A, rounded once to the base's bfloat16; all other weights as they were."""
    before, adapter = load_file(merged / "model.safetensors"), load_file(merged / ADAPTER / "adapter_model.safetensors")
    merge_adapter(merged)
    after = load_file(merged / "model.safetensors")
    assert after.keys() == before.keys() and not (merged / ADAPTER).exists()
    changed = set()
    for name, weight in before.items():
        place = f"base_model.model.{name.removesuffix('.weight')}"
        expected = weight
        if f"{place}.lora_A.weight" in adapter:
            product = adapter[f"{place}.lora_B.weight"].float() @ adapter[f"{place}.lora_A.weight"].float()
            expected = (weight.float() + ALPHA / R * product).to(torch.bfloat16)
            changed.add(name.split(".")[-2])
        assert after[name].dtype == torch.bfloat16
        torch.testing.assert_close(after[name], expected, rtol=0.01, atol=1e-6)
    assert changed == {"q_proj", "down_proj"} and not torch.equal(
        before["model.layers.0.self_attn.q_proj.weight"], after["model.layers.0.self_attn.q_proj.weight"]
    )


def test_an_adapter_without_its_scale_or_its_base_is_refused(merged):
    config = merged / ADAPTER / "adapter_config.json"
    whole = json.loads(config.read_text())
    config.write_text(json.dumps(whole | {"lora_alpha": 0}))
    with pytest.raises(ValueError, match="lora_alpha"):
        merge_adapter(merged)
    config.write_text(json.dumps(whole))
    weights = load_file(merged / "model.safetensors")
    save_file({"lm_head.weight": weights["lm_head.weight"]}, merged / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match="without its base"):
        merge_adapter(merged)
