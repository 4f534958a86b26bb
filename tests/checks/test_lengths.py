"""Lengths against the model, the micro-batches and the prompts."""

import json
import shutil
from pathlib import Path

import pytest

from tests.checks.validation import summary
from tests.conftest import composed
from tests.data.checked_files import user, write
from verl_trgrpo.checks import data_files
from verl_trgrpo.checks.data_files import first_prompt, length_findings, turn_findings
from verl_trgrpo.checks.sizes import LENGTHS, token_findings
from verl_trgrpo.checks.tables import rule_findings
from verl_trgrpo.checks.view import RunView
from verl_trgrpo.common.findings import Level
from verl_trgrpo.demos.puzzles import CHECKPOINT

ACTOR, ROLLOUT, REF = (f"actor_rollout_ref.{name}" for name in ("actor", "rollout", "ref"))
LIMIT, MODEL = "data.max_prompt_length", f"actor_rollout_ref.model.path={CHECKPOINT}"
FILTER, NO_FILTER = "data.filter_overlong_prompts=true", "data.filter_overlong_prompts=false"


def findings(*overrides, source="trgrpo_trainer"):
    view = RunView(composed(overrides, source))
    return [*rule_findings(view, LENGTHS), *token_findings(view), *length_findings(view)]


def shown_prompt(*overrides):
    return first_prompt(RunView(composed(overrides)))


def test_lengths_that_do_not_fit_are_errors_at_once():
    longest = json.loads((Path(CHECKPOINT) / "config.json").read_text())["max_position_embeddings"]
    tokens = [
        f"{ACTOR}.ppo_max_token_len_per_gpu", f"{ROLLOUT}.log_prob_max_token_len_per_gpu",
        f"{REF}.log_prob_max_token_len_per_gpu",
    ]  # fmt: skip
    overrides = [
        MODEL, FILTER, f"{LIMIT}=400", "data.max_response_length=8192", f"{ROLLOUT}.max_model_len=4496",
        f"{ACTOR}.use_kl_loss=true", f"{ACTOR}.use_dynamic_bsz=true", f"{ROLLOUT}.log_prob_use_dynamic_bsz=true",
        f"{REF}.log_prob_use_dynamic_bsz=true", *(f"{key}=4000" for key in tokens),
    ]  # fmt: skip
    found = [finding for finding in findings(*overrides) if finding.level is Level.ERROR]
    limit = f"{ROLLOUT}.max_model_len"
    assert [finding.where for finding in found] == [limit, "data.max_response_length", limit, *tokens]
    for finding, part in zip(found, ("8592", str(longest), str(longest), "8592", "8592", "8592"), strict=True):
        assert part in finding.message, finding.message


def chat(words, **columns):
    return {"prompt": words and user("Alice " * words), **columns}


@pytest.fixture
def prompts(tmp_path):
    """``prompts(words, *overrides)``: findings about prompts of so many words, or rows, in training and validation files."""

    def of(words, *overrides):
        write(tmp_path / "data.parquet", [each if isinstance(each, dict) else chat(each) for each in words])
        files = [f"data.{split}_files={tmp_path}/data.parquet" for split in ("train", "val")]
        return findings(
            *files, MODEL, f"{LIMIT}=20", "data.max_response_length=20", "data.train_batch_size=1", *overrides
        )

    return of


def test_prompts_that_fit(prompts):
    assert prompts([3, 5, 8]) == []


@pytest.mark.parametrize(
    ("words", "overrides", "level", "part"),
    [
        ([3, 5, 300], [FILTER], Level.WARNING, "1 of 3"),
        ([300, 400], [FILTER], Level.ERROR, "2 of 2"),
        ([3, 300], [NO_FILTER], Level.ERROR, "1 of 2"),
        ([3, 300], [NO_FILTER, "data.truncation=left"], Level.WARNING, "1 of 2"),
        ([3, 300], [NO_FILTER, "data.truncation=right"], Level.ERROR, "data.truncation=right"),
        ([3] * 30 + [300] * 30, [FILTER], Level.WARNING, "20 of 40"),
        ([3] * 60, [FILTER], Level.NOT_CHECKED, "40 of the 60"),
    ],
)
def test_prompts_that_do_not(prompts, words, overrides, level, part, monkeypatch):
    monkeypatch.setattr(data_files, "_MOST", 40)
    found = prompts(words, *overrides)
    assert summary(found) == [(LIMIT, level)] * 2 and all(part in finding.message for finding in found)


