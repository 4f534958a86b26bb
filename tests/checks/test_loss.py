"""Clip range, inputs of shapings, and weights inside the clip."""

import pytest

from tests.checks.validation import summary
from tests.conftest import composed
from verl_trgrpo.checks.loss import loss_findings
from verl_trgrpo.checks.view import RunView
from verl_trgrpo.common.findings import Level

ACTOR = "actor_rollout_ref.actor"
LOSS = f"{ACTOR}.policy_loss"
INPUTS = "tests.verl_plugin.input_shapings"


def findings(sound_run, *overrides):
    return loss_findings(RunView(composed([*sound_run, *overrides])))


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
    ],
)
def test_an_input_that_the_run_does_not_compute_is_an_error(sound_run, key, overrides, remedy):
    given = [*overrides, "shaping=custom"] if "shaping" in overrides[0] else overrides
    [finding] = findings(sound_run, *given)
    assert (finding.where, finding.level) == (key, Level.ERROR) and f"{key}=" in finding.message
    given = [override for override in given if not override.startswith(key)]
    assert findings(sound_run, *given, *remedy) == []


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
