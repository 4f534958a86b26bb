"""What this project relies on in veRL beyond its registries: each test names what has changed, and the file to look at.

`make canary` runs them on the oldest and the newest release that the package index has.
"""

import ast
import importlib
import inspect
from fnmatch import fnmatch
from pathlib import Path

import numpy as np
import pytest
import torch
import verl
from hydra import compose, initialize_config_module
from omegaconf import ListConfig
from verl import DataProto
from verl.trainer.ppo import core_algos
from verl.trainer.ppo.core_algos import kl_penalty
from verl.trainer.ppo.ray_trainer import compute_advantage
from verl.utils.import_utils import load_class_from_fqn

from verl_trgrpo.runs.keys import OLD_SECTIONS, ROLLOUT, flat, selected

V1_TRAINER = "verl_trgrpo/verl_plugin/group_metrics_buffer.py"
STATE = "verl_trgrpo/verl_plugin/estimator_state.py"
PRIVATE_ENGINE = "verl_trgrpo/verl_plugin/cpu/private_fsdp_engine.py"
WRAPPER = "verl_trgrpo/verl_plugin/ppo_loss.py"
BATCH_UPDATES = "verl_trgrpo/verl_plugin/lopti.py"
PARTS = "examples/more_methods/more_methods/multi_reward/replay_buffer.py"
MANAGER = "verl_trgrpo/tasks/reward_manager.py"
SECTIONS = "verl_trgrpo/checks/construct/sections.py"
NAMES = "verl_trgrpo/checks/construct/names.py"

# What is called, with the parameters that are given to it by name or by place, and the file that calls it.
CALLED = {
    "verl.workers.utils.losses.ppo_loss": (("config", "model_output", "data", "dp_group"), WRAPPER),
    "verl.workers.utils.padding.no_padding_2_padding": (("tensor", "data"), WRAPPER),
    "verl.utils.metric.Metric.from_dict": (("data", "aggregation"), WRAPPER),
    "verl.trainer.ppo.v1.replay_buffer.ReplayBuffer": (("trainer_mode", "sampler_kwargs", "poll_interval"), V1_TRAINER),
    "verl.trainer.ppo.v1.replay_buffer.ReplayBuffer.sample": (("self", "global_steps", "partition_id"), V1_TRAINER),
    "verl.trainer.ppo.v1.replay_buffer.ReplayBufferAsync.sample": (("self", "global_steps"), V1_TRAINER),
    "transfer_queue.kv_batch_put": (("keys", "partition_id", "fields"), V1_TRAINER),
    "transfer_queue.kv_batch_get": (("keys", "partition_id", "select_fields"), V1_TRAINER),
    "verl.workers.engine_workers.TrainingWorker.train_mini_batch": (("self", "data"), BATCH_UPDATES),
    "verl.workers.engine.BaseEngine.lr_scheduler_step": (("self",), BATCH_UPDATES),
    "verl.workers.engine.BaseEngine.get_data_parallel_group": (("self",), BATCH_UPDATES),
    "verl.utils.tensordict_utils.get_tensordict": (("tensor_dict", "non_tensor_dict"), BATCH_UPDATES),
    "verl.trainer.ppo.core_algos.get_adv_estimator_fn": (("name_or_enum",), STATE),
    "verl.utils.checkpoint.checkpoint_manager.find_latest_ckpt_path": (("path",), STATE),
    "verl.workers.engine.FSDPEngineWithLMHead._build_fsdp_module": (("self", "module"), PRIVATE_ENGINE),
    "verl.workers.engine_workers.initialize_global_process_group_ray": (("backend",), PRIVATE_ENGINE),
    "verl.trainer.ppo.core_algos.register_policy_loss": (("name",), "verl_trgrpo/verl_plugin/policy_loss.py"),
    "verl.trainer.ppo.core_algos.register_adv_est": (
        ("name_or_enum",),
        "verl_trgrpo/verl_plugin/advantage_estimator.py",
    ),
    "verl.experimental.agent_loop.agent_loop.AgentLoopBase": (
        ("trainer_config", "server_manager", "tokenizer", "processor", "dataset_cls", "data_config"),
        "verl_trgrpo/tasks/search_qa/loop.py and verl_trgrpo/evaluation/generation.py",
    ),
    "verl.experimental.agent_loop.single_turn_agent_loop.SingleTurnAgentLoop.run": (
        ("self", "sampling_params", "priority", "kwargs"),
        "examples/more_methods/more_methods/igrpo/loop.py",
    ),
    "verl.utils.import_utils.load_extern_object": (
        ("module_path", "object_name"),
        "verl_trgrpo/verl_plugin/config.py and verl_trgrpo/checks/machine.py",
    ),
    "verl.experimental.reward_loop.reward_manager.get_reward_manager_cls": (("name",), MANAGER),
    "verl.experimental.reward_loop.reward_manager.naive.NaiveRewardManager.run_single": (("self", "data"), MANAGER),
    "verl.trainer.ppo.utils.need_reference_policy": (("config",), SECTIONS),
    "verl.trainer.ppo.utils.need_critic": (("config",), SECTIONS),
    "verl.utils.config.validate_config": (
        ("config", "use_reference_policy", "use_critic"),
        SECTIONS,
    ),
    "verl.utils.reward_score.default_compute_score": (
        ("data_source", "solution_str", "ground_truth"),
        "verl_trgrpo/checks/files.py and verl_trgrpo/verl_plugin/config.py",
    ),
}


