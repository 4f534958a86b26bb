"""Conditions of rules: what they may read, and what they put into a message."""

import ast
from pathlib import Path

import pytest

from tests.conftest import composed
from verl_trgrpo.checks.rules import RULES
from verl_trgrpo.checks.sizes import LENGTHS, SIZES
from verl_trgrpo.checks.switches import SWITCHES
from verl_trgrpo.checks.tables import FACTS, Condition, Rule, Switch, full, rule_findings
from verl_trgrpo.checks.view import RunView
from verl_trgrpo.common.findings import Level
from verl_trgrpo.runs.keys import flat, selected

# Keys that veRL reads and its YAML files do not have.
ADDED = (
    "reward.reward_kwargs", "ray_kwargs.ray_init.num_gpus", "trainer.v1.sampler.sampler_kwargs", "data.gen_batch_size",
    "actor_rollout_ref.model.override_config", "trainer.remove_previous_ckpt_in_save",
    "actor_rollout_ref.rollout.repetition_penalty", "ray_kwargs.ray_init.dashboard_host",
)  # fmt: skip
ROWS = [*RULES.values(), *SIZES.values(), *LENGTHS.values()]
CONDITIONS = {
    *(text for rule in ROWS for text in (rule.needs, rule.asked or rule.key)),
    *(switch.needs for switch in SWITCHES.values()),
}


def test_every_condition_reads_keys_that_exist():
    """In the configuration of one of veRL's engines."""
    configs = [composed([f"model_engine={engine}"]).config for engine in ("dp", "megatron", "torchtitan", "veomni")]
    known = {key for config in configs for key in flat(config)}
    unknown = [
        key for text in CONDITIONS for key in Condition(text).keys if key not in known and not key.startswith(ADDED)
    ]
    assert [key for key in unknown if all(selected(config, key) is None for config in configs)] == []


def test_every_row_says_what_to_do():
    for rule in ROWS:
        assert rule.level is Level.NOT_CHECKED or ";" in rule.otherwise or Condition(rule.needs).remedy, rule


@pytest.mark.parametrize(
    "text",
    [
        "actr.n == 1",
        "n == 1",
        "__import__('os')",
        "rollout.n.__class__()",
        "[each for each in loggers]",
        "open('x')",
        "1 +",
    ],
)
def test_a_condition_of_unknown_names_is_refused(text):
    for row in (
        lambda: Rule("rollout.n", text, "x"),
        lambda: Rule("rollout.n", "True", "x", text),
        lambda: Switch("rollout.n", text),
    ):
        with pytest.raises((ValueError, SyntaxError)):
            row()


@pytest.mark.parametrize(
    ("needs", "remedy"),
    [
        ("actor.use_kl_loss", "actor_rollout_ref.actor.use_kl_loss=true"),
        ("not actor.use_kl_loss", "actor_rollout_ref.actor.use_kl_loss=false"),
        ("manager.name == 'dapo'", "reward.reward_manager.name=dapo"),
        ("trainer.val_only and not trainer.balance_batch", "trainer.val_only=true trainer.balance_batch=false"),
        ("trainer.val_only or rollout.n > 1", "trainer.val_only=true"),
        ("trainer.val_only and rollout.n > 1", ""),
        ("rollout.n != 1", ""),
        ("needs_critic", ""),
    ],
)
def test_one_remedy_is_read_from_the_condition(needs, remedy):
    assert Condition(needs).remedy == remedy


def test_a_message_has_key_value_reason_and_remedy():
    view = RunView(composed(["actor_rollout_ref.rollout.n=1", "trainer.balance_batch=false"]))
    [plain] = Rule("rollout.n", "trainer.balance_batch", "fails").findings(view)
    lead = "actor_rollout_ref.rollout.n=1"
    assert plain.message == f"{lead} with trainer.balance_batch=false: fails; set trainer.balance_batch=true"
    [own] = Rule("rollout.n", "False", "not {trainer.nnodes}; set <rollout.n>={= trainer.nnodes + 1}").findings(view)
    assert own.message == f"{lead}: not trainer.nnodes=1; set actor_rollout_ref.rollout.n=2"
    [off] = Switch("rollout.n", "trainer.balance_batch").findings(view)
    off_by = f"{lead}: has no effect with trainer.balance_batch=false"
    assert off.message == f"{off_by}; set trainer.balance_batch=true, or remove actor_rollout_ref.rollout.n"
    [both] = Switch("rollout.n trainer.balance_batch", "False", "x").findings(view)
    assert both.message == f"{lead}, trainer.balance_batch=false: has no effect, because x; remove these 2 settings"
    assert Rule("rollout.n", "False", "x", asked="rollout.n == 2").findings(view) == []


def test_conditions_are_constants_of_the_tables():
    """No row is made from anything but literals and names of its own module."""
    for name in ("rules", "switches", "sizes"):
        tree = ast.parse((Path(__file__).parents[2] / f"verl_trgrpo/checks/{name}.py").read_text())
        tables = [node for node in tree.body if not isinstance(node, ast.FunctionDef)]
        calls = [node for table in tables for node in ast.walk(table) if isinstance(node, ast.Call)]
        made = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        assert {ast.unparse(node.func) for node in calls} - made <= {
            "Switch", "Rule", "_Warning", "partial", "Score", "Score(0.0, acc=0.0).as_dict", "', '.join"
        }  # fmt: skip
        assert all(
            isinstance(given, (ast.Constant, ast.Name))
            for node in calls
            if ast.unparse(node.func) in made
            for given in node.args
        )


def test_facts_are_those_of_the_view():
    assert all(hasattr(RunView, name) for name in FACTS)
    assert full("rollout.n") == "actor_rollout_ref.rollout.n" and full("*.profiler.*") == "*.profiler.*"


CONJUNCTIONS = [rule for rule in (*ROWS, *SWITCHES.values()) if len(Condition(rule.needs)._parts) > 1]


@pytest.mark.parametrize("rule", CONJUNCTIONS, ids=lambda rule: rule.key)
def test_a_condition_names_the_parts_that_are_not_met(rule):
    """Any view will do: the parts are the ones that are false for it, and all of them where the whole is."""
    view = RunView(composed())
    condition = Condition(rule.needs)
    unmet = condition.unmet(view)
    assert unmet == [condition] if condition(view) else unmet and not any(part(view) for part in unmet)


def test_of_alternatives_the_one_that_is_the_remedy_is_named():
    view = RunView(composed(["actor_rollout_ref.rollout.n=4", "trainer.val_only=false", "trainer.balance_batch=false"]))
    either = Rule("rollout.n", "trainer.val_only and rollout.n > 1 or trainer.balance_batch", "fails", asked="True")
    assert either.findings(view)[0].message.endswith("with trainer.val_only=false: fails; set trainer.val_only=true")


def test_a_message_does_not_ask_for_what_is_set():
    correction = "algorithm.rollout_correction"
    view = RunView(composed([f"{correction}.rollout_is=token", f"{correction}.bypass_mode=true"]))
    [finding] = [each for each in rule_findings(view, RULES) if each.where == f"{correction}.rollout_is"]
    assert "bypass_mode=false" in finding.message and "calculate_log_probs" not in finding.message
