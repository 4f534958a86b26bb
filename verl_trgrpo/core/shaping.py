"""Register, build and check token shapings, functions from what is known of a token to the weight of its loss.

A shaping names its inputs, as pytest fixtures do: its positional parameters are tensors of the micro-batch, found by name
among ``INPUTS``; its keyword-only parameters come from the configuration.

    @register_shaping("square", ranges={"floor": "[0, 1)"})
    def square(probs, *, floor=0.1):
        return probs.square().clamp(min=floor)
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import torch

from verl_trgrpo.common.findings import raise_invalid, range_errors
from verl_trgrpo.common.text import nearest
from verl_trgrpo.core.tokens import Tokens

Function = TypeVar("Function", bound=Callable[..., torch.Tensor])

# The inputs of shapings; all (batch, response_length), without gradient, 0 outside the mask (probabilities are 1 there).
INPUTS: dict[str, Callable[[Tokens], torch.Tensor | None]] = {
    "probs": lambda tokens: tokens.probs,
    "old_probs": lambda tokens: tokens.old_probs,
    "log_prob": lambda tokens: tokens.log_prob.detach(),
    "old_log_prob": lambda tokens: tokens.old_log_prob,
    "advantages": lambda tokens: tokens.advantages,
    "entropy": lambda tokens: tokens.entropy,
    "ref_log_prob": lambda tokens: tokens.ref_log_prob,
    "success_rate": lambda tokens: tokens.success_rate,
    "rollout_log_prob": lambda tokens: tokens.rollout_log_prob,
    "responses": lambda tokens: tokens.responses,
    "response_mask": lambda tokens: tokens.valid,
    "positions": lambda tokens: torch.arange(tokens.valid.shape[1], device=tokens.valid.device).expand(
        tokens.valid.shape
    ),
}

# Inputs that a run computes only if asked to, and how to ask veRL.
REMEDIES = {
    "entropy": "set actor_rollout_ref.actor.calculate_entropy=true",
    "ref_log_prob": "set actor_rollout_ref.actor.use_kl_loss=true, which brings the reference policy, with "
    "actor_rollout_ref.actor.kl_loss_coef=0 for a run without a KL loss",
    "rollout_log_prob": "set actor_rollout_ref.rollout.calculate_log_probs=true",
    "responses": "pass the ids of the tokens as responses",
    "success_rate": "train with veRL's v1 trainer and the configuration trgrpo_trainer or a recipe, whose replay buffer "
    "computes it with trainer.v1.sampler.sampler_kwargs.success_rate=true",
}


def not_computed(who: str, name: str) -> str:
    """Return the message for an input of tokens that `who` takes and the run does not compute."""
    return f"{who} takes {name}, which this run does not compute; {REMEDIES[name]}"


# Points of [0, 1] at which a shaping is tested; odd, so that 0, 1/2 and 1 are among them.
_GRID_POINTS = 4097
# Weights closer together than this are equal in half precision: the shaping has no effect.
_SMALLEST_SPREAD = 1e-6


class _Registered(NamedTuple):
    function: Callable[..., torch.Tensor]
    ranges: Mapping[str, str] = {}
    constant: bool = False


_REGISTRY: dict[str, _Registered] = {}


@dataclass(frozen=True)
class Shaping:
    """Hold a shaping with its parameters; ``make_shaping`` builds and checks it.

    Args:
        name: registered name or import path.
        function: the shaping itself.
        inputs: names of its positional parameters, keys of ``INPUTS``.
        parameters: values of its keyword-only parameters.
        reverse: replace p by 1 - p.
        bounds: smallest and largest weight (L, U) on [0, 1] for a shaping of ``probs`` alone; (0, inf) for another.
    """

    name: str
    function: Callable[..., torch.Tensor]
    inputs: tuple[str, ...] = ("probs",)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    reverse: bool = False
    bounds: tuple[float, float] = (0.0, float("inf"))

    def __str__(self) -> str:
        given = [f"{key}={value}" for key, value in self.parameters.items()] + ["reverse"] * self.reverse
        return f"{self.name}({', '.join(given)})"

    @property
    def probs_only(self) -> bool:
        """Return True if a weight depends on its token's probability alone."""
        return self.inputs == ("probs",)

    def __call__(self, probs: torch.Tensor) -> torch.Tensor:
        """Return the weights of probabilities in [0, 1] of any shape, in the same shape.

        Raises:
            ValueError: the shaping takes more than ``probs``.
        """
        if not self.probs_only:
            raise ValueError(f"shaping {self} takes {', '.join(self.inputs)}, not probs alone; use weigh(tokens)")
        return self.function(1 - probs if self.reverse else probs, **self.parameters)

    @torch.no_grad()
    def weigh(self, tokens: Tokens, prob_source: str = "current") -> torch.Tensor:
        """Return the (batch, response_length) weights of a micro-batch's tokens: >= 0, and 1 outside the mask.

        They are finite, but NaN where a shaping of the entropy finds one that is not finite.

        Args:
            tokens: of the micro-batch.
            prob_source: whose probabilities ``probs`` are: ``current`` (pi_theta) or ``old`` (pi_old).

        Raises:
            ValueError: the shaping takes an input that is missing, or returns another shape.
        """
        source = {"probs": "old_probs"} if prob_source == "old" else {}
        given: list[torch.Tensor] = []
        for name in self.inputs:
            tensor = INPUTS[source.get(name, name)](tokens)
            if tensor is None:
                raise ValueError(not_computed(f"shaping {self}", name))
            given.append(tensor)
        # veRL computes the loss within autocast, where a matrix product would be in bfloat16.
        with torch.autocast(tokens.valid.device.type, enabled=False):
            weights = self(given[0]) if self.probs_only else self.function(*given, **self.parameters)
        _check_shape(self, weights, tokens.valid)
        weights = weights.to(tokens.log_prob.dtype)
        if "entropy" in self.inputs and tokens.entropy is not None:
            # As NaN logits do in vanilla, and not all weights equal because a mean or a quantile is NaN.
            weights = weights.masked_fill(~tokens.entropy.isfinite(), torch.nan)
        return weights.masked_fill(~tokens.valid, 1.0)