def find(name):
    """The object of a dotted name; a class's attribute, too."""
    try:
        return load_class_from_fqn(name)
    except (ImportError, AttributeError, ValueError):
        owner, _, attribute = name.rpartition(".")
        return getattr(find(owner), attribute) if owner else None


@pytest.mark.parametrize("name", CALLED)
def test_what_is_called_takes_these_parameters(name):
    parameters, user = CALLED[name]
    try:
        found = find(name)
    except (AttributeError, RecursionError):
        found = None
    assert found is not None, f"veRL {verl.__version__} has no {name}, on which {user} relies"
    missing = [parameter for parameter in parameters if parameter not in inspect.signature(found).parameters]
    assert not missing, f"{name} of veRL {verl.__version__} no longer takes {', '.join(missing)}; {user} gives it"


ADVANTAGE = "verl.trainer.ppo.v1.trainer_base.PPOTrainer._compute_advantage"
QUEUE = "verl.trainer.ppo.v1.agent_loop_tq"
LOOP = "examples/more_methods/more_methods/igrpo/loop.py"
# Where veRL's own text says what is relied on: the module, class or function, what stands in it, and the file that relies on it.
WRITTEN = (
    # What two passes and a forward pass before them need of the workers: one call that steps the scheduler and obeys the masks.
    ("verl.workers.engine_workers.TrainingWorker.train_mini_batch",
     ("self.train_batch(mini_batch_td)", "update_lr_scheduler=batch_idx == total_num_iterations"), BATCH_UPDATES),
    ("verl.workers.engine_workers.TrainingWorker.train_batch",
     ("self.engine.lr_scheduler_step()", "loss_function=self.loss_fn"), BATCH_UPDATES),
    ("verl.workers.engine_workers.ActorRolloutRefWorker",
     ("self.actor.train_mini_batch(data=data)", "partial(ppo_loss, config=actor_config)",
      "actor_config: ActorConfig = omega_conf_to_dataclass(self.config.actor)"), BATCH_UPDATES),
    ("verl.workers.engine_workers.TrainingWorker.infer_batch",
     ('key="compute_loss"', "if key not in data.keys()"), BATCH_UPDATES),
    ("verl.workers.engine.fsdp.transformer_impl.FSDPEngine.forward_backward_batch",
     ('batch_num_tokens = data["loss_mask"].sum()',), BATCH_UPDATES),
    ("verl.workers.utils.losses.ppo_loss", ('data["response_mask"]',), BATCH_UPDATES),
    # A batch tells the worker groups and rewards.
    (ADVANTAGE, ('fields = ["uid", "response_mask", "rm_scores"',), BATCH_UPDATES),
    (QUEUE, ('field["loss_mask"] = field["response_mask"]',), BATCH_UPDATES),
    # Keys of the queue begin with the group, and an estimator gets the field that a buffer writes them to.
    (QUEUE, ('f"{uid}_{session_id}_{i}"',), V1_TRAINER),
    (QUEUE, ('"response_len": response_len',), PARTS),
    (ADVANTAGE, ('non_tensor_batch["uid"] = np.array(data.batch.pop("uid")',), PARTS),
    ("verl.experimental.agent_loop.single_turn_agent_loop",
     ("self.rollout_config", "self.prompt_length", 'kwargs["raw_prompt"]'), LOOP),
    ("verl.experimental.agent_loop.agent_loop", ("self.apply_chat_template_kwargs",), LOOP),
    # Reward workers get the columns of the row and what the loop returned.
    ("verl.experimental.agent_loop.agent_loop.AgentLoopWorker._compute_score",
     ("for k, v in kwargs.items()", '"tool_extra_fields"', '"attention_mask"'), MANAGER),
)  # fmt: skip


