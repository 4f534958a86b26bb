"""What takes an algorithm's own point away, and what veRL's estimators cannot do."""

import pytest

from verl_trgrpo.common.findings import Level
from verl_trgrpo.runs.checks.algorithm import algorithm_findings
from verl_trgrpo.runs.compose import compose

ACTOR = "actor_rollout_ref.actor"


def findings(*overrides):
    run = compose(overrides=overrides)
    return algorithm_findings(run.config, run.choices.get("algorithm"))


@pytest.mark.parametrize(
    ("algorithm", "override", "like"),
    [
        ("dapo_clip", f"{ACTOR}.clip_ratio_high=0.2", "grpo"),
        ("dr_grpo", "algorithm.norm_adv_by_std_in_grpo=true", "grpo"),
        ("tr_grpo_published", f"{ACTOR}.policy_loss.placement=outside", "tr_grpo"),
        ("tr_grpo_token_mean", f"{ACTOR}.policy_loss.normalize=none", "tr_grpo"),
        ("tr_grpo_reverse", f"{ACTOR}.policy_loss.shaping.reverse=false", "tr_grpo"),
        ("reinforce_rej", "algorithm.adv_estimator=grpo", "grpo"),
    ],
)
def test_an_override_that_makes_it_another_algorithm_is_a_warning(algorithm, override, like):
    [finding] = findings(f"algorithm={algorithm}", override)
    assert finding.level is Level.WARNING and finding.where == override.partition("=")[0]
    assert f"algorithm={algorithm} means" in finding.message and f"algorithm={like}" in finding.message
    assert findings(f"algorithm={algorithm}") == []


@pytest.mark.parametrize(
    ("algorithm", "override", "values"),
    [
        ("dapo_clip", f"{ACTOR}.clip_ratio_high=null", ("0.28", "null")),
        ("dapo_clip", f"{ACTOR}.clip_ratio_high=0.3", ("0.28", "0.3")),
        ("dapo_clip", f"{ACTOR}.loss_agg_mode=seq-mean-token-mean", ("token-mean", "seq-mean-token-mean")),
        ("grpo", "algorithm.adv_estimator=rloo", ("grpo", "rloo")),
        ("grpo", f"{ACTOR}.policy_loss.loss_mode=gspo", ("vanilla", "gspo")),
        ("tr_dapo_clip", f"{ACTOR}.policy_loss.loss_mode=aspo", ("tr_grpo", "aspo")),
        ("dr_grpo", f"{ACTOR}.loss_scale_factor=7", ("512", "7")),
        ("ha_dw", "algorithm.ha_dw.scale=2.0", ("1.0", "2.0")),
    ],
)
def test_another_value_than_the_algorithm_s_own_is_a_warning_with_both(algorithm, override, values):
    [finding] = findings(f"algorithm={algorithm}", override)
    key = override.partition("=")[0]
    assert finding.level is Level.WARNING and finding.where == key
    assert f"means {key}={values[0]}, but the run has {values[1]};" in finding.message


@pytest.mark.parametrize("algorithm", ["grpo", "tr_grpo", "dr_grpo"])
@pytest.mark.parametrize(
    ("override", "usual"), [(f"{ACTOR}.clip_ratio_high=5", "0.28"), (f"{ACTOR}.optim.lr=0.02", "1e-6")]
)
def test_a_clip_and_a_rate_that_hold_nothing_back_are_warnings(algorithm, override, usual):
    [finding] = findings(f"algorithm={algorithm}", override)
    assert finding.level is Level.WARNING and finding.where == override.partition("=")[0]
    assert override in finding.message and usual in finding.message


@pytest.mark.parametrize(
    "overrides",
    [["algorithm=cppo"], [f"{ACTOR}.clip_ratio_high=1"], [f"{ACTOR}.optim.lr=0.01"],
     [f"{ACTOR}.optim.optimizer=SGD", f"{ACTOR}.optim.lr=1"]],
)  # fmt: skip
def test_bounds_that_are_meant_are_none(overrides):
    assert findings(*overrides) == []


def test_the_bound_of_a_loss_that_has_another_kind_of_it_is_left_alone():
    run = compose("ppo_trainer", [f"{ACTOR}.policy_loss.loss_mode=cispo", f"{ACTOR}.clip_ratio_high=5"])
    assert algorithm_findings(run.config, None) == []


def test_a_bound_that_replaces_the_algorithm_s_own_is_one_warning():
    [finding] = findings("algorithm=cppo", f"{ACTOR}.clip_ratio_high=5")
    assert "algorithm=cppo means" in finding.message


def test_what_the_algorithm_leaves_open_is_none():
    assert findings("algorithm=dr_grpo", "data.max_response_length=7") == []
    assert findings("algorithm=tr_grpo", f"{ACTOR}.policy_loss.placement=inside", "shaping=linear") == []
    assert findings("algorithm=aspo", "shaping=sigmoid") == []


def test_preference_feedback_pairs_advantages_wrongly():
    pf = "algorithm.use_pf_ppo=true"
    # In veRL only its branch for gae reads the switch.
    assert findings("algorithm=grpo", pf)[0].level is Level.WARNING
    finding, _ = findings("algorithm=grpo", pf, "algorithm.adv_estimator=gae")
    assert finding.level is Level.ERROR and "other responses" in finding.message
    legacy = findings("algorithm=grpo", pf, "algorithm.adv_estimator=gae", "trainer.use_v1=false")
    assert [finding.where for finding in legacy] == ["algorithm.adv_estimator"]