def register_shaping(
    name: str, ranges: Mapping[str, str] | None = None, constant: bool = False
) -> Callable[[Function], Function]:
    """Return a decorator that makes a function available as a shaping under ``name``.

    Args:
        name: for ``shaping.name`` in a configuration.
        ranges: intervals of its numeric parameters, for example ``{"alpha": "(0, 1]"}``.
        constant: accept equal weights for all probabilities.

    Raises:
        ValueError: the name is empty, contains a dot (dots mean an import path) or is registered for another function; the
            same function may be defined again, as in a notebook.
    """
    if not name or "." in name:
        raise ValueError(f"shaping name {name!r} must be non-empty and without dots; dots mean an import path")

    def decorator(function: Function) -> Function:
        taken = _REGISTRY.get(name)
        if taken is not None and _definition(taken.function) != _definition(function):
            raise ValueError(f"shaping {name!r} is already registered as {taken.function!r}; choose another name")
        _REGISTRY[name] = _Registered(function, ranges or {}, constant)
        return function

    return decorator


def _definition(function: Callable[..., Any]) -> tuple[str, str]:
    """Return where a function is defined; the name of one without a name is its own."""
    return str(getattr(function, "__module__", "")), getattr(function, "__qualname__", repr(function))


def available_shapings() -> tuple[str, ...]:
    """Return the registered names, sorted."""
    return tuple(sorted(_REGISTRY))


def make_shaping(name: str = "sigmoid", reverse: bool = False, **parameters: Any) -> Shaping:
    """Build and check a shaping; this is what ``policy_loss.shaping`` in a configuration calls.

    Args:
        name: registered name or import path ``package.module.function``.
        reverse: replace p by 1 - p; only for a shaping of ``probs`` alone.
        **parameters: the shaping's own; those left out keep their defaults.

    Raises:
        ValueError: unknown name, unknown inputs or parameters, parameters out of range; or weights that are not finite,
            negative, of another shape, or the same for every probability. Wrong arguments are all listed.
    """
    function, ranges, constant = _find(name)
    inputs, defaults = _signature(function)
    unknown = sorted(set(parameters) - set(defaults))
    values = defaults | parameters
    messages = [
        f"unknown input {name!r}; known are {', '.join(INPUTS)}. A parameter for the configuration is keyword-only, after a *"
        for name in inputs
        if name not in INPUTS
    ]
    if unknown:
        meant = [f"did you mean {close}? " for each in unknown if (close := nearest(each, defaults))]
        # Only the shapings of this package are words of the configuration.
        own = function.__module__.startswith("verl_trgrpo.")
        group = f"shaping={name}" if own else f"shaping=custom beside shaping.name={name}"
        messages.append(
            f"unknown parameter {', '.join(unknown)}; {''.join(meant)}it takes {', '.join(defaults) or 'none'}. If the "
            f"parameters are those of another shaping, set {group}, which leaves them out"
        )
    messages += range_errors(values, ranges)
    if not messages and {"lower", "upper"} <= ranges.keys() and values["lower"] >= values["upper"]:
        messages.append(f"lower={values['lower']} is not below upper={values['upper']}")
    if not isinstance(reverse, bool):
        messages.append(f"reverse={reverse!r} is not a boolean; give true or false")
    elif reverse and inputs != ("probs",):
        messages.append(f"reverse=true replaces p by 1 - p, but the shaping takes {', '.join(inputs)}, not probs alone")
    raise_invalid([f"shaping {name!r}: {message}" for message in messages])
    shaping = Shaping(name, function, inputs, values, reverse)
    return dataclasses.replace(shaping, bounds=_checked_bounds(shaping, constant))


