"""Describe rules between settings as rows of data, whose conditions are Python expressions over dotted keys.

``rollout.n == 1`` is true where ``actor_rollout_ref.rollout.n`` is 1: a key begins with one of `SECTIONS`, and a name without a
dot is one of `FACTS`. Keys, their values and, where only one value would do, the remedy come from the condition into the message.

Python itself evaluates the conditions. They are constants of this package, and no text from a configuration or a file is one.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

from verl_trgrpo.checks.view import RunView
from verl_trgrpo.common.findings import Finding, Level
from verl_trgrpo.common.text import as_plain_yaml
from verl_trgrpo.runs import keys
from verl_trgrpo.runs.keys import flat

# Short names of sections.
SECTIONS = {
    **{name: name for name in (
        "actor_rollout_ref", "algorithm", "async_training", "critic", "data", "distillation", "global_profiler", "reward", "skip",
        "trainer",
    )},
    "actor": keys.ACTOR, "correction": keys.CORRECTION, "engine": f"{keys.ACTOR}.fsdp_config", "loss": keys.LOSS,
    "manager": keys.MANAGER, "model": keys.MODEL, "optim": f"{keys.ACTOR}.optim", "overlong": keys.OVERLONG,
    "pool": "rollout",  # of a trainer whose rollout has GPUs of its own
    "ray_init": "ray_kwargs.ray_init", "ref": keys.REF, "reward_function": keys.REWARD, "reward_model": keys.REWARD_MODEL,
    "rollout": keys.ROLLOUT, "sampler": "trainer.v1.sampler", "validation": f"{keys.ROLLOUT}.val_kwargs",
}  # fmt: skip
# Conditions of several rows. A LoRA adapter is one of FSDP, one of Megatron, or one that is loaded.
SEPARATE = "trainer.v1.trainer_mode == 'separate_async'"
HAS_LORA = "((model.lora_rank or 0) > 0 or (model.lora.rank or 0) > 0 or model.lora_adapter_path is not None)"
# What a condition may ask of the view of a run beside its settings.
FACTS = (
    "algorithm_name", "changed", "data_parallel", "decoder", "gpus", "has_reference", "loggers", "longest", "may_call_tools",
    "model_parallel", "needs_critic", "rows", "sequence_parallel", "size_of_reference", "split", "steps_of_epochs",
    "trainer_name", "updates",
)  # fmt: skip
# Settings that a message shows, at most.
_SHOWN = 4


@dataclass(frozen=True)
class Rule:
    """A setting that needs others.

    Args:
        key: the setting that is reported.
        needs: condition of values that the setting works with.
        otherwise: what happens without them, then a semicolon and what to do; the latter is left out where `needs` has only one
            remedy. ``{KEY}`` becomes ``KEY=value``, ``<KEY>`` the whole key and ``{= EXPRESSION}`` its value. Unless what happens
            names keys, those of the parts of `needs` that are not met are put in front, with their values.
        asked: condition of values that ask for the setting; by default, that the value of `key` is true.
        level: of the finding.
        v1: the rule is one of veRL's v1 trainer, and does not hold for the older one.

    Raises:
        ValueError: a condition names an unknown section or fact, or is not a valid expression.
    """

    key: str
    needs: str
    otherwise: str
    asked: str = ""
    level: Level = Level.ERROR
    v1: bool = False

    def __post_init__(self) -> None:
        for text in (self.needs, self.asked or self.key, *re.findall(r"\{= ([^{}]+)\}", self.otherwise)):
            _condition(text)

    def asking(self, view: RunView) -> dict[str, Any]:
        """Return the settings that ask for what the rule needs, and their values; the first is the one that is reported."""
        return {full(self.key): view[full(self.key)]} if _condition(self.asked or self.key)(view) else {}

    def holds(self, view: RunView) -> bool:
        """Return whether the rule is one of the run's trainer: one of main_ppo, or one that reads all keys of the rule."""
        if self.v1 or view.trainer_name in ("v1", "older"):
            return not self.v1 or view.trainer_name == "v1"
        keys = {*_condition(self.needs).keys, *_condition(self.asked or self.key).keys}
        if view.trainer_name == "fully_async" and keys > {"data.train_batch_size"}:  # it takes 0 alone
            return False
        return not any(view.ignores(key) for key in keys)

    def findings(self, view: RunView) -> list[Finding]:
        """Return a finding if the setting is asked for and what it needs is missing."""
        needs, found = _condition(self.needs), self.asking(view)
        if not found or needs(view) or not self.holds(view):
            return []
        unmet = needs.unmet(view)
        reason, own, remedy = self.otherwise.partition("; ")
        others = [f"{key}={as_plain_yaml(view[key])}" for part in unmet for key in part.keys if key not in found]
        given = f" with {' and '.join(others)}" if others and "{" not in reason else ""
        if not own and all(part.remedy for part in unmet):
            remedy = f"set {' '.join(part.remedy for part in unmet)}"
        shown = ", ".join(f"{key}={as_plain_yaml(found[key])}" for key in [*found][:_SHOWN])
        more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        message = self._message(given, _filled(reason, view), _typed(_filled(remedy, view), view), [*found])
        return [Finding(self.level, next(iter(found)), f"{shown}{more}{message}")]

    def _message(self, given: str, reason: str, remedy: str, found: list[str]) -> str:
        return f"{given}: {reason}{'; ' if remedy else ''}{remedy}"


