"""Sections that are missing, keys that are unknown, and keys that veRL does not read."""

import pytest
from omegaconf import OmegaConf

from tests.checks.validation import summary
from tests.conftest import composed
from verl_trgrpo.checks.settings import key_findings, section_findings
from verl_trgrpo.checks.view import RunView
from verl_trgrpo.common.findings import InvalidInputError, Level
from verl_trgrpo.runs import readers
from verl_trgrpo.runs.compose import compose
from verl_trgrpo.runs.keys import SHAPING

ACTOR = "actor_rollout_ref.actor"


def recipe(tmp_path, content, *overrides):
    path = tmp_path / "mine.yaml"
    path.write_text("defaults: [ppo_trainer, algorithm: tr_grpo, _self_]\n" + content)
    return compose(path, overrides)


def test_every_section_that_is_empty_or_a_value_is_an_error(tmp_path):
    run = recipe(tmp_path, "critic:\nreward: 5\ntrainer: {v1: }\nactor_rollout_ref: {model: , actor: {optim: adam}}")
    found = section_findings(RunView(run))
    wrong = ["critic", "reward", "trainer.v1", "actor_rollout_ref.model", f"{ACTOR}.optim"]
    assert sorted(summary(found)) == sorted((key, Level.ERROR) for key in wrong)
    assert f"{ACTOR}.optim=adam" in " ".join(finding.message for finding in found)


def test_deleted_keys_are_errors():
    overrides = ["~critic", "~data.train_batch_size", f"~{ACTOR}.optim"]
    assert summary(section_findings(RunView(compose(overrides=overrides)))) == [
        (word[1:], Level.ERROR) for word in overrides
    ]


@pytest.mark.parametrize("given", ["power", "null"])
def test_a_shaping_in_the_place_of_its_section_is_an_error_with_the_group(given):
    [finding] = section_findings(RunView(composed([f"{SHAPING}={given}"])))
    assert finding.where == SHAPING and "shaping=NAME" in finding.message


def test_a_section_may_be_a_reference(tmp_path):
    content = "mine: {_target_: verl_trgrpo.core.make_shaping, name: power}\n"
    run = recipe(tmp_path, content + "actor_rollout_ref: {actor: {policy_loss: {shaping: '${mine}'}}}")
    assert section_findings(RunView(run)) == []


@pytest.mark.parametrize("source", ["trgrpo_trainer", "ppo_trainer", "ppo_megatron_trainer"])
def test_what_verl_has_as_null_may_be_null(source):
    assert section_findings(RunView(composed(["critic.enable=null", "trainer.logger=null"], source))) == []


TYPOS = """
zebra: 1
n_gpus_per_node: 8
seed: 3
rollout: {n: 8}
trainer: {total_epoch: 3, train_batch_size: 3, wandb_host: x}
data: {max_respnse_length: 3}
actor_rollout_ref:
  model: {pth: x}
  actor: {lr: 1, optim: {lrr: 1}, policy_loss: {placment: inside}}
"""
MEANT = {
    "zebra": "", "n_gpus_per_node": "trainer.n_gpus_per_node?", "seed": "data.seed?", "rollout": "",
    "trainer.total_epoch": "trainer.total_epochs?", "trainer.train_batch_size": "data.train_batch_size?",
    "trainer.wandb_host": "", "data.max_respnse_length": "data.max_response_length?",
    "actor_rollout_ref.model.pth": "model.path?", f"{ACTOR}.lr": f"{ACTOR}.optim.lr?",
    f"{ACTOR}.optim.lrr": f"{ACTOR}.optim.lr?", f"{ACTOR}.policy_loss.placment": f"{ACTOR}.policy_loss.placement?",
}  # fmt: skip


def test_unknown_keys_are_errors_with_the_one_that_was_meant(tmp_path):
    found = {finding.where: finding for finding in key_findings(RunView(recipe(tmp_path, TYPOS)))}
    assert found.keys() == MEANT.keys()
    for key, meant in MEANT.items():
        assert found[key].level is Level.ERROR and key in found[key].message and meant in found[key].message


def test_what_takes_any_key_and_fields_of_verls_dataclasses_are_known(tmp_path):
    free = """
algorithm: {kl_ctrl: {horizon: 5}}
actor_rollout_ref:
  rollout: {engine_kwargs: {vllm: {max_logprobs: 5}}}
  model: {override_config: {attn_implementation: sdpa}}
  actor: {policy_loss: {shaping: {name: linear, slope: 0.5}}}
"""
    assert key_findings(RunView(recipe(tmp_path, free))) == []


