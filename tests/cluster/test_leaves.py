"""Each leaf of a recipe's configuration gets a nonsense value: a check reports it, or ``silent_leaves.yaml`` has the reason.

A string becomes an unknown word, a number -1, a list gets an item of another type. Null counts as a string. A recipe is tried in
which the parts are in use that recipes leave out. What checks say of each key by itself is asked for all keys at once. For the
others one configuration has a key of every section; a finding belongs to the key that it names, and where it names none each of
the keys is tried alone. A key counts as silent only in a configuration without other errors.

``python -m tests.cluster.test_leaves`` prints a table by section; docs/validate.md has its totals.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
import yaml
from omegaconf import DictConfig, ListConfig, OmegaConf

from tests.conftest import composed
from verl_trgrpo.checks.check import _stages
from verl_trgrpo.checks.constructed import name_findings
from verl_trgrpo.checks.settings import key_findings, type_findings
from verl_trgrpo.checks.view import RunView
from verl_trgrpo.common.findings import Finding, Level
from verl_trgrpo.common.text import markdown_table
from verl_trgrpo.demos.puzzles import CHECKPOINT
from verl_trgrpo.runs.compose import ComposedRun
from verl_trgrpo.runs.keys import CORRECTION, MODEL, OLD_SECTIONS, ROLLOUT, flat, selected

RECIPE = Path(__file__).parents[2] / "recipes/search_qa/qwen2.5-3b.yaml"
# What recipes leave out, so that those who read its keys are asked.
IN_USE = (
    f"{MODEL}.path={CHECKPOINT}", f"{MODEL}.lora_rank=8", f"{MODEL}.target_modules=[q_proj]", "critic.enable=true",
    f"critic.model.path={CHECKPOINT}", f"{CORRECTION}.rollout_is=token", "algorithm.kl_ctrl.type=adaptive",
    "algorithm.use_kl_in_reward=true", f"{ROLLOUT}.max_model_len=512", "data.max_prompt_length=256",
    "data.max_response_length=128", f"{ROLLOUT}.custom.search.max_turn_tokens=16",
    f"{ROLLOUT}.custom.search.max_observation_tokens=16",
)  # fmt: skip
SILENT = Path(__file__).parent / "silent_leaves.yaml"
WORD = "nosuch"


def nonsense(value: Any) -> Any:
    """Return what a leaf of this value cannot mean; None for a leaf that is neither string nor number nor list."""
    if value is None or isinstance(value, str):
        return WORD
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return -1
    if isinstance(value, ListConfig):
        return [5] if value and all(isinstance(item, str) for item in value) else [WORD]
    return None


def leaves(config: DictConfig) -> dict[str, Any]:
    """Return the leaves that are tried, each with its nonsense; of old sections veRL's trainer reads nothing."""
    found = {key: nonsense(selected(config, key)) for key in flat(config) if key.partition(".")[0] not in OLD_SECTIONS}
    return {key: value for key, value in found.items() if value is not None and value != selected(config, key)}


def with_values(run: ComposedRun, values: Mapping[str, Any]) -> RunView:
    config = run.config.copy()
    OmegaConf.set_struct(config, False)
    for key, value in values.items():
        OmegaConf.update(config, key, value, merge=False)
    return RunView(replace(run, config=config), need_files=False)


def all_findings(view: RunView) -> Iterator[Finding]:
    for checks in _stages().values():
        found = [finding for check in checks for finding in check(view)]
        yield from found
        if any(each.level is Level.ERROR for each in found):
            return


def is_of(finding: Finding, key: str) -> bool:
    """Return whether a finding is about a key: in its place, or named in its message."""
    return finding.where == key or key in finding.message.replace("=", " ").replace(":", " ").replace(",", " ").split()


