"""Messages that pages quote are those that come: of veRL and Hydra by provoking them, of this package by its source."""

import json
import re
import shlex

import hydra
import pytest
from hydra.errors import HydraException
from verl.trainer.ppo.core_algos import get_policy_loss_fn

from tests.messages import modules, texts
from tests.runs.made_runs import make_run
from tests.scripts import ROOT
from verl_trgrpo.cli.main import main

# Words of a quotation that have to be in one message of the package; others are values of an example.
ENOUGH = 0.85
# Names, numbers and settings of an example differ from case to case; words do not.
WORD = re.compile(r"(?<![\w.=/-])(?!note\b|warning\b)[a-z]{2,}(?![\w.=/-])")


def refused_by_hydra(source, *words):
    with (
        hydra.initialize_config_module("verl.trainer.config", version_base=None),
        pytest.raises(HydraException) as refused,
    ):
        hydra.compose(source, [*words])
    return str(refused.value)


def quotations(page):
    """What stands between quotation marks, in one line each."""
    return [" ".join(text.split()) for text in re.findall(r'"([^"`]+)"', (ROOT / page).read_text())]


@pytest.mark.parametrize(
    ("quoted", "comes"),
    [
        ("Could not override 'algorithm'", lambda: refused_by_hydra("ppo_trainer", "algorithm=tr_grpo")),
        (
            "appears more than once in the final defaults list",
            lambda: refused_by_hydra("trgrpo_trainer", "+algorithm=tr_grpo"),
        ),
        ("Could not find 'algorithm/tr_grpo", lambda: refused_by_hydra("ppo_trainer", "+algorithm=tr_grpo_missing")),
    ],
)
def test_what_hydra_answers_is_what_the_page_quotes(quoted, comes):
    [text] = [each for each in quotations("docs/upgrading-a-verl-recipe.md") if quoted in each]
    assert text.rstrip("'") in comes()


def test_what_verl_answers_is_what_the_page_quotes():
    [text] = [each for each in quotations("docs/upgrading-a-verl-recipe.md") if "loss mode" in each]
    with pytest.raises(ValueError, match=re.escape(text)):
        get_policy_loss_fn("tr_grpo_missing")


def quoted_in_tables(page):
    """Messages in the second column: the words of each piece between dots and semicolons."""
    rows = [line.split("|")[2] for line in (ROOT / page).read_text().splitlines() if line.startswith("|")]
    quoted = [text for row in rows for text in re.findall(r"`([^`]+)`", row)]
    words = [WORD.findall(piece) for text in quoted for piece in re.split(r"\.\.\.|; ", text)]
    return [each for each in words if len(each) >= 3]


@pytest.fixture(scope="module")
def vocabularies():
    """The words of each text of the package."""
    return {frozenset(WORD.findall(text)) for _, tree in modules() for _, text in texts(tree) if " " in text}


def known(words, vocabularies):
    return any(len({*words} & each) >= ENOUGH * len({*words}) for each in vocabularies)


def test_messages_in_the_tables_of_faults_are_those_of_the_package(vocabularies):
    quoted = quoted_in_tables("docs/faults.md")
    assert len(quoted) >= 15
    assert [" ".join(each) for each in quoted if not known(each, vocabularies)] == []
    assert not known(["a", "worker", "has", "died", "without", "any", "reason"], vocabularies)


def test_the_signal_on_the_page_of_health_is_what_the_command_prints(tmp_path, capsys):
    path = tmp_path / "metrics.jsonl"
    lines = [{"step": step.number, "data": step.metrics} for step in make_run(24, sick=True).steps]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert main(["health", str(path)]) == 1
    [shown] = re.findall(r"```text\n(.*?)```", (ROOT / "docs/health.md").read_text(), re.DOTALL)
    assert capsys.readouterr().out.split() == shown.split()


def test_the_findings_on_the_page_of_validate_are_what_the_command_prints(monkeypatch, capsys):
    page = (ROOT / "docs/validate.md").read_text()
    [(command, shown)] = re.findall(r"```text\n\$ verl-trgrpo (.*?)\n\n(.*?)```", page, re.DOTALL)
    monkeypatch.chdir(ROOT)
    assert main(shlex.split(command.replace("\\\n", " "))) == 1
    printed = capsys.readouterr().out.partition("not checked")[0]
    assert printed.split() == shown.split()
