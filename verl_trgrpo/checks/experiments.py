"""Call the checks that classes in a run's configuration bring along, so that this package does not have to know them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from omegaconf import OmegaConf

from verl_trgrpo.checks.run_data import RunData
from verl_trgrpo.checks.structure import located
from verl_trgrpo.common.findings import Finding
from verl_trgrpo.runs.keys import AGENT, LOSS


def brought_findings(view: RunData) -> list[Finding]:
    """Return what ``run_checks(view)`` finds, a static method of the classes that build parts of the run.

    These are the classes of the sections ``algorithm`` and ``policy_loss``, and of the agent loops that make responses.
    """
    checks = [getattr(located(name), "run_checks", None) for name in _targets(view)]
    return [finding for check in checks if check for finding in check(view)]


def _targets(view: RunData) -> Iterator[str]:
    yield from (str(view[f"{section}._target_"]) for section in ("algorithm", LOSS))
    if file := view[f"{AGENT}.agent_loop_config_path"]:
        from verl.utils.import_utils import resolve_config_path

        loops: Any = OmegaConf.load(resolve_config_path(str(file)))
        yield from (str(loop._target_) for loop in loops if loop.name in view.agents)
