"""Measure the efficiency of weighted gradients of a model on a task, before any training."""

from __future__ import annotations

import hashlib
import json
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from studies.gradients.directions import directions, inner_products
from verl_trgrpo.analysis.engine import half_precision
from verl_trgrpo.analysis.gradients import chosen_parameters
from verl_trgrpo.analysis.options import UNIFORM, RolloutOptions, parse_shaping, shaping_problems
from verl_trgrpo.analysis.rollouts import (
    Rollout,
    chunks,
    load_prompts,
    rollout_log_probs,
    rollout_logits,
    sample_responses,
)
from verl_trgrpo.common.files import file_sha256, replaced_file, write_text
from verl_trgrpo.common.findings import range_errors
from verl_trgrpo.common.progress import Progress, no_progress
from verl_trgrpo.common.text import text_table
from verl_trgrpo.core import Tokens
from verl_trgrpo.core.metrics import LOW_PROB

if TYPE_CHECKING:
    from verl_trgrpo.core import Shaping
    from verl_trgrpo.data.prompts import RolloutPrompts

PROMPTS_PER_BATCH = 4
# At most: responses in one forward and backward pass, of one group where groups are small, and coordinates whose inner products
# are computed together.
_RESPONSES_AT_ONCE = 8
_COORDINATES_AT_ONCE = 2**15


@dataclass(frozen=True, kw_only=True)
class EfficiencyOptions(RolloutOptions):
    """One measurement of efficiencies.

    Args:
        model: veRL checkpoint, Hugging Face directory or hub name.
        out: directory for the results.
        shaping: NAME or NAME:PARAMETER=VALUE,...; of every input of the registry.
        parameters: parameters to differentiate by, those with this in their names between dots, or all.
        batches: mini-batches of four prompts. With a larger number, a finished measurement goes on.
        coordinates: parameters, drawn at random, for the inner products; norms are of all.
        bf16: compute in bfloat16, over weights and gradients in float32.
    """

    model: str
    out: Path
    shaping: tuple[str, ...] = ("sigmoid",)
    parameters: str = "all"
    batches: int = 50
    coordinates: int = 1_000_000
    bf16: bool = False

    def problems(self) -> list[str]:
        """Return all that is wrong."""
        found = range_errors(vars(self), {"batches": "[4, inf)", "coordinates": "[1, inf)"})
        return super().problems() + found + shaping_problems(self.shaping, probs_only=False)

    @property
    def shapings(self) -> dict[str, Shaping]:
        """Return the shapings by the string that names them, after equal weights."""
        return {text: parse_shaping(text, probs_only=False) for text in (UNIFORM, *self.shaping)}


class GradientStore:
    """Keep sampled coordinates of gradients in a file, and what else is known of each mini-batch in another, to go on later.

    Args:
        directory: for ``gradients.bin``, (mini-batches, shapings, coordinates) float32, and ``mini_batches.jsonl``.
        settings: what the gradients depend on.
        shape: of the gradients of a mini-batch.

    Raises:
        ValueError: the directory has gradients of other settings.
    """

    def __init__(self, directory: Path, settings: Mapping[str, Any], shape: tuple[int, int]) -> None:
        self._log, self._gradients, self._shape = directory / "mini_batches.jsonl", directory / "gradients.bin", shape
        lines = self._log.read_text().splitlines() if self._log.is_file() and self._gradients.is_file() else []
        head = json.loads(json.dumps(settings, default=str))
        if lines and json.loads(lines[0]) != head:
            raise ValueError(f"{directory} has gradients of other settings; delete it, or give another --out")
        self._lines = lines or [json.dumps(head)]
        directory.mkdir(parents=True, exist_ok=True)
        if not lines:
            self._gradients.write_bytes(b"")

    @property
    def found(self) -> list[dict[str, Any]]:
        """Return what is known of the finished mini-batches."""
        return [json.loads(line) for line in self._lines[1:]]

    def add(self, gradients: torch.Tensor, known: Mapping[str, Any]) -> None:
        """Append a mini-batch: its gradients (shapings, coordinates), and what else is known."""
        with self._gradients.open("r+b") as file:  # over what an interrupted mini-batch may have left
            file.seek((len(self._lines) - 1) * 4 * math.prod(self._shape))
            file.write(gradients.float().cpu().numpy().tobytes())
        self._lines.append(json.dumps(known))
        write_text(self._log, "\n".join(self._lines) + "\n")

    def parts(self, batches: int) -> Iterator[torch.Tensor]:
        """Yield the gradients of the first mini-batches, a part of the coordinates at a time."""
        import numpy

        stored = numpy.memmap(self._gradients, "float32", "r", shape=(batches, *self._shape))
        for begin in range(0, self._shape[-1], _COORDINATES_AT_ONCE):
            yield torch.from_numpy(stored[..., begin : begin + _COORDINATES_AT_ONCE].copy())


