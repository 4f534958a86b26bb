"""Data and models that are broken in ways that a look at the file name does not show: named before anything is started."""

import json
import random
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from verl_trgrpo.runs.launch.configuration import ConfigurationError, make_plan
from verl_trgrpo.runs.validation import Level, validate
from verl_trgrpo.tiny.puzzles import CHECKPOINT

ROWS = 200


def write(path, rows=ROWS):
    texts = [random.Random(row).randbytes(40).hex() for row in range(rows)]
    pq.write_table(pa.table(dict.fromkeys(("prompt", "data_source", "reward_model"), texts)), path)


@pytest.fixture
def model(tmp_path):
    return shutil.copytree(CHECKPOINT, tmp_path / "model")


@pytest.fixture
def arguments(tmp_path, model):
    """A sound run; tests break what it names."""
    write(tmp_path / "train.parquet")
    write(tmp_path / "test.parquet")
    return [
        f"data.train_files={tmp_path / 'train.parquet'}", f"data.val_files={tmp_path / 'test.parquet'}",
        "data.train_batch_size=8", f"actor_rollout_ref.model.path={model}",
        "actor_rollout_ref.actor.ppo_mini_batch_size=8", "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8",
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=8", "trainer.n_gpus_per_node=1",
        f"trainer.default_local_dir={tmp_path / 'run'}",
    ]  # fmt: skip


def problems_of(arguments) -> list[str]:
    """What the launcher refuses; empty for a sound run."""
    try:
        make_plan("trgrpo_trainer", arguments, on_cpu=True)
    except ConfigurationError as error:
        return error.problems
    return []


def edit(path, **fields):
    content = json.loads(path.read_text()) | fields
    path.write_text(json.dumps({name: value for name, value in content.items() if value is not None}))


def test_a_sound_run_has_no_problems(arguments):
    assert problems_of(arguments) == []


@pytest.mark.parametrize("share", [0.0, 0.5, 0.999])
def test_a_truncated_data_file(arguments, tmp_path, share):
    path = tmp_path / "train.parquet"
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    [problem] = problems_of(arguments)
    assert problem.startswith(f"data.train_files={path} cannot be read as parquet") and "build it again" in problem


def test_a_data_file_that_was_damaged_in_the_middle(arguments, tmp_path):
    path = tmp_path / "test.parquet"
    content = bytearray(path.read_bytes())
    content[100:2000] = bytes(1900)
    path.write_bytes(content)
    assert len(pq.read_schema(path).names) == 3, "the schema has to be sound, or this is the test above"
    [problem] = problems_of(arguments)
    assert problem.startswith(f"data.val_files={path} cannot be read as parquet")


@pytest.mark.parametrize(
    ("rows", "complaint"), [(0, "has no rows"), (7, "has 7 rows, fewer than the data.train_batch")]
)
def test_a_data_file_without_enough_rows(arguments, tmp_path, rows, complaint):
    write(tmp_path / "train.parquet", rows)
    [problem] = problems_of(arguments)
    assert complaint in problem


def test_a_tokenizer_of_another_model(arguments, model):
    edit(model / "config.json", vocab_size=100)
    [problem] = problems_of(arguments)
    assert "embeddings up to 99; it belongs to another model" in problem


def test_a_tokenizer_without_a_chat_template(arguments, model):
    (model / "chat_template.jinja").unlink()
    [problem] = problems_of(arguments)
    assert "has no chat template" in problem
    assert problems_of([*arguments, "actor_rollout_ref.model.custom_chat_template=x"]) == []


def test_a_tokenizer_that_was_cut_short(arguments, model):
    path = model / "tokenizer.json"
    path.write_bytes(path.read_bytes()[:1000])
    [problem] = problems_of(arguments)
    assert "cannot be opened" in problem and "get the model again" in problem


CODE = "from pathlib import Path\nPath(__file__).with_name('ran').touch()\nraise ImportError\n"


@pytest.mark.parametrize(
    ("file", "fields"),
    [
        ("tokenizer_config.json", {"auto_map": {"AutoTokenizer": ["own.Tokenizer", None]}}),
        ("config.json", {"auto_map": {"AutoTokenizer": ["own.Tokenizer", None]}}),
        ("config.json", {"auto_map": {"AutoConfig": "own.Config"}, "model_type": "own"}),
    ],
)
def test_code_that_comes_with_a_model_is_refused_and_not_run(arguments, model, file, fields):
    (model / "own.py").write_text(CODE)
    edit(model / file, **fields)
    edit(model / "tokenizer_config.json", tokenizer_class=None)
    [problem] = problems_of(arguments)
    assert "names Python code of its own (auto_map)" in problem and "trust_remote_code=true" in problem
    assert not list(model.parent.rglob("ran"))
    # Whoever has read it may run it: then the complaint is another one, or none.
    allowed = problems_of([*arguments, "actor_rollout_ref.model.trust_remote_code=true"])
    assert not any("auto_map" in problem for problem in allowed)


def test_a_local_tokenizer_is_looked_at_where_the_model_is_on_a_hub(arguments, model):
    (model / "own.py").write_text(CODE)
    edit(model / "tokenizer_config.json", auto_map={"AutoTokenizer": ["own.Tokenizer", None]})
    key = "actor_rollout_ref.model"
    arguments = [*arguments, f"{key}.path=some/model", f"{key}.tokenizer_path={model}"]
    [problem] = problems_of(arguments)
    assert "names Python code of its own (auto_map)" in problem
    assert problem in [finding.message for finding in validate("trgrpo_trainer", arguments).of(Level.ERROR)]
    assert not list(model.parent.rglob("ran"))


@pytest.mark.parametrize("enabled", [True, False])
def test_code_that_comes_with_a_reward_model_is_refused_and_not_run(arguments, tmp_path, enabled):
    """The reward loop opens its tokenizer with trust_remote_code=True, as the policy's."""
    judge = shutil.copytree(CHECKPOINT, tmp_path / "judge")
    arguments = [
        *arguments, "reward.reward_model.rollout.name=vllm", f"reward.reward_model.enable={enabled}",
        f"reward.reward_model.model_path={judge}", "reward.custom_reward_function.path=null",
    ]  # fmt: skip
    assert problems_of(arguments) == []
    (judge / "own.py").write_text(CODE)
    edit(judge / "tokenizer_config.json", auto_map={"AutoTokenizer": ["own.Tokenizer", None]})
    report = validate("trgrpo_trainer", [*arguments, "platform=cpu"])
    found = [finding.message for finding in report.of(Level.ERROR) if finding.where == "reward.reward_model.model_path"]
    assert problems_of(arguments) == found and len(found) == enabled
    assert not list(tmp_path.rglob("ran"))
    if enabled:
        assert found[0].startswith(f"reward.reward_model.model_path={judge} names Python code of its own (auto_map)")
        assert problems_of([*arguments, "actor_rollout_ref.model.trust_remote_code=true"]) == []


def test_validate_says_the_same_as_the_launcher(arguments, model, tmp_path):
    write(tmp_path / "train.parquet", 7)
    edit(model / "config.json", vocab_size=100)
    arguments = [*arguments, "reward.custom_reward_function.path=null"]
    report = validate("trgrpo_trainer", [*arguments, "platform=cpu"])
    found = [finding.message for finding in report.of(Level.ERROR)]
    asked = problems_of(arguments)
    assert len(asked) == 2 and set(asked) <= set(found)