# Keys without a line in veRL's YAML files that have a reader: a field, a parameter, a place in veRL's source, a free dictionary.
READ = [
    "ray_kwargs.ray_init.runtime_env.env_vars.FOO", "ray_kwargs.ray_init.num_gpus", "ray_kwargs.ray_init.address",
    "ray_kwargs.ray_init._temp_dir", "ray_kwargs.ray_init.runtime_env.working_dir", "trainer.wandb_proxy",
    "trainer.remove_previous_ckpt_in_save", "data.cache_dir", "reward.reward_kwargs.max_resp_len",
    f"{ACTOR}.use_rollout_log_probs",
    f"{ACTOR}.fsdp_config.mixed_precision.param_dtype", f"{ACTOR}.fsdp_config.wrap_policy.transformer_layer_cls_to_wrap",
    f"{ACTOR}.fsdp_config.turbo_config.mine.deep", "actor_rollout_ref.rollout.enable_sleep_mode",
    "actor_rollout_ref.rollout.engine_kwargs.vllm.kv_cache_dtype", "actor_rollout_ref.rollout.engine_kwargs.sglang.mine",
    "data.apply_chat_template_kwargs.enable_thinking", "actor_rollout_ref.model.override_config.mine",
    f"{ACTOR}.optim.override_optimizer_config.eps", f"{ACTOR}.policy_loss.rollout_correction.loss_type",
    "reward.custom_reward_function.reward_kwargs.mine", "transfer_queue.controller.polling_mode",
    "actor_rollout_ref.rollout.custom.search", "global_profiler.global_tool_config.torch_memory.kw_args.mine",
    "global_profiler.global_tool_config.nsys.worker_nsight_options.sample",
]  # fmt: skip
# Keys that nothing reads. Dataclasses refuse those of their sections, and the run ends.
IDLE = [
    "model.path", "max_turns", "retriever.url", "data.max_obs_length", "trainer.mine", "data.one.two", "algorithm.no_think_rl",
    "actor_rollout_ref.rollout.custom.mine", "ray_kwargs.ray_init.num_gpu", "ray_kwargs.ray_init.runtime_env.env_var.FOO",
    "reward.reward_kwargs.mine", "reward.mine", "transfer_queue.controller.poling_mode", "trainer.v1.sampler.sampler_kwargs.mine",
    f"{ACTOR}.fsdp_config.wrap_policy.min_num_param", "actor_rollout_ref.model.fused_kernel_options.impl_backnd",
    f"{ACTOR}.fsdp_config.mixed_precision.param_dtyp", "global_profiler.global_tool_config.nsys.discret",
    "global_profiler.global_tool_config.torch_memory.stack_dept",
    "algorithm.pf_ppo.weigth_pow", "actor_rollout_ref.rollout.engine_kwargs.vlm",
]  # fmt: skip
REFUSED = [
    f"{ACTOR}.state_masking", f"{ACTOR}.optim.lrr", "actor_rollout_ref.rollout.n_val", "actor_rollout_ref.model.pth",
    "critic.mine", f"{ACTOR}.profiler.tool_config.torch.mine",
    f"{ACTOR}.fsdp_config.grad_offload", "actor_rollout_ref.rollout.val_kwargs.mine", "skip.mine",
]  # fmt: skip
BY_KIND = {Level.WARNING: IDLE, Level.ERROR: REFUSED}


def as_job(tmp_path, *overrides):
    """What ``--cfg job`` prints, in which a plus has left no trace."""
    path = tmp_path / "job.yaml"
    OmegaConf.save(compose("ppo_trainer", overrides).config, path)
    return compose(path)


def expected():
    """Of a section without a reader, the section is named, unless it is known what became of its keys."""
    names = {"model.path": "model", "data.one.two": "data.one"}
    names["ray_kwargs.ray_init.runtime_env.env_var.FOO"] = "ray_kwargs.ray_init.runtime_env.env_var"
    return {names.get(key, key): level for level, keys in BY_KIND.items() for key in keys}


@pytest.mark.parametrize("source", ["plus", "job"])
def test_a_key_without_a_reader_is_named_whoever_added_it(tmp_path, source):
    overrides = [f"++{key}=7" for key in [*READ, *IDLE, *REFUSED]]
    run = as_job(tmp_path, *overrides) if source == "job" else compose("ppo_trainer", overrides)
    assert dict(summary(key_findings(RunView(run)))) == expected()


