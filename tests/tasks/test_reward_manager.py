"""veRL's reward managers, extended, on responses of a real tokenizer."""

import asyncio

import cloudpickle
import numpy as np
import pytest
import torch
from tensordict import TensorDict
from transformers import AutoTokenizer
from verl import DataProto
from verl.experimental.reward_loop.reward_manager.registry import REWARD_MANAGER
from verl.trainer.ppo.reward import load_reward_manager, resolve_reward_manager_cls

from tests.conftest import composed
from tests.judge.test_answer_form import DAPO
from verl_trgrpo.demos.puzzles import CHECKPOINT
from verl_trgrpo.tasks import compute_score, reward_manager
from verl_trgrpo.tasks.reward_input import reward_input

ROOM = 32
OVERLONG = ["+reward.reward_kwargs.max_resp_len=32", "+reward.reward_kwargs.overlong_buffer_cfg={enable: true, len: 16, "
            "penalty_factor: 1.0, log: true}"]  # fmt: skip
THINK = "{% for m in messages %}{{ m.content }}{% endfor %}{% if add_generation_prompt %}<think>{% endif %}"


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(CHECKPOINT)


def config_of(*overrides):
    model = f"actor_rollout_ref.model.path={CHECKPOINT}"
    return composed([model, f"data.max_response_length={ROOM}", *overrides], "trgrpo_trainer").config


def asked(tokenizer, response, source="math", truth="42", extra_info=None, from_loop=None, prompt=DAPO):
    """What veRL's agent loop hands to a reward manager: a response, text or token ids, to DAPO's prompt."""
    ids = response if isinstance(response, list) else tokenizer.encode(response)
    prompt_ids = tokenizer.encode("What?")
    tokens = {
        "prompts": torch.tensor([prompt_ids]),
        "responses": torch.tensor([ids], dtype=torch.int64),
        "attention_mask": torch.ones(1, len(prompt_ids) + len(ids), dtype=torch.int64),
    }
    fields = {
        "raw_prompt": [{"role": "user", "content": prompt}],
        "data_source": source,
        "reward_model": {"ground_truth": truth},
        "extra_info": {"index": 0} if extra_info is None else extra_info,
        "tool_extra_fields": from_loop or {},
    }
    columns = {}
    for name, value in fields.items():
        columns[name] = np.array([value], dtype=object if name != "data_source" else None)
    return DataProto(batch=TensorDict(tokens, batch_size=1), non_tensor_batch=columns)


@pytest.fixture
def score(tokenizer):
    """Scores a response to DAPO's prompt, and returns what veRL's reward worker gets."""

    def run(response, *overrides, **fields):
        async def one():
            config = config_of(*overrides)
            return await load_reward_manager(config, tokenizer).run_single(asked(tokenizer, response, **fields))

        found = asyncio.run(one())
        return found["reward_score"], found["reward_extra_info"]

    return run


@pytest.mark.parametrize("name", ["naive", "dapo", "rate_limited"])
def test_verls_managers_hand_the_prompt_to_the_reward(score, name):
    manager = f"reward.reward_manager.name={name}"
    assert score("Answer: 42", manager)[0] == 1.0
    assert score("Answer: 41", manager)[0] == score("<answer>42</answer>", manager)[0] == 0.0
    assert score("Answer: 42", manager, prompt="What is 6 * 7?")[0] == 0.0  # a box is the default


@pytest.mark.parametrize("name", sorted(REWARD_MANAGER.keys() - {"remote"}))
def test_every_manager_of_verl_lets_the_answer_be_judged_against_the_question(score, name):
    """Without the one whose workers are actors of Ray, to which the input goes as it is pickled (below)."""
    given = {"prompt": "Factor $t^2-49$.", "truth": "(t-7)(t+7)"}
    reward, info = score(r"\boxed{t^2-49}", f"reward.reward_manager.name={name}", **given)
    assert (reward, info["acc"], info["restated"]) == (0.0, 0.0, 1.0)
    assert score(r"\boxed{(t+7)(t-7)}", f"reward.reward_manager.name={name}", **given)[0] == 1.0


