"""iGRPO's two stages in veRL's own agent loop, with a scripted model."""

import asyncio
import itertools

import numpy as np
import pytest
import torch
from hydra import compose, initialize_config_module
from more_methods.igrpo.loop import DraftAgentLoop, DraftOptions
from transformers import AutoTokenizer
from verl import DataProto
from verl.experimental.agent_loop.agent_loop import DictConfigWrap, ToolListWrap
from verl.experimental.fully_async_policy.detach_utils import prepare_single_generation_data
from verl.utils.dataset.rl_dataset import RLHFDataset
from verl.workers.rollout.replica import TokenOutput

from verl_trgrpo.checks.check import check
from verl_trgrpo.common.findings import Level
from verl_trgrpo.demos.puzzles import CHECKPOINT
from verl_trgrpo.runs.compose import compose as compose_run

ROW = {
    "raw_prompt": [{"role": "user", "content": "What is 3 + 4?"}],
    "data_source": "math",
    "reward_model": {"ground_truth": "7"},
    "extra_info": {"split": "train"},
    "uid": "a",
}
REQUEST, CUSTOM = "An earlier attempt:", "actor_rollout_ref.rollout.custom.igrpo"


class ScriptedModel:
    """Answers with the given texts, one after the other, and keeps the prompts."""

    def __init__(self, tokenizer, texts):
        self.tokenizer, self.texts, self.prompts = tokenizer, list(texts), []

    async def generate(self, request_id, *, prompt_ids, sampling_params, **_):
        self.prompts.append(self.tokenizer.decode(prompt_ids))
        text = self.texts[len(self.prompts) - 1]
        await asyncio.sleep(0)
        return TokenOutput(token_ids=self.tokenizer.encode(text), log_probs=None, stop_reason="completed")


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(CHECKPOINT)


def respond(tokenizer, texts, rows, *overrides, cancelled=()):
    """The outputs for `rows`, all in one event loop as veRL has it, and the prompts that the model saw.

    Those of the rows that are `cancelled`, as soon as the model has been asked for a draft, are errors.
    """
    model = ScriptedModel(tokenizer, texts)

    async def all_rows():
        with initialize_config_module("verl.trainer.config", version_base=None):
            config = compose(
                "trgrpo_trainer",
                ["agent=igrpo", "data.max_prompt_length=500", f"actor_rollout_ref.model.path={CHECKPOINT}", *overrides],
            )
        parts = {"trainer_config": DictConfigWrap(config), "data_config": DictConfigWrap(config.data), "processor": None,
                 "dataset_cls": RLHFDataset, "hf_model_type": "qwen2", "tools": ToolListWrap([])}  # fmt: skip
        loops = [DraftAgentLoop(server_manager=model, tokenizer=tokenizer, **parts) for _ in rows]
        tasks = [asyncio.create_task(loop.run({}, **row)) for loop, row in zip(loops, rows, strict=True)]
        if cancelled:
            while not model.prompts:
                await asyncio.sleep(0)
            for row in cancelled:
                tasks[row].cancel()
        return await asyncio.gather(*tasks, return_exceptions=bool(cancelled))

    return asyncio.run(all_rows()), model.prompts


def test_a_group_shares_its_best_draft_and_answers_to_prompt_and_draft(tokenizer):
    drafts, answers = [r"it is \boxed{3}", r"sure: \boxed{7}", r"\boxed{8}"], [r"\boxed{1}", r"\boxed{2}"]
    outputs, prompts = respond(tokenizer, [*drafts, *answers], [ROW, ROW], f"{CUSTOM}.drafts=3")
    assert not any(REQUEST in prompt for prompt in prompts[:3])
    assert all(f"{REQUEST}\n{drafts[1]}\n" in prompt for prompt in prompts[3:]) and len(prompts) == 5
    trained_on = sorted(tokenizer.decode(output.response_ids) for output in outputs)
    assert trained_on == answers, "drafts are not trained on"
    assert all(REQUEST in tokenizer.decode(output.prompt_ids) for output in outputs)
    assert [DraftOptions().system in prompt for prompt in prompts] == [False] * 3 + [True] * 2
    found = outputs[0].extra_fields["igrpo"]
    assert found == {"draft_score": 1.0, "drafts_mean": pytest.approx(1 / 3), "draft_fits": 1.0}


def test_a_cancelled_response_leaves_its_group_the_draft(tokenizer):
    found, prompts = respond(tokenizer, [r"\boxed{7}", r"\boxed{2}"], [ROW, ROW], f"{CUSTOM}.drafts=1", cancelled=[0])
    assert isinstance(found[0], asyncio.CancelledError)
    assert found[1].extra_fields["igrpo"]["draft_score"] == 1.0 and len(prompts) == 2


def test_drafts_are_scored_in_the_form_that_the_prompt_asks_for(tokenizer):
    asked = [{"role": "user", "content": "What is 3 + 4? End your response with 'Answer: $Answer'."}]
    drafts = ["Answer: 3", "Answer: 7"]
    [output], _ = respond(tokenizer, [*drafts, "8"], [ROW | {"raw_prompt": asked}], f"{CUSTOM}.drafts=2")
    assert output.extra_fields["igrpo"]["draft_score"] == 1.0


