"""What a model needs: shapes against closed forms, and models that are not known."""

import pytest
import torch

from tests.memory.models import ADAMW, MODELS, shape_of
from verl_trgrpo.memory.shape import UnknownModelError, fused_bytes, head_bytes, model_shape, optimizer_bytes


def counted(c):
    """Parameters of a dense decoder by its published figures: attention, three maps of the MLP, norms, embedding."""
    h, f, heads, shared = c["hidden_size"], c["intermediate_size"], c["num_attention_heads"], c["num_key_value_heads"]
    width = c.get("head_dim", h // heads)
    attention = 2 * h * heads * width + 2 * h * shared * width
    biases = (heads + 2 * shared) * width if c["model_type"] == "qwen2" else 0
    norms = 2 * h + (2 * width if c["model_type"] == "qwen3" else 0)
    words = c["vocab_size"] * h * (1 if c["tie_word_embeddings"] else 2)
    return c["num_hidden_layers"] * (attention + biases + 3 * h * f + norms) + words + h


@pytest.mark.parametrize("name", ["Qwen2.5-0.5B", "Qwen2.5-7B", "Qwen3-8B", "Llama-3.1-8B"])
def test_parameters_and_cache_are_those_of_the_figures(name):
    c, shape = MODELS[name], shape_of(name)
    assert shape.parameters == counted(c)
    assert shape.root + shape.layers * shape.layer == shape.parameters
    assert shape.tied == c["tie_word_embeddings"] and shape.largest == c["vocab_size"] * c["hidden_size"]
    width = c.get("head_dim", c["hidden_size"] // c["num_attention_heads"])
    assert shape.cache == 2 * 2 * c["num_hidden_layers"] * c["num_key_value_heads"] * width


def test_activations_grow_with_the_widths_of_a_layer():
    c, shape = MODELS["Qwen2.5-7B"], shape_of("Qwen2.5-7B")
    h, f = c["hidden_size"], c["intermediate_size"]
    # Kept: the input of each linear map, queries, keys, values, gate and its activation, two norms in 32 bits.
    assert 2 * (8 * h + 4 * f) < shape.saved < 2 * (12 * h + 5 * f)
    # The gradients of gate, up and their product come on top.
    assert shape.saved + 2 * 2 * f <= shape.inside <= shape.saved + 2 * 3 * f
    assert shape.forward < shape.saved


def test_experts_count_whole_and_compute_in_part():
    shape = shape_of("Qwen3.6-35B-A3B")
    assert 34e9 < shape.parameters < 35.5e9
    dense = {**MODELS["Qwen3-8B"], "hidden_size": 2048, "intermediate_size": 512 * 256}
    assert shape.inside < model_shape(dense).inside / 2


def test_adapters_of_all_linear_maps():
    c, name = MODELS["Qwen2.5-0.5B"], "Qwen2.5-0.5B"
    h, f, narrow = c["hidden_size"], c["intermediate_size"], 128
    each = 2 * (h + h) + 2 * (h + narrow) + 3 * (h + f)
    assert shape_of(name).adapter == 0
    assert shape_of(name, 32).adapter == c["num_hidden_layers"] * 32 * each
    assert shape_of(name, 32, ("q_proj",)).adapter == c["num_hidden_layers"] * 32 * 2 * h
    assert shape_of(name, 32).parameters == shape_of(name).parameters


def test_adapters_take_activations_of_their_own():
    """Each adapter keeps its map's input and adds a copy of its map's output to it; the base's inputs are not kept."""
    without, all_linear, few = (
        shape_of("Qwen2.5-0.5B", rank, ("q_proj",) if rank == 8 else "all-linear") for rank in (0, 32, 8)
    )
    assert all_linear.inside > without.inside
    assert few.saved < without.saved < all_linear.saved


@pytest.mark.parametrize(
    ("entropy", "flash", "grad", "scaled", "expected"),
    [
        ("", True, False, False, 2), ("", True, True, False, 2),  # the gradient is written over the logits
        ("shown", True, True, False, 4), ("trained", True, True, False, 6), ("", True, True, True, 6),
        ("shown", True, False, False, 2),
    ],
)  # fmt: skip
def test_bytes_of_a_logit(entropy, flash, grad, scaled, expected):
    assert head_bytes(entropy, True, flash, grad, scaled) == pytest.approx(expected, abs=0.01)


def test_without_flash_attn_each_row_is_kept_in_32_bits():
    assert head_bytes("", True, False, True, False) >= 2 + 4
    assert head_bytes("trained", False, False, True, False) > head_bytes("trained", True, True, True, False)


def test_fused_kernels_keep_no_logits():
    whole = 16384 * 152064 * 4
    assert 512 * 152064 * 4 < fused_bytes(3584, 152064, False) < whole / 8
    # The gradient of the output layer, and that of a chunk, both in 16 bits.
    assert fused_bytes(3584, 152064, True) >= 2 * 2 * 3584 * 152064


def test_states_of_optimizers():
    assert optimizer_bytes(lambda weights: torch.optim.AdamW(weights)) == pytest.approx(ADAMW, abs=0.01)
    assert optimizer_bytes(lambda weights: torch.optim.SGD(weights))[0] == 0

    def of_a_card(weights):
        raise RuntimeError("no card")

    with pytest.raises(UnknownModelError, match="no card"):
        optimizer_bytes(of_a_card)


QWEN = MODELS["Qwen2.5-0.5B"]


@pytest.mark.parametrize(
    "config",
    [
        {}, {"model_type": "of_tomorrow"}, {**QWEN, "hidden_size": -4}, {**QWEN, "num_hidden_layers": 10**9},
        {**QWEN, "num_hidden_layers": "many"}, {**QWEN, "vision_config": {}}, {"model_type": "qwen3_vl", "text_config": QWEN},
        {**QWEN, "auto_map": {"AutoModel": "modeling.Model"}}, {"model_type": "gpt2"}, {**QWEN, "num_attention_heads": 0},
    ],
)  # fmt: skip
def test_models_that_are_not_known(config):
    with pytest.raises(UnknownModelError):
        model_shape(config)
