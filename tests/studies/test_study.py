"""Reading studies: what they may say, and everything that is wrong at once."""

import dataclasses
from pathlib import Path

import pytest

from studies.comparisons.run import main
from studies.comparisons.study import Study, read_study
from tests.common.test_secrets import PASSWORD, URL
from verl_trgrpo.common.findings import InvalidInputError
from verl_trgrpo.common.options import exit_code

SHIPPED = Path(__file__).parents[2] / "studies" / "comparisons"
TEXT = """
title: a study
script: trainer.py
data: {train: train.parquet, test: test.parquet}
model: ../model
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
        model=str(directory.parent / "model"),
        settings={"steps": 4},
    )


def test_some_arms_of_a_study(directory):
    (directory / "study.yaml").write_text(TEXT + "  other: {height: 1}\n")
    assert [*read_study(directory / "study.yaml", arms=["tr_grpo", "grpo"]).arms] == ["tr_grpo", "grpo"]
    with pytest.raises(ValueError, match=r"no arm ppo; it has grpo, tr_grpo, other"):
        read_study(directory / "study.yaml", arms=["grpo", "ppo"])
    with pytest.raises(ValueError, match="baseline='grpo'"):
        read_study(directory / "study.yaml", arms=["tr_grpo"])


def test_all_mistakes_are_named_at_once(directory):
    overrides = ["seeds=[1,1]", "baseline=ppo", "primary=ppo", "margin=-1", "script=nowhere.py", "trainer=trl",
                 "data.tset=x", "model=''"]  # fmt: skip
    with pytest.raises(InvalidInputError) as error:
        read_study(directory / "study.yaml", overrides)
    found = [message.partition(":")[0] for message in error.value.messages]
    assert found[:4] == ["baseline='ppo'", "primary='ppo'", "primary='ppo'", "margin=-1.0"]
    assert found[4:] == ["seeds=[1, 1]", "trainer='trl'", "data has train, test, tset", "model is missing"]


@pytest.mark.parametrize(
    ("override", "named"), [("sedes=[1]", "sedes"), ("seeds=[a]", "seeds"), ("arms.grpo=1", "arms.grpo")]
)
def test_an_override_of_another_shape_is_refused(directory, override, named):
    with pytest.raises(ValueError, match=named):
        read_study(directory / "study.yaml", [override])


@pytest.mark.parametrize("text", ["a: [\n", "- 1\n", "title: x\n"])
def test_files_that_are_not_studies(directory, text):
    (directory / "study.yaml").write_text(text)
    with pytest.raises(ValueError, match=r"study\.yaml is not a study"):
        read_study(directory / "study.yaml")


@pytest.mark.parametrize("path", sorted(SHIPPED.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_shipped_studies_are_readable_and_state_hypotheses(path):
    study = read_study(path)
    assert study.hypotheses
    assert len(study.seeds) >= 2


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(Study)])
@pytest.mark.parametrize(
    "written",
    ["'{}'", "[a, '{}']", "{{a: {{b: '{}'}}}}", "{{'{}': 1}}", "'{}' # ]", "['{}'",
     '"http:\\x2f/u:hunter2@h"', "${{oc.env:AN_ADDRESS}}"],
)  # fmt: skip
def test_a_study_with_a_password_is_refused_and_not_repeated(tmp_path, monkeypatch, capfd, field, written):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AN_ADDRESS", URL)
    study = {
        "title": "t", "script": "t.py", "data": "{train: t.parquet, test: t.parquet}", "model": "m", "seeds": "[0]",
        "baseline": "a", "arms": "{a: {}}",
    } | {field: written.format(URL)}  # fmt: skip
    (tmp_path / "t.py").write_text("raise SystemExit(3)")
    (tmp_path / "t.parquet").touch()
    (tmp_path / "s.yaml").write_text("".join(f"{key}: {value}\n" for key, value in study.items()))
    assert exit_code(lambda: main(["s.yaml", "--out", "out"])) == 2
    assert PASSWORD not in "".join(capfd.readouterr()) and not (tmp_path / "out").exists()
