"""The two measurements of ``verl-trgrpo analyze``: gradients of tokens, and sharpness of checkpoints."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from verl_trgrpo.analysis.gradients import logit_gradients, token_gradient_norms, weighted_gradients
from verl_trgrpo.analysis.rollouts import (
    Progress,
    Rollout,
    RolloutOptions,
    load_policy,
    response_logits,
    sample_rollouts,
    token_log_probs,
)
from verl_trgrpo.analysis.shares import QUARTILES, cosines, probability_ranges, quartiles, shares
from verl_trgrpo.analysis.sharpness import Sharpness, measure_sharpness
from verl_trgrpo.common.problems import raise_problems
from verl_trgrpo.core import Shaping, make_shaping
from verl_trgrpo.evaluation.checkpoint import find_model, merged_model

UNIFORM = "uniform"
_ROWS = 16


@dataclass(frozen=True)
class GradientOptions:
    """What to measure about gradients.

    Args:
        shapings: ``name`` or ``name:parameter=value,...``, as :func:`~verl_trgrpo.core.make_shaping` takes them.
        parameters: part of the names of the parameters to differentiate by (``layers.0.``, ``lm_head``); ``all`` for all.
        tokens: at most so many tokens get a backward pass of their own.
        quarters: ``range`` groups tokens by quarters of [0, 1] that their probability is in, ``tokens`` into four groups
            of equal size.

    Raises:
        ValueError: listing every shaping that cannot be built, and numbers out of range.
    """

    shapings: tuple[str, ...] = ("sigmoid",)
    parameters: str = "all"
    tokens: int = 2000
    quarters: str = "range"
    built: dict[str, Shaping] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        problems = [] if self.tokens > 0 else [f"tokens is {self.tokens}; use at least 1"]
        if self.quarters not in ("range", "tokens"):
            problems.append(f"quarters is {self.quarters!r}; choose range or tokens")
        for text in (UNIFORM, *self.shapings):
            try:
                self.built[text] = parse_shaping(text)
            except ValueError as error:
                problems.append(str(error))
        raise_problems(problems)


def parse_shaping(text: str) -> Shaping:
    """The shaping of ``name`` or ``name:parameter=value,...``, for example ``linear:alpha=0.3`` or ``sigmoid:reverse=true``.

    Raises:
        ValueError: where it cannot be built.
    """
    name, _, rest = text.partition(":")
    parameters: dict[str, Any] = {}
    for pair in filter(None, rest.split(",")):
        key, _, value = pair.partition("=")
        try:
            parameters[key] = json.loads(value.lower())
        except ValueError as error:
            raise ValueError(f"shaping {text}: {pair} is not PARAMETER=NUMBER, such as alpha=0.3") from error
    shaping = make_shaping(name, **parameters)
    if not shaping.probs_only:
        raise ValueError(f"shaping {text} asks for {', '.join(shaping.inputs)}; the analysis has probabilities only")
    return shaping


@dataclass(frozen=True)
class TokenTable:
    """Measured tokens, (tokens,) each on the CPU in float64; ``parameter_norms`` only of the first ones.

    Args:
        probs: p of the sampled token.
        misses: 1 - p without cancellation.
        advantages: A.
        logit_norms: norm of the gradient of log p at the logits.
        parameter_norms: the same by the chosen parameters.
        quarter: 0 for the least probable to 3, among tokens with A != 0; -1 for the others.
    """

    probs: torch.Tensor
    misses: torch.Tensor
    advantages: torch.Tensor
    logit_norms: torch.Tensor
    parameter_norms: torch.Tensor
    quarter: torch.Tensor


def open_model(name: str, device: str, out: Path) -> tuple[Any, Any]:
    """Tokenizer and model of a veRL checkpoint, a Hugging Face directory or a hub name; see ``load_policy``."""
    return load_policy(merged_model(find_model(name), out), device)


def analyze_gradients(
    tokenizer: Any,
    model: Any,
    data: Path,
    sampling: RolloutOptions,
    options: GradientOptions,
    progress: Progress,
) -> tuple[dict[str, Any], TokenTable]:
    """Measure the gradients of a model's own rollouts, before and after weighting.

    Returns:
        the figures, as JSON takes them (docs/analysis.md explains each), and the tokens.

    Raises:
        ValueError: when no parameter has the name, or every group got equal rewards, so that nothing has a gradient.
    """
    chosen = [(name, p) for name, p in model.named_parameters() if options.parameters in ("all", *_parts(name))]
    if not chosen:
        known = ", ".join(name for name, _ in list(model.named_parameters())[:4])
        raise ValueError(f"no parameter has {options.parameters!r} in its name; the model has {known}, ...")
    parameters = [parameter for _, parameter in chosen]
    rollouts = _unequal_rollouts(tokenizer, model, data, sampling, progress)
    # Shuffled, so that the tokens that get a pass of their own come from all prompts.
    random.Random(sampling.seed).shuffle(rollouts)
    table = _closed_form(model, rollouts, options.quarters, progress)
    weights = {name: shaping(table.probs.float()).double() for name, shaping in options.built.items()}
    norms, updates = _by_autograd(model, rollouts, parameters, table, weights, options.tokens, progress)
    table = TokenTable(*(norms if name == "parameter_norms" else getattr(table, name) for name in vars(table)))
    figures = {
        "tokens": len(table.probs),
        "tokens_with_gradient": int((table.quarter >= 0).sum()),
        "parameters": sum(parameter.numel() for parameter in parameters),
        "envelope": _envelope(table),
        "parameter_norm_over_miss": _quantiles(norms / table.misses[: len(norms)].clamp(min=1e-300)),
        "quarters": _quarter_facts(table),
        "shapings": {name: _effect(table, weights[name], updates[name]) for name in weights},
    }
    return figures, table


def _unequal_rollouts(
    tokenizer: Any, model: Any, data: Path, sampling: RolloutOptions, progress: Progress
) -> list[Rollout]:
    """Rollouts of which some have an advantage; from equal rewards every figure would be 0 and look like a measurement."""
    rollouts = sample_rollouts(tokenizer, model, data, sampling, progress)
    if not any(rollout.advantage for rollout in rollouts):
        raise ValueError(
            f"all {sampling.samples} responses to each of {sampling.prompts} prompts got equal rewards, so no token has a "
            "gradient; use more prompts or samples, or another checkpoint"
        )
    return rollouts


def _parts(name: str) -> tuple[str, ...]:
    """All pieces of a parameter's name between dots, longest runs included: what a user may call it by."""
    words = name.split(".")
    return tuple(".".join(words[i:j]) for i in range(len(words)) for j in range(i + 1, len(words) + 1))


