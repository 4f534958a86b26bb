"""Overrides that make an algorithm another one."""

import pytest

from tests.conftest import composed
from verl_trgrpo.checks.algorithm_drift import drift_findings
from verl_trgrpo.checks.view import RunView
from verl_trgrpo.common.findings import Level

ACTOR = "actor_rollout_ref.actor"
LOSS = f"{ACTOR}.policy_loss"


def findings(*overrides, source="trgrpo_trainer"):
    return drift_findings(RunView(composed(overrides, source)))


@pytest.mark.parametrize(
    ("algorithm", "override", "parts"),
    [
        ("dapo_clip", f"{ACTOR}.clip_ratio_high=0.2", ["0.28", "algorithm=grpo"]),
        ("dapo_clip", f"{ACTOR}.clip_ratio_high=null", ["0.28"]),
        ("dapo_clip", f"{ACTOR}.loss_agg_mode=seq-mean-token-mean", ["token-mean"]),
        ("dr_grpo", "algorithm.norm_adv_by_std_in_grpo=true", ["false", "algorithm=grpo"]),
        ("dr_grpo", f"{ACTOR}.loss_scale_factor=7", ["512"]),
        ("tr_grpo_published", f"{LOSS}.placement=outside", ["inside", "algorithm=tr_grpo"]),
        ("tr_grpo_token_mean", f"{LOSS}.normalize=none", ["token_mean", "algorithm=tr_grpo"]),
        ("tr_grpo_reverse", f"{LOSS}.shaping.reverse=false", ["true", "algorithm=tr_grpo"]),
        ("reinforce_rej", "algorithm.adv_estimator=grpo", ["reinforce_rej", "algorithm=grpo"]),
        ("tr_dapo_clip", f"{LOSS}.loss_mode=aspo", ["tr_grpo"]),
        ("ha_dw", "algorithm.ha_dw.scale=2.0", ["1.3"]),
        ("cppo", f"{ACTOR}.clip_ratio_high=5", ["10000"]),
    ],
)
def test_another_value_than_the_algorithm_sets_is_a_warning(algorithm, override, parts):
    [finding] = findings(f"algorithm={algorithm}", override)
    assert finding.level is Level.WARNING and finding.where == override.partition("=")[0]
    assert all(part in finding.message for part in (override, f"algorithm={algorithm}", *parts)), finding.message
    assert findings(f"algorithm={algorithm}") == []


@pytest.mark.parametrize(
    "overrides",
    [
        ["algorithm=dr_grpo", "data.max_response_length=7"],
        ["algorithm=tr_grpo", f"{LOSS}.placement=inside", "shaping=linear", f"{ACTOR}.clip_ratio_high=1"],
        ["algorithm=aspo", "shaping=sigmoid"],
        ["algorithm=gspo", "shaping=sigmoid"],
        ["algorithm=tr_grpo", f"{LOSS}.loss_mode=vanilla"],
    ],
)
def test_what_the_algorithm_leaves_open_is_not(overrides):
    assert findings(*overrides) == []