def asks_for(given: str, name: str) -> bool:
    """Return True if the shaping of this name takes the input `given`; False for one that does not exist."""
    try:
        return given in _signature(_find(name).function)[0]
    except ValueError:
        return False


def _find(name: str) -> _Registered:
    if name in _REGISTRY:
        return _REGISTRY[name]
    if "." in name:
        return _Registered(_import(name))
    close = difflib.get_close_matches(name, _REGISTRY, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise ValueError(
        f"unknown shaping {name!r}.{hint} Known: {', '.join(available_shapings())}. "
        "Your own: register the function with @register_shaping, or give its import path, e.g. my_package.my_module.my_shaping"
    )


def _import(path: str) -> Callable[..., torch.Tensor]:
    module_name, _, attribute = path.rpartition(".")
    try:
        return getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(
            f"shaping {path!r} cannot be imported: {error}. "
            f"Known names: {', '.join(available_shapings())}; an import path must be importable in every worker"
        ) from error


def _signature(function: Callable[..., Any]) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Return the names of the inputs, and the keyword-only parameters with their defaults."""
    signature = inspect.signature(function).parameters.values()
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    inputs = tuple(one.name for one in signature if one.kind in positional)
    defaults = {one.name: one.default for one in signature if one.kind is inspect.Parameter.KEYWORD_ONLY}
    return inputs, defaults


def _checked_bounds(shaping: Shaping, constant: bool) -> tuple[float, float]:
    """Check a shaping on sample tokens of every probability and return its bounds; ValueError if it breaks the contract."""
    probs = torch.linspace(0.0, 1.0, _GRID_POINTS, dtype=torch.float64)[None]
    given = probs.clone()
    weights = shaping(given) if shaping.probs_only else shaping.weigh(_sample_tokens(given))
    _check_shape(shaping, weights, probs)
    if not torch.isfinite(weights).all() or bool((weights < 0).any()):
        worst = weights[~torch.isfinite(weights) | (weights < 0)][0].item()
        raise ValueError(f"shaping {shaping} gives the weight {worst}; weights must be finite and not negative")
    if not torch.equal(given, probs):
        raise ValueError(
            f"shaping {shaping} changes its input probabilities in place; they are used again, so compute the weights in a "
            "new tensor (mul instead of mul_)"
        )
    if not shaping.probs_only:
        return 0.0, float("inf")
    lowest, highest = weights.min().item(), weights.max().item()
    if not constant and highest - lowest < _SMALLEST_SPREAD:
        raise ValueError(
            f"shaping {shaping} gives the same weight {lowest:g} to every probability in [0, 1], so training would be plain "
            "GRPO; check the parameters (tau is an inverse temperature that multiplies the probability: 9, not 1/9; a wider "
            "range from lower to upper), or set shaping=uniform if that is what you want"
        )
    if not constant and shaping.reverse and torch.allclose(weights, weights.flip(-1)):
        raise ValueError(f"shaping {shaping}: reverse=true changes nothing, because p and 1 - p have the same weight")
    return lowest, highest


def _sample_tokens(probs: torch.Tensor) -> Tokens:
    log_prob = probs.clamp(min=1e-6).log()
    advantages = torch.where(probs > 0.5, 1.0, -1.0)
    mask = torch.ones_like(probs, dtype=torch.bool)
    return Tokens.of_batch(
        log_prob,
        old_log_prob=log_prob.flip(-1),
        advantages=advantages,
        response_mask=mask,
        entropy=-probs * log_prob,
        ref_log_prob=log_prob.flip(-1),
        success_rate=probs,
        rollout_log_prob=log_prob.flip(-1),
        responses=torch.arange(probs.numel(), device=probs.device).view_as(probs),
    )


def _check_shape(shaping: Shaping, weights: torch.Tensor, tokens: torch.Tensor) -> None:
    if weights.shape != tokens.shape:
        raise ValueError(
            f"shaping {shaping} returned {tuple(weights.shape)} for tokens of shape {tuple(tokens.shape)}; "
            "it must return one weight for each token"
        )
