"""A Hydra callback of ``platform=cpu``, which ends a program that lacks the platform's environment variables."""

from typing import Any, NoReturn

from hydra.experimental.callback import Callback

from verl_trgrpo.verl_plugin.cpu import lacking_variables


class RequireVariables(Callback):
    """End ``python -m verl.trainer.main_ppo`` before Ray starts if variables of the platform are lacking.

    Too late to set them here: veRL has read its own on import.
    """

    def on_run_start(self, config: Any, **kwargs: Any) -> None:
        if lacking := lacking_variables():
            _end(lacking)

    on_multirun_start = on_run_start


def _end(lacking: str) -> NoReturn:
    # Hydra turns an exception of a callback into a warning.
    raise SystemExit(
        f"error: platform=cpu lacks environment variables; type `export {lacking}` and give the command again, "
        "or train with `verl-trgrpo train`, which sets them"
    )
