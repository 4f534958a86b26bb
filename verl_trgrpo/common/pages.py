"""Self-contained HTML pages from Jinja templates, in which all strings are escaped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

# Control characters, which a model may write and HTML does not allow.
_CONTROL = {code: "\ufffd" for code in range(32) if chr(code) not in "\t\n\r"}


def render_page(template: Path, **content: Any) -> str:
    """Render a Jinja template; every name that it uses must be in `content`. Lone surrogates become question marks."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(template.parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page = environment.get_template(template.name).render(**content).translate(_CONTROL)
    return page.encode("utf-8", errors="replace").decode("utf-8")
