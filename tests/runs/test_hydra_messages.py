"""Hydra's errors are one line with what was meant."""

import importlib.util
import re
from pathlib import Path

import pytest

from tests.conftest import composed
from verl_trgrpo.common.findings import InvalidInputError
from verl_trgrpo.runs.compose import compose
from verl_trgrpo.runs.other_methods import OTHER_METHODS

LOSS = "actor_rollout_ref.actor.policy_loss"
DOCS = Path(__file__).parents[2] / "docs"


def message_of(source, *overrides):
    [message] = messages_of(source, *overrides)
    assert "\n" not in message
    return message


def messages_of(source, *overrides):
    with pytest.raises(InvalidInputError) as caught:
        compose(source, overrides)
    return caught.value.messages


@pytest.mark.parametrize(
    ("overrides", "parts"),
    [
        (["trainer.total_epoch=2"], ["trainer.total_epoch:", "trainer.total_epochs?"]),
        (["actor_rollout_ref.actor.lr=1"], ["actor_rollout_ref.actor.optim.lr?"]),
        (["algoritm=tr_grpo"], ["algorithm?"]),
        # A parameter of another shaping: those of the chosen one.
        (["shaping=power", f"{LOSS}.shaping.tau=3", "trainer.nnodes=2"], [f"{LOSS}.shaping.tau:", "gamma, lower"]),
        (["platform=gpu"], ["platform=gpu:", "accelerator?"]),
        (["algorithm=trgrpo"], ["algorithm=trgrpo:", "tr_grpo?"]),
        (["algorithm=xyz"], ["algorithm=xyz:", "dapo_clip"]),
        (["data.train_batch_size"], ["data.train_batch_size=..."]),
        (["trainer.logger=console,wandb"], ["trainer.logger=[console,wandb]"]),
        (["critic=null"], ["critic.enable=false"]),
        (["algorithm=grpo,tr_grpo"], ["algorithm=grpo,tr_grpo:", "a run for each"]),
        (["algorithm=[grpo,tr_grpo]"], ["one option", "a run for each"]),
        (["+algorithm=grpo"], ["without the plus"]),
        (["data.train_files=~/x.parquet"], ["data.train_files=~/x.parquet:", "$HOME"]),
        (["shaping=cosine"], ["shaping=custom", f"{LOSS}.shaping.name=cosine"]),
        (["data={train_batch_sizes: 4}"], ["data.train_batch_sizes:", "data.train_batch_size?"]),
    ],
)
def test_a_wrong_override(overrides, parts):
    message = message_of("trgrpo_trainer", *overrides)
    assert all(part in message for part in parts), message


def test_a_key_that_the_chosen_groups_lack_is_not_its_own_fix():
    assert f"did you mean {LOSS}.placement?" not in message_of(
        "trgrpo_trainer", "algorithm=grpo", f"{LOSS}.placement=inside"
    )


def test_all_unknown_keys_are_named_at_once(tmp_path):
    """With suggestions that exist, and none for a last part that every section has."""
    unknown = [
        "trainer.nope=1",
        "algoritm=x",
        "reward_model.launch_reward_fn_async=true",
        "critic.adaptive.enabled=true",
    ]
    (tmp_path / "mine.yaml").write_text("defaults: [trgrpo_trainer, _self_]")
    for source in ("trgrpo_trainer", tmp_path / "mine.yaml"):
        found = messages_of(source, "+trainer.mine=1", *unknown, "trainer.mine=2", "~trainer.nnodes")
        assert [each.partition(":")[0] for each in found] == [word.partition("=")[0] for word in unknown]
        assert ["did you mean" in each for each in found] == [False, True, False, False]


@pytest.mark.parametrize("name", OTHER_METHODS)
def test_a_method_without_a_word_is_answered(name):
    answer = message_of("trgrpo_trainer", f"algorithm={name.lower().replace('-', '_').replace(' ', '_')}")
    assert OTHER_METHODS[name].answer in answer


