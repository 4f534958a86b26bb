"""Names of shapings, and building one from a name and parameters as a configuration gives them."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import importlib
import inspect
from collections.abc import Callable
from typing import Any

import torch

from verl_trgrpo.core.shaping.base import Shaping, check_shaping

ShapingFactory = Callable[..., Any]

_REGISTRY: dict[str, ShapingFactory] = {}


def register_shaping(name: str) -> Callable[[ShapingFactory], ShapingFactory]:
    """Decorator that makes a shaping available under ``name``.

    It takes a :class:`Shaping` subclass, or a plain function ``fn(probs, *, parameter=default, ...) -> weights``
    with ``probs`` in [0, 1] of any shape and weights of the same shape.

    Raises:
        ValueError: when the name is empty, contains a dot (dots mean an import path) or is taken by something else.
    """
    if not name or "." in name:
        raise ValueError(f"shaping name {name!r} must be non-empty and without dots; dots mean an import path")

    def decorator(factory: ShapingFactory) -> ShapingFactory:
        taken = _REGISTRY.get(name)
        if taken is not None and taken is not factory:
            raise ValueError(f"shaping {name!r} is already registered as {taken!r}; choose another name")
        _REGISTRY[name] = factory
        return factory

    return decorator


def available_shapings() -> tuple[str, ...]:
    """Registered names, sorted."""
    return tuple(sorted(_REGISTRY))


def get_shaping(name: str) -> ShapingFactory:
    """The class or function registered under ``name``, or found at the import path ``package.module.attribute``.

    Raises:
        ValueError: for an unknown name (the message lists the known ones) or a path that cannot be imported.
    """
    if name in _REGISTRY:
        return _REGISTRY[name]
    if isinstance(name, str) and "." in name:
        return _import_path(name)
    close = difflib.get_close_matches(str(name), _REGISTRY, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise ValueError(
        f"unknown shaping {name!r}.{hint} Known: {', '.join(available_shapings())}. "
        "Your own: register it with @register_shaping, or give its import path, e.g. my_package.my_module.my_shaping"
    )


def make_shaping(name: str = "sigmoid", reverse: bool = False, **parameters: Any) -> Shaping:
    """Build and check a shaping; this is what ``policy_loss.shaping`` in a configuration calls.

    Args:
        name: registered name or import path.
        reverse: feed ``1 - probability`` instead of the probability.
        **parameters: the shaping's own parameters; ``None`` means "the shaping's default", so that one configuration
            can list the parameters of several shapings.

    Raises:
        ValueError: unknown name, unknown parameter, parameter out of range, broken contract, or constant weights.
    """
    factory = get_shaping(name)
    given = {key: value for key, value in parameters.items() if value is not None}
    known = _parameters(factory)
    unknown = sorted(set(given) - set(known)) if known is not None else []
    if unknown:
        raise ValueError(
            f"shaping {name!r} has no parameter {', '.join(unknown)}; "
            f"it takes {', '.join(known) if known else 'no parameters'}. Set the others to null"
        )
    if not isinstance(reverse, bool):
        raise ValueError(f"shaping.reverse={reverse!r} is not a boolean; give true or false")
    if isinstance(factory, type):
        shaping = factory(reverse=reverse, **given)
        if not isinstance(shaping, Shaping):
            raise ValueError(f"shaping {name!r} is the class {factory!r}, which does not derive from Shaping")
        return shaping
    return FunctionShaping(reverse=reverse, function=functools.partial(factory, **given), name=name)


@dataclasses.dataclass(frozen=True)
class FunctionShaping(Shaping):
    """A user's plain function as a :class:`Shaping`, with its parameters bound."""

    function: Callable[[torch.Tensor], torch.Tensor] = torch.ones_like
    name: str = "function"

    def weights(self, probs: torch.Tensor) -> torch.Tensor:
        return self.function(probs)

    def problems(self) -> list[str]:
        try:
            check_shaping(self, f"shaping {self.name!r}", may_be_constant=self.may_be_constant)
        except ValueError as error:
            return [str(error)]
        except Exception as error:  # a user's code may raise anything; say where it came from
            return [f"calling shaping {self.name!r} on probabilities failed with {type(error).__name__}: {error}"]
        return []


def _parameters(factory: ShapingFactory) -> list[str] | None:
    """Names of the parameters a factory takes besides probabilities and ``reverse``; None when it takes any."""
    if isinstance(factory, type) and dataclasses.is_dataclass(factory):
        return [field.name for field in dataclasses.fields(factory) if field.name != "reverse"]
    try:
        signature = inspect.signature(factory).parameters
    except ValueError:  # functions written in C may not tell
        return None
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature.values()):
        return None
    names = [name for name in signature if name != "reverse"]
    return names if isinstance(factory, type) else names[1:]


def _import_path(path: str) -> ShapingFactory:
    module_name, _, attribute = path.rpartition(".")
    try:
        factory = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(
            f"shaping {path!r} cannot be imported: {error}. "
            f"Known names: {', '.join(available_shapings())}; an import path must be importable in every worker"
        ) from error
    if not callable(factory):
        raise ValueError(f"shaping {path!r} is a {type(factory).__name__}, not a callable")
    return factory