def test_the_input_of_a_reward_is_the_same_in_another_process():
    given = reward_input({"index": 0}, [{"role": "user", "content": "Factor $t^2-49$."}])
    sent = cloudpickle.loads(cloudpickle.dumps(given))
    assert type(sent) is type(given) and sent == given
    assert compute_score("math", r"\boxed{t^2-49}", "(t-7)(t+7)", sent)["restated"] == 1.0


def test_without_the_extension_the_reward_does_not_see_the_prompt(score):
    assert score("Answer: 42", "reward.reward_manager.source=register")[0] == 0.0


def test_managers_are_found_under_verls_names():
    from verl.experimental.reward_loop.reward_manager import get_reward_manager_cls

    for name in ("naive", "dapo"):
        found = resolve_reward_manager_cls(config_of(f"reward.reward_manager.name={name}"))
        assert issubclass(found, get_reward_manager_cls(name)) and found is getattr(reward_manager, name)
    assert not hasattr(reward_manager, "naiv")


def test_the_overlong_penalty_of_dapo_is_kept(score, tokenizer):
    length = len(tokenizer.encode("Answer: 42"))
    dapo = ["reward.reward_manager.name=dapo", *OVERLONG]
    padded = "Answer: 42\n" + "." * (24 - length - 1)
    assert len(tokenizer.encode(padded)) > 16
    found, info = score(padded, *dapo)
    expected = -(len(tokenizer.encode(padded)) - 16) / 16
    assert info["overlong_reward"] == pytest.approx(expected) and found == pytest.approx(1.0 + expected)
    assert info["cut_off"] == 0.0
    types = [{key: type(value) for key, value in score(text, *dapo)[1].items()} for text in (padded, "Answer: 42")]
    assert types[0]["overlong_reward"] is float and types[0]["overlong"] is bool, "a number, as an estimator needs it"
    assert types[1]["overlong_reward"] is int and types[1]["overlong"] is bool


@pytest.mark.parametrize("name", ["naive", "dapo"])
def test_of_several_outputs_the_last_is_read_without_the_padding_of_the_others(tokenizer, tmp_path, name):
    """veRL pads prompts, responses and both together on the right, each to its longest in the session."""
    (tmp_path / "mine.py").write_text(
        "def mine(solution_str, **_):\n    return {'score': len(solution_str), 'text': solution_str}\n"
    )
    letter, end = tokenizer.encode("a")[0], tokenizer.eos_token_id
    outputs = [([letter] * 4, [letter] * ROOM), ([letter] * 40, [letter, letter, end])]

    def padded(rows):
        return torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True)

    columns = {
        "prompts": padded([prompt for prompt, _ in outputs]),
        "responses": padded([response for _, response in outputs]),
        "input_ids": padded([prompt + response for prompt, response in outputs]),
        "attention_mask": padded([[1] * len(prompt + response) for prompt, response in outputs]),
    }
    row = {"raw_prompt": [], "reward_model": {"ground_truth": "1"}, "extra_info": {}, "tool_extra_fields": {}}
    fields = {key: np.array([value] * 2, dtype=object) for key, value in {**row, "data_source": "x"}.items()}
    fields |= {"prompt_len": np.array([4, 40]), "response_len": np.array([ROOM, 3])}
    data = DataProto(batch=TensorDict(columns, batch_size=2), non_tensor_batch=fields)
    config = config_of(
        f"reward.custom_reward_function.path={tmp_path / 'mine.py'}", "reward.custom_reward_function.name=mine",
        f"reward.reward_manager.name={name}", *OVERLONG,
    )  # fmt: skip

    async def one():
        return await load_reward_manager(config, tokenizer).run_single(data)

    found = asyncio.run(one())
    assert found["reward_score"] == 2 and found["reward_extra_info"]["cut_off"] == 0.0
    assert found["reward_extra_info"]["text"] == "aa"