@pytest.mark.parametrize(("name", "texts", "user"), WRITTEN, ids=lambda each: each if isinstance(each, str) else "")
def test_what_is_written_there_is_what_is_relied_on(name, texts, user):
    try:
        owner = importlib.import_module(name)
    except ImportError:
        owner = inspect.unwrap(find(name))
    missing = [text for text in texts if text not in inspect.getsource(owner)]
    assert not missing, f"{name} of veRL {verl.__version__} is without {missing}; see {user}"


def test_workers_call_the_loss_that_is_wrapped():
    from verl.workers import engine_workers
    from verl.workers.utils import losses

    assert engine_workers.ppo_loss is losses.ppo_loss, f"veRL's workers have another ppo_loss; see {WRAPPER}"
    assert losses.ppo_loss.has_token_weights, f"ppo_loss is not wrapped where veRL's workers find it; see {WRAPPER}"


def test_a_metric_of_a_rank_is_what_its_values_say():
    from verl.utils.metric import AggregationType, Metric

    rank = Metric(aggregation=AggregationType.MEAN)
    rank.extend([1.0, 3.0])
    merged = Metric.aggregate_dp([rank, rank])
    assert merged == 2.0, f"veRL aggregates metrics over ranks in another way; see TokenMetric in {WRAPPER}"


def test_the_trainer_takes_a_replay_buffer_from_the_configuration():
    with initialize_config_module("verl.trainer.config", version_base=None):
        sampler = compose("ppo_trainer").trainer.v1.sampler
    assert {"path", "name"} <= set(sampler.custom_sampler), f"trainer.v1.sampler has another form; see {V1_TRAINER}"
    assert "sampler_kwargs" in sampler, f"trainer.v1.sampler.sampler_kwargs is gone; see {V1_TRAINER}"


def test_the_trainer_tells_a_callback_of_each_checkpoint():
    from verl.trainer.ppo import checkpoint_callback as callbacks
    from verl.trainer.ppo.v1 import trainer_base

    taken = inspect.signature(callbacks.CheckpointCallback.on_save).parameters
    assert {"trainer", "global_step", "checkpoint_dir", "async_save"} <= {*taken}, f"on_save has changed; see {STATE}"
    built = inspect.getsource(trainer_base.PPOTrainer.__init__)
    # An empty state has to be restored before the first batch.
    assert "build_checkpoint_callback(config)" in built, f"the trainer builds its callback elsewhere; see {STATE}"


