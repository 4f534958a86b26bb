"""References between the values of a recorded configuration, which may be a stranger's: which are resolved, and how many."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from omegaconf import DictConfig, OmegaConf

from verl_trgrpo.common.secrets import without_passwords

# What begins a resolver: all but a reference to another key, and oc.select of a key, which veRL's configurations are full of.
_RESOLVER = re.compile(r"\$\{(?!(?:oc\.select: *)?[\w.\[\]]*[,}])")
_REFERENCE = re.compile(r"\$\{(?:oc\.select: *)?(\.*)([\w.\[\]]*)")
# References one after the other that lead to a value, and what all of them together may stand for: characters, each value and
# each reference as many as it takes time.
_MAX_DEPTH, _MAX_SIZE, _EACH = 32, 1 << 22, 256

Path = tuple[str, ...]


def inert(config: DictConfig) -> DictConfig:
    """Return a copy without passwords, and without resolvers other than ``oc.select``; their text stays, as ``$ {oc.env:NAME}``.

    A recorded configuration may be a stranger's, and its values are shown: ``${oc.env:NAME}`` would show variables of the
    reader's environment.
    """
    return OmegaConf.create(_plain(OmegaConf.to_container(config, resolve=False)))


def check_references(config: DictConfig) -> None:
    """Refuse references of an `inert` configuration that cannot be resolved in little time; few lines can stand for gigabytes.

    Raises:
        ValueError: they lead too far or stand for too much; the message names the key.
    """
    content = OmegaConf.to_container(config, resolve=False)
    sizes, size = _Sizes(content), 0
    for path, text in _texts(content, ()):
        if "${" in text:
            size += sizes.of(path, text, 0)
            if size > _MAX_SIZE:
                raise ValueError(f"{'.'.join(path)}: its references, with those before it, expand to too much")


class _Sizes:
    """What values stand for when all references are followed; never less than it is."""

    def __init__(self, content: Any) -> None:
        self._content = content
        self._known: dict[Path, tuple[int, int]] = {}  # size and further depth

    def of(self, path: Path, value: Any, depth: int) -> int:
        if path not in self._known:
            self._known[path] = (0, _MAX_DEPTH)  # while it is looked at: a circle
            size, further = _EACH, 0
            for place, text in _texts(value, path):
                size += len(text) + _EACH
                for dots, key in _REFERENCE.findall(text):
                    start = place[: -len(dots)] if dots else ()
                    target = (*start, *re.findall(r"\w+", key))
                    where, found = self._at(target)
                    size += _EACH + self.of(where, found, depth + 1)
                    further = max(further, 1 + self._known[where][1])
                    if further + depth > _MAX_DEPTH:
                        raise ValueError(
                            f"{'.'.join(place)}: its references lead in a circle or through too many others"
                        )
            self._known[path] = (min(size, 2 * _MAX_SIZE), further)
        return self._known[path][0]

    def _at(self, path: Path) -> tuple[Path, Any]:
        """Return the value of a key and its own key; a reference on the way stands for all that it refers to."""
        node = self._content
        for index, part in enumerate(path):
            if isinstance(node, dict):
                node = node.get(part, node.get(int(part)) if part.isdecimal() else None)
            elif isinstance(node, list) and part.isdecimal() and int(part) < len(node):
                node = node[int(part)]
            else:
                return path[:index], node
        return path, node


def _texts(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    """Yield the values that hold others and the strings among them, with their keys."""
    if isinstance(value, (dict, list)):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            yield from _texts(item, (*path, str(key)))
    else:
        yield path, value if isinstance(value, str) else ""


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if not isinstance(value, str):
        return value
    return without_passwords(value.replace("${", "$ {") if _RESOLVER.search(value) else value)
