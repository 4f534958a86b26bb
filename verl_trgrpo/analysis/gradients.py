"""Gradients of single tokens' log-probabilities: at the logits in closed form, at parameters by batched autograd."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

_MEMORY_BYTES = 256 * 2**20


class LogitGradients(NamedTuple):
    """What :func:`logit_gradients` returns; all (tokens,) float64.

    Args:
        log_probs: log p of the sampled tokens.
        misses: 1 - p, exact also where p rounds to 1.
        norms: ||grad_z log p||, between 1 - p and sqrt(2) (1 - p).
    """

    log_probs: torch.Tensor
    misses: torch.Tensor
    norms: torch.Tensor


@torch.no_grad()
def logit_gradients(logits: torch.Tensor, tokens: torch.Tensor) -> LogitGradients:
    """Norm of the gradient of a sampled token's log-probability by the logits z that it was sampled from.

    With softmax probabilities q and sampled token a the gradient is e_a - q, so its squared norm is
    (1 - q_a)^2 + sum of q_v^2 over the other tokens v: at least (1 - q_a)^2, and at most twice that.

    Args:
        logits: (tokens, vocabulary) any floating dtype.
        tokens: (tokens,) ids of the sampled tokens.
    """
    log_q = torch.log_softmax(logits.double(), dim=-1)
    log_probs = log_q.gather(-1, tokens[:, None])[:, 0]
    # Sums over the other tokens keep their precision where 1 - p would cancel.
    others = log_q.exp_().scatter_(-1, tokens[:, None], 0.0)
    misses = others.sum(-1)
    return LogitGradients(log_probs, misses, (misses.square() + others.square().sum(-1)).sqrt())


def weighted_gradients(
    log_probs: torch.Tensor, parameters: Sequence[torch.Tensor], coefficients: torch.Tensor
) -> torch.Tensor:
    """Gradients of sums over tokens, coefficient times log-probability, for several sets of coefficients.

    One forward pass serves all of them: the backward passes are batched (``vmap`` over vector-Jacobian products).
    Per-sample gradients by ``vmap(grad)`` would run the forward pass of the whole prefix again for every token.

    Args:
        log_probs: (tokens,) connected to the parameters; its graph is kept.
        parameters: P values in all.
        coefficients: (sets, tokens).

    Returns:
        (sets, P) gradients, the parameters' flattened one after another; 0 for parameters without influence.
    """
    coefficients = coefficients.to(log_probs)
    gradients = torch.autograd.grad(
        log_probs, parameters, coefficients, retain_graph=True, allow_unused=True, is_grads_batched=True
    )
    filled = (
        parameter.new_zeros(len(coefficients), parameter.numel()) if gradient is None else gradient.flatten(1)
        for gradient, parameter in zip(gradients, parameters, strict=True)
    )
    return torch.cat(list(filled), dim=-1)


def token_gradient_norms(
    log_probs: torch.Tensor, parameters: Sequence[torch.Tensor], memory_bytes: int = _MEMORY_BYTES
) -> torch.Tensor:
    """Norm of the gradient of each token's log-probability by all the parameters together.

    Args:
        log_probs: (tokens,) connected to the parameters; its graph is kept.
        parameters: those to differentiate by.
        memory_bytes: about as much may the gradients of tokens handled together take.

    Returns:
        (tokens,) norms, no graph.
    """
    size = sum(parameter.numel() * parameter.element_size() for parameter in parameters)
    together = max(1, memory_bytes // size)
    unit = torch.eye(len(log_probs), dtype=log_probs.dtype, device=log_probs.device)
    norms = [weighted_gradients(log_probs, parameters, rows).norm(dim=-1) for rows in unit.split(together)]
    return torch.cat(norms)
