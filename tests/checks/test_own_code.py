"""The reward function is loaded before anything is started: mistakes, side effects, workers on other machines."""

import os
from pathlib import Path

import pytest

from tests.conftest import composed
from verl_trgrpo.checks import machine
from verl_trgrpo.checks.view import RunView
from verl_trgrpo.common.findings import Level


def finding(path, *more):
    overrides = [f"reward.custom_reward_function.path={path}", *more]
    [found] = machine.own_code_findings(RunView(composed(overrides, platform="cpu")))
    return found


@pytest.fixture(autouse=True)
def any_machine_is_fast_enough(monkeypatch):
    monkeypatch.setattr(machine, "_SECONDS", 3600.0)


@pytest.fixture
def without_verl(monkeypatch):
    """The process that loads a reward gets the part of veRL's loader that matters here, which saves its import."""
    loader = """
def load_extern_object(module_path, object_name):
    scope = {}
    try:
        if module_path.startswith("pkg://"):
            scope = vars(__import__(module_path[6:]))
        else:
            exec(open(module_path).read(), scope)
    except Exception as error:
        raise RuntimeError("wrapped") from error
    if object_name not in scope:
        raise AttributeError(f"{object_name=}")
    return scope[object_name]
"""
    line = "from verl.utils.import_utils import load_extern_object\n"
    assert line in machine.PROGRAM
    monkeypatch.setattr(machine, "PROGRAM", machine.PROGRAM.replace(line, loader))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("import no_such_library", "ModuleNotFoundError: No module named 'no_such_library'"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("import os; print('gone', file=__import__('sys').stderr, flush=True); os._exit(9)", "exit code 9: gone"),
        ("def another_name(): ...", "object_name='compute_score'"),
        ("compute_score = 3", "compute_score is int"),
        ("def compute_score(solution_str, ground_truth): ...", "unexpected keyword argument 'data_source'"),
        ("def compute_score(prompts, completions, **kwargs): ...", "missing a required argument: 'prompts'"),
        ("def compute_score(data_sources, solution_strs, ground_truths, extra_infos): ...", "argument"),
        ("class compute_score: ...", "is a class"),
    ],
)
def test_a_reward_that_cannot_be_loaded_is_an_error(tmp_path, text, reason, without_verl):
    file = tmp_path / "reward.py"
    file.write_text(text + "\n")
    found = finding(file)
    assert found.level is Level.ERROR and str(file) in found.message and reason in found.message


@pytest.mark.parametrize(("options", "level"), [("alpha: 2", Level.NOT_CHECKED), ("alfa: 2", Level.ERROR)])
@pytest.mark.parametrize("word", ["", "async "])
def test_options_of_a_reward_are_parameters_of_it(tmp_path, options, level, word, without_verl):
    file = tmp_path / "reward.py"
    file.write_text(
        f"{word}def compute_score(data_source, solution_str, ground_truth, extra_info=None, alpha=1): ...\n"
    )
    found = finding(file, f"+reward.custom_reward_function.reward_kwargs={{{options}}}")
    assert found.level is level and ("alfa" in found.message) == (level is Level.ERROR)


def test_classes_that_a_run_names_are_loaded(tmp_path, monkeypatch, without_verl, tiny_run):
    """Each in one process, even where the module of one of them ends it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.py").write_text("class NoDataset: ...\n")
    (tmp_path / "sampler.py").write_text("class Mine: ...\n")
    (tmp_path / "loops.yaml").write_text("[{name: mine, _target_: my_loops.Loop}]")
    tool = "class_name: no_such_module.Tool, config: {type: native}, tool_schema: null"
    (tmp_path / "tools.yaml").write_text(f"tools: [{{{tool}}}]")
    agent, sampler = "actor_rollout_ref.rollout", "trainer.v1.sampler.custom_sampler"
    overrides = [
        f"{sampler}.path=sampler.py", f"{sampler}.name=Mine", "data.custom_cls.path=data.py", "data.custom_cls.name=NoDataset",
        f"{agent}.agent.agent_loop_config_path=loops.yaml", f"{agent}.agent.default_agent_loop=mine",
        f"{agent}.multi_turn.tool_config_path=tools.yaml",
    ]  # fmt: skip
    found = machine.own_code_findings(RunView(composed(overrides)))
    assert {each.where: each.level for each in found} == {
        "data.custom_cls.path": Level.ERROR,
        f"{agent}.agent.agent_loop_config_path": Level.ERROR,
        f"{agent}.multi_turn.tool_config_path": Level.ERROR,
    }
    assert "torch.utils.data" in found[0].message and "no_such_module" in found[2].message


def test_an_option_that_no_reward_has_is_an_error():
    options = "+reward.custom_reward_function.reward_kwargs"
    run = composed([f"{options}={{default_reward: math, default_rewrd: kk, overlong_buffer_cfg: {{len: 3}}}}"])
    found = machine.own_code_findings(RunView(run))
    assert [finding.where.rpartition(".")[2] for finding in found] == ["default_rewrd", "overlong_buffer_cfg"]
    assert "default_reward?" in found[0].message and "reward.reward_kwargs.overlong_buffer_cfg" in found[1].message


def test_verls_own_loader_wraps_errors_as_assumed(tmp_path):
    from verl.utils.import_utils import load_extern_object

    (tmp_path / "reward.py").write_text("import no_such_library\n")
    with pytest.raises(RuntimeError) as raised:
        load_extern_object(str(tmp_path / "reward.py"), "compute_score")
    assert isinstance(raised.value.__cause__, ModuleNotFoundError)


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
    assert found.level is Level.NOT_CHECKED
    assert Path.cwd() == tmp_path and dict(os.environ) == before
    assert "printed" not in capfd.readouterr().out


@pytest.mark.parametrize(
    "elsewhere", ["+ray_kwargs.ray_init.address=10.0.0.1:6379", "+ray_kwargs.ray_init.runtime_env.pip=[x]"]
)
def test_a_reward_that_only_rays_workers_may_have_is_left_to_them(tmp_path, elsewhere):
    found = finding(tmp_path / "there.py", elsewhere)
    assert found.level is Level.NOT_CHECKED and "ray_kwargs.ray_init." in found.message
