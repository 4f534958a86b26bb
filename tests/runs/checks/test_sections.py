"""Sections that are empty, keys that were taken out, files that are no names: one clear error, and the rest is looked at."""

from pathlib import Path

import pytest

from tests.runs.validation import validate
from verl_trgrpo.common.findings import InvalidInputError, Level
from verl_trgrpo.runs.checks.sections import section_findings
from verl_trgrpo.runs.compose import compose

PUZZLES = Path(__file__).parents[3] / "recipes/knights_and_knaves/qwen2.5-3b-instruct.yaml"
ACTOR = "actor_rollout_ref.actor"


def findings(source="trgrpo_trainer", *overrides):
    run = compose(source, overrides)
    return section_findings(run.config, run.choices)


@pytest.mark.parametrize(
    "section",
    ["critic", "algorithm", "data", "trainer", "reward", "actor_rollout_ref",
     *(f"actor_rollout_ref.{name}" for name in ("model", "actor", "rollout", "actor.optim", "actor.policy_loss")),
     "trainer.v1"],
)  # fmt: skip
def test_an_empty_section_of_a_recipe_is_one_error(tmp_path, section):
    *parents, last = section.split(".")
    lines = [f"{'  ' * depth}{name}:" for depth, name in enumerate([*parents, last])]
    path = tmp_path / "mine.yaml"
    path.write_text("\n".join(["defaults: [ppo_trainer, _self_]", *lines]))
    [finding], mended = findings(path)
    assert (
        finding.where == section
        and f"{section} is empty, where veRL has a section with keys such as" in finding.message
    )
    run = compose(path)
    assert section_findings(mended, run.choices) == ([], mended)


@pytest.mark.parametrize(
    ("override", "where"),
    [
        ("~critic", "critic"),
        ("~reward", "reward"),
        ("~data.train_batch_size", "data.train_batch_size"),
        ("~trainer.save_freq", "trainer.save_freq"),
        (f"~{ACTOR}.optim", f"{ACTOR}.optim"),
        (f"{ACTOR}.optim=null", f"{ACTOR}.optim"),
        ("trainer=5", "trainer"),
        ("trainer.logger=5", "trainer.logger"),
        ("data.train_files={a:1}", "data.train_files"),
        ("data.train_files=5", "data.train_files"),
        ("data.val_files=[5,null]", "data.val_files"),
        ("data.val_files=['???']", "data.val_files"),
        ("data.val_files=['${nowhere}']", "data.val_files"),
        ("data.train_files=${nowhere}", "data.train_files"),
        ("actor_rollout_ref.model.path=null", "actor_rollout_ref.model.path"),
        ("actor_rollout_ref.model.path=5", "actor_rollout_ref.model.path"),
        ("trainer.default_local_dir=null", "trainer.default_local_dir"),
        ("trainer.default_local_dir=''", "trainer.default_local_dir"),
        ("data.prompt_key=[a]", "data.prompt_key"),
        ("data.prompt_key=null", "data.prompt_key"),
    ],
)
def test_what_was_taken_out_or_is_of_another_form_is_one_error_with_the_key(override, where):
    [finding], _ = findings("trgrpo_trainer", override)
    assert finding.level is Level.ERROR and finding.where == where and where in finding.message


@pytest.mark.parametrize(("given", "remedy"), [("power", "power"), ("nonsense", "sigmoid"), ("null", "sigmoid")])
def test_a_shaping_s_name_in_the_place_of_its_section_is_one_error_with_what_to_write(given, remedy):
    overrides = [f"{ACTOR}.policy_loss.shaping={given}"]
    [problem] = validate(PUZZLES, overrides, need_files=False).messages(Level.ERROR)
    assert overrides[0] in problem and f"write shaping={remedy}" in problem


def test_a_shaping_may_refer_to_a_section(tmp_path):
    lines = ["defaults: [trgrpo_trainer, _self_]", "mine: {_target_: verl_trgrpo.core.make_shaping, name: power}"]
    lines.append("actor_rollout_ref: {actor: {policy_loss: {shaping: '${mine}'}}}")
    (tmp_path / "mine.yaml").write_text("\n".join(lines))
    assert findings(tmp_path / "mine.yaml")[0] == []


@pytest.mark.parametrize("source", ["trgrpo_trainer", "ppo_trainer", "ppo_megatron_trainer"])
def test_what_is_null_in_verl_may_be_null(source):
    overrides = ["critic.enable=null", "trainer.logger=null", "data.train_files=[a,b]"]
    assert findings(source, *overrides)[0] == []


def test_a_group_is_no_section_to_be_set_on_the_command_line():
    with pytest.raises(InvalidInputError, match="name of an option"):
        compose(overrides=["critic=null"])


@pytest.mark.parametrize(
    "overrides",
    [["actor_rollout_ref=null"], ["~reward", "data.train_files=5"], ["~critic", "~data.train_batch_size"],
     ["actor_rollout_ref.actor=null", "actor_rollout_ref.rollout.max_model_len=x"]],
)  # fmt: skip
def test_the_rest_is_looked_at(overrides):
    report = validate(PUZZLES, [*overrides, "trainer.resume_mode=yes"], need_files=False)
    errors = report.messages(Level.ERROR)
    assert len(errors) == len(overrides) + 1 and any("resume_mode" in message for message in errors), errors
