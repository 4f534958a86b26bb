"""Measure gradients of single tokens' log-probabilities, at the logits in closed form and at parameters by batched autograd,
and the effect of token weights on them.

example, from a checkout:
  python -m studies.gradients.token_gradients --model runs/tr_grpo/global_step_350 --data train.parquet --out DIR \\
      --shaping sigmoid linear:alpha=0.3

--out receives gradients.json; README.md explains each figure. Exit code: 0 fine, 1 failed, or a token's gradient is outside its
theoretical bounds, 2 wrong input, 130 interrupted."""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import torch

from studies.gradients.tokens import parse_shaping, shaping_problems
from studies.rollouts import (
    Rollout,
    RolloutOptions,
    chunks,
    open_policy,
    rollout_log_probs,
    rollout_logits,
    sample_rollouts,
)
from verl_trgrpo.common.files import write_json
from verl_trgrpo.common.options import exit_code, parse_options
from verl_trgrpo.common.progress import Progress, interruptible
from verl_trgrpo.common.text import text_table
from verl_trgrpo.core import Shaping
from verl_trgrpo.runs.environment import provenance

QUARTERS = 4
UNIFORM = "uniform"

_MEMORY_BYTES = 256 * 2**20


@dataclass(frozen=True, kw_only=True)
class GradientOptions(RolloutOptions):
    """One measurement.

    Args:
        model: run directory, whose latest checkpoint is taken, one of its global_step_N, Hugging Face directory or hub name.
        out: directory for the results.
        shaping: NAME or NAME:PARAMETER=VALUE,...; sigmoid is TR-GRPO's.
        parameters: parameters to differentiate by, those with this in their names between dots, such as layers.3 or
            mlp.down_proj; all for all.
        tokens: at most so many get a backward pass of their own.
    """

    model: str
    out: Path
    shaping: tuple[str, ...] = ("sigmoid",)
    parameters: str = "all"
    tokens: Annotated[int, "[1, inf)"] = 2000

    def problems(self) -> list[str]:
        """Return what is wrong with the shapings."""
        return shaping_problems(self.shaping) or ([] if self.shaping else ["shaping is empty; give at least one"])

    @property
    def shapings(self) -> dict[str, Shaping]:
        """Return the shapings by the string that names them, after `UNIFORM`."""
        return {text: parse_shaping(text) for text in (UNIFORM, *self.shaping)}


class LogitGradients(NamedTuple):
    """The result of :func:`logit_gradients`; all (tokens,) float64.

    Args:
        log_probs: log p of the sampled tokens.
        one_minus_prob: 1 - p, exact also where p rounds to 1.
        norms: ||grad_z log p||, between 1 - p and sqrt(2) (1 - p).
    """

    log_probs: torch.Tensor
    one_minus_prob: torch.Tensor
    norms: torch.Tensor


def chosen_parameters(model: Any, name: str) -> list[torch.Tensor]:
    """Return the parameters that have `name` in theirs between dots, such as ``layers.3``, or all.

    Raises:
        ValueError: there are none.
    """
    named = list(model.named_parameters())
    parameters = [parameter for own, parameter in named if name == "all" or f".{name}." in f".{own}."]
    if not parameters:
        known = ", ".join(own for own, _ in named[:4])
        raise ValueError(f"no parameter has {name!r} between the dots of its name; the model has {known}, ...")
    return parameters


def analyze_gradients(
    model: Any, rollouts: Sequence[Rollout], options: GradientOptions, progress: Progress
) -> dict[str, Any]:
    """Measure the gradients of a model's own rollouts, before and after weighting.

    Returns:
        the figures as JSON types; README.md explains each.

    Raises:
        ValueError: no parameter has the name.
    """
    parameters = chosen_parameters(model, options.parameters)
    # Shuffled, so that the tokens that get a pass of their own come from all prompts; those without an advantage last, because
    # the shares leave them out.
    rollouts = sorted(
        random.Random(options.seed).sample(rollouts, len(rollouts)), key=lambda rollout: rollout.advantage == 0
    )
    advantages = torch.cat([torch.full(x.response.shape, x.advantage, dtype=torch.float64) for x in rollouts])
    at_logits = _closed_form(model, rollouts, progress)
    probs = at_logits.log_probs.exp()
    quarter = ((1 - at_logits.one_minus_prob) * QUARTERS).long().clamp(0, QUARTERS - 1)
    quarter = torch.where(advantages != 0, quarter, -1)  # a token without an advantage is in none
    weights = {name: shaping(probs.float()).double() for name, shaping in options.shapings.items()}
    # Coefficients of log p in the update of each quarter, for one shaping after another.
    sets = torch.stack([advantages * w * (quarter == q) for w in weights.values() for q in range(QUARTERS)])
    norms, updates = _by_autograd(model, rollouts, parameters, sets / len(probs), options.tokens, progress)
    ratios = (at_logits.norms / at_logits.one_minus_prob)[at_logits.one_minus_prob > 0]
    low, high = ratios.min().item(), ratios.max().item()
    at = torch.tensor([0.05, 0.5, 0.95], dtype=norms.dtype)
    spread = torch.quantile(norms / at_logits.one_minus_prob[: len(norms)].clamp(min=1e-300), at).tolist()
    groups = [probs[quarter == q] for q in range(QUARTERS)]
    return {
        "tokens": len(probs),
        "tokens_with_gradient": int((advantages != 0).sum()),
        "parameters": sum(parameter.numel() for parameter in parameters),
        "envelope": {
            "lowest": low,
            "highest": high,
            "holds": low >= 1 - 1e-9 and high <= math.sqrt(2) * (1 + 1e-9),
        },
        "parameter_norm_over_miss": dict(zip(("5%", "50%", "95%"), spread, strict=True)),
        "quarters": [
            {"tokens": len(p), "lowest_p": p.min().item(), "highest_p": p.max().item()} if len(p) else {"tokens": 0}
            for p in groups
        ],
        "shapings": {
            name: _effect(quarter, weights[name], advantages.abs() * weights[name], at_logits.norms, norms, of_quarters)
            for name, of_quarters in zip(weights, updates.split(QUARTERS), strict=True)
        },
    }


