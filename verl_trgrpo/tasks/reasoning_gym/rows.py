"""Build a data set of one task of reasoning-gym, whose verifier refuses wrong answers.

The rows are the task's own entries, with no question twice. Before they are written the verifier is tried with answers that are
wrong whatever the task asks, with pieces of the questions and with other rows' answers (`check_verifier`).
"""

import json
import logging
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Annotated, Any

from verl_trgrpo.common.foreign import NotJSONError, parse_json
from verl_trgrpo.common.progress import Progress, no_progress
from verl_trgrpo.common.text import shorten
from verl_trgrpo.data.rows import arrow_schema, build_row
from verl_trgrpo.judge.equality import equal_answers
from verl_trgrpo.tasks.data_set import BuilderOptions
from verl_trgrpo.tasks.reasoning_gym.reward import dataset_of, reference_response, refusal, score_reasoning_gym
from verl_trgrpo.tasks.task import Score

_INSTRUCTION = "Think step by step. Then give the final answer, and nothing else, inside <answer> and </answer>."

# Rows whose verifier is tried with wrong answers, and other rows' answers for each; the share of these that may be right.
PROBED_ROWS, PROBED_ANSWERS, MAX_CHANCE = 20, 5, 0.5
PROBES = ("", "0", "I do not know the answer.", "nan", "nanj", "inf", "-inf", "1e999", "[]", "{}", "()", "[[]]", "None")
LONG_PROBES = ("9" * 4000, "0 " * 4000)  # for one row
# Rows in which a piece of the question may be right, and the pieces that are tried in each.
MAX_COPIED, MAX_PIECES = 2, 12

# Repeated questions in a row after which the search ends, and after which it warns for the first time.
MAX_REPEATS = 5_000
_FIRST_WARNING = 500

_LIST_MARK = re.compile(r"^(?:\(?\w{1,2}[.)]|[-*•])\s*")  # 1. or -
_QUOTED = re.compile(r"\[[^\]]*\]|\"[^\"]*\"|'[^']*'|`[^`]*`|\$[^$]*\$")

logger = logging.getLogger(__name__)


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
    train: Annotated[int, "[1, inf)"] = 2000
    test: Annotated[int, "[1, inf)"] = 200
    config: tuple[str, ...] = ()

    @property
    def parameters(self) -> dict[str, Any]:
        """Return `config` by name."""
        return {name: _value(text) for name, _, text in (part.partition("=") for part in self.config)}

    def problems(self) -> list[str]:
        """Return a message for each problem of the task and its configuration."""
        messages = [f"config={part}: must be NAME=VALUE" for part in self.config if "=" not in part]
        refused = refusal(self.task, {} if messages else self.parameters)
        return [*messages, refused] if refused else messages


def build_reasoning_gym(options: ReasoningGymOptions, progress: Progress = no_progress) -> dict[str, Any] | None:
    """Write puzzles of a reasoning-gym task as train.parquet and test.parquet for veRL, with manifest.json.

    examples:
      verl-trgrpo data build reasoning-gym --task gsm_symbolic --train 2000 --test 200 --out data/gsm_symbolic
      verl-trgrpo data build reasoning-gym --task chain_sum --config min_terms=3 max_terms=5 --out data/chain_sum

    notes:
      The task's own verifier is the reward.

    Returns:
        the manifest, None if the data set is there already; see `DataSet`.

    Raises:
        ValueError: the task has too few different questions, or its verifier refuses its own answer to a row.
    """
    data_set = options.data_set("reasoning_gym_task", "reasoning-gym", libraries=["reasoning-gym", "numpy"])
    if data_set.is_there():
        return None
    seen: set[str] = set()  # no question occurs twice in both splits
    splits = {split: make_rows(options, split, seen, progress) for split in ("test", "train")}
    for rows in splits.values():
        check_verifier(options.task, [row["reward_model"]["ground_truth"] for row in rows[:PROBED_ROWS]])
    return data_set.write(splits, arrow_schema())


def make_rows(
    options: ReasoningGymOptions, split: str, seen: set[str], progress: Progress = no_progress
) -> list[dict[str, Any]]:
    """Return the rows of a split, whose questions are not in `seen`, and add these."""
    count = options.train if split == "train" else options.test
    seed = random.Random(f"{options.task}/{split}/{options.seed}").getrandbits(31)
    config = options.parameters | {"size": 20 * count + 1000, "seed": seed}
    entries = _different(dataset_of(options.task, json.dumps(config)), seen, count)
    rows = [_row(options, entry) for entry in progress(islice(entries, count), count, split)]
    if len(rows) < count:
        raise ValueError(f"{options.task} gave only {len(rows)} of {count} different {split} questions; ask for fewer")
    return rows


