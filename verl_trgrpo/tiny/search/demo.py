"""The search demonstration: world, index, server, training, and a trajectory to look at."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

from verl_trgrpo.retrieval.tantivy_index import IndexOptions, build_index
from verl_trgrpo.tiny.search.dataset import CORPUS, build_dataset


def prepare(directory: Path, seed: int) -> bool:
    """Write data, corpus and index below `directory`, or find them there; return whether anything was built."""
    built = build_dataset(directory / "data", seed)
    options = IndexOptions(corpus=directory / "data" / CORPUS, out=directory / "index")
    try:
        indexed = build_index(options)
    except ValueError:  # another corpus or format, or damaged; all of it is made from the seed, so nothing can be lost
        indexed = build_index(replace(options, force=True))
    return built or indexed.built


def example_trajectory(generations: Path, seed: int = 0) -> dict[str, Any] | None:
    """Return a response of the latest validation, or None where there is none.

    It is a right one with the most searches, or where none is right any one with the most searches.

    Args:
        generations: directory of veRL's validation dumps, a file ``STEP.jsonl`` for each, with ``input``, ``output`` and
            ``score`` per line.
        seed: chooses among equals.

    Returns:
        the line, and the step under ``step``.
    """
    steps = [int(path.stem) for path in generations.glob("*.jsonl") if path.stem.isdecimal()]
    if not steps:
        return None
    # A line ends at a line feed only: the text may hold other separators.
    lines = (generations / f"{max(steps)}.jsonl").read_text(encoding="utf-8").split("\n")
    rows = [json.loads(line) for line in lines if line]
    right = [row for row in rows if row["score"] == 1] or rows
    most = max((row["output"].count("</search>") for row in right), default=0)
    candidates = [row for row in right if row["output"].count("</search>") == most]
    return {**random.Random(seed).choice(candidates), "step": max(steps)} if candidates else None