def analyze_efficiency(
    prompts: RolloutPrompts, model: Any, options: EfficiencyOptions, progress: Progress
) -> dict[str, Any]:
    """Measure the efficiency of each shaping's direction relative to equal weights, on rollouts of the model.

    Returns:
        the figures as JSON types; README.md explains each.

    Raises:
        ValueError: the data or a parameter's name are wrong, the data have too few prompts for so many mini-batches, the
            directory has gradients of other settings, weights or data, or rewards are equal in every group of so many
            mini-batches that fewer than four have a gradient.
    """
    parameters = chosen_parameters(model, options.parameters)
    shapings = options.shapings
    total = sum(parameter.numel() for parameter in parameters)
    count = min(options.coordinates, total)
    rows = load_prompts(options, None, prompts.default_agent)
    if PROMPTS_PER_BATCH * options.batches > len(rows):
        raise ValueError(
            f"batches={options.batches}: mini-batches of {PROMPTS_PER_BATCH} prompts must not share any, and {options.data} has "
            f"{len(rows)}; set it to at most {len(rows) // PROMPTS_PER_BATCH}, or give more data"
        )
    rows = random.Random(f"efficiency/{options.seed}").sample(rows, len(rows))
    names = ("model", "data", "device", "samples", "max_tokens", "seed", "shaping", "parameters", "bf16")
    settings = {name: getattr(options, name) for name in names} | {"coordinates": count}
    chosen = _chosen_coordinates(parameters, count, options.seed)
    settings |= {"weights_sha256": _digest(parameters, chosen), "data_sha256": file_sha256(options.data)}
    store = GradientStore(options.out / "gradients", settings, (len(shapings), count))
    done = len(store.found)
    for number in progress(range(done, options.batches), max(0, options.batches - done), "mini-batches"):
        part = rows[number * PROMPTS_PER_BATCH : (number + 1) * PROMPTS_PER_BATCH]
        seed = f"efficiency/{options.seed}/{number}"
        with half_precision(model.device, options.bf16):
            rollouts = sample_responses(prompts, model, part, options, seed, no_progress)
            coefficients, known = weigh_tokens(model, rollouts, options.samples, shapings)
        gradients = _gradients(model, parameters, rollouts, options.samples, coefficients, options.bf16)
        norms = [
            sum(torch.linalg.vector_norm(part, dtype=torch.float64).item() ** 2 for part in gradient)
            for gradient in gradients
        ]
        sampled = torch.stack([
            torch.cat([part.flatten()[some] for part, some in zip(gradient, chosen, strict=True)]) for gradient in gradients
        ])  # fmt: skip
        store.add(sampled, known | {"squared_norms": norms})
    found = store.found[: options.batches]
    squares = torch.tensor([one["squared_norms"] for one in found], dtype=torch.float64)
    if (squares[:, 0] > 0).sum() < 4:
        raise ValueError(
            f"{model.name_or_path}: rewards are equal in every group of all but {int((squares[:, 0] > 0).sum())} of "
            f"{len(found)} mini-batches, so there are no gradients to compare; use more samples, or another checkpoint"
        )
    measured = directions(inner_products(store.parts(len(found))), squares, total / count)
    figures = _summary(found, [*shapings]) | {"parameters": total, "coordinates": count}
    for name, direction in zip(shapings, measured, strict=True):
        figures["shapings"][name] |= direction.figures()
    return figures | {"advice": advice(figures["shapings"])}


def _chosen_coordinates(parameters: Sequence[torch.Tensor], count: int, seed: int) -> list[torch.Tensor]:
    """Return a random sample of all coordinates as indices into each flattened parameter."""
    import numpy

    total = sum(parameter.numel() for parameter in parameters)
    drawn = numpy.random.default_rng(seed).choice(total, count, replace=False, shuffle=False)
    drawn.sort()
    found, begin = [], 0
    for parameter in parameters:
        end = begin + parameter.numel()
        own = drawn[numpy.searchsorted(drawn, begin) : numpy.searchsorted(drawn, end)] - begin
        found.append(torch.from_numpy(own).to(parameter.device))
        begin = end
    return found