@dataclass(frozen=True)
class Switch(Rule):
    """Settings that have an effect only where other settings allow it, in veRL's v1 trainer.

    Args:
        key: patterns of the settings; those that differ from their defaults are reported together.
        needs: condition of values with which the settings have an effect.
        otherwise: why they have none without, and after a semicolon what else to do than to remove them; see :class:`Rule`.
        without: patterns of settings among those of `key` that are never reported.
        off: values that request nothing, and so agree with the switch.
    """

    otherwise: str = ""
    asked: str = "True"
    level: Level = Level.WARNING
    v1: bool = True
    without: str = "*.enable *.enabled"
    off: tuple[Any, ...] = ()

    def asking(self, view: RunView) -> dict[str, Any]:
        """Return the settings that were changed."""
        changed = view.changed
        return {key: value for key, value in changed.items() if self.covers(key) and value not in self.off}

    def covers(self, key: str) -> bool:
        """Return True for one of the settings, by its whole key."""
        return _matches(key, self.key) and not _matches(key, self.without)

    def _message(self, given: str, reason: str, remedy: str, found: list[str]) -> str:
        removed = found[0] if len(found) == 1 else f"these {len(found)} settings"
        because = f", because {reason}" if reason else ""
        return f": has no effect{given}{because}; {remedy}{', or ' if remedy else ''}remove {removed}"


def rule_findings(view: RunView, rules: Mapping[str, Rule]) -> list[Finding]:
    """Check every row of a table by name; the configuration has passed the checks of single values."""
    return [finding for rule in rules.values() for finding in rule.findings(view)]


def _filled(text: str, view: RunView) -> str:
    """Return a text with its placeholders replaced, see :class:`Rule`."""
    text = re.sub(r"\{= ([^{}]+)\}", lambda found: as_plain_yaml(_condition(found[1])(view)), text)
    text = re.sub(r"<([\w.]+)>", lambda found: full(found[1]), text)
    return re.sub(r"(?<!\$)\{([\w.]+)\}", lambda found: f"{full(found[1])}={as_plain_yaml(view[full(found[1])])}", text)


def _typed(remedy: str, view: RunView) -> str:
    """Return a remedy whose settings Hydra takes as printed: those that the configuration does not define get a plus."""
    defined = flat(view.run.defaults)
    setting = r"(?<![\w.+~])[a-z_]\w*(?:\.\w+)+(?==)"
    return re.sub(setting, lambda found: found[0] if found[0] in defined else f"++{found[0]}", remedy)


def full(key: str) -> str:
    """Return a dotted key or pattern with the whole name of its section."""
    section, dot, rest = key.partition(".")
    return f"{SECTIONS.get(section, section)}{dot}{rest}"


class Condition(ast.NodeTransformer):
    """A compiled condition: turns dotted keys and facts into what the view of a run has under them.

    Attributes:
        keys: that it reads.
        remedy: the only settings with which it is true, as overrides; "" where there are others.
    """

    def __init__(self, text: str) -> None:
        tree = ast.parse(text, mode="eval")
        self.keys: dict[str, None] = {}
        self.remedy = _remedy(tree.body)
        match tree.body:
            case ast.BoolOp(op=ast.And(), values=parts):
                pass
            case ast.BoolOp(values=[first, *_]):  # of alternatives the remedy is that of the first
                parts = [first]
            case _:
                parts = []
        self._parts = [Condition(ast.unparse(part)) for part in parts]
        self._code = compile(ast.fix_missing_locations(self.visit(tree)), text, "eval")

    def __call__(self, view: RunView) -> Any:
        return eval(self._code, {"__builtins__": {}, "view": view})

    def unmet(self, view: RunView) -> list[Condition]:
        """Return the parts of a conjunction that are not true, and the first of several conditions that would do."""
        unmet = []
        with suppress(TypeError):  # of a part that relies on an earlier one, as in `0 < (len or 0) and len <= most`
            for part in self._parts:
                if not part(view):
                    unmet += part.unmet(view)
        return unmet or [self]

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        key = ast.unparse(node)
        if key.partition(".")[0] not in SECTIONS:
            raise ValueError(f"{key}: is not below a known section; begin the key with one of {', '.join(SECTIONS)}")
        self.keys[full(key)] = None
        return ast.parse(f"view.compared({full(key)!r})", mode="eval").body

    def visit_Call(self, node: ast.Call) -> ast.expr:
        raise ValueError(f"{ast.unparse(node)}: is a call; ask for a key or a fact")

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id not in FACTS:
            raise ValueError(f"{node.id}: is not a known fact; use one of {', '.join(FACTS)}, or a dotted key")
        return ast.parse(f"view.{node.id}", mode="eval").body


@cache
def _condition(text: str) -> Condition:
    return Condition(text)


def _remedy(node: ast.expr) -> str:
    """Return the settings with which a condition is true, for the first of several conditions that would do."""
    match node:
        case ast.Attribute():
            return f"{full(ast.unparse(node))}=true"
        case ast.UnaryOp(op=ast.Not(), operand=ast.Attribute() as key):
            return f"{full(ast.unparse(key))}=false"
        case ast.Compare(left=ast.Attribute() as key, ops=[ast.Eq()], comparators=[ast.Constant(value)]):
            return f"{full(ast.unparse(key))}={as_plain_yaml(value)}"
        case ast.BoolOp(op=ast.Or(), values=[first, *_]):
            return _remedy(first)
        case ast.BoolOp(op=ast.And(), values=parts):
            remedies = [_remedy(part) for part in parts]
            return " ".join(remedies) if all(remedies) else ""
    return ""


def _matches(key: str, patterns: str) -> bool:
    return any(fnmatchcase(key, full(pattern)) for pattern in patterns.split())
