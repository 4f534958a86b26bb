"""Ask transformers and torch what a model needs: parameters by layer, bytes of activations for each token, cache.

The model is built on the device ``meta`` and one of its layers runs under ``FakeTensorMode``: shapes without memory.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch

# Tokens of a layer that runs with shapes alone: so many that its weights' gradients are small beside the activations.
_TOKENS = 8192
# Largest figures of a configuration that are believed: modules are made for each layer and expert.
_MOST = {"num_hidden_layers": 512, "num_experts": 1024, "n_routed_experts": 1024, "num_local_experts": 1024}
_MOST_OTHERS = 10**8


class UnknownModelError(ValueError):
    """Report a model whose memory cannot be computed, with the reason."""


@dataclass(frozen=True)
class ModelShape:
    """What a model needs.

    Args:
        parameters: all of them; a tied output layer counts once.
        root: those outside of the layers: embedding, output layer, last norm.
        layer: those of the largest layer.
        layers: number of layers.
        hidden: width.
        vocabulary: words.
        largest: elements of the largest tensor.
        tied: embedding and output layer are one tensor.
        positions: tokens of the longest sequence that it knows.
        cache: bytes of keys and values for each token, in 16 bits.
        inside: bytes for each token that a layer needs at most, forward and backward, beside its input.
        saved: bytes for each token that a layer keeps for its backward pass.
        forward: bytes for each token that a layer needs at most without a gradient.
        adapter: parameters of LoRA adapters, 0 without.
    """

    parameters: int
    root: int
    layer: int
    layers: int
    hidden: int
    vocabulary: int
    largest: int
    tied: bool
    positions: int
    cache: float
    inside: float
    saved: float
    forward: float
    adapter: int


def model_shape(config: Mapping[str, Any], lora: Mapping[str, Any] | None = None) -> ModelShape:
    """Return what a model needs, by the content of its ``config.json``.

    Args:
        config: content of the file.
        lora: arguments of PEFT's ``LoraConfig``; None without adapters.

    Raises:
        UnknownModelError: transformers or torch do not know the model, or it also sees or hears.
    """
    if any(key in config for key in ("vision_config", "audio_config", "text_config")):
        raise UnknownModelError("the model also sees or hears, and what its other towers need is not computed")
    if "auto_map" in config:
        raise UnknownModelError("the model brings Python code of its own, which is not run here")
    for key, value in config.items():
        if isinstance(value, int) and value > _MOST.get(key, _MOST_OTHERS):
            raise UnknownModelError(f"{key}={value} of its config.json is not a model's")
    try:
        with warnings.catch_warnings(), _quiet():
            warnings.simplefilter("ignore")
            return _asked(config, lora)
    except UnknownModelError:
        raise
    except Exception as error:  # whatever transformers and torch raise for a shape that they do not know
        raise UnknownModelError(
            f"transformers and torch cannot build the model of its config.json ({error})"
        ) from error


class _quiet:  # noqa: N801  # a context
    """Silences what transformers says about a configuration."""

    def __enter__(self) -> None:
        logging.disable(logging.WARNING)

    def __exit__(self, *_: object) -> None:
        logging.disable(logging.NOTSET)


def _with_adapters(model: Any, lora: Mapping[str, Any] | None) -> Any:
    """Give a model its adapters, in place, as veRL does; return the model."""
    if lora:
        from peft import LoraConfig, get_peft_model

        get_peft_model(model, LoraConfig(**lora), autocast_adapter_dtype=False)
    return model


def _asked(config: Mapping[str, Any], lora: Mapping[str, Any] | None) -> ModelShape:
    from transformers import AutoConfig, AutoModelForCausalLM

    known = AutoConfig.for_model(**{**config, "use_cache": False})
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(known, dtype=torch.bfloat16)
    layers = model.get_decoder().layers
    of_layers = [sum(p.numel() for p in layer.parameters()) for layer in layers]
    parameters, largest = sum(p.numel() for p in model.parameters()), max(p.numel() for p in model.parameters())
    with torch.device("meta"):
        every = sum(p.numel() for p in _with_adapters(model, lora).parameters())
    inside, saved, forward = _layer_bytes({**config, "use_cache": False}, lora)
    return ModelShape(
        parameters=parameters,
        root=parameters - sum(of_layers),
        layer=max(of_layers),
        layers=len(layers),
        hidden=known.hidden_size,
        vocabulary=known.vocab_size,
        largest=largest,
        tied=bool(known.tie_word_embeddings),
        positions=int(getattr(known, "max_position_embeddings", 0) or 0),
        cache=_cache_bytes(known),
        inside=inside,
        saved=saved,
        forward=forward,
        adapter=every - parameters,
    )


def _cache_bytes(known: Any) -> float:
    """Return the bytes of keys and values for each token, over all layers, in 16 bits."""
    kinds = getattr(known, "layer_types", None) or ["full_attention"] * known.num_hidden_layers
    attending = sum("attention" in kind and "linear" not in kind for kind in kinds)
    if rank := getattr(known, "kv_lora_rank", None):
        return 2.0 * attending * (rank + known.qk_rope_head_dim)
    heads = getattr(known, "num_key_value_heads", None) or known.num_attention_heads
    width = getattr(known, "head_dim", None) or known.hidden_size // known.num_attention_heads
    return 2.0 * 2 * attending * heads * width


def peak_bytes(run: Callable[[Callable[[], int]], object], *outside: Any) -> int:
    """Return the most bytes of activations while `run` goes on; `outside` do not count.

    `run` is given a function that returns the bytes at that moment.
    """
    from torch.distributed._tools.mem_tracker import MemTracker

    tracker = MemTracker()
    tracker.track_external(*outside)

    def total(kind: str) -> int:
        shots = tracker.get_tracker_snapshot(kind).values()
        return sum(size for shot in shots for name, size in shot.items() if str(name).rpartition(".")[2] in _COUNTED)

    with tracker:
        before = total("current")
        run(lambda: total("current") - before)
    return total("peak") - before


# Of the tracker's kinds of memory: all but parameters, their gradients, buffers, and the sum.
_COUNTED = ("ACT", "TEMP", "OTH", "OPT")


def _without_content(model: torch.nn.Module) -> torch.nn.Module:
    """Make the weights of a model on ``meta`` anew in the current mode; return the model.

    Those without gradient become buffers, because torch's tracker puts a hook on the gradient of every parameter.
    """
    for module in model.modules():
        for name, weight in list(module.named_parameters(recurse=False)):
            empty = torch.empty(weight.shape, dtype=weight.dtype)
            delattr(module, name)
            if weight.requires_grad:
                module.register_parameter(name, torch.nn.Parameter(empty))
            else:
                module.register_buffer(name, empty)
    return model


def _layer_bytes(config: Mapping[str, Any], lora: Mapping[str, Any] | None) -> tuple[float, float, float]:
    """Return bytes for each token of one layer: at most with gradients, kept for them, and at most without."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from transformers import AutoConfig, AutoModel

    one = {**config, "num_hidden_layers": 1, "vocab_size": 8, "pad_token_id": None}
    if kinds := getattr(AutoConfig.for_model(**config), "layer_types", None):
        one["layer_types"] = [next((kind for kind in kinds if kind == "full_attention"), kinds[0])]
    with torch.device("meta"):
        decoder = AutoModel.from_config(AutoConfig.for_model(**one), dtype=torch.bfloat16, attn_implementation="sdpa")
        _with_adapters(decoder, lora)
    with FakeTensorMode():
        layer = _without_content(decoder.layers[0])
        states = torch.zeros(1, _TOKENS, decoder.config.hidden_size, dtype=torch.bfloat16)
        positions = torch.arange(_TOKENS)[None]
        rotary = getattr(decoder, "rotary_emb", None)
        given = {"position_embeddings": type(rotary)(decoder.config)(states, positions)} if rotary else {}

        def run(now: Callable[[], int], backward: bool = False) -> None:
            out = layer(states, attention_mask=None, position_ids=positions, **given)
            out = out[0] if isinstance(out, tuple) else out
            if backward:
                kept.append(now())
                out.backward(torch.ones_like(out))

        kept, outside = list[int](), (layer, states, *given.get("position_embeddings", ()))
        with torch.no_grad():
            forward = peak_bytes(run, *outside)
        states.requires_grad_(True)
        inside = peak_bytes(partial(run, backward=True), *outside)
    return inside / _TOKENS, kept[0] / _TOKENS, forward / _TOKENS


