"""Compute NTHR, the influence of a token of a wrong response on the likelihood of its group's right ones (arXiv 2505.18830).

The loss of a token moves the logits of another by the product of two inner products (Eq. 7 and Theorem 4.4 of the paper): of
the hidden states h before the output layer, and of the prediction errors g = one-hot of the token - p. Summed over the tokens
of all right responses that is

    s = g' M h,  M = sum of g h' over the tokens of right responses,

with g restricted to the tokens that occur in the group's responses (Appendix 7.4). The published rule multiplies the
advantages of tokens of wrong responses with s > tau by eta = 2 |0.5 - q|, where q is the group's share of right responses,
tau = beta times the smallest mean of s among the right responses, and beta = 1 (Section 5.2, Appendix 7.3). Of the paper the
text was seen, not the typeset equations; the sums follow from its definitions, and whether the mean of a right response has
its influence on itself is an option. Its runs have dynamic sampling and a KL loss of 1e-4, which belong to a recipe.
tests/cluster/test_train_mini_batch.py compares its updates with an independent loop.
"""

from __future__ import annotations

import torch

# Positions whose probabilities are in memory together; those of a long response would take several times what its logits do.
_BLOCK = 1024


@torch.no_grad()
def prediction_errors(
    logits: torch.Tensor, places: torch.Tensor, tokens: torch.Tensor, vocabulary: torch.Tensor, temperature: float
) -> torch.Tensor:
    """Return one-hot minus probability, restricted to some tokens: (T, V') in float32.

    Args:
        logits: (N, V).
        places: (T,), the rows of `logits` that predict `tokens`.
        tokens: (T,), sampled; all occur in `vocabulary`.
        vocabulary: (V',) ascending. Probabilities are those of the whole vocabulary, not normalised again.
        temperature: of sampling.
    """
    found = []
    for at, ids in zip(places.split(_BLOCK), tokens.split(_BLOCK), strict=True):
        scaled = logits[at].float().div_(temperature)
        errors = (scaled[:, vocabulary] - scaled.logsumexp(-1, keepdim=True)).exp_().neg_()
        errors[torch.arange(len(ids), device=ids.device), torch.searchsorted(vocabulary, ids)] += 1
        found.append(errors)
    return torch.cat(found)


def influences(errors: torch.Tensor, hidden: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    """Return s of T tokens: (T,).

    Args:
        errors: g, (T, V').
        hidden: h, (T, d).
        matrix: M, (V', d): ``errors.T @ hidden`` of the right responses.
    """
    return ((errors @ matrix) * hidden).sum(-1)
