"""Sample responses and compute their log-probabilities, with plain transformers; `rollouts` and the trainer of studies use it.

What several responses have in common is computed once: a prompt for its whole group, and a beginning for all that share it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch.nn.functional import cross_entropy, pad
from transformers import DynamicCache


class Batch(NamedTuple):
    """Responses and what is known of them; B responses, prompts padded on the left to P, responses on the right to R."""

    prompts: torch.Tensor  # (B, P) token ids
    prompt_mask: torch.Tensor  # (B, P) True at tokens
    responses: torch.Tensor  # (B, R) token ids
    mask: torch.Tensor  # (B, R) True at sampled tokens, the end-of-sequence token included
    log_probs: torch.Tensor  # (B, R) log-probability when sampled
    entropies: torch.Tensor  # (B, R) of the distribution sampled from, nats

    def part(self, rows: slice) -> Batch:
        """Return some of the responses."""
        return Batch(*(column[rows] for column in self))


class Prompts(NamedTuple):
    """Prompts that the model has read; G of them, padded on the left to P."""

    mask: torch.Tensor  # (G, P) True at tokens
    logits: torch.Tensor  # (G, 1, V) of a response's first token; V: vocabulary
    cache: DynamicCache


class _CastCache(DynamicCache):
    """Keys and values in the type in which attention multiplies them within autocast.

    Rotary positions make keys float32, and kept so, all of them would be cast again for each token (a third of its time). For
    sampling alone: in training the gradients of a prompt's keys, which its responses share, are summed in float32.
    """

    def update(self, keys: torch.Tensor, values: torch.Tensor, *place: Any, **others: Any) -> Any:
        kind = keys.device.type
        if torch.is_autocast_enabled(kind):
            keys, values = (x.to(torch.get_autocast_dtype(kind)) for x in (keys, values))
        return super().update(keys, values, *place, **others)


def end_tokens(model: Any) -> list[int]:
    """Return the tokens that end a response.

    Raises:
        ValueError: the model has none.
    """
    ids = model.generation_config.eos_token_id  # one, or several: instruction-tuned models often have two
    if ids is None:
        raise ValueError(f"{model.name_or_path} has no end token; set eos_token_id in its generation_config.json")
    return ids if isinstance(ids, list) else [ids]


def half_precision(device: str | torch.device, enabled: bool) -> torch.autocast:
    """Return a context in which models compute in bfloat16. Enter one anew after each update: it keeps cast weights."""
    return torch.autocast(torch.device(device).type, torch.bfloat16, enabled=enabled)


@torch.no_grad()
def sample(
    model: Any,
    prompts: Sequence[Sequence[int]],
    n: int,
    *,
    ends: Sequence[int],
    seed: str,
    max_tokens: int,
    temperature: float = 1.0,
) -> Batch:
    """Draw responses; what several begin with is read once, and what ends leaves the KV cache.

    What is drawn for a row depends on its place and its probabilities alone: two policies with one seed draw with the same noise
    for as long as they agree. The global random state is left alone.

    Args:
        model: on its device.
        prompts: token ids.
        n: responses to each, one group after the other.
        ends: tokens that end a response.
        seed: of the noise.
        max_tokens: longest response.
        temperature: of sampling.
    """
    device = model.device
    generator = torch.Generator(device).manual_seed(random.Random(seed).getrandbits(63))
    ids, mask = left_padded(prompts, ends[0], device)
    positions, end = _positions(mask), torch.tensor(ends, device=device)
    cache = _CastCache()
    read = model(ids, attention_mask=mask, position_ids=positions, past_key_values=cache, logits_to_keep=1)
    logits = read.logits[:, -1]
    # The rows of the model are the different beginnings of responses; `row` is that of each response that goes on.
    seen, position, size = mask, positions[:, -1:], logits.shape[-1]
    ids, mask, row = (x.repeat_interleave(n, 0) for x in (ids, mask, torch.arange(len(ids), device=device)))
    going = torch.arange(len(ids), device=device)
    responses = torch.full((len(ids), max_tokens), ends[0], device=device)
    valid = torch.zeros_like(responses, dtype=torch.bool)
    log_probs, entropies = torch.zeros(2, *responses.shape, device=device)
    for t in range(max_tokens):
        log_p = torch.log_softmax(logits.float() / temperature, -1)
        below = log_p.exp().cumsum(-1, dtype=torch.double)  # in float32 the sum over a large vocabulary would be off
        noise = torch.rand(len(ids), 1, dtype=torch.double, device=device, generator=generator)[going]
        token = torch.searchsorted(below[row], noise * below[row, -1:], right=True)[:, 0]
        responses[going, t], valid[going, t] = token, True
        log_probs[going, t] = log_p[row, token]
        entropies[going, t] = torch.special.entr(log_p.exp()).sum(-1)[row]
        (stay,) = torch.isin(token, end, invert=True).nonzero(as_tuple=True)
        if not len(stay) or t + 1 == max_tokens:
            break
        going = going[stay]
        ways, row = torch.unique(row[stay] * size + token[stay], return_inverse=True)
        before, token = ways // size, ways % size
        if not torch.equal(before, torch.arange(len(seen), device=device)):
            cache.batch_select_indices(before)
        seen, position = pad(seen[before], (0, 1), value=True), position[before] + 1
        logits = model(token[:, None], attention_mask=seen, position_ids=position, past_key_values=cache).logits[:, -1]
    return Batch(ids, mask, *(x[:, : t + 1] for x in (responses, valid, log_probs, entropies)))


def left_padded(
    sequences: Sequence[Sequence[int]], value: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return sequences of token ids as (G, P) tensor, padded on the left, and its mask, True at tokens."""
    width = max(map(len, sequences))
    ids = [[value] * (width - len(one)) + [*one] for one in sequences]
    mask = [[False] * (width - len(one)) + [True] * len(one) for one in sequences]
    return torch.tensor(ids, device=device), torch.tensor(mask, device=device)


