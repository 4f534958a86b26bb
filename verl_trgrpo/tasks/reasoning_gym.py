"""Any task of reasoning-gym as a task here: rows from its generator, its own verifier as the reward.

A response answers inside `<answer>` and `</answer>`; the last such pair counts. `score` is what the task's
`score_answer` returns, from 0 to 1 and partial for some tasks; `acc` is 1 for full marks. Verifiers are reasoning-gym's:
an answer that makes one raise is wrong, but nothing bounds the time that one takes.
"""

import difflib
import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any

from verl_trgrpo.common.progress import Progress, no_progress
from verl_trgrpo.data import schema
from verl_trgrpo.data.build import BuilderOptions, DataSet
from verl_trgrpo.tasks.score import Score

INSTRUCTION = "Think step by step. Then give the final answer, and nothing else, inside <answer> and </answer>."


def score_reasoning_gym(response: str, ground_truth: str, extra_info: Mapping[str, Any] | None = None) -> Score:
    """Score one response with the verifier of its row's task.

    Args:
        response: the decoded response without the prompt.
        ground_truth: JSON with the `task`, its `config` and the `entry` that its `score_answer` takes.

    Raises what reasoning-gym raises for a task that it does not have, or a configuration that it refuses.
    """
    truth = json.loads(ground_truth)
    before, closed, _ = response.rpartition("</answer>")
    _, opened, answer = before.rpartition("<answer>")
    if not closed or not opened:
        return Score(0.0, acc=0.0, format_ok=0.0)
    dataset = _dataset(truth["task"], json.dumps(truth["config"]))  # what it raises is no fault of the answer
    try:
        value = float(dataset.score_answer(answer.strip(), truth["entry"]))
    except Exception:  # verifiers raise anything on answers that they cannot parse
        value = 0.0
    return Score(value, acc=float(value >= 1.0), f1=value)


def right_response(ground_truth: str) -> str | None:
    """Return a response with the right answer, None where the task states none."""
    answer = json.loads(ground_truth)["entry"]["answer"]
    return None if answer is None else f"<answer>{answer}</answer>"


@dataclass(frozen=True, kw_only=True)
class ReasoningGymOptions(BuilderOptions):
    """What a data set of one reasoning-gym task is to contain.

    Args:
        task: its name in reasoning-gym, such as gsm_symbolic.
        train: train rows.
        test: test rows; none has the question of a train row.
        config: KEY=VALUE, parameters of the task's own configuration, such as min_terms=3; a value is JSON, or else a text.
    """

    task: str
    train: int = 2000
    test: int = 200
    config: tuple[str, ...] = ()

    @property
    def parameters(self) -> dict[str, Any]:
        """Return `config` by name."""
        return {name: _value(text) for name, _, text in (part.partition("=") for part in self.config)}

    def problems(self) -> list[str]:
        """Return what is wrong, each with value, reason and remedy."""
        problems = [f"{n} is {getattr(self, n)}; ask for at least 1" for n in ("train", "test") if getattr(self, n) < 1]
        problems += [f"--config {part} is not NAME=VALUE" for part in self.config if "=" not in part]
        from reasoning_gym.factory import DATASETS  # slow import

        if self.task not in DATASETS:
            near = difflib.get_close_matches(self.task, DATASETS, n=3)
            hint = f"did you mean {' or '.join(near)}?" if near else "its README lists them"
            problems.append(f"reasoning-gym has no task {self.task!r}; {hint}")
        if problems:
            return problems
        try:
            _dataset(self.task, json.dumps(self.parameters))
        except (AssertionError, TypeError, ValueError) as error:
            problems.append(f"reasoning-gym refuses task {self.task!r} with config {list(self.config)}: {error}")
        return problems


def build(options: ReasoningGymOptions, progress: Progress = no_progress) -> dict[str, Any] | None:
    """Build train.parquet and test.parquet, or find them already built with the same arguments.

    Raises ValueError where the task has too few different questions, or its verifier refuses its own answer to a row.
    """
    libraries = ["reasoning-gym", "numpy"]
    return options.build("reasoning_gym_task", lambda: _make(options, progress), libraries=libraries)


def _make(options: ReasoningGymOptions, progress: Progress) -> DataSet:
    seen: set[str] = set()
    files = {}
    for split, count in (("test", options.test), ("train", options.train)):
        seed = random.Random(f"{options.task}/{split}/{options.seed}").getrandbits(31)
        config = options.parameters | {"size": 20 * count + 1000, "seed": seed}
        entries = _different(_dataset(options.task, json.dumps(config)), seen)
        rows = [_row(options, entry) for entry in progress(islice(entries, count), count, split)]
        if len(rows) < count:
            raise ValueError(f"{options.task} gave only {len(rows)} different questions for {split}; ask for fewer")
        files[split] = rows
    return DataSet(files, schema.arrow_schema([]))


def _different(dataset: Any, seen: set[str]) -> Iterator[dict[str, Any]]:
    """Yield the entries whose questions are not in `seen`, and add these."""
    for entry in dataset:
        if entry["question"] not in seen:
            seen.add(entry["question"])
            yield entry


def _row(options: ReasoningGymOptions, entry: dict[str, Any]) -> dict[str, Any]:
    truth = json.dumps({"task": options.task, "config": options.parameters, "entry": entry}, default=str)
    right = right_response(truth)
    if right is not None and score_reasoning_gym(right, truth).acc < 1.0:
        raise ValueError(
            f"the verifier of {options.task} refuses its own answer to a row from JSON; choose another task"
        )
    return schema.build_row(
        data_source=f"reasoning_gym/{options.task}",
        prompt=[{"role": "user", "content": f"{entry['question']}\n\n{INSTRUCTION}"}],
        ability="reasoning",
        ground_truth=truth,
        extra_info={},
    )


@lru_cache(maxsize=16)
def _dataset(task: str, config: str) -> Any:
    import reasoning_gym  # slow import

    return reasoning_gym.create_dataset(task, **json.loads(config))


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
