"""A task is a folder and a line: here the line is a word of VERL_USE_EXTERNAL_MODULES."""

import ast
import os
import subprocess
import sys

import pytest

from tests.messages import modules
from tests.tasks.own_task import write_task
from verl_trgrpo.tasks import Builder, Scoring, Task, compute_score, register_task
from verl_trgrpo.tasks import registry as tasks
from verl_trgrpo.tasks.registry import known_agent_loops


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
    assert "build those of capitals" in run(tmp_path, "data", "build", "--help").stdout
    built = run(tmp_path, "data", "build", "capitals", "--out", out, "--times", 2)
    assert built.returncode == 0 and f"{out}/train.parquet: 8 rows" in built.stdout, built
    checked = run(tmp_path, "data", "check", "--train", out / "train.parquet", "--test", out / "test.parquet")
    assert checked.returncode == 0 and "0 errors, 0 warnings" in checked.stdout, checked
    refused = run(tmp_path, "data", "build", "capitals", "--out", out, "--times", 0)
    assert refused.returncode == 2 and "times=0" in refused.stderr


# Who knows a task by name: puzzles and words are compared across files, answers of other tasks are read as mathematics, and the
# quickstart is one of puzzles.
KNOWN_BY_NAME = {
    ("decontaminate.py", "knights_and_knaves"), ("decontaminate.py", "math"), ("data_check.py", "knights_and_knaves"),
    ("demos/puzzles.py", "knights_and_knaves"), ("tasks/ground_truths.py", "math"),
    ("tasks/reasoning_gym/reward.py", "math"), ("tasks/reasoning_gym/rows.py", "math"),
}  # fmt: skip


def test_no_other_module_knows_a_task_by_name():
    """What a task declares is asked of the registry: neither its folder nor an agent loop of it is named elsewhere."""
    found, loops = set(), known_agent_loops()
    for place, tree in modules():
        for node in ast.walk(tree):
            named = getattr(node, "module", None) or "" if isinstance(node, ast.ImportFrom) else ""
            text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
            for folder in tasks._FOLDERS:
                own = place.startswith(f"tasks/{folder}/")
                if not own and f"{named}.".startswith(f"verl_trgrpo.tasks.{folder}."):
                    found.add((place, folder))
                if not own and any(
                    name in text for name in loops if loops[name].loop.startswith(f"verl_trgrpo.tasks.{folder}.")
                ):
                    found.add((place, folder))
    assert found == KNOWN_BY_NAME


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