def test_a_filter_that_leaves_less_than_a_step_is_an_error_of_the_training_files(prompts):
    found = prompts([3] * 30 + [300] * 20, FILTER, "data.train_batch_size=40")
    assert summary(found) == [(LIMIT, Level.ERROR), (LIMIT, Level.WARNING)]
    assert "30" in found[0].message and "data.train_batch_size=40" in found[0].message


def test_prompts_that_are_not_chats_are_left_to_the_questions_about_rows(prompts):
    assert prompts([1, None, None]) == []


def test_files_of_one_key_are_one_data_set(tmp_path, prompts):
    write(tmp_path / "short.parquet", [chat(3)])
    [train, _] = prompts([300], f"data.train_files=[{tmp_path}/short.parquet,{tmp_path}/data.parquet]", FILTER)
    assert train.level is Level.WARNING and "1 of 2" in train.message


def test_without_a_tokenizer_prompts_are_not_checked(prompts):
    model = "actor_rollout_ref.model.path=some/model"
    assert summary(prompts([3, 300], model, FILTER)) == [(LIMIT, Level.NOT_CHECKED)]
    assert summary(prompts([3, 300], model, NO_FILTER)) == [
        (LIMIT, Level.NOT_CHECKED), ("data.filter_overlong_prompts", Level.WARNING),
    ]  # fmt: skip


OWN = (
    "{% for m in messages %}{{ m.content }}{% endfor %}{% for t in tools or [] %}{{ t.function.name }}{% endfor %}"
    "{% if enable_thinking is defined and not enable_thinking %}{% for i in range(40) %}x{% endfor %}{% endif %}"
)
OWN = f"actor_rollout_ref.model.custom_chat_template='{OWN}'"
THINKING = "+data.apply_chat_template_kwargs.enable_thinking=false"


@pytest.mark.parametrize("filtered", [FILTER, NO_FILTER])
def test_options_of_the_chat_template_count(prompts, filtered):
    assert prompts([3, 5], OWN, filtered) == []
    found = prompts([3, 5], OWN, THINKING, filtered)
    assert summary(found) == [(LIMIT, Level.ERROR)] * 2 and all("2 of 2" in finding.message for finding in found)


def test_tools_count_where_verl_lists_them(prompts, tmp_path):
    name = "long_" * 20
    schema = {
        "type": "function",
        "function": {"name": name, "description": "", "parameters": {"type": "object", "properties": {}}},
    }
    tools = {
        "tools": [{"class_name": "verl.tools.base_tool.BaseTool", "config": {"type": "native"}, "tool_schema": schema}]
    }
    (tmp_path / "tools.yaml").write_text(json.dumps(tools))
    key = f"{ROLLOUT}.multi_turn.tool_config_path={tmp_path}/tools.yaml"
    loop = f"{ROLLOUT}.agent.default_agent_loop"
    assert len(prompts([3], OWN, key, FILTER)) == 2, "the filter counts them for each loop"
    assert prompts([3], OWN, key, NO_FILTER, f"{loop}=single_turn_agent") == []
    assert len(prompts([3], OWN, key, NO_FILTER, f"{loop}=tool_agent")) == 2


def test_a_tokenizer_of_its_own_counts(prompts, tmp_path):
    other = shutil.copytree(CHECKPOINT, tmp_path / "other")
    (other / "chat_template.jinja").write_text("{% for i in range(40) %}x{% endfor %}")
    found = prompts([3], f"actor_rollout_ref.model.tokenizer_path={other}", FILTER)
    assert summary(found) == [(LIMIT, Level.ERROR)] * 2


