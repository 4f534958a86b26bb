"""HTML pages from templates: one file that needs nothing else, in which all text is escaped, the models' above all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from verl_trgrpo.common.files import write_bytes

# A model may write anything; HTML has no place for these.
_CONTROL = {code: "\ufffd" for code in range(32) if chr(code) not in "\t\n\r"}


def render_page(template: Path, filters: Mapping[str, Callable[..., Any]] | None = None, **content: Any) -> str:
    """Return a Jinja template filled in; every name that it uses must be among `content`."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(template.parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(filters or {})
    return environment.get_template(template.name).render(**content).translate(_CONTROL)


def write_page(path: Path, page: str) -> None:
    """Write a page; half of a surrogate pair, which a model may write, becomes a question mark."""
    write_bytes(path, page.encode("utf-8", errors="replace"))
