"""Train on any task of reasoning-gym: rows from its generator, with its own verifier as the reward.

A response answers inside `<answer>` and `</answer>`; the last such pair counts. `score` is the value that the task's
`score_answer` returns, from 0 to 1 and partial for some tasks; `acc` is 1 for full marks. An answer that makes a verifier
raise is wrong; the time that a verifier takes is not limited.
"""

import json
import logging
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any

from verl_trgrpo.common.progress import Progress, no_progress
from verl_trgrpo.common.text import did_you_mean
from verl_trgrpo.data.rows import arrow_schema, build_row
from verl_trgrpo.data.write import BuilderOptions, DataFile, write_dataset
from verl_trgrpo.tasks.registry import Score

INSTRUCTION = "Think step by step. Then give the final answer, and nothing else, inside <answer> and </answer>."

# Repeated questions in a row after which the search ends, and after which it warns for the first time.
MAX_REPEATS = 5_000
FIRST_WARNING = 500

logger = logging.getLogger(__name__)


def score_reasoning_gym(response: str, ground_truth: str, extra_info: Mapping[str, Any] | None = None) -> Score:
    """Score one response with the verifier of its row's task.

    Args:
        response: the decoded response without the prompt.
        ground_truth: JSON with the `task`, its `config` and the `entry` that its `score_answer` takes.

    Raises:
        ValueError: or another error of reasoning-gym, for an unknown task or an invalid configuration.
    """
    truth = json.loads(ground_truth)
    before, closed, _ = response.rpartition("</answer>")
    _, opened, answer = before.rpartition("<answer>")
    if not closed or not opened:
        return Score(0.0, acc=0.0, format_ok=0.0)
    dataset = _dataset(truth["task"], json.dumps(truth["config"]))  # an error here is not the answer's
    try:
        value = float(dataset.score_answer(answer.strip(), truth["entry"]))
    except Exception:  # verifiers raise any type on answers that they cannot parse
        value = 0.0
    return Score(value, acc=float(value >= 1.0), f1=value)


def reference_response(ground_truth: str) -> str | None:
    """Return a response with the right answer, or None if the task states none."""
    answer = json.loads(ground_truth)["entry"]["answer"]
    return None if answer is None else f"<answer>{answer}</answer>"


@dataclass(frozen=True, kw_only=True)
class ReasoningGymOptions(BuilderOptions):
    """Contents of a data set of one reasoning-gym task.

    Args:
        task: its name in reasoning-gym, such as gsm_symbolic.
        train: train rows.
        test: test rows; none has the question of a train row.
        config: KEY=VALUE, parameters of the task's own configuration, such as min_terms=3; a value is JSON, or else a
            string.
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
        """Return a message for each invalid field."""
        messages = [f"{n}={getattr(self, n)}: must be at least 1" for n in ("train", "test") if getattr(self, n) < 1]
        messages += [f"config={part}: must be NAME=VALUE" for part in self.config if "=" not in part]
        from reasoning_gym.factory import DATASETS  # slow import

        if self.task not in DATASETS:
            hint = did_you_mean(self.task, DATASETS, "its README lists them")
            messages.append(f"task={self.task}: reasoning-gym does not have it; {hint}")
        if messages:
            return messages
        try:
            _dataset(self.task, json.dumps(self.parameters))
        except (AssertionError, TypeError, ValueError) as error:
            messages.append(f"config={list(self.config)}: task {self.task} of reasoning-gym refuses it ({error})")
        return messages


def build(options: ReasoningGymOptions, progress: Progress = no_progress) -> dict[str, Any] | None:
    """Build the data set; return its manifest, or None if it is already there. See `write_dataset`.

    Raises:
        ValueError: the task has too few different questions, or its verifier refuses its own answer to a row.
    """
    return write_dataset(
        options.out,
        data_files(options, progress),
        arrow_schema(),
        builder="reasoning_gym_task",
        made_from=options.arguments(),
        command=options.command("reasoning-gym"),
        libraries=["reasoning-gym", "numpy"],
        force=options.force,
    )


def data_files(options: ReasoningGymOptions, progress: Progress = no_progress) -> Iterator[DataFile]:
    """Yield test and train file; no question occurs twice in both."""
    seen: set[str] = set()
    for split, count in (("test", options.test), ("train", options.train)):
        seed = random.Random(f"{options.task}/{split}/{options.seed}").getrandbits(31)
        config = options.parameters | {"size": 20 * count + 1000, "seed": seed}
        entries = _different(_dataset(options.task, json.dumps(config)), seen, count)
        rows = [_row(options, entry) for entry in progress(islice(entries, count), count, split)]
        if len(rows) < count:
            raise ValueError(
                f"{options.task} gave only {len(rows)} of {count} different {split} questions; ask for fewer"
            )
        yield DataFile(split, rows)


def _different(dataset: Any, seen: set[str], count: int) -> Iterator[dict[str, Any]]:
    """Yield the entries whose questions are not in `seen`, and add these; stop after `MAX_REPEATS` others in a row."""
    found, repeats, warn_at = 0, 0, FIRST_WARNING
    for entry in dataset:
        if entry["question"] not in seen:
            seen.add(entry["question"])
            found, repeats, warn_at = found + 1, 0, FIRST_WARNING
            yield entry
            continue
        repeats += 1
        if repeats == warn_at:
            message = "%d of %d different questions were found; none in the last %d draws, the search stops at %d"
            logger.warning(message, found, count, repeats, MAX_REPEATS)
            warn_at *= 2
        if repeats == MAX_REPEATS:
            return


def _row(options: ReasoningGymOptions, entry: dict[str, Any]) -> dict[str, Any]:
    truth = json.dumps({"task": options.task, "config": options.parameters, "entry": entry}, default=str)
    reference = reference_response(truth)
    if reference is not None and score_reasoning_gym(reference, truth).acc < 1.0:
        raise ValueError(
            f"task={options.task}: its verifier refuses its own answer read from JSON; choose another task"
        )
    return build_row(
        data_source=f"reasoning_gym/{options.task}",
        prompt=[{"role": "user", "content": f"{entry['question']}\n\n{INSTRUCTION}"}],
        ability="reasoning",
        ground_truth=truth,
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
