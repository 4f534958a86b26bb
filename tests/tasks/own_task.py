"""A task in a folder of its own, outside the package: builder, reward, what ground truths cannot be, and an agent loop."""

from pathlib import Path

FILES = {
    "__init__.py": """
from verl_trgrpo.tasks import AgentLoop, Builder, Scoring, Task, register_task

SCORING = Scoring(f"{__name__}.reward:score", lambda truth: f"It is {truth}.", mismatch=f"{__name__}.reward:mismatch")
register_task(Task(
    rewards={"capitals": SCORING},
    foreign={"*/world-capitals": SCORING},
    builders={"capitals": Builder(f"{__name__}.rows:build", "build the Parquet file of capitals")},
    agent_loops={"hinted": AgentLoop(f"{__name__}.loop:Hinted", "agent=hinted", "hint", f"{__name__}.options:read")},
))
""",
    "reward.py": """
from verl_trgrpo.tasks import Score


def score(response, ground_truth, extra_info):
    return Score(1.0 if ground_truth in response else 0.1 * (len(response) % 7), acc=float(ground_truth in response))


def mismatch(prompt, ground_truth, extra_info):
    return f"the prompt names {ground_truth}; correct the row" if ground_truth in prompt else ""
""",
    "options.py": """
def read(settings):
    given = dict(settings or {})
    if unknown := given.keys() - {"text"}:
        raise ValueError(f"{', '.join(unknown)}: unknown; set text")
    return str(given.get("text", "Hint: it is large."))
""",
    "loop.py": '''
from uuid import uuid4

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput

from capitals.options import read
from verl_trgrpo.common.findings import Finding


class Hinted(AgentLoopBase):
    """Gives a hint between two turns of the model."""

    @staticmethod
    def run_checks(view):
        key = "data.max_response_length"
        return [Finding.error(key, f"{key}={view[key]}: has no room for a hint; set {key}=8")] if view[key] < 8 else []

    async def run(self, sampling_params, **kwargs):
        hint = read((self.rollout_config.get("custom") or {}).get("hint"))
        prompt = self.tokenizer.apply_chat_template(
            list(kwargs["raw_prompt"]), add_generation_prompt=True, tokenize=True, return_dict=False
        )
        ids, mask, log_probs = [], [], []
        for observation in (self.tokenizer.encode(hint, add_special_tokens=False)[:2], []):
            said = await self.server_manager.generate(
                request_id=uuid4().hex, prompt_ids=prompt + ids, sampling_params={**sampling_params, "max_tokens": 3}
            )
            given = [*said.token_ids]
            ids += given + observation
            mask += [1] * len(given) + [0] * len(observation)
            log_probs += (said.log_probs or [0.0] * len(given)) + [0.0] * len(observation)
        return AgentLoopOutput(
            prompt_ids=prompt, response_ids=ids, response_mask=mask, response_logprobs=log_probs, num_turns=4,
            metrics=AgentLoopMetrics(), extra_fields={**said.extra_fields, "turn_scores": [], "tool_rewards": []},
        )
''',
    "agent_loops.yaml": """
- name: hinted
  _target_: capitals.loop.Hinted
""",
    "rows.py": '''
from dataclasses import dataclass
from typing import Annotated

import pyarrow as pa

from verl_trgrpo.data.rows import arrow_schema, build_row
from verl_trgrpo.tasks.data_set import BuilderOptions

CAPITALS = {"France": "Paris", "Italy": "Rome", "Spain": "Madrid", "Austria": "Vienna"}


@dataclass(frozen=True, kw_only=True)
class Options(BuilderOptions):
    """Contents.

    Args:
        times: how often each country is asked for.
    """

    times: Annotated[int, "[1, inf)"] = 1


def build(options: Options, progress=None):
    """Write questions for capitals.

    examples:
      verl-trgrpo data build capitals --out data/capitals --times 4

    Returns:
        the manifest.
    """
    data_set = options.data_set("capitals", "capitals")
    if data_set.is_there():
        return None

    def rows(style):
        return [
            build_row(data_source="capitals", prompt=[{"role": "user", "content": style.format(country, number)}],
                      ability="geography", ground_truth=capital, columns={"agent_name": "hinted"})
            for number in range(options.times) for country, capital in CAPITALS.items()
        ]

    splits = {"train": rows("What is the capital of {}? Answer {}"), "test": rows("Capital of {}, please? Number {}")}
    return data_set.write(splits, arrow_schema(columns=[("agent_name", pa.string())]))
''',
}


def write_task(directory: Path) -> Path:
    """Write the package ``capitals`` into a directory, which has to be on the path of Python."""
    for name, text in FILES.items():
        (directory / "capitals").mkdir(exist_ok=True)
        (directory / "capitals" / name).write_text(text.lstrip())
    return directory
