"""Check settings that need other settings, by a table: what is asked, what it needs, what happens otherwise."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from verl_trgrpo.checks.batches import sequence_parallel
from verl_trgrpo.checks.files import DATA, OWN_MANAGER, OWN_REWARDS, has_own_manager, needs_critic
from verl_trgrpo.checks.run_data import RunData
from verl_trgrpo.common.findings import Finding, Level
from verl_trgrpo.common.text import as_plain_yaml
from verl_trgrpo.data.prompts import SINGLE_TURN
from verl_trgrpo.runs.keys import (
    ACTOR,
    AGENT,
    CORRECTION,
    LOSS,
    MANAGER,
    MANAGER_OPTIONS,
    MODEL,
    OVERLONG,
    REWARD,
    ROLLOUT,
)
from verl_trgrpo.tasks.answer_form import CUT_OFF
from verl_trgrpo.tasks.registry import Score

_SAMPLER = "trainer.v1.sampler.custom_sampler.path"
_SAMPLER_OPTIONS = "trainer.v1.sampler.sampler_kwargs"
_VALIDATION = f"{ROLLOUT}.val_kwargs"
_BYPASS = f"{CORRECTION}.bypass_mode"
_LOG_PROBS = f"{ROLLOUT}.calculate_log_probs"
# Estimators that compare the responses of a group.
_OF_GROUPS = (
    "grpo", "tr_grpo", "reinforce_rej", "ha_dw", "rloo", "opo", "grpo_passk", "gpg", "reinforce_plus_plus_baseline",
    "optimal_token_baseline",
)  # fmt: skip
# Parts of this package's rewards; `reward` is veRL's name for the sum.
_METRICS = ("reward", *Score(0.0, acc=0.0).as_dict(), CUT_OFF, "overlong_reward", "overlong")
# What veRL's estimators read and its v1 trainer does not give them (trainer_base.py, _compute_advantage, 0.9.1), and what else to
# choose.
_NOT_ON_V1 = {
    "remax": ("the reward of a greedy response to each prompt", "algorithm=rloo"),
    "gdpo": ("the parts of the reward", "algorithm=gdpo, this project's"),
    "optimal_token_baseline": ("the sums of squared probabilities", "algorithm=opo"),
    "tir_optimal_token_baseline": ("the sums of squared probabilities", "algorithm=opo"),
}


@dataclass(frozen=True)
class Rule:
    """A setting that needs others.

    Args:
        key: the setting that is reported.
        needs: returns True for values that the setting works with.
        otherwise: reason and fix. ``{KEY}`` becomes ``KEY=value``.
        asked: returns True for values that ask for the setting; by default, if the value of `key` is true.
        level: of the finding.
        v1: the rule is one of veRL's v1 trainer, and does not hold for the older one.
    """

    key: str
    needs: Callable[[RunData], Any]
    otherwise: str
    asked: Callable[[RunData], Any] | None = None
    level: Level = Level.ERROR
    v1: bool = False

    def findings(self, values: RunData) -> list[Finding]:
        """Return a finding if the setting is asked for and what it needs is missing."""
        asked = values[self.key] if self.asked is None else self.asked(values)
        if not asked or self.needs(values) or (self.v1 and not values["trainer.use_v1"]):
            return []
        message = f"{self.key}={as_plain_yaml(values[self.key])}: {filled(self.otherwise, values)}"
        return [Finding(self.level, self.key, message)]


def filled(reason: str, values: RunData) -> str:
    """Return a reason with ``KEY=value`` in the place of each ``{KEY}``."""
    return re.sub(r"\{([\w.]+)\}", lambda found: f"{found[1]}={as_plain_yaml(values[found[1]])}", reason)


def _estimator_is(name: str, values: RunData) -> bool:
    return bool(values["algorithm.adv_estimator"] == name)


def _never(values: RunData) -> bool:
    """Return False: nothing makes the setting work."""
    return False


def _corrected_in_loss(values: RunData) -> bool:
    """Return True for the loss that corrects by itself; it reads ``policy_loss.rollout_correction``."""
    return values[f"{LOSS}.loss_mode"] == "bypass_mode"


def _correction_rule(name: str) -> Rule:
    """Return the rule of one kind of rollout correction, which the trainer computes from two sets of log-probabilities."""
    return Rule(
        f"{CORRECTION}.{name}",
        lambda v: v[_LOG_PROBS] and not v[_BYPASS],
        f"has no effect with {{{_BYPASS}}} and {{{_LOG_PROBS}}}, responses are not corrected; set them to false and true",
        level=Level.WARNING,
        v1=True,
    )


def _updates_at_once(values: RunData) -> bool:
    """Return True if a GPU computes its share of an update in one micro-batch."""
    micro, mini = values[f"{ACTOR}.ppo_micro_batch_size_per_gpu"], values[f"{ACTOR}.ppo_mini_batch_size"]
    gpus = values["trainer.n_gpus_per_node"] * values["trainer.nnodes"] // sequence_parallel(values.config)
    return (
        not values[f"{ACTOR}.use_dynamic_bsz"] and micro is not None and micro * gpus >= mini * values[f"{ROLLOUT}.n"]
    )


def _overlong(values: RunData) -> bool:
    return bool(values[f"{OVERLONG}.enable"])


def _may_call_tools(values: RunData) -> bool:
    """Return True if the run may have another agent loop than veRL's for one turn, by default or for some rows."""
    return bool(values.agents - {SINGLE_TURN}) or not values.complete(*DATA)