def _chunks(rollouts: Sequence[Rollout], size: int = _ROWS) -> list[Sequence[Rollout]]:
    return [rollouts[i : i + size] for i in range(0, len(rollouts), size)]


@torch.no_grad()
def _closed_form(model: Any, rollouts: Sequence[Rollout], quarters: str, progress: Progress) -> TokenTable:
    """All tokens' probabilities and gradient norms at the logits; parameter norms stay empty."""
    parts, advantages = [], []
    chunks = _chunks(rollouts)
    for chunk in progress(chunks, len(chunks), "logits"):
        for rollout, logits in zip(chunk, response_logits(model, chunk), strict=True):
            parts.append([x.cpu() for x in logit_gradients(logits, rollout.response)])
            advantages += [rollout.advantage] * len(rollout.response)
    log_probs, misses, norms = (torch.cat(column) for column in zip(*parts, strict=True))
    given = torch.tensor(advantages, dtype=torch.float64)
    quarter = torch.full((len(given),), -1)
    # Quartiles by 1 - p, which tells probabilities apart that are all 1 in floating point.
    groups = quartiles(-misses[given != 0]) if quarters == "tokens" else probability_ranges(1 - misses[given != 0])
    quarter[given != 0] = groups
    return TokenTable(log_probs.exp(), misses, given, norms, torch.empty(0), quarter)


