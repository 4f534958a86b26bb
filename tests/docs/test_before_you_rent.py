"""The sizes of docs/before_you_rent.md follow the page's own formulas, from models of the recipes' shapes."""

import re
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, Qwen2Config, Qwen3Config

from verl_trgrpo.common.foreign import load_yaml
from verl_trgrpo.runs.checkpoints import checkpoint_bytes

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/before_you_rent.md").read_text()
# hidden, feed-forward, layers, heads, key-value heads, vocabulary, embeddings tied: public config.json of each model.
SHAPES = {
    "Qwen/Qwen2.5-0.5B-Instruct": (896, 4864, 24, 14, 2, 151936, True),
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B": (1536, 8960, 28, 12, 2, 151936, False),
    "Qwen/Qwen2.5-3B": (2048, 11008, 36, 16, 2, 151936, True),
    "Qwen/Qwen2.5-7B": (3584, 18944, 28, 28, 4, 152064, False),
    "Qwen/Qwen3-4B": (2560, 9728, 36, 32, 8, 151936, True),
}
SHAPES["Qwen/Qwen2.5-3B-Instruct"] = SHAPES["Qwen/Qwen2.5-3B"]
SHAPES["Qwen/Qwen2.5-7B-Instruct-1M"] = SHAPES["Qwen/Qwen2.5-7B"]
ROWS = {row[0]: row[1:] for row in re.findall(r"^\| `([\w/.-]+)` \|" + r" ([\d,]+)(?: GB)? \|" * 5, PAGE, re.MULTILINE)}
RECIPES = {
    path.relative_to(ROOT / "recipes").with_suffix("").as_posix(): path
    for path in (ROOT / "recipes").glob("*/*.yaml")
    if (path.parent / "base.yaml").is_file() and path.name != "base.yaml"
}


def test_every_recipe_has_a_row():
    assert ROWS.keys() == RECIPES.keys()


@pytest.mark.parametrize("recipe", RECIPES)
def test_sizes_follow_the_formulas(recipe):
    own, base = (load_yaml(path) for path in (RECIPES[recipe], RECIPES[recipe].with_name("base.yaml")))
    hidden, wide, layers, heads, groups, words, tied = SHAPES[own["actor_rollout_ref"]["model"]["path"]]
    model = own["actor_rollout_ref"]["model"]["path"]
    config = Qwen3Config if "Qwen3" in model else Qwen2Config  # Qwen3's heads have 128 dimensions each, by default
    shape = config(
        hidden_size=hidden, intermediate_size=wide, num_hidden_layers=layers, num_attention_heads=heads,
        num_key_value_heads=groups, vocab_size=words, tie_word_embeddings=tied,
    )  # fmt: skip
    with torch.device("meta"):
        count = sum(each.numel() for each in AutoModelForCausalLM.from_config(shape).parameters())
    kept = {**base["trainer"], **own.get("trainer", {})}["max_actor_ckpt_to_keep"]
    ranks = {**base["trainer"], **own.get("trainer", {})}["n_gpus_per_node"] if tied else 1
    merged = {**base["actor_rollout_ref"]["actor"], **own["actor_rollout_ref"].get("actor", {})}
    reference = 1 if merged.get("use_kl_loss") else 0
    sizes = [
        2 * count,
        checkpoint_bytes(count),
        max(kept, 2) * checkpoint_bytes(count),
        4 * count * (ranks + reference),
    ]
    assert ROWS[recipe] == (f"{count:,}", *(f"{size / 1e9:.0f}" for size in sizes))
