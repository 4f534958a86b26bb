"""Prompts that are longer than a run takes are found before it starts."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from verl_trgrpo.common.findings import Level
from verl_trgrpo.runs.checks.prompt_lengths import prompt_length_findings
from verl_trgrpo.runs.compose import compose
from verl_trgrpo.tiny.puzzles import CHECKPOINT


@pytest.fixture
def findings(tmp_path):
    """Findings about prompts of so many words."""

    def of(words, *overrides):
        chats = [[{"role": "user", "content": "Alice " * count}] for count in words]
        pq.write_table(pa.table({"prompt": chats}), tmp_path / "data.parquet")
        files = [f"data.{split}_files={tmp_path}/data.parquet" for split in ("train", "val")]
        model = f"actor_rollout_ref.model.path={CHECKPOINT}"
        return prompt_length_findings(
            compose(
                overrides=[*files, model, "data.max_prompt_length=20", "data.train_batch_size=1", *overrides]
            ).config
        )

    return of


def test_prompts_that_fit(findings):
    assert findings([3, 5, 8]) == []


FILTER = "data.filter_overlong_prompts=true"


@pytest.mark.parametrize(
    ("words", "overrides", "level", "parts"),
    [
        ([3, 5, 300], [FILTER], Level.WARNING, ["1 of 3 prompts", "leaves them out"]),
        ([300, 400], [FILTER], Level.ERROR, ["2 of 2 prompts", "leaves nothing"]),
        ([3, 300], ["data.filter_overlong_prompts=false"], Level.ERROR, ["1 of 2", "stops the run"]),
        ([3, 300], ["data.filter_overlong_prompts=false", "data.truncation=left"], Level.WARNING, ["cuts them"]),
        ([3] * 3000 + [300] * 3000, [FILTER], Level.WARNING, ["2000 of the 4000 prompts looked at"]),
        ([3] * 6000, [FILTER], Level.NOT_CHECKED, ["4000 of 6000 prompts were compared"]),
    ],
)
def test_prompts_that_do_not(findings, words, overrides, level, parts):
    train, test = findings(words, *overrides)
    assert train.level is test.level is level
    assert all(part in train.message for part in parts), train.message


def test_without_a_tokenizer_it_is_said(findings):
    [finding] = findings([3, 300], "actor_rollout_ref.model.path=some/model", FILTER)
    assert finding.level is Level.NOT_CHECKED and "max_prompt_length=20" in finding.message


def test_a_filter_that_leaves_less_than_a_step_is_an_error_of_the_training_files(findings):
    train, test = findings([3] * 30 + [300] * 20, FILTER, "data.train_batch_size=40")
    assert train.level is Level.ERROR and "leaves 30, fewer than the data.train_batch_size=40" in train.message
    assert test.level is Level.WARNING


def test_files_of_one_key_are_one_data_set(tmp_path):
    for name, count in (("short", 3), ("long", 300)):
        chats = [[{"role": "user", "content": "Alice " * count}]]
        pq.write_table(pa.table({"prompt": chats}), tmp_path / f"{name}.parquet")
    files = [
        f"data.train_files=[{tmp_path}/short.parquet,{tmp_path}/long.parquet]",
        f"data.val_files={tmp_path}/short.parquet",
    ]
    overrides = [
        *files,
        f"actor_rollout_ref.model.path={CHECKPOINT}",
        "data.max_prompt_length=20",
        FILTER,
        "data.train_batch_size=1",
    ]
    [finding] = prompt_length_findings(compose(overrides=overrides).config)
    assert finding.level is Level.WARNING and "1 of 2 prompts" in finding.message


def test_prompts_that_are_no_chats_are_named(findings, tmp_path):
    findings([3])
    pq.write_table(pa.table({"prompt": [[{"role": "user", "content": "x"}], None, None]}), tmp_path / "data.parquet")
    files = [f"data.{split}_files={tmp_path}/data.parquet" for split in ("train", "val")]
    found = prompt_length_findings(compose(overrides=[*files, f"actor_rollout_ref.model.path={CHECKPOINT}"]).config)
    assert (
        all("2 prompts that are no list of chat messages" in finding.message for finding in found) and len(found) == 2
    )
