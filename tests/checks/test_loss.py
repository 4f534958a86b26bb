"""Clip range, inputs of shapings, weights inside the clip, and overrides that make an algorithm another one."""

import pytest

from tests.checks.validation import summary
from tests.conftest import composed
from verl_trgrpo.checks.algorithm import drift_findings, loss_findings
from verl_trgrpo.checks.view import RunView
from verl_trgrpo.common.findings import Level

ACTOR = "actor_rollout_ref.actor"
LOSS = f"{ACTOR}.policy_loss"
INPUTS = "tests.verl_plugin.input_shapings"


def findings(sound_run, *overrides):
    """Of two updates per batch; what one would leave without effect is in test_idle_words."""
    return loss_findings(RunView(composed([*sound_run, f"{ACTOR}.ppo_mini_batch_size=4", *overrides])))


def test_every_mistake_is_an_error_of_its_own(sound_run):
    wrong = [
        f"{ACTOR}.clip_ratio_low=2", f"{ACTOR}.clip_ratio_c=0.5", f"{ACTOR}.use_kl_loss=true", f"{ACTOR}.kl_loss_type=abs",
        f"{LOSS}.kl=scaled", "shaping=top_entropy",
        f"{ACTOR}.calculate_entropy=false",
    ]  # fmt: skip
    found = findings(sound_run, *wrong)
    keys = [ACTOR, ACTOR, f"{ACTOR}.calculate_entropy", ACTOR]
    assert summary(found) == [(key, Level.ERROR) for key in keys]
    for value, finding in zip(("clip_ratio_low=2", "clip_ratio_c=0.5", "false", "abs"), found, strict=True):
        assert value in finding.message


@pytest.mark.parametrize(
    ("key", "overrides", "remedy"),
    [
        (f"{ACTOR}.calculate_entropy", ["algorithm=aspo_entropy_clip", f"{ACTOR}.calculate_entropy=false"], []),
        (
            f"{ACTOR}.use_kl_loss",
            [f"{LOSS}.shaping.name={INPUTS}.towards_the_reference"],
            [f"{ACTOR}.use_kl_loss=true"],
        ),
        (
            "trainer.v1.sampler.sampler_kwargs.success_rate",
            [f"{LOSS}.shaping.name={INPUTS}.hard_prompts", "trainer.v1.sampler.sampler_kwargs.success_rate=false"],
            ["trainer.v1.sampler.sampler_kwargs.success_rate=true"],
        ),
        (
            "actor_rollout_ref.rollout.calculate_log_probs",
            [f"{LOSS}.shaping.name={INPUTS}.icepop", "actor_rollout_ref.rollout.calculate_log_probs=false"],
            ["actor_rollout_ref.rollout.calculate_log_probs=true"],
        ),
    ],
)
def test_an_input_that_the_run_does_not_compute_is_an_error(sound_run, key, overrides, remedy):
    given = [*overrides, "shaping=custom"] if "shaping" in overrides[0] else overrides
    [finding] = findings(sound_run, *given)
    assert (finding.where, finding.level) == (key, Level.ERROR) and f"{key}=" in finding.message
    given = [override for override in given if not override.startswith(key)]
    assert findings(sound_run, *given, *remedy) == []


def test_a_success_rate_before_v1_is_an_error_although_its_key_is_set(sound_run):
    """The older trainer does not read that key, says the table of keys (unread_keys.yaml)."""
    own = ["shaping=custom", f"{LOSS}.shaping.name={INPUTS}.hard_prompts"]
    assert findings(sound_run, *own) == []
    [finding] = findings(sound_run, *own, "trainer.use_v1=false")
    assert finding.level is Level.ERROR and finding.where == "trainer.v1.sampler.sampler_kwargs.success_rate"
    assert "v1 trainer" in finding.message


def test_probabilities_that_the_clip_silences_are_a_warning(sound_run):
    clip = [f"{ACTOR}.clip_ratio_low=0.2", f"{ACTOR}.clip_ratio_high=0.24"]
    [finding] = findings(sound_run, f"{LOSS}.placement=inside", *clip)
    assert (finding.where, finding.level) == (f"{LOSS}.placement", Level.WARNING)
    # w = clip(2 (sigmoid(9 p) - 0.25), 1, 1.4) is above 1.24 from p = 0.212.
    assert "[0.8, 1.24]" in finding.message and "0.212 to 1.000 and A > 0" in finding.message
    assert findings(sound_run, *clip) == []


def test_the_lower_bound_of_cispo_may_be_out_of_reach(sound_run):
    given = (f"{ACTOR}.clip_ratio_low=10", f"{ACTOR}.clip_ratio_high=0.2", "algorithm=grpo")
    assert findings(sound_run, *given, f"{LOSS}.loss_mode=cispo") == []
    assert len(findings(sound_run, *given)) == 1


@pytest.mark.parametrize(
    ("algorithm", "refused"),
    [
        ("lopti", {f"{ACTOR}.loss_agg_mode": "seq-mean-token-mean"}),
        ("lopti", {f"{ACTOR}.policy_loss.loss_mode": "gspo"}),
    ],
)
def test_what_two_passes_do_not_allow_is_refused(sound_run, algorithm, refused):
    given = [f"{key}={value}" for key, value in refused.items()]
    found = findings(sound_run, f"algorithm={algorithm}", *given)
    assert summary(found) == [(ACTOR, Level.ERROR)] * len(refused)
    assert all(pair.rpartition(".")[2] in finding.message for pair, finding in zip(given, found, strict=True))
    assert findings(sound_run, f"algorithm={algorithm}") == findings(sound_run, "algorithm=grpo", *given) == []


def drift(*overrides):
    return drift_findings(RunView(composed(overrides)))


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
        ("tr_dapo", f"{LOSS}.loss_mode=aspo", ["tr_grpo"]),
        ("ha_dw", "algorithm.ha_dw.scale=2.0", ["1.3"]),
        ("cppo", f"{ACTOR}.clip_ratio_high=5", ["10000"]),
    ],
)
def test_another_value_than_the_algorithm_sets_is_a_warning(algorithm, override, parts):
    [finding] = drift(f"algorithm={algorithm}", override)
    assert finding.level is Level.WARNING and finding.where == override.partition("=")[0]
    assert all(part in finding.message for part in (override, f"algorithm={algorithm}", *parts)), finding.message
    assert drift(f"algorithm={algorithm}") == []


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
    assert drift(*overrides) == []