def check_verifier(task: str, truths: Sequence[str]) -> None:
    """Try wrong answers on the verifier of a task.

    Raises:
        ValueError: one earns full marks; the message has it.
    """
    always, others = wrong_answers(truths)
    found = [probe for probe in always if scored(probe).acc]
    # Other rows' answers may be right by chance, where a question has several right answers or few possible ones.
    if not found and len(chance := [probe for probe in others if scored(probe).acc]) > max(2, MAX_CHANCE * len(others)):
        found = chance
    if not found:  # likewise pieces of the question, such as one of its options
        copied = {probe[0]: probe for probe in copied_answers(truths) if scored(probe).acc}
        found = [*copied.values()] if len(copied) > MAX_COPIED else []
    if found:
        _, right, wrong = found[0]
        raise ValueError(
            f"task={task}: its verifier gives full marks to {shorten(wrong)} where the answer is {shorten(right)}; "
            "choose another task"
        )


Probe = tuple[str, str, str]
"""A ground truth, its answer, and another answer."""


def wrong_answers(truths: Sequence[str]) -> tuple[list[Probe], list[Probe]]:
    """Return answers that are wrong whatever the task asks, and other rows' answers, some of which may be right by chance.

    The first are `PROBES`, and right answers with a sign or another answer beside them. What equals the right answer is left out.
    """
    stated = [(truth, json.loads(truth)["entry"]["answer"]) for truth in truths]
    rows = [(truth, str(right)) for truth, right in stated if right is not None]
    always = [(truth, "", wrong) for truth, right in stated if right is None for wrong in PROBES]
    always += [(truth, right, wrong) for truth, right in rows for wrong in PROBES if wrong != right]
    always += [(truth, right, wrong) for truth, right in rows[:1] for wrong in LONG_PROBES]
    for (truth, right), (_, other) in zip(rows, rows[1:] + rows[:1], strict=True):
        if other != right:
            always += [(truth, right, wrong) for wrong in hedges(right, other)]
        if re.fullmatch(r"[0-9]+(\.[0-9]+)?", right) and float(right):
            always += [(truth, right, f"-{right}"), (truth, right, f"{right} or 7{right}")]
    others = [(truth, right, wrong) for truth, right in rows for _, wrong in rows[:PROBED_ANSWERS]]
    return _different_values(always), _different_values(others)


def hedges(right: str, other: str) -> list[str]:
    """Return answers that deny the right one, or state another beside it."""
    denied = [f"{right} is false", f"{right} is wrong", f"not {right}", f"~{right}", f"!{right}", f"{right}?"]
    return [*denied, f"{right} or {other}", f"{other}\n{right}", f"{right}\n{other}", f"{right} | {other}"]


def copied_answers(truths: Sequence[str]) -> list[Probe]:
    """Return pieces of each question as answers, without those that equal the right answer."""
    entries = [(truth, json.loads(truth)["entry"]) for truth in truths]
    return _different_values(
        [
            (truth, str(entry["answer"] or ""), piece)
            for truth, entry in entries
            for piece in question_pieces(entry["question"])
        ]
    )


def question_pieces(question: str) -> list[str]:
    """Return parts of a question: its lines with and without what introduces them, what it quotes, and joined lines."""
    lines = [line for line in map(str.strip, question.splitlines()) if line]
    bare = [_LIST_MARK.sub("", line) for line in lines]
    items = [short for line, short in zip(lines, bare, strict=True) if line != short]
    joined = [f"({one}) {sign} ({other})" for one, other in pairwise(items) for sign in ("∧", "and")]
    named = [line.rpartition(": ")[2] for line in bare]
    found = [*items, *joined, lines[-1], *_QUOTED.findall(question), *named, *bare, *lines]
    return [*dict.fromkeys(part for each in found for part in (each, each.strip("[]\"'`$")) if part)][:MAX_PIECES]


def _different_values(probes: Sequence[Probe]) -> list[Probe]:
    return [probe for probe in probes if not equal_answers([probe[1] or "-"], probe[2], lambda *_: False)]


def scored(probe: Probe) -> Score:
    """Return the score of an answer."""
    truth, _, answer = probe
    return score_reasoning_gym(f"<answer>{answer}</answer>", truth)


def _different(dataset: Any, seen: set[str], count: int) -> Iterator[dict[str, Any]]:
    """Yield the entries whose questions are not in `seen`, and add these; stop after `MAX_REPEATS` others in a row."""
    found, repeats, warn_at = 0, 0, _FIRST_WARNING
    for entry in dataset:
        if entry["question"] not in seen:
            seen.add(entry["question"])
            found, repeats, warn_at = found + 1, 0, _FIRST_WARNING
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
        prompt=[{"role": "user", "content": f"{entry['question']}\n\n{_INSTRUCTION}"}],
        ability="reasoning",
        ground_truth=truth,
    )


def _value(text: str) -> Any:
    try:
        return parse_json(text)
    except NotJSONError:
        return text
