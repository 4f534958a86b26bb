"""Token ids and agent loop of a row: those of veRL's own data set and agent loops, which run here up to the first request."""

import asyncio
import json
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import composed
from verl_trgrpo.common.findings import InvalidInputError
from verl_trgrpo.data.prompts import RolloutPrompts, agent_loops, model_facts, tool_schemas
from verl_trgrpo.data.renderer import Renderer, open_tokenizer
from verl_trgrpo.demos.puzzles import CHECKPOINT

MODEL, ROLLOUT = "actor_rollout_ref.model", "actor_rollout_ref.rollout"

# Says which options it was given, and lists the tools.
TEMPLATE = (
    "{% for t in tools or [] %}[{{ t.function.name }}]{% endfor %}"
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
    "{% if enable_thinking is defined and not enable_thinking %}no{% endif %}"
)
TOOLS = "\n".join(
    f"""
  - class_name: verl.tools.base_tool.BaseTool
    config: {{type: native}}
    tool_schema:
      type: function
      function:
        name: {name}
        description: about {name}
        parameters: {{type: object, properties: {{}}, required: []}}"""
    for name in ("add", "look_up")
)


class AskedError(Exception):
    """The agent loop has made its first request."""


class Server:
    async def generate(self, *, prompt_ids, **_):
        raise AskedError(prompt_ids)


def verl_prompt(config, file):
    """Return the token ids that veRL's agent loop asks the engine to go on from, and the name of the loop."""
    from verl.experimental.agent_loop.agent_loop import AgentLoopWorker
    from verl.utils.dataset.rl_dataset import RLHFDataset

    worker = AgentLoopWorker(config, Server())
    row = RLHFDataset([str(file)], worker.tokenizer, config.data)[0]
    agent = row.pop("agent_name", config.actor_rollout_ref.rollout.agent.default_agent_loop)
    trajectory = {"step": 0, "sample_index": 0, "rollout_n": 0, "validate": False}
    with pytest.raises(AskedError) as asked:
        asyncio.run(worker._run_agent_loop({}, trajectory, agent_name=agent, trace=False, uid="u", **row))
    return asked.value.args[0], agent


@pytest.fixture
def file(tmp_path, monkeypatch, datasets_cache):
    """``file(**columns)`` writes a row; `other`, a second model directory with another template, lies beside it."""
    from verl.experimental.agent_loop import agent_loop

    # veRL's workers register the loops of a run for the whole process.
    monkeypatch.setattr(agent_loop, "_agent_loop_registry", dict(agent_loop._agent_loop_registry))
    (tmp_path / "tools.yaml").write_text(f"tools:{TOOLS}")
    other = shutil.copytree(CHECKPOINT, tmp_path / "other")
    (other / "chat_template.jinja").write_text("OTHER{{ messages[0].content }}")

    def write(**columns):
        row = {
            "prompt": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who is a knave?"}],
            "data_source": "kk_3ppl",
            "reward_model": {"ground_truth": "(1) Zoe is a knave"},
            "extra_info": {"index": 0, "split": "train"},
        }
        pq.write_table(pa.Table.from_pylist([row | columns]), tmp_path / "data.parquet")
        return tmp_path / "data.parquet"

    return write


OWN = f"{MODEL}.custom_chat_template='{TEMPLATE}'"
TOOLS_FILE = f"{ROLLOUT}.multi_turn.tool_config_path=tools.yaml"
# Overrides, columns of the row, and what the rendered prompt has or lacks.
CASES = {
    "as it comes": ([], {}, "Who is a knave?"),
    "own template": ([OWN], {}, "<user>Who is a knave?<assistant>"),
    "options of the template": ([OWN, "+data.apply_chat_template_kwargs.enable_thinking=false"], {}, "<assistant>no"),
    "another tokenizer": ([f"{MODEL}.tokenizer_path=other"], {}, "OTHER"),
    "a tokenizer that veRL does not read": (["+data.tokenizer=other"], {}, "Who is a knave?"),
    "searches by default": (["agent=search_tags", OWN], {}, "<assistant>"),
    "drafts": (["agent=igrpo", OWN], {}, "<assistant>"),
    "a loop of the row": ([OWN, TOOLS_FILE], {"agent_name": "tool_agent"}, "[add][look_up]<system>"),
    "tools for another loop": ([OWN, TOOLS_FILE], {"agent_name": "single_turn_agent"}, "<system>"),
    "tools of the row": (
        [OWN, TOOLS_FILE],
        {"agent_name": "tool_agent", "extra_info": {"tool_selection": ["look_up"]}},
        "[look_up]<system>",
    ),
    "another column": (["data.prompt_key=q"], {"q": [{"role": "user", "content": "Why?"}]}, "Why?"),
}


