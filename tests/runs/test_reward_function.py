"""The reward function, loaded before anything is started: mistakes, side effects, workers that are elsewhere."""

import os
from pathlib import Path

import pytest

from verl_trgrpo.common.findings import Level
from verl_trgrpo.runs.checks.reward_function import reward_findings
from verl_trgrpo.runs.compose import compose


def finding(path, *more):
    overrides = [f"reward.custom_reward_function.path={path}", *more]
    [found] = reward_findings(compose(overrides=overrides, platform="cpu").config)
    return found


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("import no_such_library", "ModuleNotFoundError: No module named 'no_such_library'"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("import os; print('gone', file=__import__('sys').stderr, flush=True); os._exit(9)", "exit code 9: gone"),
        ("def another_name(): ...", "object_name='compute_score'"),
        ("compute_score = 3", "compute_score is int, not a function"),
    ],
)
def test_a_reward_that_cannot_be_loaded_is_named(tmp_path, text, reason):
    """veRL would say so after its model and its rollout engine are up."""
    file = tmp_path / "reward.py"
    file.write_text(text + "\n")
    found = finding(file)
    assert found.level is Level.ERROR and reason in found.message


def test_a_reward_is_loaded_in_a_process_of_its_own(tmp_path, monkeypatch, capfd):
    """In the working directory, as Ray's workers have it; what importing it does to its process stays there."""
    (tmp_path / "rewards").mkdir()
    (tmp_path / "rewards" / "utils.py").write_text("")
    text = """
import os, subprocess, sys, threading, time
import rewards.utils
subprocess.Popen(["sleep", "130"])
os.environ["CUDA_VISIBLE_DEVICES"] = "changed"
os.chdir("/")
print("printed")
threading.Thread(target=time.sleep, args=(600,)).start()
def compute_score(**_): ...
"""
    (tmp_path / "rewards" / "mine.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    before = dict(os.environ)
    found = finding("rewards/mine.py")
    assert found.level is Level.NOT_CHECKED and "data sources" in found.message
    assert Path.cwd() == tmp_path and dict(os.environ) == before
    assert "printed" not in capfd.readouterr().out


@pytest.mark.parametrize(
    "elsewhere", ["+ray_kwargs.ray_init.address=10.0.0.1:6379", "+ray_kwargs.ray_init.runtime_env.pip=[x]"]
)
def test_a_reward_that_only_rays_workers_may_have_is_left_to_them(tmp_path, elsewhere):
    found = finding(tmp_path / "there.py", elsewhere)
    assert found.level is Level.NOT_CHECKED and "whose place ray_kwargs.ray_init." in found.message