@cache
def head_bytes(entropy: str, compiled: bool, flash: bool, grad: bool, scaled: bool) -> float:
    """Return bytes for each token and word between the output layer and the log-probabilities, at most.

    The steps are those of veRL's ``FSDPEngineWithLMHead.prepare_model_outputs``, with logits in 16 bits. What flash-attn's cross
    entropy and a compiled entropy take is :class:`_OneRead`; other steps are torch's own.

    Args:
        entropy: ``""``, ``shown`` (computed without being a part of the loss) or ``trained``.
        compiled: the entropy runs through torch.compile.
        flash: flash-attn's cross entropy, which writes the gradient over the logits where no entropy is computed.
        grad: a backward pass follows.
        scaled: the temperature is not 1, so that veRL divides the logits into a new tensor.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode

    words, tokens = 1 << 15, 16
    with FakeTensorMode():
        source = torch.zeros(tokens, 1, dtype=torch.bfloat16, requires_grad=grad)
        rows, labels = torch.zeros(1, words, dtype=torch.bfloat16), torch.zeros(tokens, 1, dtype=torch.long)

        def run(_: Callable[[], int]) -> None:
            first = source @ rows
            logits = first / torch.ones(tokens, 1, dtype=torch.bfloat16) if scaled else first
            together = (
                flash and compiled and entropy == "trained"
            )  # two gradients, the second added to the first in place
            extra = None
            if entropy and not together:
                extra = _OneRead.apply(logits, 1) if compiled else _entropy(logits)
            if flash:
                chosen = _OneRead.apply(logits, 2 if together else 1 if entropy else 0)
            else:  # one row at a time; autocast computes log_softmax in 32 bits
                rows_of = (torch.log_softmax(row.float(), -1) for row in logits)
                chosen = torch.stack([each.gather(-1, at) for each, at in zip(rows_of, labels, strict=True)])
            loss = chosen.sum() + (extra.sum() if extra is not None and entropy == "trained" else 0)
            if grad:
                loss.backward()

        with torch.set_grad_enabled(grad):
            most = peak_bytes(run, source, rows, labels)
    return most / tokens / words


def _entropy(logits: torch.Tensor) -> torch.Tensor:
    """Return the entropy as veRL's ``entropy_from_logits`` computes it under autocast, where softmax has 32 bits."""
    probs = torch.softmax(logits.float(), -1)
    return torch.logsumexp(logits, -1) - (probs * logits).sum(-1)


