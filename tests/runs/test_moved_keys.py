"""The table of keys that older scripts set: each place can be typed, each key is gone, and each has one answer."""

import re

import pytest
import yaml

from tests.pattern_steps import grows
from tests.work import counted
from verl_trgrpo.common.findings import InvalidInputError
from verl_trgrpo.runs.compose import compose
from verl_trgrpo.runs.keys import OLD_SECTIONS, flat, hint_of, moved_key, moved_keys, place_of
from verl_trgrpo.runs.overrides import setting_problems

# What a place needs to be there.
ENGINES = {
    "megatron": ["model_engine=megatron"],
    "lopti": ["algorithm=lopti"],
    "alpha": ["algorithm=advantage_reweighting_old"],
}
PLACES = {key: row.place for key, row in moved_keys().items() if row.place}


@pytest.fixture(scope="module")
def configurations():
    """Those of the trainer with each engine and algorithm that a place asks for."""
    return {name: compose(overrides=words).config for name, words in {"": [], **ENGINES}.items()}


@pytest.mark.parametrize(("key", "place"), PLACES.items())
def test_every_place_can_be_typed(key, place, configurations):
    part = next((name for name in ENGINES if f".{name}." in f"{place}."), "")
    known = [*flat(configurations[part])]
    assert key.endswith(".*") == place.endswith(".*")
    if place.endswith(".*"):
        section = place.removesuffix("*")
        assert any(each.startswith(section) for each in known) or section.startswith("reward.reward_kwargs.")
        return
    plus = "" if place in known else "+"
    assert not plus or place.startswith("actor_rollout_ref.rollout.custom.search."), place
    assert setting_problems(configurations[part], [f"{plus}{place}=null"], []) == []


# veRL's configurations still have them; its trainer reads their places.
LEFT_OVER = ("actor_rollout_ref.actor.grad_clip", "critic.grad_clip", "data.tokenizer")


def test_every_key_is_gone(configurations):
    known = {key for config in configurations.values() for key in flat(config)}
    there = {key for key in moved_keys() if key in known or any(f"{each}.".startswith(f"{key}.") for each in known)}
    assert {key for key in there if not key.startswith(OLD_SECTIONS)} == {*LEFT_OVER}


def test_every_row_without_a_place_says_why():
    for key, row in moved_keys().items():
        assert row.place or row.why, key
        assert not re.search(r"\bset it\b|[.;]$", row.why), key


def test_a_key_stands_once():
    from pathlib import Path

    import verl_trgrpo.runs.keys as keys

    content = yaml.safe_load((Path(keys.__file__).parent / "moved_keys.yaml").read_text())
    rows = [key for section in content.values() for key in section]
    assert len(rows) == len({*rows}) > 150


@pytest.mark.parametrize(
    ("key", "place"),
    [
        ("reward_model.reward_kwargs.mine.deep", "reward.reward_kwargs.mine.deep"),
        ("reward_model.overlong_buffer.len", "reward.reward_kwargs.overlong_buffer_cfg.len"),
        ("reward_model.rollout.name", "reward.reward_model.rollout.name"),
        ("reward_model.micro_batch_size", ""),
        ("critic.model.fsdp_config.param_offload", "critic.fsdp.param_offload"),
        ("critic.model.fsdp_config.grad_offload", ""),
        ("actor_rollout_ref.rollout.n_val", "actor_rollout_ref.rollout.val_kwargs.n"),
    ],
)
def test_the_more_special_row_counts(key, place):
    assert moved_key(key).place == place


def test_what_is_read_is_in_no_row():
    for key in (
        "actor_rollout_ref.rollout.n",
        "critic.fsdp.param_offload",
        "reward.reward_kwargs.max_resp_len",
        "trainer.nnodes",
    ):
        assert moved_key(key) is None


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("actor_rollout_ref.rollout.n_val=8", "did you mean actor_rollout_ref.rollout.val_kwargs.n?"),
        (
            "actor_rollout_ref.rollout.val_temperature=0.6",
            "did you mean actor_rollout_ref.rollout.val_kwargs.temperature?",
        ),
        ("retriever.url=URL", "did you mean +actor_rollout_ref.rollout.custom.search.url?"),
        ("actor_rollout_ref.actor.fsdp_config.grad_offload=true", "no counterpart, gradients"),
        ("actor_rollout_ref.actor.gvpo_beta=0.1", "no counterpart, GVPO"),
        ("worker.rollout.val_override_config.n=4", "did you mean actor_rollout_ref.rollout.val_kwargs.n?"),
        ("actor_rollout_ref.actor.learning_rate=1e-6", "did you mean actor_rollout_ref.actor.optim.lr?"),
        ("critic.learning_rate=1e-6", "did you mean critic.optim.lr?"),
        ("trainer.num_generations=8", "did you mean actor_rollout_ref.rollout.n?"),
        ("actor_rollout_ref.rollout.n_samples=8", "did you mean actor_rollout_ref.rollout.n?"),
        ("actor_rollout_ref.rollout.n_resp_per_prompt=8", "did you mean actor_rollout_ref.rollout.n?"),
        ("algorithm.clip_ratio=0.3", "did you mean actor_rollout_ref.actor.clip_ratio?"),
        ("data.temperature=0.6", "did you mean actor_rollout_ref.rollout.temperature?"),
    ],
)
def test_an_old_key_is_answered_by_the_table(word, said):
    with pytest.raises(InvalidInputError) as raised:
        compose("ppo_trainer", [word])
    assert said in str(raised.value) and "(+" not in str(raised.value).partition("adds")[2]


