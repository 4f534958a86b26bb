"""Check settings that need other settings, by a table: what is asked, what it needs, what happens otherwise."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from omegaconf import DictConfig

from verl_trgrpo.common.findings import Finding, Level
from verl_trgrpo.common.text import as_plain_yaml
from verl_trgrpo.runs.checks.batches import ACTOR, ROLLOUT, sequence_parallel
from verl_trgrpo.runs.checks.files import MANAGER, OWN_MANAGER, OWN_REWARDS, REWARD, has_own_manager
from verl_trgrpo.runs.compose import selected

_LOSS = f"{ACTOR}.policy_loss"
_MODEL = "actor_rollout_ref.model"


class Values:
    """Values of a configuration by dotted key; None for keys that it does not have."""

    def __init__(self, config: DictConfig) -> None:
        self.config = config

    def __getitem__(self, key: str) -> Any:
        return selected(self.config, key)


@dataclass(frozen=True)
class Rule:
    """A setting that needs others.

    Args:
        key: the setting that is reported.
        needs: returns True for values that the setting works with.
        otherwise: reason and fix. ``{KEY}`` becomes ``KEY=value``.
        asked: returns True for values that ask for the setting; by default, if the value of `key` is true.
        level: of the finding.
    """

    key: str
    needs: Callable[[Values], Any]
    otherwise: str
    asked: Callable[[Values], Any] | None = None
    level: Level = Level.ERROR

    def findings(self, values: Values) -> list[Finding]:
        """Return a finding if the setting is asked for and what it needs is missing."""
        asked = values[self.key] if self.asked is None else self.asked(values)
        if not asked or self.needs(values):
            return []
        reason = re.sub(r"\{([\w.]+)\}", lambda found: f"{found[1]}={as_plain_yaml(values[found[1]])}", self.otherwise)
        return [Finding(self.level, self.key, f"{self.key}={as_plain_yaml(values[self.key])}: {reason}")]


# One row for each rule; tests/runs/checks/test_rules.py has one case for each.
RULES = (
    Rule(
        "algorithm.use_pf_ppo",
        lambda v: v["algorithm.adv_estimator"] == "gae",
        "has no effect with {algorithm.adv_estimator}, only with gae; set it to false",
        level=Level.WARNING,
    ),
    Rule(
        "algorithm.use_pf_ppo",
        lambda v: v["algorithm.adv_estimator"] != "gae" or not v["trainer.use_v1"],
        "veRL's v1 trainer gives the advantages of redrawn rows to other responses (veRL issue 7956); set it to false",
    ),
    Rule(
        "algorithm.use_kl_in_reward",
        lambda v: not v[f"{ACTOR}.use_kl_loss"],
        f"{{{ACTOR}.use_kl_loss}} counts the KL a second time; set one of them to false",
        level=Level.WARNING,
    ),
    Rule(
        f"{_LOSS}.kl",
        lambda v: v[f"{ACTOR}.use_kl_loss"],
        f"has no effect with {{{ACTOR}.use_kl_loss}}; set it to plain",
        asked=lambda v: v[f"{_LOSS}.kl"] not in (None, "plain"),
        level=Level.WARNING,
    ),
    Rule(
        f"{_LOSS}.kl",
        lambda v: not v[f"{ACTOR}.use_kl_loss"],
        "pushes the policy away from the reference where w > 1; use plain or scaled unless you study this form",
        asked=lambda v: v[f"{_LOSS}.kl"] == "literal",
        level=Level.WARNING,
    ),
    Rule(
        f"{ROLLOUT}.n",
        lambda v: v["algorithm.adv_estimator"] not in ("grpo", "tr_grpo", "reinforce_rej", "ha_dw"),
        "{algorithm.adv_estimator} compares the responses of a group, and a group of one has none to compare; use 5 or more",
        asked=lambda v: v[f"{ROLLOUT}.n"] == 1,
    ),
    Rule(
        f"{ROLLOUT}.log_prob_use_dynamic_bsz",
        lambda v: bool(v[f"{ROLLOUT}.log_prob_use_dynamic_bsz"]) == bool(v[f"{ACTOR}.use_dynamic_bsz"]),
        f"must equal {{{ACTOR}.use_dynamic_bsz}}; set both to the same value",
        asked=lambda v: True,
    ),
    Rule(
        f"{ACTOR}.ulysses_sequence_parallel_size",
        lambda v: v[f"{_MODEL}.override_config.attn_implementation"] in (None, "flash_attention_2"),
        f"{{{_MODEL}.override_config.attn_implementation}} does not split sequences, so the loss would silently be wrong; use "
        "flash_attention_2, or a size of 1",
        asked=lambda v: sequence_parallel(v.config) > 1,
    ),
    Rule(
        f"{ACTOR}.optim.lr",
        lambda v: "Adam" not in str(v[f"{ACTOR}.optim.optimizer"]),
        "moves every weight by about that much in a step of Adam; 1e-6 is usual",
        asked=lambda v: v[f"{ACTOR}.optim.lr"] > 0.01,
        level=Level.WARNING,
    ),
    Rule(
        f"{MANAGER}.name",
        lambda v: has_own_manager(v.config),
        f"with {{{MANAGER}.source}} and {{{MANAGER}.module.path}} the rewards may not get the prompt, so an answer may be read "
        f"in the wrong place; set {MANAGER}.source=importlib {MANAGER}.module.path={OWN_MANAGER}, which has veRL's managers",
        asked=lambda v: v[f"{REWARD}.path"] == OWN_REWARDS,
        level=Level.WARNING,
    ),
)  # fmt: skip


def rule_findings(config: DictConfig) -> list[Finding]:
    """Check every rule of the table; `config` has passed the checks of single values."""
    values = Values(config)
    return [finding for rule in RULES for finding in rule.findings(values)]