def _effect(
    quarter: torch.Tensor,
    weights: torch.Tensor,
    sizes: torch.Tensor,
    logit_norms: torch.Tensor,
    norms: torch.Tensor,
    updates: torch.Tensor,
) -> dict[str, Any]:
    """Return the effect of one shaping by quarter.

    Args:
        quarter: (tokens,) 0 to 3, or -1 for a token without an advantage.
        weights: (tokens,).
        sizes: (tokens,) |A| w.
        logit_norms: (tokens,) gradient norms at the logits.
        norms: gradient norms by parameters of the first tokens.
        updates: (4, parameters) parts of the policy gradient.
    """

    def sums(values: torch.Tensor) -> torch.Tensor:
        groups = quarter[: len(values)]
        return torch.bincount(groups[groups >= 0], values[groups >= 0], QUARTERS)

    def shares(values: torch.Tensor) -> list[float]:
        return (sums(values) / sums(values).sum().clamp(min=1e-300)).tolist()

    # In float64, of a part of the parameters at a time.
    products = sum(part @ part.T for part in (columns.double() for columns in updates.split(2**22, dim=-1)))
    lengths = products.diagonal().sqrt()
    cosines = (products / (lengths[:, None] * lengths)).clamp(-1, 1)
    return {
        "mean_weight": weights[quarter >= 0].mean().item(),
        "weight": (sums(weights) / sums(torch.ones_like(weights)).clamp(min=1)).tolist(),
        "share_at_logits": shares(sizes * logit_norms),
        "share_at_parameters": shares(sizes[: len(norms)] * norms),
        "update_norm": lengths.tolist(),
        "cosine": [[None if math.isnan(x) else x for x in row] for row in cosines.tolist()],
    }


@torch.no_grad()
def _closed_form(model: Any, rollouts: Sequence[Rollout], progress: Progress) -> LogitGradients:
    """Return all tokens' gradients at the logits, on the CPU."""
    pieces = chunks(rollouts, 16)
    found = [
        [column.cpu() for column in logit_gradients(logits, rollout.response)]
        for chunk in progress(pieces, len(pieces), "logits")
        for rollout, logits in zip(chunk, rollout_logits(model, chunk), strict=True)
    ]
    return LogitGradients(*map(torch.cat, zip(*found, strict=True)))


