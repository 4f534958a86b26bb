"""Adapt links for the site: those to files of the repository outside of this folder become their names."""

import re
from typing import Any


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Turn ``[text](../file)`` and links to folders into text; the site has no place for these files."""
    return re.sub(r"\[([^\]]+)\]\((?:\.\./(?!results\.md)[^)]*|results)\)", r"\1", markdown)
