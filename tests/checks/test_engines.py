"""Rules that are no matter of the engine hold with each of them; sizes are asked of the keys that the engine has."""

import json

import pytest

from tests.checks import test_rules, test_switches
from tests.checks.validation import summary
from tests.conftest import composed
from verl_trgrpo.checks.rules import RULES
from verl_trgrpo.checks.sizes import LENGTHS, SIZES, head_findings, micro_batch_findings, token_findings
from verl_trgrpo.checks.switches import SWITCHES
from verl_trgrpo.checks.tables import Condition, rule_findings
from verl_trgrpo.checks.view import SPLITS, RunView
from verl_trgrpo.common.findings import Level
from verl_trgrpo.runs.keys import flat

ACTOR, REF, ROLLOUT, MODEL = (f"actor_rollout_ref.{name}" for name in ("actor", "ref", "rollout", "model"))
ENGINES = ("megatron", "torchtitan", "veomni")
# 64 prompts of 8 responses, 32 prompts an update, 8 GPUs, of which 2 share a response.
SOUND = [
    "data.train_batch_size=64", f"{ACTOR}.ppo_mini_batch_size=32", f"{ROLLOUT}.n=8", "trainer.n_gpus_per_node=8",
    f"{ACTOR}.use_dynamic_bsz=false", f"{ROLLOUT}.log_prob_use_dynamic_bsz=false", f"{ACTOR}.ppo_micro_batch_size_per_gpu=8",
    f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu=8", f"{ROLLOUT}.tensor_model_parallel_size=2",
]  # fmt: skip
TWO = {
    "dp": [f"{ACTOR}.ulysses_sequence_parallel_size=2"],
    "megatron": [f"{ACTOR}.megatron.tensor_model_parallel_size=2"],
    "torchtitan": [f"{ACTOR}.torchtitan.tensor_parallel_size=2", f"{ACTOR}.torchtitan.data_parallel_shard_size=4"],
    "veomni": [f"{ACTOR}.veomni.ulysses_parallel_size=2"],
}


def is_of_fsdp(rule, overrides, engine):
    """Return whether a row asks which engine it is, or reads what FSDP's configuration has and that of the engine lacks."""
    fsdp, other = (flat(composed([f"model_engine={each}"]).config) for each in ("dp", engine))
    keys = {each.lstrip("+").partition("=")[0] for each in overrides}
    for text in (rule.needs, rule.asked or rule.key):
        keys |= {*Condition(text).keys}
    return f"{ACTOR}.strategy" in keys or bool(keys & (fsdp.keys() - other.keys()))


def view_of(engine, *overrides):
    return RunView(composed([f"model_engine={engine}", *SOUND, *TWO[engine], *overrides]))


def findings(view):
    tables = rule_findings(view, RULES | SIZES | LENGTHS | SWITCHES)
    return [*tables, *micro_batch_findings(view), *head_findings(view), *token_findings(view)]


@pytest.mark.parametrize("engine", ENGINES)
def test_rules_hold_with_every_engine_that_has_their_settings(engine, tiny_run):
    cases = {name: overrides for name, (overrides, *_) in test_rules.CASES.items()}
    for name, (setting, _) in test_switches.CASES.items():
        cases[name] = [setting, *test_switches.GIVEN.get(setting.lstrip("+").partition("=")[0], [])]
    held = 0
    for name, overrides in cases.items():
        rule = RULES.get(name) or SWITCHES[name]
        given = [each.replace("{train}", f"{tiny_run}/train.parquet") for each in overrides]
        if not is_of_fsdp(rule, given, engine):
            assert rule.findings(RunView(composed([f"model_engine={engine}", *given]))), name
            held += 1
    assert held > 0.85 * len(cases)
    assert findings(view_of(engine)) == []


@pytest.mark.parametrize("engine", TWO)
@pytest.mark.parametrize(
    ("plant", "where", "level"),
    [
        (f"{ACTOR}.ppo_mini_batch_size=4096", f"{ACTOR}.ppo_mini_batch_size", Level.ERROR),
        (f"{ACTOR}.ppo_mini_batch_size=24", f"{ACTOR}.ppo_mini_batch_size", Level.WARNING),
        (f"{ACTOR}.ppo_micro_batch_size_per_gpu=7", f"{ACTOR}.ppo_micro_batch_size_per_gpu", Level.ERROR),
        (f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu=6", f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu", Level.ERROR),
        (f"{ROLLOUT}.tensor_model_parallel_size=3", f"{ROLLOUT}.tensor_model_parallel_size", Level.ERROR),
        (f"{ACTOR}.optim.lr=1.0", f"{ACTOR}.optim.lr", Level.WARNING),
        (f"{ROLLOUT}.n=1", f"{ROLLOUT}.n", Level.ERROR),
        (f"{ROLLOUT}.max_model_len=512", f"{ROLLOUT}.max_model_len", Level.ERROR),
    ],
)
def test_a_planted_mistake_is_named_with_every_engine(engine, plant, where, level):
    assert (where, level) in summary(findings(view_of(engine, plant)))


