"""Data and models that are damaged, or that would execute code: refused before anything is started."""

import json
import random
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import composed
from verl_trgrpo.checks.data_files import data_findings
from verl_trgrpo.checks.files import model_findings
from verl_trgrpo.checks.view import RunView
from verl_trgrpo.common.findings import Level
from verl_trgrpo.demos.puzzles import CHECKPOINT


def write(path, rows=200):
    texts = [random.Random(f"{path.name} {row}").randbytes(12).hex() for row in range(rows)]
    pq.write_table(
        pa.table(
            {
                "prompt": [[{"role": "user", "content": f"Zoe {text}"}] for text in texts],
                "data_source": ["kk_3ppl"] * rows,
                "reward_model": [{"ground_truth": "(1) Zoe is a knave"}] * rows,
            }
        ),
        path,
    )


@pytest.fixture
def model(tmp_path):
    return shutil.copytree(CHECKPOINT, tmp_path / "model")


@pytest.fixture
def arguments(sound_run, tmp_path, model):
    """Overrides of a sound run; tests break what they name."""
    write(tmp_path / "train.parquet")
    write(tmp_path / "test.parquet")
    files = [f"data.train_files={tmp_path / 'train.parquet'}", f"data.val_files={tmp_path / 'test.parquet'}"]
    return [*sound_run, *files, f"actor_rollout_ref.model.path={model}"]


def messages_of(arguments) -> list[str]:
    """Return the errors about data and models."""
    view = RunView(composed(arguments, platform="cpu"))
    found = [*data_findings(view), *model_findings(view)]
    return [finding.message for finding in found if finding.level is Level.ERROR]


def edit(path, **fields):
    content = json.loads(path.read_text()) | fields
    path.write_text(json.dumps({name: value for name, value in content.items() if value is not None}))


def cut_to(path, share):
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])


def damage_the_middle(path):
    content = bytearray(path.read_bytes())
    content[100:2000] = bytes(1900)
    path.write_bytes(content)
    assert len(pq.read_schema(path).names) == 3, "the schema has to be sound, or this is a file cut short"


# What is broken, and parts of the only error; DIR stands for the directory of the test.
BROKEN = {
    "an empty data file": (lambda at: cut_to(at / "train.parquet", 0), ["data.train_files=DIR/train.parquet"]),
    "half a data file": (lambda at: cut_to(at / "train.parquet", 0.5), ["data.train_files=DIR/train.parquet"]),
    "almost all of a data file": (lambda at: cut_to(at / "train.parquet", 0.999), ["data.train_files=DIR/train.parquet"]),
    "damage in the middle": (lambda at: damage_the_middle(at / "test.parquet"), ["data.val_files=DIR/test.parquet"]),
    "no rows": (lambda at: write(at / "train.parquet", 0), ["data.train_files=DIR/train.parquet", "no rows"]),
    "a tokenizer of another model": (
        lambda at: edit(at / "model/config.json", vocab_size=100), ["actor_rollout_ref.model.path=DIR/model", "99"],
    ),
    "a damaged tokenizer": (
        lambda at: (at / "model/tokenizer.json").write_text("{"),
        ["actor_rollout_ref.model.path=DIR/model", "tokenizer"],
    ),
    "a tokenizer alone": (lambda at: (at / "model/config.json").unlink(), ["", "config.json"]),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_damaged_is_named(arguments, tmp_path, name):
    damage, parts = BROKEN[name]
    damage(tmp_path)
    [problem] = messages_of(arguments)
    first, *others = [part.replace("DIR", str(tmp_path)) for part in parts]
    assert problem.startswith(first) and all(part in problem for part in others)


def test_a_tokenizer_without_a_chat_template(arguments, model):
    (model / "chat_template.jinja").unlink()
    [problem] = messages_of(arguments)
    assert "custom_chat_template" in problem
    assert messages_of([*arguments, "actor_rollout_ref.model.custom_chat_template=x"]) == []


CODE = "from pathlib import Path\nPath(__file__).with_name('ran').touch()\nraise ImportError\n"


@pytest.mark.parametrize(
    ("file", "fields"),
    [
        ("tokenizer_config.json", {"auto_map": {"AutoTokenizer": ["own.Tokenizer", None]}}),
        ("tokenizer_config.json", {"auto_map": ["own.Tokenizer", None]}),
        ("config.json", {"auto_map": {"AutoTokenizer": ["own.Tokenizer", None]}}),
        ("config.json", {"auto_map": {"AutoConfig": "own.Config"}, "model_type": "own"}),
    ],
)
def test_code_that_comes_with_a_model_is_refused_and_not_run(arguments, model, file, fields):
    (model / "own.py").write_text(CODE)
    edit(model / file, **fields)
    edit(model / "tokenizer_config.json", tokenizer_class=None)
    [problem] = messages_of(arguments)
    assert "auto_map" in problem and "trust_remote_code=true" in problem
    assert not list(model.parent.rglob("ran"))
    # Whoever has read it may run it.
    allowed = messages_of([*arguments, "actor_rollout_ref.model.trust_remote_code=true"])
    assert not any("auto_map" in problem for problem in allowed)


def test_a_local_tokenizer_is_checked_where_the_model_is_on_a_hub(arguments, model):
    (model / "own.py").write_text(CODE)
    edit(model / "tokenizer_config.json", auto_map={"AutoTokenizer": ["own.Tokenizer", None]})
    key = "actor_rollout_ref.model"
    [problem] = messages_of([*arguments, f"{key}.path=some/model", f"{key}.tokenizer_path={model}"])
    assert "auto_map" in problem
    assert not list(model.parent.rglob("ran"))


def test_code_that_comes_with_a_reward_model_is_refused_and_not_run(arguments, tmp_path):
    """The reward loop opens its tokenizer with trust_remote_code=True, as the policy's."""
    judge = shutil.copytree(CHECKPOINT, tmp_path / "judge")
    arguments = [
        *arguments, "reward.reward_model.rollout.name=vllm", "reward.reward_model.enable=true",
        f"reward.reward_model.model_path={judge}", "reward.custom_reward_function.path=null",
    ]  # fmt: skip
    assert messages_of(arguments) == []
    (judge / "own.py").write_text(CODE)
    edit(judge / "tokenizer_config.json", auto_map={"AutoTokenizer": ["own.Tokenizer", None]})
    [problem] = messages_of(arguments)
    assert problem.startswith(f"reward.reward_model.model_path={judge}") and "auto_map" in problem
    assert not list(tmp_path.rglob("ran"))
    found = messages_of([*arguments, "reward.reward_model.enable=false"])
    assert len(found) == 2 and all("'kk_3ppl'" in problem for problem in found)
    assert messages_of([*arguments, "actor_rollout_ref.model.trust_remote_code=true"]) == []
