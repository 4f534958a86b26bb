"""A run's configuration: recipes, platforms, names; and that veRL composes the same."""

import re
import subprocess
import sys
from pathlib import Path

import hydra
import pytest
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import open_dict

from verl_trgrpo.common.findings import InvalidInputError
from verl_trgrpo.runs.compose import compose, quoted
from verl_trgrpo.runs.environment import training_environment

STOCK = ["actor_rollout_ref.rollout.name=vllm", "actor_rollout_ref.rollout.n=8"]


def composed_by_hydra(arguments):
    """What ``python -m verl.trainer.main_ppo ARGUMENTS`` composes."""
    arguments = list(arguments)
    path = arguments.pop(0).removeprefix("--config-path=") if arguments[0].startswith("--config-path=") else None
    GlobalHydra.instance().clear()
    module = "verl.trainer.config"
    with (
        hydra.initialize_config_dir(path, version_base=None)
        if path
        else hydra.initialize_config_module(module, version_base=None)
    ):
        config = hydra.compose(arguments[1], overrides=arguments[2:], return_hydra_config=True)
    with open_dict(config):
        del config["hydra"]
    return config


def test_a_run_without_an_accelerator():
    run = compose(overrides=["trainer.default_local_dir=there"], platform="cpu")
    assert "platform=cpu" in run.arguments and run.on_cpu
    assert run.config.actor_rollout_ref.actor.strategy == "fsdp2"
    assert run.config.ray_kwargs.ray_init.num_gpus == 1
    assert run.directory == Path("there")
    assert composed_by_hydra(run.arguments) == run.config


def test_a_platform_that_the_user_chooses_is_respected():
    """A head node without a GPU may start a run on GPUs."""
    assert compose(overrides=["platform=accelerator"], platform="cpu").on_cpu is False
    assert compose(overrides=["platform=cpu"]).on_cpu is True
    # Keys that only this platform has.
    eager = "actor_rollout_ref.model.override_config.attn_implementation=eager"
    config = compose(overrides=[eager], platform="cpu").config
    assert config.actor_rollout_ref.model.override_config.attn_implementation == "eager"


def test_a_stock_configuration_is_not_named_after_an_algorithm_that_nobody_chose():
    assert compose("ppo_trainer", STOCK).config.trainer.experiment_name == "gsm8k"  # veRL's own
    assert compose("ppo_trainer", [*STOCK, "+algorithm=dr_grpo"]).config.trainer.experiment_name == "dr_grpo"


GROUPS = "defaults: [ppo_trainer, agent: single_turn, _self_, algorithm: grpo]"
NAMED = "defaults: [trgrpo_trainer, _self_]\ntrainer: {experiment_name: first}"


@pytest.mark.parametrize(
    ("yaml", "override", "name"),
    [
        (GROUPS, [], "my recipe-grpo"),
        (GROUPS, ["algorithm=dr_grpo"], "my recipe-dr_grpo"),
        ("defaults: [trgrpo_trainer, override algorithm: aspo, _self_]", [], "my recipe-aspo"),
        (NAMED, ["algorithm=grpo"], "first"),
        (NAMED, ["trainer.experiment_name=trgrpo"], "trgrpo"),
        ("defaults: [ppo_trainer, _self_]", [], "my recipe"),
    ],
)
def test_a_recipe_s_run_is_named_after_it_and_its_algorithm_unless_it_has_a_name(tmp_path, yaml, override, name):
    (tmp_path / "my recipe.yaml").write_text(yaml)
    run = compose(tmp_path / "my recipe.yaml", [*STOCK, *override], platform="cpu")
    assert run.config.trainer.experiment_name == name
    assert composed_by_hydra(run.arguments) == run.config