@pytest.mark.parametrize(
    ("column", "overrides", "part"),
    [
        ({"images": ["a.png"]}, [FILTER], "images"),
        ({"pictures": ["a.png"]}, [FILTER, "data.image_key=pictures"], "pictures"),
        ({"agent_name": "own"}, [NO_FILTER], "own"),
    ],
)
def test_prompts_that_are_rendered_elsewhere_are_not_compared(prompts, tmp_path, column, overrides, part):
    found = [each for each in prompts([chat(300, **column)], *overrides) if each.level is not Level.ERROR]
    assert {*summary(found)} == {(LIMIT, Level.NOT_CHECKED)} and part in found[0].message
    if "images" in column:
        assert shown_prompt(MODEL, f"data.train_files={tmp_path}/data.parquet") is None


@pytest.mark.parametrize("column", ["images", "videos", "audios", "pictures"])
def test_rows_that_a_model_of_text_cannot_read_are_errors_and_empty_columns_are_none(prompts, column):
    own = ["data.image_key=pictures"] if column == "pictures" else []
    found = prompts([chat(3, **{column: []}), chat(3, **{column: ["file:///a.mp4"]})], FILTER, *own)
    errors = [each for each in found if each.level is Level.ERROR]
    assert [each.where for each in errors] == ["data.train_files", "data.val_files"]
    assert all("row 1: " in each.message and f"has {column}," in each.message for each in errors)
    assert not [each for each in prompts([chat(3, **{column: []})] * 2, FILTER, *own) if each.level is Level.ERROR]


def test_messages_of_several_parts_are_left_to_the_template(prompts):
    parts = [{"type": "text", "text": "Alice " * 30}]
    template = "{% for part in messages[0].content %}{{ part.text }}{% endfor %}"
    found = prompts([{"prompt": user(parts)}], f"actor_rollout_ref.model.custom_chat_template='{template}'", FILTER)
    assert summary(found) == [(LIMIT, Level.ERROR)] * 2 and "1 of 1" in found[0].message


def test_a_prompt_that_the_template_refuses_is_named(prompts, tmp_path):
    template = OWN.replace("{% for m", "{{ messages[0].content.no_such() }}{% for m", 1)
    found = prompts([3], template, FILTER)
    assert summary(found) == [("data.train_files", Level.ERROR), ("data.val_files", Level.ERROR)]
    assert f"{tmp_path}/data.parquet row 0" in found[0].message


def test_the_first_prompt_is_what_the_model_sees(tmp_path):
    write(tmp_path / "data.parquet", [chat(1)])
    shown = shown_prompt(MODEL, f"data.train_files={tmp_path}/data.parquet", OWN, THINKING)
    assert (shown["agent"], shown["row"]) == ("single_turn_agent", 0)
    assert shown["text"].startswith("Alice") and shown["text"].endswith("x" * 40) and shown["tokens"] > 0
    assert shown_prompt(MODEL, "data.train_files=none.parquet") is None


def test_a_turn_that_ends_with_a_token_that_ends_no_response_is_a_warning(tmp_path):
    """The template writes <|im_end|>, token 2."""
    copied = shutil.copytree(CHECKPOINT, tmp_path / "model")

    def found(ends, *overrides):
        first = json.loads((CHECKPOINT / "tokenizer.json").read_text())["added_tokens"][0]["content"]
        settings = json.loads((CHECKPOINT / "tokenizer_config.json").read_text())
        (copied / "tokenizer_config.json").write_text(json.dumps(settings | {"eos_token": first}))
        (copied / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
        write(tmp_path / "few.parquet", [chat(3)])
        files = [f"data.{split}_files={tmp_path / 'few.parquet'}" for split in ("train", "val")]
        view = RunView(composed([*files, f"actor_rollout_ref.model.path={copied}", *overrides]))
        return turn_findings(view)

    [warning] = found(0)
    assert (warning.where, warning.level) == ("actor_rollout_ref.model.path", Level.WARNING)
    assert "'<|im_end|>' (2)" in warning.message and '"eos_token_id": [0, 2]' in warning.message
    assert found([0, 2]) == found(2) == []
    assert found(0, "+actor_rollout_ref.model.custom_chat_template='{{ messages[0].content }}'") == []