def test_a_response_is_cut_off_if_it_fills_its_room_without_an_end(score, tokenizer):
    end, letter = tokenizer.eos_token_id, tokenizer.encode("a")[0]
    assert score([letter] * ROOM)[1]["cut_off"] == 1.0
    assert score([letter] * (ROOM - 1) + [end])[1]["cut_off"] == 0.0
    assert score([letter] * (ROOM - 1))[1]["cut_off"] == 0.0
    assert score([])[1]["cut_off"] == 0.0
    context = len(tokenizer.encode("What?")) + 20
    assert score([letter] * 20, f"actor_rollout_ref.rollout.max_model_len={context}")[1]["cut_off"] == 1.0
    assert score([letter] * 19, f"actor_rollout_ref.rollout.max_model_len={context}")[1]["cut_off"] == 0.0
    # An agent loop that knows better says so.
    assert score([letter] * 5, from_loop={"cut_off": True})[1]["cut_off"] == 1.0
    assert score([letter] * ROOM, from_loop={"cut_off": False})[1]["cut_off"] == 0.0


@pytest.mark.parametrize("kind", ["def", "async def"])
@pytest.mark.parametrize("returned", ["{'acc': 1.0}", "None", "'1.0'", "(1.0, {})", "{'score': None}"])
def test_a_reward_that_returns_no_score_is_named_with_what_it_returned(score, tmp_path, kind, returned):
    (tmp_path / "mine.py").write_text(f"{kind} mine(extra_info, **_):\n    return {returned}\n")
    own = [f"reward.custom_reward_function.path={tmp_path / 'mine.py'}", "reward.custom_reward_function.name=mine"]
    with pytest.raises(TypeError, match=r"reward function \S*mine returned") as raised:
        score("x", *own)
    assert str(eval(returned)) in str(raised.value)


@pytest.mark.parametrize("returned", ["np.float32(0.5)", "{'score': np.float32(0.5)}", "torch.tensor([0.5])"])
def test_numbers_that_verl_cannot_put_into_a_tensor_are_converted(score, tmp_path, returned):
    (tmp_path / "mine.py").write_text(f"import numpy as np, torch\ndef mine(**_):\n    return {returned}\n")
    own = [f"reward.custom_reward_function.path={tmp_path / 'mine.py'}", "reward.custom_reward_function.name=mine"]
    found, _ = score("x", *own)
    assert type(found) is float and found == 0.5


def test_every_reward_reports_it_and_the_row_stays_as_it_is(score, tmp_path):
    (tmp_path / "mine.py").write_text("def mine(extra_info, **_):\n    return float(extra_info['cut_off']) + 2\n")
    own = [f"reward.custom_reward_function.path={tmp_path / 'mine.py'}", "reward.custom_reward_function.name=mine"]
    extra_info = {"index": 7}
    found, info = score("x", *own, extra_info=extra_info, from_loop={"cut_off": True})
    assert (found, info) == (3.0, {"acc": 3.0, "cut_off": 1.0}) and extra_info == {"index": 7}
    truth = "(1) Zoey is a knight"
    assert score("x", source="kk", truth=truth)[1].keys() == score("x")[1].keys()


def test_reasoning_that_the_template_opened_has_to_be_closed(score):
    opened = [f"actor_rollout_ref.model.custom_chat_template='{THINK}'"]
    assert score("Answer: 42", *opened)[1]["format_ok"] == 0.0
    assert score("so</think>\nAnswer: 42", *opened)[0] == 1.0
    assert score("Answer: 42", *opened, "+reward.custom_reward_function.reward_kwargs.thinking=false")[0] == 1.0


def test_options_of_the_template_are_the_runs():
    plain = reward_manager.template_options(config_of())
    assert plain == {}
    given = config_of("+data.apply_chat_template_kwargs.enable_thinking=false")
    assert reward_manager.template_options(given) == {"enable_thinking": False}


@pytest.mark.parametrize(
    "source, truth", [("kk", "(1) Zoey is a knight"), ("searchR1_nq", {"target": ["Zoey is a knight"]})]
)
def test_reasoning_that_was_cut_off_earns_nothing_in_other_tasks(score, source, truth):
    best = score("</think><answer>Zoey is a knight</answer>", source=source, truth=truth)[0]
    cut = score("so <answer>Zoey is a knight", source=source, truth=truth)
    assert cut[0] < best and cut[1]["format_ok"] == 0.0
