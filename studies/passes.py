"""Compute log-probabilities of the tokens of responses, for the trainer of studies.

A prompt is read once for its whole group.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import cross_entropy

from studies.rollouts import Batch, Prompts, read_prompts, response_logits


def half_precision(device: str | torch.device, enabled: bool) -> torch.autocast:
    """Return a context in which models compute in bfloat16. Enter one anew after each update: it keeps cast weights."""
    return torch.autocast(torch.device(device).type, torch.bfloat16, enabled=enabled)


def trained_log_probs(model: Any, batch: Batch, options: Any, trained: torch.Tensor) -> torch.Tensor:
    """Compute log-probabilities of the tokens of responses; those of like length share a pass, to save padding.

    Args:
        model: on its device.
        batch: responses, group after group.
        options: `samples` to a prompt, `temperature` of the probabilities, and at most so many `rows` share a pass.
        trained: (B,) True at responses that get a gradient, where it is enabled.

    Returns:
        (B, R), 0 behind the end of a response.
    """
    group = options.samples
    result = torch.zeros_like(batch.log_probs)
    order = batch.mask.sum(-1).argsort()
    # Those with a gradient first: autocast would go on with weights that it cast without one.
    for chosen in (order[trained[order]], order[~trained[order]]):
        if not len(chosen):
            continue
        with torch.set_grad_enabled(torch.is_grad_enabled() and bool(trained[chosen[0]])):
            groups = (chosen // group).unique()
            prompts = read_prompts(model, batch.prompts[groups * group], batch.prompt_mask[groups * group])
            found = [
                one_pass(model, batch, part, prompts, torch.searchsorted(groups, part // group), options.temperature)
                for part in chosen.split(options.rows)
            ]
        result = result.index_put((chosen,), torch.cat(found))
    return result


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
