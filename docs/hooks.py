"""Adapt links for the site: those to files of the repository outside of this folder become their names."""

import logging
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
# Of mkdocs, whose strict mode counts warnings.
logger = logging.getLogger("mkdocs.hooks.links")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turn ``[text](../file)`` and links to folders into text; the site has no place for these files. They have to exist."""

    def name(link: re.Match[str]) -> str:
        place = ROOT / "docs" / Path(page.file.src_uri).parent / link[2].partition("#")[0]
        if place.resolve().is_relative_to(ROOT / "docs") and place.is_file():
            return link[0]
        if not place.exists():
            logger.warning("%s: %s does not exist", page.file.src_uri, link[2])
        return link[1]

    return re.sub(r"\[([^\]]+)\]\(((?:\.\./)+[^)]*|results)\)", name, markdown)
