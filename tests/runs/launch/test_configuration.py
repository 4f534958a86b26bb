"""Early checks: every problem of a configuration, before anything is started."""

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from verl_trgrpo.runs.launch.configuration import ConfigurationError, compose, make_plan, quoted, recipe_arguments
from verl_trgrpo.runs.launch.environment import training_environment
from verl_trgrpo.runs.launch.reward_function import check_reward

LOSS = "actor_rollout_ref.actor.policy_loss"


@pytest.fixture
def recipe(tmp_path):
    data = tmp_path / "train.parquet"
    pq.write_table(pa.table({name: ["x"] * 50 for name in ("prompt", "data_source", "reward_model")}), data)
    model = tmp_path / "model"
    model.mkdir()
    return [
        f"data.train_files={data}", f"data.val_files={data}", "data.train_batch_size=8", f"actor_rollout_ref.model.path={model}",
        "actor_rollout_ref.actor.ppo_mini_batch_size=8", "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8",
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=8", "trainer.n_gpus_per_node=1",
        "actor_rollout_ref.rollout.tensor_model_parallel_size=1", f"trainer.default_local_dir={tmp_path / 'run'}",
    ]  # fmt: skip


def test_a_sound_plan(recipe, tmp_path):
    plan = make_plan("trgrpo_trainer", [*recipe, "trainer.total_epochs=2"], on_cpu=True)
    assert plan.overrides[0] == "platform=cpu"
    assert plan.config.actor_rollout_ref.actor.strategy == "fsdp2"
    assert plan.config.ray_kwargs.ray_init.num_gpus == 1
    assert plan.total_steps == 50 // 8 * 2
    assert plan.run_dir == tmp_path / "run"
    assert not plan.run_dir.exists()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("\nimport no_such_library", "ModuleNotFoundError: No module named 'no_such_library' at line 2"),
        ("def compute_score(:", "SyntaxError: "),
        (
            "try:\n  1 / 0\nexcept ZeroDivisionError as e:\n  raise ImportError('install it') from e",
            "ImportError: install it",
        ),
        ("raise SystemExit(3)", "SystemExit: 3 at line 1"),
        ("import os; print('gone', file=__import__('sys').stderr, flush=True); os._exit(9)", "exit code 9: gone"),
        ("def another_name(): ...", "object_name='compute_score'"),
        ("compute_score = 3", "compute_score is int, not a function"),
    ],
)
def test_a_reward_that_cannot_be_loaded_is_named_before_anything_starts(recipe, tmp_path, text, reason):
    """veRL would say so after its model and its rollout engine are up."""
    file = tmp_path / "reward.py"
    file.write_text(text + "\n")
    with pytest.raises(ConfigurationError) as caught:
        make_plan("trgrpo_trainer", [*recipe, f"reward.custom_reward_function.path={file}"], on_cpu=True)
    assert f"reward.custom_reward_function.path={file} cannot be loaded" in str(caught.value)
    assert reason in str(caught.value)


