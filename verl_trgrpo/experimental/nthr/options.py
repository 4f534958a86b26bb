"""Define the options of NTHR at ``actor_rollout_ref.actor.policy_loss.nthr``, and check a run that has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from verl.utils.config import omega_conf_to_dataclass

from verl_trgrpo.common.findings import Finding, findings_of
from verl_trgrpo.common.options import Options
from verl_trgrpo.experimental.nthr import update
from verl_trgrpo.runs.keys import ACTOR
from verl_trgrpo.verl_plugin import lopti
from verl_trgrpo.verl_plugin.config import TRGRPOPolicyLossConfig


@dataclass(frozen=True)
class NTHROptions(Options):
    """Hold the options of NTHR.

    Args:
        beta: >= 0, a factor of the threshold tau; with 0, every positive influence is selected.
        correct_from: a response is right if its reward is at least this.
        groups_at_a_time: >= 1, the number of groups whose hidden states and prediction errors are in memory together.
        own_influence: the mean of s of a right response, of which the smallest is the threshold, has the response's influence on
            itself, as one public port has it. The paper's text says "on other correct responses" (Section 5.2), its equation was
            not readable. False selects a large part of the tokens, and with a single right response all positive influences.

    Raises:
        ValueError: a value out of range; all are listed.
    """

    beta: Annotated[float, "[0, inf)"] = 1.0
    correct_from: Annotated[float, "(-inf, inf)"] = 1.0
    groups_at_a_time: Annotated[int, "[1, inf)"] = 16
    own_influence: bool = True


@dataclass
class NTHRPolicyLossConfig(TRGRPOPolicyLossConfig):
    """Extend the options of the policy loss by those of NTHR, and wrap the update of the worker that gets them.

    Args:
        nthr: scale advantages by the influence of tokens before the update; None means not.
    """

    nthr: NTHROptions | None = None

    def _install(self) -> None:
        super()._install()
        if self.nthr is not None:
            lopti.install_lopti()  # first, so that both of its passes get the scaled advantages
            update.install_nthr()

    @staticmethod
    def run_checks(view: Any) -> list[Finding]:
        """Check that the engine of a run shows NTHR hidden states and logits.

        Args:
            view: the run, whose settings have passed the checks of single values; ``view[key]`` is the value of a dotted key.
        """
        actor = omega_conf_to_dataclass(view[ACTOR])
        found = findings_of(lambda: update.check_engine(actor), ACTOR)
        return [Finding.error(ACTOR, f"{ACTOR}: {each.message}") for each in found]