def test_policy_losses_are_in_a_mapping_by_name():
    from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY

    assert callable(POLICY_LOSS_REGISTRY["vanilla"]), (
        "veRL keeps its losses elsewhere; see verl_trgrpo/verl_plugin/policy_loss.py and config.py"
    )


def test_vllm_s_cpu_build_has_the_switch_that_keeps_weights():
    import vllm._custom_ops as ops

    assert hasattr(ops, "_supports_onednn"), (
        "vLLM packs its layers by another switch; see verl_trgrpo/verl_plugin/cpu/vllm.py"
    )


def test_the_ways_to_train_are_those_of_the_documentation():
    from verl.trainer.ppo.v1 import trainer_base

    page = (Path(__file__).parents[2] / "docs/versions.md").read_text()
    unnamed = [mode for mode in trainer_base.TRAINER_REGISTRY if f"`{mode}`" not in page]
    assert not unnamed, f"veRL {verl.__version__} has trainers that docs/versions.md does not name: {unnamed}"


def test_names_that_the_validation_asks_for_are_found():
    """Each owner answers, and knows the default."""
    from tests.conftest import composed
    from verl_trgrpo.checks.construct.names import _NAMES, compared_names, registered_in_source

    config = composed([f"{ROLLOUT}.name=vllm"]).config
    config.reward.reward_manager.source = "register"
    for pattern, ask in _NAMES.items():
        keys = [key for key in flat(config) if fnmatch(key, pattern) and not key.startswith(OLD_SECTIONS)]
        assert keys, pattern
        for key in keys:
            given = selected(config, key)
            names = set(ask(config, key))
            wanted = {*given} if isinstance(given, ListConfig) else {given}
            assert wanted - {None} <= names, f"veRL {verl.__version__} keeps the names of {key} elsewhere; see {NAMES}"
    assert compared_names("verl.trainer.ppo.v1.trainer_base:PPOTrainer._load_checkpoint", "resume_mode") == {
        "auto", "disable", "resume_path",
    }  # fmt: skip
    classes = registered_in_source("verl.workers.engine", "EngineRegistry")
    engines = {name: {folder for folder, _ in found} for name, found in classes.items()}
    assert engines["megatron"] != engines["fsdp"] == engines["fsdp2"]


def test_engines_can_be_looked_up_by_device():
    from verl.workers.engine import EngineRegistry

    engines = getattr(EngineRegistry, "_engines", {})
    assert "fsdp2" in engines.get("language_model", {}), f"veRL keeps its engines elsewhere; see {PRIVATE_ENGINE}"


def test_reserved_columns_are_those_that_verl_s_agent_loops_use():
    """A column of a data file replaces a field of the rollout, or is an argument of a function that gets the whole row."""
    from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput
    from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopWorkerTQ

    from verl_trgrpo.data.questions.columns import RESERVED_COLUMNS

    worker = AgentLoopWorkerTQ.__ray_metadata__.modified_class
    loop = inspect.signature(worker._run_agent_loop).parameters
    ends = inspect.signature(worker._agent_loop_postprocess).parameters
    named = {name for name, parameter in {**loop, **ends}.items() if parameter.kind is not parameter.VAR_KEYWORD}
    arguments = {name for name in named if not name.startswith("_ray")}
    source = inspect.getsource(worker._run_prompt)
    assert "session_id=i, **prompt" in source and "field.update(kwargs)" in inspect.getsource(
        worker._agent_loop_postprocess
    )
    output = AgentLoopOutput(
        prompt_ids=[0], response_ids=[0], response_mask=[1], response_logprobs=[0.0], routed_experts=[[[0]]], reward_score=0.0,
        num_turns=2, metrics=AgentLoopMetrics(), multi_modal_data={}, mm_processor_kwargs={}, mm_processor_output=[],
        extra_fields={"teacher_ids": [0], "teacher_logprobs": [0.0]},
    )  # fmt: skip
    fields = {*output.as_dict()} - {"multi_modal_data"}  # dropped
    assert arguments - {"agent_name"} | {"session_id"} | fields <= {*RESERVED_COLUMNS}


