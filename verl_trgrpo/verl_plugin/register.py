"""Register TR-GRPO with veRL, which imports this module through the entry-point group ``verl.plugins``.

This happens in the driver, in every Ray worker and in any other program that imports veRL, so it has to be cheap: losses and
estimators are registered when the module of veRL that holds their registry has been imported, which is before anybody can ask for
them.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import logging
import sys
from collections.abc import Sequence
from types import ModuleType

from verl_trgrpo.common.extras import missing_extra
from verl_trgrpo.common.text import for_terminal

logger = logging.getLogger(__name__)

# Modules of veRL, and those of this package that register with them on import. The latter import one another as modules, not
# names: whichever of them a program imports first imports veRL, which comes back here before the first is complete.
_REGISTERED_WITH = {
    "verl.trainer.ppo.core_algos": ("advantage_estimator", "policy_loss"),
    "verl.workers.utils.losses": ("ppo_loss",),
}


class _AfterImport(importlib.machinery.PathFinder):
    """Find veRL's modules as Python does, and register once one of them is complete."""

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in _REGISTERED_WITH:
            return None
        spec = super().find_spec(fullname, path, target)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def execute_and_register(module: ModuleType) -> None:
            execute(module)
            _register_with(fullname)

        spec.loader.exec_module = execute_and_register  # type: ignore[method-assign]
        return spec


def _register_with(name: str) -> None:
    try:
        for module in _REGISTERED_WITH[name]:
            importlib.import_module(f"verl_trgrpo.verl_plugin.{module}")
    except Exception as error:  # runs that do not ask for this package go on
        _report(error)


def _report(error: Exception) -> None:
    # veRL reports a plugin that fails to load at DEBUG level only; the user would see "Unsupported loss mode" much later.
    logger.exception(
        "verl-trgrpo could not register with veRL: %s",
        for_terminal(missing_extra(error) or f"{error}; run `verl-trgrpo doctor` to find out why"),
    )


try:
    from verl_trgrpo.verl_plugin.cpu import platform  # noqa: F401
    from verl_trgrpo.verl_plugin.loopback import bind_stores
    from verl_trgrpo.verl_plugin.resolvers import register_resolvers

    register_resolvers()
    bind_stores()
    for _name in (
        _REGISTERED_WITH.keys() & sys.modules.keys()
    ):  # of VERL_USE_EXTERNAL_MODULES, which come before plugins
        _register_with(_name)
    sys.meta_path.insert(0, _AfterImport)
except Exception as _error:
    _report(_error)
    raise