def test_a_key_without_a_reader_in_a_recipe_is_an_error(tmp_path):
    content = OmegaConf.from_dotlist([f"{key}=7" for key in [*READ, *IDLE, *REFUSED]])
    found = key_findings(RunView(recipe(tmp_path, OmegaConf.to_yaml(content))))
    assert dict(summary(found)) == dict.fromkeys(expected(), Level.ERROR)


def test_the_plus_is_offered_for_keys_with_a_reader_alone():
    with pytest.raises(InvalidInputError) as raised:
        compose(overrides=[f"{key}=7" for key in [*READ, *IDLE, *REFUSED]])
    offered = {key for key in [*READ, *IDLE, *REFUSED] for text in raised.value.messages if f"(+{key}=..." in text}
    refused = {text.partition(":")[0] for text in raised.value.messages}
    assert offered == {*READ} & refused and {*IDLE, *REFUSED} <= refused


def test_a_key_that_the_user_s_own_code_reads_has_a_reader(tmp_path, monkeypatch):
    """Its files are read, and not run."""
    (tmp_path / "my_estimator.py").write_text("raise SystemExit\ndef median(config):\n    return config.my_option\n")
    (tmp_path / "my_loop.py").write_text("class Loop:\n    def run(self, custom):\n        return custom.get('mine')\n")
    (tmp_path / "loops.yaml").write_text("- {name: mine, _target_: my_loop.Loop}\n")
    loops = f"actor_rollout_ref.rollout.agent.agent_loop_config_path={tmp_path / 'loops.yaml'}"
    words = ["+algorithm.my_option=3", "+actor_rollout_ref.rollout.custom.mine.a=1", loops]
    named = {"algorithm.my_option"}  # the loop's file is where the configuration says
    assert {*dict(summary(key_findings(RunView(composed(words)))))} == named | {"actor_rollout_ref.rollout.custom.mine"}
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("VERL_USE_EXTERNAL_MODULES", "my_estimator")
    readers._words_of_module.cache_clear()
    assert key_findings(RunView(composed(words))) == []


def test_a_key_to_which_another_refers_has_a_reader(tmp_path):
    content = "mine: {tokens: 512, other: 3}\ndata: {max_prompt_length: '${mine.tokens}', seed: '${oc.select:here,1}'}\nhere: 2"
    assert key_findings(RunView(recipe(tmp_path, content))) == []


def test_keys_of_another_release_are_not_checked(monkeypatch):
    monkeypatch.setattr(readers, "key_table", lambda: {"verl": "0.1", "read": {}, "unread": {}})
    monkeypatch.setattr("verl_trgrpo.checks.settings.key_table", readers.key_table)
    found = key_findings(RunView(composed(["+trainer.mine=1", f"+{ACTOR}.mine=1"])))
    assert summary(found) == [(f"{ACTOR}.mine", Level.ERROR), ("trainer.mine", Level.NOT_CHECKED)]


@pytest.mark.parametrize("engine", ["dp", "megatron", "veomni", "torchtitan"])
def test_all_keys_of_verls_own_configurations_have_a_reader(tmp_path, engine):
    run = compose("ppo_trainer", [f"model_engine={engine}"])
    assert key_findings(RunView(run)) == []
    path = tmp_path / "job.yaml"
    OmegaConf.save(run.config, path)
    job = compose(path)
    assert key_findings(RunView(job)) == [] and RunView(job).changed == {}


@pytest.mark.parametrize("source", ["trgrpo_trainer", "ppo_trainer"])
def test_a_key_in_another_spelling_is_not_one_that_is_added_on_purpose(source):
    """Hydra adds ``+Algorithm=tr_grpo`` and ``+shaping/x=y`` as keys that nothing reads."""
    run = compose(source)
    sections = [
        "trainer.nnodes",
        "data",
        "actor_rollout_ref.rollout.n",
        *map(str, run.choices),
        "algorithm",
        "platform",
    ]
    words = [*dict.fromkeys(each.upper() for each in sections if "@" not in each and "/" not in each)]
    words += ["trainer.nNodes", "actor_rollout_ref/actor", "algorithm/x", "mine/x"]
    fine = ["mine.Algorithm", "trainer.of_mine"]
    found = dict(summary(key_findings(RunView(compose(source, [f"+{word}=1" for word in [*words, *fine]])))))
    assert {key: level for key, level in found.items() if level is not Level.ERROR} == dict.fromkeys(
        ["mine", "trainer.of_mine"], Level.WARNING
    )
    assert all(any(f"{word}.".startswith(f"{key}.") for key in found) for word in words), found