# Where veRL takes fields of a row, and the names that it has for what holds them.
ROW_READERS = ("experimental", "trainer/ppo", "workers/reward_manager", "workers/rollout/llm_server.py")
HOLDERS = {"batch", "data", "field", "kwargs", "non_tensor_batch", "prompt", "prompts", "sample_kwargs"}
# What veRL may read from a row of a data file.
OF_A_ROW = {
    "agent_name": "names the agent loop of the row",
    "create_kwargs": "a key of tools_kwargs, which veRL replaces by extra_info's",
    "data_source": "names the reward",
    "extra_info": "what the row tells the reward; its own reserved keys are RESERVED_KEYS",
    "index": "veRL replaces it by extra_info's, and counts with it in traces only",
    "multi_modal_data": "dropped before the batch is made",
    "reward_model": "has the ground truth",
}


def keys_taken(source):
    """Yield the strings by which a source reads or writes what holds the fields of rows, and arguments that get a row."""

    def holder(node):
        while isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Constant):  # data[i]
            node = node.value
        # config.data has the options of the data.
        return node.id if isinstance(node, ast.Name) else getattr(node, "attr", "").replace("data", "")

    for node in ast.walk(ast.parse(source)):
        held = key = None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            if node.func.attr in ("get", "pop", "setdefault"):
                held, key = node.func.value, node.args[0]
        elif isinstance(node, ast.Subscript):
            held, key = node.value, node.slice
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
            held, key = node.comparators[0], node.left
        elif isinstance(node, ast.AsyncFunctionDef) and node.name == "run" and node.args.kwarg:
            yield from (argument.arg for argument in node.args.args)
        if isinstance(key, ast.Constant) and isinstance(key.value, str) and holder(held) in HOLDERS:
            yield key.value


@pytest.mark.parametrize(
    "planted",
    ['prompt.pop("new", 1)', 'x.non_tensor_batch.get("new")', 'data[i]["new"]', '"new" in batch', 'kwargs["new"]',
     "async def run(self, new, **kwargs): ..."],
)  # fmt: skip
def test_a_new_key_of_a_row_is_found(planted):
    assert "new" in {*keys_taken(planted)}


def test_no_column_steers_what_verl_takes_from_a_row():
    from verl_trgrpo.data.questions.columns import _REPLACED, RESERVED_COLUMNS

    taken = {}
    for place in ROW_READERS:
        path = Path(verl.__file__).parent / place
        for file in [path] if path.is_file() else sorted(path.rglob("*.py")):
            taken |= dict.fromkeys(keys_taken(file.read_text()), file.name)
    assert {"__rollout_n__", "__do_sample__", "priority", "reward_scores", *OF_A_ROW} <= taken.keys()
    known = {*RESERVED_COLUMNS, *_REPLACED, *OF_A_ROW}
    unknown = {key: file for key, file in taken.items() if key not in known}
    assert unknown == {}, (
        f"veRL {verl.__version__} takes them from a row; see RESERVED_COLUMNS in data/questions/columns.py"
    )


def test_the_unbiased_kl_has_the_value_of_k3_and_the_gradient_of_k2():
    """docs/related_methods.md names kl_loss_type=low_var_kl+."""
    log_prob = torch.linspace(-2, -0.1, 7, dtype=torch.float64).requires_grad_()
    reference = torch.linspace(-0.2, -2, 7, dtype=torch.float64)
    penalty = kl_penalty(log_prob, reference, "low_var_kl+")
    difference = reference - log_prob.detach()
    torch.testing.assert_close(penalty.detach(), difference.exp() - 1 - difference)
    penalty.sum().backward()
    torch.testing.assert_close(log_prob.grad, -difference)


