"""Write verl_trgrpo/runs/verl_keys.yaml: which keys a trainer of the installed veRL never reads, and which it reads beside those
that veRL's YAML files and dataclasses have.

    .venv/bin/python docs/make_key_table.py

The source is read, not run. From the entry point of a trainer the functions and classes that it can reach are followed by their
names. Of these, a read of a key is an attribute, a subscript or a ``get`` whose name is the last part of the key, behind the part
before or behind anything that is not a section of the configuration: ``rollout_config.n`` may read ``rollout.n``, and
``self.config.actor.n`` does not. A value that is kept in an attribute which nothing reads is not read. So what the table lists is
read nowhere, and what it does not list may be unread all the same.

A name that is read and has no line in veRL's YAML files belongs to the section whose keys are read from the same variable: a
function that takes ``prompt_key``, ``shuffle`` and ``cache_dir`` from its ``config`` reads ``data.cache_dir``.
"""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from verl_trgrpo.runs.compose import verl_defaults
from verl_trgrpo.runs.keys import flat
from verl_trgrpo.runs.readers import BUILT, KEY_TABLE

# Entry point of each trainer, and the modules of others to which it leads only if another one is asked for.
_V1, _OLDER = "verl.trainer.ppo.v1", "verl.trainer.main_ppo_v0"
TRAINERS = {
    "v1": ("verl.trainer.main_ppo", (_OLDER, "verl.trainer.ppo.ray_trainer.RayPPOTrainer")),
    "older": ("verl.trainer.main_ppo", (_V1,)),
    "one_step": ("verl.experimental.one_step_off_policy.main_ppo", (_V1,)),
    "fully_async": ("verl.experimental.fully_async_policy.fully_async_main", (_V1,)),
}
# Sections that veRL hands to others as a whole: agent loops, Ray, TransferQueue, profilers, the engine of another strategy; and
# sections of the interface before 0.8, which are moved to their new places before anything is read.
HANDED_OVER = (
    "actor_rollout_ref.rollout.custom", "reward.reward_model.rollout.custom", "ray_kwargs.ray_init.", "transfer_queue.",
    "distillation.teacher_models.teacher_model.inference.custom", "global_profiler.global_tool_config.", "reward_model.",
    "sandbox_fusion.", "actor_rollout_ref.actor.fsdp_config.turbo_config.", "actor_rollout_ref.ref.fsdp_config.turbo_config.",
    "critic.fsdp.turbo_config.", "actor_rollout_ref.model.lora.", "critic.model.lora.",
)  # fmt: skip
_GETTERS = re.compile("get|attr|pop|select|annotate")
# Names of variables that hold a section under another name than its own.
_CONFIG = re.compile("config|cfg")
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class Source:
    """The modules of a package, their functions and classes, and what each name in them stands for.

    Args:
        package: directory of the package.
    """

    def __init__(self, package: Path) -> None:
        self.trees: dict[str, ast.Module] = {}
        self.names: dict[str, dict[str, str]] = {}
        self.stars: dict[str, list[str]] = {}
        self.definitions: dict[str, ast.AST] = {}
        for path in sorted(package.rglob("*.py")):
            parts = path.relative_to(package.parent).with_suffix("").parts
            module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            self.trees[module] = tree = ast.parse(path.read_text(encoding="utf-8"))
            self.names[module] = _imported(tree, module if parts[-1] == "__init__" else module.rpartition(".")[0])
            self.stars[module] = [name[:-2] for name in self.names[module].values() if name.endswith(".*")]
            for top in tree.body:
                for node in ast.walk(top) if isinstance(top, ast.If | ast.Try) else [top]:
                    if isinstance(node, _Definition):
                        self.definitions.setdefault(f"{module}.{node.name}", node)

    def meant(self, name: str, depth: int = 6) -> set[str]:
        """Return the definition or module that a dotted name stands for, through imports of imports."""
        if name in self.definitions or name in self.trees:
            return {name}
        base, _, last = name.rpartition(".")
        if not base or not depth:
            return set()
        if base in self.trees and last in self.names[base]:
            return self.meant(self.names[base][last], depth - 1)
        for star in self.stars.get(base, ()):
            if f"{star}.{last}" in self.definitions:
                return {f"{star}.{last}"}
        return self.meant(base, depth - 1)

    def _packages(self, name: str) -> set[str]:
        """Return the modules that an import of `name` runs."""
        parts = name.split(".")
        return {".".join(parts[:end]) for end in range(1, len(parts) + 1)} & self.trees.keys()

    @cache  # noqa: B019  # trainers share most pieces; a source lives as long as the program
    def _mentioned(self, module: str, node: ast.AST) -> set[str]:
        """Return what a piece of a module mentions: names, imports, and dotted names in strings."""
        names, found = self.names[module], set[str]()
        for part in ast.walk(node):
            if isinstance(part, ast.Name | ast.Attribute) and (dotted := _dotted(part)):
                first, _, rest = dotted.partition(".")
                local = f"{module}.{first}"
                found |= self.meant(".".join(filter(None, (names.get(first, local), rest))))
            elif isinstance(part, ast.Import | ast.ImportFrom):
                for alias in part.names:
                    found |= self._packages(names.get(alias.asname or alias.name, alias.name))
            elif isinstance(part, ast.Constant) and isinstance(part.value, str) and part.value.startswith("verl."):
                found |= self.meant(part.value)
        return found

    def reached(self, entries: Iterable[str], without: tuple[str, ...]) -> list[tuple[str, ast.AST]]:
        """Return the definitions and statements, with their modules, that entries lead to."""
        seen: set[str] = set()
        todo, pieces = list(entries), list[tuple[str, ast.AST]]()
        while todo:
            name = todo.pop()
            if name in seen or name.startswith(without):
                continue
            seen.add(name)
            module = name
            while module not in self.trees:
                module = module.rpartition(".")[0]
            todo += self._packages(module)
            # A module runs its statements, and registers what has a decorator; a plain definition counts when it is mentioned.
            body = self.trees[module].body if module == name else [self.definitions[name]]
            for node in body:
                if module == name and isinstance(node, _Definition):
                    todo += [f"{module}.{node.name}"] if node.decorator_list else []
                    continue
                pieces.append((module, node))
                todo += self._mentioned(module, node)
        return pieces


