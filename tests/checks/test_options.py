"""Options that a model, a chat template, a processor or a server gets as they are: each is one that its owner knows and takes."""

import pytest

from tests.checks.test_constructed import ACTOR, CRITIC, MODEL, ROLLOUT, findings
from tests.checks.validation import summary, validate
from verl_trgrpo.checks.construct.options import processor_options
from verl_trgrpo.common.findings import Level
from verl_trgrpo.demos.puzzles import CHECKPOINT

CONFIG, TEMPLATE = f"{MODEL}.override_config", "data.apply_chat_template_kwargs"


def test_an_option_that_neither_the_template_nor_the_model_reads_is_named(sound_run):
    right = ["max_position_embeddings=512", "attention_dropout=0.1", "rope_theta=1000.0", "attn_implementation=eager"]
    given = [f"++{CONFIG}.{each}" for each in right] + [f"+{TEMPLATE}.continue_final_message=false"]
    assert findings(sound_run, *given) == []
    found = findings(sound_run, *given, f"+{CONFIG}.rope_thetaa=1", f"+{TEMPLATE}.enable_thinkng=false")
    assert summary(found) == [(f"{CONFIG}.rope_thetaa", Level.WARNING), (f"{TEMPLATE}.enable_thinkng", Level.WARNING)]
    assert f"did you mean {CONFIG}.rope_theta?" in found[0].message


def test_a_variable_of_the_template_is_read(sound_run):
    template = "{% for m in messages %}{{ m.content }}{% endfor %}{% if not enable_thinking %}.{% endif %}"
    own = f"{MODEL}.custom_chat_template='{template}'"
    assert findings(sound_run, own, f"+{TEMPLATE}.enable_thinking=false") == []
    [found] = findings(sound_run, own, f"+{TEMPLATE}.enable_thinkng=false")
    assert found.message.endswith(f"did you mean {TEMPLATE}.enable_thinking?")


def test_options_of_a_model_that_is_not_here_are_not_checked(sound_run):
    found = findings(
        sound_run, f"{MODEL}.path=org/model", f"+{CONFIG}.rope_thetaa=1", f"+{TEMPLATE}.enable_thinkng=false"
    )
    assert summary(found) == [(CONFIG, Level.NOT_CHECKED), (TEMPLATE, Level.NOT_CHECKED)]
    assert findings(sound_run, f"{MODEL}.path=org/model", f"++{CONFIG}.attn_implementation=eager") == []


def test_an_option_of_pictures_has_no_reader_without_a_processor(sound_run):
    [found] = findings(sound_run, "+data.mm_processor_kwargs.max_pixels=1000")
    assert found.where == "data.mm_processor_kwargs.max_pixels" and found.level is Level.WARNING


def test_the_options_of_a_processor_are_those_of_its_parts():
    from transformers import AutoTokenizer, CLIPProcessor
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    known = processor_options(CLIPProcessor(CLIPImageProcessorPil(), AutoTokenizer.from_pretrained(CHECKPOINT)))
    assert {"crop_size", "do_resize", "fps", "images_kwargs", "sampling_rate"} <= known and "nosuch" not in known


def test_an_option_of_the_checkpoint_engine_is_a_parameter_of_it(sound_run):
    engine = f"{ROLLOUT}.checkpoint_engine.engine_kwargs"
    assert findings(sound_run, f"+{engine}.naive.is_master=true") == []
    found = findings(sound_run, f"+{engine}.naive.is_mastr=true", f"+{engine}.nccl.rebuild_group=true")
    assert summary(found) == [(f"{engine}.nccl", Level.WARNING), (f"{engine}.naive.is_mastr", Level.WARNING)]
    assert f"did you mean {engine}.naive.is_master?" in found[1].message
    nccl = [
        f"{ROLLOUT}.checkpoint_engine.backend=nccl",
        f"+{engine}.nccl.rebuild_group=true",
        f"+{engine}.nccl.nosuch=1",
    ]
    assert f"{engine}.nccl.nosuch" in [each.where for each in findings(sound_run, *nccl)]


def test_the_options_of_another_server_have_no_reader(sound_run):
    options = f"{ROLLOUT}.engine_kwargs"
    [found] = findings(sound_run, f"+{options}.sglang.log_level=info")
    assert found.where == f"{options}.sglang" and found.level is Level.WARNING
    given = [f"{ROLLOUT}.name=sglang", f"+{options}.sglang.log_level=info", f"+{options}.vllm.block_size=16"]
    assert [each.where for each in findings(sound_run, *given)] == [f"{options}.vllm"]


def test_what_a_server_overrides_is_known_to_the_model_or_to_the_server(sound_run):
    overrides = f"{ROLLOUT}.engine_kwargs.vllm.hf_overrides"
    assert findings(sound_run, f"+{overrides}={{rope_theta:1000.0,architectures:[Qwen2ForCausalLM]}}") == []
    [found] = findings(sound_run, f"+{overrides}={{rope_thetaa:1}}")
    assert found.where == f"{overrides}.rope_thetaa" and f"did you mean {overrides}.rope_theta?" in found.message


@pytest.mark.parametrize(("count", "refused"), [(-1, True), (-7, True), (0, False), (2, False)])
def test_the_most_images_of_a_prompt_are_a_number_that_vllm_takes(sound_run, count, refused):
    key = f"{ROLLOUT}.limit_images"
    assert summary(findings(sound_run, f"+{key}={count}")) == [(key, Level.ERROR)] * refused


@pytest.mark.parametrize(
    "wrong",
    [
        {f"{TEMPLATE}.padding": "longst"},
        {f"{TEMPLATE}.tools": "1"},
        {f"{CONFIG}.torch_dtype": "bfloat61"},
        {f"{CONFIG}.torch_dtype": "bfloat61", f"{CONFIG}.hidden_act": "silly"},
        {f"{CONFIG}.num_attention_heads": "-1"},
        {f"{CONFIG}.sliding_window": "-5"},
    ],
)
def test_an_option_of_the_template_or_of_the_model_that_cannot_be_used_is_named(sound_run, wrong):
    """Whatever else is built of the same model: the wrapping of its layers is none of the reasons."""
    right = [f"++{CONFIG}.attention_dropout=0.1", f"++{ACTOR}.fsdp_config.wrap_policy.min_num_params=3"]
    found = findings(sound_run, *right, *(f"++{key}={value}" for key, value in wrong.items()))
    assert summary(found) == [(key, Level.ERROR) for key in wrong]
    for each in found:
        assert each.message.startswith(f"{each.where}={wrong[each.where]}: ")
        assert each.message.partition("; ")[2].startswith(f"correct {each.where}")


@pytest.mark.parametrize("section", [MODEL, "critic.model"])
def test_an_option_that_cannot_be_set_in_the_model_s_configuration_is_named(sound_run, section):
    key = f"{section}.override_config.rope_scaling"
    found = findings(sound_run, *CRITIC, f"++{key}.rope_type=yarn")
    assert summary(found) == [(key, Level.ERROR)] and "rope_type" in found[0].message


def test_the_template_is_the_reason_and_the_rows_are_not(sound_run):
    report = validate("trgrpo_trainer", [*sound_run, f"+{TEMPLATE}.padding=longst"])
    assert [each.where for each in report.findings if each.level is Level.ERROR] == [f"{TEMPLATE}.padding"]


def test_a_number_of_a_model_that_a_server_overrides_is_not_below_minus_one(sound_run):
    key = f"{ROLLOUT}.engine_kwargs.vllm.hf_overrides.sliding_window"
    assert summary(findings(sound_run, f"+{key}=-5")) == [(key, Level.ERROR)]