def _by_autograd(
    model: Any,
    rollouts: Sequence[Rollout],
    parameters: Sequence[torch.Tensor],
    table: TokenTable,
    weights: dict[str, torch.Tensor],
    most: int,
    progress: Progress,
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Gradient norms of the first tokens by the parameters; and for each shaping the (4, P) gradients of its quarters."""
    sets = torch.stack(
        [table.advantages * w * (table.quarter == q) for w in weights.values() for q in range(QUARTILES)]
    )
    sets = sets / len(table.probs)
    sums = torch.zeros(len(sets), sum(p.numel() for p in parameters), device=parameters[0].device)
    norms: list[torch.Tensor] = []
    done = 0
    chunks = _chunks(rollouts, 4)
    for chunk in progress(chunks, len(chunks), "gradients"):
        log_probs = torch.cat(list(_log_probs(model, chunk)))
        sums += weighted_gradients(log_probs, parameters, sets[:, done : done + len(log_probs)].to(sums))
        left = most - done
        if left > 0:
            norms.append(token_gradient_norms(log_probs[:left], parameters).double().cpu())
        done += len(log_probs)
    return torch.cat(norms), dict(zip(weights, sums.split(QUARTILES), strict=True))


def _log_probs(model: Any, rollouts: Sequence[Rollout]) -> Iterator[torch.Tensor]:
    for rollout, logits in zip(rollouts, response_logits(model, rollouts), strict=True):
        yield token_log_probs(logits, rollout.response)


def _envelope(table: TokenTable) -> dict[str, Any]:
    """Smallest and largest norm over 1 - p at the logits, and whether all tokens lie between 1 and sqrt(2)."""
    ratios = (table.logit_norms / table.misses)[table.misses > 0]
    low, high = ratios.min().item(), ratios.max().item()
    return {"lowest": low, "highest": high, "holds": low >= 1 - 1e-9 and high <= math.sqrt(2) * (1 + 1e-9)}


def _quantiles(values: torch.Tensor) -> dict[str, float]:
    at = torch.tensor([0.05, 0.5, 0.95], dtype=values.dtype)
    return dict(zip(("5%", "50%", "95%"), torch.quantile(values, at).tolist(), strict=True))


def _quarter_facts(table: TokenTable) -> list[dict[str, float]]:
    groups = [table.probs[table.quarter == q] for q in range(QUARTILES)]
    return [
        {"tokens": len(p), "lowest_p": p.min().item(), "highest_p": p.max().item()} if len(p) else {"tokens": 0}
        for p in groups
    ]


def _effect(table: TokenTable, weights: torch.Tensor, updates: torch.Tensor) -> dict[str, Any]:
    """What one shaping does: weights, shares and updates by quarter."""
    known = table.quarter >= 0
    measured = known[: len(table.parameter_norms)]
    n = len(measured)
    size = table.advantages.abs() * weights
    groups = table.quarter[known]
    counts = groups.bincount(minlength=QUARTILES).clamp(min=1)
    return {
        "mean_weight": weights[known].mean().item(),
        "weight": (torch.zeros(QUARTILES).double().index_add(0, groups, weights[known]) / counts).tolist(),
        "share_at_logits": shares((size * table.logit_norms)[known], groups).tolist(),
        "share_at_parameters": shares(
            (size[:n] * table.parameter_norms)[measured], table.quarter[:n][measured]
        ).tolist(),
        "update_norm": updates.norm(dim=-1).tolist(),
        "cosine": [[None if math.isnan(x) else x for x in row] for row in cosines(updates).tolist()],
    }


def analyze_sharpness(
    tokenizer: Any,
    model: Any,
    data: Path,
    sampling: RolloutOptions,
    relative_radii: Sequence[float],
    directions: int,
    progress: Progress,
    prompts_per_batch: int = 4,
) -> list[Sharpness]:
    """Sharpness of GRPO's surrogate, -1/N sum A pi / pi_0, around a checkpoint pi_0 on its own rollouts, for each radius.

    The same unweighted loss for every checkpoint, whatever it was trained with; a batch is ``prompts_per_batch`` groups.

    Raises:
        ValueError: when every group got equal rewards, so that the loss is 0 wherever one looks.
    """
    rollouts = _unequal_rollouts(tokenizer, model, data, sampling, progress)
    batches = []
    with torch.no_grad():
        for batch in _chunks(rollouts, prompts_per_batch * sampling.samples):
            batches.append((batch, torch.cat(list(_log_probs(model, batch)))))

    def surrogate(batch: tuple[Sequence[Rollout], torch.Tensor]) -> torch.Tensor:
        rows, old = batch
        log_probs = torch.cat(list(_log_probs(model, rows)))
        advantages = torch.cat([torch.full(row.response.shape, row.advantage).to(old) for row in rows])
        return -(advantages * torch.exp(log_probs - old)).mean()

    parameters = list(model.parameters())
    return [
        measure_sharpness(surrogate, batches, parameters, radius, directions, sampling.seed, progress)
        for radius in relative_radii
    ]
