"""Reading studies: what they may say, and everything that is wrong at once."""

from pathlib import Path

import pytest

from verl_trgrpo.runs.compare.study import Study, read_study

RECIPES = Path(__file__).parents[3] / "recipes" / "compare"
TEXT = """
title: a study
script: trainer.py
data: {train: train.parquet, test: test.parquet}
seeds: [0, 1]
baseline: grpo
primary: tr_grpo
arms:
  grpo: {height: 0.5}
  tr_grpo: {height: 0.6}
"""


@pytest.fixture
def directory(tmp_path):
    for name in ("trainer.py", "train.parquet", "test.parquet"):
        (tmp_path / name).touch()
    (tmp_path / "study.yaml").write_text(TEXT)
    return tmp_path


def test_a_study_and_its_paths(directory):
    study = read_study(directory / "study.yaml", ["seeds=[3]", "settings.steps=4"])
    assert study == Study(
        title="a study",
        arms={"grpo": {"height": 0.5}, "tr_grpo": {"height": 0.6}},
        seeds=(3,),
        baseline="grpo",
        primary="tr_grpo",
        script=directory / "trainer.py",
        data={"train": str(directory / "train.parquet"), "test": str(directory / "test.parquet")},
        settings={"steps": 4},
    )


def test_counts_of_puzzles_may_be_overridden(tmp_path, directory):
    text = TEXT.replace("data: {train: train.parquet, test: test.parquet}", "puzzles: {train: {3: 8}, test: {3: 4}}")
    (directory / "study.yaml").write_text(text)
    study = read_study(directory / "study.yaml", ["puzzles.test.3=2", "puzzles.seed=7"])
    assert study.puzzles == {"train": {3: 8}, "test": {3: 2}, "seed": 7}


def test_some_arms_of_a_study(directory):
    (directory / "study.yaml").write_text(TEXT + "  other: {height: 1}\n")
    assert [*read_study(directory / "study.yaml", arms=["tr_grpo", "grpo"]).arms] == ["tr_grpo", "grpo"]
    with pytest.raises(ValueError, match=r"no arm 'ppo'; it has grpo, tr_grpo, other"):
        read_study(directory / "study.yaml", arms=["grpo", "ppo"])
    with pytest.raises(ValueError, match="baseline is 'grpo', which is not an arm"):
        read_study(directory / "study.yaml", arms=["tr_grpo"])


MISTAKES = {
    "another baseline": (["baseline=ppo"], ["baseline is 'ppo'", "grpo, tr_grpo"]),
    "primary is the baseline": (["primary=grpo"], ["the baseline itself"]),
    "no seeds": (["seeds=[]"], ["seeds are []"]),
    "a seed twice": (["seeds=[1,1]"], ["each once"]),
    "seeds that are no numbers": (["seeds=[a]"], ["whole numbers"]),
    "another trainer": (["trainer=trl"], ["trainer is 'trl'", "minimal, verl"]),
    "no script": (["script=nowhere.py"], ["nowhere.py", "recipes/minimal/train.py"]),
    "two sources of prompts": (["puzzles.train.3=1", "puzzles.test.3=1"], ["either puzzles", "or data"]),
    "half of the data": (["data.valid=x"], ["data has the keys", "data.valid"]),
    "two models": (["model=m", "warm_start.steps=1"], ["either a warm_start"]),
    "a margin that is none": (["margin=-1"], ["margin is -1"]),
    "an unknown key": (["sedes=[1]"], ["unknown key 'sedes'", "seeds"]),
    "an arm that is no directory": (["arms.a/b.height=1"], ["'a/b'"]),
    "an arm that is no settings": (["arms.grpo=1"], ["settings of arm grpo are 1"]),
    "settings that are none": (["settings=3"], ["settings is 3"]),
    "several at once": (["seeds=[]", "baseline=ppo"], ["2 problems", "seeds are", "baseline is"]),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_named_with_their_remedy(directory, name):
    overrides, words = MISTAKES[name]
    with pytest.raises(ValueError) as error:
        read_study(directory / "study.yaml", overrides)
    assert all(word in str(error.value) for word in words), error.value


def test_files_that_are_no_studies(directory):
    with pytest.raises(ValueError, match="is not a file"):
        read_study(directory / "other.yaml")
    (directory / "list.yaml").write_text("- 1\n")
    with pytest.raises(ValueError):
        read_study(directory / "list.yaml")
    (directory / "bad.yaml").write_text("a: [\n")
    with pytest.raises(ValueError, match="cannot be read"):
        read_study(directory / "bad.yaml")
    (directory / "less.yaml").write_text("title: x\n")
    with pytest.raises(ValueError, match="lacks arms"):
        read_study(directory / "less.yaml")


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_shipped_studies_are_readable_and_state_hypotheses(path):
    study = read_study(path)
    assert study.hypotheses
    assert len(study.seeds) >= 3
