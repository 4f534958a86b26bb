"""Load a checkpoint, and sample rollouts with group-relative advantages, with plain transformers.

What several responses have in common is computed once: a prompt for its whole group, and a beginning for all that share it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

import torch
from omegaconf import DictConfig, OmegaConf
from torch.nn.functional import pad
from transformers import DynamicCache

from verl_trgrpo.common.options import Options
from verl_trgrpo.common.progress import Progress
from verl_trgrpo.common.text import first_line
from verl_trgrpo.core import group_relative_advantages
from verl_trgrpo.data.prompts import RolloutPrompts, context_of, prompt_settings
from verl_trgrpo.data.rows import SINGLE_TURN, Row
from verl_trgrpo.evaluation.checkpoint import config_of_run, find_model, merged_model
from verl_trgrpo.evaluation.evaluate import load_evaluable_rows
from verl_trgrpo.tasks import compute_score
from verl_trgrpo.tasks.reward_input import reward_input
from verl_trgrpo.verl_plugin.cpu.attention import GROUPED

# A step takes about as long for 64 responses as for 8: what takes time is reading the weights.
_RESPONSES_AT_ONCE = 64

Item = TypeVar("Item")


@dataclass(frozen=True, kw_only=True)
class RolloutOptions(Options):
    """What is sampled.

    Args:
        data: prompts (.parquet, .json, .jsonl); for a run's checkpoint with the run's options of the chat template.
        device: cpu, cuda, cuda:1, ...
        prompts: number of prompts, drawn from the file with the seed.
        samples: responses to each, sampled at temperature 1; at least 2, since advantages compare them.
        max_tokens: longest response.
        seed: of prompts, sampling and intervals.
    """

    data: Path
    device: str = "cpu"
    prompts: Annotated[int, "[1, inf)"] = 16
    samples: Annotated[int, "[2, inf)"] = 8
    max_tokens: Annotated[int, "[1, inf)"] = 512
    seed: int = 0


class Batch(NamedTuple):
    """Responses and what is known of them; B responses, prompts padded on the left to P, responses on the right to R."""

    prompts: torch.Tensor  # (B, P) token ids
    prompt_mask: torch.Tensor  # (B, P) True at tokens
    responses: torch.Tensor  # (B, R) token ids
    mask: torch.Tensor  # (B, R) True at sampled tokens, the end-of-sequence token included
    log_probs: torch.Tensor  # (B, R) log-probability when sampled
    entropies: torch.Tensor  # (B, R) of the distribution sampled from, nats


class Prompts(NamedTuple):
    """Prompts that the model has read; G of them, padded on the left to P."""

    mask: torch.Tensor  # (G, P) True at tokens
    logits: torch.Tensor  # (G, 1, V) of a response's first token; V: vocabulary
    cache: DynamicCache


def end_tokens(model: Any) -> list[int]:
    """Return the tokens that end a response. Raises a ValueError if the model has none."""
    ids = model.generation_config.eos_token_id  # one, or several: instruction-tuned models often have two
    if ids is None:
        raise ValueError(f"{model.name_or_path} has no end token; set eos_token_id in its generation_config.json")
    return ids if isinstance(ids, list) else [ids]


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
    cache = DynamicCache()
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


class Rollout(NamedTuple):
    """One response: ids of its prompt (P,) and of its own tokens (T,), and its advantage."""

    prompt: torch.Tensor
    response: torch.Tensor
    advantage: float


def open_policy(options: RolloutOptions, model: str, out: Path) -> tuple[RolloutPrompts, Any]:
    """Find a model, merge its checkpoint if it is sharded, and load it as `load_policy` does; `out` is created.

    Raises:
        ValueError: model, device or data file do not exist, or `out` is a file.
        RuntimeError: a sharded checkpoint cannot be merged.
    """
    place = find_model(model)
    if out.is_file():
        raise ValueError(f"out={out} is a file; give a directory")
    if not options.data.is_file():
        raise ValueError(f"data={options.data} does not exist; give a data file with prompts")
    out.mkdir(parents=True, exist_ok=True)
    return load_policy(merged_model(place, out), options.device, config_of_run(model))


def load_policy(path: str | Path, device: str, config: DictConfig | None = None) -> tuple[RolloutPrompts, Any]:
    """Load a Hugging Face directory: what makes token ids of prompts, and the model, in float32, without dropout.

    The `config` is that of the run that made the model, whose settings decide its prompts; None for the tokenizer's own template.

    Raises:
        ValueError: the device does not exist, or tokenizer or model cannot be loaded, or it has no end token.
    """
    from transformers import AutoModelForCausalLM, GenerationConfig

    prompts = RolloutPrompts(prompt_settings(config or OmegaConf.create(), str(path)))
    context_of(str(path))  # opens config.json within limits, before the library does
    tokenizer = prompts.tokenizer
    try:
        # Fused attention kernels have no rule for batched backward passes.
        model = AutoModelForCausalLM.from_pretrained(
            path, dtype=torch.float32, attn_implementation=GROUPED, trust_remote_code=False
        )
        # transformers wraps `to` in a way that its annotation does not survive.
        model = model.to(device).eval()  # type: ignore[arg-type]
    except (OSError, ValueError, RuntimeError, AssertionError) as error:
        raise ValueError(f"cannot load {path} on device {device!r}: {first_line(error)}") from error
    ends = model.generation_config.eos_token_id if model.generation_config else None
    if ends is None and not (ends := [*tokenizer.end_tokens]):
        raise ValueError(f"{path} has no end token, so responses would not end; set eos_token_id in its config.json")
    model.generation_config = GenerationConfig(eos_token_id=ends)
    if model._is_stateful:
        raise ValueError(
            f"{path} has a recurrent state; only models whose layers all have keys and values can be analysed"
        )
    return prompts, model


def sample_rollouts(
    prompts: RolloutPrompts, model: Any, options: RolloutOptions, progress: Progress, differing: bool = True
) -> list[Rollout]:
    """Sample responses to prompts of a data file, score them, and compare them within their groups.

    Returns:
        prompts times samples rollouts, group after group.

    Raises:
        ValueError: the file cannot be read, rows cannot be scored or need searches, or, unless `differing` is false, rewards are
            equal in every group: every figure of a gradient would be 0 and look like a measurement.
    """
    (rows,) = load_evaluable_rows([options.data], options.prompts, options.seed, default_agent=prompts.default_agent)
    if agents := {row.agent_name for row in rows} - {SINGLE_TURN}:
        raise ValueError(
            f"{options.data}: rows have agent_name={', '.join(sorted(agents))}, and here responses have one turn; give rows of "
            f"{SINGLE_TURN}, or measure accuracy with verl-trgrpo eval"
        )
    rollouts: list[Rollout] = []
    parts = chunks(rows, max(1, _RESPONSES_AT_ONCE // options.samples))
    sizes: dict[str, Any] = {"ends": end_tokens(model), "max_tokens": options.max_tokens}
    for number, part in enumerate(progress(parts, len(parts), "sampling")):
        begun = [
            found.token_ids
            for found in prompts.of({"prompt": row.messages, "agent_name": row.agent_name} for row in part)
        ]
        batch = sample(model, begun, options.samples, seed=f"rollouts/{options.seed}/{number}", **sizes)
        said = [ids[keep] for ids, keep in zip(batch.responses, batch.mask, strict=True)]
        for row, start, group in zip(part, begun, chunks(said, options.samples), strict=True):
            rollouts += _group(row, torch.tensor(start, device=model.device), group, prompts)
    if differing and not any(rollout.advantage for rollout in rollouts):
        raise ValueError(
            f"{model.name_or_path}: all {options.samples} responses to each of {len(rows)} prompts got "
            "equal rewards, so no token has a gradient; use more prompts or samples, or another checkpoint, or view them with "
            "studies.gradients.tokens"
        )
    return rollouts


def _group(row: Row, start: torch.Tensor, responses: Sequence[torch.Tensor], prompts: RolloutPrompts) -> list[Rollout]:
    """Score the responses to one prompt, and compare them."""
    texts = [prompts.tokenizer.decode(ids.tolist(), skip_special_tokens=True) for ids in responses]
    extra_info = reward_input(row.extra_info, row.messages, thinking_opened=prompts.thinking_opened)
    rewards = [compute_score(row.data_source, text, row.ground_truth, extra_info)["score"] for text in texts]
    given = torch.tensor(rewards)[:, None]
    advantages = group_relative_advantages(given, torch.ones_like(given), [0] * len(rewards))[:, 0].tolist()
    return [Rollout(start, *pair) for pair in zip(responses, advantages, strict=True)]


def rollout_logits(model: Any, rollouts: Sequence[Rollout]) -> list[torch.Tensor]:
    """Return the logits that each token of the responses was sampled from.

    Several responses to one prompt share its pass, which is most of the work where prompts are longer than responses.

    Returns:
        (T, vocabulary) for each rollout, with gradient where it is enabled.
    """
    different = {tuple(rollout.prompt.tolist()): None for rollout in rollouts}
    place = {prompt: number for number, prompt in enumerate(different)}
    prompts = read_prompts(model, *left_padded([*different], 0, model.device))
    places = torch.tensor([place[tuple(rollout.prompt.tolist())] for rollout in rollouts], device=model.device)
    tokens = torch.nn.utils.rnn.pad_sequence([rollout.response for rollout in rollouts], batch_first=True)
    lengths = torch.tensor([len(rollout.response) for rollout in rollouts], device=model.device)
    mask = torch.arange(tokens.shape[1], device=model.device) < lengths[:, None]
    logits = torch.cat(response_logits(model, prompts, places, tokens, mask), 1)
    return [row[: len(rollout.response)] for row, rollout in zip(logits, rollouts, strict=True)]


def rollout_log_probs(model: Any, rollouts: Sequence[Rollout], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return the log-probabilities of all tokens of the responses, one after another: (tokens,), with gradient.

    Their gradients by the logits, too, are of `dtype`: they are lost where 1 - p is below its precision, 1e-7 in float32.
    """
    return torch.cat(
        [
            torch.log_softmax(logits, dim=-1, dtype=dtype).gather(-1, rollout.response[:, None])[:, 0]
            for rollout, logits in zip(rollouts, rollout_logits(model, rollouts), strict=True)
        ]
    )


def chunks(items: Sequence[Item], size: int) -> list[Sequence[Item]]:
    """Return `items` in pieces of `size`."""
    return [items[i : i + size] for i in range(0, len(items), size)]