@pytest.mark.parametrize(
    ("source", "overrides", "part"),
    [
        ("trgrpo_trainer", ["algorithm=trgrpo"], "algorithm=trgrpo does not exist; did you mean tr_grpo?"),
        ("ppo_trainer", ["+algorithm=xyz"], "there are advantage_reweighting_current"),
        ("trgrpo_trainer", ["nonsense.key=1"], "nonsense.key is a key that neither"),
        ("trgrpo_trainer", ["algoritm=tr_grpo"], "did you mean algorithm?"),
        ("trgrpo_trainer", ["trainer.total_epoch=1"], "did you mean trainer.total_epochs?"),
        ("trgrpo_trainer", ["actor_rollout_ref.actor.lr=1"], "did you mean actor_rollout_ref.actor.optim.lr?"),
        ("trgrpo", [], "did you mean trgrpo_trainer?"),
        ("nowhere.yml", [], "give a recipe file"),
        ("recipes/nowhere/x.yaml", [], "does not exist"),
        ("recipes/knights_and_knaves/qwen2.5-3b-instruct", [], "does not end in .yaml"),
    ],
)
def test_what_cannot_be_composed_is_named(source, overrides, part):
    with pytest.raises(InvalidInputError) as caught:
        compose(source, overrides, platform="cpu")
    assert part in str(caught.value)


@pytest.mark.parametrize(
    "value", ["/home/jürgen/x", "/exp=1,2(3){a}", "it's", "back\\slash\\'q", "end\\", "#x", "a b:c", "李"]
)
def test_any_path_survives_hydra(value):
    parsed = OverridesParser.create().parse_override(f"key={quoted(value)}")
    assert parsed.value() == value


def test_missing_files_are_found_without_verl_and_torch():
    program = (
        "import sys; from verl_trgrpo.runs.compose import compose; from verl_trgrpo.runs.checks.files import missing_files; "
        "assert len(missing_files(compose(overrides=['data.train_files=/no.parquet']).config)) == 3; "
        "print({'verl', 'torch', 'transformers', 'pyarrow'} & {*sys.modules})"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "set()"


def test_environment_defaults_yield_to_the_user():
    inherited = {"OMP_NUM_THREADS": "7", "PATH": "/bin"}
    on_cpu = training_environment(True, "/tmp/metrics.jsonl", inherited)
    assert on_cpu["VERL_PLATFORM"] == "cpu" and on_cpu["OMP_NUM_THREADS"] == "7"
    assert on_cpu["VERL_FILE_LOGGER_PATH"] == "/tmp/metrics.jsonl"
    assert "VERL_PLATFORM" not in training_environment(False, "x", inherited)
    assert "VERL_PLATFORM" not in inherited


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"a: \xe9", "save it as UTF-8"),
        (b"", "is empty"),
        (b"5", "is a int; a recipe is keys with values"),
        (b"- a", "is a list"),
        (b"defaults: [recipe]", "includes itself"),
    ],
)
def test_files_that_are_no_recipes_are_named_with_the_reason(tmp_path, content, part):
    (tmp_path / "recipe.yaml").write_bytes(content)
    with pytest.raises(InvalidInputError, match=part):
        compose(tmp_path / "recipe.yaml")


@pytest.mark.parametrize(
    ("source", "file", "part"),
    [
        ("mine.yml", "mine.yaml", "did you mean mine.yaml?"),
        ("mine", "mine.yaml", "did you mean mine.yaml?"),
        ("./my.own", "my.own.yaml", "did you mean my.own.yaml?"),
        ("mine.yml", "mine.yml", "rename the file to mine.yaml"),
        ("mine", "mine", "rename the file to mine.yaml"),
    ],
)
def test_a_recipe_by_half_its_name_is_found(tmp_path, monkeypatch, source, file, part):
    monkeypatch.chdir(tmp_path)
    Path(file).write_text("defaults: [trgrpo_trainer, _self_]")
    with pytest.raises(InvalidInputError, match=re.escape(part)):
        compose(source)


def test_a_file_does_not_hide_a_configuration_of_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("ppo_trainer.yaml").write_text("a: 1")
    assert "trainer" in compose("ppo_trainer").config


def test_a_defaults_list_without_self_is_quiet_and_its_own_keys_count_last(tmp_path, recwarn):
    (tmp_path / "mine.yaml").write_text("defaults: [trgrpo_trainer]\ntrainer: {nnodes: 7}")
    assert compose(tmp_path / "mine.yaml").config.trainer.nnodes == 7
    assert len(recwarn) == 0
