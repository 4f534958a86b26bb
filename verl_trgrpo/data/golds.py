"""Has every data source a reward, and does a response that states the ground truth get full marks from it?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from verl_trgrpo.common.problems import Finding, error, first_line, not_checked, shorten, warning
from verl_trgrpo.data.parquet import extra_info_of, ground_truth_of

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

# The forms that rewards usually want an answer in.
FORMS = ("<think></think><answer>{}</answer>", r"\boxed{{{}}}", "<answer>{}</answer>")


class Rewards(Protocol):
    """What the checks ask of a registry of rewards; `verl_trgrpo.tasks` is one."""

    def has_reward(self, data_source: Any) -> bool:
        """Return whether there is a reward."""

    def known_data_sources(self) -> tuple[str, ...]:
        """Return the names of all data sources that have one."""

    def find_right_response(self, data_source: Any) -> Callable[[Any], str] | None:
        """Return what makes a response of full marks from a ground truth, None where nobody said."""

    def compute_score(
        self, data_source: str, solution_str: str, ground_truth: Any, extra_info: Mapping[str, Any]
    ) -> Mapping[str, float]:
        """Return acc, gold_unparseable and timed_out of a response."""


def data_source_findings(row: Mapping[str, Any], where: str, rewards: Rewards) -> Iterator[tuple[str, Finding]]:
    """Yield a finding for a data source without a reward, or with one of veRL's own only."""
    source = row.get("data_source")
    if rewards.has_reward(source):
        return
    if isinstance(source, str) and (source in VERL_DATA_SOURCES or source.startswith(VERL_PREFIX)):
        text = f"{source!r} has a reward of veRL's own only; set reward.custom_reward_function.path=null to use it"
        yield "data source", warning(where, text)
    else:
        known = ", ".join(rewards.known_data_sources())
        yield "data source", error(where, f"no reward for {shorten(source)}; known are {known}")


def gold_findings(row: Mapping[str, Any], where: str, rewards: Rewards) -> Iterator[tuple[str, Finding]]:
    """Yield why the ground truth of `row`, as an answer, does not get `acc` 1.0."""
    check, source = "reward of gold", row.get("data_source")
    if not isinstance(source, str) or not rewards.has_reward(source):
        yield check, not_checked(where, f"no reward for {shorten(source)}")
        return
    try:
        found = _gold_finding(row, source, where, rewards)
    except ImportError as problem:
        found = not_checked(where, f"the reward of {source!r} cannot be imported ({first_line(problem)})")
    except Exception as problem:  # a reward is anybody's code; what it raises here it would raise in training
        found = error(where, f"the reward of {source!r} raises {type(problem).__name__}: {first_line(problem)}")
    if found:
        yield check, found


def _gold_finding(row: Mapping[str, Any], source: str, where: str, rewards: Rewards) -> Finding | None:
    truth = ground_truth_of(row)
    found = error(where, f"the ground truth {shorten(truth)} holds no text to answer with")
    for response in _responses(truth, rewards.find_right_response(source)):
        verdict = rewards.compute_score(source, response, truth, extra_info_of(row))
        if verdict["gold_unparseable"]:
            return error(where, f"the reward of {source!r} cannot read the ground truth {shorten(truth)}")
        if verdict["acc"] == 1.0:
            return None
        if verdict["timed_out"]:
            found = warning(where, f"the reward of {source!r} timed out on the ground truth {shorten(truth)}")
        else:
            found = error(where, f"the ground truth {shorten(truth)} as an answer gets acc {verdict['acc']}")
    return found


def _responses(truth: Any, right_response: Callable[[Any], str] | None) -> Iterator[str]:
    if right_response is not None:
        yield right_response(truth)
        return
    for gold in _gold_texts(truth):
        yield from (form.format(gold) for form in FORMS)


def _gold_texts(truth: Any) -> list[str]:
    """Return the texts that a ground truth accepts: itself, its alternatives, or those of a usual key of a mapping."""
    if isinstance(truth, Mapping):
        for key in ("solution_text_format", "target"):
            if truth.get(key):
                return _gold_texts(truth[key])
        truth = list(truth.values())
    if isinstance(truth, list):
        return [text for value in truth for text in _gold_texts(value)]
    return [] if truth is None else [str(truth)]