def _imported(tree: ast.AST, package: str) -> dict[str, str]:
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.asname or alias.name.split(".")[0]: alias.name if alias.asname else alias.name.split(".")[0]
                      for alias in node.names}  # fmt: skip
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")
            base = ".".join([*parts[: len(parts) - node.level + 1], *filter(None, [node.module])])
            origin = base if node.level else str(node.module)
            found |= {
                origin if alias.name == "*" else alias.asname or alias.name: f"{origin}.{alias.name}"
                for alias in node.names
            }
    return found


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        base = _dotted(node.value)
        return base and f"{base}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _chain(node: ast.expr) -> tuple[str, ...]:
    """Return the names in ``a.b["c"].get("d")``; ``?`` for anything else."""
    match node:
        case ast.Name(id=name):
            return (name,)
        case ast.Attribute(value=base, attr=name) | ast.Subscript(value=base, slice=ast.Constant(value=str(name))):
            return (*_chain(base), name)
        case ast.Call(func=ast.Attribute(value=base, attr="get" | "pop"), args=[ast.Constant(value=str(name)), *_]):
            return (*_chain(base), *name.split("."))
        case ast.Call(args=[base, ast.Constant(value=str(name)), *_]):  # getattr, OmegaConf.select
            return (*_chain(base), *name.split("."))
        case ast.Call(args=[base, *_]):  # omega_conf_to_dataclass, to_container, deepcopy
            return _chain(base)
    return ("?",)


def reads(source: Source, pieces: Iterable[tuple[str, ast.AST]]) -> Mapping[str, set[str]]:
    """Return the names that pieces of source read as attributes or keys, and for each the names that stand before."""
    found: dict[str, set[str]] = defaultdict(set)
    pieces = [*pieces]
    loaded = {name for _, node in pieces for name in _loaded(node)}
    for module, node in pieces:
        for before, name, kept in _reads_of(source, module, node):
            if not kept or kept in loaded:
                found[name].add(before)
    return found


@cache
def _kept(top: ast.AST) -> Mapping[int, str]:
    """Return the attribute of ``self`` to which a value is assigned as it is, by the identity of the value's node."""
    return {
        id(node.value): target.attr
        for node in ast.walk(top)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self"
    }


@cache
def _loaded(top: ast.AST) -> set[str]:
    """Return the names of the attributes that a piece of source reads, by ``getattr`` as well, other than to keep the value."""
    found = set()
    for node in ast.walk(top):
        match node:
            case ast.Attribute(attr=name, ctx=ast.Load()) if id(node) not in _kept(top):
                found.add(name)
            case ast.Call(func=ast.Name(id="getattr" | "hasattr"), args=[_, ast.Constant(value=str(name)), *_]):
                found.add(name)
    return found


@cache
def _reads_of(source: Source, module: str, top: ast.AST) -> set[tuple[str, str, str]]:
    """Return what stands before a name that is read, the name, and the attribute of ``self`` in which alone it is kept."""
    found: set[tuple[str, str, str]] = set()
    of_options = isinstance(top, ast.ClassDef) and any("dataclass" in ast.unparse(each) for each in top.decorator_list)
    kept = {} if of_options else _kept(top)
    alien = {name for name, origin in source.names[module].items() if not origin.startswith("verl")}
    for node in ast.walk(top):
        loads = isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Load)
        if loads or isinstance(node, ast.Call):
            chain = _chain(node)
            if len(chain) > 1 and chain[0] not in alien and (of_options or chain[-2] != "self"):
                found.add((chain[-2], chain[-1], kept.get(id(node), "")))
        plain: list[Any] = []
        if isinstance(node, ast.Call) and _GETTERS.search(_dotted(node.func).rpartition(".")[2]):
            plain = (
                [] if id(node) in kept else [*node.args, *(word.value for word in node.keywords if word.arg == "role")]
            )
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
            plain = [node.left]
        elif isinstance(node, ast.For | ast.comprehension) and isinstance(node.iter, ast.Tuple | ast.List):
            plain = node.iter.elts
        found |= {
            ("?", each.value, "") for each in plain if isinstance(each, ast.Constant) and isinstance(each.value, str)
        }
    return found


