"""Policies that are transformers over the same chains: a token sees the prompt and all earlier tokens, wording included.

Two layers of width 32, four heads, normalized inputs, relu; 17,728 weights. The input is a, b, c and the tokens so far; the
output at c is the first token. So wording can disturb decisions through the context as well as through shared weights, and a
decision can no longer be computed from the prompt alone: accuracy is a mean over sampled wordings of what both decisions are
worth there.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from studies.chains.chains import (
    DIGITS,
    FIRST,
    LAST,
    LENGTH,
    PROMPTS,
    VOCABULARY,
    Batch,
    Chain,
    Parameters,
    entropies,
    judged_batch,
    prompt_digits,
    start_distribution,
)

LAYERS, WIDTH, HEADS, INNER = 2, 32, 4, 64
GIVEN = 3  # tokens of a prompt
# Of one layer: queries, keys and values side by side, output of attention, both layers of the MLP.
SHAPES = ((WIDTH, 3 * WIDTH), (WIDTH, WIDTH), (WIDTH, INNER), (INNER, WIDTH))


def new_policies(seeds: int, generator: torch.Generator) -> Parameters:
    """Return untrained policies: embeddings of tokens and of positions, layers, output; (seeds, ., .) each."""

    def normal(rows: int, columns: int, size: float) -> torch.Tensor:
        return torch.randn(seeds, rows, columns, generator=generator) * size

    layers = [normal(*shape, shape[0] ** -0.5) for _ in range(LAYERS) for shape in SHAPES]
    return [normal(VOCABULARY, WIDTH, 0.5), normal(GIVEN + LAST, WIDTH, 0.5), *layers,
            normal(WIDTH, VOCABULARY, 0.5 * WIDTH**-0.5)]  # fmt: skip


def _normalized(x: torch.Tensor) -> torch.Tensor:
    return x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt()


class Reading:
    """Read chains from left to right, and keep the keys and values of what has been read."""

    def __init__(self, parameters: Parameters) -> None:
        self.tokens, self.positions, *self.layers, self.output = parameters
        self.kept: list[tuple[torch.Tensor, torch.Tensor] | None] = [None] * LAYERS
        self.read = 0

    def __call__(self, tokens: torch.Tensor) -> torch.Tensor:
        """Read tokens (seeds, rows, n); return the logits of what follows each, (seeds, rows, n, vocabulary)."""
        seeds, rows, n = tokens.shape
        index = tokens.flatten(1)[..., None].expand(-1, -1, WIDTH)
        x = self.tokens.gather(1, index).view(seeds, rows, n, WIDTH)
        x = (x + self.positions[:, None, self.read : self.read + n]).view(seeds, rows * n, WIDTH)
        for layer in range(LAYERS):
            mixing, attended, inner, outer = self.layers[4 * layer : 4 * layer + 4]
            parts = torch.bmm(_normalized(x), mixing).view(seeds, rows, n, 3, HEADS, WIDTH // HEADS)
            query, key, value = parts.permute(3, 0, 1, 4, 2, 5).flatten(1, 2)  # (seeds * rows, heads, n, .)
            if (before := self.kept[layer]) is not None:
                key, value = torch.cat([before[0], key], 2), torch.cat([before[1], value], 2)
            self.kept[layer] = key, value
            scores = query @ key.transpose(-1, -2) * (WIDTH // HEADS) ** -0.5
            if n > 1:
                scores = scores + torch.full(scores.shape[-2:], -torch.inf).triu(1 + self.read)
            heads = scores.softmax(-1) @ value
            x = x + torch.bmm(heads.transpose(1, 2).reshape(seeds, rows * n, WIDTH), attended)
            x = x + torch.bmm(torch.bmm(_normalized(x), inner).relu(), outer)
        self.read += n
        return torch.bmm(_normalized(x), self.output).view(seeds, rows, n, VOCABULARY)


def prompt_tokens(prompts: torch.Tensor, samples: int) -> torch.Tensor:
    """Return the tokens of prompts (seeds, n), each `samples` times: (seeds, n * samples, 3)."""
    return torch.stack([digit[prompts] for digit in prompt_digits()], -1).repeat_interleave(samples, 1)


def chain_log_probs(parameters: Parameters, prompts: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Return distributions over each token of chains (seeds, rows, LENGTH) behind prompt tokens (seeds, rows, 3)."""
    return Reading(parameters)(torch.cat([prompts, tokens[..., :-1]], -1))[:, :, GIVEN - 1 :].log_softmax(-1)


