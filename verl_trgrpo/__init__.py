"""TR-GRPO (token-regulated GRPO, arXiv 2511.00066): the loss in plain torch, and a plugin for veRL.

    from verl_trgrpo import ClipRange, TokenWeighting, compute_policy_loss

Importing this package is cheap: the names of ``__all__`` are imported from ``verl_trgrpo.core`` and ``verl_trgrpo.tasks`` when
they are first used; ``__init__.pyi`` has their types. Neither needs veRL.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

__all__ = [
    "ClipRange",
    "TokenWeighting",
    "__version__",
    "compute_policy_loss",
    "compute_score",
    "make_shaping",
    "register_reward",
    "register_shaping",
]

_TASKS = {"compute_score", "register_reward"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module("verl_trgrpo.tasks" if name in _TASKS else "verl_trgrpo.core")
    return getattr(module, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
