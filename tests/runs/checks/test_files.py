"""Files that a run names and that do not exist, or are not what they should be."""

import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import composed
from tests.runs.validation import summary
from verl_trgrpo.common.findings import Level
from verl_trgrpo.demos.puzzles import CHECKPOINT
from verl_trgrpo.runs.checks.files import data_findings, looks_local, missing_files, model_findings

MODEL = "actor_rollout_ref.model"


def config_of(sound_run, *overrides):
    return composed([*sound_run, *overrides]).config


def test_everything_that_is_named_must_exist(sound_run):
    wrong = {
        f"{MODEL}.path": "runs/kk/grpo/global_step_3", f"{MODEL}.tokenizer_path": "/no/such",
        "trainer.v1.sampler.custom_sampler.path": "pkg://no.such", "data.custom_cls.path": "nope.py",
        "reward.custom_reward_function.path": "nope.py", "data.train_files": ".", "critic.model.path": "./models/none",
    }  # fmt: skip
    more = ["trainer.resume_mode=resume_path", "data.val_files=[]", "algorithm.adv_estimator=gae"]
    config = config_of(sound_run, *more, *(f"{key}={value}" for key, value in wrong.items()))
    found = {finding.where: finding for finding in missing_files(config)}
    assert found.keys() == {*wrong, "trainer.resume_from_path", "data.val_files"}
    assert all(finding.level is Level.ERROR for finding in found.values())
    assert all(f"{key}={value}" in found[key].message for key, value in wrong.items())
    assert missing_files(config_of(sound_run)) == []


def test_data_and_models_that_are_not_needed_here_are_not_checked(sound_run):
    wrong = [f"{MODEL}.path=/no/model", "data.train_files=/no/data.parquet"]
    found = missing_files(config_of(sound_run, *wrong), need_files=False)
    assert summary(found) == [("data.train_files", Level.NOT_CHECKED), (f"{MODEL}.path", Level.NOT_CHECKED)]


def test_a_name_with_one_slash_may_be_on_a_hub():
    assert not looks_local("Qwen/Qwen2.5-3B-Instruct") and not looks_local("gpt2")
    assert looks_local("runs/kk/model") and looks_local("./model") and looks_local("~/model")


def test_validation_on_training_data_is_a_warning(sound_run, tmp_path):
    (tmp_path / "link.parquet").symlink_to(tmp_path / "train.parquet")
    config = config_of(sound_run, f"data.val_files=[{tmp_path}/test.parquet,{tmp_path}/link.parquet]")
    [finding] = data_findings(config)
    assert (finding.where, finding.level) == ("data.val_files", Level.WARNING)
    assert f"{tmp_path}/train.parquet" in finding.message
    assert data_findings(config_of(sound_run)) == []


def write(path, source, columns=("prompt", "data_source", "reward_model")):
    row = {"prompt": [{"role": "user", "content": "x"}], "data_source": source, "reward_model": "x"}
    pq.write_table(pa.table({name: [row[name]] * 20 for name in columns}), path)
    return path


def sources_refused(sound_run, tmp_path, *overrides, source="trgrpo_trainer"):
    """Return the data sources for which the findings say that there is no reward."""
    files = [
        write(tmp_path / f"{name.replace('/', '-')}.parquet", name) for name in ("kk_3ppl", "openai/gsm8k", "cities")
    ]
    overrides = [
        *sound_run,
        "actor_rollout_ref.rollout.name=vllm",
        *overrides,
        f"data.train_files=[{','.join(map(str, files))}]",
    ]
    found = [finding.message for finding in data_findings(composed(overrides, source).config)]
    return [name for name in ("kk_3ppl", "openai/gsm8k", "cities") if any(f"{name!r}" in message for message in found)]


def test_data_sources_without_a_reward_are_errors(sound_run, tmp_path):
    own = "reward.custom_reward_function.path=own.py"
    assert sources_refused(sound_run, tmp_path) == ["cities"]
    assert sources_refused(sound_run, tmp_path, source="ppo_trainer") == ["kk_3ppl", "cities"]
    assert sources_refused(sound_run, tmp_path, own, source="ppo_trainer") == []


def test_a_default_reward_scores_the_data_sources_without_one(sound_run, tmp_path):
    key = "reward.custom_reward_function.reward_kwargs.default_reward"
    assert sources_refused(sound_run, tmp_path, f"+{key}=math") == []
    [finding] = data_findings(config_of(sound_run, f"+{key}=maths"))
    assert (finding.where, finding.level) == (key, Level.ERROR)
    assert f"{key}=maths" in finding.message and "did you mean math?" in finding.message


def test_many_data_sources_without_a_reward_are_counted(sound_run, tmp_path):
    rows = [{"prompt": "x", "data_source": f"own_{i:02}", "reward_model": "x"} for i in range(12)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "train.parquet")
    found = data_findings(config_of(sound_run))
    assert len(found) < 12 and "'own_00'" in found[0].message and "7 more" in found[-1].message


def test_the_empty_data_source_of_deepscalers_script_is_mathematics(sound_run, tmp_path):
    write(tmp_path / "train.parquet", "")
    assert data_findings(config_of(sound_run)) == []


@pytest.mark.parametrize("source", [None, ""])
def test_a_data_source_without_a_name_is_an_error(sound_run, tmp_path, source):
    for name in ("train", "test"):
        write(tmp_path / f"{name}.parquet", source)
    config = composed([*sound_run, "actor_rollout_ref.rollout.name=vllm"], "ppo_trainer").config
    assert summary(data_findings(config)) == [("data.train_files", Level.ERROR), ("data.val_files", Level.ERROR)]


def test_missing_columns_are_named(sound_run, tmp_path):
    write(tmp_path / "train.parquet", "kk_3ppl", columns=["prompt"])
    [finding] = data_findings(config_of(sound_run))
    assert "data_source, reward_model" in finding.message


@pytest.mark.parametrize("suffix", [".json", ".jsonl"])
def test_json_files_which_verl_reads_are_not_checked(sound_run, tmp_path, suffix):
    file = tmp_path / f"train{suffix}"
    file.write_text("{}")
    [finding] = data_findings(config_of(sound_run, f"data.train_files={file}"))
    assert (finding.where, finding.level) == ("data.train_files", Level.NOT_CHECKED) and str(file) in finding.message


def test_a_model_on_a_hub_is_not_checked_and_a_local_one_is_opened(sound_run, tmp_path):
    assert model_findings(config_of(sound_run)) == []
    assert summary(model_findings(config_of(sound_run, f"{MODEL}.path=Qwen/Qwen2.5-3B"))) == [
        (f"{MODEL}.path", Level.NOT_CHECKED)
    ]
    model = shutil.copytree(CHECKPOINT, tmp_path / "model")
    (model / "config.json").write_text("{")
    [finding] = model_findings(config_of(sound_run, f"{MODEL}.path={model}"))
    assert finding.level is Level.ERROR and f"{MODEL}.path={model}" in finding.message