@torch.no_grad()
def _digest(parameters: Sequence[torch.Tensor], chosen: Sequence[torch.Tensor]) -> str:
    """Return the SHA-256 of the chosen coordinates' values, by which other weights at the same place are found out."""
    digest = hashlib.sha256()
    for parameter, some in zip(parameters, chosen, strict=True):
        digest.update(parameter.flatten()[some].float().cpu().numpy().tobytes())
    return digest.hexdigest()


@torch.no_grad()
def weigh_tokens(
    model: Any, rollouts: Sequence[Rollout], samples: int, shapings: Mapping[str, Shaping]
) -> tuple[torch.Tensor, dict[str, Any]]:
    """Return the factors of tokens' log-probabilities in each shaping's policy gradient, and sums over tokens.

    The old and the reference policy are the model itself. Responses with A > 0 count as right, which is so where a group of
    `samples` has right ones and wrong ones.

    Returns:
        (shapings, responses, longest response), w A / N with the mini-batch's N tokens, 0 behind the end of a response; and
        the number of tokens with an advantage and of rare ones among them, the sum of the proxy |A| (1 - p) of both, and
        each shaping's sum of weights over tokens with an advantage.
    """
    columns: list[tuple[torch.Tensor, torch.Tensor]] = []
    for some in chunks(rollouts, min(samples, _RESPONSES_AT_ONCE)):
        for rollout, logits in zip(some, rollout_logits(model, some), strict=True):
            log_q = torch.log_softmax(logits.float(), dim=-1)
            columns.append((log_q.gather(-1, rollout.response[:, None])[:, 0], torch.special.entr(log_q.exp()).sum(-1)))
    log_prob, entropy = (
        torch.nn.utils.rnn.pad_sequence([*column], batch_first=True) for column in zip(*columns, strict=True)
    )
    lengths = torch.tensor([len(rollout.response) for rollout in rollouts], device=log_prob.device)
    mask = torch.arange(log_prob.shape[1], device=log_prob.device) < lengths[:, None]
    given = torch.tensor([rollout.advantage for rollout in rollouts], device=log_prob.device)
    advantages = given[:, None].expand_as(log_prob) * mask
    right = (given > 0).float().view(-1, samples).mean(-1).repeat_interleave(samples)
    tokens = Tokens.of_batch(
        log_prob,
        old_log_prob=log_prob,
        advantages=advantages,
        response_mask=mask,
        entropy=entropy,
        ref_log_prob=log_prob,
        success_rate=right[:, None].expand_as(log_prob),
    )
    weights = torch.stack([shaping.weigh(tokens) for shaping in shapings.values()])
    active = advantages != 0
    rare, proxy = active & (tokens.probs < LOW_PROB), advantages.abs() * (1 - tokens.probs)
    known = {
        "tokens": int(active.sum()),
        "rare": int(rare.sum()),
        "proxy": float(proxy.sum()),
        "rare_proxy": float(proxy[rare].sum()),
        "weights": (weights * active).sum((-1, -2)).tolist(),
    }
    return weights * advantages / mask.sum(), known


def _gradients(
    model: Any,
    parameters: Sequence[torch.Tensor],
    rollouts: Sequence[Rollout],
    samples: int,
    coefficients: torch.Tensor,
    bf16: bool,
) -> list[list[torch.Tensor]]:
    """Return, for each shaping, the gradient of the sum of coefficients times log-probabilities by each parameter."""
    sums = [[torch.zeros_like(parameter) for parameter in parameters] for _ in coefficients]
    active = [(rollout, place) for place, rollout in enumerate(rollouts) if rollout.advantage]
    for some in chunks(active, min(samples, _RESPONSES_AT_ONCE)):
        chosen, places = [rollout for rollout, _ in some], [place for _, place in some]
        with half_precision(model.device, bf16):
            log_probs = rollout_log_probs(model, chosen).split([len(rollout.response) for rollout in chosen])
        padded = torch.nn.utils.rnn.pad_sequence([*log_probs], batch_first=True)
        for number, (total, factors) in enumerate(zip(sums, coefficients[:, places, : padded.shape[1]], strict=True)):
            last = number == len(sums) - 1
            gradient = torch.autograd.grad(padded, parameters, factors, retain_graph=not last, allow_unused=True)
            for place, part in zip(total, gradient, strict=True):
                if part is not None:
                    place += part
    return sums