def _by_autograd(
    model: Any,
    rollouts: Sequence[Rollout],
    parameters: Sequence[torch.Tensor],
    sets: torch.Tensor,
    most: int,
    progress: Progress,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return gradient norms of the first `most` tokens, and the (sets, P) gradients of weighted sums over all tokens."""
    sums = torch.zeros(len(sets), sum(p.numel() for p in parameters), device=parameters[0].device)
    norms: list[torch.Tensor] = []
    done = 0
    # One at a time: a token's backward pass runs through all that shared its forward pass.
    for rollout in progress(rollouts, len(rollouts), "gradients"):
        log_probs = rollout_log_probs(model, [rollout], torch.float64)
        own = sets[:, done : done + len(log_probs)].to(sums)
        parts = sums.split([parameter.numel() for parameter in parameters], dim=-1)
        for part, gradient in zip(parts, weighted_gradients(log_probs, parameters, own), strict=True):
            part += gradient
        if done < most:
            norms.append(token_gradient_norms(log_probs[: most - done], parameters).double().cpu())
        done += len(log_probs)
    return torch.cat(norms), sums


@torch.no_grad()
def logit_gradients(logits: torch.Tensor, tokens: torch.Tensor) -> LogitGradients:
    """Compute the norm of the gradient of a sampled token's log-probability by the logits z that it was sampled from.

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
    one_minus_prob = others.sum(-1)
    return LogitGradients(log_probs, one_minus_prob, (one_minus_prob.square() + others.square().sum(-1)).sqrt())


def weighted_gradients(
    log_probs: torch.Tensor, parameters: Sequence[torch.Tensor], coefficients: torch.Tensor
) -> list[torch.Tensor]:
    """Compute gradients of sums over tokens, coefficient times log-probability, for several sets of coefficients.

    One forward pass serves all of them: the backward passes are batched (``vmap`` over vector-Jacobian products).
    Per-sample gradients by ``vmap(grad)`` would run the forward pass of the whole prefix again for every token.

    Args:
        log_probs: (tokens,) connected to the parameters; its graph is kept.
        parameters: of p values each.
        coefficients: (sets, tokens).

    Returns:
        (sets, p) flattened gradients for each of the parameters; 0 for those without influence.
    """
    coefficients = coefficients.to(log_probs)
    gradients = torch.autograd.grad(
        log_probs, parameters, coefficients, retain_graph=True, allow_unused=True, is_grads_batched=True
    )
    return [
        parameter.new_zeros(len(coefficients), parameter.numel()) if gradient is None else gradient.flatten(1)
        for gradient, parameter in zip(gradients, parameters, strict=True)
    ]


def token_gradient_norms(
    log_probs: torch.Tensor, parameters: Sequence[torch.Tensor], memory_bytes: int = _MEMORY_BYTES
) -> torch.Tensor:
    """Return norms, (tokens,) without graph, of the gradient of each token's log-probability by all parameters together.

    `log_probs` (tokens,) keep their graph. The gradients of tokens handled together take about `memory_bytes`.
    """
    unit = torch.eye(len(log_probs), dtype=log_probs.dtype, device=log_probs.device)
    together = max(1, memory_bytes // sum(parameter.numel() * parameter.element_size() for parameter in parameters))
    norms = [
        torch.stack([gradient.norm(dim=-1) for gradient in weighted_gradients(log_probs, parameters, rows)]).norm(dim=0)
        for rows in unit.split(together)
    ]
    return torch.cat(norms)


_HEAD = (
    "p of the quarter's tokens", "tokens", "weight", "share: logits", "parameters", "update norm", "cosine with 4th",
)  # fmt: skip


def gradient_text(figures: Mapping[str, Any]) -> str:
    """Return tables of the figures of :func:`analyze_gradients`."""
    envelope, ratio = figures["envelope"], figures["parameter_norm_over_miss"]
    verdict = "all tokens are within" if envelope["holds"] else "NOT all tokens are within"
    lines = [
        f"{figures['tokens']:,} tokens, {figures['tokens_with_gradient']:,} with an advantage other than 0",
        f"gradient norm of log p at the logits: {envelope['lowest']:.4f} to {envelope['highest']:.4f} times (1 - p); "
        f"{verdict} 1 to sqrt(2)",
        f"by {figures['parameters']:,} parameters: {ratio['5%']:.3g} | {ratio['50%']:.3g} | {ratio['95%']:.3g} times (1 - p) "
        "(5 %, median, 95 % of the tokens)",
    ]
    for name, effect in figures["shapings"].items():
        columns = [effect[name] for name in ("weight", "share_at_logits", "share_at_parameters")]
        cosines = [row[-1] for row in effect["cosine"]]
        rows = [
            [
                f"{facts['lowest_p']:.4f} to {facts['highest_p']:.4f}" if facts["tokens"] else "none",
                f"{facts['tokens']:,}",
                *(f"{column[q]:.4f}" for column in columns),
                f"{effect['update_norm'][q]:.3g}",
                "-" if cosines[q] is None else f"{cosines[q]:.3f}",
            ]
            for q, facts in enumerate(figures["quarters"])
        ]
        about = "before weighting" if name == UNIFORM else f"mean weight {effect['mean_weight']:.4f}"
        lines += ["", f"{name}: {about}", text_table(rows, _HEAD, "r" * len(_HEAD))]
    return "\n".join(lines)


def main(argv: Sequence[str]) -> int:
    """Run the command line and return the exit code."""
    options = parse_options(GradientOptions, "python -m studies.gradients.token_gradients", argv=argv)
    path = options.out / "gradients.json"
    with interruptible() as progress:
        prompts, model = open_policy(options, options.model, options.out)
        chosen_parameters(model, options.parameters)  # reports a wrong name before the work
        rollouts = sample_rollouts(prompts, model, options, progress)
        figures = analyze_gradients(model, rollouts, options, progress)
    write_json(path, {"options": asdict(options)} | provenance(Path(__file__).parent) | figures, default=str)
    sys.stdout.write(f"{gradient_text(figures)}\n\n{path}\n")
    return int(not figures["envelope"]["holds"])


if __name__ == "__main__":
    sys.exit(exit_code(partial(main, sys.argv[1:])))