def _positions(mask: torch.Tensor) -> torch.Tensor:
    return (mask.cumsum(-1) - 1).clamp(min=0)


def read_prompts(model: Any, ids: torch.Tensor, mask: torch.Tensor) -> Prompts:
    """Read (G, P) prompts once for all their responses."""
    cache = DynamicCache()
    given = {"attention_mask": mask, "position_ids": _positions(mask), "past_key_values": cache}
    return Prompts(mask, model(ids, **given, logits_to_keep=1).logits, cache)


def response_logits(
    model: Any, prompts: Prompts, place: torch.Tensor, tokens: torch.Tensor, mask: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the logits that the tokens of responses were sampled from, by one pass over the responses.

    Args:
        model: that has read the prompts.
        prompts: what it read.
        place: (C,) of each response's prompt in `prompts`.
        tokens: (C, R) of the responses, padded on the right.
        mask: (C, R) True at tokens.

    Returns:
        (C, 1, V) of the first tokens, and (C, R - 1, V) of the others.
    """
    first, before = prompts.logits[place], prompts.mask[place]
    if tokens.shape[1] == 1:
        return first, first[:, :0]
    seen = torch.cat([before, mask[:, :-1]], -1)  # the token at t is predicted at t - 1
    positions = before.sum(-1, keepdim=True) + torch.arange(tokens.shape[1] - 1, device=place.device)
    cache = DynamicCache([(layer.keys[place], layer.values[place]) for layer in prompts.cache.layers])
    return first, model(tokens[:, :-1], attention_mask=seen, position_ids=positions, past_key_values=cache).logits


def response_log_probs(
    model: Any, batch: Batch, group: int, rows: int, temperature: float = 1.0, trained: torch.Tensor | None = None
) -> torch.Tensor:
    """Compute log-probabilities of the tokens of responses.

    Responses of like length share a pass, to save padding; equal ones to a prompt are computed once.

    Args:
        model: on its device.
        batch: responses, group after group.
        group: responses to a prompt.
        rows: at most so many responses share a pass.
        temperature: of the probabilities.
        trained: (B,) True at responses that get a gradient, where it is enabled; None for all.

    Returns:
        (B, R), 0 behind the end of a response.
    """
    result = torch.zeros_like(batch.log_probs)
    trained = torch.ones_like(batch.mask[:, 0]) if trained is None else trained
    first = first_alike(batch, group)
    order = batch.mask.sum(-1).argsort()
    order = order[first[order] == order]
    # Those with a gradient first: autocast would go on with weights that it cast without one.
    for chosen in (order[trained[order]], order[~trained[order]]):
        if not len(chosen):
            continue
        with torch.set_grad_enabled(torch.is_grad_enabled() and bool(trained[chosen[0]])):
            groups = (chosen // group).unique()
            prompts = read_prompts(model, batch.prompts[groups * group], batch.prompt_mask[groups * group])
            found = [
                one_pass(model, batch, part, prompts, torch.searchsorted(groups, part // group), temperature)
                for part in chosen.split(rows)
            ]
        result = result.index_put((chosen,), torch.cat(found))
    return result[first]


def first_alike(batch: Batch, group: int) -> torch.Tensor:
    """Return the (B,) place of the first row of the batch with the same prompt and response; short answers are often equal."""
    place = torch.arange(len(batch.mask), device=batch.mask.device)
    said = torch.cat([(place // group)[:, None], batch.responses.masked_fill(~batch.mask, -1)], -1)
    different, which = torch.unique(said, dim=0, return_inverse=True)
    return place.new_full((len(different),), len(place)).scatter_reduce(0, which, place, "amin")[which]


def one_pass(
    model: Any, batch: Batch, chunk: torch.Tensor, prompts: Prompts, place: torch.Tensor, temperature: float
) -> torch.Tensor:
    """Return (C, R) log-probabilities of the responses whose places in the batch are `chunk`, (C,)."""
    mask = batch.mask[chunk, : int(batch.mask[chunk].sum(-1).max())]
    tokens = batch.responses[chunk, : mask.shape[1]]
    values = torch.zeros_like(batch.log_probs[chunk])
    begin = 0
    for logits in response_logits(model, prompts, place, tokens, mask):
        part = slice(begin, begin := begin + logits.shape[1])
        chosen = logits[mask[:, part]].float() / temperature
        values[:, part][mask[:, part]] = -cross_entropy(chosen, tokens[:, part][mask[:, part]], reduction="none")
    return values