def unread_keys(source: Source, config: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the keys that trainers do not read, each with those trainers.

    Args:
        source: of veRL.
        config: its defaults, by dotted key.
    """
    sections = {part for key in config for part in key.split(".")[:-1]}
    config = {**config, **dict.fromkeys(_fields(source, config))}
    found: dict[str, list[str]] = defaultdict(list)
    for trainer in TRAINERS:
        read = reads(source, _pieces_of(source, config, trainer))
        for key in config:
            *_, before, name = ["", *key.split(".")]
            behind = read.get(name, set())
            if name.startswith("_") or key.startswith(HANDED_OVER) or before in behind or behind - sections:
                continue
            found[key].append(trainer)
    return dict(found)


def _pieces_of(source: Source, config: Mapping[str, Any], trainer: str) -> list[tuple[str, ast.AST]]:
    """Return what a trainer leads to, the dataclasses of the configuration included."""
    entry, without = TRAINERS[trainer]
    entries = [entry, *(name for name in source.definitions if name.rpartition(".")[0] == entry)]
    options = {str(value) for key, value in config.items() if key.endswith("_target_")}
    return source.reached([*entries, *(name for option in options for name in source.meant(option))], without)


def read_keys(source: Source, config: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the names that veRL reads in a section beside those of its YAML and of its dataclass, by section ("" is the whole).

    Those of the trainers behind ``verl.trainer.main_ppo``, with which runs are trained here.

    Args:
        source: of veRL.
        config: its defaults, by dotted key.
    """
    sections: dict[str, set[str]] = defaultdict(set)
    for key in [*config, *_fields(source, config)]:
        parts = key.split(".")
        for end, name in enumerate(parts):
            sections[".".join(parts[:end])].add(name)
    pieces = {id(node): (module, node) for each in ("v1", "older") for module, node in _pieces_of(source, config, each)}
    found: dict[str, set[str]] = defaultdict(set)
    for module, node in pieces.values():
        for chain, names in _held(source, module, node).items():
            votes = {section: len(names & known) for section, known in sections.items() if names & known}
            of_most = [section for section, count in votes.items() if count == max(votes.values())]
            of_name = [section for section in sections if f".{'.'.join(chain)}".endswith(f".{section}")]
            for section in of_most if len(of_most) == 1 and _CONFIG.search(chain[-1]) else of_name:
                if _CONFIG.search(".".join(chain)) and not section.startswith(BUILT):
                    found[section] |= names - sections[section]
    return {section: sorted(names) for section, names in sorted(found.items()) if names}


def _held(source: Source, module: str, top: ast.AST) -> Mapping[tuple[str, ...], set[str]]:
    """Return the names that a piece of source reads behind each variable, the names that it calls left out."""
    held: dict[tuple[str, ...], set[str]] = defaultdict(set)
    alien = {name for name, origin in source.names[module].items() if not origin.startswith("verl")}
    called = {id(node.func) for node in ast.walk(top) if isinstance(node, ast.Call)}
    assigned: dict[str, tuple[str, ...]] = {}  # names that a function gives to sections
    for node in ast.walk(top):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            value = node.value.values[0] if isinstance(node.value, ast.BoolOp) else node.value
            assigned[node.targets[0].id] = _chain(value)
    for node in ast.walk(top):
        loads = isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Load)
        if (loads and id(node) not in called) or isinstance(node, ast.Call):
            chain = _chain(node)
            if len(chain) > 1 and chain[0] not in alien and "?" not in chain and not chain[-1].startswith("_"):
                section = assigned.get(chain[0], ())
                held[(*(section if len(section) > 1 and "?" not in section else chain[:1]), *chain[1:-1])].add(
                    chain[-1]
                )
    return held


def _fields(source: Source, config: Mapping[str, Any]) -> Iterator[str]:
    """Yield the keys that the dataclass of a section has beside those in its YAML."""
    for key, target in config.items():
        section, _, last = key.rpartition(".")
        for name in source.meant(str(target)) if last == "_target_" else ():
            for node in getattr(source.definitions.get(name), "body", ()):
                if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                    yield f"{section}.{node.target.id}"


def installed_table() -> str:
    """Return the table of the installed veRL as YAML."""
    [package] = importlib.util.find_spec("verl").submodule_search_locations  # found, not imported, which takes seconds
    source, defaults = Source(Path(package)), flat(verl_defaults())
    lines = [
        "# Keys of veRL's configuration, and the trainers that never read them; and keys that veRL reads and has no line for.",
        "# Made by docs/make_key_table.py.",
        f"verl: {importlib.metadata.version('verl')}",
        "unread:",
        *(f"  {key}: [{', '.join(trainers)}]" for key, trainers in unread_keys(source, defaults).items()),
        "read:",
        *(
            f"  {section or chr(34) * 2}: [{', '.join(names)}]"
            for section, names in read_keys(source, defaults).items()
        ),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    KEY_TABLE.write_text(installed_table(), encoding="utf-8")