def _sized_per_gpu(key: str) -> Callable[[RunData], bool]:
    return lambda v: bool(v[f"{ACTOR}.use_dynamic_bsz"]) or v[key] is not None


# One row for each rule; tests/checks/test_rules.py has one case for each.
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
        f"{LOSS}.kl",
        lambda v: v[f"{ACTOR}.use_kl_loss"],
        f"has no effect with {{{ACTOR}.use_kl_loss}}; set it to plain",
        asked=lambda v: v[f"{LOSS}.kl"] not in (None, "plain"),
        level=Level.WARNING,
    ),
    Rule(
        f"{LOSS}.kl",
        lambda v: not v[f"{ACTOR}.use_kl_loss"],
        "pushes the policy away from the reference where w > 1; use plain or scaled unless you study this form",
        asked=lambda v: v[f"{LOSS}.kl"] == "literal",
        level=Level.WARNING,
    ),
    *(
        Rule(
            "algorithm.adv_estimator",
            _never,
            f"veRL's v1 trainer does not give it {column}, the first step would fail; use {other}, or trainer.use_v1=false",
            asked=partial(_estimator_is, name),
            v1=True,
        )
        for name, (column, other) in _NOT_ON_V1.items()
    ),
    Rule(
        f"{LOSS}.loss_mode",
        _updates_at_once,
        f"veRL adds up the means of micro-batches, so the gradient grows with their number; set {ACTOR}.use_dynamic_bsz=false "
        f"and {ACTOR}.ppo_micro_batch_size_per_gpu to a GPU's share of ppo_mini_batch_size times rollout.n",
        asked=lambda v: v[f"{LOSS}.loss_mode"] == "geo_mean",
        level=Level.WARNING,
    ),
    Rule(
        f"{LOSS}.loss_mode",
        lambda v: v[f"{LOSS}.dro_beta"],
        "has no penalty without policy_loss.dro_beta; set that to a number above 0, such as 1.0",
        asked=lambda v: v[f"{LOSS}.loss_mode"] in ("dro", "tr_dro"),
    ),
    Rule(
        f"{ROLLOUT}.n",
        lambda v: v["algorithm.adv_estimator"] not in _OF_GROUPS,
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
        lambda v: v[f"{MODEL}.override_config.attn_implementation"] in (None, "flash_attention_2"),
        f"{{{MODEL}.override_config.attn_implementation}} does not split sequences, so the loss would silently be wrong; use "
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
    _correction_rule("rollout_is"),
    _correction_rule("rollout_rs"),
    Rule(
        f"{CORRECTION}.rollout_is",
        lambda v: v[f"{CORRECTION}.rollout_is_threshold"] is not None,
        f"has no effect with {{{CORRECTION}.rollout_is_threshold}}; set that to 2.0, or another bound of the weights",
        level=Level.WARNING,
    ),
    Rule(
        f"{CORRECTION}.rollout_rs",
        lambda v: v[f"{CORRECTION}.rollout_rs_threshold"] is not None or v[_BYPASS] or not v[_LOG_PROBS],
        f"{{{CORRECTION}.rollout_rs_threshold}} ends the run at its first step; set that",
    ),
    Rule(
        f"{CORRECTION}.loss_type",
        _corrected_in_loss,
        f"veRL's v1 trainer does not read it, the loss stays {{{LOSS}.loss_mode}}; set {LOSS}.loss_mode=bypass_mode and "
        f"{LOSS}.rollout_correction.loss_type (on the command line with a plus)",
        asked=lambda v: v[f"{CORRECTION}.loss_type"] not in (None, "ppo_clip"),
        level=Level.WARNING,
        v1=True,
    ),
    Rule(
        _BYPASS,
        lambda v: v[_LOG_PROBS],
        f"takes the log-probabilities of the rollout, which are not there with {{{_LOG_PROBS}}}: the first step fails; set "
        "that to true",
    ),
    Rule(
        "ray_kwargs.ray_init.num_gpus",
        lambda v: v["ray_kwargs.ray_init.num_gpus"] >= v["trainer.n_gpus_per_node"] * v["trainer.nnodes"],
        "Ray would have less GPUs than {trainer.n_gpus_per_node} times {trainer.nnodes}, and veRL fails; raise it, or leave it "
        "out and start the nodes with `ray start`",
        asked=lambda v: v["ray_kwargs.ray_init.num_gpus"] is not None,
    ),
    Rule(
        f"{ACTOR}.checkpoint.async_save",
        lambda v: v[f"{ACTOR}.strategy"] == "megatron",
        f"has no effect with {{{ACTOR}.strategy}}, but veRL then does not record which checkpoint is the latest; set it to false",
        level=Level.WARNING,
        v1=True,
    ),
    Rule(
        "trainer.val_only",
        lambda v: v["trainer.val_before_train"],
        "with {trainer.val_before_train} the run would train instead of validating; set that to true",
    ),
    Rule(
        "trainer.critic_warmup",
        lambda v: needs_critic(v.config),
        "the run has no critic, and the policy would not be updated before that step; set it to 0",
        asked=lambda v: v["trainer.critic_warmup"] > 1,
    ),
    Rule(
        "trainer.balance_batch",
        lambda v: v["trainer.balance_batch"],
        "has no effect, veRL's v1 trainer always balances the tokens of its GPUs and so reorders a batch; remove it",
        asked=lambda v: True,
        level=Level.WARNING,
        v1=True,
    ),
    Rule(
        f"{_VALIDATION}.do_sample",
        lambda v: v[f"{_VALIDATION}.temperature"] > 0,
        f"has no effect, {{{_VALIDATION}.temperature}} makes validation greedy; set that to 1.0, or this to false",
        level=Level.WARNING,
        v1=True,
    ),
    Rule(
        f"{_VALIDATION}.temperature",
        lambda v: v[f"{_VALIDATION}.do_sample"],
        f"validation samples at it, veRL's v1 trainer does not read {{{_VALIDATION}.do_sample}}; set that to true, or this to "
        "0 for greedy responses",
        asked=lambda v: v[f"{_VALIDATION}.temperature"] > 0,
        level=Level.WARNING,
        v1=True,
    ),
    Rule(
        f"{_VALIDATION}.n",
        lambda v: v[f"{_VALIDATION}.temperature"] > 0,
        f"{{{_VALIDATION}.temperature}} makes all responses to a prompt equal; set this to 1, or that to 1.0",
        asked=lambda v: v[f"{_VALIDATION}.n"] > 1,
        level=Level.WARNING,
        v1=True,
    ),
    Rule(
        f"{ROLLOUT}.do_sample",
        _never,
        f"has no effect, training samples at {{{ROLLOUT}.temperature}}; remove it",
        asked=lambda v: v[f"{ROLLOUT}.do_sample"] is False,
        level=Level.WARNING,
        v1=True,
    ),
    Rule(
        f"{ROLLOUT}.multi_turn.enable",
        _may_call_tools,
        f"has no effect with {{{AGENT}.default_agent_loop}} and no row that names another, responses have one turn; set that to "
        "tool_agent",
        level=Level.WARNING,
        v1=True,
    ),
    Rule(
        f"{OVERLONG}.enable",
        lambda v: v[f"{MANAGER}.name"] == "dapo",
        f"has no effect with {{{MANAGER}.name}}; set that to dapo",
        level=Level.WARNING,
    ),
    Rule(
        f"{OVERLONG}.enable",
        lambda v: v[f"{MANAGER}.name"] != "dapo" or v[f"{MANAGER_OPTIONS}.max_resp_len"] is not None,
        f"needs {MANAGER_OPTIONS}.max_resp_len, and veRL's reward workers fail without it; set that (on the command line with a "
        "plus) to {data.max_response_length}",
    ),
    Rule(
        f"{OVERLONG}.len",
        lambda v: 0 < (v[f"{OVERLONG}.len"] or 0) <= (v[f"{MANAGER_OPTIONS}.max_resp_len"] or float("inf")),
        f"must be at least 1 and at most {{{MANAGER_OPTIONS}.max_resp_len}}, or veRL's reward workers fail; correct it",
        asked=lambda v: _overlong(v) and v[f"{MANAGER}.name"] == "dapo",
    ),
    Rule(
        f"{MANAGER_OPTIONS}.max_resp_len",
        lambda v: (v[f"{MANAGER_OPTIONS}.max_resp_len"] or 0) - (v[f"{OVERLONG}.len"] or 0) < v["data.max_response_length"],
        f"less {{{OVERLONG}.len}} is not below {{data.max_response_length}}, so no response is ever penalized; set it to that",
        asked=_overlong,
        level=Level.WARNING,
    ),
    Rule(
        f"{ACTOR}.loss_agg_mode",
        lambda v: v[f"{ACTOR}.loss_scale_factor"] is not None,
        f"with {{{ACTOR}.loss_scale_factor}} veRL divides by the longest response of a micro-batch, so the loss depends on how "
        f"a batch is cut; set that to {{data.max_response_length}}",
        asked=lambda v: v[f"{ACTOR}.loss_agg_mode"] == "seq-mean-token-sum-norm",
        level=Level.WARNING,
    ),
    *(
        Rule(
            f"{section}.{name}",
            _sized_per_gpu(f"{section}.{name}_per_gpu"),
            f"veRL's v1 trainer does not read it and fails without {name}_per_gpu; set {section}.{name}_per_gpu instead",
            v1=True,
        )
        for section, name in ((ACTOR, "ppo_micro_batch_size"), (ROLLOUT, "log_prob_micro_batch_size"))
    ),
    Rule(
        "algorithm.filter_groups.max_num_gen_batches",
        _never,
        "veRL's v1 trainer does not stop after that many batches; remove it, max_inflight_gen_batches bounds how many are "
        "drawn at a time",
        asked=lambda v: v["algorithm.filter_groups.enable"] and v["algorithm.filter_groups.max_num_gen_batches"] > 0,
        level=Level.WARNING,
        v1=True,
    ),
    Rule(
        "algorithm.filter_groups.metric",
        lambda v: v["algorithm.filter_groups.metric"] in _METRICS or v[f"{REWARD}.path"] != OWN_REWARDS or _may_call_tools(v),
        f"no reward of this package reports it, and veRL fails at the first step; set it to one of {', '.join(_METRICS)}",
        asked=lambda v: v["algorithm.filter_groups.enable"],
        v1=True,
    ),
    Rule(
        "algorithm.filter_groups.enable",
        lambda v: not v["reward.reward_model.enable"] or v["reward.reward_model.enable_resource_pool"],
        "needs rewards before a batch is complete, with {reward.reward_model.enable} also "
        "reward.reward_model.enable_resource_pool=true",
        v1=True,
    ),
    Rule(
        "data.gen_batch_size",
        lambda v: not v["algorithm.filter_groups.enable"],
        "has no effect with {algorithm.filter_groups.enable}, prompts are drawn one by one; remove it",
        asked=lambda v: v["data.gen_batch_size"] not in (None, 1),
        level=Level.WARNING,
        v1=True,
    ),
    Rule(
        "algorithm.filter_groups.enable",
        lambda v: not str(v[_SAMPLER]).endswith("group_metrics_buffer") or v[f"{_SAMPLER_OPTIONS}.filter_groups.enable"],
        f"has no effect with {{{_SAMPLER_OPTIONS}.filter_groups.enable}}, from which the replay buffer takes it; make "
        f"{_SAMPLER_OPTIONS}.filter_groups an interpolation of algorithm.filter_groups",
    ),
    Rule(
        "trainer.checkpoint_callback_class",
        lambda v: v["trainer.checkpoint_callback_class"],
        "a resumed run would forget what {algorithm.adv_estimator} has learned of past batches; set it as run_defaults.yaml does",
        asked=lambda v: v["algorithm.adv_estimator"] == "ha_dw",
        level=Level.WARNING,
    ),
)  # fmt: skip


def rule_findings(data: RunData) -> list[Finding]:
    """Check every rule of the table; the configuration has passed the checks of single values."""
    return [finding for rule in RULES for finding in rule.findings(data)]