def test_the_unbiased_kl_is_that_of_the_ratio_on_policy_alone():
    """The KL of arXiv 2512.02556 is k3 times the ratio, with gradient; veRL's KL loss is not given the old policy."""
    assert [*inspect.signature(kl_penalty).parameters] == ["logprob", "ref_logprob", "kl_penalty"]
    reference = torch.linspace(-0.2, -2, 7, dtype=torch.float64)
    same = []
    for step in (0, 0.3):
        log_prob = torch.linspace(-2, -0.4, 7, dtype=torch.float64).requires_grad_()
        ratio = (log_prob - (log_prob.detach() - step)).exp()
        [by_ratio] = torch.autograd.grad((ratio * kl_penalty(log_prob, reference, "low_var_kl")).sum(), log_prob)
        [unbiased] = torch.autograd.grad(kl_penalty(log_prob, reference, "low_var_kl+").sum(), log_prob)
        same.append(torch.allclose(by_ratio, unbiased))
    assert same == [True, False]


def test_the_v1_trainer_samples_no_greedy_response():
    """What ReMax needs; the trainer before v1 has it."""
    from verl.trainer.ppo import ray_trainer, v1

    older, newer = inspect.getsource(ray_trainer), [file.read_text() for file in Path(v1.__file__).parent.rglob("*.py")]
    assert "reward_baselines" in older and not any("reward_baselines" in text for text in newer)


@pytest.mark.parametrize("estimator", ["grpo", "a_spy"])
def test_turns_of_a_session_reach_no_estimator_but_grpo(estimator, monkeypatch):
    """GiGPO needs them: with grpo each session is its last output, with others each output is a response of its own."""
    from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories

    given = []
    known = core_algos.get_adv_estimator_fn("grpo")

    def spy(**arguments):
        given.append([*arguments["index"]])
        return known(**arguments)

    core_algos.ADV_ESTIMATOR_REGISTRY["a_spy"] = spy
    batch = DataProto.from_dict(
        {name: torch.ones(3, 2) for name in ("token_level_rewards", "response_mask")},
        non_tensors={"uid": np.array(["a"] * 3, dtype=object)},
    )
    batch.batch["token_level_rewards"] = torch.tensor([[0.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    try:
        result = compute_advantage_for_multi_trajectories(batch, ["a_0_0", "a_0_1", "a_1_0"], estimator)
    finally:
        del core_algos.ADV_ESTIMATOR_REGISTRY["a_spy"]
    first, second, _ = result.batch["advantages"]
    assert torch.equal(first, second) is (estimator == "grpo")
    assert given == ([] if estimator == "grpo" else [["a"] * 3])


def test_an_estimator_gets_neither_tokens_nor_hidden_states():
    """What keeps T-SPMO and NTHR out, as docs/related_methods.md says; if it fails, look at both again."""
    given = {}

    def spy(**arguments):
        given.update(arguments)
        return arguments["token_level_rewards"], arguments["token_level_rewards"]

    names = ("token_level_rewards", "response_mask", "responses", "old_log_probs", "rollout_log_probs", "hidden_states")
    batch = DataProto.from_dict(
        {name: torch.zeros(2, 3) for name in names}, non_tensors={"uid": np.array(["a", "a"], dtype=object)}
    )
    name = "a_spy"
    core_algos.register_adv_est(name)(spy)
    try:
        compute_advantage(batch, name)
    finally:
        del core_algos.ADV_ESTIMATOR_REGISTRY[name]
    assert {key for key, value in given.items() if value is not None} == {
        "token_level_rewards",
        "response_mask",
        "index",
    }


def test_the_engine_hands_a_loss_no_hidden_states():
    """What keeps NTHR out of a loss, too: of the model's output the engine keeps log-probabilities and entropy."""
    from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead as Engine

    for function in (Engine.prepare_model_outputs, Engine.forward_step):
        assert "hidden" not in inspect.getsource(function), (
            f"{function.__name__} knows hidden states: look at NTHR again"
        )
