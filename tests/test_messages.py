"""Every message names what to change: a remedy has the key as its object, not a pronoun."""

import ast

import pytest

from tests.messages import PRONOUN, counts, messages, modules, texts


def test_no_remedy_has_a_pronoun_as_its_object():
    found = [
        f"{place}:{node.lineno}: {text}"
        for place, tree in modules()
        for node, text in texts(tree)
        if PRONOUN.search(text)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("a=1: has no effect; set it to 2", True),
        ("set them", True),
        ("a=1: b; remove it, or set that", True),
        ("{}; rename or drop it", True),
        ("a and b differ; correct one of them", True),
        ("a=1: b; pip install c, or leave it out", True),
        ("wait for it", True),
        ("a=1: veRL does not read it; set b=1", False),
        ("how it splits a model is not known; set b=1", False),
        ("a=1 with b=2: has no effect; set b=3, or remove a", False),
        ("unless the file that names them exists; remove that file", False),
    ],
)
def test_what_a_pronoun_as_an_object_is(text, wrong):
    assert bool(PRONOUN.search(text)) is wrong


def test_texts_are_found_wherever_they_stand():
    source = '''
"""Not a message: set it."""
def f(key):
    """Set it."""
    fix = "set it" if key else f"remove {key or 'drop them'}"
    findings.append(view.finding(key, f"{key}: fails; " + fix))
    raise ValueError(f"{key} is bad; correct the value")
RULES = {"a": Rule("a.b", "c", "fails; use that")}
'''
    tree = ast.parse(source)
    assert [text for _, text in texts(tree) if PRONOUN.search(text)] == ["set it", "drop them", "fails; use that"]
    assert {"{} is bad; correct the value", "{}: fails; {}", "fails; use that"} <= {*messages(tree)}


def test_there_are_messages_to_read():
    assert len({text for _, tree in modules() for text in messages(tree)}) > 500


# Counts that are more than one where the message comes, or sizes.
SEVERAL = {
    "checks/data_files.py: total prompts",
    "checks/tables.py: len(found) settings",
    "cli/runs.py: len(others) configurations",
    "common/findings.py: len(shown) problems",
    "common/findings.py: len(each) times",
    "core/advantages.py: len(index) labels",
    "data/prompts.py: len(job) characters",
    "data/questions/ask.py: number rows",
    "data/questions/columns.py: count columns",
    "data/questions/whole_files.py: count prompts",
    "evaluation/preview.py: len(text) - _SHOWN characters",
    "retrieval/index.py: size bytes",
    "runs/run_directory.py: size bytes",
    "runs/summary.py: count steps",
    "tasks/knights_and_knaves/puzzles.py: count puzzles",
    "tasks/knights_and_knaves/puzzles.py: len(names) inhabitants",
    "tasks/knights_and_knaves/rows.py: len(statements) strings",
    "tasks/math/rows.py: len(repeated) rows",
    "tasks/search_qa/checks.py: options.max_turn_tokens tokens",
    "verl_plugin/advantage_estimator.py: len(rewards) rewards",
    "verl_plugin/policy_loss.py: int(valid.sum()) advantages",
}


def test_a_count_has_its_noun_in_the_singular_where_it_is_one():
    """Through `count_of`."""
    found = {f"{place}: {each}" for place, tree in modules() for each in counts(tree)}
    assert found - SEVERAL == set() and SEVERAL - found == set()
    planted = ast.parse('f"{len(steps)} steps: done"; f"{count_of(len(steps), \'step\')}"; f"{name} has"')
    assert [*counts(planted)] == ["len(steps) steps"]
