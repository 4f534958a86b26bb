"""Files that a run names and that are not there, or are not what they should be."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from verl_trgrpo.common.findings import Level
from verl_trgrpo.runs.checks.files import data_findings, looks_local, missing_files
from verl_trgrpo.runs.compose import compose

MODEL = "actor_rollout_ref.model"


def messages(sound_run, *overrides):
    return "\n".join(finding.message for finding in missing_files(compose(overrides=[*sound_run, *overrides]).config))


def test_nothing_is_missing_from_a_sound_run(sound_run):
    assert messages(sound_run) == ""


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        (f"{MODEL}.path=runs/kk/grpo/global_step_3", [f"{MODEL}.path=runs/kk/grpo/global_step_3", "not a directory"]),
        (f"{MODEL}.tokenizer_path=/no/such", [f"{MODEL}.tokenizer_path=/no/such", "leave it out"]),
        ("trainer.v1.sampler.custom_sampler.path=nope.py", ["custom_sampler.path=nope.py", "does not exist"]),
        ("trainer.v1.sampler.custom_sampler.path=pkg://no.such", ["pkg://no.such", "does not exist"]),
        ("data.custom_cls.path=nope.py", ["data.custom_cls.path=nope.py", "does not exist"]),
        ("reward.custom_reward_function.path=nope.py", ["custom_reward_function.path=nope.py", "does not exist"]),
        ("trainer.resume_mode=resume_path", ["resume_from_path=null", "global_step_N"]),
        ("data.train_files=.", ["data.train_files=.", "is a directory"]),
        ("data.train_files=''", ["data.train_files", "names no file"]),
        ("data.train_files=5", ["data.train_files=5", "does not exist"]),
    ],
)
def test_what_is_named_must_be_there(sound_run, override, parts):
    found = messages(sound_run, override)
    assert all(part in found for part in parts), found


def test_a_name_with_one_slash_may_be_on_a_hub():
    assert not looks_local("Qwen/Qwen2.5-3B-Instruct") and not looks_local("gpt2")
    assert looks_local("runs/kk/model") and looks_local("./model") and looks_local("~/model")


def test_validation_on_training_data_is_a_warning(sound_run, tmp_path):
    (tmp_path / "link.parquet").symlink_to(tmp_path / "train.parquet")
    config = compose(overrides=[*sound_run, f"data.val_files=[{tmp_path}/test.parquet,{tmp_path}/link.parquet]"]).config
    [finding] = data_findings(config)
    assert finding.level is Level.WARNING and finding.where == "data.val_files"
    assert f"{tmp_path}/train.parquet" in finding.message
    assert data_findings(compose(overrides=sound_run).config) == []


@pytest.mark.parametrize("source", [None, ""])
def test_a_data_source_without_a_name_is_an_error(sound_run, tmp_path, source):
    rows = {"prompt": [{"role": "user", "content": "x"}], "data_source": source, "reward_model": "x"}
    table = pa.table({name: [value] * 20 for name, value in rows.items()})
    for name in ("train", "test"):
        pq.write_table(table, tmp_path / f"{name}.parquet")
    config = compose("ppo_trainer", [*sound_run, "actor_rollout_ref.rollout.name=vllm"]).config
    assert all("which is no name" in finding.message for finding in data_findings(config))
    assert len(data_findings(config)) == 2