def silent(run: ComposedRun, values: Mapping[str, Any]) -> set[str]:
    """Return the keys that no check reports with these values."""
    left = set(values) - {
        each.where for check in (key_findings, type_findings) for each in check(with_values(run, values))
    }
    left -= {each.where for each in name_findings(with_values(run, {key: values[key] for key in left}))}
    base = {(each.where, each.message) for each in all_findings(with_values(run, {}))}
    never: set[str] = set()
    while left:
        for keys in combinations(left):
            new = [
                each
                for each in all_findings(with_values(run, {key: values[key] for key in keys}))
                if (each.where, each.message) not in base
            ]
            named = {key for key in keys for each in new if is_of(each, key)}
            hidden = any(each.level is Level.ERROR for each in new)
            if new and not named:
                named, hidden = {key for key in keys if reported(run, values, key, base)}, False
            never |= set() if hidden else {*keys} - named
            left -= named | never
    return never


def reported(run: ComposedRun, values: Mapping[str, Any], key: str, base: Collection[tuple[str, str]]) -> bool:
    found = all_findings(with_values(run, {key: values[key]}))
    return any((each.where, each.message) not in base for each in found)


def combinations(keys: Collection[str]) -> Iterator[tuple[str, ...]]:
    """Yield the keys, one of each section at a time."""
    by_section = defaultdict(list)
    for key in sorted(keys):
        by_section[".".join(key.split(".")[: 2 if key.startswith("actor") else 1])].append(key)
    for keys_at_once in zip_longest(*by_section.values()):
        yield tuple(key for key in keys_at_once if key)


def listed() -> dict[str, str]:
    """Return the keys of the list with their reasons; a key that ends in ``.*`` is a section."""
    content = yaml.safe_load(SILENT.read_text(encoding="utf-8"))
    return {key: reason for reason, keys in content.items() for key in keys.split()}


def reason_of(key: str, reasons: Mapping[str, str]) -> str:
    """Return the reason why a key is silent, that of the longest section that holds it; "" without one."""
    parts = key.split(".")
    places = [key, *(".".join([*parts[:end], "*"]) for end in range(len(parts) - 1, 0, -1))]
    return next((reasons[place] for place in places if place in reasons), "")


@pytest.fixture(scope="module")
def tried() -> tuple[dict[str, Any], set[str]]:
    run = composed(IN_USE, RECIPE)
    values = leaves(run.config)
    return values, silent(run, values)


def test_each_silent_leaf_has_a_reason(tried):
    values, never = tried
    assert len(values) > 600 and len(never) < len(values) / 2
    reasons = listed()
    without = sorted(key for key in never if not reason_of(key, reasons))
    assert without == [], "a check has to say something, or silent_leaves.yaml why none can"


def test_no_reason_is_left_of_a_leaf_that_is_reported(tried):
    values, never = tried
    reasons = listed()
    spoken = sorted(key for key in values if key not in never and reason_of(key, reasons))
    assert spoken == [], "remove the leaf from silent_leaves.yaml, or name the silent ones in place of the section"
    unused = sorted(place for place in reasons if not any(f"{key}.".startswith(place.rstrip("*")) for key in never))
    assert unused == []


def table(run: ComposedRun) -> str:
    """Return the leaves of each section with and without a reader, those tried, and those that are listed as silent."""
    view, values, reasons, counts = RunView(run), leaves(run.config), listed(), defaultdict(Counter)
    for key in flat(run.config):
        section = ".".join(key.split(".")[: 2 if key.startswith("actor") else 1])
        if section in OLD_SECTIONS:
            continue
        counts[section]["without" if view.ignores(key) else "with"] += 1
        counts[section]["tried"] += key in values
        counts[section]["silent"] += key in values and bool(reason_of(key, reasons))
    counts["all"] = sum(counts.values(), Counter())
    names = ("with", "without", "tried", "silent")
    header = ("section", "leaves with a reader", "without", "tried", "silent")
    return markdown_table(
        [(section, *(str(count[name]) for name in names)) for section, count in counts.items()], header
    )


if __name__ == "__main__":
    print(table(composed(IN_USE, RECIPE)))
