"""Ask the clients of trackers for the account of a run: veRL makes its trackers when all workers are up.

A client answers in a process of its own, without a terminal, as it would in the training.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import os
import subprocess
import textwrap
from collections.abc import Iterator

from verl_trgrpo.checks.view import RunView
from verl_trgrpo.common.findings import Finding, Level
from verl_trgrpo.common.import_path import same_path

LOGGER = "trainer.logger"
_SECONDS = 60.0
# What a client is asked with, and what to do if it has no account; the key's own check would go over the network.
_LOGINS = {
    "wandb": ("import wandb; wandb.login(verify=False)", "run `wandb login`, set WANDB_API_KEY or WANDB_MODE=offline"),
    "swanlab": ("import swanlab; swanlab.login()", "run `swanlab login`, set SWANLAB_API_KEY or SWANLAB_MODE=offline"),
}
# Packages of the loggers that are not named like theirs.
CLIENTS = {"vemlp_wandb": "volcengine_ml_platform", "tracking": "wandb"}


def account_findings(view: RunView) -> list[Finding]:
    """Check for an account of each tracker: an error on the machine that trains, elsewhere "not checked"."""
    if view.trains and not view.starts:
        return []
    level = Level.ERROR if view.trains else Level.NOT_CHECKED
    return [
        Finding(
            level,
            LOGGER,
            f"{LOGGER}={name}: veRL would fail after its workers have started ({reason}); {fix}, or remove {name}",
        )
        for name, reason, fix in _lacking(view)
    ]


def _lacking(view: RunView) -> Iterator[tuple[str, str, str]]:
    """Yield name, reason and remedy of each tracker without an account; one whose client is not installed is left out."""
    for name in sorted(view.loggers):
        client = CLIENTS.get(name, name)
        if importlib.util.find_spec(client) is None:
            continue
        if name == "vemlp_wandb" and (variables := [each for each in demanded_variables() if each not in os.environ]):
            yield name, f"the environment lacks {' and '.join(variables)}", "set the variables of the account"
        if client not in _LOGINS:
            continue
        code, fix = _LOGINS[client]
        if client == "swanlab" and (_set("SWANLAB_API_KEY") or os.environ.get("SWANLAB_MODE", "cloud") != "cloud"):
            continue  # veRL logs in with the key
        try:
            asked = subprocess.run(
                same_path(code), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_SECONDS
            )
        except subprocess.TimeoutExpired:
            yield name, f"its client does not answer within {_SECONDS:.0f} s", fix
            continue
        if asked.returncode:
            yield name, (asked.stderr.strip().splitlines() or ["no output"])[-1], fix


def _set(name: str) -> bool:
    return bool(os.environ.get(name))


def demanded_variables() -> list[str]:
    """Return the variables without which veRL's source of trackers fails; those that it asks for with a default are left out."""
    from verl.utils.tracking import Tracking

    tree = ast.parse(textwrap.dedent(inspect.getsource(Tracking.__init__)))
    return sorted(
        str(node.slice.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Subscript)
        and ast.unparse(node.value) == "os.environ"
        and isinstance(node.slice, ast.Constant)
    )
