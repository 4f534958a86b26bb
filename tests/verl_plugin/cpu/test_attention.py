"""Both kinds are the softmax attention of transformers: outputs and gradients, padded, cached, packed, with shared heads."""

from copy import deepcopy

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from verl_trgrpo.verl_plugin.cpu.attention import GROUPED, PACKED, grouped_attention, packed_attention


def models(heads, groups, name=GROUPED):
    """Two models with the same weights, with the attention of that name and with transformers' own."""
    torch.manual_seed(0)
    shape = {"hidden_size": 8 * heads, "num_attention_heads": heads, "num_key_value_heads": groups}
    config = LlamaConfig(vocab_size=50, intermediate_size=40, num_hidden_layers=2, **shape)
    # A configuration of its own for each: it holds the name, which the second model would change for both.
    pair = [AutoModelForCausalLM.from_config(deepcopy(config), attn_implementation=kind) for kind in (name, "sdpa")]
    assert [model.config._attn_implementation for model in pair] == [name, "sdpa"]
    pair[1].load_state_dict(pair[0].state_dict())
    return [model.double().eval() for model in pair]


@pytest.mark.parametrize(("heads", "groups"), [(6, 2), (4, 4), (4, 1)])
def test_outputs_and_gradients_are_those_of_transformers(heads, groups):
    ids = torch.arange(21).view(3, 7)
    mask = torch.ones_like(ids)
    mask[1, :4] = 0  # padded on the left
    gradients = []
    for model in models(heads, groups):
        logits = model(ids, attention_mask=mask).logits
        (logits.softmax(-1)[mask.bool()] ** 2).sum().backward()
        gradients.append([logits[mask.bool()], *(parameter.grad for parameter in model.parameters())])
    assert all(gradient.abs().max() > 0 for gradient in gradients[0])
    torch.testing.assert_close(*gradients, rtol=1e-6, atol=1e-9)


def test_a_token_behind_a_cache_sees_what_it_saw_in_one_pass():
    model, _ = models(6, 2)
    ids = torch.arange(12).view(2, 6)
    whole = model(ids).logits
    first = model(ids[:, :4], use_cache=True)
    rest = [model(ids[:, 4:5], past_key_values=first.past_key_values)]
    rest.append(model(ids[:, 5:], past_key_values=rest[0].past_key_values))
    torch.testing.assert_close(torch.cat([first.logits, *(part.logits for part in rest)], 1), whole)


@pytest.mark.parametrize(("heads", "groups"), [(6, 2), (4, 4)])
def test_packed_sequences_are_what_they_are_apart(heads, groups):
    sequences = [torch.arange(first, first + length) for first, length in ((3, 7), (20, 1), (30, 5))]
    packed, apart = models(heads, groups, PACKED)
    positions = torch.cat([torch.arange(len(tokens)) for tokens in sequences])[None]
    together = packed(torch.cat(sequences)[None], position_ids=positions).logits[0]
    single = torch.cat([apart(tokens[None]).logits[0] for tokens in sequences])
    gradients = []
    for model, logits in ((packed, together), (apart, single)):
        (logits.softmax(-1) ** 2).sum().backward()
        gradients.append([logits, *(parameter.grad for parameter in model.parameters())])
    assert all(gradient.abs().max() > 0 for gradient in gradients[0])
    torch.testing.assert_close(*gradients, rtol=1e-6, atol=1e-9)


def test_packed_attention_refuses_what_it_would_get_wrong():
    ids = torch.arange(12).view(2, 6)
    model, _ = models(4, 2, PACKED)
    with pytest.raises(ValueError, match="attn_implementation=sdpa"):
        model(ids, attention_mask=torch.ones_like(ids))
    first = model(ids[:1, :4], use_cache=True)
    with pytest.raises(ValueError, match="attn_implementation=sdpa"):
        model(ids[:1, 4:], past_key_values=first.past_key_values)
    heads, positions = torch.zeros(1, 2, 3, 4), torch.arange(3)[None]
    packed_attention(torch.nn.Module(), heads, heads, heads, None, 1.0, positions, sliding_window=3)
    with pytest.raises(ValueError, match="attn_implementation=sdpa"):
        packed_attention(torch.nn.Module(), heads, heads, heads, None, 1.0, positions, sliding_window=2)


@pytest.mark.parametrize("name", ["s_aux", "softcap"])
def test_attention_of_another_kind_is_refused(name):
    heads = torch.zeros(1, 2, 3, 4)
    with pytest.raises(ValueError, match=f"attention with {name}"):
        grouped_attention(torch.nn.Module(), heads, heads, heads, None, 1.0, **{name: 30.0})
