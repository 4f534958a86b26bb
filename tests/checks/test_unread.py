"""Settings that no module of the chosen trainer reads."""

from pathlib import Path

import pytest

from tests.checks.validation import summary
from tests.conftest import composed
from verl_trgrpo.checks.run_data import RunData
from verl_trgrpo.checks.switches import switch_findings
from verl_trgrpo.checks.unread import unread_findings
from verl_trgrpo.common.findings import Level
from verl_trgrpo.runs.compose import changed_values

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
PUZZLES = str(Path(__file__).parents[2] / "recipes/knights_and_knaves/qwen2.5-3b-instruct.yaml")


def found(*overrides, source="trgrpo_trainer"):
    run = composed(overrides, source)
    return unread_findings(run, changed_values(run.config, run.defaults))


@pytest.mark.parametrize(
    "override",
    [
        f"{ACTOR}.freeze_vision_tower=true",
        f"{ROLLOUT}.over_sample_rate=0.1",
        "actor_rollout_ref.nccl_timeout=3600",
        "data.reward_fn_key=source",
        "data.return_full_prompt=true",  # kept in an attribute, which nothing reads
        "data.return_multi_modal_inputs=false",
        "trainer.balance_batch=false",
        "trainer.esi_redundant_time=60",
        "+trainer.my_own=1",
        f"+{ACTOR}.my.own=1",
    ],
)
def test_a_setting_that_nothing_reads_is_a_warning_with_its_value(override):
    [finding] = found(override)
    assert summary([finding]) == [(override.lstrip("+").partition("=")[0], Level.WARNING)]
    assert override.lstrip("+") in finding.message


@pytest.mark.parametrize(
    "overrides",
    [
        ["actor_rollout_ref.nccl_timeout=600"],  # the default
        ["trainer.balance_batch=false", "trainer.use_v1=false"],
        ["trainer.v1.colocate_async.num_warmup_batches=2", "trainer.v1.trainer_mode=colocate_async"],
        [f"+{ROLLOUT}.engine_kwargs.vllm.zebra=1", "+data.apply_chat_template_kwargs.enable_thinking=false"],
        ["+ray_kwargs.ray_init.num_gpus=2", "transfer_queue.backend.SimpleStorage.num_data_storage_units=1"],
        ["+reward.reward_kwargs.overlong_buffer_cfg={enable: true, len: 8, penalty_factor: 1.0, log: false}"],
        ["+my_own=1", "trainer.total_epochs=${my_own}"],
        [f"{ACTOR}.optim.lr=1e-5", f"{ROLLOUT}.gpu_memory_utilization=0.7", "data.truncation=left"],
    ],
)
def test_settings_that_are_read_or_handed_on_are_not(overrides):
    assert found(*overrides) == []


def test_a_module_of_another_engine_does_not_count():
    override = "trainer.v1.colocate_async.num_warmup_batches=2"
    assert summary(found(override)) == [(override.partition("=")[0], Level.WARNING)]


def test_a_setting_that_a_file_of_the_run_reads_is_not_reported(tmp_path):
    (tmp_path / "mine.py").write_text(
        "def compute_score(*_, **options):\n    return options['config'].trainer.my_own\n"
    )
    override = "+trainer.my_own=1"
    assert summary(found(override)) and not found(override, f"reward.custom_reward_function.path={tmp_path}/mine.py")


def test_added_settings_are_left_alone_where_modules_are_loaded_that_the_configuration_does_not_name(monkeypatch):
    monkeypatch.setenv("VERL_USE_EXTERNAL_MODULES", "somewhere")
    assert found("+trainer.my_own=1") == []


OTHERS = [f"algorithm={name}" for name in ("grpo", "dr_grpo", "dapo", "tr_dppo_kl", "ha_dw", "w_reinforce")]


@pytest.mark.parametrize(("source", "overrides"), [("search_demo", []), *((PUZZLES, [other]) for other in OTHERS)])
def test_shipped_configurations_set_nothing_in_vain(source, overrides):
    """With their own algorithms tests/recipes/test_recipes.py validates them."""
    run = composed(overrides, source)
    changed = changed_values(run.config, run.defaults)
    assert [*switch_findings(RunData(run.config), changed), *unread_findings(run, changed)] == []