@pytest.mark.parametrize("name", [name for name, method in OTHER_METHODS.items() if re.search(r"=\w", method.answer)])
def test_what_an_answer_proposes_composes(name):
    words = re.findall(r"\b[\w.]+=\w+", OTHER_METHODS[name].answer)
    run = composed(words, "trgrpo_trainer")
    chosen = run.config.actor_rollout_ref.actor.policy_loss.get("shaping", {}).get("name")
    assert all(word.partition("=")[2] == chosen for word in words if word.startswith("shaping="))


@pytest.fixture(scope="module")
def maker():
    spec = importlib.util.spec_from_file_location("make_methods", DOCS / "make_methods.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_of_other_methods_is_made_of_the_table(maker):
    page = maker.PAGE.read_text()
    assert maker.made(page) == page
    rows = dict(re.findall(r"^\| ([^|]+) \| [^|]+ \| ([^|]+) \|.*compared \d{4}-\d\d-\d\d", page, re.MULTILINE))
    assert rows == {name: maker.kind(method) for name, method in OTHER_METHODS.items() if method.trainers}
    assert all(
        name in rows or f"**{name}** {method.answer.split()[0]}" in page for name, method in OTHER_METHODS.items()
    )


@pytest.mark.parametrize("name", OTHER_METHODS)
def test_an_answer_has_a_day_and_a_no_has_its_program_or_what_was_looked_at(name, maker):
    method = OTHER_METHODS[name]
    assert re.fullmatch(r"2026-\d\d-\d\d", method.compared) and method.source
    if method.program:
        file, _, test = method.program.partition("::")
        assert f"def {test}(" in (DOCS.parent / file).read_text()
    elif maker.kind(method) == "no":
        assert re.search(r" at [0-9a-f]{7}\b|found|not a loss", f"{method.answer} {method.source}")


def test_the_words_that_the_page_names_beside_the_table_exist(maker):
    [named] = re.findall(r"\(((?:\w+, )+\w+ and CPPO) are names", maker.PAGE.read_text())
    for name in re.findall(r"\w+", named.replace(" and", "")):
        word = {"dppo": "dppo_tv"}.get(name.lower(), name.lower())
        assert composed([f"algorithm={word}"], "trgrpo_trainer")


def test_a_word_in_capitals_is_meant():
    assert "did you mean raft?" in message_of("trgrpo_trainer", "algorithm=RAFT")


@pytest.mark.parametrize(
    ("defaults", "parts"),
    [
        ("[ppo_trainr, _self_]", ["ppo_trainr", "ppo_trainer?"]),
        ("[ppo_trainer, bas, _self_]", ["bas", "base?"]),
        ("[ppo_trainer, zebra, _self_]", ["zebra", "does not exist"]),
        ("[ppo_trainer, {algoritm: tr_grpo}, _self_]", ["algoritm", "algorithm?"]),
        ("[ppo_trainer, {algorithm: tr_grp}, _self_]", ["algorithm=tr_grp:", "tr_grpo?"]),
        ("ppo_trainer", ["[ppo_trainer, _self_]"]),
        ("[mine]", ["mine", "includes itself"]),
    ],
)
def test_a_wrong_defaults_list(tmp_path, defaults, parts):
    (tmp_path / "base.yaml").write_text("a: 1")
    (tmp_path / "mine.yaml").write_text(f"defaults: {defaults}")
    message = message_of(tmp_path / "mine.yaml")
    assert all(part in message for part in parts), message


@pytest.mark.parametrize("content", [b"a: \xe9", b"", b"5", b"- a", b"a: [1, {", b"data: {train_batch_size: 8}"])
def test_a_file_that_is_not_a_whole_recipe_is_named(tmp_path, content):
    (tmp_path / "mine.yaml").write_bytes(content)
    assert "mine" in message_of(tmp_path / "mine.yaml")


@pytest.mark.parametrize("source", ["trgrpo", "nowhere.yml", "recipes/nowhere/x.yaml", "recipes/search_qa/qwen2.5-3b"])
def test_a_source_that_does_not_exist_is_named(source):
    assert source in message_of(source)