class _OneRead(torch.autograd.Function):
    """A fused kernel over the logits of each token: it keeps them, and writes its gradients beside them, or none: over them."""

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, gradients: int) -> torch.Tensor:
        ctx.save_for_backward(logits)
        ctx.gradients = gradients
        return logits.new_empty(len(logits))

    @staticmethod
    def backward(ctx: Any, *_: torch.Tensor) -> tuple[torch.Tensor, None]:
        (logits,) = ctx.saved_tensors
        beside = [torch.empty_like(logits) for _ in range(ctx.gradients)]
        return (beside or [logits])[0], None


@cache
def fused_bytes(hidden: int, vocabulary: int, grad: bool) -> int:
    """Return the bytes of veRL's fused output layer, at most: chunks of 512 tokens, so that their number does not matter."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from verl.utils.experimental.torch_functional import FusedLinearForPPO

    with FakeTensorMode():
        fused = FusedLinearForPPO()
        states = torch.zeros(fused.chunk_size, hidden, dtype=torch.bfloat16, requires_grad=grad)
        weight = torch.zeros(vocabulary, hidden, dtype=torch.bfloat16, requires_grad=grad)
        labels = torch.zeros(fused.chunk_size, dtype=torch.long)

        def run(_: Callable[[], int]) -> None:
            log_probs, _entropy = fused(states, weight, labels, temperature=1.0)
            if grad:
                log_probs.sum().backward()

        with torch.set_grad_enabled(grad):
            return peak_bytes(run, states, weight, labels)


def optimizer_bytes(build: Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer]) -> tuple[float, float]:
    """Return the bytes of an optimizer's states, and those that its step takes besides, of each byte of the parameters.

    Args:
        build: returns the optimizer of a list of parameters.

    Raises:
        UnknownModelError: the optimizer cannot take a step with shapes alone.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode

    try:
        with FakeTensorMode():
            weight = torch.nn.Parameter(torch.zeros(1 << 20))
            weight.grad = torch.zeros_like(weight)
            optimizer = build([weight])
            for group in optimizer.param_groups:
                if "foreach" in group and not group.get("fused"):
                    group["foreach"] = True  # torch's default on a card
            optimizer.step()
            size = weight.nbytes
            states = sum(each.nbytes for each in optimizer.state[weight].values() if isinstance(each, torch.Tensor))
            kept = [each for each in optimizer.state[weight].values() if isinstance(each, torch.Tensor)]
            extra = peak_bytes(lambda _: optimizer.step(), weight, weight.grad, *kept)
    except Exception as error:  # whatever an optimizer of another package raises
        raise UnknownModelError(f"the optimizer takes no step without a card ({error})") from error
    return states / size, extra / size