def _summary(found: Sequence[Mapping[str, Any]], names: Sequence[str]) -> dict[str, Any]:
    sums = {name: sum(one[name] for one in found) for name in ("tokens", "rare", "proxy", "rare_proxy")}
    weights = torch.tensor([one["weights"] for one in found], dtype=torch.float64).sum(0) / sums["tokens"]
    return {
        "mini_batches": len(found),
        "tokens": sums["tokens"],
        "rare_tokens": sums["rare"] / sums["tokens"],
        "rare_share": sums["rare_proxy"] / sums["proxy"],
        "shapings": {name: {"mean_weight": weight} for name, weight in zip(names, weights.tolist(), strict=True)},
    }


def advice(shapings: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a sentence about each shaping but the first, which is of equal weights: should it be switched on?"""
    first, *others = shapings
    signal = shapings[first]["adam_signal"]
    if signal["low"] is None or signal["low"] <= 0:
        return "GRPO's own direction cannot be told from noise, so efficiencies mean little: measure more mini-batches."
    sentences = []
    for name in others:
        after_adam = shapings[name]["adam_efficiency"]
        if after_adam["low"] is None:
            verdict = "equal"
        elif after_adam["low"] > 1:
            verdict = "it may help"
        elif after_adam["high"] < 1:
            verdict = "leave it off"
        else:
            verdict = "no difference is visible"
        sentences.append(
            f"With Adam, {name}'s direction is {_plus_minus(after_adam)} as efficient as GRPO's: {verdict}."
        )
    return " ".join(sentences)


def _plus_minus(figure: Mapping[str, Any]) -> str:
    """Return a figure with half the length of its 95 % interval."""
    if figure["low"] is None:
        return f"{figure['mean']:.3f}"
    return f"{figure['mean']:.3f} +- {(figure['high'] - figure['low']) / 2:.3f}"


def efficiency_text(figures: Mapping[str, Any]) -> str:
    """Return the table of the figures of `analyze_efficiency`, and the advice."""
    head = ("", "mean weight", "efficiency", "after Adam", "cosine", "angle", "signal", "noise")
    rows = [
        [
            name,
            f"{one['mean_weight']:.3f}",
            *(_plus_minus(one[figure]) for figure in ("efficiency", "adam_efficiency", "cosine")),
            f"{one['angle']:.1f}",
            f"{one['signal']['mean']:.2e}",
            f"{one['noise']:.2e}",
        ]
        for name, one in figures["shapings"].items()
    ]
    return "\n".join([
        f"{figures['mini_batches']} mini-batches, {figures['tokens']:,} tokens with an advantage; "
        f"{figures['rare_tokens']:.1%} have p < {LOW_PROB} and {figures['rare_share']:.1%} of |A| (1 - p)",
        text_table(rows, head, "l" + "r" * (len(head) - 1)),
        "+-: half of the 95 % interval over mini-batches",
        figures["advice"],
    ])  # fmt: skip


def plot_efficiency(figures: Mapping[str, Any], path: Path, title: str) -> None:
    """Draw the efficiencies with their intervals into a PNG file."""
    from matplotlib.figure import Figure  # not pyplot, which would keep it alive

    names = [*figures["shapings"]]
    figure = Figure(figsize=(8, 1.5 + 0.5 * len(names)), layout="constrained")
    axis = figure.subplots()
    for shift, (key, label) in ((-0.1, ("efficiency", "gradient")), (0.1, ("adam_efficiency", "after Adam's scaling"))):
        found = [figures["shapings"][name][key] for name in names]
        means = [one["mean"] for one in found]
        bars = [[one["mean"] - (one["mean"] if one["low"] is None else one["low"]) for one in found],
                [(one["mean"] if one["high"] is None else one["high"]) - one["mean"] for one in found]]  # fmt: skip
        axis.errorbar(means, [place + shift for place in range(len(names))], xerr=bars, fmt="o", capsize=3, label=label)
    axis.axvline(1, color="0.6", linewidth=1)
    axis.set_yticks(range(len(names)), names)
    axis.set(xlabel="efficiency of the direction relative to GRPO's", title=title)
    axis.invert_yaxis()
    axis.legend(fontsize="small")
    with replaced_file(path) as temporary:
        figure.savefig(temporary, dpi=110, format="png")
