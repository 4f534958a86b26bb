"""Adapt pages for the site: links to files of the repository outside of this folder, and places where long names may break."""

import logging
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
# Of mkdocs, whose strict mode counts warnings.
logger = logging.getLogger("mkdocs.hooks.links")


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Send ``[text](../file)`` and links to folders to the repository, or name the file while its address is not known.

    The files have to exist.
    """

    def name(link: re.Match[str]) -> str:
        path, _, anchor = link[2].partition("#")
        place = (ROOT / "docs" / Path(page.file.src_uri).parent / path).resolve()
        if place.is_relative_to(ROOT / "docs") and place.is_file():
            return link[0]
        if not place.exists():
            logger.warning("%s: %s does not exist", page.file.src_uri, link[2])
        if not config.repo_url or not place.is_relative_to(ROOT):
            shown = str(place.relative_to(ROOT)) if place.is_relative_to(ROOT) else path
            return link[1] if shown in link[1] else f"{link[1]} (`{shown}`)"
        address = f"{config.repo_url.rstrip('/')}/blob/HEAD/{place.relative_to(ROOT)}"
        return f"[{link[1]}]({address}{'#' + anchor if anchor else ''})"

    return re.sub(r"\[([^\]]+)\]\(((?:\.\./)+[^)]*|results)\)", name, markdown)


def on_post_page(output: str, **_: Any) -> str:
    """Let long names in inline code break after a separator; ``<wbr>`` is neither seen nor copied."""

    def breakable(code: re.Match[str]) -> str:
        return "<code>" + re.sub(r"(?<=[^/._=,:])([/._=,:]+)(?=[A-Za-z0-9])", r"\1<wbr>", code[1]) + "</code>"

    return re.sub(r"(?<!<pre>)(?<!</span>)<code>([^<>\s]{8,})</code>", breakable, output)