def test_a_reward_is_loaded_in_a_process_of_its_own(recipe, tmp_path, monkeypatch, capfd):
    """In the working directory, as Ray's workers have it; what importing it does to its process stays there."""
    (tmp_path / "rewards").mkdir()
    (tmp_path / "rewards" / "utils.py").write_text("")
    text = """
import os, sys, threading, time
import rewards.utils
os.environ["CUDA_VISIBLE_DEVICES"] = "changed"
os.chdir("/")
print("printed")
threading.Thread(target=time.sleep, args=(600,)).start()
def compute_score(**_): ...
"""
    (tmp_path / "rewards" / "mine.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    before = dict(os.environ)
    make_plan("trgrpo_trainer", [*recipe, "reward.custom_reward_function.path=rewards/mine.py"], on_cpu=True)
    assert Path.cwd() == tmp_path and dict(os.environ) == before
    assert "printed" not in capfd.readouterr().out


@pytest.mark.parametrize(
    "elsewhere", ["+ray_kwargs.ray_init.address=10.0.0.1:6379", "+ray_kwargs.ray_init.runtime_env.pip=[x]"]
)
def test_a_reward_that_only_rays_workers_may_have_is_left_to_them(recipe, tmp_path, elsewhere):
    overrides = [*recipe, f"reward.custom_reward_function.path={tmp_path / 'there.py'}", elsewhere]
    config = make_plan("trgrpo_trainer", overrides, on_cpu=True).config
    assert "whose place ray_kwargs.ray_init." in check_reward(config).unchecked


def test_an_accelerator_keeps_the_hosts_defaults(recipe):
    plan = make_plan("trgrpo_trainer", recipe, on_cpu=False)
    assert plan.config.actor_rollout_ref.actor.strategy == "fsdp"
    assert plan.config.actor_rollout_ref.model.external_lib is None


def test_an_explicit_platform_is_respected(recipe):
    plan = make_plan("trgrpo_trainer", [*recipe, "platform=accelerator"], on_cpu=True)
    assert plan.config.actor_rollout_ref.model.external_lib is None
    # A head node without a GPU may start a run on GPUs: what was chosen counts, not what was found.
    assert plan.on_cpu is False
    assert make_plan("trgrpo_trainer", [*recipe, "platform=cpu"], on_cpu=False).on_cpu is True


def test_stock_configurations_get_the_platform_too(recipe):
    stock = [*recipe, "actor_rollout_ref.rollout.name=vllm", "actor_rollout_ref.rollout.n=8", "+algorithm=tr_grpo"]
    assert make_plan("ppo_trainer", stock, on_cpu=True).overrides[0] == "+platform=cpu"


@pytest.mark.parametrize("algorithm", ["tr_grpo", "grpo_sg", "grpo", "dr_grpo"])
def test_each_algorithm_has_its_own_run_directory(recipe, algorithm):
    overrides = [override for override in recipe if "default_local_dir" not in override]
    plan = make_plan("trgrpo_trainer", [*overrides, f"algorithm={algorithm}"], on_cpu=True)
    assert plan.run_dir == Path("runs/verl_trgrpo") / algorithm
    named = make_plan(
        "trgrpo_trainer", [*overrides, f"algorithm={algorithm}", "trainer.experiment_name=mine"], on_cpu=True
    )
    assert named.run_dir.name == "mine"


def test_a_stock_configuration_is_not_named_after_an_algorithm_that_nobody_chose(recipe):
    stock = [*recipe, "actor_rollout_ref.rollout.name=vllm", "actor_rollout_ref.rollout.n=8", "critic.enable=false"]
    plan = make_plan("ppo_trainer", stock, on_cpu=False)
    assert plan.config.trainer.experiment_name == "gsm8k"  # veRL's own
    plan = make_plan("ppo_trainer", [*stock, "+algorithm=dr_grpo"], on_cpu=False)
    assert plan.config.trainer.experiment_name == "dr_grpo"


@pytest.mark.parametrize(
    ("yaml", "override", "name"),
    [
        ("defaults: [ppo_trainer, agent: single_turn, _self_, algorithm: grpo]", None, "my recipe-grpo"),
        (
            "defaults: [ppo_trainer, agent: single_turn, _self_, algorithm: grpo]",
            "algorithm=dr_grpo",
            "my recipe-dr_grpo",
        ),
        ("defaults: [trgrpo_trainer, override algorithm: aspo, _self_]", None, "my recipe-aspo"),
        ("defaults: [trgrpo_trainer, _self_]\ntrainer: {experiment_name: first}", "algorithm=grpo", "first"),
        (
            "defaults: [trgrpo_trainer, _self_]\ntrainer: {experiment_name: first}",
            "trainer.experiment_name=trgrpo",
            "trgrpo",
        ),
        ("defaults: [ppo_trainer, _self_]", None, "my recipe"),
    ],
)
def test_a_run_is_named_after_what_its_recipe_chooses_unless_the_recipe_names_it(
    recipe, tmp_path, yaml, override, name
):
    (tmp_path / "my recipe.yaml").write_text(yaml)
    overrides = [word for word in recipe if "default_local_dir" not in word] + ([override] if override else [])
    overrides += ["actor_rollout_ref.rollout.name=vllm", "actor_rollout_ref.rollout.n=8", "critic.enable=false"]
    config_name, arguments = recipe_arguments(tmp_path / "my recipe.yaml", overrides)
    plan = make_plan(config_name, arguments, on_cpu=True)
    assert plan.config.trainer.experiment_name == plan.run_dir.name == name
    # What is handed to veRL makes the same configuration.
    assert compose(config_name, plan.overrides) == plan.config


def test_overrides_of_keys_that_only_the_cpu_platform_has(recipe):
    eager = "actor_rollout_ref.model.override_config.attn_implementation=eager"
    plan = make_plan("trgrpo_trainer", [*recipe, eager], on_cpu=True)
    assert plan.config.actor_rollout_ref.model.override_config.attn_implementation == "eager"


@pytest.mark.parametrize(
    "value", ["/home/jürgen/x", "/exp=1,2(3){a}", "it's", "back\\slash\\'q", "end\\", "#x", "a b:c", "李"]
)
def test_any_path_survives_hydra(value):
    parsed = OverridesParser.create().parse_override(f"key={quoted(value)}")
    assert parsed.value() == value


def test_rows_that_only_the_host_counts(recipe):
    assert make_plan("trgrpo_trainer", [*recipe, "data.filter_overlong_prompts=true"], True).total_steps is None
    limited = [*recipe, "data.train_max_samples=16", "trainer.total_epochs=1"]
    assert make_plan("trgrpo_trainer", limited, True).total_steps == 2


def test_files_that_are_not_what_they_seem(recipe, tmp_path):
    pq.write_table(pa.table({"nonsense": [1]}), tmp_path / "columns.parquet")
    (tmp_path / "broken.parquet").write_text("not parquet")
    overrides = [*recipe, f"data.train_files={tmp_path}/columns.parquet", f"data.val_files={tmp_path}/broken.parquet"]
    with pytest.raises(ConfigurationError) as caught:
        make_plan("trgrpo_trainer", overrides, on_cpu=True)
    assert "lacks the column data_source, prompt, reward_model (it has nonsense)" in caught.value.problems[0]
    assert "cannot be read as parquet" in caught.value.problems[1]


@pytest.mark.parametrize(
    ("override", "complaints"),
    [
        ("algorithm=trgrpo", ["Could not find 'algorithm/trgrpo'", "tr_grpo_reverse"]),
        ("nonsense.key=1", ["nonsense"]),
        (f"{LOSS}.shaping.name=sigmoit", ["Did you mean 'sigmoid'"]),
        (f"{LOSS}.shaping.tau=0.1111", ["same weight 1", "inverse temperature", "policy_loss.shaping"]),
        (f"{LOSS}.kl=scaled", ["needs actor.use_kl_loss=True"]),
        (f"{LOSS}.loss_mode=vanilla", ["loss_mode=vanilla ignores shaping"]),
        ("actor_rollout_ref.actor.clip_ratio_c=0.5", ["clip_ratio_c=0.5"]),
        ("data.train_batch_size=4", ["train_batch_size (4)", "ppo_mini_batch_size (8)"]),
        (
            "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=7",
            ["log_prob_micro_batch_size_per_gpu=7 does not divide", "choose a divisor"],
        ),
        ("actor_rollout_ref.rollout.tensor_model_parallel_size=2", ["tensor_model_parallel_size=2", "1 GPUs"]),
        ("data.train_files=/nowhere/train.parquet", ["data.train_files=/nowhere/train.parquet does not exist"]),
        ("actor_rollout_ref.model.path=./nowhere", ["model.path=./nowhere is not a directory"]),
    ],
)
def test_mistakes_are_named(recipe, override, complaints):
    with pytest.raises(ConfigurationError) as caught:
        make_plan("trgrpo_trainer", [*recipe, override], on_cpu=True)
    for complaint in complaints:
        assert complaint in str(caught.value)


def test_several_mistakes_come_out_together(recipe):
    overrides = ["data.val_files=/no/test.parquet", "data.train_batch_size=4", f"{LOSS}.kl=literal"]
    with pytest.raises(ConfigurationError) as caught:
        make_plan("trgrpo_trainer", [*recipe, *overrides], on_cpu=True)
    assert len(caught.value.problems) == 3


def test_environment_defaults_yield_to_the_user():
    inherited = {"OMP_NUM_THREADS": "7", "PATH": "/bin"}
    on_cpu = training_environment(True, "/tmp/metrics.jsonl", inherited)
    assert on_cpu["VERL_PLATFORM"] == "cpu" and on_cpu["OMP_NUM_THREADS"] == "7"
    assert on_cpu["VERL_FILE_LOGGER_PATH"] == "/tmp/metrics.jsonl"
    assert "VERL_PLATFORM" not in training_environment(False, "x", inherited)
    assert "VERL_PLATFORM" not in inherited