def test_a_group_added_with_a_plus_does_not_hide_the_keys_of_its_section(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("defaults: [ppo_trainer, _self_]\nalgorithm: {gama: 0.9}")
    assert summary(key_findings(RunView(compose(path, ["+algorithm=tr_grpo"])))) == [("algorithm.gama", Level.ERROR)]


def level_of(key):
    """Keys of the sections that decided the reward before veRL 0.8 would change what the run optimises."""
    return (
        Level.ERROR if key.startswith(("custom_reward_function", "reward_model", "sandbox_fusion")) else Level.WARNING
    )


def test_keys_that_are_not_read_are_reported(tmp_path):
    content = """
actor_rollout_ref: {actor: {grad_clip: 0.5}, rollout: {custom: {serch: {topk: 3}}}}
custom_reward_function: {path: x.py}
reward_model: {reward_manager: dapo}
critic: {grad_clip: 0.5}
data: {tokenizer: some/model}
"""
    wrong = {
        f"{ACTOR}.grad_clip": f"{ACTOR}.optim.clip_grad",
        "custom_reward_function.path": "reward.custom_reward_function.path",
        "reward_model.reward_manager": "reward.reward_manager.name",
        "critic.grad_clip": "critic.optim.clip_grad",
        "actor_rollout_ref.rollout.custom.serch": "custom.search",
        "data.tokenizer": "actor_rollout_ref.model.tokenizer_path",
    }
    found = {finding.where: finding for finding in key_findings(RunView(recipe(tmp_path, content)))}
    assert found.keys() == wrong.keys()
    for key, place in wrong.items():
        level = Level.ERROR if "custom." in key else level_of(key)  # a section that nothing reads, in a recipe
        assert found[key].level is level and key in found[key].message and place in found[key].message


OVERLONG = "reward.reward_kwargs.overlong_buffer_cfg"


MISPLACED = {
    "reward_model.overlong_buffer.enable": f"{OVERLONG}.enable",
    "reward_model.reward_kwargs.overlong_buffer_cfg.len": f"{OVERLONG}.len",
    "custom_reward_function.reward_kwargs.overlong_buffer_cfg.len": f"{OVERLONG}.len",
    "reward.custom_reward_function.reward_kwargs.overlong_buffer_cfg.enable": f"{OVERLONG}.enable",
    "reward.overlong_buffer.penalty_factor": f"{OVERLONG}.penalty_factor",
    "reward.reward_kwargs.overlong_buffer.len": f"{OVERLONG}.len",
    "reward_model.reward_kwargs.max_resp_len": "reward.reward_kwargs.max_resp_len",
}


def test_an_overlong_buffer_in_the_wrong_place_names_the_right_one(tmp_path):
    for key, place in MISPLACED.items():
        [finding] = key_findings(RunView(composed([f"+{key}=7"])))
        assert (
            summary([finding]) == [(key, level_of(key))] and f"{key}=7" in finding.message and place in finding.message
        )
    with pytest.raises(InvalidInputError) as raised:
        compose(overrides=[f"{key}=7" for key in MISPLACED])
    for (key, place), message in zip(MISPLACED.items(), raised.value.messages, strict=True):
        assert message.startswith(f"{key}: ") and message.endswith(f"did you mean +{place}?")
    content = OmegaConf.from_dotlist([f"{key}=7" for key in MISPLACED])
    found = key_findings(RunView(recipe(tmp_path, OmegaConf.to_yaml(content))))
    for key in MISPLACED:
        [finding] = [each for each in found if f"{key}.".startswith(f"{each.where}.")]
        assert "reward." in finding.message


def test_the_right_places_of_an_overlong_buffer_are_accepted():
    places = sorted({*MISPLACED.values()})
    assert compose(overrides=["algorithm=dapo", *(f"{place}=7" for place in places)])
    assert compose(overrides=[f"+{place}=7" for place in places])


@pytest.mark.parametrize("key", [f"{OVERLONG}.enable", f"{ACTOR}.policy_loss.rollout_correction.loss_type"])
def test_a_key_that_needs_a_plus_is_not_taken_for_another_one(key):
    with pytest.raises(InvalidInputError) as raised:
        compose(overrides=[f"{key}=x"])
    assert f"+{key}=..." in str(raised.value) and "did you mean" not in str(raised.value)


def test_the_options_of_verls_reward_managers_need_no_plus(tmp_path):
    content = "reward: {reward_kwargs: {max_resp_len: 7, overlong_buffer_cfg: {enable: true, len: 3}}}"
    assert key_findings(RunView(recipe(tmp_path, content))) == []
