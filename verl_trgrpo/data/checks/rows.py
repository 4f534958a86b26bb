"""One row at a time: prompt, extra_info, data source and ground truth."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from verl_trgrpo.common.problems import shorten
from verl_trgrpo.data.checks.findings import ERROR, WARNING, Findings
from verl_trgrpo.data.schema import CHAT_TAGS, ROLES
from verl_trgrpo.tasks.registry import has_reward, known_data_sources

# What veRL 0.9's own `default_compute_score` scores, and the beginning of further names.
VERL_DATA_SOURCES = frozenset(
    (
        *("openai/gsm8k", "lighteval/MATH", "DigitalLearningGmbH/MATH-lighteval", "HuggingFaceH4/MATH-500"),
        *("math_dapo", "math", "math_dapo_reasoning", "hiyouga/geometry3k"),
        *("numina_aops_forum", "numina_synthetic_math", "numina_amc_aime"),
        *("numina_synthetic_amc", "numina_cn_k12", "numina_olympiads"),
        *("codecontests", "apps", "codeforces", "taco"),
        *("searchR1_nq", "searchR1_triviaqa", "searchR1_popqa", "searchR1_hotpotqa"),
        *("searchR1_2wikimultihopqa", "searchR1_musique", "searchR1_bamboogle"),
    )
)
VERL_PREFIX = "aime"

TRAIN, TEST = "train", "test"

# How files call the part they belong to; "validation" files are test files to a run.
SPLITS = {"train": TRAIN, "test": TEST, "val": TEST, "validation": TEST, "dev": TEST, "eval": TEST}


def check_prompt(row: Mapping[str, Any], where: str, tags: tuple[str, ...], findings: Findings) -> bool:
    """Note what is wrong with a row's prompt; `tags` are those of a chat template. Return whether it can be used."""
    prompt = row.get("prompt")
    findings.ran("prompt")
    if not isinstance(prompt, list) or not prompt:
        findings.add("prompt", ERROR, where, f"the prompt is {shorten(prompt)}; it must be a list of chat messages")
        return False
    problems = [problem for number, message in enumerate(prompt) for problem in _message_problems(number, message)]
    for problem in problems:
        findings.add("prompt", ERROR, where, problem)
    if problems:
        return False
    if prompt[-1]["role"] != "user":
        findings.add("prompt", ERROR, where, f"the last message is the {prompt[-1]['role']}'s; it must be the user's")
    findings.ran("message order")
    roles = [message["role"] for message in prompt]
    turns = roles[1:] if roles[0] == "system" else roles
    if any(role != ("user", "assistant")[turn % 2] for turn, role in enumerate(turns)):
        text = (
            f"the roles are {', '.join(roles)}; many chat templates want an optional system, then user, assistant, user"
        )
        findings.add("message order", WARNING, where, text)
    _check_tags(prompt, where, tags, findings)
    return True


def check_extra_info(row: Mapping[str, Any], where: str, role: str | None, seen: set[Any], findings: Findings) -> None:
    """Note a missing or repeated index, and a split that is not `role`; `seen` are the file's indices so far."""
    extra_info = row.get("extra_info")
    extra_info = extra_info if isinstance(extra_info, Mapping) else {}
    findings.ran("index")
    index = extra_info.get("index")
    if index is None:
        findings.add("index", WARNING, where, "it has no extra_info.index; veRL calls it row 0 in its traces")
    elif not isinstance(index, (int, str)):
        findings.add("index", WARNING, where, f"extra_info.index is {shorten(index)}; it should be a whole number")
    elif index in seen:
        findings.add("index", WARNING, where, f"extra_info.index {shorten(index)} is there before; number the rows")
    else:
        seen.add(index)
    split = extra_info.get("split")
    if role is None:
        return
    findings.ran("split")
    if not isinstance(split, str) or SPLITS.get(split) != role:
        findings.add("split", WARNING, where, f"extra_info.split is {shorten(split)} in a {role} file")


def check_data_source(row: Mapping[str, Any], where: str, findings: Findings) -> None:
    """Note a data source without a reward, or with one of veRL's own only."""
    source = row.get("data_source")
    findings.ran("data source")
    if has_reward(source):
        return
    if isinstance(source, str) and (source in VERL_DATA_SOURCES or source.startswith(VERL_PREFIX)):
        findings.add(
            "data source",
            WARNING,
            where,
            f"{source!r} has a reward of veRL's own only; set reward.custom_reward_function.path=null to use it",
        )
        return
    findings.add(
        "data source", ERROR, where, f"no reward for {shorten(source)}; known are {', '.join(known_data_sources())}"
    )


def check_ground_truth(row: Mapping[str, Any], where: str, findings: Findings) -> bool:
    """Note a ground truth that is missing or no text. Return whether there is one at all."""
    truth = ground_truth_of(row)
    findings.ran("ground truth")
    leaves = list(_leaves(truth))
    if not leaves or all(leaf is None or (isinstance(leaf, str) and not leaf.strip()) for leaf in leaves):
        findings.add("ground truth", ERROR, where, f"reward_model.ground_truth is {shorten(truth)}; it says nothing")
        return False
    others = [leaf for leaf in leaves if not isinstance(leaf, str)]
    if others:
        kind = "NaN" if isinstance(others[0], float) and math.isnan(others[0]) else type(others[0]).__name__
        text = f"reward_model.ground_truth holds a {kind}; most rewards take texts, write it as a string"
        findings.add("ground truth", WARNING, where, text)
    return True


def ground_truth_of(row: Mapping[str, Any]) -> Any:
    """Return a row's ground truth, None where there is none."""
    reward_model = row.get("reward_model")
    return reward_model.get("ground_truth") if isinstance(reward_model, Mapping) else None


def _message_problems(number: int, message: Any) -> Iterator[str]:
    if not isinstance(message, Mapping):
        yield f"message {number} is {shorten(message)}; it must have role and content"
        return
    role, content = message.get("role"), message.get("content")
    if role not in ROLES:
        yield f"message {number} has the role {shorten(role)}; known are {', '.join(ROLES)}"
    if not isinstance(content, str):
        yield f"message {number} has the content {shorten(content)}; it must be a text"
    elif not content.strip():
        yield f"message {number} ({role}) is empty"


def _check_tags(prompt: list[Mapping[str, Any]], where: str, tags: tuple[str, ...], findings: Findings) -> None:
    findings.ran("chat tags")
    content = "\n".join(message["content"] for message in prompt)
    found = [tag for tag in dict.fromkeys((*CHAT_TAGS, *tags)) if tag in content]
    if found:
        text = f"the prompt contains {', '.join(found)}; the chat template adds such tags a second time"
        findings.add("chat tags", ERROR, where, text)
    if prompt[-1]["content"].rstrip().endswith("<think>"):
        findings.add("chat tags", ERROR, where, "the prompt ends with an opened <think>, which belongs to the response")


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        for item in value.values():
            yield from _leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    else:
        yield value