def draw(probs: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """Return tokens of distributions (., vocabulary) by uniform numbers of the same shape without the last dimension."""
    return torch.searchsorted(probs.cumsum(-1), noise[..., None].contiguous()).squeeze(-1).clamp_(max=VOCABULARY - 1)


def written(
    parameters: Parameters, prompts: torch.Tensor, noise: torch.Tensor
) -> Iterator[tuple[torch.Tensor, list[torch.Tensor]]]:
    """Yield the log-probabilities of each token, and the list of tokens so far to which one sampled from them was added.

    The caller may replace the last token of the list before it goes on.
    """
    reading, chosen = Reading(parameters), []
    given = prompts
    for place in range(LENGTH):
        log_probs = reading(given)[:, :, -1].log_softmax(-1)
        chosen.append(draw(log_probs.exp(), noise[..., place]))
        yield log_probs, chosen
        given = chosen[-1][..., None]


class Transformer:
    """The policy of this module, as `train_policies` takes it."""

    @torch.no_grad()
    def sample(self, parameters: Parameters, prompts: torch.Tensor, samples: int, generator: torch.Generator) -> Batch:
        """Sample responses to prompts (seeds, n)."""
        seeds, n = prompts.shape
        noise = torch.rand(seeds, n, LENGTH, samples, generator=generator).transpose(-1, -2).flatten(1, 2)
        log_probs = []
        for found, tokens in written(parameters, prompt_tokens(prompts, samples), noise):
            log_probs.append(found.gather(-1, tokens[-1][..., None])[..., 0])
        shape = (seeds, n, samples, LENGTH)
        return judged_batch(prompts, torch.stack(tokens, -1).view(shape), torch.stack(log_probs, -1).view(shape))

    def tokens(self, parameters: Parameters, batch: Batch, entropy: bool) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return log-probabilities of the tokens and, if asked for, entropies without gradient where they were chosen."""
        samples = batch.tokens.shape[2]
        rows = batch.tokens.flatten(1, 2)
        every = chain_log_probs(parameters, prompt_tokens(batch.prompts, samples), rows)
        found = every.gather(-1, rows[..., None])[..., 0].view_as(batch.tokens)
        return found, entropies(every.detach()).view_as(found) if entropy else None


TRANSFORMER = Transformer()


def fit(chain: Chain, seeds: int, seed: int, steps: int = 800, rows: int = 36) -> Parameters:
    """Fit `seeds` policies to the start distribution of a chain, with any r and any wording in the context."""
    generator = torch.Generator().manual_seed(seed)
    target = start_distribution(chain)
    parameters = [parameter.requires_grad_() for parameter in new_policies(seeds, generator)]
    weight = torch.ones(LENGTH)
    weight[[FIRST, LAST]] = DIGITS
    optimizer = torch.optim.Adam(parameters, lr=0.004)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, steps)
    for _ in range(steps):
        prompts = torch.randint(PROMPTS, (rows,), generator=generator)
        tokens = draw(target[prompts, :LAST], torch.rand(rows, LAST, generator=generator))
        tokens[:, FIRST] = r = torch.randint(DIGITS, (rows,), generator=generator)
        wanted = torch.cat([target[prompts, :LAST], target[prompts, LAST + r][:, None]], 1)
        tokens = torch.cat([tokens, tokens[:, :1]], 1)  # the last is not read
        log_probs = chain_log_probs(
            parameters, prompt_tokens(prompts[None], 1).expand(seeds, -1, -1), tokens.expand(seeds, -1, -1)
        )
        loss = (-(wanted * log_probs).sum(-1) * weight).mean((-1, -2)).sum()  # of independent seeds
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return [parameter.detach() for parameter in parameters]


@torch.no_grad()
def sampled_right_probs(parameters: Parameters, wordings: int, seed: int) -> torch.Tensor:
    """Return the probability that both decisions are right for each prompt, (seeds, prompts), a mean over sampled wordings.

    Each wording is sampled from the policy with the right r in its place; the probabilities of the right r and of the right
    answer there are multiplied. This is the expected accuracy without the chance of the decisions themselves.
    """
    seeds = len(parameters[0])
    prompts = prompt_tokens(torch.arange(PROMPTS).expand(seeds, -1), wordings)
    noise = torch.rand(seeds, PROMPTS * wordings, LENGTH, generator=torch.Generator().manual_seed(seed))
    a, b, c = prompts.unbind(-1)
    right, found = {FIRST: (a + b) % DIGITS, LAST: (a + b + c) % DIGITS}, torch.ones(prompts.shape[:2])
    for place, (log_probs, tokens) in enumerate(written(parameters, prompts, noise)):
        if place in right:
            found *= log_probs.gather(-1, right[place][..., None])[..., 0].exp()
            tokens[-1] = right[place]
    return found.view(seeds, PROMPTS, wordings).mean(-1)