@pytest.mark.parametrize(
    ("engine", "key", "size"),
    [
        ("dp", "ulysses_sequence_parallel_size", 3),
        ("megatron", "megatron.tensor_model_parallel_size", 3),
        ("megatron", "megatron.pipeline_model_parallel_size", 3),
        ("megatron", "megatron.context_parallel_size", 8),
        ("torchtitan", "torchtitan.pipeline_parallel_size", 3),
        ("veomni", "veomni.ulysses_parallel_size", 3),
    ],
)
def test_gpus_that_share_a_response_divide_all_gpus(engine, key, size):
    [found] = findings(view_of(engine, f"{ACTOR}.{key}={size}"))
    assert found.level is Level.ERROR and "8 GPUs" in found.message and f"{key}={size}" in found.message


@pytest.mark.parametrize(
    "given",
    ["tensor_model_parallel_size=4", "pipeline_model_parallel_size=2", "context_parallel_size=2", "expert_model_parallel_size=2",
     "dynamic_context_parallel=true"],
)  # fmt: skip
def test_the_reference_model_has_megatrons_groups_of_the_actor(given):
    """veRL's engine returns early where another one of the process, the reference model's, has made the groups."""
    own, reference = (
        f"{REF}.megatron.{given}",
        [f"{ACTOR}.use_kl_loss=true", f"{REF}.log_prob_micro_batch_size_per_gpu=8"],
    )
    [found] = findings(view_of("megatron", own, *reference))
    assert found.where == own.partition("=")[0] and found.level is Level.ERROR
    assert [each.level for each in findings(view_of("megatron", own))] == [Level.WARNING]  # there is no reference model
    assert findings(view_of("megatron", *reference)) == []


def test_torchtitan_is_told_all_gpus():
    [found] = findings(view_of("torchtitan", f"{ACTOR}.torchtitan.data_parallel_shard_size=1"))
    assert f"{ACTOR}.torchtitan.data_parallel_shard_size=4" in found.message


@pytest.mark.parametrize("engine", TWO)
def test_responses_are_split_over_the_groups_of_the_engine(engine):
    """Twelve GPUs are six groups of two: 32 x 8 responses cannot be split over them, 96 x 8 can."""
    twelve = ["trainer.n_gpus_per_node=12", f"{ROLLOUT}.tensor_model_parallel_size=1"]
    twelve += [f"{ACTOR}.torchtitan.data_parallel_shard_size=6"] if engine == "torchtitan" else []
    [found] = findings(view_of(engine, *twelve))
    assert found.where == f"{ACTOR}.ppo_mini_batch_size" and "6 data-parallel groups" in found.message
    more = ["data.train_batch_size=96", f"{ACTOR}.ppo_mini_batch_size=96"]
    assert findings(view_of(engine, *twelve, *more)) == []


@pytest.mark.parametrize(("engine", "heads", "named"), [(each, 7, 2) for each in TWO] + [(each, 8, 0) for each in TWO])
def test_heads_are_shared_by_the_gpus_of_the_engine_and_of_the_rollout(engine, heads, named, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"num_attention_heads": heads, "num_key_value_heads": heads}))
    assert len(head_findings(view_of(engine, f"{MODEL}.path={tmp_path}"))) == named


def test_a_micro_batch_holds_the_longest_sequence_over_the_gpus_that_share_its_tokens():
    given = [f"{ACTOR}.use_dynamic_bsz=true", f"{ACTOR}.ppo_max_token_len_per_gpu=800", "data.max_prompt_length=512"]
    given += ["data.max_response_length=1024", f"{ROLLOUT}.log_prob_use_dynamic_bsz=false"]
    [found] = token_findings(view_of("megatron", *given))
    assert found.where == f"{ACTOR}.ppo_max_token_len_per_gpu"
    assert token_findings(view_of("megatron", *given, f"{ACTOR}.megatron.context_parallel_size=2")) == []
    assert token_findings(view_of("veomni", *given)) == []


def test_an_engine_that_is_not_known_is_not_checked():
    assert "automodel" not in SPLITS
    found = findings(view_of("dp", f"{ACTOR}.strategy=automodel"))
    assert (f"{ACTOR}.strategy", Level.NOT_CHECKED) in summary(found)
