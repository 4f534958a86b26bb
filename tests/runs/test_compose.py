"""Recipes, platforms and names of runs; veRL composes the same configuration."""

from pathlib import Path

import hydra
import pytest
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import open_dict

from verl_trgrpo.common.findings import InvalidInputError
from verl_trgrpo.runs import environment
from verl_trgrpo.runs.compose import compose, compose_part
from verl_trgrpo.runs.environment import training_environment
from verl_trgrpo.runs.overrides import quoted
from verl_trgrpo.verl_plugin.cpu import CPU_ENVIRONMENT
from verl_trgrpo.verl_plugin.loopback import LOOPBACK_ENVIRONMENT

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


def test_without_flash_attention_sequences_are_padded():
    settings = compose(overrides=["algorithm=dapo"], platform="sdpa").config.actor_rollout_ref.model
    assert (settings.override_config.attn_implementation, settings.use_remove_padding) == ("sdpa", False)
    stock = compose("ppo_trainer", [*STOCK, "+algorithm=tr_grpo"], platform="sdpa").config.actor_rollout_ref.model
    assert stock.override_config == settings.override_config
    run = compose(overrides=["algorithm=dapo", "critic.enable=true"], platform="sdpa").config
    sections = (run.actor_rollout_ref.actor, run.actor_rollout_ref.rollout, run.actor_rollout_ref.ref, run.critic)
    sizes = [value for each in sections for key, value in each.items() if key.endswith(("dynamic_bsz", "size_per_gpu"))]
    assert len(sizes) == 9 and all(value is False or value == 1 for value in sizes)  # one response is not padded
    own = "actor_rollout_ref.model.override_config.attn_implementation=eager"
    assert compose(overrides=[own], platform="sdpa").config.actor_rollout_ref.model.override_config == {
        "attn_implementation": "eager"
    }


@pytest.mark.parametrize(
    ("device", "flash", "overrides", "expected"),
    [
        ("cuda", False, [], "sdpa"),
        ("cuda", True, [], None),
        ("cuda", False, ["model_engine=megatron"], None),
        ("npu", False, [], None),  # has another attention
        ("", False, [], "cpu"),
    ],
)
def test_the_platform_follows_what_the_machine_has(device, flash, overrides, expected, monkeypatch):
    """No machine here has a GPU, so what torch and the import system say is replaced."""
    monkeypatch.setattr(environment, "accelerator_found", lambda: bool(device))
    monkeypatch.setattr("torch.cuda.is_available", lambda: device == "cuda")
    monkeypatch.setattr(environment, "find_spec", lambda name: object() if flash else None)
    assert environment.platform_here(overrides) == expected


def test_a_platform_that_the_user_chooses_is_respected():
    """A head node without a GPU may start a run on GPUs."""
    assert compose(overrides=["platform=accelerator"], platform="cpu").on_cpu is False
    assert compose(overrides=["platform=cpu"]).on_cpu is True
    # Keys that only this platform has.
    eager = "actor_rollout_ref.model.override_config.attn_implementation=eager"
    config = compose(overrides=[eager], platform="cpu").config
    assert config.actor_rollout_ref.model.override_config.attn_implementation == "eager"


def test_a_stock_configuration_is_not_named_after_an_algorithm_that_was_not_chosen():
    assert compose("ppo_trainer", STOCK).config.trainer.experiment_name == "gsm8k"  # veRL's own
    assert compose("ppo_trainer", [*STOCK, "+algorithm=dr_grpo"]).config.trainer.experiment_name == "dr_grpo"
    with_weights = compose("ppo_trainer", [*STOCK, "+algorithm=gspo", "shaping=linear"])
    assert with_weights.config.trainer.experiment_name == "gspo-linear"
    assert compose(overrides=["algorithm=tr_grpo", "shaping=linear"]).config.trainer.experiment_name == "tr_grpo"


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
    "value", ["/home/jürgen/x", "/exp=1,2(3){a}", "it's", "back\\slash\\'q", "end\\", "#x", "a b:c", "李"]
)
def test_any_path_survives_hydra(value):
    parsed = OverridesParser.create().parse_override(f"key={quoted(value)}")
    assert parsed.value() == value


def test_environment_defaults_yield_to_the_user():
    inherited = {"OMP_NUM_THREADS": "7", "PATH": "/bin"}
    on_cpu = training_environment(True, "/tmp/metrics.jsonl", inherited)
    assert on_cpu["VERL_PLATFORM"] == "cpu" and on_cpu["OMP_NUM_THREADS"] == "7"
    assert on_cpu["VERL_FILE_LOGGER_PATH"] == "/tmp/metrics.jsonl"
    assert "VERL_PLATFORM" not in training_environment(False, "x", inherited)
    assert "VERL_PLATFORM" not in inherited
    given = {"VLLM_HOST_IP": "10.0.0.1"}
    alone = training_environment(False, "x", given, loopback=True)
    assert alone["VLLM_HOST_IP"] == "10.0.0.1" and alone["GLOO_SOCKET_IFNAME"] == "lo"
    assert "GLOO_SOCKET_IFNAME" not in training_environment(False, "x", given)


def test_an_empty_variable_counts_as_unset():
    defaults = training_environment(True, "x", {}, loopback=True)
    assert defaults.items() >= (CPU_ENVIRONMENT | LOOPBACK_ENVIRONMENT).items()
    for name in [*defaults, "RAY_AUTH_MODE"]:
        assert training_environment(True, "x", {name: ""}, loopback=True) == defaults
    kept = {"EMPTY": "", "RAY_AUTH_MODE": "disabled"}
    assert training_environment(True, "x", kept, loopback=True) == defaults | kept


def test_a_file_does_not_hide_a_configuration_of_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("ppo_trainer.yaml").write_text("a: 1")
    assert "trainer" in compose("ppo_trainer").config


def test_a_defaults_list_without_self_is_quiet_and_its_own_keys_count_last(tmp_path, recwarn):
    (tmp_path / "mine.yaml").write_text("defaults: [trgrpo_trainer]\ntrainer: {nnodes: 7}")
    assert compose(tmp_path / "mine.yaml").config.trainer.nnodes == 7
    assert len(recwarn) == 0


def test_a_run_is_composed_without_the_words_that_are_refused():
    words = ["data.train_file=x", "algorithm=tr_gpro", "trainer.save_freq=[", "data.seed=3", "+data.seed=4"]
    run, refused = compose_part("trgrpo_trainer", words)
    assert {*refused} == {
        "data.train_file",
        "algorithm",
        "trainer.save_freq",
        "data.seed",
    } and run.config.data.seed is None
    run, refused = compose_part("trgrpo_trainer", ["data.train_file=x", "trainer.save_freq=7"])
    assert run.config.trainer.save_freq == 7 and "did you mean data.train_files?" in refused["data.train_file"]
    assert compose_part("trgrpo_trainer", ["data.seed=3"])[1] == {}
    with pytest.raises(InvalidInputError, match="nowhere"):
        compose_part("nowhere", ["data.train_file=x"])
