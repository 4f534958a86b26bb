"""The console script as a user meets it."""

import importlib
import re
import subprocess
import sys
from typing import get_type_hints

import pytest

from verl_trgrpo.checks import constructed
from verl_trgrpo.cli.main import COMMANDS, commands, main
from verl_trgrpo.common.options import parse_options
from verl_trgrpo.runs.compose import DEFAULT_CONFIG
from verl_trgrpo.tasks.registry import known_builders
from verl_trgrpo.tasks.task import imported


def test_help_lists_the_commands_or_those_of_a_group(capsys):
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(f"  {name} " in shown for name in commands())
    assert main(["data", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "  data check " in shown and "  train " not in shown


@pytest.mark.parametrize("name", commands())
def test_help_of_a_command_shows_examples_in_lines_of_at_most_120_characters(name, capsys):
    assert main([*name.split(), "--help"]) == 0
    text = capsys.readouterr().out
    assert f"\nexamples:\n  verl-trgrpo {name}" in text
    assert max(map(len, text.splitlines())) <= 120
    shown = " ".join(text.replace("│", " ").split())
    assert not any(wrong in shown for wrong in ("(default: )", "(default: '", "'\"'\"'", "(default: None)"))


@pytest.mark.parametrize("words", [[], ["tain"], ["data"], ["data", "chek"], ["train", "--tau=6"]])
def test_an_unknown_command_or_option_is_an_error(words, capsys):
    assert main(words) == 2
    shown = capsys.readouterr()
    assert "".join(words[-1:]) in shown.err and not shown.out


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (["quickstart", "seed=1"], "write --seed 1"),
        (["quickstart", "--algorithm", "grpo"], "write the override algorithm=grpo"),
        (["train", "--trainer.nnodes=2"], "write the override trainer.nnodes=2"),
        (["train", "--config-name", "kk_quickstart"], "give kk_quickstart as the first word"),
        (["validate", "no_files=true"], "write --no-files"),
        (["preview", "kk_quickstart", "prompts=2"], "write --prompts 2"),
    ],
)
def test_an_option_written_as_an_override_and_the_reverse_are_told_apart(words, remedy, capsys):
    assert main(words) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and error.endswith(f"; {remedy}\n")


def test_a_file_without_its_option_gets_the_options_that_take_one(capsys):
    asked = []
    for name in commands():
        task = known_builders().get(name.removeprefix("data build "))
        module, _, function = COMMANDS.get(name, ("data.build", ""))[0].partition(".")
        call = (
            imported(task.function) if task else getattr(importlib.import_module(f"verl_trgrpo.cli.{module}"), function)
        )
        hints = get_type_hints(get_type_hints(call)["options"], include_extras=True)
        if "Positional" in str(hints) or "Path" not in str(hints):
            continue
        asked.append(name)
        assert main([*name.split(), "my file.jsonl"]) == 2
        error = capsys.readouterr().err
        options = re.findall(r"(?:write|or) --([\w-]+) 'my file.jsonl'", error)
        assert options and all("Path" in str(hints[each.replace("-", "_")]) for each in options), error
    assert {"data check", "data build kk", "search index"} <= {*asked}


def test_help_imports_no_heavy_package():
    code = """
import sys
from verl_trgrpo.cli.main import commands, main
for name in commands():
    if not name.startswith("data build "):
        main([*name.split(), "--help"])
heavy = {"torch", "vllm", "verl", "transformers", "numpy", "pyarrow", "tantivy", "uvicorn"}
print("HEAVY", sorted(heavy & set(sys.modules)))
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.endswith("HEAVY []\n")


@pytest.mark.parametrize("command", ["train", "validate", "preview"])
@pytest.mark.parametrize(
    ("words", "config", "overrides"),
    [
        ([], DEFAULT_CONFIG, ()),
        (["kk_quickstart"], "kk_quickstart", ()),
        (["mine.yaml", "a=1"], "mine.yaml", ("a=1",)),
        (["a=1", "~trainer.logger", "+b=2"], DEFAULT_CONFIG, ("a=1", "~trainer.logger", "+b=2")),
        (["~trainer.logger", "ppo_trainer", "a=b.yaml"], "ppo_trainer", ("~trainer.logger", "a=b.yaml")),
    ],
)
def test_a_command_about_one_run_takes_a_configuration_and_overrides(command, words, config, overrides, capsys):
    module, _, name = COMMANDS[command][0].partition(".")
    options_class = get_type_hints(getattr(importlib.import_module(f"verl_trgrpo.cli.{module}"), name))["options"]
    options = parse_options(options_class, command, argv=words)
    assert options.configuration() == (config, overrides)
    assert main([command, *words, "first.yaml", "second"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "first.yaml and second" in error


def test_a_reader_that_closes_the_pipe_is_not_an_error(tmp_path):
    words = [sys.executable, "-m", "verl_trgrpo", "--help"]
    with (tmp_path / "stderr").open("w+") as error:
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=error)
        process.stdout.close()
        assert process.wait(timeout=3600) == 141
        error.seek(0)
        assert not error.read()


def test_a_shaping_of_the_user_is_found_in_the_current_directory(tmp_path, monkeypatch, capsys):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/shapings.py").write_text("def half(probs, *, floor=0.5):\n    return floor + probs / 2\n")
    loss = "actor_rollout_ref.actor.policy_loss.shaping"
    overrides = ["platform=cpu", "shaping=custom", f"{loss}.name=mine.shapings.half", f"+{loss}.floor=0.3"]
    monkeypatch.chdir(tmp_path)
    # As Python begins with -P, which does not add the current directory.
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place not in ("", ".", str(tmp_path))])
    constructed.close()  # a process of this directory, as the command starts one
    code = main(["validate", "kk_quickstart", "--no-files", *overrides])
    constructed.close()
    shown = capsys.readouterr().out
    assert "cannot be imported" not in shown and code == 0, shown


def test_the_default_of_a_key_whose_value_a_script_does_not_show_is_not_judged(tmp_path, capsys):
    script = tmp_path / "train.sh"
    script.write_text(
        "python3 -m verl.trainer.main_ppo data.train_files=$1/train.parquet data.val_files=no_such.parquet\n"
    )
    assert main(["validate", str(script)]) == 1
    printed = capsys.readouterr().out
    assert "data.val_files=no_such.parquet does not exist" in printed and "data.train_files=/root" not in printed
    assert "$1 is not set" in printed
