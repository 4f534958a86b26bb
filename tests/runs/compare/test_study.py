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
        seeds=[3],
        baseline="grpo",
        primary="tr_grpo",
        script=str(directory / "trainer.py"),
        data={"train": str(directory / "train.parquet"), "test": str(directory / "test.parquet")},
        settings={"steps": 4},
    )


def test_some_arms_of_a_study(directory):
    (directory / "study.yaml").write_text(TEXT + "  other: {height: 1}\n")
    assert [*read_study(directory / "study.yaml", arms=["tr_grpo", "grpo"]).arms] == ["tr_grpo", "grpo"]
    with pytest.raises(ValueError, match=r"no arm ppo; it has grpo, tr_grpo, other"):
        read_study(directory / "study.yaml", arms=["grpo", "ppo"])
    with pytest.raises(ValueError, match="baseline='grpo'"):
        read_study(directory / "study.yaml", arms=["tr_grpo"])


MISTAKES = {
    "another baseline": (["baseline=ppo"], ["baseline='ppo'", "grpo, tr_grpo"]),
    "seeds that are not numbers": (["seeds=[a]"], ["seeds", "Integer"]),
    "another trainer": (["trainer=trl"], ["trainer='trl'", "minimal, verl"]),
    "an unknown key": (["sedes=[1]"], ["'sedes'"]),
    "an arm without settings": (["arms.grpo=1"], ["arms.grpo"]),
    "a model beside that of small_lm": (
        ["small_lm=word_problems", "model=m"],
        ["exactly one of puzzles", "at most one of warm_start"],
    ),
    "an unknown task of small_lm": (["small_lm=chess"], ["small_lm='chess'", "word_problems, puzzles"]),
    "several at once": (
        [
            "seeds=[1,1]",
            "primary=grpo",
            "margin=-1",
            "script=nowhere.py",
            "puzzles.train=1",
            "model=m",
            "warm_start.steps=1",
        ],
        [
            "7 problems",
            "seeds=[1, 1]",
            "primary='grpo'",
            "margin=-1",
            "nowhere.py",
            "exactly one of puzzles",
            "at most one of warm_start",
            "warm_start_script=''",
        ],
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_named(directory, name):
    overrides, words = MISTAKES[name]
    with pytest.raises(ValueError) as error:
        read_study(directory / "study.yaml", overrides)
    assert all(word in str(error.value) for word in words), error.value


@pytest.mark.parametrize("text", ["a: [\n", "- 1\n", "title: x\n", "data: train.parquet\n", "script: [1]\n"])
def test_files_that_are_not_studies(directory, text):
    (directory / "study.yaml").write_text(text)
    with pytest.raises(ValueError, match=r"study\.yaml is not a study"):
        read_study(directory / "study.yaml")


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_shipped_studies_are_readable_and_state_hypotheses(path):
    study = read_study(path)
    assert study.hypotheses
    assert len(study.seeds) >= 2