def test_spelling_counts_within_a_section_alone():
    known = [
        "reward.sandbox_fusion.url",
        "distillation.distillation_loss.topk",
        "actor_rollout_ref.actor.optim.betas",
        "data.seed",
    ]
    assert hint_of("fetcher.address.url", known) == ""
    assert hint_of("tool.topk", known) == hint_of("other.seed", known) == ""
    assert hint_of("data.sed", known) == "did you mean data.seed?"
    assert hint_of("actor_rollout_ref.actor.beta", known) == ""
    assert hint_of("actor_rollout_ref.actor.betas", known) == "did you mean actor_rollout_ref.actor.optim.betas?"
    assert hint_of("seed", known) == "did you mean data.seed?"


def test_an_option_of_a_part_that_is_switched_on_is_meant_from_around_the_part(configurations):
    known = flat(configurations[""])
    assert "actor_rollout_ref.actor.fsdp_config.qat.group_size" in known  # of a quantization
    assert hint_of("actor_rollout_ref.rollout.group_size", known).startswith(
        "did you mean actor_rollout_ref.rollout.n?"
    )
    assert hint_of("trainer.group_size", known) == ""
    meant = "actor_rollout_ref.rollout.multi_turn.max_parallel_calls"
    assert hint_of("actor_rollout_ref.rollout.max_parallel_calls", known) == f"did you mean {meant}?"


def test_a_misspelled_key_never_becomes_a_key_that_nothing_has(configurations):
    """Of the last word of each key two letters change places; what the hint asks for exists, and is nearly always that key."""
    known, right, tried = flat(configurations[""]), 0, 0
    for key in sorted(known):
        head, _, last = key.rpartition(".")
        middle = len(last) // 2
        wrong = f"{head}.{last[: middle - 1]}{last[middle]}{last[middle - 1]}{last[middle + 1 :]}"
        if not head or len(last) < 4 or last == "_target_" or wrong in known or wrong == key:
            continue
        asked = re.findall(r"did you mean \+?([\w.@-]+)\?", hint_of(wrong, known))
        assert all(each in known for each in asked), (wrong, asked)
        tried, right = tried + 1, right + (key in asked)
    assert tried > 500 and right > 0.8 * tried


@pytest.mark.parametrize(
    ("word", "said"),
    [
        # Another program's section: a name that veRL has elsewhere is not meant.
        ("actor_rollout_ref.agent_of_mine.max_prompt_length=1", "no counterpart is known"),
        ("mine.max_prompt_length=1", "no counterpart is known"),
        ("data.max_promt_length=1", "did you mean data.max_prompt_length?"),
        ("trainer.debug=1", "no counterpart is known"),
        ("reward_model.reward_kwargs.nosuch=1", "no counterpart, nothing in veRL reads reward.reward_kwargs.nosuch"),
        ("reward_model.reward_kwargs.max_resp_len=1", "did you mean +reward.reward_kwargs.max_resp_len?"),
        ("rollout.n_gpus_per_node=4", "did you mean actor_rollout_ref.rollout.n_gpus_per_node?"),
        ("async_training.trigger_parameter_sync_step=4", "trainer.v1.separate_async.parameter_sync_step?"),
        ("async_training.partial_rollout=true", "no counterpart, trainer.v1.trainer_mode=separate_async"),
    ],
)
def test_a_hint_is_given_for_what_has_a_reader_and_means_the_same(word, said):
    with pytest.raises(InvalidInputError) as raised:
        compose("ppo_trainer", [word, "trainer.nosuch=1"])
    [message] = [each for each in raised.value.messages if not each.startswith("trainer.nosuch")]
    assert said in message


def test_old_keys_that_verl_s_configuration_still_has_are_named_beside_the_unknown_ones():
    old = ["reward_model.enable=true", "actor_rollout_ref.actor.grad_clip=1.0"]
    with pytest.raises(InvalidInputError) as raised:
        compose("ppo_trainer", [*old, "trainer.nosuch=1"])
    assert [each.partition(":")[0] for each in raised.value.messages[1:]] == [each.partition("=")[0] for each in old]
    compose("ppo_trainer", old)  # alone, the check of the first stage names them


def test_a_key_of_many_parts_costs_no_more_than_its_length():
    with counted("verl_trgrpo.runs") as work:
        assert not grows(lambda size: work.of(place_of, "a." * (size // 2)))
