"""A task is a folder and a line: here the line is a word of VERL_USE_EXTERNAL_MODULES."""

import ast
import importlib
import os
import re
import subprocess
import sys

import pytest

from tests.data.checked_files import report, write
from tests.data.checked_files import row as checked_row
from tests.messages import modules, texts
from tests.tasks.own_task import write_task
from verl_trgrpo.curation.decontaminate import words_of
from verl_trgrpo.evaluation.options import EvalOptions
from verl_trgrpo.tasks import Builder, Sampling, Score, Scoring, Task, compute_score, register_task
from verl_trgrpo.tasks import registry as tasks
from verl_trgrpo.tasks.ground_truths import answers_of


def run(directory, *words):
    environment = os.environ | {
        "VERL_USE_EXTERNAL_MODULES": "capitals", "PYTHONPATH": f"{directory}:{os.environ.get('PYTHONPATH', '')}"
    }  # fmt: skip
    command = [sys.executable, "-m", "verl_trgrpo", *map(str, words)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)


def test_a_task_brings_builder_help_reward_and_checks(tmp_path):
    write_task(tmp_path)
    out = tmp_path / "data"
    shown = run(tmp_path, "data", "build", "capitals", "--help").stdout
    assert "verl-trgrpo data build capitals --out" in shown and "--times" in shown and "Returns" not in shown
    assert "build the Parquet file of capitals" in run(tmp_path, "data", "build", "--help").stdout
    built = run(tmp_path, "data", "build", "capitals", "--out", out, "--times", 2)
    assert built.returncode == 0 and f"{out}/train.parquet: 8 rows" in built.stdout, built
    checked = run(tmp_path, "data", "check", "--train", out / "train.parquet", "--test", out / "test.parquet")
    assert checked.returncode == 0 and "0 errors, 0 warnings" in checked.stdout, checked
    refused = run(tmp_path, "data", "build", "capitals", "--out", out, "--times", 0)
    assert refused.returncode == 2 and "times=0" in refused.stderr


# Who knows a task by name: the quickstart is one of puzzles, verifiers of reasoning-gym read answers as mathematics, and a train
# file is warned of by the names of public test sets. A raw file is answered with the builder of questions. The distribution
# reasoning-gym, which makes puzzles, has a builder's name.
KNOWN_BY_NAME = {
    "demos/puzzles.py": {"knights_and_knaves", "reasoning-gym"}, "tasks/knights_and_knaves/rows.py": {"reasoning-gym"},
    "data/sources.py": {"aime", "minerva", "math"}, "judge/spelling.py": {"math"},
    "data/questions/columns.py": {"deepscaler"}, "data/questions/whole_files.py": {"deepscaler"},
}  # fmt: skip


def own_names(task):
    """The words by which a task can be asked for: data sources, builders, agent loops, presets, and settings of loops."""
    loops = task.agent_loops.values()
    words = {*task.rewards, *task.builders, *task.agent_loops, *task.presets, *(loop.override for loop in loops)}
    words |= {f"custom.{loop.section}" for loop in loops if loop.section}
    return {word for word in words if "*" not in word}


def tasks_named_in(place, tree):
    """The folders and words of tasks that a module outside them has in its imports and texts; docstrings are not read."""
    known = {folder: importlib.import_module(f"verl_trgrpo.tasks.{folder}").TASK for folder in tasks._FOLDERS}
    others = {folder: own_names(task) for folder, task in known.items() if not place.startswith(f"tasks/{folder}/")}
    found = set()
    for node in ast.walk(tree):
        for module in [node.module or ""] if isinstance(node, ast.ImportFrom) else ():
            found |= {folder for folder in others if f"{module}.".startswith(f"verl_trgrpo.tasks.{folder}.")}
    for _, text in texts(tree):
        found |= {folder for folder in others if re.search(rf"tasks[./]{folder}\b", text)}
        found |= {
            word
            for words in others.values()
            for word in words
            if re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text)
        }
    return found


def test_no_other_module_knows_a_task_by_name():
    """What a task declares is asked of the registry, where its folder's name is the only line."""
    found = {place: named for place, tree in modules() if (named := tasks_named_in(place, tree))}
    assert found.pop("tasks/registry.py") == {"math", "search_qa"}, "names of folders that are data sources, too"
    assert found == KNOWN_BY_NAME


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("from verl_trgrpo.tasks.math.words import spell", "math"),
        ("def f():\n    from verl_trgrpo.tasks.knights_and_knaves import logic", "knights_and_knaves"),
        ("loop = 'verl_trgrpo.tasks.search_qa.loop:Loop'", "search_qa"),
        ("Preset = Literal['greedy', 'kk']", "kk"),
        ("key = f'{ROLLOUT}.custom.search.url'", "custom.search"),
        ("raise ValueError('unknown; give --reward math')", "math"),
        ("agents = {'trgrpo_search'}", "trgrpo_search"),
        ("words = ['agent=search_tags']", "agent=search_tags"),
    ],
)
def test_a_module_that_knows_a_task_by_name_is_found(line, named):
    assert named in tasks_named_in("evaluation/options.py", ast.parse(line))


@pytest.mark.parametrize(
    "task",
    [
        Task(rewards={"mine": Scoring("x:y"), "kk": Scoring("x:y")}),
        Task(rewards={"mine": Scoring("x:y")}, foreign={"nq": Scoring("x:y")}),
        Task(rewards={"mine": Scoring("x:y")}, builders={"kk": Builder("x:y", "")}),
    ],
)
def test_a_task_with_a_name_of_another_is_refused_as_a_whole(registry, task):
    with pytest.raises(ValueError, match="an earlier task has it"):
        register_task(task)
    with pytest.raises(ValueError, match="mine"):
        compute_score("mine", "", "")


def test_what_a_task_declares_is_asked_for_where_it_matters(registry, tmp_path):
    """Presets of an evaluation, keys of equal rows, spellings of questions, alternatives of ground truths, default rewards."""
    scoring = Scoring(lambda *given: Score(1.0, 1.0), alternatives=lambda text: text.split(" OR "))
    register_task(
        Task(
            rewards={"hues": scoring},
            presets={"hues": Sampling(3, 0.5, 1.0, 7)},
            row_keys={"hue": lambda row: row["extra_info"].get("hue")},
            spellings={"colours": lambda text: text.replace("grey", "gray")},
        )
    )
    asked = [
        checked_row(i, data_source="hues", extra_info={"hue": "red"}, reward_model={"ground_truth": "RED OR grey"})
        for i in range(2)
    ]
    file = write(tmp_path / "a.parquet", asked)
    assert EvalOptions(model="m", data=(file,), preset="hues", reward="hues").sampling == Sampling(3, 0.5, 1.0, 7)
    with pytest.raises(ValueError, match="2 problems") as refused:
        EvalOptions(model="m", data=(file,), preset="hue", reward="hue")
    assert str(refused.value).count("did you mean hues?") == 2
    found = report(file).checks
    assert ["same hue as a.parquet row 0, names aside" in line for check in found for line in check.examples].count(
        True
    ) == 1
    assert words_of("grey") == ["gray"] and answers_of(asked[0]) == ["RED OR grey", "RED", "grey"]