@pytest.mark.parametrize("name", CASES)
def test_ids_and_loop_are_those_of_verl(file, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    overrides, columns, part = CASES[name]
    data = file(**columns)
    base = [f"{MODEL}.path={CHECKPOINT}", "data.max_prompt_length=4000", f"data.train_files={data}",
            "data.filter_overlong_prompts_workers=null", f"{ROLLOUT}.name=vllm"]  # fmt: skip
    config = composed([*base, *overrides], platform="cpu").config
    prompts = RolloutPrompts(config)
    [found] = prompts.of(pq.read_table(data).to_pylist())
    assert found == verl_prompt(config, data)
    text = prompts.tokenizer.decode(found.token_ids)
    assert text == open_tokenizer(str(CHECKPOINT), False).decode(found.token_ids)
    assert part in text and ("[add]" in text) == ("[add]" in part)


def test_the_filter_counts_the_tools_of_the_run_for_every_loop(file, tmp_path, monkeypatch, datasets_cache):
    from verl.utils.dataset.rl_dataset import RLHFDataset

    monkeypatch.chdir(tmp_path)
    data = file(agent_name="single_turn_agent")
    overrides = [f"{MODEL}.path={CHECKPOINT}", OWN, TOOLS_FILE, "data.filter_overlong_prompts=true"]
    config = composed(overrides, platform="cpu").config
    config.data.filter_overlong_prompts_workers = None
    prompts, rows = RolloutPrompts(config), pq.read_table(data).to_pylist()
    [length] = prompts.lengths(rows, filtered=True)
    assert [length] > prompts.lengths(rows) == [len(found.token_ids) for found in prompts.of(rows)]
    tokenizer = Renderer(model_facts(config)).tokenizer
    for limit, kept in ((length, 1), (length - 1, 0)):
        config.data.max_prompt_length = limit
        assert len(RLHFDataset([str(data)], tokenizer, config.data)) == kept


def test_a_row_without_a_name_in_its_column_has_no_loop(file):
    prompts = RolloutPrompts(composed([f"{MODEL}.path={CHECKPOINT}"]).config)
    messages = [{"role": "user", "content": "x"}]
    found = prompts.of([{"prompt": messages, "agent_name": None}, {"prompt": messages}])
    assert [prompt.agent for prompt in found] == [None, "single_turn_agent"]


def test_loops_of_the_run_are_verl_s_and_those_of_its_file(tmp_path):
    (tmp_path / "loops.yaml").write_text("- {name: mine, _target_: own.Loop}\n")
    key = f"{ROLLOUT}.agent.agent_loop_config_path"
    assert {"single_turn_agent", "tool_agent"} <= agent_loops(composed().config)
    assert "mine" in agent_loops(composed([f"{key}={tmp_path}/loops.yaml"]).config)
    for content in (None, "{"):
        if content:
            (tmp_path / "broken.yaml").write_text(content)
        with pytest.raises(InvalidInputError, match=f"{key}={tmp_path}/broken.yaml"):
            agent_loops(composed([f"{key}={tmp_path}/broken.yaml"]).config)


def test_tools_whose_schema_is_python_code_are_not_executed(tmp_path):
    key, section = f"{ROLLOUT}.multi_turn", f"{ROLLOUT}.multi_turn"
    (tmp_path / "tools.yaml").write_text("tools:\n- {class_name: own.Tool, config: {type: native}}\n")
    for setting in (f"{key}.tool_config_path={tmp_path}/tools.yaml", f"{key}.function_tool_path=own.py"):
        with pytest.raises(ValueError, match="Python code"):
            tool_schemas(composed([setting]).config, section)
    (tmp_path / "tools.yaml").write_text("- 1")
    with pytest.raises(InvalidInputError, match=r"tools\.yaml"):
        tool_schemas(composed([f"{key}.tool_config_path={tmp_path}/tools.yaml"]).config, section)


@pytest.fixture
def model(tmp_path):
    """``model(ends)``: a copy of the demonstration's model whose tokenizer ends with token 0, and its files with `ends`."""

    def made(ends, file="generation_config.json"):
        copied = shutil.copytree(CHECKPOINT, tmp_path / "model", dirs_exist_ok=True)
        settings = json.loads((copied / "tokenizer_config.json").read_text())
        first = open_tokenizer(str(CHECKPOINT), False).convert_ids_to_tokens(0)
        (copied / "tokenizer_config.json").write_text(json.dumps(settings | {"eos_token": first}))
        (copied / "generation_config.json").unlink()
        config = json.loads((copied / "config.json").read_text()) | {"eos_token_id": None}
        (copied / "config.json").write_text(json.dumps(config))
        written = json.loads((copied / file).read_text()) if (copied / file).is_file() else {}
        (copied / file).write_text(json.dumps(written | {"eos_token_id": ends}))
        return copied

    return made


def prompts_of(directory):
    return RolloutPrompts(composed([f"{MODEL}.path={directory}"]).config)


@pytest.mark.parametrize("file", ["generation_config.json", "config.json"])
@pytest.mark.parametrize("ends", [0, 2, [1, 2], None])
def test_a_response_ends_where_vllm_ends_it(model, ends, file):
    from vllm import SamplingParams
    from vllm.transformers_utils.config import try_get_generation_config

    directory = model(ends, file)
    sampling, generation = SamplingParams(), try_get_generation_config(str(directory), trust_remote_code=False)
    sampling.update_from_generation_config(generation.to_diff_dict(), eos_token_id=0)
    assert prompts_of(directory).tokenizer.end_tokens == sampling.all_stop_token_ids


def test_what_ends_a_turn_is_what_the_template_writes_behind_an_answer(model):
    ends, behind = prompts_of(model([0])).turn()
    assert [*ends] == [0] and next(iter(behind.items())) == (2, "<|im_end|>")
