"""Prompts that are longer than a run takes are found before it starts."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from verl_trgrpo.common.problems import Level
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
            compose(overrides=[*files, model, "data.max_prompt_length=20", *overrides]).config
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
        ([3] * 1500 + [300] * 1500, [FILTER], Level.WARNING, ["500 of the 1000 prompts looked at"]),
    ],
)
def test_prompts_that_do_not(findings, words, overrides, level, parts):
    train, test = findings(words, *overrides)
    assert train.level is test.level is level
    assert all(part in train.message for part in parts), train.message


def test_without_a_tokenizer_it_is_said(findings):
    [finding] = findings([3, 300], "actor_rollout_ref.model.path=some/model", FILTER)
    assert finding.level is Level.NOT_CHECKED and "max_prompt_length=20" in finding.message