def test_the_rules_join_the_system_message_of_the_prompt(tokenizer):
    row = ROW | {"raw_prompt": [{"role": "system", "content": "Be brief."}, *ROW["raw_prompt"]]}
    _, prompts = respond(tokenizer, ["1", "2"], [row], f"{CUSTOM}.drafts=1", f"+{CUSTOM}.system=Improve on it.")
    assert ["Be brief.\n\nImprove on it.<" in prompt for prompt in prompts] == [False, True]
    _, prompts = respond(tokenizer, ["1", "2"], [ROW], f"{CUSTOM}.drafts=1", f"+{CUSTOM}.system=''")
    assert "system" not in prompts[1] and REQUEST in prompts[1]


def test_drafts_and_responses_share_the_budget_of_grpo():
    rollout = compose_run(overrides=["agent=igrpo"]).config.actor_rollout_ref.rollout
    assert rollout.n + rollout.custom.igrpo.drafts == compose_run().config.actor_rollout_ref.rollout.n == 8
    assert (rollout.n, rollout.temperature) == (4, 0.7)
    halved = compose_run(overrides=["agent=igrpo", "actor_rollout_ref.rollout.n=8"]).config.actor_rollout_ref.rollout
    assert halved.custom.igrpo.drafts == 8


def test_groups_have_drafts_of_their_own(tokenizer):
    rows = [ROW, ROW | {"uid": "b"}]
    _, prompts = respond(tokenizer, [r"\boxed{7}"] * 4, rows, f"{CUSTOM}.drafts=1")
    assert [REQUEST in prompt for prompt in prompts] == [False, False, True, True]


def test_validation_is_single_shot(tokenizer):
    _, prompts = respond(tokenizer, [r"\boxed{7}"], [ROW | {"extra_info": {"split": "test"}}])
    assert len(prompts) == 1 and REQUEST not in prompts[0]


def test_a_draft_that_does_not_fit_the_prompt_is_left_out(tokenizer):
    one = f"{CUSTOM}.drafts=1"
    [output], prompts = respond(tokenizer, ["knight " * 600, r"\boxed{7}"], [ROW], one)
    assert len(prompts) == 2 and REQUEST not in prompts[1]
    assert output.extra_fields["igrpo"]["draft_fits"] == 0.0


def test_wrong_input_is_named(tokenizer):
    with pytest.raises(ValueError, match=r"extra_info\.split"):
        respond(tokenizer, [], [ROW | {"extra_info": {}}])
    with pytest.raises(ValueError, match=r"(?s)drafts=0.*request='x'.*system=None"):
        DraftOptions(drafts=0, request="x", system=None)
    with pytest.raises(ValueError, match=r"unknown key draft;.*drafts, request, system"):
        DraftOptions.of({"draft": 3})


def test_the_check_reads_its_options_and_looks_for_room(sound_run):
    def findings(*overrides):
        run = compose_run(overrides=[*sound_run, "agent=igrpo", "data.max_prompt_length=400", *overrides])
        return [each for each in check(run).findings if each.where in (CUSTOM, "data.max_prompt_length")]

    assert findings() == []
    [room] = findings("data.max_response_length=401")
    assert room.level is Level.WARNING and room.message.startswith("data.max_prompt_length=400: ")
    [wrong] = findings(f"{CUSTOM}.drafts=0")
    assert wrong.level is Level.ERROR and "drafts=0" in wrong.message


def test_before_v1_a_group_of_two_workers_is_refused(sound_run):
    """veRL repeats the prompts of a batch and cuts the rows into as many parts as there are workers."""
    workers = "actor_rollout_ref.rollout.agent.num_workers"

    def refused(prompts, *overrides):
        given = [*sound_run, "agent=igrpo", f"{workers}=8", f"data.train_batch_size={prompts}", *overrides]
        found = [each for each in check(compose_run(overrides=given)).findings if each.where == "trainer.use_v1"]
        return [each.level for each in found if workers in each.message]

    def cut_groups(prompts):
        parts = DataProto.from_dict({"group": torch.arange(prompts)}).repeat(4).chunk(8)
        groups = [set(part.batch["group"].tolist()) for part in parts]
        return any(one & other for one, other in itertools.combinations(groups, 2))

    for prompts in (12, 16):
        assert (refused(prompts, "trainer.use_v1=false") == [Level.ERROR]) is cut_groups(prompts) is (prompts == 12)
    assert refused(12) == []


def test_the_fully_asynchronous_trainer_keeps_the_agent_of_a_row():
    config = compose_run(overrides=["agent=igrpo"]).config
    given = {"agent_name": np.array(["trgrpo_igrpo"], dtype=object), "index": torch.zeros(1)}
    rows = prepare_single_generation_data(given, config)
    assert rows.non_tensor_batch["agent_name"].tolist() == ["trgrpo_igrpo"] * 4
